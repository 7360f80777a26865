"""Read, JSON files of a model folder beside the model: as plain data, from anyone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aimfor._base.errors import ModelFileError
from aimfor._base.files import read_bytes

MOST = 512 * 2**20  # bytes; what is larger is refused unread


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
