"""Decide: from held-out scores to a threshold, with a stated confidence that its constraint holds on new data.

Without a confidence the threshold is the best of all distinct scores on the data at hand. With one, the constraint
holds on the population the rows were drawn from with at least that probability, for any distribution of the scores and
any number of rows. `docs/operating_points.md` has the argument, `_certain` and `_walk` have it in short.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aimfor import checks, metrics
from aimfor.aim_parser import aim as read_aim
from aimfor.aim_texts import show_target
from aimfor.aims import Aim, FBeta, PointAim
from aimfor.curves import Array, Curve, cumulate
from aimfor.metrics import ROUNDING, Values
from aimfor.points import INTERVAL_LEVEL, Counts, Interval, Intervals, OperatingPoint, percent, ratio, valid_confidence

NEEDS_EQUAL_WEIGHTS = "confidence needs equal sample weights, as exact tails count rows, got unequal ones"
NO_POSITIVE, NO_NEGATIVE = "y_true holds no positive", "y_true holds no negative"


def operating_point(
    y_true: Values,
    y_score: Values,
    aim: str | Aim,
    *,
    confidence: float | None = None,
    sample_weight: Values | None = None,
    source: str = "held-out data",
) -> Any:
    """Choose the threshold for an aim on held-out data: of all distinct scores the best that keeps the constraint.

    F_beta takes its best threshold; an area (aucpr, aucroc) has no threshold of its own and takes the one of best F1.
    Where no threshold qualifies, or a class that the aim needs is missing, nothing is raised: `threshold` is None, with
    the reason.

    Args:
        y_true: labels 0 or 1, shape [n] or [n, num_labels].
        y_score: finite scores of the same shape, higher meaning more positive; not those the model was trained on.
        aim: a record or its text; with one target per label for [n, num_labels] if it likes.
        confidence: in (0, 1); the constraint then holds on the population with at least this probability, for rows
            drawn independently from it; for each label by itself. Needs an aim with a constraint, and equal weights.
        sample_weight: weights >= 0, one per row or per entry.
        source: the data in words, for the record.

    Returns:
        An `OperatingPoint` for shape [n], a tuple of them, one per label, for [n, num_labels].

    Example:
        >>> point = operating_point([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], "recall@precision>=0.75")
        >>> point.threshold, point.recall, point.precision
        (2.0, 1.0, 0.75)
        >>> operating_point([0, 1], [2, 1], "recall@precision>=0.9").threshold is None
        True
    """
    record = read_aim(aim)
    data = checks.metric_arrays(y_true, y_score, sample_weight)
    confidence = valid_confidence(confidence, record)
    if not isinstance(source, str):
        raise TypeError(f"source must be a text, got {source!r}")
    columns = columns_of(data)
    aims = one_per_label(record, None if data.labels.ndim == 1 else len(columns))
    points = tuple(_choose(rows, aim, confidence, source) for rows, aim in zip(columns, aims, strict=True))
    return points[0] if data.labels.ndim == 1 else points


class LabelRows(NamedTuple):
    """The rows of one label that have a weight; the weights are None where all are equal."""

    labels: NDArray[np.bool_]
    scores: Array
    weights: Array | None


def columns_of(data: checks.MetricArrays) -> list[LabelRows]:
    """The rows of each label by themselves, without those of weight 0."""
    shape = (len(data.labels), -1)
    parts = (data.labels.reshape(shape).T, data.scores.reshape(shape).T, data.weights.reshape(shape).T)
    columns = []
    for labels, scores, weights in zip(*parts, strict=True):
        present = weights > 0
        equal = bool((weights[present] == weights[present][:1]).all())
        columns.append(LabelRows(labels[present], scores[present], None if equal else weights[present]))
    return columns


def one_per_label(aim: Aim, num_labels: int | None) -> list[Aim]:
    """The aim once for each label, with the targets of that label; None is one label, given without its axis."""
    for count in aim.label_counts():
        rule = "one target where y_true has shape [n]" if num_labels is None else f"one target or {num_labels}"
        checks.rule(count == num_labels, "aim", f"must have {rule}", repr(str(aim)))
    if not aim.label_counts():
        return [aim] * (num_labels or 1)
    assert num_labels is not None
    assert dataclasses.is_dataclass(aim)
    values = {field.name: getattr(aim, field.name) for field in dataclasses.fields(aim)}
    targets = {name: value for name, value in values.items() if isinstance(value, tuple)}
    return [
        dataclasses.replace(aim, **{name: value[label] for name, value in targets.items()})
        for label in range(num_labels)
    ]


def _choose(rows: LabelRows, aim: Aim, confidence: float | None, source: str) -> OperatingPoint:
    if confidence is not None and rows.weights is not None:
        raise ValueError(NEEDS_EQUAL_WEIGHTS)
    curve = cumulate(rows.labels, rows.scores, np.ones(rows.labels.size) if rows.weights is None else rows.weights)
    if isinstance(aim, PointAim):
        chosen, index, reason = _best_at_constraint(rows, curve, aim, confidence)
    else:
        chosen, index, reason = _best_f_beta(rows, curve, aim.beta if isinstance(aim, FBeta) else 1.0)
    tp, fp = (0.0, 0.0) if index is None else (float(curve.tp[index]), float(curve.fp[index]))
    # Sums of weights are rounded, hence max: a difference of 0 may come out below it.
    counts = Counts(tp, fp, max(0.0, curve.num_positives - tp), max(0.0, curve.num_negatives - fp))
    if rows.weights is None:
        counts = Counts(*map(int, counts))
    level = INTERVAL_LEVEL if confidence is None else confidence
    return OperatingPoint(
        aim=str(aim),
        threshold=None if reason is not None else float(curve.thresholds[index]),
        chosen=chosen,
        precision=ratio(counts.tp, counts.fp),
        recall=ratio(counts.tp, counts.fn),
        fpr=ratio(counts.fp, counts.tn),
        counts=counts,
        intervals=intervals_of(counts, level) if rows.weights is None else None,
        confidence=confidence,
        num_rows=rows.labels.size,
        num_positives=int(rows.labels.sum()),
        source=source,
        reason=reason,
    )


class _Choice(NamedTuple):
    """What was looked for, an index of the curve (None: nothing is predicted positive), and why it does not qualify."""

    chosen: str
    index: int | None
    reason: str | None


def _best_f_beta(rows: LabelRows, curve: Curve, beta: Any) -> _Choice:
    chosen = f"best F{show_target(beta)}"
    if curve.num_positives == 0:
        return _Choice(chosen, None, NO_POSITIVE)
    threshold = metrics.f_beta(rows.labels, rows.scores, beta, sample_weight=rows.weights).threshold
    return _Choice(chosen, int(np.flatnonzero(curve.thresholds == threshold)[0]), None)


def _best_at_constraint(rows: LabelRows, curve: Curve, aim: PointAim, confidence: float | None) -> _Choice:
    # The text of the aim says all that is needed: "recall@precision>=" is objective, constrained rate and sense.
    objective, constrained = aim.text[:-2].split("@")
    at_least, target = aim.text[-2:] == ">=", aim.target
    assert not isinstance(target, tuple)
    constraint = f"{constrained} {aim.text[-2:]} {show_target(target)}"
    chosen = f"{'most' if aim.greater_is_better else 'least'} {objective} with {constraint}"
    if curve.num_positives == 0:
        return _Choice(chosen, None, NO_POSITIVE)
    if curve.num_negatives == 0 and "fpr" in (objective, constrained):
        return _Choice(chosen, None, NO_NEGATIVE)
    shortfall = (target - _rate_of(curve, constrained)) * (1 if at_least else -1)
    allowed = (shortfall <= ROUNDING * target) & (curve.tp > 0)
    reason = f"no threshold has {constraint}"
    if confidence is not None:
        shortfall, certain = _certain(rows, curve, constrained, target, 1 - confidence)
        allowed &= certain
        reason += f" with {percent(confidence)} confidence"
    if allowed.any():
        reason = None
    else:
        allowed = shortfall <= shortfall.min()
    candidates = np.flatnonzero(allowed)
    value = _rate_of(curve, objective)[candidates] * (1 if aim.greater_is_better else -1)
    tied = candidates[value >= value.max() - ROUNDING * abs(value.max())]
    # Of equal objectives the one that keeps the constraint better; where it is certain anyway, the one that is better
    # in the objective on the population: more recall and tpr come with a lower threshold, less fpr with a higher one.
    lowest = constrained in ("recall", "tpr") if confidence is None else objective != "fpr"
    return _Choice(chosen, int(tied[-1 if lowest else 0]), reason)


def _rate_of(curve: Curve, name: str) -> Array:
    return getattr(curve, "recall" if name == "tpr" else name)


def _certain(
    rows: LabelRows, curve: Curve, constrained: str, target: float, level: float
) -> tuple[Array, NDArray[np.bool_]]:
    """The exact p-value of "the constraint is broken" at each threshold, and at which thresholds it is kept.

    With probability at least 1 - level it is kept in the population at all of these, so any of them may be taken.
    Recall and false-positive rate fall as the threshold rises, in the population as in the data. So the thresholds that
    break the constraint lie beyond a point that no data move, and tests at the full level that start at the other end
    are a fixed sequence: it errs only if it passes that point. Precision goes up and down and has a walk of its own.
    """
    if constrained == "precision":
        predicted = (curve.tp + curve.fp).astype(np.int64)
        kept = _walk(rows, target, level)
        return _upper_tail(curve.tp, predicted, target), kept[predicted]
    if constrained == "fpr":
        tails = _upper_tail(curve.num_negatives - curve.fp, curve.num_negatives, 1 - target)
    else:
        tails = _upper_tail(curve.tp, curve.num_positives, target)
    return tails, tails <= level


def _walk(rows: LabelRows, min_precision: float, level: float) -> NDArray[np.bool_]:
    """For each number of rows taken from the top, 0 to n, whether the precision of the population is certain there.

    A walk goes down row by row from one of several starts, while the p-value stays within its share of the level; on
    reaching the next start it adds that one's share. Rows of one score are walked in an order drawn without a look at
    the labels, which makes of any scores some without ties. A start is tested but not given: its p-value is that of
    a threshold at the next row, as the rows above a row are a sample of the population above it, and the row is not.
    """
    n = rows.labels.size
    order = np.lexsort((np.random.default_rng(0).random(n), -rows.scores))
    tp = np.append(0, np.cumsum(rows.labels[order]))
    tails = _upper_tail(tp, np.arange(n + 1), min_precision)
    starts, shares = _starts(n, min_precision, level)
    kept = np.zeros(n + 1, dtype=bool)
    carried = 0.0
    for start, end, share in zip(starts, [*starts[1:], n + 1], shares, strict=True):
        first = start if carried else start + 1
        carried += share
        failed = np.flatnonzero(tails[start:end] > carried)
        kept[first : start + failed[0] if failed.size else end] = True
        carried = 0.0 if failed.size else carried
    return kept


def _starts(n: int, min_precision: float, level: float) -> tuple[list[int], list[float]]:
    """The starts of the walk, in rows, and the share of the level that each has: by n and the aim alone.

    Each start has twice the rows of the one before and half its share. The first is where a third of the level is
    enough for rows that are all positive, so that there is room for a negative soon after. Of the rules simulated, this
    one gave up least recall on average over sizes, priors and targets, with and without negatives at the very top.
    """
    starts = [math.ceil(math.log(level / 3) / math.log(min_precision))]
    while 2 * starts[-1] < n:
        starts.append(2 * starts[-1])
    shares = [0.5**index for index in range(len(starts))]
    return starts, [level * share / sum(shares) for share in shares]


def _upper_tail(successes: NDArray, trials: NDArray | float, rate: float) -> Array:
    """P(Binomial(trials, rate) >= successes)."""
    special = _scipy_special()
    tails = special.betainc(np.maximum(successes, 1), trials - successes + 1, rate)
    return np.where(successes > 0, tails, 1.0)


def intervals_of(counts: Counts, level: float) -> Intervals:
    """Exact intervals of the three rates."""
    return Intervals(
        _clopper_pearson(counts.tp, counts.fp, level),
        _clopper_pearson(counts.tp, counts.fn, level),
        _clopper_pearson(counts.fp, counts.tn, level),
    )


def _clopper_pearson(hits: float, misses: float, level: float) -> Interval | None:
    if hits + misses == 0:
        return None
    special, tail = _scipy_special(), (1 - level) / 2
    low = float(special.betaincinv(hits, misses + 1, tail)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, misses, 1 - tail)) if misses else 1.0
    return low, high


def _scipy_special():
    try:
        from scipy import special
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "operating_point needs scipy for its binomial tails: pip install 'aimfor[sklearn]'"
        ) from None
    return special
