"""Write what a fit measured as metrics.json, history.csv and the page, and read it back."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aimfor._base.errors import ModelFileError
from aimfor._base.files import write_text
from aimfor._base.json import read_json, read_text
from aimfor.report._page import render
from aimfor.training import Evaluation

METRICS, HISTORY, PAGE = "metrics.json", "history.csv", "report.html"


@contextmanager
def story(folder: Path, facts: dict[str, Any], evaluations: list[Evaluation]) -> Iterator[None]:
    """Write the three files under other names; when all that is done inside succeeds, they take their places.

    So a disk that fills leaves the files of an earlier model together with that model.

    Args:
        folder: of the model.
        facts: all that `render` asks for but the history.
        evaluations: the history.
    """
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(Evaluation._fields)
    for evaluation in evaluations:
        writer.writerow(["" if isinstance(value, float) and math.isnan(value) else value for value in evaluation])
    texts = {
        METRICS: json.dumps(facts, indent=1, allow_nan=False) + "\n",
        HISTORY: table.getvalue(),
        PAGE: render({**facts, "history": _read_history(table.getvalue(), folder / HISTORY)}),
    }
    waiting = {folder / name: folder / f".{name}.new" for name in texts}
    try:
        for other, text in zip(waiting.values(), texts.values(), strict=True):
            write_text(other, text)
        yield
        for path, other in waiting.items():
            other.replace(path)
    finally:
        for other in waiting.values():
            other.unlink(missing_ok=True)


def write_page(folder: Path) -> Path:
    """Make the page again from the other two files."""
    facts = read_json(folder / METRICS)
    history = _read_history(read_text(folder / HISTORY), folder / HISTORY)
    try:
        page = render({**facts, "history": history})
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, StopIteration) as error:
        # A file of ours that someone changed; whatever it lacks, the page cannot be made.
        raise ModelFileError(f"{folder / METRICS} does not hold what a page is made of: {error!r}") from error
    write_text(folder / PAGE, page)
    return folder / PAGE


def _read_history(text: str, path: Path) -> list[dict[str, Any]]:
    texts = ("stage", "candidate")
    try:
        return [
            {
                name: row[name] if name in texts else (float(row[name]) if row[name] else None)
                for name in Evaluation._fields
            }
            for row in csv.DictReader(io.StringIO(text))
        ]
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise ModelFileError(f"{path} does not hold the history of a fit: {error!r}") from error
