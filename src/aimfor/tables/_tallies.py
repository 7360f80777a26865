"""Counts over the training rows, from which each column's features are learned."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aimfor._base.errors import DataError
from aimfor._base.ranks import Ranks
from aimfor.tables._columns import Column, is_text, moments, numbers, texts

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

MOST_COUNTED = 50_000  # texts of a column that are counted; with more, the rare ones are forgotten on the way
FEWEST_FOR_IDS = 20  # so many whole numbers in rising order are hardly so by chance
MOST_FOR_IDS = 100_000  # whole numbers of a column that are compared with each other
# Equal pairs that numbers drawn at random from the range of a column would have; without any they are no draw.
EXPECTED_PAIRS = 10
ID_NAME = re.compile(r"(.*[^a-z])?(id|uuid|guid|key|nr)", re.IGNORECASE)
WORDS_OF_TEXT = 3.0  # words of a cell, on average, from which on a column holds texts and no categories
MANY = 64  # different texts, from which on a column may hold texts


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
    decimal: str = "."
    seen: list[np.ndarray] | None = field(default_factory=list)  # whole numbers that all differ so far

    def add_(self, name: str, array: pa.Array) -> None:
        """Count some more rows."""
        values = numbers(name, array, self.decimal)
        self.num_rows += len(values)
        absent = np.isnan(values)
        if absent.any():
            values = values[~absent]
            self.num_missing += len(absent) - len(values)
        if not len(values):
            return
        self._compare_(values, pa.types.is_integer(array.type))
        if self.rising or self.falling:
            first = int(np.isnan(self.last))
            earlier, later = np.append(self.last, values[:-1])[first:], values[first:]
            self.rising &= bool((later > earlier).all())
            self.falling &= bool((later < earlier).all())
        self.last = float(values[-1])
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        self._add_moments_(values)

    def merge_(self, other: Tally) -> None:
        """Count the rows of another rank too. A column that rises on every rank is taken to rise over all."""
        before, more = self.num_rows - self.num_missing, other.num_rows - other.num_missing
        if more:
            difference, total = other.mean - self.mean, before + more
            with np.errstate(over="ignore", invalid="ignore"):
                self.squares += other.squares + difference**2 * before * more / total
                self.mean += difference * more / total
        whole = self.seen is not None and other.seen is not None
        every = np.concatenate([np.empty(0), *(self.seen or ()), *(other.seen or ())])
        self.seen = [every] if whole and len(np.unique(every)) == len(every) else None
        self.num_rows += other.num_rows
        self.num_missing += other.num_missing
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.rising, self.falling = self.rising and other.rising, self.falling and other.falling

    def _compare_(self, values: np.ndarray, whole: bool) -> None:
        """Keep the values as long as they are whole numbers that all differ."""
        if self.seen is None or self.num_rows > MOST_FOR_IDS:
            return
        self.seen.append(values)
        every = np.concatenate(self.seen)
        self.seen = [every] if whole and len(np.unique(every)) == len(every) else None

    def _is_id(self, name: str) -> bool:
        """Whether the training rows hold whole numbers that all differ, where numbers of a quantity would not."""
        count = sum(map(len, self.seen or ()))
        if count < FEWEST_FOR_IDS or self.num_missing:
            return False
        pairs = count * (count - 1) / 2 / (self.high - self.low + 1)
        return pairs >= EXPECTED_PAIRS or ID_NAME.fullmatch(name) is not None

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
        if pa.types.is_integer(kind) and not column.forced and (ordered or self._is_id(column.name)):
            return replace(column, kind="dropped", reason="all unique")
        return column


@dataclass
class TextTally:
    """What the training rows have in a categorical column."""

    num_rows: int = 0
    num_missing: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    unique: bool = True
    num_words: int = 0

    def add_(self, name: str, array: pa.Array) -> None:
        """Count some more rows."""
        array = texts(name, array)
        self.num_rows += len(array)
        self.num_missing += array.null_count
        self.num_words += pc.sum(pc.count_substring_regex(array, r"\S+")).as_py() or 0
        found = pc.value_counts(array.drop_null())
        new = dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))
        self.unique = self.unique and len(new) == len(array) - array.null_count and self.counts.keys().isdisjoint(new)
        self.counts.update(new)
        if len(self.counts) > MOST_COUNTED:
            self.counts = Counter(dict(self.most_common(MOST_COUNTED // 2)))

    def merge_(self, other: TextTally) -> None:
        """Count the rows of another rank too."""
        self.num_rows += other.num_rows
        self.num_missing += other.num_missing
        self.num_words += other.num_words
        self.unique = self.unique and other.unique and self.counts.keys().isdisjoint(other.counts)
        self.counts.update(other.counts)
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
        wordy = self.num_words >= WORDS_OF_TEXT * (self.num_rows - self.num_missing)
        if wordy and is_text(kind) and not column.forced and (self.unique or len(self.counts) > MANY):
            return replace(column, kind="text")
        if self.unique and is_text(kind) and not column.forced:
            return replace(column, kind="dropped", reason="all unique")
        return column


CALENDAR = ("year", "month", "weekday", "hour", "days")


def calendar(seconds: np.ndarray, first: float) -> np.ndarray:
    """Year, month, weekday (0 is Monday), hour and days since `first`, `[5, b]`; NaN where there is no date."""
    absent = np.isnan(seconds)
    whole = np.where(absent, 0, seconds).astype(np.int64)
    moment = whole.astype("datetime64[s]")
    day = moment.astype("datetime64[D]").astype(np.int64)
    found = np.stack(
        [
            moment.astype("datetime64[Y]").astype(np.int64) + 1970.0,
            moment.astype("datetime64[M]").astype(np.int64) % 12 + 1.0,
            (day + 3) % 7 * 1.0,
            whole % 86_400 / 3600,
            (np.where(absent, 0, seconds) - first) / 86_400,
        ]
    )
    found[:, absent] = np.nan
    return found


@dataclass
class DateTally:
    """What the training rows have in a column of dates."""

    form: str | None = None
    num_rows: int = 0
    num_missing: int = 0
    first: float = np.nan
    count: int = 0
    sums: np.ndarray = field(default_factory=lambda: np.zeros(5))
    squares: np.ndarray = field(default_factory=lambda: np.zeros(5))
    low: float = np.inf
    high: float = -np.inf

    def add_(self, name: str, array: pa.Array) -> None:
        """Count some more rows."""
        seconds = moments(name, array, self.form)
        self.num_rows += len(seconds)
        seconds = seconds[~np.isnan(seconds)]
        self.num_missing = self.num_rows - self.count - len(seconds)
        if not len(seconds):
            return
        if np.isnan(self.first):
            self.first = float(seconds.min())  # near all others, so that the sums below lose no digits
        values = calendar(seconds, self.first)
        self.count += len(seconds)
        self.sums += values.sum(axis=1)
        self.squares += (values**2).sum(axis=1)
        self.low, self.high = min(self.low, float(seconds.min())), max(self.high, float(seconds.max()))

    def merge_(self, other: DateTally) -> None:
        """Count the rows of another rank too."""
        self.num_rows += other.num_rows
        self.num_missing += other.num_missing
        if not other.count:
            return
        if np.isnan(self.first):
            self.first = other.first
        # Its days count from another date.
        later, sums, squares = (other.first - self.first) / 86_400, other.sums.copy(), other.squares.copy()
        squares[4] += 2 * later * sums[4] + other.count * later**2
        sums[4] += other.count * later
        self.count, self.sums, self.squares = self.count + other.count, self.sums + sums, self.squares + squares
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def means_and_scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the calendar's numbers, with days counted from the first date; a scale of 0 where all are the same."""
        means = self.sums / self.count
        scales = np.sqrt(np.maximum(self.squares / self.count - means**2, 0))
        scales[scales < 1e-6 * np.maximum(1, np.abs(means))] = 0
        means[4] -= (self.low - self.first) / 86_400
        return means, scales

    def judged(self, column: Column, kind: pa.DataType) -> Column:
        """The column, dropped where nothing can be learned from it."""
        if self.num_missing == self.num_rows:
            return replace(column, kind="dropped", reason="all missing")
        if self.low == self.high and not self.num_missing:
            return replace(column, kind="dropped", reason="constant")
        return column


AnyTally = Tally | TextTally | DateTally


def merged(tallies: dict[str, AnyTally], ranks: Ranks) -> dict[str, AnyTally]:
    """The tallies of all ranks as one."""
    if ranks.size == 1:
        return tallies
    first, *others = ranks.gather(tallies)
    for other in others:
        for name, tally in first.items():
            tally.merge_(other[name])
    return first
