"""The exact metric of an aim for labels, several labels or classes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from aimfor._base.errors import UndefinedMetricError
from aimfor._base.warnings import UndefinedMetricWarning
from aimfor.aims._records import Aim
from aimfor.metrics import curves_kept


def measured(aim: Aim, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> float:
    """The exact metric, averaged over the labels `[n, L]` that have one. Its sign is such that higher is better.

    Raises:
        UndefinedMetricError: if no label has one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        values = np.asarray(aim.metric(labels, scores, sample_weight=weights))
    known = values[~np.isnan(values)]
    if known.size == 0:
        raise UndefinedMetricError(f"y_true must hold both classes of a label for {aim}, got none that does")
    return float(known.mean()) if aim.greater_is_better else -float(known.mean())


def judged(aim: Aim, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> float:
    """The same as `measured`, but the worst value where it is undefined."""
    try:
        return measured(aim, scores, labels, weights)
    except UndefinedMetricError:
        return 0.0 if aim.greater_is_better else -1.0


def judged_together(
    aims: Iterable[Aim], scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
) -> list[float]:
    """`judged` for several aims on the same rows, which are sorted once."""
    with curves_kept():
        return [judged(aim, scores, labels, weights) for aim in aims]


def one_hot(classes: np.ndarray, count: int) -> np.ndarray:
    """Class indices `[n]` or `[n, 1]` as 0/1 `[n, count]`."""
    return (classes.reshape(-1, 1) == np.arange(count)).astype(np.int64)


def exact_metric(aim: Aim, labels: np.ndarray, scores: np.ndarray, sample_weight: Any = None) -> float:
    """The exact metric of the aim, averaged over columns. It is negated if less is better."""
    columns = labels.shape[1] if labels.ndim == 2 else 1
    if columns == 1:
        value = float(aim.metric(labels.ravel(), scores.ravel(), sample_weight=sample_weight))
        return value if aim.greater_is_better else -value
    return measured(aim, scores, labels, sample_weight)
