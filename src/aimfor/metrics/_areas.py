"""Exact areas: averages of a rate over thresholds, exact between any two ends."""

from __future__ import annotations

import numpy as np

from aimfor._base import checks
from aimfor._base.arrays import Values
from aimfor.metrics._curve import Curve
from aimfor.metrics._measure import Measured, Target, measure, need_negatives, need_positives


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
        need_positives(curve, "average_precision")
        return float(np.average(curve.precision, weights=curve.gained_tp))

    return measure("average_precision", area, checks.metric_arrays(y_true, y_score, sample_weight))


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
        need_positives(curve, "roc_auc")
        need_negatives(curve, "roc_auc")
        return _mean_tpr(curve, 0.0, 1.0)

    return measure("roc_auc", area, checks.metric_arrays(y_true, y_score, sample_weight))


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
        need_positives(curve, "mean_recall_over_precision")
        # The positives gained at a threshold count for the targets up to the best precision found from there on.
        share_of_targets = (np.clip(curve.best_precision, low, high) - low) / (high - low)
        return float(np.average(share_of_targets, weights=curve.gained_tp))

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    return measure("mean_recall_over_precision", area, data, *checks.range_per_column(low, high, data.labels.shape))


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
        The mean precision; it does not exist without positives. Over [0, 1] it is at least the average precision,
        because a lower threshold may have a higher precision.

    Example:
        >>> mean_precision_over_recall([1, 0, 1, 0], [4, 3, 2, 1], 0.0, 0.5)
        1.0
    """

    def area(curve: Curve, low: float, high: float) -> float:
        need_positives(curve, "mean_precision_over_recall")
        targets = np.diff(np.clip(curve.recall, low, high), prepend=low)
        return float(np.average(curve.best_precision, weights=targets))

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    return measure("mean_precision_over_recall", area, data, *checks.range_per_column(low, high, data.labels.shape))


def mean_tpr_over_fpr(
    y_true: Values, y_score: Values, low: Target, high: Target, *, sample_weight: Values | None = None
) -> Measured:
    """The mean height of the ROC curve between two false-positive rates: the exact area over its width.

    The curve joins its points by straight lines, as `roc_auc` does. If no positive and negative share a score, this is
    the mean of `tpr_at_fpr`.

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
        need_positives(curve, "mean_tpr_over_fpr")
        need_negatives(curve, "mean_tpr_over_fpr")
        return _mean_tpr(curve, low, high)

    data = checks.metric_arrays(y_true, y_score, sample_weight)
    return measure("mean_tpr_over_fpr", area, data, *checks.range_per_column(low, high, data.labels.shape))


def _mean_tpr(curve: Curve, low: float, high: float) -> float:
    x, y = np.append(0.0, curve.fpr), np.append(0.0, curve.recall)
    left, right = np.clip(x[:-1], low, high), np.clip(x[1:], low, high)
    # Only pieces with a width inside the range count. The others add nothing, and vertical ones have no slope.
    piece = np.flatnonzero(right > left)
    x0, y0, x1, y1, left, right = x[piece], y[piece], x[piece + 1], y[piece + 1], left[piece], right[piece]
    # The mean of a line over an interval is its height in the middle.
    height = y0 + (y1 - y0) * (((left + right) / 2 - x0) / (x1 - x0))
    return float(np.average(height, weights=right - left))
