"""What a model does on rows it never saw, as plain numbers for `metrics.json` and the page.

Everything is counted exactly on the rows given. Numbers are finite, and None stands where one does not exist.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aimfor._base import checks
from aimfor._base.arrays import ROUNDING, Values
from aimfor._base.errors import UndefinedMetricError
from aimfor._base.ranks import ALONE, Ranks, in_turns
from aimfor.aims import AUCPR, AUCROC, Aim, PointAim, RecallAtPrecision, TPRAtFPR, rate_of
from aimfor.metrics import Curve, cumulate
from aimfor.operating_points import (
    INTERVAL_LEVEL,
    Confusion,
    Intervals,
    LabelRows,
    OperatingPoint,
    columns_of,
    decided_point,
    interval_of,
    rate_band,
)
from aimfor.report._sentences import claim_of, sentence_of, verdict_of
from aimfor.report._value_at import value_at

MAX_POINTS, MAX_BINS = 1000, 50
BAND_POINTS = 100  # with fewer points a curve, labels are so many that their bands would take long
UNSEEN = "rows the model never saw"
# Share of the rows at either end of the scores that the histogram puts into its outermost bins: a few far scores would
# press all others into one bin.
FAR = 0.002


# long: half of it documents the arguments and the keys of the result.
def measure_label(
    name: str,
    *,
    labels: Values,
    scores: Values,
    baseline_scores: Values | None = None,
    point: OperatingPoint,
    aim: Aim,
    weights: Values | None = None,
    validation: tuple[Values | None, ...] | None = None,
    dependent: bool = False,
    num_points: int = MAX_POINTS,
    positive: str = "1",
    on: str = UNSEEN,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Measure one label on rows that the model never saw.

    Args:
        name: of the label.
        labels: 0 or 1 of the test rows, shape [n].
        scores: finite scores of the test rows.
        baseline_scores: scores of log-loss for the same rows, to stand beside.
        point: the operating point.
        aim: with the target of this label alone.
        weights: of the test rows, >= 0.
        validation: labels, scores, weights and, if there are any, groups of the rows that chose the operating point,
            for `promise` and `claim`.
        dependent: whether the test rows come in groups of dependent rows, so that no interval holds.
        num_points: the most points of a curve; the operating threshold is one more.
        positive: the class that counts as positive, in words.
        on: which rows these are, in words.
        ranks: that all have these rows, and call this with them at the same time; they share `promise` and `band`,
            which are the only results on other ranks than the first.

    Returns:
        A dict of finite numbers, texts, lists and None. `metric` is the aim's exact metric at the best threshold of
        these rows, or its area, with `at_threshold`, what it is at the operating one; `operating` has counts and
        rates at the operating threshold; `constraint` has the target and whether it `held` on these rows; `curve` has
        exact counts at thresholds from high to low; `promise` has for a grid of targets the threshold that validation
        rows chose and what it delivers here (None without those rows); `band` has bounds that hold at all thresholds of
        the curve at once (None for weighted or dependent rows, or many points); `claimable` is that of the operating
        point, `claim` its sentence; `sentence` says it all in one.

    Example:
        >>> from aimfor import operating_point
        >>> point = operating_point([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], "recall@precision>=0.75")
        >>> rows = {"labels": [1, 0, 1, 0], "scores": [5, 1, 3, 2]}
        >>> measured = measure_label("fraud", **rows, point=point, aim=RecallAtPrecision(0.75))
        >>> measured["constraint"]
        {'rate': 'precision', 'sense': '>=', 'target': 0.75, 'held': False}
        >>> measured["operating"]["tp"], measured["operating"]["fp"], measured["metric"]["ours"]
        (2, 1, 1.0)
    """
    rows = _rows(labels, scores, weights)
    level = INTERVAL_LEVEL if point.confidence is None else point.confidence
    ours = _Measured(rows, _curve(rows), level, _rates(aim), exact=rows.weights is None and not dependent)
    curve = _thinned(ours.curve, num_points, point.threshold)
    band = curve["thresholds"] if num_points >= BAND_POINTS else None
    shared: dict[str, Any] = {"promise": None, "band": None}
    if validation:
        shared = _promise_and_band(_kin(aim), ours, validation, point, band, ranks)
    if ranks.number > 0:  # the first writes the report
        return shared
    baseline = None if baseline_scores is None else _rows(labels, baseline_scores, weights)
    operating = {"threshold": point.threshold, **ours.at(point.threshold)}
    constraint = _constraint(aim, operating)
    measured = {
        "name": name,
        "positive": positive,
        "on": on,
        "rows": rows.labels.size,
        "positives": int(rows.labels.sum()),
        "num_positives": _number(ours.curve.num_positives),
        "num_negatives": _number(ours.curve.num_negatives),
        "level": level,
        "metric": {
            "name": str(aim),
            "ours": _metric(aim, rows),
            "baseline": baseline and _metric(aim, baseline),
            "greater_is_better": aim.greater_is_better,
            "at_threshold": value_at(aim, operating, level),
            "area": isinstance(aim, (AUCPR, AUCROC)),
        },
        "chosen": point.chosen,
        "reason": point.reason,
        "operating": operating,
        "constraint": constraint,
        "curve": curve,
        "band": shared["band"],
        "claimable": point.claimable,
        "claim": claim_of(point) if validation else "",
        "baseline": baseline and _thinned(_curve(baseline), num_points),
        "histogram": _histogram(rows),
        "promise": shared["promise"],
    }
    verdict = verdict_of(operating, constraint, level)
    return {**measured, "verdict": verdict, "sentence": sentence_of(verdict, measured, aim, point.source)}


def rates_at(
    threshold: float | None, labels: Values, scores: Values, weights: Values | None, level: float
) -> dict[str, Any]:
    """Counts, rates and their intervals at a threshold, on some rows; all None without a threshold."""
    rows = _rows(labels, scores, weights)
    exact = rows.weights is None
    return _Measured(rows, _curve(rows), level, ("precision", "recall", "fpr"), exact).at(threshold)


class _Measured(NamedTuple):
    rows: LabelRows
    curve: Curve
    level: float  # of the intervals
    rates: tuple[str, ...]
    exact: bool  # whether rows count the same and are independent, as exact intervals need

    def at(self, threshold: float | None) -> dict[str, Any]:
        """Counts, rates and their intervals at a threshold; all None without one."""
        if threshold is None:
            return dict.fromkeys((*Confusion._fields, *self.rates, "intervals"))
        tp, fp = self.curve.at(threshold)
        # Sums of weights are rounded, hence max: a difference of 0 may come out below it.
        fn, tn = max(0.0, self.curve.num_positives - tp), max(0.0, self.curve.num_negatives - fp)
        counts = Confusion(*map(_number, (tp, fp, fn, tn)))
        return {
            **counts._asdict(),
            **{rate: counts.rate(rate) for rate in self.rates},
            "intervals": {rate: interval_of(counts, rate, self.level) for rate in self.rates} if self.exact else None,
        }


def _rates(aim: Aim) -> tuple[str, ...]:
    """The three rates that every page has, and those of the aim."""
    names = (aim.objective, aim.constrained) if isinstance(aim, PointAim) else ()
    return tuple(dict.fromkeys((*Intervals._fields, *(rate_of(name).name for name in names))))


def _rows(labels: Values, scores: Values, weights: Values | None) -> LabelRows:
    data = checks.metric_arrays(labels, scores, weights)
    if data.labels.ndim != 1:
        raise ValueError(f"labels must have shape [n], got {data.labels.shape}")
    return columns_of(data)[0]


def _curve(rows: LabelRows) -> Curve:
    return cumulate(rows.labels, rows.scores, np.ones(rows.labels.size) if rows.weights is None else rows.weights)


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else float(value)


def _metric(aim: Aim, rows: LabelRows) -> float | None:
    try:
        return float(aim.metric(rows.labels, rows.scores, sample_weight=rows.weights))
    except UndefinedMetricError:
        return None


def _constraint(aim: Aim, operating: dict[str, Any]) -> dict[str, Any] | None:
    if not isinstance(aim, PointAim):
        return None
    assert not isinstance(aim.target, tuple)
    rate, sense = rate_of(aim.constrained).name, aim.sense
    value = operating[rate]
    held = None if value is None else _keeps(value, sense, aim.target)
    return {"rate": rate, "sense": sense, "target": float(aim.target), "held": held}


def _keeps(value: float, sense: str, target: float) -> bool:
    room = ROUNDING * target
    return value >= target - room if sense == ">=" else value <= target + room


# The curve, with no more points than a screen can show


def _thinned(curve: Curve, num_points: int, threshold: float | None = None) -> dict[str, list[float]]:
    thresholds, tp, fp = curve.thresholds, curve.tp, curve.fp
    kept = _kept(curve, num_points)
    thresholds, tp, fp = thresholds[kept], tp[kept], fp[kept]
    if threshold is not None and threshold not in thresholds:
        place = int(np.searchsorted(-thresholds, -threshold))
        at = curve.at(threshold)
        thresholds = np.insert(thresholds, place, threshold)
        tp, fp = (np.insert(counts, place, count) for counts, count in zip((tp, fp), at, strict=True))
    return {"thresholds": thresholds.tolist(), "tp": [_number(n) for n in tp], "fp": [_number(n) for n in fp]}


def _kept(curve: Curve, num_points: int) -> np.ndarray:
    """Indices such that recall, precision and fpr all move little from one to the next: equal steps of their way."""
    if curve.thresholds.size <= num_points:
        return np.arange(curve.thresholds.size)
    # Without a class its counts are all 0, whatever they are divided by.
    rates = (curve.precision, curve.tp / (curve.num_positives or 1), curve.fp / (curve.num_negatives or 1))
    way = np.cumsum(sum(np.abs(np.diff(rate, prepend=rate[:1])) for rate in rates))
    return np.unique(np.searchsorted(way, np.linspace(0, way[-1], num_points)))


def _band(ours: _Measured, thresholds: list[float]) -> dict[str, Any] | None:
    """Lower and upper bounds at some thresholds; with the level, those of all thresholds hold at once."""
    if not ours.exact or not ours.curve.num_positives or not ours.curve.num_negatives:
        return None
    band = rate_band(ours.rows.labels, ours.rows.scores, confidence=ours.level)
    # As many rows lie above a threshold as above the lowest score that reaches it, so the bounds are the same.
    places = np.searchsorted(-band.thresholds, -np.asarray(thresholds), side="right") - 1
    bounds = {
        # Rounded outwards: a bound may be less tight, but not tighter.
        name: [np.floor(1e4 * low[places]) / 1e4, np.ceil(1e4 * high[places]) / 1e4]
        for name, (low, high) in {"precision": band.precision, "recall": band.recall}.items()
    }
    shown = {
        name: [[None if place < 0 else float(bound) for bound, place in zip(end, places, strict=True)] for end in ends]
        for name, ends in bounds.items()
    }
    return {"confidence": ours.level, **shown}


def _histogram(rows: LabelRows) -> dict[str, list[float]]:
    low, high = (float(end) for end in np.quantile(rows.scores, (FAR, 1 - FAR)))
    if low == high:
        low, high = low - max(1.0, abs(low)) / 2, high + max(1.0, abs(high)) / 2
    num_bins = int(np.clip(np.sqrt(rows.scores.size), 5, MAX_BINS))
    edges = np.linspace(low, high, num_bins + 1)
    inside = np.clip(rows.scores, low, high)

    def counts(chosen: np.ndarray) -> list[float]:
        weights = None if rows.weights is None else rows.weights[chosen]
        return [_number(n) for n in np.histogram(inside[chosen], edges, weights=weights)[0]]

    return {"edges": edges.tolist(), "positives": counts(rows.labels), "negatives": counts(~rows.labels)}


# The promise: a constraint chosen for on validation rows, beside what it gives on rows that chose nothing


def _kin(aim: Aim) -> PointAim:
    """The aim itself where it has a constraint, else one of the same family: areas and F_beta promise nothing."""
    if isinstance(aim, PointAim):
        return aim
    return TPRAtFPR(0.01) if isinstance(aim, AUCROC) else RecallAtPrecision(0.9)


def _promise_and_band(
    aim: PointAim,
    ours: _Measured,
    validation: tuple[Any, ...],
    point: OperatingPoint,
    thresholds: list[float] | None,
    ranks: Ranks,
) -> dict[str, Any]:
    """What takes longest, by turns: `promise`, and `band` at some thresholds, or None without these."""
    labels, scores, weights, groups = validation if len(validation) == 4 else (*validation, None)
    given = {"source": point.source, "sample_weight": weights, "groups": groups}
    rate = rate_of(aim.constrained)
    targets = sorted({*rate.round_targets, aim.target})

    def kept(number: int) -> dict[str, Any]:
        kin = type(aim)(targets[number])  # type: ignore[call-arg]
        threshold = decided_point(labels, scores, kin, point.confidence, **given).threshold
        here = ours.at(threshold)
        interval = here["intervals"] and here["intervals"][rate.name]
        delivered = here[rate.name]
        return {"promised": targets[number], "threshold": threshold, "delivered": delivered, "interval": interval}

    def turn(number: int) -> dict[str, Any] | None:
        if number < len(targets):
            return kept(number)
        return None if thresholds is None else _band(ours, thresholds)

    *points, band = in_turns(turn, len(targets) + 1, ranks)
    return {"promise": {"rate": rate.name, "sense": aim.sense, "points": points}, "band": band}
