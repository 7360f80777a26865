"""The curve that all exact metrics read: scores sorted once, with the counts at every threshold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aimfor._base.arrays import Array


class Curve(NamedTuple):
    """Weighted counts at every distinct score, where score >= threshold means "positive"."""

    thresholds: Array  # the distinct scores, from high to low
    tp: Array  # weight of the positives at or above each threshold
    fp: Array  # weight of the negatives at or above each threshold
    num_positives: float
    num_negatives: float

    @property
    def precision(self) -> Array:
        """Precision at each threshold. It always exists, because each threshold is the score of a row with weight."""
        return self.tp / (self.tp + self.fp)

    @property
    def recall(self) -> Array:
        """Recall (true-positive rate) at each threshold, for data with positives."""
        return self.tp / self.num_positives

    @property
    def fpr(self) -> Array:
        """False-positive rate at each threshold, for data with negatives."""
        return self.fp / self.num_negatives

    @property
    def best_precision(self) -> Array:
        """The highest precision with at least this recall: at this threshold or a lower one."""
        return np.maximum.accumulate(self.precision[::-1])[::-1]

    @property
    def gained_tp(self) -> Array:
        """Weight of the positives whose score is exactly each threshold."""
        return np.diff(self.tp, prepend=0.0)

    def at(self, threshold: float) -> tuple[float, float]:
        """Weight of the positives and of the negatives with score >= threshold, for any threshold."""
        reached = int(np.searchsorted(-self.thresholds, -threshold, side="right"))
        return (float(self.tp[reached - 1]), float(self.fp[reached - 1])) if reached else (0.0, 0.0)


def cumulate(labels: NDArray[np.bool_], scores: Array, weights: Array) -> Curve:
    """Sort the scores and cumulate the weights of both classes; equal scores enter together.

    Args:
        labels: shape [n], True for positives.
        scores: shape [n], finite.
        weights: shape [n], >= 0; a row of weight 0 does not count, and its score is no threshold.

    Returns:
        The curve, with one entry per distinct score. Where the largest weight is beyond 2^900 or below 2^-900, the
        counts are in units of 2^100 or 2^-100.

    Example:
        >>> curve = cumulate(np.array([True, False, True]), np.array([2.0, 1.0, 1.0]), np.ones(3))
        >>> curve.thresholds, curve.tp, curve.fp
        (array([2., 1.]), array([1., 2.]), array([0., 1.]))
    """
    weights = _within_reach(weights)
    present = np.flatnonzero(weights > 0)
    order = present[np.argsort(-scores[present], kind="stable")]
    labels, scores, weights = labels[order], scores[order], weights[order]
    last_of_tie = np.ones(scores.size, dtype=bool)
    last_of_tie[:-1] = scores[1:] != scores[:-1]
    tp = _running_sum(np.where(labels, weights, 0.0))[last_of_tie]
    fp = _running_sum(np.where(labels, 0.0, weights))[last_of_tie]
    # The totals are the last cumulated sums, not sums of their own, so that recall and fpr end at exactly 1.
    return Curve(scores[last_of_tie], tp, fp, float(tp[-1]) if tp.size else 0.0, float(fp[-1]) if fp.size else 0.0)


class _Sorted(NamedTuple):
    """A column and its curve."""

    column: tuple[NDArray[np.bool_], Array, Array]
    curve: Curve


# Columns that were sorted already, by their place; None where none is kept.
_KEPT: ContextVar[dict[int, _Sorted] | None] = ContextVar("sorted columns", default=None)


@contextmanager
def curves_kept() -> Iterator[None]:
    """Inside, metrics of one column of labels, scores and weights after another sort it once.

    Example:
        >>> import aimfor
        >>> labels, scores = [1, 0, 1, 0], [4, 3, 2, 1]
        >>> with curves_kept():
        ...     aimfor.metrics.roc_auc(labels, scores), aimfor.metrics.recall_at_precision(labels, scores, 0.9).value
        (0.75, 0.5)
    """
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def curve_of(labels: NDArray[np.bool_], scores: Array, weights: Array, place: int = 0) -> Curve:
    """`cumulate`, or the curve that was kept of the same column. To compare takes a fiftieth of the time to sort."""
    kept, column = _KEPT.get(), (labels, scores, weights)
    if kept is None:
        return cumulate(*column)
    last = kept.get(place)
    if last is None or not all(map(np.array_equal, last.column, column)):
        last = kept[place] = _Sorted(column, cumulate(*column))
    return last.curve


def _within_reach(weights: Array) -> Array:
    # Sums of the largest floats overflow, and products of the smallest lose their digits. All rates are ratios, so the
    # unit is free; a power of two rounds nothing but what is 1e-500 of the largest.
    largest = float(weights.max(initial=0.0))
    if largest > 2.0**900:
        return weights * 2.0**-100
    return weights * 2.0**100 if 0 < largest < 2.0**-900 else weights


def _running_sum(weights: Array) -> Array:
    # A plain cumsum drifts: a million weights of 0.1 are off by 1e-11 of their sum, and a target met exactly would be
    # missed. What each addition rounds away is known exactly (Knuth's two-sum) and is added back.
    after = np.cumsum(weights)
    before = np.append(0.0, after[:-1])
    added = after - before
    return after + np.cumsum((before - (after - added)) + (weights - added))
