"""Whether new rows are like those that a model was fitted on, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aimfor.tables import Preparation, column_facts

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

FEWEST = 50  # rows below which nothing is said: by chance they may be like anything
FAR = 0.1  # share of the rows far outside the training range that is remarkable
MORE_MISSING = 0.3  # more missing values than in training, as a share of the rows
MORE_UNSEEN = 0.5  # more categories without a feature of their own, as a share of the rows
ALERT_TIMES = 2.0  # as many alerts, or as few, beside chance
DEVIATIONS = 5.0


def profile_of(columns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the training rows have in each column that the model uses, as plain data."""
    names = ("name", "kind", "missing", "low", "high", "rare")
    return [{name: one.get(name) for name in names} for one in columns if one["kind"] != "dropped"]


def alert_share(operating: Mapping[str, Any]) -> list[float] | None:
    """The share of rows with an alert, and the number of rows that it was counted on."""
    if operating["tp"] is None:
        return None
    total = sum(operating[name] for name in ("tp", "fp", "fn", "tn"))
    return [(operating["tp"] + operating["fp"]) / total, total] if total else None


class Drift:
    """Counts over new rows, compared with the profile of the training rows.

    Args:
        preparation: of the model.
        data: what the model folder says of its training data; from anyone, so nothing in it is trusted.
    """

    def __init__(self, preparation: Preparation | None, data: Mapping[str, Any]):
        self.preparation = preparation
        self.profile = {entry["name"]: entry for entry in _entries(data.get("profile"))}
        self.alerts = data.get("alerts")
        self.rows = 0
        self.missing: dict[str, int] = {}
        self.outside: dict[str, int] = {}
        self.unseen: dict[str, int] = {}
        self.alarms: dict[int, int] = {}

    def add_(self, batch: pa.RecordBatch) -> None:
        """Count some rows."""
        assert self.preparation is not None
        self.rows += batch.num_rows
        for part in self.preparation.parts_:
            entry = self.profile.get(part.name, {})
            low, high = _number(entry.get("low")), _number(entry.get("high"))
            found = column_facts(part, batch.column(part.name), low, high)
            for counts, count in zip((self.missing, self.outside, self.unseen), found, strict=True):
                counts[part.name] = counts.get(part.name, 0) + count

    def add_alarms_(self, label: int, count: int) -> None:
        """Count some alerts."""
        self.alarms[label] = self.alarms.get(label, 0) + count

    def remarks(self, labels: Sequence[str]) -> list[dict[str, str]]:
        """What is remarkable, as sentences with the column they are about."""
        if self.rows < FEWEST:
            return []
        found = []
        for name, entry in self.profile.items():
            text = self._of_column(name, entry)
            if text is not None:
                found.append({"kind": "drift", "column": name, "text": f"column {name!r} {text}"})
        for index, label in enumerate(labels):
            text = self._of_alerts(index)
            if text is not None:
                found.append({"kind": "drift", "column": label, "text": f"{label}: {text}"})
        return found

    def _of_column(self, name: str, entry: Mapping[str, Any]) -> str | None:
        before = _number(entry.get("missing")) or 0.0
        missing, outside, unseen = (counts.get(name, 0) for counts in (self.missing, self.outside, self.unseen))
        present = self.rows - missing
        if missing == self.rows and before < 1:
            return "is missing in all rows"
        if missing / self.rows > before + MORE_MISSING:
            return f"is missing in {missing / self.rows:.0%} of the rows, in training it was in {before:.0%}"
        if outside > FAR * present:
            return f"is far outside the range of the training rows in {outside / present:.0%} of the rows"
        rare = _number(entry.get("rare")) or 0.0
        if unseen / present > rare + MORE_UNSEEN:
            return f"has categories that the model does not know in {unseen / present:.0%} of the rows"
        return None

    def _of_alerts(self, label: int) -> str | None:
        entry = self.alerts[label] if isinstance(self.alerts, list) and label < len(self.alerts) else None
        if not isinstance(entry, list) or len(entry) != 2 or label not in self.alarms:
            return None
        before, counted = _number(entry[0]), _number(entry[1])
        if before is None or not counted:
            return None
        share = self.alarms[label] / self.rows
        pooled = (before * counted + self.alarms[label]) / (counted + self.rows)
        error = np.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / counted + 1 / self.rows))
        ratio = max(share, before) / max(min(share, before), 1e-12)
        if abs(share - before) > DEVIATIONS * error and ratio > ALERT_TIMES:
            return f"{share:.2%} of the rows get an alert, on the rows that measured the model it was {before:.2%}"
        return None


def _entries(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        return []
    return [entry for entry in given if isinstance(entry, dict) and isinstance(entry.get("name"), str)]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
