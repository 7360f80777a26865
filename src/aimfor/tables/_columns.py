"""Understand: what each column holds, by its type, by the wishes of the user and by what the training rows have."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aimfor._base.errors import DataError
from aimfor.tables._reading import one_line
from aimfor.tables._text_types import is_stray, numbers_in_texts

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

KINDS = ("numeric", "boolean", "categorical")
MOST_COUNTED = 50_000  # texts of a column that are counted; with more, the rare ones are forgotten on the way
MOST_NAMES = 2000  # names that a misspelt one is compared with
FEWEST_FOR_IDS = 20  # so many whole numbers in rising order are hardly so by chance


@dataclass(frozen=True)
class Column:
    """What a column is taken as.

    Attributes:
        name: of the column.
        kind: "numeric", "boolean", "categorical" or "dropped".
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
        DataError: where a wish names a column that is not there, or is named twice.
    """
    features = dict.fromkeys(name for name in schema.names if name not in others)
    wishes: dict[str, str] = {}
    for option, names in (("numeric", numeric), ("categorical", categorical), ("drop", drop)):
        for name in names:
            check_name(option, name, features)
            if wishes.setdefault(name, option) != option:
                raise DataError(f"column {name!r} is named by --{wishes[name]} and by --{option}: keep one of them")
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
    hint = f"did you mean {near[0]!r}?" if near else f"the columns are {one_line(', '.join(some[:10]))}"
    raise DataError(f"--{what}: the data have no column {name!r}; {hint}")


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
    if pa.types.is_temporal(kind):
        return Column(name, "dropped", "time")
    if pa.types.is_nested(kind):
        return Column(name, "dropped", "nested")
    if not readable:
        return Column(name, "dropped", str(kind))
    return Column(name, "numeric" if is_number(kind) else "boolean" if pa.types.is_boolean(kind) else "categorical")


# Values


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is one of whole, floating or decimal numbers."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of texts."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def numbers(name: str, array: pa.Array, decimal: str = ".", *, strict: bool = False) -> np.ndarray:
    """A column as float64 with NaN where values are missing, infinite, or texts that are no numbers.

    Args:
        name: of the column.
        array: its values.
        decimal: the sign before decimals in texts.
        strict: whether a text that is no number is an error.

    Raises:
        DataError: where it cannot hold numbers.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if is_text(kind):
        cells = array.cast(pa.string())
        array = numbers_in_texts(cells, decimal)
        wrong = cells.filter(pc.and_(pc.is_null(array), pc.invert(is_stray(cells))))
        if strict and len(wrong):
            raise DataError(f"column {name!r} holds {wrong[0].as_py()[:50]!r}, where numbers are needed")
    elif not (is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise DataError(f"column {name!r} holds {kind}, where numbers are needed")
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


# Counts over the training rows


@dataclass
class Tally:
    """What the training rows have in a numeric or boolean column."""

    num_rows: int = 0
    num_missing: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared differences from the mean
    low: float = np.inf
    high: float = -np.inf
    last: float = np.nan
    rising: bool = True
    falling: bool = True

    def add_(self, name: str, array: pa.Array) -> None:
        """Count some more rows."""
        values = numbers(name, array)
        self.num_rows += len(values)
        absent = np.isnan(values)
        if absent.any():
            values = values[~absent]
            self.num_missing += len(absent) - len(values)
        if not len(values):
            return
        if self.rising or self.falling:
            first = int(np.isnan(self.last))
            earlier, later = np.append(self.last, values[:-1])[first:], values[first:]
            self.rising &= bool((later > earlier).all())
            self.falling &= bool((later < earlier).all())
        self.last = float(values[-1])
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        self._add_moments_(values)

    def _add_moments_(self, values: np.ndarray) -> None:
        # The sum of squares less the squared sum loses all digits where the mean is large; this way does not.
        before = self.num_rows - self.num_missing - len(values)
        total = before + len(values)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = values.mean()
            difference = mean - self.mean
            self.squares += float(((values - mean) ** 2).sum() + difference**2 * before * len(values) / total)
            self.mean += float(difference * len(values) / total)

    def scale(self, name: str) -> float:
        """The standard deviation."""
        # Differences below 1e-162 have squares of 0; and all values are one where only their being missing differs.
        scale = float(np.sqrt(self.squares / (self.num_rows - self.num_missing))) or self.high - self.low or 1.0
        if not (np.isfinite(scale) and np.isfinite(self.mean)):
            raise DataError(f"column {name!r} holds {max(-self.low, self.high)}: numbers must be below 1e150 in size")
        return scale

    def judged(self, column: Column, kind: pa.DataType) -> Column:
        """The column, dropped where nothing can be learned from it."""
        if self.num_missing == self.num_rows:
            if column.forced and not pa.types.is_null(kind):
                raise DataError(f"--numeric: column {column.name!r} holds no numbers in the training rows")
            return replace(column, kind="dropped", reason="all missing")
        if self.low == self.high and not self.num_missing:
            return replace(column, kind="dropped", reason="constant")
        ordered = (self.rising or self.falling) and not self.num_missing and self.num_rows >= FEWEST_FOR_IDS
        if pa.types.is_integer(kind) and ordered and not column.forced:
            return replace(column, kind="dropped", reason="all unique")
        return column


@dataclass
class TextTally:
    """What the training rows have in a categorical column."""

    num_rows: int = 0
    num_missing: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    unique: bool = True

    def add_(self, name: str, array: pa.Array) -> None:
        """Count some more rows."""
        array = texts(name, array)
        self.num_rows += len(array)
        self.num_missing += array.null_count
        found = pc.value_counts(array.drop_null())
        new = dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))
        self.unique = self.unique and len(new) == len(array) - array.null_count and self.counts.keys().isdisjoint(new)
        self.counts.update(new)
        if len(self.counts) > MOST_COUNTED:
            self.counts = Counter(dict(self.most_common(MOST_COUNTED // 2)))

    def most_common(self, count: int) -> list[tuple[str, int]]:
        """The most frequent texts with their counts; of equally frequent ones the first by name."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:count]

    def judged(self, column: Column, kind: pa.DataType) -> Column:
        """The column, dropped where nothing can be learned from it."""
        if self.num_missing == self.num_rows:
            return replace(column, kind="dropped", reason="all missing")
        if len(self.counts) == 1 and not self.num_missing:
            return replace(column, kind="dropped", reason="constant")
        if self.unique and is_text(kind) and not column.forced:
            return replace(column, kind="dropped", reason="all unique")
        return column
