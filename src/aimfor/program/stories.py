"""Tell: what a fit measured, as metrics.json, history.csv and the page, and read back for the page again."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from aimfor.program.json_files import read_json, read_text
from aimfor.program.model_files import ModelFileError, write_text
from aimfor.program.page import render
from aimfor.supervision import Look

METRICS, HISTORY, PAGE = "metrics.json", "history.csv", "report.html"


def write_story(folder: Path, facts: dict[str, Any], looks: list[Look]) -> Path:
    """Write the three files.

    Args:
        folder: of the model.
        facts: all that `render` asks for but the history.
        looks: the history.

    Returns:
        Path of the page.
    """
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(Look._fields)
    writer.writerows(
        ["" if isinstance(value, float) and math.isnan(value) else value for value in look] for look in looks
    )
    write_text(folder / METRICS, json.dumps(facts, indent=1, allow_nan=False) + "\n")
    write_text(folder / HISTORY, table.getvalue())
    return write_page(folder)


def write_page(folder: Path) -> Path:
    """Make the page from the other two files."""
    facts = read_json(folder / METRICS)
    try:
        page = render({**facts, "history": _read_history(folder / HISTORY)})
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # A file of ours that someone changed; whatever it lacks, the page cannot be made.
        raise ModelFileError(f"{folder / METRICS} does not hold what a page is made of: {error!r}") from error
    write_text(folder / PAGE, page)
    return folder / PAGE


def _read_history(path: Path) -> list[dict[str, Any]]:
    rows = list(csv.DictReader(io.StringIO(read_text(path))))
    texts = ("stage", "candidate")
    try:
        return [
            {name: row[name] if name in texts else (float(row[name]) if row[name] else None) for name in Look._fields}
            for row in rows
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise ModelFileError(f"{path} does not hold the history of a fit: {error!r}") from error
