"""The choice among candidates on rows that none of them saw."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from aimfor._base.ranks import ALONE, Ranks, in_turns
from aimfor._base.warnings import UndefinedMetricWarning
from aimfor.aims import AUCPR, Aim, AreaAim, judged, judged_together
from aimfor.training._loop import Candidate, Judgement, rank
from aimfor.training._recipes import plain

# Resamples of the validation rows that estimate the noise of a difference.
RESAMPLES = 200
# Log-loss stays the choice unless another candidate beats it by more than this many standard deviations of the mean
# difference. A higher value protects against chance, but gives up gains of aims that few rows decide.
NOISE = 0.5
# The share of the area in the merit; 0 if the aim is itself an area.
AREA_SHARE = 1 / 3
# With at least this many labels, labels are compared instead of resampled rows.
MANY_LABELS = 20


def choose(
    candidates: Sequence[Candidate],
    aim: Aim,
    labels: np.ndarray,
    weights: np.ndarray | None,
    seed: int,
    ranks: Ranks = ALONE,
) -> int:
    """The candidate to keep: the best log-loss, unless another beats it by more than the noise of these rows.

    Args:
        candidates: trained heads, log-loss among them.
        aim: what the model is judged by.
        labels: `[n, L]` 0/1 of the validation rows.
        weights: `[n]` or None.
        seed: random seed of the resamples.
        ranks: that share the work.

    Returns:
        Its index.
    """
    order = sorted(range(len(candidates)), key=lambda index: rank(candidates[index]), reverse=True)
    simple = next(index for index in order if plain(candidates[index].recipe))
    if simple == order[0]:
        return simple
    mean, deviation = paired_difference(candidates[order[0]], candidates[simple], aim, labels, weights, seed, ranks)
    return order[0] if mean > NOISE * deviation else simple


def judgement(aim: Aim, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> Judgement:
    """The exact metric, and its mean with the area under the precision-recall curve."""
    if isinstance(aim, AreaAim):
        value = judged(aim, scores, labels, weights)
        return Judgement(value, value)
    value, area = judged_together((aim, AUCPR()), scores, labels, weights)
    return Judgement(value, (1 - AREA_SHARE) * value + AREA_SHARE * area)


def paired_difference(
    one: Candidate,
    other: Candidate,
    aim: Aim,
    labels: np.ndarray,
    weights: np.ndarray | None,
    seed: int,
    ranks: Ranks = ALONE,
) -> tuple[float, float]:
    """Mean and standard deviation of the merit of `one` minus that of `other`, over resamples of the rows.

    Each resample has a seed of its own, so that a rank draws only those that are its turn.
    """
    if labels.shape[1] >= MANY_LABELS:
        merits = [per_label(aim, candidate.scores, labels, weights) for candidate in (one, other)]
        differences = merits[0] - merits[1]
        differences = differences[~np.isnan(differences)]
        return float(differences.mean()), float(differences.std() / math.sqrt(max(1, len(differences))))
    count = len(labels)
    sides = [_sorted_rows(candidate.scores, labels) for candidate in (one, other)]

    def difference(resample: int) -> float:
        rows = np.random.default_rng((seed, resample)).integers(count, size=count)
        drawn = np.bincount(rows, minlength=count).astype(np.float64)
        drawn = drawn if weights is None else drawn * weights
        merits = [judgement(aim, scores, own, drawn[order]).merit for order, scores, own in sides]
        return merits[0] - merits[1]

    differences = in_turns(difference, RESAMPLES, ranks)
    return float(np.mean(differences)), float(np.std(differences))


def _sorted_rows(scores: np.ndarray, labels: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """An order of the rows, and scores and labels in it. Every resample sorts again, and sorted rows take no time."""
    if scores.shape[1] > 1:  # each label has an order of its own
        return slice(None), scores, labels
    order = np.argsort(-scores[:, 0], kind="stable")
    return order, scores[order], labels[order]


def per_label(aim: Aim, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The merit of every label, nan where it does not exist."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        values = np.asarray(aim.metric(labels, scores, sample_weight=weights))
        areas = np.asarray(AUCPR().metric(labels, scores, sample_weight=weights))
    values = values if aim.greater_is_better else -values
    return values if isinstance(aim, AreaAim) else (1 - AREA_SHARE) * values + AREA_SHARE * areas
