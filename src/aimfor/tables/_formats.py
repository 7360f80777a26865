"""Read: the kinds of files; each gives its columns, its rows piece by piece, or one sentence on what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from aimfor._base.errors import DataError

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

SIZE = 16_384  # rows read at a time
BLOCK = 4 * 2**20  # bytes of a CSV file that are parsed at a time; no line may be longer
KINDS = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".svm": "SVMlight",
    ".libsvm": "SVMlight",
    ".svmlight": "SVMlight",
    ".npz": "NPZ",
}
ZIPPED = ("CSV", "TSV", "SVMlight")  # may have .gz behind
_ZONED = pa.timestamp("ns", "UTC")
# What a column of texts is read as: the first of these that fits its values so far, and what may come after it. Each
# reads all that those before it in its line have read, so that no earlier row has to be looked at again.
WIDER = {
    pa.null(): (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("ns"), _ZONED, pa.string()),
    pa.int64(): (pa.float64(), pa.string()),
    pa.float64(): (pa.string(),),
    pa.bool_(): (pa.string(),),
    pa.date32(): (pa.timestamp("ns"), pa.string()),
    pa.timestamp("ns"): (pa.string(),),
    _ZONED: (pa.string(),),
}


def kind_of(path: Path) -> str:
    """What a file is, by the end of its name."""
    zipped = path.suffix.lower() == ".gz"
    kind = KINDS.get((path.with_suffix("") if zipped else path).suffix.lower())
    if kind is None or (zipped and kind not in ZIPPED):
        known = ", ".join(KINDS)
        raise DataError(f"{path} must end in one of {known} (.csv, .tsv and .svm also with .gz)")
    return kind


def fingerprint(paths: Iterable[Path]) -> str:
    """SHA-256 over name, size and contents of each file, read in blocks."""
    digest = hashlib.sha256()
    for path in paths:
        with reading(path, "file"), path.open("rb") as file:
            digest.update(f"{path.name}\n{path.stat().st_size}\n".encode())
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn what the readers raise over a bad file into one sentence that names it."""
    try:
        yield
    except DataError:
        raise
    except UnicodeError:
        raise DataError(f"{path} must be UTF-8, got other bytes") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        if "invalid UTF8" in str(error):
            raise DataError(f"{path} must be UTF-8, got other bytes") from None
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path} cannot be read as {kind}: {_one_line(reason)}") from None


def _one_line(text: str) -> str:
    shown = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return shown if len(shown) <= 200 else shown[:200] + "..."


# Texts: CSV and TSV


def fitting_type(column: pa.Array, current: pa.DataType) -> pa.DataType:
    """The type that fits these texts and all those that `current` fits."""
    if current == pa.string() or column.null_count == len(column):
        return current
    for candidate in (current, *WIDER[current]):
        if candidate != pa.null() and (candidate == pa.string() or _fits(column, candidate)):
            return candidate
    raise AssertionError("every column fits texts")


def _fits(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        _from_texts(column, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _from_texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        # Spaces around numbers are common where columns were lined up; trimming all values costs time, hence only then.
        return pc.utf8_trim_whitespace(column).cast(kind)


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of a file in the type that it has over all files."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == kind:
        return column
    if pa.types.is_null(kind):  # nothing but missing values was found
        return pa.nulls(len(column))
    return _from_texts(column, kind) if column.type == pa.string() else column.cast(kind, safe=False)


def header(path: Path, kind: str) -> list[str]:
    """Names of the columns of a CSV file, without the unnamed first one in which pandas writes row numbers."""
    names = _open_csv(path, kind, pyarrow.csv.ConvertOptions()).schema.names
    return names[1:] if len(names) > 1 and not names[0] else names


def _csv_pieces(path: Path, kind: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    # All as texts: Arrow would settle the types by the first block and fail on a later one that differs.
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), include_columns=list(names), strings_can_be_null=True
    )
    yield from _open_csv(path, kind, convert)


def _open_csv(path: Path, kind: str, convert: pyarrow.csv.ConvertOptions) -> pyarrow.csv.CSVStreamingReader:
    return pyarrow.csv.open_csv(
        path,
        # One thread, as only then errors tell the row; with several the time is about the same.
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t" if kind == "TSV" else ",", newlines_in_values=True),
        convert_options=convert,
    )


# Binary: Parquet and Arrow


def _parquet_facts(path: Path) -> tuple[pa.Schema, int]:
    with pyarrow.parquet.ParquetFile(path) as file:
        return file.schema_arrow, file.metadata.num_rows


def _parquet_pieces(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    # A buffer, so that a row group is not read whole; it may be as large as the file.
    with pyarrow.parquet.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as file:
        for piece in file.iter_batches(batch_size=SIZE, columns=list(names)):
            piece.validate(full=True)
            yield piece


def _arrow_facts(path: Path) -> tuple[pa.Schema, int]:
    with _open_arrow(path) as file:
        return file.schema, sum(piece.num_rows for piece in _in_file(file))


def _arrow_pieces(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _open_arrow(path) as file:
        for piece in _in_file(file):
            piece = piece.select(list(names))
            # Offsets that a stranger wrote could point outside of the file's memory.
            piece.validate(full=True)
            yield piece


def _open_arrow(path: Path) -> Any:
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"  # a stream has no such mark
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(pa.OSFile(str(path)))


def _in_file(file: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(file, pa.ipc.RecordBatchStreamReader):
        yield from file
    else:
        yield from (file.get_batch(index) for index in range(file.num_record_batches))


READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[pa.RecordBatch]]] = {
    "CSV": lambda path, names: _csv_pieces(path, "CSV", names),
    "TSV": lambda path, names: _csv_pieces(path, "TSV", names),
    "Parquet": _parquet_pieces,
    "Arrow": _arrow_pieces,
}
FACTS: dict[str, Callable[[Path], tuple[pa.Schema, int]]] = {"Parquet": _parquet_facts, "Arrow": _arrow_facts}
