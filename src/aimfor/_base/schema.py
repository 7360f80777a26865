"""Read entries of a file. Each is checked, because a file may come from anyone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from aimfor._base import checks


def entries(name: str, value: Any, keys: Sequence[str]) -> dict[str, Any]:
    """Return the entries in the order of the keys. No key may be missing, and no other may be present."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a JSON object, got {type(value).__name__}")
    for key in keys:
        checks.rule(key in value, name, f"must have the entry {key!r}", sorted(map(str, value)))
    for key in value:
        checks.rule(key in keys, name, f"must have no entries but {', '.join(keys)}", repr(key))
    return {key: value[key] for key in keys}


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf, **ends: bool) -> float:
    """A finite number in a range."""
    try:
        found = checks.in_range(name, value, low, high, **ends)
    except (TypeError, OverflowError):  # JSON can hold whole numbers that no float can
        raise ValueError(f"{name} must be a number, got {str(value)[:50]!r}") from None
    checks.rule(math.isfinite(found), name, "must be finite", value)
    return found


def whole(name: str, value: Any) -> int:
    """A whole number of at least 0."""
    found = number(name, value, 0)
    checks.rule(found.is_integer(), name, "must be a whole number", value)
    return int(found)


def text(name: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {str(value)[:50]!r}")
    return value
