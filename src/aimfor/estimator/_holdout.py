"""Rows that train, rows that choose among candidates, and rows that choose the threshold."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from aimfor._base import checks
from aimfor._base.ranks import ALONE, Ranks, RowShare
from aimfor._base.splitting import class_counts, groups_held_back, held_back
from aimfor._base.warnings import NoValidationWarning
from aimfor.aims import Aim, PointAim, rate_of
from aimfor.estimator._parameters import kind_for

TRAINED = "the training rows"
# With a confidence: the share of the training rows that choose among candidates, the most rows that are held back, and
# how many times the rows that would do without an error are held back.
CHOOSING, MOST_HELD, ROOM_FOR_ERRORS = 0.125, 0.5, 4
# The most training rows that choose among candidates; the judgement gains nothing from more.
MOST_CHOOSING = 200_000
# Training rows of each class from which a kind that chooses among many models does so on some of them.
ROWS_TO_CHOOSE = 400


class LabelledRows(NamedTuple):
    """Some rows of a table.

    Attributes:
        X: features of the whole table.
        labels, weights: of these rows; weights may be None for 1.
        index: which rows of the table they are; None for all.
        source: what they are called.
        groups: codes of groups of dependent rows, of these rows; None where rows are independent.
        share: which rows of all processes they are; None where this process has them all.
    """

    X: Any
    labels: np.ndarray
    weights: np.ndarray | None
    index: np.ndarray | None = None
    source: str = "all rows"
    groups: np.ndarray | None = None
    share: RowShare | None = None

    @property
    def ranks(self) -> Ranks:
        """The processes that share the rows."""
        return ALONE if self.share is None else self.share.ranks

    def taken(self) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """The rows by themselves."""
        return self.X if self.index is None else self.X[self.index], self.labels, self.weights

    def some(self, rows: np.ndarray, source: str) -> LabelledRows:
        """Those of the rows with these numbers."""
        weights, groups = (None if one is None else one[rows] for one in (self.weights, self.groups))
        index = rows if self.index is None else self.index[rows]
        share = None if self.share is None else self.share.select(rows)
        return LabelledRows(self.X, self.labels[rows], weights, index, source, groups, share)

    def split(self, count: int, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Row numbers to keep and about `count` to hold back, with every class and whole groups on each side."""
        if self.groups is None:
            return held_back(self.classes(), count, seed, self.share)
        if self.share is None:
            return groups_held_back(self.classes(), self.groups, count, seed)
        classes, groups = (self.share.collect(one) for one in (self.classes(), self.groups))
        parts = groups_held_back(classes, groups, count, seed)
        if parts is None:
            return None
        held = np.zeros(len(classes), dtype=bool)
        held[parts[1]] = True
        held = self.share.own(held)
        return np.flatnonzero(~held).astype(np.int32), np.flatnonzero(held).astype(np.int32)

    def classes(self) -> np.ndarray:
        """The class of each row; one for all where there are several labels, of which a row may have any."""
        return self.labels[:, 0] if self.labels.shape[1] == 1 else np.zeros(len(self.labels), dtype=np.uint8)

    def least_of_a_class(self) -> int:
        """The number of rows of the rarest class; of several labels, of the rarest that is there."""
        if self.labels.shape[1] == 1:
            return int(class_counts(self.labels[:, 0], self.ranks)[1].min())
        rows, positives = self.ranks.sum(len(self.labels)), self.ranks.sum(self.labels.sum(0, dtype=np.int64))
        counts = np.minimum(positives, rows - positives)
        return int(counts[counts > 0].min(initial=rows))

    def ends_of_labels(self) -> np.ndarray:
        """`[2, L]`, the least and the largest value of each label in the rows of all processes."""
        every = self.ranks.gather(np.stack([self.labels.min(0), self.labels.max(0)]))
        return np.stack([np.min([own[0] for own in every], axis=0), np.max([own[1] for own in every], axis=0)])

    def collected(self) -> LabelledRows:
        """The rows of all processes, on each of them."""
        if self.share is None:
            return self
        X, labels, weights = self.taken()
        weights, groups = (None if one is None else self.share.collect(one) for one in (weights, self.groups))
        X, labels = self.share.collect(X), self.share.collect(labels)
        return LabelledRows(X, labels, weights, source=self.source, groups=groups)


def divided(whole: LabelledRows, fraction: float, seed: int) -> tuple[LabelledRows, LabelledRows]:
    """Training and validation rows; the same rows twice where none can be held back.

    Args:
        whole: all rows; each part gets its share of every class.
        fraction: share of them to hold back.
        seed: of the draw.
    """
    trained = whole._replace(source=TRAINED)
    if fraction == 0:
        return trained, trained
    rows, classes = len(whole.labels), whole.classes()
    held = round(fraction * rows)
    kinds, counts = np.unique(classes, return_counts=True)
    few = "1 row of a class" if counts.min() < 2 else f"{rows} rows"
    if whole.groups is not None:
        few += f" in {len(np.unique(whole.groups))} groups"
    possible = counts.min() >= 2 and held >= len(kinds) and rows - held >= len(kinds)
    parts = whole.split(held, seed) if possible else None
    if parts is None:
        warnings.warn(
            f"{few} cannot be divided by validation_fraction={fraction:g}: every choice is made on the training rows",
            NoValidationWarning,
            stacklevel=checks.callers_level(),
        )
        return trained, trained
    return whole.some(parts[0], TRAINED), whole.some(parts[1], "the validation rows")


def held_share(aim: Aim, classifier: Any, whole: LabelledRows) -> float:
    """The share of the rows to hold back: `validation_fraction`, and more where a confidence needs more, up to a half.

    Args:
        aim: what the model is judged by.
        classifier: whose parameters decide.
        whole: all rows.
    """
    fraction = classifier.validation_fraction
    if classifier.confidence is None or fraction == 0 or whole.labels.shape[1] > 1 or not isinstance(aim, PointAim):
        return fraction
    assert not isinstance(aim.target, tuple)
    # So many rows in a row without an error pass the test: of all positives or negatives, or of those that are flagged.
    least = math.log((1 - classifier.confidence) / 3) / math.log(aim.target if aim.sense == ">=" else 1 - aim.target)
    counted = float((whole.labels == int(rate_of(aim.constrained).share.whole != ("negatives",))).sum())
    if whole.groups is not None:  # one row of each group is counted
        counted *= len(np.unique(whole.groups)) / len(whole.labels)
    return max(fraction, min(ROOM_FOR_ERRORS * least / max(counted, 1.0), MOST_HELD))


def with_choosing(fitted: LabelledRows, held_out: LabelledRows, classifier: Any) -> tuple[LabelledRows, LabelledRows]:
    """Rows that train, and rows that choose among candidates.

    A confidence is about rows that chose nothing before. So some training rows choose, and all rows held out are for
    the threshold. Without a confidence a kind that chooses among many models does so too, where each class has enough
    training rows. Else the rows held out choose both.

    Args:
        fitted: rows to train on.
        held_out: rows that were not trained on.
        classifier: whose parameters decide.
    """
    enough = fitted.least_of_a_class() >= ROWS_TO_CHOOSE and held_out is not fitted
    apart = classifier.confidence is not None or (enough and kind_for(classifier).threshold_apart)
    if not apart or classifier.solver != "sgd":  # the solvers choose nothing on these rows
        return fitted, held_out
    classes = fitted.classes()
    kinds, counts = class_counts(classes, fitted.ranks)
    checks.rule(counts.min() >= 2, "confidence", "needs 2 training rows of each class", counts.min())
    wanted = min(round(CHOOSING * counts.sum()), MOST_CHOOSING)
    parts = fitted.split(max(len(kinds), wanted), seed=0)
    if parts is None:
        raise ValueError("confidence needs groups of each class to train and to choose on, got too few groups")
    choosing = fitted.some(parts[1], "training rows that choose the model").collected()
    return fitted.some(parts[0], fitted.source), choosing
