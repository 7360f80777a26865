"""CSV and TSV files. Encoding, separator and header are detected, and all cells are read as texts."""

from __future__ import annotations

import codecs
import csv
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv

from aimfor._base.errors import DataError
from aimfor.tables._reading import ReadOptions, blocks_of, is_gzip, one_line
from aimfor.tables._storage import arrow_file

BLOCK = 4 * 2**20  # bytes that are parsed at a time; no line may be longer
SAMPLE = 64 * 2**10  # characters from which the separator is found out
SAMPLE_LINES = 50
SEPARATORS = (",", ";", "\t", "|")
BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
PLAIN_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?\s*")


class Dialect(NamedTuple):
    """How the cells of a file are written."""

    separator: str
    encoding: str
    names: tuple[str, ...]


def csv_facts(path: Path, options: ReadOptions) -> tuple[pa.Schema, int | None]:
    """Names of the columns, all texts; the number of rows shows when they are read."""
    found = dialect(path, options, ",")
    return _schema(found), None


def tsv_facts(path: Path, options: ReadOptions) -> tuple[pa.Schema, int | None]:
    """Names of the columns, all texts; the number of rows shows when they are read."""
    return _schema(dialect(path, options, "\t")), None


def csv_pieces(path: Path, options: ReadOptions, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these columns."""
    return _pieces(path, dialect(path, options, ","), names)


def tsv_pieces(path: Path, options: ReadOptions, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these columns."""
    return _pieces(path, dialect(path, options, "\t"), names)


def dialect(path: Path, options: ReadOptions, usual: str) -> Dialect:
    """How a file is written, by its options and else by its contents."""
    status = path.stat()
    return _dialect(path, options.separator, options.encoding, usual, (status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=4096)  # each file is read several times; its size and time tell when it changed
def _dialect(path: Path, separator: str | None, encoding: str | None, usual: str, version: tuple[int, int]) -> Dialect:
    if version[0] == 0:
        raise DataError(f"{path} is empty")
    encoding = encoding or _encoding(path)
    lines = _first_lines(path, encoding)
    if not lines:
        raise DataError(f"{path} is empty")
    separator = separator or _separator(lines, usual)
    rows = _cells(lines, separator)
    names = rows[0]
    _check_header(path, rows)
    # The unnamed first column is that in which pandas writes row numbers.
    return Dialect(separator, encoding, tuple(names[1:] if len(names) > 1 and not names[0] else names))


def _schema(found: Dialect) -> pa.Schema:
    return pa.schema([pa.field(name, pa.string()) for name in found.names])


def _pieces(path: Path, found: Dialect, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    # All as texts: Arrow would settle the types by the first block and fail on a later one that differs.
    yield from pyarrow.csv.open_csv(
        _unpacked(path),
        # One thread, as only then errors tell the row; with several the time is about the same.
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK, encoding=found.encoding),
        parse_options=pyarrow.csv.ParseOptions(delimiter=found.separator, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), include_columns=list(names), strings_can_be_null=True
        ),
    )


def _unpacked(path: Path) -> Any:
    # Of a file on this machine Arrow sees by its name that it is compressed.
    if isinstance(path, Path) or not is_gzip(path):
        return arrow_file(path)
    return pa.CompressedInputStream(arrow_file(path), "gzip")


# Finding out


def _encoding(path: Path) -> str:
    """UTF-8 where all bytes are; else UTF-16 by its mark or its zeros, else Windows-1252 or Latin-1."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    start, right, windows = b"", True, True
    for block in blocks_of(path):
        if not start:
            start = block
            for bom, encoding in BOMS.items():
                if block.startswith(bom) and encoding != "utf-8":
                    return encoding
            if guessed := _utf16_without_mark(block[:SAMPLE]):
                return guessed
        if b"\0" in block:
            raise DataError(f"{path} holds bytes of zero, so it is no text: is it another kind of file?")
        if right:
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                right = False
        if not right:
            windows = windows and not any(byte in block for byte in b"\x81\x8d\x8f\x90\x9d")
    if right and not decoder.getstate()[0]:
        return "utf-8"
    encoding = "cp1252" if windows else "latin-1"
    named = {"cp1252": "Windows-1252", "latin-1": "Latin-1"}[encoding]
    warnings.warn(f"{path} is not UTF-8 and was read as {named}; --encoding names another one", stacklevel=2)
    return encoding


def _utf16_without_mark(start: bytes) -> str | None:
    """Latin letters in UTF-16 have a zero in every second byte."""
    half = len(start) // 2
    if half < 4:
        return None
    for encoding, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[0::2])):
        if zeros.count(0) > 0.7 * half:
            return encoding
    return None


def _first_lines(path: Path, encoding: str) -> list[str]:
    """Some whole lines from the start of a file; the line of names is whole however long it is."""
    decoder = codecs.getincrementaldecoder(encoding)()
    text, whole = "", True
    for block in blocks_of(path):
        text += decoder.decode(block)
        if len(text) > SAMPLE and "\n" in text:
            whole = False
            break
    text = text.removeprefix("\ufeff")
    lines = text.splitlines(keepends=True)
    return [line for line in (lines if whole or len(lines) < 2 else lines[:-1]) if line.strip("\r\n")]


def _cells(lines: list[str], separator: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines[:SAMPLE_LINES], delimiter=separator))
    except csv.Error:  # a cell beyond the limit of Python's reader, as where a long line is not separated so
        return [line.rstrip("\r\n").split(separator) for line in lines[:SAMPLE_LINES]]


def _separator(lines: list[str], usual: str) -> str:
    """The one that gives the most columns, the same in all lines; the usual one where none does."""
    best, most = usual, (False, 1)
    for candidate in dict.fromkeys((usual, *SEPARATORS)):
        counts = [len(row) for row in _cells(lines, candidate)]
        found = (counts[0] > 1 and len(set(counts)) == 1, counts[0])
        if found > most:
            best, most = candidate, found
    return best


def _check_header(path: Path, rows: list[list[str]]) -> None:
    """Refuse a file whose first line holds values: all names over columns of numbers are numbers as well."""
    names, values = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    if not values or not any(PLAIN_NUMBER.fullmatch(name) for name in names):
        return
    numeric = [index for index in range(len(names)) if all(PLAIN_NUMBER.fullmatch(row[index]) for row in values)]
    counted = [name for name in names if name.strip().isdigit()]
    rising = (
        counted == [str(index) for index in range(int(counted[0]), int(counted[0]) + len(counted))]
        if counted
        else False
    )
    if numeric and not (rising and len(counted) > 1) and all(PLAIN_NUMBER.fullmatch(names[index]) for index in numeric):
        shown = one_line(", ".join(names[:5]), 60)
        raise DataError(f"{path} has no line of names: its first line holds values ({shown}); add a line of names")
