"""Exact finite-sample confidence of thresholds, and intervals of rates."""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from aimfor._base.arrays import Array
from aimfor.aims import FIXED_SEQUENCE, WALK, PointAim, rate_of
from aimfor.metrics import Curve
from aimfor.operating_points._record import Confusion, Interval, Intervals
from aimfor.operating_points._rows import LabelRows

# The confidences at which a walk is tried, to find the highest that it gives.
CONFIDENCES = (*(index / 100 for index in range(1, 100)), 0.995, 0.999)
# The level whose walks the starts suit, and the one that an early start suits. The early start has this part of what
# the level is above its floor, which is just enough at its own level.
USUAL_LEVEL, EARLY_LEVEL, EARLY_FLOOR, EARLY_PART = 0.05, 0.5, 0.2, 0.6


def certain(rows: LabelRows, curve: Curve, aim: PointAim, level: float) -> tuple[Array, NDArray[np.bool_]]:
    """The exact p-value of "the constraint is broken" at each threshold, and at which thresholds it is kept.

    With probability at least 1 - level it is kept in the population at all of these, so any of them may be taken.
    Recall and false-positive rate fall as the threshold rises, in the population as in the data. So all thresholds that
    break the constraint lie beyond a fixed point. Tests at the full level that start at the other end are a fixed
    sequence, which errs only if it passes that point. Precision rises and falls, so it has a walk of its own.
    """
    rate, target = rate_of(aim.constrained), _target(aim)
    part, whole = rate.share.count_along(curve)
    if rate.test == WALK:
        predicted = whole.astype(np.int64)
        return upper_tail(part, predicted, target), walked(walk_tails(rows, target), target, level)[predicted]
    if rate.test == FIXED_SEQUENCE:
        tails = _tails(part, whole, aim)
        return tails, tails <= level
    raise ValueError(f"confidence needs a rate with an exact test, got {aim.constrained!r}, which has none")


def claimable(rows: LabelRows, curve: Curve, aim: PointAim, threshold: float) -> float | None:
    """The highest confidence at which the constraint can be claimed at a threshold; None without an exact test.

    Claims at different confidences are nested, so the highest may be claimed after all of them were tried.
    """
    rate, target = rate_of(aim.constrained), _target(aim)
    if rate.test is None:
        return None
    tp, fp = curve.at(threshold)
    counts = {"tp": tp, "fp": fp, "positives": curve.num_positives, "negatives": curve.num_negatives}
    part, whole = rate.share.count(counts)
    if rate.test == FIXED_SEQUENCE:
        return float(1 - _tails(np.array(part), whole, aim))
    tails = walk_tails(rows, target)
    reached = bisect_right(
        CONFIDENCES, 0, key=lambda confidence: not walk_reaches(int(whole), tails, target, 1 - confidence)
    )
    return CONFIDENCES[reached - 1] if reached else 0.0


def _target(aim: PointAim) -> float:
    assert not isinstance(aim.target, tuple)
    return aim.target


def _tails(part: Array, whole: Array | float, aim: PointAim) -> Array:
    """Exact p-values of "the constraint is broken" for a rate whose whole does not depend on the threshold."""
    target = _target(aim)
    return upper_tail(part, whole, target) if aim.sense == ">=" else upper_tail(whole - part, whole, 1 - target)


def walk_tails(rows: LabelRows, min_precision: float) -> Array:
    """For each number of rows taken from the top, 0 to n, the p-value of "precision is below its minimum".

    Rows with equal scores are taken in a random order that does not depend on their labels, so no ties remain. Nor does
    it depend on the order in which they were given: they are sorted first, and their values are the seed.
    """
    sorted_rows = np.lexsort((rows.labels, -rows.scores))
    labels, scores = rows.labels[sorted_rows], rows.scores[sorted_rows]
    n = labels.size
    tied = np.append(False, scores[1:] == scores[:-1])
    if tied.any():
        seed = zlib.crc32(labels.tobytes(), zlib.crc32((scores + 0.0).tobytes()))  # + 0.0, as -0.0 has other bytes
        labels = labels[np.lexsort((np.random.default_rng(seed).random(n), np.cumsum(~tied)))]
    tp = np.append(0, np.cumsum(labels))
    return upper_tail(tp, np.arange(n + 1), min_precision)


def walked(tails: Array, min_precision: float, level: float) -> NDArray[np.bool_]:
    """For each number of rows taken from the top, 0 to n, whether the precision of the population is certified.

    A walk goes down row by row from one of several starts, while the p-value stays within its share of the level. When
    it reaches the next start, it adds the share of that start. The start itself is not certified: its p-value belongs
    to a threshold at the next row, because only the rows above a row are a sample of the population above it.
    """
    n = tails.size - 1
    starts, shares = walk_starts(n, min_precision, level)
    kept = np.zeros(n + 1, dtype=bool)
    carried = 0.0
    for start, end, share in zip(starts, [*starts[1:], n + 1], shares, strict=True):
        first = start if carried else start + 1
        carried += share
        failed = np.flatnonzero(tails[start:end] > carried)
        kept[first : start + failed[0] if failed.size else end] = True
        carried = 0.0 if failed.size else carried
    return kept


def walk_reaches(count: int, tails: Array, min_precision: float, level: float) -> bool:
    """Whether `walked` is true for this many rows, without computing it for the rows below."""
    starts, shares = walk_starts(tails.size - 1, min_precision, level)
    starts = [start for start in starts if start <= count]
    if not starts:
        return False
    highest = np.maximum.reduceat(tails[: count + 1], starts)
    arrived = carried = 0.0
    for share, tail in zip(shares, highest, strict=False):
        arrived, carried = carried, carried + share
        carried = carried if tail <= carried else 0.0
    return carried > 0 and (arrived > 0 or count > starts[-1])


def walk_starts(n: int, min_precision: float, level: float) -> tuple[list[int], list[float]]:
    """The starts of the walk, in rows, and the share of the level that each has.

    Starts depend on n and the aim only, and no share falls as the level rises. So what is certified at some confidence
    is certified at every lower one.

    Each start has twice the rows of the one before and half its share. At the first, a third of the usual level is
    enough if all rows are positive, which leaves room for a negative soon after. At high levels there is an earlier
    start, without which few rows would never be certified. Among the rules that were simulated, this one gave up the
    least recall on average over sizes, priors and targets, with and without negatives at the very top.
    """
    early, first = (math.ceil(math.log(at / 3) / math.log(min_precision)) for at in (EARLY_LEVEL, USUAL_LEVEL))
    starts = [first]
    while 2 * starts[-1] < n:
        starts.append(2 * starts[-1])
    parts = [0.5**index for index in range(len(starts))]
    early_share = EARLY_PART * max(0.0, level - EARLY_FLOOR) if early < first else 0.0
    shares = [(level - early_share) * part / sum(parts) for part in parts]
    return ([early, *starts], [early_share, *shares]) if early_share else (starts, shares)


def upper_tail(successes: NDArray, trials: NDArray | float, rate: float) -> Array:
    """P(Binomial(trials, rate) >= successes)."""
    special = scipy_special()
    tails = special.betainc(np.maximum(successes, 1), trials - successes + 1, rate)
    return np.where(successes > 0, tails, 1.0)


def intervals_of(counts: Confusion, level: float) -> Intervals:
    """Exact intervals of the three rates."""
    return Intervals(*(interval_of(counts, name, level) for name in Intervals._fields))


def interval_of(counts: Confusion, rate: str, level: float) -> Interval | None:
    """The exact interval of a registered rate; None if the rate does not exist."""
    part, whole = counts.of(rate)
    return _clopper_pearson(part, whole - part, level)


def _clopper_pearson(hits: float, misses: float, level: float) -> Interval | None:
    if hits + misses == 0:
        return None
    special, tail = scipy_special(), (1 - level) / 2
    low = float(special.betaincinv(hits, misses + 1, tail)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, misses, 1 - tail)) if misses else 1.0
    return low, high


def scipy_special():
    """`scipy.special`, or an error that says what to install."""
    try:
        from scipy import special
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "operating_point needs scipy for its binomial tails: pip install 'aimfor[sklearn]'"
        ) from None
    return special
