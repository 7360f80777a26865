"""What each column holds: by its type, by the options of the user, and by the training rows."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aimfor._base.errors import DataError
from aimfor.tables._reading import first_of, one_line
from aimfor.tables._text_types import dates_in_texts, from_texts, is_stray, numbers_in_texts

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

KINDS = ("numeric", "boolean", "categorical", "date", "text")
MOST_NAMES = 2000  # names that a misspelt one is compared with


@dataclass(frozen=True)
class Column:
    """What a column is taken as.

    Attributes:
        name: of the column.
        kind: "numeric", "boolean", "categorical", "date", "text" or "dropped".
        reason: why it is dropped, else None.
        forced: the user said so; it stays even where all its values differ.
    """

    name: str
    kind: str
    reason: str | None = None
    forced: bool = False


def understand(
    schema: pa.Schema,
    *,
    others: Mapping[str, str | None],
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> list[Column]:
    """Give each column its kind, by its type and the wishes of the user.

    Args:
        schema: of the table.
        others: columns that are no features, with the reason to say, or None to say nothing of them.
        numeric: names of columns to be taken so, whatever their type.
        categorical: likewise.
        drop: names of columns to leave out.

    Raises:
        DataError: where a wish names a column that is not there, that is no feature, or that another wish names.
    """
    all_names = dict.fromkeys(schema.names)
    features = dict.fromkeys(name for name in schema.names if name not in others)
    wishes: dict[str, str] = {}
    for option, names in (("numeric", numeric), ("categorical", categorical), ("drop", drop)):
        for name in names:
            check_name(option, name, all_names)
            first = wishes.setdefault(name, option) if name in features else others[name] or "label"
            if first != option:
                raise named_twice(name, first, option)
    columns = []
    for name in schema.names:
        if name in features:
            columns.append(_column(name, schema.field(name).type, wishes.get(name)))
        elif others[name] is not None:
            columns.append(Column(name, "dropped", others[name]))
    return columns


def check_name(what: str, name: str, names: Collection[str]) -> None:
    """Raise a DataError with the nearest right spelling where `name` is none of the names."""
    if name in names:
        return
    some = list(islice(names, MOST_NAMES))  # to compare with very many would take minutes
    near = [other for other in names if other.lower() == name.lower()] or difflib.get_close_matches(name, some, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the columns are {one_line(first_of(some, 10))}"
    raise DataError(f"--{what}: the data have no column {name!r}; {hint}")


def named_twice(name: str, one: str, other: str) -> DataError:
    """The error where two options name the same column."""
    return DataError(f"column {name!r} is named by --{one} and by --{other}: keep one of them")


def said(columns: Sequence[Column]) -> str:
    """What was understood, in one line.

    Example:
        >>> said([Column("age", "numeric"), Column("id", "dropped", "all unique")])
        '1 numeric, 1 dropped: id (all unique)'
    """
    counts = Counter(column.kind for column in columns)
    parts = [f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]]
    dropped = [f"{one_line(column.name, 60)} ({column.reason})" for column in columns if column.kind == "dropped"]
    if dropped:
        parts.append(f"{len(dropped)} dropped: {', '.join(dropped)}")
    return ", ".join(parts)


def _column(name: str, kind: pa.DataType, wish: str | None) -> Column:
    if wish == "drop":
        return Column(name, "dropped", "asked")
    readable = is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    if wish is not None:
        if not readable:
            raise DataError(f"--{wish}: column {name!r} holds {kind}, not numbers, truth values or texts")
        return Column(name, wish, forced=True)
    if name.startswith("__index_level_"):  # which pandas adds to the files it writes
        return Column(name, "dropped", "index")
    if pa.types.is_null(kind):
        return Column(name, "dropped", "all missing")
    if is_date(kind):
        return Column(name, "date")
    if pa.types.is_temporal(kind):
        return Column(name, "dropped", "time of day or duration")
    if pa.types.is_nested(kind):
        return Column(name, "dropped", "nested")
    if not readable:
        return Column(name, "dropped", str(kind))
    return Column(name, "numeric" if is_number(kind) else "boolean" if pa.types.is_boolean(kind) else "categorical")


# Values


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is one of whole, floating or decimal numbers."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_date(kind: pa.DataType) -> bool:
    """Whether a type is one of dates or moments."""
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of texts."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def numbers(
    name: str, array: pa.Array, decimal: str = ".", *, strict: bool = False, option: str | None = None
) -> np.ndarray:
    """A column as float64 with NaN where values are missing, infinite, or texts that are no numbers.

    Args:
        name: of the column.
        array: its values.
        decimal: the sign before decimals in texts.
        strict: whether a text that is no number is an error.
        option: that names the column, for the error.

    Raises:
        DataError: where it cannot hold numbers.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind, said_by = array.type, "" if option is None else f"--{option}: "
    if is_text(kind):
        cells = array.cast(pa.string())
        array = numbers_in_texts(cells, decimal)
        wrong = cells.filter(pc.and_(pc.is_null(array), pc.invert(is_stray(cells))))
        if strict and len(wrong):
            raise DataError(f"{said_by}column {name!r} holds {wrong[0].as_py()[:50]!r}, where numbers are needed")
    elif not (is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise DataError(f"{said_by}column {name!r} holds {kind}, where numbers are needed")
    array = array.cast(pa.float64(), safe=False)
    values = (pc.fill_null(array, np.nan) if array.null_count else array).to_numpy(zero_copy_only=False)
    endless = np.isinf(values)
    return np.where(endless, np.nan, values) if endless.any() else values


def texts(name: str, array: pa.Array) -> pa.Array:
    """A column as texts, missing where it is missing or NaN; 1.0 is "1", as it is where no value is missing.

    Raises:
        DataError: where it holds something else than texts, numbers or booleans.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return array.cast(pa.string())
    if pa.types.is_decimal(kind) and kind.scale <= 0:  # all digits of a whole number, which float64 would round
        return array.cast(pa.string())
    if not is_number(kind):
        raise DataError(f"column {name!r} holds {kind}, where texts are needed")
    values = array.cast(pa.float64(), safe=False)
    values = pc.if_else(pc.is_nan(values), None, values)
    # Arrow writes 1e10 as "1e+10", and a whole number of this size as "10000000000".
    whole = pc.and_(pc.equal(pc.floor(values), values), pc.less(pc.abs(values), 2.0**53))
    as_whole = pc.if_else(whole, values, 0.0).cast(pa.int64()).cast(pa.string())
    return pc.if_else(whole, as_whole, values.cast(pa.string()))


def moments(name: str, array: pa.Array, form: str | None = None) -> np.ndarray:
    """A column of dates as seconds since 1970, float64, with NaN where they are missing.

    Args:
        name: of the column.
        array: its values, dates or texts.
        form: of dates in texts, such as "%d.%m.%Y"; None for that of ISO 8601.

    Raises:
        DataError: where it cannot hold dates.
    """
    if is_text(array.type):
        cells = array.cast(pa.string())
        array = dates_in_texts(cells, form) if form else _iso_dates(cells)
    elif pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    elif not is_date(array.type):
        raise DataError(f"column {name!r} holds {array.type}, where dates are needed")
    zone = array.type.tz if pa.types.is_timestamp(array.type) else None
    seconds = array.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
    return pc.fill_null(seconds, np.nan).to_numpy(zero_copy_only=False) / 1e6


def _iso_dates(cells: pa.Array) -> pa.Array:
    try:
        return from_texts(cells, pa.timestamp("us"))
    except pa.ArrowInvalid:
        shape = r"^\s*\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?\s*$"
        right = pc.fill_null(pc.match_substring_regex(cells, shape), False)
        day = pc.utf8_slice_codeunits(pc.utf8_trim_whitespace(pc.if_else(right, cells, None)), 0, 10)
        return pc.strptime(day, format="%Y-%m-%d", unit="us", error_is_null=True)
