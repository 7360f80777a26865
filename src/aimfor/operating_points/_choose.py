"""Choose a threshold on held-out scores, with a stated confidence that its constraint holds on new data.

Without a confidence the threshold is the best of all distinct scores on the data at hand. With one, the constraint
holds on the population the rows were drawn from with at least that probability, for any distribution of the scores and
any number of rows. `docs/operating_points.md` has the argument, `certain` and `walked` have it in short.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from aimfor import metrics
from aimfor._base import checks
from aimfor._base.arrays import ROUNDING, Values
from aimfor._base.warnings import LowConfidenceWarning
from aimfor.aims import Aim, Cost, FBeta, PointAim, show_target
from aimfor.aims import aim as read_aim
from aimfor.metrics import Curve
from aimfor.operating_points._confidence import certain, claimable, intervals_of
from aimfor.operating_points._groups import group_codes
from aimfor.operating_points._record import (
    INTERVAL_LEVEL,
    WEAK,
    Confusion,
    Intervals,
    OperatingPoint,
    percent,
    percent_down,
    valid_confidence,
)
from aimfor.operating_points._rows import LabelRows, columns_of, curve_of
from aimfor.operating_points._rows_needed import rows_needed

NEEDS_EQUAL_WEIGHTS = "confidence needs equal sample weights, as exact tails count rows, got unequal ones"
NO_POSITIVE, NO_NEGATIVE = "y_true holds no positive", "y_true holds no negative"


OneLabel = Sequence[float] | Sequence[bool] | np.ndarray[tuple[int], Any]
SeveralLabels = Sequence[Sequence[float]] | Sequence[Sequence[bool]] | np.ndarray[tuple[int, int], Any]


@overload
def operating_point(
    y_true: OneLabel,
    y_score: Values,
    aim: str | Aim,
    *,
    confidence: float | None = ...,
    sample_weight: Values | None = ...,
    groups: Any = ...,
    source: str = ...,
) -> OperatingPoint: ...
@overload
def operating_point(
    y_true: SeveralLabels,
    y_score: Values,
    aim: str | Aim,
    *,
    confidence: float | None = ...,
    sample_weight: Values | None = ...,
    groups: Any = ...,
    source: str = ...,
) -> tuple[OperatingPoint, ...]: ...
@overload
def operating_point(  # only the caller knows how many dimensions an array or a tensor has
    y_true: Values,
    y_score: Values,
    aim: str | Aim,
    *,
    confidence: float | None = ...,
    sample_weight: Values | None = ...,
    groups: Any = ...,
    source: str = ...,
) -> Any: ...
def operating_point(
    y_true: Values,
    y_score: Values,
    aim: str | Aim,
    *,
    confidence: float | None = None,
    sample_weight: Values | None = None,
    groups: Any = None,
    source: str = "held-out data",
) -> OperatingPoint | tuple[OperatingPoint, ...]:
    """Choose the threshold for an aim on held-out data: of all distinct scores the best that keeps the constraint.

    F_beta and cost take their best threshold; an area (aucpr, aucroc) has none of its own and takes that of best F1.
    Where no threshold qualifies, or a class that the aim needs is missing, nothing is raised: `threshold` is None, with
    the reason.

    Args:
        y_true: labels 0 or 1, shape [n] or [n, num_labels].
        y_score: finite scores of the same shape, higher meaning more positive; not those the model was trained on.
        aim: a record or its text; with one target per label for [n, num_labels] if it likes.
        confidence: in (0, 1); the constraint then holds on the population with at least this probability, for rows
            drawn independently from it; for each label by itself. Needs an aim with a constraint, and equal weights.
        sample_weight: weights >= 0, one per row or per entry.
        groups: one value per row where rows depend on one another, such as the patient or the customer. Rows of one
            group may depend, groups must be independent. The confidence is then about a row of a new group: it counts
            one row of each group, drawn without a look at labels and scores.
        source: the data in words, for the record.

    Returns:
        An `OperatingPoint` for shape [n], a tuple of them, one per label, for [n, num_labels].

    Warns:
        LowConfidenceWarning: without a confidence, where the constraint can be claimed with less than 50 %.

    Example:
        >>> point = operating_point([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], "recall@precision>=0.75")
        >>> point.threshold, point.recall, point.precision
        (2.0, 1.0, 0.75)
        >>> operating_point([0, 1], [2, 1], "recall@precision>=0.9").threshold is None
        True
    """
    points = choose_points(
        y_true, y_score, aim, confidence=confidence, sample_weight=sample_weight, groups=groups, source=source
    )
    warn_of_weak_claims(points if isinstance(points, tuple) else (points,))
    return points


def choose_points(  # noqa: PLR0913  those of `operating_point`, and one more
    y_true: Values,
    y_score: Values,
    aim: str | Aim,
    *,
    confidence: float | None = None,
    sample_weight: Values | None = None,
    groups: Any = None,
    source: str = "held-out data",
    surest: bool = False,
) -> Any:
    """As `operating_point`, without its warning: for callers that report the confidence themselves.

    With `surest`, the threshold that keeps the constraint with the lowest p-value is taken; weights must be equal.
    """
    record = read_aim(aim)
    data = checks.metric_arrays(y_true, y_score, sample_weight)
    confidence = valid_confidence(confidence, record)
    if not isinstance(source, str):
        raise TypeError(f"source must be a text, got {source!r}")
    columns = columns_of(data, None if groups is None else group_codes(groups, len(data.labels)))
    aims = one_per_label(record, None if data.labels.ndim == 1 else len(columns))
    points = tuple(_choose(rows, aim, confidence, source, surest) for rows, aim in zip(columns, aims, strict=True))
    return points[0] if data.labels.ndim == 1 else points


def warn_of_weak_claims(points: Sequence[OperatingPoint]) -> None:
    """Say that thresholds chosen without a confidence are more likely than not to break their constraint."""
    weak = [
        point for point in points if point.confidence is None and point.claimable is not None and point.claimable < WEAK
    ]
    if weak:
        least = min(weak, key=lambda point: point.claimable or 0.0)
        several = f" and {len(weak) - 1} more" if len(weak) > 1 else ""
        message = (
            f"the constraint of {least.aim!r}{several} can be claimed at its threshold with at most "
            f"{percent_down(least.claimable or 0.0)} confidence: pass confidence=0.5 or more for a threshold that is "
            "more likely to keep it than not"
        )
        warnings.warn(message, LowConfidenceWarning, stacklevel=checks.callers_level())


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


def _choose(rows: LabelRows, aim: Aim, confidence: float | None, source: str, surest: bool) -> OperatingPoint:
    if confidence is not None and rows.weights is not None:
        raise ValueError(NEEDS_EQUAL_WEIGHTS)
    curve = curve_of(rows)
    if isinstance(aim, PointAim):
        chosen, index, reason = _best_at_constraint(rows, curve, aim, confidence, surest)
    elif isinstance(aim, Cost):
        chosen, index, reason = _least_cost(rows, curve, aim)
    else:
        chosen, index, reason = _best_f_beta(rows, curve, aim.beta if isinstance(aim, FBeta) else 1.0)
    tp, fp = (0.0, 0.0) if index is None else (float(curve.tp[index]), float(curve.fp[index]))
    # Sums of weights are rounded, hence max: a difference of 0 may come out below it.
    counts = Confusion(tp, fp, max(0.0, curve.num_positives - tp), max(0.0, curve.num_negatives - fp))
    if rows.weights is None:
        counts = Confusion(*map(int, counts))
    level = INTERVAL_LEVEL if confidence is None else confidence
    threshold = None
    if reason is None:
        threshold = above_all(curve) if index is None else float(curve.thresholds[index])
    return OperatingPoint(
        aim=str(aim),
        threshold=threshold,
        chosen=chosen,
        **{name: counts.rate(name) for name in Intervals._fields},
        counts=counts,
        intervals=intervals_of(counts, level) if rows.weights is None and rows.groups is None else None,
        confidence=confidence,
        num_rows=rows.labels.size,
        num_positives=int(rows.labels.sum()),
        source=source,
        reason=reason,
        claimable=_claimable(rows, curve, aim, threshold, confidence),
        num_groups=None if rows.groups is None else int(np.unique(rows.groups).size),
    )


def _claimable(
    rows: LabelRows, curve: Curve, aim: Aim, threshold: float | None, confidence: float | None
) -> float | None:
    if threshold is None or rows.weights is not None or not isinstance(aim, PointAim):
        return None
    independent = rows.independent
    found = claimable(independent, curve if independent is rows else curve_of(independent), aim, threshold)
    return found if confidence is None or found is None else max(found, confidence)


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


def _least_cost(rows: LabelRows, curve: Curve, aim: Cost) -> _Choice:
    chosen = (
        f"least cost with {show_target(aim.fp)} for a false positive and {show_target(aim.fn)} for a false negative"
    )
    if curve.num_positives == 0:
        return _Choice(chosen, None, NO_POSITIVE)
    threshold = metrics.expected_cost(rows.labels, rows.scores, aim.fp, aim.fn, sample_weight=rows.weights).threshold
    if math.isinf(threshold):
        return _Choice(chosen, None, None)
    return _Choice(chosen, int(np.flatnonzero(curve.thresholds == threshold)[0]), None)


def above_all(curve: Curve) -> float:
    """A finite threshold well above all scores, for decisions that flag none of them."""
    highest = float(curve.thresholds[0])
    return highest + max(1.0, abs(highest))


def _best_at_constraint(
    rows: LabelRows, curve: Curve, aim: PointAim, confidence: float | None, surest: bool
) -> _Choice:
    tradeoff, target = aim.tradeoff, aim.target
    assert not isinstance(target, tuple)
    constraint = f"{aim.constrained} {aim.sense} {show_target(target)}"
    chosen = f"{'most' if aim.greater_is_better else 'least'} {aim.objective} with {constraint}"
    if curve.num_positives == 0:
        return _Choice(chosen, None, NO_POSITIVE)
    if "negative" in (tradeoff.objective.missing_class(curve), tradeoff.constrained.missing_class(curve)):
        return _Choice(chosen, None, NO_NEGATIVE)
    shortfall = (target - tradeoff.constrained.along(curve)) * (1 if tradeoff.at_least else -1)
    allowed = (shortfall <= ROUNDING * target) & (curve.tp > 0)
    reason = f"no threshold has {constraint}"
    if confidence is not None or surest:
        independent = rows.independent
        tested = curve if independent is rows else curve_of(independent)
        level = 1 - (WEAK if confidence is None else confidence)
        tails, qualified = certain(independent, tested, aim, level)
        own = np.full(curve.thresholds.shape, np.inf)
        own[np.isin(curve.thresholds, tested.thresholds)] = tails
    if surest and allowed.any():
        allowed &= own <= own[allowed].min()
    if confidence is not None:
        allowed &= np.isin(curve.thresholds, tested.thresholds[qualified])
        reason += f" with {percent(confidence)} confidence"
        if not allowed.any():
            reason += _advice(tested, aim, level)
            shortfall = own
    if allowed.any():
        reason = None
    else:
        allowed = shortfall <= shortfall.min()
    candidates = np.flatnonzero(allowed)
    value = tradeoff.objective.along(curve)[candidates] * (1 if aim.greater_is_better else -1)
    tied = candidates[value >= value.max() - ROUNDING * abs(value.max())]
    # Of equal objectives the one that keeps the constraint better; where it is certain anyway, the one that is better
    # in the objective on the population: more recall and tpr come with a lower threshold, less fpr with a higher one.
    lowest = tradeoff.lowest_is_safest if confidence is None else tradeoff.most
    return _Choice(chosen, int(tied[-1 if lowest else 0]), reason)


def _advice(curve: Curve, aim: PointAim, level: float) -> str:
    """How many rows would probably do."""
    rows = rows_needed(curve, aim, level)
    if rows is None:
        return " (more rows like these would probably not do)"
    return f" (about {rows:,} rows like these would probably do)"
