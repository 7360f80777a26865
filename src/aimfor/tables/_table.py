"""Files of rows become a `Table` that streams Arrow batches. An error says which file is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aimfor._base.errors import DataError
from aimfor._base.ranks import ALONE, Ranks, RowShare
from aimfor.tables._formats import Format, format_of
from aimfor.tables._matrix import Matrix, open_matrix
from aimfor.tables._missing import without_marks
from aimfor.tables._reading import SIZE, ReadOptions, fingerprint, reading
from aimfor.tables._runs import FileRun, by_file
from aimfor.tables._storage import as_path
from aimfor.tables._text_types import Meaning, TextColumn, decimal_of

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them


class BatchSource(Protocol):
    """Anything that has columns and gives its rows in batches of `SIZE`, the same ones each time."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        ...

    @property
    def meanings(self) -> Mapping[str, Meaning]:
        """How the columns are read that the files hold as texts."""
        ...

    @property
    def ranks(self) -> Ranks:
        """The processes that share the rows."""
        ...

    @property
    def missing(self) -> Sequence[str]:
        """Texts that stand for a missing value, besides the usual ones."""
        ...

    def batches(self, columns: Sequence[str] | None = None, *, texts: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """All rows in order; the columns named in `texts` as they are written, where the files hold texts."""
        ...


class Remark(NamedTuple):
    """Something about the data that the user should know.

    Attributes:
        kind: a short name, the same for all remarks of its sort.
        column: the column that it is about, or None.
        text: what is to be said, in a sentence.
    """

    kind: str
    column: str | None
    text: str


@dataclass(frozen=True)
class Table:
    """Rows in one or more files of one format, read as they are needed.

    Attributes:
        paths: the files, in the order of their rows.
        format: of the files.
        schema: names and types of the columns, the same for all files.
        num_rows: of all files, or of the runs of this process.
        options: how the files are read.
        meanings: how the columns are read that the files hold as texts.
        remarks: what should be said about the columns.
        runs: the rows of this process, where several share the files; None for all.
        ranks: the processes that share the files.
    """

    paths: tuple[Path, ...]
    format: Format
    schema: pa.Schema
    num_rows: int
    options: ReadOptions = field(default_factory=ReadOptions)
    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    runs: tuple[FileRun, ...] | None = None
    ranks: Ranks = ALONE

    @property
    def share(self) -> RowShare:
        """Which of all rows these are."""
        if self.runs is None:
            return RowShare.whole(self.num_rows)
        return RowShare(np.array([run.rows for run in self.runs]), self.ranks)

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.paths[0].name

    @property
    def missing(self) -> Sequence[str]:
        """Texts that stand for a missing value, besides the usual ones."""
        return self.options.missing

    def batches(
        self, columns: Sequence[str] | None = None, size: int = SIZE, *, texts: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Rows in file order, in batches of exactly `size` (the last may have less) wherever the files were cut.

        Args:
            columns: names of the columns to read; None for all.
            size: rows of a batch.
            texts: names of columns wanted as texts, as they are written where files hold texts: "007" stays that.

        Raises:
            DataError: where a file cannot be read.
        """
        fields = self.schema if columns is None else [self.schema.field(name) for name in columns]
        raw = {name for name in texts if name in self.meanings}
        wanted = pa.schema([pa.field(one.name, pa.string()) if one.name in raw else one for one in fields])
        return _rebatch(self._pieces(wanted, raw), wanted, size)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over name, size and contents of each file."""
        return fingerprint(self.paths)

    def _pieces(self, wanted: pa.Schema, raw: set[str]) -> Iterator[pa.RecordBatch]:
        count = 0
        for path, groups in by_file(self.runs) if self.runs else [(path, None) for path in self.paths]:
            for piece in pieces_of(path, self.format, self.options, wanted.names, groups):
                count += piece.num_rows
                self._check_count(count, count <= self.num_rows)
                with reading(path, self.format.name):
                    arrays = [self._values(piece.column(index), one, raw) for index, one in enumerate(wanted)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=wanted)
            pa.default_memory_pool().release_unused()  # or what each file needed would add up
        self._check_count(count, count == self.num_rows)

    def _values(self, column: pa.Array, wanted: pa.Field, raw: set[str]) -> pa.Array:
        meaning = self.meanings.get(wanted.name)
        if meaning is None or wanted.name in raw or meaning.type == pa.string():
            return _as_type(column, wanted.type)
        if pa.types.is_null(meaning.type):  # nothing but missing values was found
            return pa.nulls(len(column))
        values = _as_type(meaning.values(_as_type(column, pa.string())), wanted.type)
        # Texts that are marks are gone already; that "-999.0" is one too shows where the column holds numbers.
        return without_marks(values, self.missing) if self.missing else values

    def _check_count(self, count: int, right: bool) -> None:
        """Labels and features are read one after the other; in a file that changes or lies they would not match."""
        if not right:
            names = ", ".join(map(str, self.paths))
            raise DataError(f"{names} changed while being read: there were {self.num_rows} rows, then {count}")


@dataclass(frozen=True)
class MemoryTable:
    """Rows that are in memory already, given as a `Table` gives its own."""

    table: pa.Table
    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    ranks: Ranks = ALONE
    missing: Sequence[str] = ()

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self.table.schema

    def batches(self, columns: Sequence[str] | None = None, *, texts: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of `SIZE`."""
        table = self.table if columns is None else self.table.select(list(columns))
        return _rebatch(table.to_batches(), table.schema, SIZE)


def open_table(paths: Sequence[str | Path], options: ReadOptions | None = None) -> Table | Matrix:
    """Open files of rows; the ends of their names say what they are.

    Args:
        paths: files, or folders whose files are taken in the order of their names; all of one kind, with the same
            columns.
        options: how to read them where they do not say it.

    Returns:
        A `Table`, or a `Matrix` for files without named columns.

    Raises:
        DataError: where a file is missing, empty, damaged or unlike the others.
    """
    files = files_of(paths)
    kind = format_of(files[0])
    for file in files[1:]:
        if format_of(file) is not kind:
            raise DataError(
                f"{file} is {format_of(file).name} and {files[0].name} is {kind.name}: give one kind of file"
            )
    if kind.matrix is not None:
        return open_matrix(files, kind)
    options = options or ReadOptions()
    schema, num_rows = _common_schema(files, kind, options)
    return _understood(files, kind, schema, num_rows, options)


def files_of(paths: Sequence[str | Path]) -> tuple[Path, ...]:
    """Files, and those of folders in the order of their names.

    Raises:
        DataError: where there are none.
    """
    files = tuple(file for path in paths for file in _files(as_path(path)))
    if not files:
        raise DataError("no data: name at least one file or folder")
    return files


def pieces_of(
    path: Path, kind: Format, options: ReadOptions, names: Sequence[str], groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of some columns of a file, or of some groups of its rows, with `options.missing` missing."""
    assert kind.pieces is not None
    with reading(path, kind.name):
        for piece in kind.pieces(path, options, names) if groups is None else kind.pieces(path, options, names, groups):
            if piece.schema.names != list(names):
                piece = piece.select(list(names))
            if options.missing:
                arrays = [without_marks(column, options.missing) for column in piece.columns]
                piece = pa.RecordBatch.from_arrays(arrays, names=list(names))
            yield piece


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path}: no such file or folder")
    # Names such as _SUCCESS and _metadata are those of the programs that write shards.
    files = [file for file in sorted(path.iterdir()) if not file.name.startswith((".", "_"))]
    if not files:
        raise DataError(f"{path} is an empty folder: name a folder that holds files of rows")
    for file in files:
        if file.is_dir():
            raise DataError(f"{path} holds the folder {file.name}: only files can be read, so name that folder itself")
    return files


def _understood(
    files: tuple[Path, ...], kind: Format, schema: pa.Schema, num_rows: int | None, options: ReadOptions
) -> Table:
    """The table, with the columns of texts read as what they mean over all rows of all files."""
    columns = {one.name: TextColumn() for one in schema if pa.types.is_string(one.type)}

    def cells(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return (piece for path in files for piece in pieces_of(path, kind, options, names))

    count = num_rows or 0
    if columns or num_rows is None:
        count = 0
        for piece in cells(list(columns) or schema.names[:1]):
            count += piece.num_rows
            for column, texts in zip(columns.values(), piece.columns, strict=False):
                column.add_(_as_type(texts, pa.string()))
    _check_rows(files, count)
    decimal = decimal_of(columns.values())
    doubtful = [name for name, column in columns.items() if decimal == "," and column.plain == pa.float64()]
    for piece in cells(doubtful) if doubtful else ():
        for name, texts in zip(doubtful, piece.columns, strict=True):
            columns[name].count_commas_(texts)
    forced = dict.fromkeys(options.categorical, "categorical") | dict.fromkeys(options.numeric, "numeric")
    found = {name: column.meaning(decimal, forced=forced.get(name)) for name, column in columns.items()}
    remarks = [(name, columns[name].remark(name, meaning)) for name, meaning in found.items()]
    return Table(
        files,
        kind,
        pa.schema([pa.field(one.name, found[one.name].type) if one.name in found else one for one in schema]),
        count,
        options,
        found,
        tuple(Remark(remark[0], name, remark[1]) for name, remark in remarks if remark is not None),
    )


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of a file in the type that it has over all files."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == kind else column.cast(kind, safe=False)


def _common_schema(files: Sequence[Path], kind: Format, options: ReadOptions) -> tuple[pa.Schema, int | None]:
    """One schema for all files, where a column may be whole numbers in one and numbers in another; number of rows."""
    assert kind.facts is not None
    schema, num_rows = None, 0
    for path in files:
        with reading(path, kind.name):
            found, rows = kind.facts(path, options)
            # Categories of any type are texts, so that shards with dictionaries of their own have one type.
            fields = [pa.field(one.name, pa.string() if _holds_texts(one.type) else one.type) for one in found]
            _check_names(path, found.names, found.names if schema is None else schema.names, files[0])
            found, num_rows = pa.schema(fields), None if rows is None or num_rows is None else num_rows + rows
            schema = found if schema is None else _unified(path, schema, found)
    assert schema is not None
    return schema, num_rows


def _holds_texts(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _unified(path: Path, schema: pa.Schema, found: pa.Schema) -> pa.Schema:
    fields = []
    for one in schema:
        other = found.field(one.name)
        try:
            one = pa.unify_schemas([pa.schema([one]), pa.schema([other])], promote_options="permissive").field(0)
        except pa.ArrowTypeError:
            before = f"the files before it have {one.type}"
            raise DataError(f"{path} has {other.type} in column {one.name!r}, but {before}") from None
        fields.append(one)
    return pa.schema(fields)


def _check_names(path: Path, names: Sequence[str], expected: Sequence[str], first: Path) -> None:
    if not names:
        raise DataError(f"{path} has no columns")
    for name, count in Counter(names).items():
        if not name.strip():
            raise DataError(f"{path}: column {names.index(name) + 1} has no name; give it one in the first line")
        if count > 1:
            raise DataError(f"{path} has {count} columns named {name!r}: rename all but one")
    missing, more = set(expected) - set(names), set(names) - set(expected)
    if missing:
        raise DataError(f"{path} lacks column {min(missing)!r}, which {first.name} has")
    if more:
        raise DataError(f"{path} has column {min(more)!r}, which {first.name} lacks")


def _check_rows(files: Sequence[Path], num_rows: int) -> None:
    if num_rows == 0:
        raise DataError(f"{', '.join(map(str, files))}: no rows")


def _rebatch(pieces: Iterable[pa.RecordBatch], schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    num_rows = 0
    for piece in pieces:
        if not num_rows and piece.num_rows == size:
            yield piece
            continue
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
