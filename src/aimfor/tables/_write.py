"""Write: tables of any size to a file that appears when it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, ipc, parquet

from aimfor._base.errors import DataError

Write = Callable[[pa.Table], None]


def _csv(delimiter: str) -> Callable[[Any, pa.Schema], Any]:
    options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    return lambda file, schema: csv.CSVWriter(file, schema, write_options=options)


WRITERS: dict[str, Callable[[Any, pa.Schema], Any]] = {
    ".csv": _csv(","),
    ".tsv": _csv("\t"),
    ".parquet": parquet.ParquetWriter,
    ".feather": ipc.new_file,
    ".arrow": ipc.new_file,
}


@contextmanager
def open_writer(path: Path) -> Iterator[Write]:
    """A function that appends tables of one schema; the kind of file is told by its name.

    Args:
        path: the file, replaced at the end; nothing is left of it after an error.
    """
    make = WRITERS.get(path.suffix.lower())
    if make is None:
        raise DataError(f"{path} must end in one of {', '.join(WRITERS)} to be written, got {path.suffix!r}")
    whole = path.with_name(f".{path.name}.{os.getpid()}")
    writer = None
    try:
        with whole.open("wb") as file:

            def write(table: pa.Table) -> None:
                nonlocal writer
                writer = writer or make(file, table.schema)
                writer.write_table(table)

            yield write
            if writer is not None:
                writer.close()
        os.replace(whole, path)
    finally:
        whole.unlink(missing_ok=True)
