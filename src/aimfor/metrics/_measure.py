"""Apply an exact metric to each column, and check that the column has the classes it needs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from aimfor._base import checks
from aimfor._base.arrays import ROUNDING
from aimfor._base.errors import UndefinedMetricError
from aimfor._base.warnings import UndefinedMetricWarning
from aimfor.metrics._curve import Curve, curve_of

Target = float | Sequence[float] | NDArray[np.floating] | torch.Tensor
# A float for shape [n], an array for shape [n, num_labels]; only the caller knows which, so a union would not help.
Measured = Any


class AtThreshold(NamedTuple):
    """The value of a metric and its threshold, as numbers or as arrays with one entry per column."""

    value: Measured
    threshold: Measured


def highest_of(objective: np.ndarray, allowed: np.ndarray, curve: Curve, *, among_ties: str) -> AtThreshold:
    candidates = np.flatnonzero(allowed)
    if candidates.size == 0:
        return AtThreshold(0.0, math.inf)
    best = objective[candidates].max()
    tied = candidates[objective[candidates] >= best - ROUNDING * abs(best)]
    chosen = tied[0] if among_ties == "highest threshold" else tied[-1]
    return AtThreshold(float(objective[chosen]), float(curve.thresholds[chosen]))


def need_positives(curve: Curve, metric: str) -> None:
    if curve.num_positives == 0:
        raise UndefinedMetricError(f"y_true must hold a positive (of weight > 0) for {metric}, got none")


def need_negatives(curve: Curve, metric: str) -> None:
    if curve.num_negatives == 0:
        raise UndefinedMetricError(f"y_true must hold a negative (of weight > 0) for {metric}, got none")


def measure(name: str, metric: Callable[..., float], data: checks.MetricArrays, *targets: Sequence[float]) -> Measured:
    if data.labels.ndim == 1:
        return metric(curve_of(*data), *(target[0] for target in targets))
    return np.array(_each_column(name, metric, math.nan, data, targets))


def measure_at_threshold(
    name: str, metric: Callable[..., AtThreshold], data: checks.MetricArrays, *targets: Sequence[float]
) -> AtThreshold:
    if data.labels.ndim == 1:
        return metric(curve_of(*data), *(target[0] for target in targets))
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
            curve = curve_of(data.labels[:, column], data.scores[:, column], data.weights[:, column], column)
            results.append(metric(curve, *(target[column] for target in targets)))
        except UndefinedMetricError:
            results.append(undefined)
            missing.append(column)
    if missing:
        message = f"{name} does not exist in column {', '.join(map(str, missing))} of y_true and is nan there"
        warnings.warn(message, UndefinedMetricWarning, stacklevel=checks.callers_level())
    return results
