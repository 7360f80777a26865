"""Exact values at a threshold: a rate at a given one, or the best threshold for an aim.

Each metric takes `(y_true, y_score, ..., *, sample_weight=None)`: lists, numpy arrays or torch tensors of shape [n], or
[n, num_labels], which are measured column by column. Targets are a number, or one per column.

- A row is predicted positive where its score >= threshold. Every distinct score is a candidate threshold, equal scores
  count together, and scores are taken as they are, never passed through a sigmoid.
- Weights are per row or per entry. Only their ratios matter, and a row of weight 0 does not count.
- A metric may not exist for the data, as recall without positives. Then it raises an `UndefinedMetricError`, which is a
  ValueError. With several columns it is nan in that column, and an `UndefinedMetricWarning` names the columns.
"""

from __future__ import annotations

import math

import numpy as np

from aimfor._base import checks
from aimfor._base.arrays import ROUNDING, Values
from aimfor._base.errors import UndefinedMetricError
from aimfor.metrics import _share as share
from aimfor.metrics._curve import Curve
from aimfor.metrics._measure import (
    AtThreshold,
    Measured,
    Target,
    highest_of,
    measure,
    measure_at_threshold,
    need_negatives,
    need_positives,
)


def precision(y_true: Values, y_score: Values, threshold: Target, *, sample_weight: Values | None = None) -> Measured:
    """Precision at a threshold: the share of positives among the rows with score >= threshold.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        threshold: a number, or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The precision; it does not exist where no row reaches the threshold.

    Example:
        >>> precision([1, 0, 1, 0], [4, 3, 2, 1], 3)
        0.5
    """

    def at(curve: Curve, threshold: float) -> float:
        tp, fp = curve.at(threshold)
        if tp + fp == 0:
            raise UndefinedMetricError(f"y_score must reach the threshold for precision, got no row >= {threshold}")
        return tp / (tp + fp)

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    thresholds = checks.per_column("threshold", threshold, data.labels.shape, -math.inf, math.inf)
    return measure("precision", at, data, thresholds)


def recall(y_true: Values, y_score: Values, threshold: Target, *, sample_weight: Values | None = None) -> Measured:
    """Recall at a threshold: the share of the positives with score >= threshold.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        threshold: a number, or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The recall; it does not exist without positives.

    Example:
        >>> recall([[1, 0], [0, 1], [1, 1]], [[3, 3], [2, 2], [1, 1]], (2, 1))
        array([0.5, 1. ])
    """

    def at(curve: Curve, threshold: float) -> float:
        need_positives(curve, "recall")
        return curve.at(threshold)[0] / curve.num_positives

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    thresholds = checks.per_column("threshold", threshold, data.labels.shape, -math.inf, math.inf)
    return measure("recall", at, data, thresholds)


def fpr(y_true: Values, y_score: Values, threshold: Target, *, sample_weight: Values | None = None) -> Measured:
    """False-positive rate at a threshold: the share of the negatives with score >= threshold.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        threshold: a number, or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The false-positive rate; it does not exist without negatives.

    Example:
        >>> fpr([1, 0, 1, 0], [4, 3, 2, 1], 2)
        0.5
    """

    def at(curve: Curve, threshold: float) -> float:
        need_negatives(curve, "fpr")
        return curve.at(threshold)[1] / curve.num_negatives

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    thresholds = checks.per_column("threshold", threshold, data.labels.shape, -math.inf, math.inf)
    return measure("fpr", at, data, thresholds)


def recall_at_precision(
    y_true: Values, y_score: Values, min_precision: Target, *, sample_weight: Values | None = None
) -> AtThreshold:
    """The highest recall of any threshold whose precision is at least `min_precision`.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        min_precision: in (0, 1], a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The recall and its threshold; of several, the highest, which has the best precision. If no threshold has the
        precision, recall is 0 and the threshold inf, which predicts nothing positive. Without positives it does not
        exist.

    Example:
        >>> recall_at_precision([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.75)
        AtThreshold(value=1.0, threshold=2.0)
        >>> recall_at_precision([0, 1], [2, 1], 0.75)
        AtThreshold(value=0.0, threshold=inf)
    """
    return at_constraint(share.RECALL_AT_PRECISION, y_true, y_score, min_precision, sample_weight=sample_weight)


def precision_at_recall(
    y_true: Values, y_score: Values, min_recall: Target, *, sample_weight: Values | None = None
) -> AtThreshold:
    """The highest precision of any threshold whose recall is at least `min_recall`.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        min_recall: in (0, 1], a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The precision and its threshold; of several, the lowest, which has the best recall. Without
        positives it does not exist.

    Example:
        >>> precision_at_recall([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.9)
        AtThreshold(value=0.75, threshold=2.0)
    """
    return at_constraint(share.PRECISION_AT_RECALL, y_true, y_score, min_recall, sample_weight=sample_weight)


def tpr_at_fpr(y_true: Values, y_score: Values, max_fpr: Target, *, sample_weight: Values | None = None) -> AtThreshold:
    """The highest true-positive rate of any threshold whose false-positive rate is at most `max_fpr`.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        max_fpr: in [0, 1], a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The true-positive rate and its threshold; of several, the highest, which has the best false-positive rate. If
        no allowed threshold finds a positive, it is 0 at threshold inf. Without both classes it does not exist.

    Example:
        >>> tpr_at_fpr([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.5)
        AtThreshold(value=1.0, threshold=2.0)
    """
    return at_constraint(share.TPR_AT_FPR, y_true, y_score, max_fpr, sample_weight=sample_weight)


def fpr_at_tpr(y_true: Values, y_score: Values, min_tpr: Target, *, sample_weight: Values | None = None) -> AtThreshold:
    """The lowest false-positive rate of any threshold whose true-positive rate is at least `min_tpr`.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        min_tpr: in (0, 1], a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The false-positive rate and its threshold; of several, the lowest, which has the best true-positive rate.
        Without both classes it does not exist.

    Example:
        >>> fpr_at_tpr([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.6)
        AtThreshold(value=0.0, threshold=4.0)
    """
    return at_constraint(share.FPR_AT_TPR, y_true, y_score, min_tpr, sample_weight=sample_weight)


def recall_at_alerts(
    y_true: Values, y_score: Values, max_alerts: Target, *, sample_weight: Values | None = None
) -> AtThreshold:
    """The highest recall of any threshold that flags at most the share `max_alerts` of all rows.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        max_alerts: in [0, 1], a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The recall and its threshold; of several, the highest, which flags fewest rows. Where no allowed threshold
        catches a positive: 0 at threshold inf. Does not exist without positives.

    Example:
        >>> recall_at_alerts([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.4)
        AtThreshold(value=0.6666666666666666, threshold=4.0)
    """
    return at_constraint(share.RECALL_AT_ALERTS, y_true, y_score, max_alerts, sample_weight=sample_weight)


def precision_at_alerts(
    y_true: Values, y_score: Values, min_alerts: Target, *, sample_weight: Values | None = None
) -> AtThreshold:
    """The highest precision of any threshold that flags at least the share `min_alerts` of all rows.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        min_alerts: in (0, 1], a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The precision and its threshold; of several, the lowest, which flags most rows. Does not exist without
        positives.

    Example:
        >>> precision_at_alerts([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.6)
        AtThreshold(value=0.75, threshold=2.0)
    """
    return at_constraint(share.PRECISION_AT_ALERTS, y_true, y_score, min_alerts, sample_weight=sample_weight)


def expected_cost(
    y_true: Values, y_score: Values, fp: Target = 1.0, fn: Target = 1.0, *, sample_weight: Values | None = None
) -> AtThreshold:
    """The lowest cost per row of any threshold, where every error has its price.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        fp: cost of a false positive, above 0; a number or one per column.
        fn: cost of a false negative, above 0; a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The cost and its threshold; of several, the highest. The threshold is inf where it costs least to flag nothing.

    Example:
        >>> expected_cost([1, 0, 1, 0], [4, 3, 2, 1], fp=1, fn=20)
        AtThreshold(value=0.25, threshold=2.0)
    """

    def lowest(curve: Curve, fp: float, fn: float) -> AtThreshold:
        rows = curve.num_positives + curve.num_negatives
        if rows == 0:
            raise UndefinedMetricError("sample_weight must be above 0 in some row for expected_cost, got none")
        costs = fp * (curve.fp / rows) + fn * ((curve.num_positives - curve.tp) / rows)
        nothing = fn * (curve.num_positives / rows)
        least = costs.min()
        if nothing <= least * (1 + ROUNDING):
            return AtThreshold(nothing, math.inf)
        chosen = int(np.flatnonzero(costs <= least * (1 + ROUNDING))[0])
        return AtThreshold(float(costs[chosen]), float(curve.thresholds[chosen]))

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    costs = (
        checks.per_column(name, cost, data.labels.shape, 0, math.inf, open_low=True, open_high=True)
        for name, cost in (("fp", fp), ("fn", fn))
    )
    return measure_at_threshold("expected_cost", lowest, data, *costs)


def f_beta(y_true: Values, y_score: Values, beta: Target = 1.0, *, sample_weight: Values | None = None) -> AtThreshold:
    """The highest F_beta of any threshold: the harmonic mean of precision and recall, recall counting beta^2 times.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        beta: above 0, a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        F_beta and its threshold; of several, the highest. Without positives it does not exist.

    Example:
        >>> f_beta([1, 0, 1, 0], [4, 3, 2, 1])
        AtThreshold(value=0.8, threshold=2.0)
    """

    def best(curve: Curve, beta: float) -> AtThreshold:
        need_positives(curve, "f_beta")
        # (1 + beta^2) tp / (tp + fp + beta^2 |Y+|), divided through by 1 + beta^2, so that nothing overflows and a huge
        # beta gives recall. The denominator is written as |Y+| plus a part, so that a perfect F is exactly 1.
        share = 1 / (1 + beta * beta)
        value = curve.tp / (curve.num_positives + share * (curve.tp + curve.fp - curve.num_positives))
        return highest_of(value, curve.tp > 0, curve, among_ties="highest threshold")

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    betas = checks.per_column("beta", beta, data.labels.shape, 0, math.inf, open_low=True, open_high=True)
    return measure_at_threshold("f_beta", best, data, betas)


def at_constraint(
    tradeoff: share.Tradeoff, y_true: Values, y_score: Values, target: Target, *, sample_weight: Values | None = None
) -> AtThreshold:
    """The best value of one rate at any threshold where another keeps to its target.

    Args:
        tradeoff: the two rates, and what is asked of them.
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        target: in (0, 1] for "at least", in [0, 1] for "at most"; a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The value and its threshold; of several, the one that keeps the constraint best. If no threshold keeps it and
        finds a positive, it is 0 at threshold inf.
    """

    def best(curve: Curve, target: float) -> AtThreshold:
        tradeoff.need_classes(curve)
        rate, objective = tradeoff.constrained.along(curve), tradeoff.objective.along(curve)
        kept = rate >= target * (1 - ROUNDING) if tradeoff.at_least else rate <= target * (1 + ROUNDING)
        ties = "lowest threshold" if tradeoff.lowest_is_safest else "highest threshold"
        found = highest_of(objective if tradeoff.most else -objective, kept & (curve.tp > 0), curve, among_ties=ties)
        return found if tradeoff.most else found._replace(value=abs(found.value))

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    name = tradeoff.target_name
    targets = checks.per_column(name, target, data.labels.shape, 0, 1, open_low=tradeoff.at_least)
    return measure_at_threshold(tradeoff.name, best, data, targets)
