"""Measuring, second half: the exact value of every aim, and the threshold that reaches it.

Each metric takes `(y_true, y_score, ..., *, sample_weight=None)`: lists, numpy arrays or torch tensors of shape [n], or
[n, num_labels], which is measured column by column. Targets are a number, or one per column.

- A row is predicted positive where its score >= threshold. Every distinct score is a candidate threshold, equal scores
  count together, and scores are taken as they are, never passed through a sigmoid.
- Weights are per row or per entry; only their ratios matter, and a row of weight 0 is as good as absent.
- A metric that does not exist for the data, such as recall without positives, is an `UndefinedMetricError`, a
  ValueError; among several columns it is nan in that column, with one `UndefinedMetricWarning` that names the columns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from aimfor._base import checks
from aimfor._base.arrays import ROUNDING, Values
from aimfor._base.errors import UndefinedMetricError
from aimfor._base.warnings import UndefinedMetricWarning
from aimfor.metrics._curve import Curve, cumulate

__all__ = [
    "AtThreshold",
    "UndefinedMetricError",
    "UndefinedMetricWarning",
    "average_precision",
    "f_beta",
    "fpr",
    "fpr_at_tpr",
    "mean_precision_over_recall",
    "mean_recall_over_precision",
    "mean_tpr_over_fpr",
    "precision",
    "precision_at_recall",
    "recall",
    "recall_at_precision",
    "roc_auc",
    "tpr_at_fpr",
]

Target = float | Sequence[float] | NDArray[np.floating] | torch.Tensor
# A float for shape [n], an array for shape [n, num_labels]; only the caller knows which, so a union would not help.
Measured = Any


class AtThreshold(NamedTuple):
    """The value of a metric and the threshold where it is found: numbers, or arrays with one entry per column."""

    value: Measured
    threshold: Measured


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
    return _measure("precision", at, data, thresholds)


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
        _need_positives(curve, "recall")
        return curve.at(threshold)[0] / curve.num_positives

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    thresholds = checks.per_column("threshold", threshold, data.labels.shape, -math.inf, math.inf)
    return _measure("recall", at, data, thresholds)


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
        _need_negatives(curve, "fpr")
        return curve.at(threshold)[1] / curve.num_negatives

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    thresholds = checks.per_column("threshold", threshold, data.labels.shape, -math.inf, math.inf)
    return _measure("fpr", at, data, thresholds)


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
        The recall and its threshold; of several, the highest, which has the best precision. Where no threshold has the
        precision: recall 0 at threshold inf, nothing being predicted positive. Does not exist without positives.

    Example:
        >>> recall_at_precision([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.75)
        AtThreshold(value=1.0, threshold=2.0)
        >>> recall_at_precision([0, 1], [2, 1], 0.75)
        AtThreshold(value=0.0, threshold=inf)
    """

    def best(curve: Curve, target: float) -> AtThreshold:
        _need_positives(curve, "recall_at_precision")
        allowed = _at_least(curve.precision, target)
        return _highest(curve.recall, allowed, curve, among_ties="highest threshold")

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    targets = checks.per_column("min_precision", min_precision, data.labels.shape, 0, 1, open_low=True)
    return _measure_at_threshold("recall_at_precision", best, data, targets)


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
        The precision and its threshold; of several, the lowest, which has the best recall. Does not exist without
        positives.

    Example:
        >>> precision_at_recall([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.9)
        AtThreshold(value=0.75, threshold=2.0)
    """

    def best(curve: Curve, target: float) -> AtThreshold:
        _need_positives(curve, "precision_at_recall")
        allowed = _at_least(curve.recall, target)
        return _highest(curve.precision, allowed, curve, among_ties="lowest threshold")

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    targets = checks.per_column("min_recall", min_recall, data.labels.shape, 0, 1, open_low=True)
    return _measure_at_threshold("precision_at_recall", best, data, targets)


def tpr_at_fpr(y_true: Values, y_score: Values, max_fpr: Target, *, sample_weight: Values | None = None) -> AtThreshold:
    """The highest true-positive rate of any threshold whose false-positive rate is at most `max_fpr`.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        max_fpr: in [0, 1], a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The true-positive rate and its threshold; of several, the highest, which has the best false-positive rate. Where
        no allowed threshold catches a positive: 0 at threshold inf. Does not exist without both classes.

    Example:
        >>> tpr_at_fpr([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.5)
        AtThreshold(value=1.0, threshold=2.0)
    """

    def best(curve: Curve, target: float) -> AtThreshold:
        _need_positives(curve, "tpr_at_fpr")
        _need_negatives(curve, "tpr_at_fpr")
        allowed = (curve.fpr <= target * (1 + ROUNDING)) & (curve.tp > 0)
        return _highest(curve.recall, allowed, curve, among_ties="highest threshold")

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    targets = checks.per_column("max_fpr", max_fpr, data.labels.shape, 0, 1)
    return _measure_at_threshold("tpr_at_fpr", best, data, targets)


def fpr_at_tpr(y_true: Values, y_score: Values, min_tpr: Target, *, sample_weight: Values | None = None) -> AtThreshold:
    """The lowest false-positive rate of any threshold whose true-positive rate is at least `min_tpr`.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        min_tpr: in (0, 1], a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The false-positive rate and its threshold; of several, the lowest, which has the best true-positive rate. Does
        not exist without both classes.

    Example:
        >>> fpr_at_tpr([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], 0.6)
        AtThreshold(value=0.0, threshold=4.0)
    """

    def best(curve: Curve, target: float) -> AtThreshold:
        _need_positives(curve, "fpr_at_tpr")
        _need_negatives(curve, "fpr_at_tpr")
        allowed = _at_least(curve.recall, target)
        value, threshold = _highest(-curve.fpr, allowed, curve, among_ties="lowest threshold")
        return AtThreshold(abs(value), threshold)

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    targets = checks.per_column("min_tpr", min_tpr, data.labels.shape, 0, 1, open_low=True)
    return _measure_at_threshold("fpr_at_tpr", best, data, targets)


def f_beta(y_true: Values, y_score: Values, beta: Target = 1.0, *, sample_weight: Values | None = None) -> AtThreshold:
    """The highest F_beta of any threshold: the harmonic mean of precision and recall, recall counting beta^2 times.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        beta: above 0, a number or one per column.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        F_beta and its threshold; of several, the highest. Does not exist without positives.

    Example:
        >>> f_beta([1, 0, 1, 0], [4, 3, 2, 1])
        AtThreshold(value=0.8, threshold=2.0)
    """

    def best(curve: Curve, beta: float) -> AtThreshold:
        _need_positives(curve, "f_beta")
        # (1 + beta^2) tp / (tp + fp + beta^2 |Y+|), divided through by 1 + beta^2, so that nothing overflows and a huge
        # beta gives recall. The denominator is written as |Y+| plus a part, so that a perfect F is exactly 1.
        share = 1 / (1 + beta * beta)
        value = curve.tp / (curve.num_positives + share * (curve.tp + curve.fp - curve.num_positives))
        return _highest(value, curve.tp > 0, curve, among_ties="highest threshold")

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    betas = checks.per_column("beta", beta, data.labels.shape, 0, math.inf, open_low=True, open_high=True)
    return _measure_at_threshold("f_beta", best, data, betas)


def average_precision(y_true: Values, y_score: Values, *, sample_weight: Values | None = None) -> Measured:
    """Average precision: the precision at each threshold, averaged over the positives gained there.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The average precision, as scikit-learn defines it; it does not exist without positives.

    Example:
        >>> average_precision([1, 1, 0, 1], [4, 3, 2, 1])
        0.9166666666666666
    """

    def area(curve: Curve) -> float:
        _need_positives(curve, "average_precision")
        return float(np.average(curve.precision, weights=curve.gained_tp))

    return _measure("average_precision", area, checks.metric_arrays(y_true, y_score, sample_weight))


def roc_auc(y_true: Values, y_score: Values, *, sample_weight: Values | None = None) -> Measured:
    """Area under the ROC curve: how often a positive scores above a negative, a tie counting half.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The area; it does not exist without both classes.

    Example:
        >>> roc_auc([1, 0, 1, 0], [4, 3, 2, 1])
        0.75
    """

    def area(curve: Curve) -> float:
        _need_positives(curve, "roc_auc")
        _need_negatives(curve, "roc_auc")
        return _mean_tpr(curve, 0.0, 1.0)

    return _measure("roc_auc", area, checks.metric_arrays(y_true, y_score, sample_weight))


def mean_recall_over_precision(
    y_true: Values, y_score: Values, low: Target, high: Target, *, sample_weight: Values | None = None
) -> Measured:
    """The mean of `recall_at_precision` over all targets between `low` and `high`: the exact area over its width.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        low: least precision, in [0, 1], a number or one per column.
        high: greatest precision, in [0, 1] and above `low`.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The mean recall; it does not exist without positives.

    Example:
        >>> mean_recall_over_precision([1, 0, 1, 0], [4, 3, 2, 1], 0.5, 1.0)  # 1 up to precision 2/3, then 0.5
        0.6666666666666666
    """

    def area(curve: Curve, low: float, high: float) -> float:
        _need_positives(curve, "mean_recall_over_precision")
        # The positives gained at a threshold count for the targets up to the best precision found from there on.
        share_of_targets = (np.clip(curve.best_precision, low, high) - low) / (high - low)
        return float(np.average(share_of_targets, weights=curve.gained_tp))

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    return _measure("mean_recall_over_precision", area, data, *checks.range_per_column(low, high, data.labels.shape))


def mean_precision_over_recall(
    y_true: Values, y_score: Values, low: Target, high: Target, *, sample_weight: Values | None = None
) -> Measured:
    """The mean of `precision_at_recall` over all targets between `low` and `high`: the exact area over its width.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        low: least recall, in [0, 1], a number or one per column.
        high: greatest recall, in [0, 1] and above `low`.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The mean precision; it does not exist without positives. Over [0, 1] it is at least the average precision, as a
        target may be met by a lower threshold of higher precision.

    Example:
        >>> mean_precision_over_recall([1, 0, 1, 0], [4, 3, 2, 1], 0.0, 0.5)
        1.0
    """

    def area(curve: Curve, low: float, high: float) -> float:
        _need_positives(curve, "mean_precision_over_recall")
        targets = np.diff(np.clip(curve.recall, low, high), prepend=low)
        return float(np.average(curve.best_precision, weights=targets))

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    return _measure("mean_precision_over_recall", area, data, *checks.range_per_column(low, high, data.labels.shape))


def mean_tpr_over_fpr(
    y_true: Values, y_score: Values, low: Target, high: Target, *, sample_weight: Values | None = None
) -> Measured:
    """The mean height of the ROC curve between two false-positive rates: the exact area over its width.

    The curve joins its points by straight lines, as `roc_auc` does; that is the mean of `tpr_at_fpr` where no positive
    and negative share a score.

    Args:
        y_true: labels 0 or 1.
        y_score: scores, higher meaning more positive.
        low: least false-positive rate, in [0, 1], a number or one per column.
        high: greatest false-positive rate, in [0, 1] and above `low`.
        sample_weight: weights >= 0, one per row or per entry.

    Returns:
        The mean true-positive rate; it does not exist without both classes.

    Example:
        >>> mean_tpr_over_fpr([1, 0, 1, 0], [4, 3, 2, 1], 0.0, 0.5)
        0.5
    """

    def area(curve: Curve, low: float, high: float) -> float:
        _need_positives(curve, "mean_tpr_over_fpr")
        _need_negatives(curve, "mean_tpr_over_fpr")
        return _mean_tpr(curve, low, high)

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    return _measure("mean_tpr_over_fpr", area, data, *checks.range_per_column(low, high, data.labels.shape))


def _mean_tpr(curve: Curve, low: float, high: float) -> float:
    x, y = np.append(0.0, curve.fpr), np.append(0.0, curve.recall)
    left, right = np.clip(x[:-1], low, high), np.clip(x[1:], low, high)
    # Only pieces with a width inside the range: the others add nothing, and vertical ones have no slope.
    piece = np.flatnonzero(right > left)
    x0, y0, x1, y1, left, right = x[piece], y[piece], x[piece + 1], y[piece + 1], left[piece], right[piece]
    # The mean of a line over an interval is its height in the middle.
    height = y0 + (y1 - y0) * (((left + right) / 2 - x0) / (x1 - x0))
    return float(np.average(height, weights=right - left))


def _at_least(rate: np.ndarray, target: float) -> np.ndarray:
    return rate >= target * (1 - ROUNDING)


def _highest(objective: np.ndarray, allowed: np.ndarray, curve: Curve, *, among_ties: str) -> AtThreshold:
    candidates = np.flatnonzero(allowed)
    if candidates.size == 0:
        return AtThreshold(0.0, math.inf)
    best = objective[candidates].max()
    tied = candidates[objective[candidates] >= best - ROUNDING * abs(best)]
    chosen = tied[0] if among_ties == "highest threshold" else tied[-1]
    return AtThreshold(float(objective[chosen]), float(curve.thresholds[chosen]))


def _need_positives(curve: Curve, metric: str) -> None:
    if curve.num_positives == 0:
        raise UndefinedMetricError(f"y_true must hold a positive (of weight > 0) for {metric}, got none")


def _need_negatives(curve: Curve, metric: str) -> None:
    if curve.num_negatives == 0:
        raise UndefinedMetricError(f"y_true must hold a negative (of weight > 0) for {metric}, got none")


def _measure(name: str, metric: Callable[..., float], data: checks.MetricArrays, *targets: Sequence[float]) -> Measured:
    if data.labels.ndim == 1:
        return metric(cumulate(*data), *(target[0] for target in targets))
    return np.array(_each_column(name, metric, math.nan, data, targets))


def _measure_at_threshold(
    name: str, metric: Callable[..., AtThreshold], data: checks.MetricArrays, *targets: Sequence[float]
) -> AtThreshold:
    if data.labels.ndim == 1:
        return metric(cumulate(*data), *(target[0] for target in targets))
    columns = _each_column(name, metric, AtThreshold(math.nan, math.nan), data, targets)
    return AtThreshold(*np.array(columns).T)


Result = TypeVar("Result", float, AtThreshold)


def _each_column(
    name: str,
    metric: Callable[..., Result],
    undefined: Result,
    data: checks.MetricArrays,
    targets: Sequence[Sequence[float]],
) -> list[Result]:
    results, missing = [], []
    for column in range(data.labels.shape[1]):
        try:
            curve = cumulate(data.labels[:, column], data.scores[:, column], data.weights[:, column])
            results.append(metric(curve, *(target[column] for target in targets)))
        except UndefinedMetricError:
            results.append(undefined)
            missing.append(column)
    if missing:
        message = f"{name} does not exist in column {', '.join(map(str, missing))} of y_true and is nan there"
        warnings.warn(message, UndefinedMetricWarning, stacklevel=checks.callers_level())
    return results
