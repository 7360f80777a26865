"""Read an operating point from JSON, and check every entry."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from aimfor._base import checks, schema
from aimfor.aims import aim as read_aim
from aimfor.operating_points._record import Confusion, Interval, Intervals, OperatingPoint, valid_confidence

ROUNDED = 1e-9  # the largest difference between a rate and its counts


def read(text: str | Mapping[str, Any]) -> OperatingPoint:
    try:
        given = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        raise ValueError("an operating point must be JSON text, got something else") from None
    names = [field.name for field in dataclasses.fields(OperatingPoint)]
    given = schema.entries("an operating point", _with_later_entries(given), names)
    aim = read_aim(schema.text("aim", given["aim"]))
    checks.rule(not aim.label_counts(), "aim", "must have one target in one operating point", repr(str(aim)))
    threshold, reason, intervals = given["threshold"], given["reason"], given["intervals"]
    checks.rule((threshold is None) != (reason is None), "reason", "must stand where threshold is null", repr(reason))
    if intervals is not None:
        entries = schema.entries("intervals", intervals, Intervals._fields)
        intervals = Intervals(*(_interval(name, entry) for name, entry in entries.items()))
    confidence = given["confidence"]
    if confidence is not None:
        confidence = valid_confidence(schema.number("confidence", confidence), aim)
    num_rows = schema.whole("num_rows", given["num_rows"])
    num_positives = schema.whole("num_positives", given["num_positives"])
    checks.rule(num_positives <= num_rows, "num_positives", f"must be at most num_rows, {num_rows}", num_positives)
    entries = schema.entries("counts", given["counts"], Confusion._fields)
    counts = Confusion(*(_count(name, count) for name, count in entries.items()))
    if intervals is not None:  # intervals exist only for unweighted rows, so counts are numbers of rows
        all_there = counts.tp + counts.fn == num_positives and sum(counts) == num_rows
        rule = f"must be those of {num_rows} rows, {num_positives} of them positive"
        checks.rule(all_there, "counts", rule, list(counts))
    rates = {name: _rate(name, given[name]) for name in Intervals._fields}
    _check_rates(rates, counts, intervals)
    return OperatingPoint(
        aim=str(aim),
        threshold=None if threshold is None else schema.number("threshold", threshold, open_low=True),
        chosen=schema.text("chosen", given["chosen"]),
        **rates,
        counts=counts,
        intervals=intervals,
        confidence=confidence,
        num_rows=num_rows,
        num_positives=num_positives,
        source=schema.text("source", given["source"]),
        reason=None if reason is None else schema.text("reason", reason),
        claimable=_rate("claimable", given["claimable"]),
        num_groups=None if given["num_groups"] is None else schema.whole("num_groups", given["num_groups"]),
    )


# Entries that files written by an earlier version do not have.
LATER = {"claimable": None, "num_groups": None}


def _with_later_entries(given: Any) -> Any:
    return {**LATER, **given} if isinstance(given, Mapping) else given


def _check_rates(rates: dict[str, float | None], counts: Confusion, intervals: Intervals | None) -> None:
    """Raise if a rate does not follow from the counts, or is outside its interval."""
    for name, rate in rates.items():
        known = counts.rate(name)
        right = rate is known or (rate is not None and known is not None and abs(rate - known) <= ROUNDED)
        checks.rule(right, name, f"must be that of the counts, {known}", rate)
        if intervals is not None:
            ends: Interval | None = getattr(intervals, name)
            held = (rate is None) == (ends is None)
            if rate is not None and ends is not None:
                held = ends[0] - ROUNDED <= rate <= ends[1] + ROUNDED
            checks.rule(held, f"the interval of {name}", f"must hold the rate, {rate}", ends)


def _count(name: str, value: Any) -> float:
    number = schema.number(name, value, 0)
    return int(value) if isinstance(value, int) else number


def _rate(name: str, value: Any) -> float | None:
    return None if value is None else schema.number(name, value, 0, 1)


def _interval(name: str, value: Any) -> Interval | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"the interval of {name} must be two numbers, got {str(value)[:50]!r}")
    low, high = (schema.number(f"the interval of {name}", end, 0, 1) for end in value)
    checks.rule(low <= high, f"the interval of {name}", "must go upwards", [low, high])
    return low, high
