"""The rows of each label separately."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aimfor._base import checks
from aimfor._base.arrays import Array
from aimfor.metrics import Curve, cumulate
from aimfor.operating_points._groups import Codes, one_of_each


class LabelRows(NamedTuple):
    """The rows of one label that have a weight.

    Attributes:
        labels, scores: of the rows.
        weights: None if all are equal.
        groups: codes of groups of dependent rows; None if all rows are independent.
    """

    labels: NDArray[np.bool_]
    scores: Array
    weights: Array | None
    groups: Codes | None = None

    @property
    def independent(self) -> LabelRows:
        """Rows that do not depend on one another: all of them, or one of each group."""
        if self.groups is None:
            return self
        chosen = one_of_each(self.groups)
        weights = None if self.weights is None else self.weights[chosen]
        return LabelRows(self.labels[chosen], self.scores[chosen], weights)


def columns_of(data: checks.MetricArrays, groups: Codes | None = None) -> list[LabelRows]:
    """The rows of each label separately, without those of weight 0."""
    shape = (len(data.labels), -1)
    parts = (data.labels.reshape(shape).T, data.scores.reshape(shape).T, data.weights.reshape(shape).T)
    columns = []
    for labels, scores, weights in zip(*parts, strict=True):
        present = weights > 0
        equal = bool((weights[present] == weights[present][:1]).all())
        own = None if groups is None else groups[present]
        columns.append(LabelRows(labels[present], scores[present], None if equal else weights[present], own))
    return columns


def curve_of(rows: LabelRows) -> Curve:
    """The counts of the rows at every threshold."""
    return cumulate(rows.labels, rows.scores, np.ones(rows.labels.size) if rows.weights is None else rows.weights)
