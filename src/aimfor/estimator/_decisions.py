"""From scores to a threshold and a curve for each label, and from these to predictions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from aimfor._base import checks
from aimfor._base.warnings import NoThresholdWarning
from aimfor.aims import Aim, one_hot
from aimfor.estimator._calibration import CalibrationCurve, calibration
from aimfor.estimator._holdout import LabelledRows
from aimfor.operating_points import (
    ALSO_CHOSE,
    OperatingPoint,
    decided_point,
    one_per_label,
    warn_of_weak_claims,
)

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
        groups: codes of groups of dependent rows; None where rows are independent.
    """

    labels: np.ndarray
    scores: np.ndarray
    weights: np.ndarray | None
    source: str
    groups: np.ndarray | None = None


def points_of_classifier(classifier: Any) -> tuple[OperatingPoint, ...]:
    """The operating points of a fitted classifier, one per label or class."""
    points = classifier.operating_point_
    return points if isinstance(points, tuple) else (points,)


def decide(
    classifier: Any, aim: Aim, held_out: LabelledRows, whole: LabelledRows, earlier: Sequence[OperatingPoint] = ()
) -> None:
    """Choose thresholds, and curves of the chances, on rows held out; on all for a label that lacks a class there.

    Args:
        classifier: with its model; it gets `operating_point_`, `threshold_` and `calibration_`.
        aim: what the model is judged by.
        held_out: rows that choose.
        whole: all rows.
        earlier: the operating points so far, where training went on.
    """
    targets = classifier.targets_
    curves_before = vars(classifier).pop("calibration_", [])  # of an earlier fit
    rows = [scored(classifier, held_out, held_out.source)] * targets.num_outputs
    ends = whole.ends_of_labels()
    # Rows that several processes share are not scored again.
    if targets.several and classifier.confidence is None and whole.share is None:
        rare = (held_out.labels.min(0) == held_out.labels.max(0)) & (ends[0] < ends[1])
        if rare.any():
            others = scored(
                classifier, whole, f"{whole.source}, {held_out.source.removesuffix(ALSO_CHOSE)} lacking a class"
            )
            rows = [others if is_rare else one for one, is_rare in zip(rows, rare, strict=True)]
    points = points_of(aim, rows, classifier.confidence)
    if not earlier:
        warn_of_weak_claims(points)
    if not classifier.model_.exact:
        points = tuple(with_room(one, rows[label].scores[:, label]) for label, one in enumerate(points))
    if targets.several:
        points = marked(points, ends, earlier)
    stays = staying(rows, earlier)
    set_points(classifier, kept(stays, earlier, points))
    if classifier.calibrate:
        stays = [one and bool(curves_before) for one in stays]
        classifier.calibration_ = list(kept(stays, curves_before, curves_of(classifier.calibrate, rows)))


def set_points(classifier: Any, points: tuple[OperatingPoint, ...]) -> None:
    """Give a classifier its operating points and their thresholds."""
    one_label = classifier.targets_.one_label
    classifier.operating_point_ = points[0] if one_label else points
    classifier.threshold_ = points[0].threshold if one_label else thresholds_of(points)


def thresholds_of(points: Sequence[OperatingPoint]) -> np.ndarray:
    """The thresholds, nan where there is none."""
    return np.array([math.nan if point.threshold is None else point.threshold for point in points], dtype=np.float64)


def scored(classifier: Any, rows: LabelledRows, source: str) -> Scored:
    """Rows with the scores of the classifier's model."""
    targets = classifier.targets_
    labels = one_hot(rows.labels, len(targets.classes)) if targets.multiclass else rows.labels
    return Scored(labels, classifier.model_.scores(rows.X, rows.index), rows.weights, source, rows.groups)


def points_of(aim: Aim, rows: Sequence[Scored], confidence: float | None) -> tuple[OperatingPoint, ...]:
    """The operating point of each label.

    Args:
        aim: for all labels.
        rows: those that choose, for each label.
        confidence: see `decided_point`.
    """
    return tuple(
        decided_point(
            one.labels[:, label],
            one.scores[:, label],
            own,
            confidence,
            sample_weight=one.weights,
            groups=one.groups,
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


def decided(points: Sequence[OperatingPoint], scores: np.ndarray, on_no_threshold: str) -> np.ndarray:
    """Scores `[n, L]` -> 0/1 at the operating points.

    Args:
        points: one per label.
        scores: raw scores.
        on_no_threshold: "negative" for 0 and a warning where no threshold qualified, "raise" for an error.
    """
    found = np.zeros(scores.shape, dtype=np.int64)
    for label, point in enumerate(points):
        if point.threshold is not None:
            found[:, label] = point.predict(scores[:, label])
        elif not never_positive(point):
            which = f" of label {label}" if len(points) > 1 else ""
            why = f"no threshold{which} qualifies for {point.aim!r}: {point.reason}"
            if on_no_threshold == "raise":
                raise ValueError(f"predict needs a threshold, but {why}")
            told = f"{why}; predict gives 0 positives, and decision_function still ranks"
            warnings.warn(told, NoThresholdWarning, stacklevel=checks.callers_level())
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
