"""What an aim comes to at the threshold that was chosen, with its interval."""

from __future__ import annotations

from typing import Any

from aimfor.aims import Aim, Cost, FBeta, PointAim, rate_of
from aimfor.operating_points import Confusion, interval_of


def value_at(aim: Aim, operating: dict[str, Any], level: float) -> dict[str, Any] | None:
    """The value at the operating threshold and its interval, as far as there is one; None for areas.

    Args:
        aim: with the target of one label.
        operating: counts, rates and intervals at the threshold.
        level: of the interval.
    """
    if operating["tp"] is None:
        return None
    if isinstance(aim, PointAim):
        rate = rate_of(aim.objective).name
        return _entry(operating[rate], operating["intervals"] and operating["intervals"][rate])
    tp, fp, fn, tn = (operating[name] for name in Confusion._fields)
    if isinstance(aim, FBeta):
        assert not isinstance(aim.beta, tuple)
        kept = (1 + aim.beta**2) * tp
        total = kept + aim.beta**2 * fn + fp
        known = operating["intervals"] is not None and aim.beta == 1 and tp + fp + fn > 0
        return _entry(kept / total if total else None, _f1_interval(tp, fp + fn, level) if known else None)
    if isinstance(aim, Cost):
        assert not isinstance(aim.fp, tuple)
        assert not isinstance(aim.fn, tuple)
        total = tp + fp + fn + tn
        return _entry((aim.fp * fp + aim.fn * fn) / total if total else None, None)
    return None


def _entry(value: float | None, interval: Any) -> dict[str, Any]:
    return {"value": value, "interval": None if interval is None else list(interval)}


def _f1_interval(tp: float, wrong: float, level: float) -> list[float] | None:
    """F1 rises with the share of the found among all that are found, missed or false, whose interval is exact."""
    interval = interval_of(Confusion(tp, wrong, 0, 0), "precision", level)
    return None if interval is None else [2 * end / (1 + end) for end in interval]
