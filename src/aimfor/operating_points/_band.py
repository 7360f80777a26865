"""A band for recall, false-positive rate and precision that holds at all thresholds at once."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from aimfor._base import checks
from aimfor._base.arrays import Array, Values
from aimfor.metrics import cumulate
from aimfor.operating_points._confidence import scipy_special

# Of the level, what goes to the curve of each class and to the share of positives.
PER_CLASS, FOR_PRIOR = 0.45, 0.1
DRAWS, NEAR_ENDS, BETWEEN = 1999, 30, 60


class RateBand(NamedTuple):
    """Bounds at each distinct score, from high to low; with the confidence all of them hold at once.

    Attributes:
        thresholds: the distinct scores.
        precision, recall, fpr: `[2, n]`, lower and upper bounds at each threshold.
        confidence: least probability that every bound at every threshold holds on the population.
    """

    thresholds: Array
    precision: Array
    recall: Array
    fpr: Array
    confidence: float


def rate_band(y_true: Values, y_score: Values, *, confidence: float = 0.95) -> RateBand:
    """Bounds on the rates of the population at every threshold at once, for rows drawn independently from it.

    A threshold may be chosen after a look at the band: its bounds hold like all others.

    Args:
        y_true: labels 0 or 1, shape [n], with both classes.
        y_score: finite scores of the same shape, higher meaning more positive.
        confidence: in (0, 1).

    Example:
        >>> band = rate_band([0, 0, 1, 1] * 50, [1, 2, 3, 4] * 50)
        >>> bool((band.recall[0] <= band.recall[1]).all())
        True
    """
    data = checks.metric_arrays(y_true, y_score, None)
    checks.rule(data.labels.ndim == 1, "y_true", "must have shape [n]", data.labels.shape)
    level = 1 - checks.in_range("confidence", confidence, 0, 1, open_low=True, open_high=True)
    curve = cumulate(*data)
    positives, negatives = int(curve.num_positives), int(curve.num_negatives)
    checks.rule(positives > 0 and negatives > 0, "y_true", "must hold both classes", f"{positives} positives")
    recall = _bounds(curve.tp.astype(np.int64), positives, PER_CLASS * level)
    fpr = _bounds(curve.fp.astype(np.int64), negatives, PER_CLASS * level)
    special, tail = scipy_special(), FOR_PRIOR * level / 2
    least = float(special.betaincinv(positives, negatives + 1, tail))
    most = float(special.betaincinv(positives + 1, negatives, 1 - tail))
    low = least * recall[0] / np.maximum(least * recall[0] + (1 - least) * fpr[1], np.finfo(float).tiny)
    high = most * recall[1] / np.maximum(most * recall[1] + (1 - most) * fpr[0], np.finfo(float).tiny)
    return RateBand(curve.thresholds, np.stack([low, high]), recall, fpr, confidence)


def _bounds(found: np.ndarray, rows: int, level: float) -> Array:
    """Lower and upper bounds on the share of the population at or above each threshold.

    If k of n rows are there, the share lies between the k-th and the next of n sorted uniform numbers.
    """
    places, lower, upper = _sorted_uniforms(rows, round(level, 12))
    # Where no bound was made for this place, the next one on the safe side holds too.
    below = np.searchsorted(places, found, side="right") - 1
    above = np.searchsorted(places, found + 1, side="left")
    low = np.where(below >= 0, lower[np.maximum(below, 0)], 0.0)
    high = np.where(above < places.size, upper[np.minimum(above, places.size - 1)], 1.0)
    return np.stack([low, high])


@lru_cache(maxsize=64)
def _sorted_uniforms(rows: int, level: float) -> tuple[np.ndarray, Array, Array]:
    """Places among sorted uniform numbers, and bounds that hold for all of these places at once.

    Each bound has the same level of its own. That level is the one at which drawn samples break any bound as often as
    they may; the drawn samples and the one at hand are alike, so the level needs no allowance for the drawing.
    """
    special = scipy_special()
    places = _places(rows)
    rng = np.random.default_rng(0)
    steps = np.diff(places, prepend=0, append=rows + 1)
    sums = np.cumsum(rng.standard_gamma(steps.astype(np.float64), size=(DRAWS, steps.size)), axis=1)
    tails = special.betainc(places, rows - places + 1, sums[:, :-1] / sums[:, -1:])
    closest = np.sort(np.minimum(tails, 1 - tails).min(axis=1))
    rank = int(np.floor(level * (DRAWS + 1)))
    own = closest[rank - 1] if rank > 0 else 0.0
    lower = special.betaincinv(places, rows - places + 1, own)
    upper = special.betaincinv(places, rows - places + 1, 1 - own)
    return places, lower, upper


def _places(rows: int) -> np.ndarray:
    """All places near both ends, and some between."""
    near = np.arange(1, min(NEAR_ENDS, rows) + 1)
    grid = np.geomspace(NEAR_ENDS, max(rows / 2, NEAR_ENDS), BETWEEN).round().astype(np.int64)
    half = np.concatenate([near, grid])
    half = half[half <= rows]
    return np.unique(np.concatenate([half, rows + 1 - half]))
