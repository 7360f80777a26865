"""How columns become features: one class for each kind of column, learned from tallies and applied to any rows."""

from __future__ import annotations

import re
import zlib
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aimfor._base.errors import DataError
from aimfor.model_kinds import TableColumn
from aimfor.tables._columns import Column, moments, numbers, texts
from aimfor.tables._tallies import CALENDAR, AnyTally, DateTally, Tally, TextTally, calendar
from aimfor.tables._text_types import Meaning

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

MOST_CATEGORIES = 64  # of a column, that get a feature of their own
CATEGORY_BUCKETS = 1  # features that the rarer categories share; 64 measured worse, see benchmarks/README.md
WORD_BUCKETS = 1024  # features that the words of a text share
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Numbers:
    """A numeric or boolean column: (x - mean) / scale or x itself, and whether it is missing.

    Attributes:
        name: of the column.
        kind: "numeric" or "boolean".
        mean: of the training rows; stands where a value is missing.
        scale: standard deviation of the training rows; 1 for booleans, which are not centred either.
        missing: training rows lacked values, so there is a second feature, 1 where the value is missing.
        decimal: the sign before decimals where the training rows had numbers with marks, else None.
    """

    name: str
    kind: str
    mean: float
    scale: float
    missing: bool
    decimal: str | None = None

    @property
    def from_texts(self) -> bool:
        """Whether the cells are wanted as they are written."""
        return self.decimal is not None

    def feature_names(self) -> list[str]:
        """One or two names."""
        return [self.name, f"{self.name} is missing"][: 1 + self.missing]

    def table_columns(self, first: int) -> list[TableColumn]:
        """What trees read of the features, which start at `first`."""
        return [TableColumn(first, missing=first + 1 if self.missing else -1)]

    def fill_(self, array: pa.Array, out: np.ndarray) -> None:
        """Write the features of the rows, `[1 or 2, b]`."""
        values = numbers(self.name, array, self.decimal or ".")
        absent = np.isnan(values)
        numeric = self.kind == "numeric"
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            out[0] = (values - self.mean) / self.scale if numeric else values
        if absent.any():
            out[0, absent] = 0 if numeric else self.mean
        finite = np.isfinite(out[0])
        if not finite.all():
            raise DataError(
                f"column {self.name!r} holds {values[~finite][0]}, far beyond all numbers of the training rows"
            )
        if self.missing:
            out[1] = absent

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "decimal" or value is not None}


@dataclass(frozen=True)
class Categories:
    """A categorical column: one feature for each frequent category; rarer ones share some features by their hash.

    Attributes:
        name: of the column.
        kind: "categorical".
        categories: the most frequent texts of the training rows, at most `MOST_CATEGORIES`.
        missing: training rows lacked values, so being missing is a category of its own.
        buckets: features that all other categories share; 0 where the training rows had none.
    """

    name: str
    kind: str
    categories: tuple[str, ...]
    missing: bool
    buckets: int = 0

    from_texts = True

    def feature_names(self) -> list[str]:
        """One name for each feature."""
        names = [f"{self.name} = {category}" for category in self.categories]
        names += [f"{self.name} is missing"] if self.missing else []
        return names + [f"{self.name} is rare {bucket}" for bucket in range(self.buckets)]

    def table_columns(self, first: int) -> list[TableColumn]:
        """What trees read of the features, which start at `first`."""
        return [TableColumn(first, categories=len(self.categories) + self.missing + self.buckets)]

    def fill_(self, array: pa.Array, out: np.ndarray) -> None:
        """Write the features of the rows, `[number of features, b]`."""
        array = texts(self.name, array)
        out[:] = 0
        index = pc.index_in(array, value_set=pa.array(self.categories, pa.string()), skip_nulls=True)
        found = pc.fill_null(index, -1).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(found >= 0)
        out[found[rows], rows] = 1
        absent = array.is_null().to_numpy(zero_copy_only=False)
        if self.missing:
            out[len(self.categories)] = absent
        if self.buckets:
            rare = np.flatnonzero((found < 0) & ~absent)
            encoded = array.take(pa.array(rare)).dictionary_encode()
            codes = [zlib.crc32(text.encode()) % self.buckets for text in encoded.dictionary.to_pylist()]
            start = len(out) - self.buckets
            out[start + np.array(codes, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)], rare] = 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        entries = {**asdict(self), "categories": list(self.categories)}
        return {name: value for name, value in entries.items() if name != "buckets" or value}


@dataclass(frozen=True)
class Dates:
    """A column of dates: year, month, weekday, hour and days since the first date, each scaled.

    Attributes:
        name: of the column.
        kind: "date".
        form: of dates in texts that are not written as ISO 8601 has them, else None.
        first: the first date of the training rows, in seconds since 1970.
        means: of the five numbers in the training rows.
        scales: their standard deviations; a number with scale 0 is left out, as it is the same in all training rows.
        missing: training rows lacked values, so one more feature is 1 where the value is missing.
    """

    name: str
    kind: str
    form: str | None
    first: float
    means: tuple[float, ...]
    scales: tuple[float, ...]
    missing: bool

    @property
    def from_texts(self) -> bool:
        """Whether the cells are wanted as they are written."""
        return self.form is not None

    def feature_names(self) -> list[str]:
        """One name for each number that differs between rows."""
        names = [f"{self.name} {what}" for what, scale in zip(CALENDAR, self.scales, strict=True) if scale]
        return [*names, f"{self.name} is missing"] if self.missing else names

    def table_columns(self, first: int) -> list[TableColumn]:
        """What trees read of the features, which start at `first`."""
        used = int(np.count_nonzero(self.scales))
        return [TableColumn(first + number, missing=first + used if self.missing else -1) for number in range(used)]

    def fill_(self, array: pa.Array, out: np.ndarray) -> None:
        """Write the features of the rows, `[number of features, b]`."""
        values = calendar(moments(self.name, array, self.form), self.first)
        used = np.flatnonzero(self.scales)
        scaled = (values[used] - np.array(self.means)[used, None]) / np.array(self.scales)[used, None]
        absent = np.isnan(values[0])
        scaled[:, absent] = 0
        out[: len(used)] = scaled
        if self.missing:
            out[-1] = absent

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "means": list(self.means), "scales": list(self.scales)}


@dataclass(frozen=True)
class Words:
    """A column of texts: their words and pairs of words share features by their hash; a row has length 1.

    Attributes:
        name: of the column.
        kind: "text".
        buckets: number of features.
    """

    name: str
    kind: str
    buckets: int

    from_texts = True

    def feature_names(self) -> list[str]:
        """One name for each feature."""
        return [f"{self.name} words {bucket}" for bucket in range(self.buckets)]

    def table_columns(self, first: int) -> list[TableColumn]:
        """What trees read of the features, which start at `first`."""
        return [TableColumn(first + bucket) for bucket in range(self.buckets)]

    def fill_(self, array: pa.Array, out: np.ndarray) -> None:
        """Write the features of the rows, `[buckets, b]`."""
        out[:] = 0
        for row, text in enumerate(texts(self.name, array).to_pylist()):
            words = WORD.findall(text.lower()) if text else []
            codes = [zlib.crc32(word.encode()) for word in words]
            codes += [zlib.crc32(f"{one} {other}".encode()) for one, other in pairwise(words)]
            if codes:
                # A bit of the hash is the sign, so that words that meet in a feature cancel out on average.
                signs = [1.0 if code & 2**31 else -1.0 for code in codes]
                np.add.at(out[:, row], [code % self.buckets for code in codes], signs)
        lengths = np.sqrt((out**2).sum(axis=0))
        out /= np.where(lengths > 0, lengths, 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


ColumnFeatures = Numbers | Categories | Dates | Words


def features_from(column: Column, tally: AnyTally | None, meaning: Meaning | None) -> ColumnFeatures | None:
    """How a column becomes features, by what its training rows have; None for a dropped one."""
    if tally is None or column.kind == "dropped":
        return None
    missing = tally.num_missing > 0
    if column.kind == "text":
        return Words(column.name, "text", WORD_BUCKETS)
    if isinstance(tally, TextTally):
        categories = tuple(text for text, _ in tally.most_common(MOST_CATEGORIES))
        buckets = CATEGORY_BUCKETS if len(tally.counts) > MOST_CATEGORIES else 0
        return Categories(column.name, "categorical", categories, missing, buckets)
    if isinstance(tally, DateTally):
        means, scales = (tuple(map(float, entries)) for entries in tally.means_and_scales())
        return Dates(column.name, "date", tally.form, tally.low, means, scales, missing)
    assert isinstance(tally, Tally)
    scale = tally.scale(column.name) if column.kind == "numeric" else 1.0
    return Numbers(column.name, column.kind, tally.mean, scale, missing, meaning.decimal if meaning else None)


def column_facts(part: ColumnFeatures, array: pa.Array, low: float | None, high: float | None) -> tuple[int, int, int]:
    """Rows that lack the column, rows far outside of a range, and rows with a category that has no feature of its own.

    Far outside is further from the range than the range is wide.
    """
    if isinstance(part, (Numbers, Dates)):
        values = (
            numbers(part.name, array, part.decimal or ".")
            if isinstance(part, Numbers)
            else moments(part.name, array, part.form)
        )
        outside = 0
        if low is not None and high is not None:
            room = max(high - low, 1e-9 * max(abs(low), abs(high)))
            with np.errstate(invalid="ignore"):
                outside = int(((values < low - room) | (values > high + room)).sum())
        return int(np.isnan(values).sum()), outside, 0
    cells = texts(part.name, array)
    if not isinstance(part, Categories):
        return cells.null_count, 0, 0
    known = pc.is_in(cells, value_set=pa.array(part.categories, pa.string()))
    return cells.null_count, 0, len(cells) - cells.null_count - (pc.sum(known).as_py() or 0)
