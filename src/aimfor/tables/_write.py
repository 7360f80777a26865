"""Write tables of any size to a file that appears only when it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from aimfor._base.files import replaced_when_whole
from aimfor.tables._formats import writer_of

Write = Callable[[pa.Table], None]


@contextmanager
def open_writer(path: Path) -> Iterator[Write]:
    """A function that appends tables of one schema; the end of the name says what kind of file it is.

    Args:
        path: the file, replaced at the end; nothing is left of it after an error.
    """
    make, writer = writer_of(path), None
    with replaced_when_whole(path) as file:

        def write(table: pa.Table) -> None:
            nonlocal writer
            writer = writer or make(file, table.schema)
            writer.write_table(table)

        yield write
        if writer is not None:
            writer.close()
