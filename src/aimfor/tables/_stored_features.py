"""A stored preparation, read as data from anyone: each entry is checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aimfor._base.errors import DataError
from aimfor.tables._features import MOST_CATEGORIES, Categories, ColumnFeatures, Dates, Numbers, Words
from aimfor.tables._tallies import CALENDAR

MOST_BUCKETS = 2**16


def read_features(given: Any) -> ColumnFeatures:
    """How a column becomes features, from what `to_dict` gave.

    Raises:
        DataError: where an entry is not what it must be.
    """
    kind = given.get("kind") if isinstance(given, Mapping) else None
    reader = READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise DataError(f"kind must be one of {', '.join(READERS)}, got {repr(kind)[:50]}")
    return reader(given)


def _categories(given: Any) -> Categories:
    entries = _entries("a column", given, ("name", "kind", "categories", "missing"), {"buckets": 0})
    categories = entries["categories"]
    right = isinstance(categories, list) and len(categories) <= MOST_CATEGORIES
    rule(right, "categories", f"must be a list of at most {MOST_CATEGORIES}", categories)
    found = tuple(_text("a category", category) for category in categories)
    rule(len(set(found)) == len(found), "categories", "must differ", categories)
    missing, buckets = _flag(entries["missing"]), _buckets(entries["buckets"], 0)
    return Categories(_text("name", entries["name"]), "categorical", found, missing, buckets)


def _numbers(given: Any) -> Numbers:
    entries = _entries("a column", given, ("name", "kind", "mean", "scale", "missing"), {"decimal": None})
    kind, mean, scale = entries["kind"], _number("mean", entries["mean"]), _number("scale", entries["scale"])
    rule(scale > 0, "scale", "must be above 0", scale)
    rule(kind == "numeric" or (scale == 1 and 0 <= mean <= 1), "a boolean column", "must have scale 1", given)
    rule(entries["decimal"] in (None, ".", ","), "decimal", 'must be "." or ","', entries["decimal"])
    name, missing = _text("name", entries["name"]), _flag(entries["missing"])
    return Numbers(name, kind, mean, scale, missing, entries["decimal"])


def _dates(given: Any) -> Dates:
    entries = _entries("a column", given, ("name", "kind", "form", "first", "means", "scales", "missing"))
    for key in ("means", "scales"):
        right = isinstance(entries[key], list) and len(entries[key]) == len(CALENDAR)
        rule(right, key, f"must be a list of {len(CALENDAR)}", entries[key])
    means, scales = (tuple(_number(key, value) for value in entries[key]) for key in ("means", "scales"))
    rule(min(scales) >= 0 and max(scales) > 0, "scales", "must be at least 0, and some above it", scales)
    form = entries["form"] if entries["form"] is None else _text("form", entries["form"])
    first, missing = _number("first", entries["first"]), _flag(entries["missing"])
    return Dates(_text("name", entries["name"]), "date", form, first, means, scales, missing)


def _words(given: Any) -> Words:
    entries = _entries("a column", given, ("name", "kind", "buckets"))
    return Words(_text("name", entries["name"]), "text", _buckets(entries["buckets"], 1))


READERS: dict[str, Callable[[Any], ColumnFeatures]] = {
    "numeric": _numbers,
    "boolean": _numbers,
    "categorical": _categories,
    "date": _dates,
    "text": _words,
}


def rule(holds: bool, name: str, must: str, value: Any) -> None:
    """Raise a DataError where something does not hold."""
    if not holds:
        raise DataError(f"{name} {must}, got {repr(value)[:50]}")


def _entries(
    name: str, given: Any, keys: Sequence[str], optional: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    optional = optional or {}
    right = isinstance(given, Mapping) and set(keys) <= set(given) <= {*keys, *optional}
    rule(right, name, f"must be an object with {', '.join(keys)}", given)
    return {**optional, **given}


def entries_of(name: str, given: Any, keys: Sequence[str]) -> Mapping[str, Any]:
    """A JSON object that has these entries, all and alone."""
    return _entries(name, given, keys)


def _buckets(value: Any, least: int) -> int:
    right = isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST_BUCKETS
    rule(right, "buckets", f"must be a whole number from {least} to {MOST_BUCKETS}", value)
    return value


def _number(name: str, value: Any) -> float:
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1.7e308
    rule(right and math.isfinite(value), name, "must be a finite number", value)
    return float(value)


def _flag(value: Any) -> bool:
    rule(isinstance(value, bool), "missing", "must be true or false", value)
    return value


def _text(name: str, value: Any) -> str:
    right = isinstance(value, str) and len(value) <= 2**20
    # JSON can hold halves of characters, which no file of rows has.
    rule(right and not any("\ud800" <= char <= "\udfff" for char in value), name, "must be a text", value)
    return value
