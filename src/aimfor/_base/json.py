"""JSON: what is written as plain data, and files from anyone, read as plain data and checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aimfor._base.checks import rule
from aimfor._base.errors import ModelFileError
from aimfor._base.files import read_bytes

MOST = 512 * 2**20  # bytes; what is larger is refused unread
NONE = type(None)
KINDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    NONE: "null",
}


def json_ready(value: Any) -> Any:
    """Plain Python data from numpy and other containers; JSON has no inf and no nan, so these become None."""
    if isinstance(value, Mapping):
        return {name: json_ready(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(entry) for entry in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return json_ready(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_text(path: Path) -> str:
    """The text of a file."""
    try:
        return read_bytes(path, MOST).decode()
    except UnicodeDecodeError:
        raise ModelFileError(f"{path} must be UTF-8, got other bytes") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file.

    Raises:
        ModelFileError: where it is none.
    """
    try:
        facts = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ModelFileError(f"{path} must be JSON, got: {error}") from None
    if not isinstance(facts, dict):
        raise ModelFileError(f"{path} must hold a JSON object, got {type(facts).__name__}")
    return facts


def check_entries(name: str, value: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuse a JSON object that has not exactly these entries, each of its kind.

    Args:
        name: what the object is, for the message.
        value: the object.
        kinds: the type of each entry, or a tuple of types.

    Raises:
        ValueError: in one sentence.
    """
    for key, kind in kinds.items():
        rule(key in value, name, "must be whole", f"nothing for {key!r}")
        # A bool is an int to Python, not to a reader of the file.
        right = isinstance(value[key], kind) and (kind is not int or not isinstance(value[key], bool))
        wanted = " or ".join(KINDS[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
        rule(right, f"{key} of {name}", f"must be {wanted}", repr(value[key])[:50])
    for key in value:
        rule(key in kinds, name, "must have no other entries than it is written with", repr(key)[:50])
