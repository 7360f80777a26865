"""Read: files of rows become a `Table` that streams Arrow batches, or one sentence that says which file is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from aimfor._base.errors import DataError
from aimfor.tables._formats import FACTS, READERS, SIZE, as_type, fingerprint, fitting_type, header, kind_of, reading
from aimfor.tables._matrix import Matrix, open_matrix


class Batches(Protocol):
    """Anything that has columns and gives its rows in batches of `SIZE`, the same ones each time."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        ...

    def batches(self, columns: Sequence[str] | None = None, *, texts: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """All rows in order; the columns named in `texts` as they are written, where the files hold texts."""
        ...


@dataclass(frozen=True)
class Table:
    """Rows in one or more files of one kind, read as they are needed.

    Attributes:
        paths: the files, in the order of their rows.
        kind: "CSV", "TSV", "Parquet" or "Arrow".
        schema: names and types of the columns, the same for all files.
        num_rows: of all files.
    """

    paths: tuple[Path, ...]
    kind: str
    schema: pa.Schema
    num_rows: int

    def batches(
        self, columns: Sequence[str] | None = None, size: int = SIZE, *, texts: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Rows in file order, in batches of exactly `size` (the last may have less) wherever the files were cut.

        Args:
            columns: names of the columns to read; None for all.
            size: rows of a batch.
            texts: names of columns wanted as texts. CSV gives them as they are written, so that "007" stays that.

        Raises:
            DataError: where a file cannot be read.
        """
        wanted = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        if self.kind in ("CSV", "TSV"):
            fields = [pa.field(field.name, pa.string()) if field.name in texts else field for field in wanted]
            wanted = pa.schema(fields)
        return _rebatch(self._pieces(wanted), wanted, size)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over name, size and contents of each file."""
        return fingerprint(self.paths)

    def _pieces(self, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        found = 0
        for path in self.paths:
            with reading(path, self.kind):
                for piece in READERS[self.kind](path, wanted.names):
                    found += piece.num_rows
                    self._check_count(found, found <= self.num_rows)
                    arrays = [as_type(piece.column(field.name), field.type) for field in wanted]
                    yield pa.RecordBatch.from_arrays(arrays, schema=wanted)
            pa.default_memory_pool().release_unused()  # or what each file needed would add up
        self._check_count(found, found == self.num_rows)

    def _check_count(self, found: int, right: bool) -> None:
        """Labels and features are read one after the other; in a file that changes or lies they would not match."""
        if not right:
            names = ", ".join(map(str, self.paths))
            raise DataError(f"{names} must have {self.num_rows} rows each time they are read, got {found}")


@dataclass(frozen=True)
class MemoryTable:
    """Rows that are in memory already, given as a `Table` gives its own."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self.table.schema

    def batches(self, columns: Sequence[str] | None = None, *, texts: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of `SIZE`."""
        table = self.table if columns is None else self.table.select(list(columns))
        return _rebatch(table.to_batches(), table.schema, SIZE)


def open_table(paths: Sequence[str | Path]) -> Table | Matrix:
    """Open files of rows; the ends of their names say what they are.

    Args:
        paths: files, or folders whose files are taken in the order of their names; all of one kind, with the same
            columns.

    Returns:
        A `Table` for CSV, TSV, Parquet and Arrow; a `Matrix` for SVMlight and NPZ.

    Raises:
        DataError: where a file is missing, empty, damaged or unlike the others.
    """
    files = tuple(file for path in paths for file in _files(Path(path)))
    if not files:
        raise DataError("paths must name at least one file, got none")
    kind = kind_of(files[0])
    for file in files[1:]:
        if kind_of(file) != kind:
            raise DataError(f"{file} must be {kind} like {files[0].name}, got {kind_of(file)}")
    if kind in ("SVMlight", "NPZ"):
        return open_matrix(files, kind)
    if kind in ("CSV", "TSV"):
        return Table(files, kind, *_look(files, kind))
    return Table(files, kind, *_common_schema(files, kind))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path} must be a file or a folder, got nothing of that name")
    # Names such as _SUCCESS and _metadata are those of the programs that write shards.
    files = [file for file in sorted(path.iterdir()) if not file.name.startswith((".", "_"))]
    if not files:
        raise DataError(f"{path} must hold files, got an empty folder")
    for file in files:
        if file.is_dir():
            raise DataError(f"{path} must hold files only, got the folder {file.name}")
    return files


def _look(files: Sequence[Path], kind: str) -> tuple[pa.Schema, int]:
    """The types of the columns over all rows of all files, and how many rows there are."""
    types: dict[str, pa.DataType] = {}
    num_rows = 0
    for path in files:
        with reading(path, kind):
            names = header(path, kind)
            if not types:
                types = dict.fromkeys(names, pa.null())
            _check_names(path, names, list(types), files[0])
            for piece in READERS[kind](path, names):
                num_rows += piece.num_rows
                for name, column in zip(piece.schema.names, piece.columns, strict=True):
                    types[name] = fitting_type(column, types[name])
    _check_rows(files, num_rows)
    return pa.schema(list(types.items())), num_rows


def _common_schema(files: Sequence[Path], kind: str) -> tuple[pa.Schema, int]:
    """One schema for all files, where a column may be whole numbers in one and numbers in another; number of rows."""
    schema, num_rows = None, 0
    for path in files:
        with reading(path, kind):
            found, rows = FACTS[kind](path)
            # Categories of any type are texts, so that shards with dictionaries of their own have one type.
            fields = [
                pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
                for field in found
            ]
            _check_names(path, found.names, found.names if schema is None else schema.names, files[0])
            found, num_rows = pa.schema(fields), num_rows + rows
            schema = found if schema is None else _unified(path, schema, found)
    _check_rows(files, num_rows)
    assert schema is not None
    return schema, num_rows


def _unified(path: Path, schema: pa.Schema, found: pa.Schema) -> pa.Schema:
    fields = []
    for field in schema:
        other = found.field(field.name)
        try:
            field = pa.unify_schemas([pa.schema([field]), pa.schema([other])], promote_options="permissive").field(0)
        except pa.ArrowTypeError:
            must = f"must have the types of the files before it, {field.type} in column {field.name!r}"
            raise DataError(f"{path} {must}, got {other.type}") from None
        fields.append(field)
    return pa.schema(fields)


def _check_names(path: Path, names: Sequence[str], expected: Sequence[str], first: Path) -> None:
    if not names:
        raise DataError(f"{path} must have columns, got none")
    for name, count in Counter(names).items():
        if not name.strip():
            raise DataError(f"{path} must name every column, got {name!r} for column {names.index(name) + 1}")
        if count > 1:
            raise DataError(f"{path} must name every column differently, got {name!r} {count} times")
    missing, more = set(expected) - set(names), set(names) - set(expected)
    if missing:
        raise DataError(f"{path} must have the columns of {first.name}, got none named {min(missing)!r}")
    if more:
        raise DataError(f"{path} must have the columns of {first.name}, got {min(more)!r} as well")


def _check_rows(files: Sequence[Path], num_rows: int) -> None:
    if num_rows == 0:
        raise DataError(f"{', '.join(map(str, files))} must have at least one row, got none")


def _rebatch(pieces: Iterable[pa.RecordBatch], schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    num_rows = 0
    for piece in pieces:
        waiting.append(piece)
        num_rows += piece.num_rows
        while num_rows >= size:
            table = pa.Table.from_batches(waiting, schema)
            yield _joined(table.slice(0, size))
            waiting, num_rows = table.slice(size).to_batches(), num_rows - size
    if num_rows:
        yield _joined(pa.Table.from_batches(waiting, schema))


def _joined(table: pa.Table) -> pa.RecordBatch:
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
