"""Parquet and Arrow files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from aimfor.tables._reading import SIZE, ReadOptions
from aimfor.tables._storage import arrow_file


def parquet_facts(path: Path, options: ReadOptions) -> tuple[pa.Schema, int]:
    """Names and types of the columns, and the number of rows."""
    with pyarrow.parquet.ParquetFile(arrow_file(path)) as file:
        return file.schema_arrow, file.metadata.num_rows


def parquet_groups(path: Path) -> list[int]:
    """The rows of each row group."""
    with pyarrow.parquet.ParquetFile(arrow_file(path)) as file:
        return [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]


def parquet_pieces(
    path: Path, options: ReadOptions, names: Sequence[str], groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of these columns, of all row groups or of some."""
    # A buffer, so that a row group is not read whole; it may be as large as the file.
    with pyarrow.parquet.ParquetFile(arrow_file(path), buffer_size=2**20, pre_buffer=False) as file:
        for piece in file.iter_batches(batch_size=SIZE, row_groups=groups, columns=list(names)):
            piece.validate(full=True)
            yield piece


def arrow_facts(path: Path, options: ReadOptions) -> tuple[pa.Schema, int]:
    """Names and types of the columns, and the number of rows."""
    with _open_arrow(path) as file:
        return file.schema, sum(piece.num_rows for piece in _in_file(file))


def arrow_groups(path: Path) -> list[int]:
    """The rows of each batch of the file."""
    with _open_arrow(path) as file:
        return [piece.num_rows for piece in _in_file(file)]


def arrow_pieces(
    path: Path, options: ReadOptions, names: Sequence[str], groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of these columns, of all batches or of some."""
    with _open_arrow(path) as file:
        for number, piece in enumerate(_in_file(file)):
            if groups is not None and number not in groups:
                continue
            piece = piece.select(list(names))
            # Offsets that a stranger wrote could point outside of the file's memory.
            piece.validate(full=True)
            yield piece


def _open_arrow(path: Path) -> Any:
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"  # a stream has no such mark
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(
        pa.OSFile(str(path)) if isinstance(path, Path) else arrow_file(path)
    )


def _in_file(file: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(file, pa.ipc.RecordBatchStreamReader):
        yield from file
    else:
        yield from (file.get_batch(index) for index in range(file.num_record_batches))
