"""The registry of file formats, one record each. A file of another format is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from aimfor._base.errors import DataError
from aimfor.tables import _columnar, _delimited, _excel, _json_lines, _matrix_files, _writers
from aimfor.tables._reading import ReadOptions, is_gzip

Facts = Callable[[Path, ReadOptions], tuple[pa.Schema, "int | None"]]
Pieces = Callable[..., Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Format:
    """One kind of file.

    A file of rows with named columns has `facts` and `pieces`; one that holds a matrix has `matrix` instead.

    Attributes:
        name: as messages call it.
        suffixes: ends of file names, in small letters with their dot.
        facts: gives names and types of the columns, and the number of rows, or None where only reading tells.
        pieces: gives the rows of some columns, in order; texts that may hold numbers or dates stay texts.
        matrix: gives features `[n, D]` and labels, or None for the labels.
        writer: makes an object with `write_table` and `close` for an open file and a schema; None: it is never written.
        groups: gives the rows of each group that can be read by itself, for processes that share a file; `pieces` then
            takes the numbers of some groups as its fourth argument.
        units: what processes deal out, as messages call one of them and several.
        more_units: what to do for more of them.
        gzipped: a name may have `.gz` behind its suffix.
    """

    name: str
    suffixes: tuple[str, ...]
    facts: Facts | None = None
    pieces: Pieces | None = None
    matrix: Callable[[Path], tuple[Any, Any]] | None = None
    writer: Callable[[Any, pa.Schema], Any] | None = None
    groups: Callable[[Path], list[int]] | None = None
    units: tuple[str, str] = ("file", "files")
    more_units: str = "write the rows to more files"
    gzipped: bool = False


FORMATS: dict[str, Format] = {}


def register(new: Format) -> None:
    """Add a format; all commands read it from then on.

    Raises:
        ValueError: where a suffix belongs to another format, or readers are missing.
    """
    for suffix in new.suffixes:
        if suffix in FORMATS:
            raise ValueError(f"{suffix} belongs to {FORMATS[suffix].name}, so {new.name} cannot have it")
        if suffix != suffix.lower() or not suffix.startswith(".") or suffix == ".gz":
            raise ValueError(f"a suffix is written in small letters behind a dot, got {suffix!r}")
    if (new.facts is None) != (new.pieces is None) or (new.facts is None) == (new.matrix is None):
        raise ValueError(f"the format {new.name} needs facts and pieces, or matrix alone")
    FORMATS.update(dict.fromkeys(new.suffixes, new))


def format_of(path: Path) -> Format:
    """The format of a file, by the end of its name."""
    zipped = is_gzip(path)
    suffix = (path.with_suffix("") if zipped else path).suffix.lower()
    found = FORMATS.get(suffix)
    if found is None or (zipped and not found.gzipped):
        packed = ", ".join(f"{suffix}.gz" for suffix, entry in FORMATS.items() if entry.gzipped)
        raise DataError(f"{path}: files of this kind cannot be read; names must end in {', '.join(FORMATS)}, {packed}")
    return found


def output_suffix(path: Path) -> str:
    """The end of the name of a file with something for each row of this one: its own where that can be written."""
    kind = format_of(path)
    return ".csv" if kind.writer is None else kind.suffixes[0] if is_gzip(path) else path.suffix.lower()


def writer_of(path: Path) -> Callable[[Any, pa.Schema], Any]:
    """What writes a file of this name."""
    found = FORMATS.get(path.suffix.lower())
    if found is None or found.writer is None:
        known = ", ".join(suffix for suffix, entry in FORMATS.items() if entry.writer is not None)
        raise DataError(f"{path}: files of this kind cannot be written; the name must end in one of {known}")
    return found.writer


for _format in (
    Format("CSV", (".csv",), _delimited.csv_facts, _delimited.csv_pieces, writer=_writers.csv_writer, gzipped=True),
    Format("TSV", (".tsv",), _delimited.tsv_facts, _delimited.tsv_pieces, writer=_writers.tsv_writer, gzipped=True),
    Format(
        "Parquet",
        (".parquet",),
        _columnar.parquet_facts,
        _columnar.parquet_pieces,
        writer=_writers.parquet_writer,
        groups=_columnar.parquet_groups,
        units=("row group", "row groups"),
        more_units="write the Parquet files with a smaller row_group_size",
    ),
    Format(
        "Arrow",
        (".arrow", ".feather"),
        _columnar.arrow_facts,
        _columnar.arrow_pieces,
        writer=_writers.arrow_writer,
        groups=_columnar.arrow_groups,
        units=("record batch", "record batches"),
        more_units="write the files with smaller record batches",
    ),
    Format("JSON Lines", (".jsonl", ".ndjson"), _json_lines.json_facts, _json_lines.json_pieces, gzipped=True),
    Format("Excel", (".xlsx",), _excel.excel_facts, _excel.excel_pieces),
    Format("SVMlight", (".svm", ".libsvm", ".svmlight"), matrix=_matrix_files.read_svmlight, gzipped=True),
    Format("NPZ", (".npz",), matrix=_matrix_files.read_npz),
):
    register(_format)
