"""Serve, decisions: from scores of rows to a threshold and a curve for each label, and from those to predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from aimfor._base import checks
from aimfor.aims import Aim
from aimfor.estimator._calibration import CalibrationCurve, calibration
from aimfor.operating_points import OperatingPoint, one_per_label, operating_point

# The reason of a label that no row ever had: such a label is never predicted, where others without a threshold refuse.
# It stands in the operating point because that is what a model's file keeps.
NEVER_POSITIVE = "the label was never positive"
# So much of the largest score is what single precision may lose on the way through a network.
ROUNDING = 1e-5


class Scored(NamedTuple):
    """Rows that choose thresholds.

    Attributes:
        labels: `[n, L]` of 0/1.
        scores: `[n, L]`.
        weights: `[n]`, or None for 1.
        source: what they are called.
    """

    labels: np.ndarray
    scores: np.ndarray
    weights: np.ndarray | None
    source: str


def points_of(aim: Aim, rows: Sequence[Scored], confidence: float | None) -> tuple[OperatingPoint, ...]:
    """The operating point of each label.

    Args:
        aim: for all labels.
        rows: those that choose, for each label.
        confidence: see `operating_point`.
    """
    return tuple(
        operating_point(
            one.labels[:, label],
            one.scores[:, label],
            own,
            confidence=confidence,
            sample_weight=one.weights,
            source=one.source,
        )
        for label, (one, own) in enumerate(zip(rows, one_per_label(aim, len(rows)), strict=True))
    )


def with_room(point: OperatingPoint, scores: np.ndarray) -> OperatingPoint:
    """The same decisions on these scores, with a threshold a little below the score that it is: that of a row scored by
    itself differs in the last digits from that of the row among others, and it must not fall below.

    Args:
        point: chosen among the scores.
        scores: `[n]`, in single precision.
    """
    if point.threshold is None:
        return point
    next_lower = scores[scores < point.threshold].max(initial=-np.inf)
    room = ROUNDING * np.abs(scores).max()
    return replace(point, threshold=float(max(point.threshold - room, (point.threshold + next_lower) / 2)))


def marked(
    points: Sequence[OperatingPoint], labels: np.ndarray, earlier: Sequence[OperatingPoint]
) -> tuple[OperatingPoint, ...]:
    """The points of several labels, those of labels that no row ever had marked as such.

    Args:
        points: one per label.
        labels: `[n, L]` of all rows.
        earlier: the points so far where training went on, else empty.
    """
    never = [
        not labels[:, label].any() and (not earlier or never_positive(earlier[label])) for label in range(len(points))
    ]
    return tuple(replace(one, reason=NEVER_POSITIVE) if none else one for one, none in zip(points, never, strict=True))


def staying(rows: Sequence[Scored], earlier: Sequence[OperatingPoint]) -> list[bool]:
    """For each label, whether its earlier threshold stays: there is one, and these rows lack a class of the label."""
    return [
        bool(earlier) and earlier[label].threshold is not None and len(np.unique(one.labels[:, label])) < 2
        for label, one in enumerate(rows)
    ]


def kept(stays: Sequence[bool], earlier: Sequence[Any], found: Sequence[Any]) -> tuple[Any, ...]:
    """What was found for each label, or what it had earlier where that stays."""
    return tuple(earlier[label] if stays[label] else one for label, one in enumerate(found))


def curves_of(kind: bool | str, rows: Sequence[Scored]) -> list[CalibrationCurve]:
    """The calibration of each label, on the rows that chose its threshold."""
    return [
        calibration(kind, one.scores[:, label], one.labels[:, label], one.weights) for label, one in enumerate(rows)
    ]


def never_positive(point: OperatingPoint) -> bool:
    """Whether no row ever had this label."""
    return point.reason == NEVER_POSITIVE


def decided(points: Sequence[OperatingPoint], scores: np.ndarray) -> np.ndarray:
    """Scores `[n, L]` of several labels -> 0/1; refused for a label without a threshold that was positive once."""
    found = np.zeros(scores.shape, dtype=np.int64)
    for label, point in enumerate(points):
        if not never_positive(point):
            got = f"none for label {label} of {point.aim!r}: {point.reason}"
            checks.rule(point.threshold is not None, "predict", "needs a threshold", got)
            found[:, label] = point.predict(scores[:, label])
    return found


def against(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """scores - thresholds, a hair above 0 for scores at a threshold, which count as positive; nan for no threshold."""
    thresholds = np.nan_to_num(thresholds, nan=0.0)
    difference = scores - thresholds
    return np.where(scores >= thresholds, np.maximum(difference, np.finfo(np.float64).tiny), difference)


def chances(curves: Sequence[CalibrationCurve], scores: np.ndarray, exclusive: bool) -> np.ndarray:
    """Scores `[n, L]` -> chances `[n, L]`, which add up to 1 where classes are exclusive."""
    found = np.stack([curve(scores[:, label]) for label, curve in enumerate(curves)], axis=1)
    if not exclusive:
        return found
    total = found.sum(1, keepdims=True)
    return np.where(total > 0, found / np.where(total > 0, total, 1), 1 / found.shape[1])
