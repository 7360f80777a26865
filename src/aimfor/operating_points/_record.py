"""The record of an operating point, as a paragraph and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aimfor._base import checks
from aimfor._base.arrays import Values
from aimfor.aims import Aim, PointAim, rate_of, show_target
from aimfor.aims import aim as read_aim

Interval = tuple[float, float]

INTERVAL_LEVEL = 0.95  # level of the intervals if no confidence is given
WEAK = 0.5  # a constraint that can be claimed only with less is more likely broken than kept


class Confusion(NamedTuple):
    """The decisions of a threshold: numbers of rows, or sums of their weights if these differ."""

    tp: float
    fp: float
    fn: float
    tn: float

    def of(self, rate: str) -> tuple[float, float]:
        """The part and the whole of a registered rate."""
        tp, fp, fn, tn = self
        return rate_of(rate).share.count({"tp": tp, "fp": fp, "positives": tp + fn, "negatives": fp + tn})

    def rate(self, rate: str) -> float | None:
        """A registered rate; None if it does not exist."""
        part, whole = self.of(rate)
        return part / whole if whole > 0 else None


class Intervals(NamedTuple):
    """Exact two-sided intervals (Clopper-Pearson) of the rates at the threshold; None if a rate does not exist."""

    precision: Interval | None
    recall: Interval | None
    fpr: Interval | None


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold, its rates, and how it was chosen. Positive means score >= threshold.

    Attributes:
        aim: text of the aim.
        threshold: None if no threshold qualifies; the rates and counts are then those of the nearest one.
        chosen: the rule that chose the threshold, such as "most recall with precision >= 0.9" or "best F1".
        precision, recall, fpr: on the data that chose the threshold; None if they do not exist.
        counts: true and false positives, false and true negatives there.
        intervals: of the three rates at `confidence`, or at 95 % without one; None if sample weights differ. They are
            exact for a threshold fixed beforehand. Only a `confidence` corrects for the choice among thresholds, and
            only for the constraint.
        confidence: least probability that the constraint holds on the population; None if none was asked for.
        num_rows, num_positives: of the data that chose the threshold, without rows of weight 0.
        source: that data, in words.
        reason: why there is no threshold; None if there is one.
        claimable: the highest confidence at which the constraint can be claimed at the threshold, by the exact test;
            None without a constraint or a threshold, and if sample weights differ. It may be claimed after the
            threshold was chosen.
        num_groups: number of groups of dependent rows; None if none were given. The confidence and `claimable` are then
            about a row of a new group, and there are no intervals.

    Example:
        >>> import aimfor
        >>> point = aimfor.operating_point([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], "f1")
        >>> point.threshold, point.predict([1.5, 2.5]).tolist()
        (2.0, [0, 1])
        >>> OperatingPoint.from_json(point.to_json()) == point
        True
    """

    aim: str
    threshold: float | None
    chosen: str
    precision: float | None
    recall: float | None
    fpr: float | None
    counts: Confusion
    intervals: Intervals | None
    confidence: float | None
    num_rows: int
    num_positives: int
    source: str
    reason: str | None = None
    claimable: float | None = None
    num_groups: int | None = None

    def predict(self, y_score: Values) -> NDArray[np.int64]:
        """1 where the score reaches the threshold, else 0.

        Args:
            y_score: finite scores of this label, of any shape.

        Raises:
            ValueError: if no threshold qualified.
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
        from aimfor.operating_points._read import read  # it imports this class

        return read(text)

    def __str__(self) -> str:
        return _paragraph(self)


def valid_confidence(confidence: float | None, aim: Aim) -> float | None:
    """Return the confidence. Raise if it is out of range, or if the aim cannot have one."""
    if confidence is None:
        return None
    if not isinstance(aim, PointAim):
        raise ValueError(f"confidence needs an aim with a constraint, got {str(aim)!r}")
    if rate_of(aim.constrained).test is None:
        raise ValueError(f"confidence needs a rate with an exact test, got {aim.constrained!r}, which has none")
    return checks.in_range("confidence", confidence, 0, 1, open_low=True, open_high=True)


def percent_down(share: float) -> str:
    """A share in per cent, rounded down so that it never claims too much."""
    return percent(math.floor(1000 * share + 1e-9) / 1000)


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{100 * share:.6g} %"


# Telling


def _paragraph(point: OperatingPoint) -> str:
    level = percent(INTERVAL_LEVEL if point.confidence is None else point.confidence)
    groups = "" if point.num_groups is None else f" in {point.num_groups:,} groups"
    data = f"{point.source} ({point.num_rows:,} rows{groups}, {point.num_positives:,} positive)"
    sure = "" if point.confidence is None else f" at {level} confidence"
    if point.threshold is None:
        text = f"{point.aim}: no threshold, as {point.reason}, on {data}. The nearest has "
    else:
        # All digits, because a rounded threshold would decide differently.
        edge = f"score >= {show_target(point.threshold)}"
        text = f"{point.aim}: positive where {edge}, the {point.chosen}{sure} on {data}. It has "
    rates = []
    for name in Intervals._fields:
        value, interval = getattr(point, name), point.intervals and getattr(point.intervals, name)
        shown = f"{name} {'unknown' if value is None else f'{value:.4g}'}"
        rates.append(shown + (f" ({level} interval {interval[0]:.4g} to {interval[1]:.4g})" if interval else ""))
    rates += [f"{name} {point.counts.rate(name):.4g}" for name in _further_rates(point)]
    tp, fp, fn, tn = (f"{count:,.6g}" for count in point.counts)
    claim = ""
    if point.claimable is not None:
        where = "" if point.num_groups is None else " for a row of a new group"
        claim = f" The constraint can be claimed{where} with {percent_down(point.claimable)} confidence at most."
    return text + f"{', '.join(rates)}: {tp} true and {fp} false positives, {fn} false and {tn} true negatives." + claim


def _further_rates(point: OperatingPoint) -> list[str]:
    """Rates of the aim for which the record has no field."""
    aim = read_aim(point.aim)
    names = (aim.objective, aim.constrained) if isinstance(aim, PointAim) else ()
    rates = [rate_of(name).name for name in names]
    return [name for name in rates if name not in Intervals._fields]
