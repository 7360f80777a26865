"""The rows of each label by themselves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aimfor._base import checks
from aimfor._base.arrays import Array


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
