"""Cells that mean a missing value because `--na` says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from aimfor.tables._columns import is_number, is_text
from aimfor.tables._text_types import numbers_in_texts

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them


def without_marks(column: pa.Array, marks: Sequence[str]) -> pa.Array:
    """A column with its marked cells missing: texts that are a mark, numbers that are equal to one.

    Example:
        >>> without_marks(pa.array([1.0, -999.0]), ["-999"]).to_pylist()
        [1.0, None]
        >>> without_marks(pa.array(["-999", "-999.0"]), ["-999"]).to_pylist()
        [None, '-999.0']
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type):
        cells = column.cast(pa.string())
        marked = pc.is_in(pc.utf8_trim_whitespace(cells), value_set=pa.array([mark.strip() for mark in marks]))
        return pc.if_else(marked, None, cells)
    return pc.if_else(_marked(column, marks), None, column) if is_number(column.type) else column


def without_numbers(cells: pa.Array, marks: Sequence[str], decimal: str) -> pa.Array:
    """Texts of a column of numbers, with those missing that are equal to a mark: "-999.0" where the mark is -999."""
    return pc.if_else(_marked(numbers_in_texts(cells, decimal), marks), None, cells)


def _marked(values: pa.Array, marks: Sequence[str]) -> pa.Array:
    known = pa.array([number for mark in marks if (number := _as_number(mark)) is not None], pa.float64())
    return pc.is_in(values.cast(pa.float64(), safe=False), value_set=known)


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
