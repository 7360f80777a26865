"""A budget of alerts from scores alone: the share of rows that a threshold flags needs no labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from aimfor._base import checks
from aimfor._base.arrays import ROUNDING, Values
from aimfor.operating_points._confidence import upper_tail


class AlertThreshold(NamedTuple):
    """The lowest threshold within a budget of alerts.

    Attributes:
        threshold: None where even the highest score is beyond the budget.
        alerts: share of the scores that it flags; 0 without a threshold.
        claimable: the highest confidence at which the budget can be claimed; None without a threshold.
        num_rows: number of scores.
    """

    threshold: float | None
    alerts: float
    claimable: float | None
    num_rows: int


def alert_threshold(y_score: Values, max_alerts: float, *, confidence: float | None = None) -> AlertThreshold:
    """Choose the lowest threshold that flags at most a share of the rows, from scores without labels.

    Of all thresholds within the budget the lowest has the most recall, whatever the labels are.

    Args:
        y_score: finite scores, shape [n], higher meaning more positive.
        max_alerts: share of rows that may be flagged, in (0, 1).
        confidence: in (0, 1); the budget then holds on the population with at least this probability, for scores drawn
            independently from it.

    Example:
        >>> alert_threshold([5, 4, 3, 2, 1], 0.4).threshold
        4.0
    """
    scores = checks.to_numpy("y_score", y_score)
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"y_score must have shape [n] with n > 0, got {scores.shape}")
    checks.all_entries("y_score", scores, np.isfinite(scores), "finite")
    share = checks.in_range("max_alerts", max_alerts, 0, 1, open_low=True, open_high=True)
    thresholds, counts = np.unique(scores, return_counts=True)
    flagged = np.cumsum(counts[::-1])[::-1]
    # The p-value of "more than the share is flagged": the rows not flagged are too many for chance.
    tails = upper_tail(scores.size - flagged, scores.size, 1 - share)
    kept = flagged <= share * scores.size * (1 + ROUNDING)
    if confidence is not None:
        kept &= tails <= 1 - checks.in_range("confidence", confidence, 0, 1, open_low=True, open_high=True)
    if not kept.any():
        return AlertThreshold(None, 0.0, None, scores.size)
    lowest = int(np.flatnonzero(kept)[0])
    return AlertThreshold(
        float(thresholds[lowest]), float(flagged[lowest] / scores.size), float(1 - tails[lowest]), scores.size
    )
