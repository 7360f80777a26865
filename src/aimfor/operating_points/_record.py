"""Decide, the record: an operating point, the paragraph and the JSON of it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aimfor._base import checks
from aimfor._base.arrays import Values
from aimfor.aims import Aim, PointAim, show_target
from aimfor.aims import aim as read_aim

Interval = tuple[float, float]

INTERVAL_LEVEL = 0.95  # of the intervals, where no confidence was asked for


class Counts(NamedTuple):
    """What a threshold does to the rows: numbers of rows, or sums of their weights where these differ."""

    tp: float
    fp: float
    fn: float
    tn: float


class Intervals(NamedTuple):
    """Exact two-sided intervals (Clopper-Pearson) for the rates at the threshold; None where a rate does not exist."""

    precision: Interval | None
    recall: Interval | None
    fpr: Interval | None


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold, what it gives, and how it was chosen; positive means score >= threshold.

    Attributes:
        aim: text of the aim.
        threshold: None where no threshold qualifies; the rates and counts are then the nearest that could be had.
        chosen: what the threshold was chosen for, such as "most recall with precision >= 0.9" or "best F1".
        precision, recall, fpr: on the data that chose the threshold; None where they do not exist.
        counts: true and false positives, false and true negatives there.
        intervals: of the three rates at `confidence`, or at 95 % without one; None where sample weights differ. They
            are those of a threshold fixed beforehand: only the constraint, and only with a confidence, is corrected for
            the choice among thresholds.
        confidence: least probability that the constraint holds on the population, None where none was asked for.
        num_rows, num_positives: of the data that chose the threshold, rows of weight 0 left out.
        source: that data, in words.
        reason: why there is no threshold; None where there is one.
    """

    aim: str
    threshold: float | None
    chosen: str
    precision: float | None
    recall: float | None
    fpr: float | None
    counts: Counts
    intervals: Intervals | None
    confidence: float | None
    num_rows: int
    num_positives: int
    source: str
    reason: str | None = None

    def predict(self, y_score: Values) -> NDArray[np.int64]:
        """1 where the score reaches the threshold, else 0.

        Args:
            y_score: finite scores of this label, of any shape.

        Raises:
            ValueError: where no threshold qualified; nothing is guessed.
        """
        if self.threshold is None:
            raise ValueError(f"predict needs a threshold, got none for {self.aim!r}: {self.reason}")
        scores = checks.to_numpy("y_score", y_score)
        checks.all_entries("y_score", scores, np.isfinite(scores), "finite")
        return (scores >= self.threshold).astype(np.int64)

    def to_json(self) -> str:
        """The record as JSON text: finite numbers, texts and null."""
        fields = dataclasses.asdict(self)
        fields["counts"] = self.counts._asdict()
        fields["intervals"] = self.intervals and self.intervals._asdict()
        return json.dumps(fields, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> OperatingPoint:
        """Read what `to_json` wrote, or the dict that it parses to.

        Raises:
            ValueError: for anything else, in one sentence.
        """
        return _read(text)

    def __str__(self) -> str:
        return _paragraph(self)


def valid_confidence(confidence: float | None, aim: Aim) -> float | None:
    """Refuse a confidence that is none, or that the aim cannot have."""
    if confidence is None:
        return None
    if not isinstance(aim, PointAim):
        raise ValueError(f"confidence needs an aim with a constraint, got {str(aim)!r}")
    return checks.in_range("confidence", confidence, 0, 1, open_low=True, open_high=True)


def ratio(part: float, rest: float) -> float | None:
    """The share of a part, None of nothing."""
    return part / (part + rest) if part + rest > 0 else None


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{100 * share:.6g} %"


# Telling


def _paragraph(point: OperatingPoint) -> str:
    level = percent(INTERVAL_LEVEL if point.confidence is None else point.confidence)
    data = f"{point.source} ({point.num_rows:,} rows, {point.num_positives:,} positive)"
    sure = "" if point.confidence is None else f" at {level} confidence"
    if point.threshold is None:
        text = f"{point.aim}: no threshold, as {point.reason}, on {data}. The nearest has "
    else:
        # In full: a threshold with fewer digits would decide otherwise.
        edge = f"score >= {show_target(point.threshold)}"
        text = f"{point.aim}: positive where {edge}, the {point.chosen}{sure} on {data}. It has "
    rates = []
    for name in Intervals._fields:
        value, interval = getattr(point, name), point.intervals and getattr(point.intervals, name)
        shown = f"{name} {'unknown' if value is None else f'{value:.4g}'}"
        rates.append(shown + (f" ({level} interval {interval[0]:.4g} to {interval[1]:.4g})" if interval else ""))
    tp, fp, fn, tn = (f"{count:,.6g}" for count in point.counts)
    return text + f"{', '.join(rates)}: {tp} true and {fp} false positives, {fn} false and {tn} true negatives."


# Reading: a file may come from anywhere, so nothing in it is taken on trust

ROUNDED = 1e-9  # how far a rate may be from that of its counts


def _read(text: str | Mapping[str, Any]) -> OperatingPoint:
    try:
        given = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        raise ValueError("an operating point must be JSON text, got something else") from None
    names = [field.name for field in dataclasses.fields(OperatingPoint)]
    given = _entries("an operating point", given, names)
    aim = read_aim(_text("aim", given["aim"]))
    checks.rule(not aim.label_counts(), "aim", "must have one target in one operating point", repr(str(aim)))
    threshold, reason, intervals = given["threshold"], given["reason"], given["intervals"]
    checks.rule((threshold is None) != (reason is None), "reason", "must stand where threshold is null", repr(reason))
    if intervals is not None:
        entries = _entries("intervals", intervals, Intervals._fields)
        intervals = Intervals(*(_interval(name, entry) for name, entry in entries.items()))
    confidence = given["confidence"]
    if confidence is not None:
        confidence = valid_confidence(_number("confidence", confidence), aim)
    num_rows = _whole("num_rows", given["num_rows"])
    num_positives = _whole("num_positives", given["num_positives"])
    checks.rule(num_positives <= num_rows, "num_positives", f"must be at most num_rows, {num_rows}", num_positives)
    entries = _entries("counts", given["counts"], Counts._fields)
    counts = Counts(*(_count(name, count) for name, count in entries.items()))
    if intervals is not None:  # then they count rows
        all_there = counts.tp + counts.fn == num_positives and sum(counts) == num_rows
        rule = f"must be those of {num_rows} rows, {num_positives} of them positive"
        checks.rule(all_there, "counts", rule, list(counts))
    rates = {name: _rate(name, given[name]) for name in Intervals._fields}
    _check_rates(rates, counts, intervals)
    return OperatingPoint(
        aim=str(aim),
        threshold=None if threshold is None else _number("threshold", threshold, open_low=True),
        chosen=_text("chosen", given["chosen"]),
        **rates,
        counts=counts,
        intervals=intervals,
        confidence=confidence,
        num_rows=num_rows,
        num_positives=num_positives,
        source=_text("source", given["source"]),
        reason=None if reason is None else _text("reason", reason),
    )


def _check_rates(rates: dict[str, float | None], counts: Counts, intervals: Intervals | None) -> None:
    """Refuse rates that are not those of the counts, and intervals that do not hold them."""
    tp, fp, fn, tn = counts
    exact = {"precision": ratio(tp, fp), "recall": ratio(tp, fn), "fpr": ratio(fp, tn)}
    for name, rate in rates.items():
        known = exact[name]
        right = rate is known or (rate is not None and known is not None and abs(rate - known) <= ROUNDED)
        checks.rule(right, name, f"must be that of the counts, {known}", rate)
        if intervals is not None:
            ends: Interval | None = getattr(intervals, name)
            held = (rate is None) == (ends is None)
            if rate is not None and ends is not None:
                held = ends[0] - ROUNDED <= rate <= ends[1] + ROUNDED
            checks.rule(held, f"the interval of {name}", f"must hold the rate, {rate}", ends)


def _entries(name: str, value: Any, keys: Sequence[str]) -> dict[str, Any]:
    """The entries in the order of the keys, which must be all there and alone."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a JSON object, got {type(value).__name__}")
    for key in keys:
        checks.rule(key in value, name, f"must have the entry {key!r}", sorted(map(str, value)))
    for key in value:
        checks.rule(key in keys, name, f"must have no entries but {', '.join(keys)}", repr(key))
    return {key: value[key] for key in keys}


def _number(name: str, value: Any, low: float = -math.inf, high: float = math.inf, **ends: bool) -> float:
    try:
        number = checks.in_range(name, value, low, high, **ends)
    except (TypeError, OverflowError):  # a whole number beyond any float is one that JSON can hold
        raise ValueError(f"{name} must be a number, got {str(value)[:50]!r}") from None
    checks.rule(math.isfinite(number), name, "must be finite", value)
    return number


def _whole(name: str, value: Any) -> int:
    number = _number(name, value, 0)
    checks.rule(number.is_integer(), name, "must be a whole number", value)
    return int(number)


def _count(name: str, value: Any) -> float:
    number = _number(name, value, 0)
    return int(value) if isinstance(value, int) else number


def _rate(name: str, value: Any) -> float | None:
    return None if value is None else _number(name, value, 0, 1)


def _interval(name: str, value: Any) -> Interval | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"the interval of {name} must be two numbers, got {str(value)[:50]!r}")
    low, high = (_number(f"the interval of {name}", end, 0, 1) for end in value)
    checks.rule(low <= high, f"the interval of {name}", "must go upwards", [low, high])
    return low, high


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {str(value)[:50]!r}")
    return value
