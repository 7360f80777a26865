"""Decisions without a confidence: a threshold that keeps its constraint on new rows more often than not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from aimfor.aims import WALK, Aim, PointAim, rate_of
from aimfor.operating_points._choose import choose_points
from aimfor.operating_points._confidence import intervals_of
from aimfor.operating_points._record import INTERVAL_LEVEL, OperatingPoint

# Confidences of the exact test; the first that finds a threshold counts. Of 0.5 to 0.8, 0.7 is the lowest that kept
# every constraint in more than half of the cells of `benchmarks/decisions/carry_over.py`.
TESTED = (0.7, 0.5)
# The same for rows that also chose the model, by `benchmarks/decisions/own_thresholds.py`.
TESTED_AFTER_CHOICE = (0.8, 0.5)
# So the source of a point ends whose rows also chose among candidates. A model's file keeps it.
ALSO_CHOSE = ", which also chose the model"


def decided_point(
    labels: np.ndarray,
    scores: np.ndarray,
    aim: Aim,
    confidence: float | None,
    *,
    source: str = "held-out data",
    **given: Any,
) -> OperatingPoint:
    """The operating point of one label for decisions: with the confidence, or by `likely_point` without one.

    Args:
        labels: `[n]`, 0/1 or bool.
        scores: `[n]`.
        aim: with one target.
        confidence: of `operating_point`, or None.
        source: the rows in words; it ends with `ALSO_CHOSE` if they chose the model too.
        given: `sample_weight` and `groups` of `operating_point`.
    """
    if confidence is None:
        return likely_point(labels, scores, aim, chose_model=source.endswith(ALSO_CHOSE), source=source, **given)
    return choose_points(labels, scores, aim, confidence=confidence, source=source, **given)


def likely_point(
    labels: np.ndarray, scores: np.ndarray, aim: Aim, *, chose_model: bool = False, **given: Any
) -> OperatingPoint:
    """The operating point of one label where no confidence is asked for.

    The best of many thresholds on some rows is a little worse on others, which often breaks a constraint. So the
    threshold should pass an exact test too. Of the best and the best that passes, the one that keeps the constraint
    better is taken. If none passes, the best is taken, and `warn_of_weak_claims` tells. Unequal weights have no exact
    test: the best threshold is taken for them.

    Rows that chose the model flatter it, so their test is stricter. If none passes it, a constraint on precision takes
    the threshold with the lowest p-value.

    Args:
        labels: `[n]`, 0/1 or bool.
        scores: `[n]`.
        aim: with one target.
        chose_model: whether the rows chose among candidates before.
        given: `sample_weight`, `groups` and `source` of `operating_point`.
    """
    best = choose_points(labels, scores, aim, **given)
    if not isinstance(aim, PointAim) or best.claimable is None:
        return best
    for confidence in TESTED_AFTER_CHOICE if chose_model else TESTED:
        tested = choose_points(labels, scores, aim, confidence=confidence, **given)
        if tested.threshold is not None:
            return _stricter(aim, best, tested)
    if chose_model and rate_of(aim.constrained).test == WALK:
        return _stricter(aim, best, choose_points(labels, scores, aim, surest=True, **given))
    return best


def _stricter(aim: PointAim, best: OperatingPoint, tested: OperatingPoint) -> OperatingPoint:
    """The one of the two that keeps the constraint better."""
    assert best.threshold is not None
    assert tested.threshold is not None
    # A lower threshold has more recall; a higher one has fewer false positives and, as a rule, more precision.
    lower_keeps_better = aim.tradeoff.lowest_is_safest
    if best.threshold == tested.threshold or (best.threshold < tested.threshold) == lower_keeps_better:
        return best
    # It makes no promise, as the rows may have trained the model since: its intervals have the usual level.
    intervals = tested.intervals and intervals_of(tested.counts, INTERVAL_LEVEL)
    return replace(tested, confidence=None, intervals=intervals)
