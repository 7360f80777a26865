"""Excel workbooks: the first sheet, whose first row names the columns. It needs the extra `excel`."""

from __future__ import annotations

import datetime
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from aimfor._base.errors import DataError
from aimfor.tables._reading import SIZE, ReadOptions, check_unpacked


def excel_facts(path: Path, options: ReadOptions) -> tuple[pa.Schema, int | None]:
    """Names of the columns, all texts; the number of rows shows when they are read."""
    return pa.schema([(name, pa.string()) for name in next(_rows(path))]), None


def excel_pieces(path: Path, options: ReadOptions, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these columns."""
    rows = _rows(path)
    header = next(rows)
    places = [header.index(name) for name in names]
    while some := list(islice(rows, SIZE)):
        columns = [
            pa.array([row[place] if place < len(row) else None for row in some], pa.string()) for place in places
        ]
        yield pa.RecordBatch.from_arrays(columns, names=list(names))


def _rows(path: Path) -> Iterator[list[Any]]:
    """The names, then the rows as texts; empty rows are left out, as sheets often end with some."""
    try:
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException
    except ModuleNotFoundError:
        raise DataError(f"{path}: reading Excel needs an extra: pip install 'aimfor[excel]'") from None
    with path.open("rb") as packed, zipfile.ZipFile(packed) as archive:
        check_unpacked(path, path.stat().st_size, sum(entry.file_size for entry in archive.infolist()))
    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")  # on styles and drawings, which hold no values
            book = load_workbook(file, read_only=True, data_only=True)
            sheet = book.worksheets[0]
            rows = ([_text(value) for value in row] for row in sheet.iter_rows(values_only=True))
            header = next(rows, None)
            if header is None or all(name is None for name in header):
                raise DataError(f"{path}: the first row of the first sheet must name the columns, but it is empty")
            width = max(index for index, name in enumerate(header) if name is not None) + 1
            yield [name or "" for name in header[:width]]
            yield from (row[:width] for row in rows if any(value is not None for value in row[:width]))
    except (InvalidFileException, KeyError, IndexError, TypeError, AttributeError, SyntaxError) as error:
        # What openpyxl raises over damaged workbooks.
        raise ValueError(f"a damaged workbook ({type(error).__name__})") from None


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)
