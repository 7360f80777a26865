"""How many rows would probably be enough, if no threshold can be certified."""

from __future__ import annotations

import math

import numpy as np

from aimfor._base.arrays import ROUNDING, Array
from aimfor.aims import WALK, PointAim, rate_of
from aimfor.metrics import Curve
from aimfor.operating_points._confidence import upper_tail, walk_starts

GROWTH, MOST_TIMES = 1.25, 10_000.0
SHRINKAGE = 4  # rows at the target that are added to the data; in simulations it is right in four of five cases


def rows_needed(curve: Curve, aim: PointAim, level: float) -> int | None:
    """About how many rows like these would probably give a threshold at this level; None if no number would.

    The rows are multiplied, with their present rates less one standard error at that size. The best rates of a small
    sample are too good, so they are first moved towards the target.
    """
    rate, target = rate_of(aim.constrained), aim.target
    assert not isinstance(target, tuple)
    part, whole = rate.share.count_along(curve)
    hits, least = (part, target) if aim.sense == ">=" else (whole - part, 1 - target)
    whole = np.broadcast_to(whole, hits.shape)
    useful = (hits > whole * least * (1 + ROUNDING)) & (curve.tp > 0)
    if not useful.any():
        return None
    hits, whole = hits[useful], whole[useful]
    hits = whole * (hits + SHRINKAGE * least) / (whole + SHRINKAGE)
    present, times = curve.num_positives + curve.num_negatives, 1.0
    while times < MOST_TIMES:
        times *= GROWTH
        allowed = _level_of_walk(times * whole, times * present, target, level) if rate.test == WALK else level
        spread = np.sqrt(times * hits * (1 - hits / whole))
        if (upper_tail(np.maximum(times * hits - spread, 0), times * whole, least) <= allowed).any():
            return _rounded(times * present)
    return None


def _level_of_walk(taken: Array, rows: float, target: float, level: float) -> Array:
    """The share of the level that a walk has here, if it comes from the last start before."""
    starts, shares = walk_starts(int(rows), target, level)
    place = np.searchsorted(starts, taken, side="left") - 1
    return np.where(place >= 0, np.array(shares)[np.maximum(place, 0)], 0.0)


def _rounded(rows: float) -> int:
    """Rounded up to two digits, because the estimate is rough."""
    unit = 10 ** max(0, math.floor(math.log10(rows)) - 1)
    return math.ceil(rows / unit) * unit
