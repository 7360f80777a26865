"""The work of `aimfor watch`: whether a model keeps its promise on rows that come after it was fitted."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aimfor._base.checks import in_range
from aimfor._base.errors import DataError, ModelFileError
from aimfor._base.files import write_text
from aimfor._base.json import read_json
from aimfor.cli._drift import Drift
from aimfor.cli._score import FolderScorer, RowSource, open_scorer, read_known_labels
from aimfor.operating_points import Watch
from aimfor.report import rates_at, watch_page
from aimfor.tables import Matrix, Table, check_name, times_of

FORMAT = "aimfor watches"
LOOKS = 200  # the most places of the stream at which the page shows the evidence
INTERVAL_LEVEL = 0.95


class Watched(NamedTuple):
    """What came of it: facts of each label that has a threshold, and what is remarkable about the rows."""

    labels: list[dict[str, Any]]
    remarks: list[dict[str, Any]]

    @property
    def broken(self) -> bool:
        """Whether a promise no longer holds."""
        return any(question["alarm"] and question["promise"] for one in self.labels for question in one["questions"])

    @property
    def drifted(self) -> bool:
        """Whether alerts or scores are no longer as they were."""
        return any(
            question["alarm"] and not question["promise"] for one in self.labels for question in one["questions"]
        )


class NewRows(NamedTuple):
    """Scores `[n, L]` and labels `[n, L]` (nan where unknown) in the order in which they count; their fingerprint."""

    scores: np.ndarray
    labels: np.ndarray
    fingerprint: str
    remarks: list[dict[str, Any]]


def watch(
    folder: Path, rows: RowSource, out: Path, *, time: str | None, state: Path | None, late: bool, level: float
) -> Watched:
    """Count new rows and write the page.

    Args:
        folder: of the model.
        rows: new rows; labels may be missing in some or in all of them.
        out: the page.
        time: name of a column that orders the rows; None for the order of the files.
        state: a file that keeps the evidence from call to call; None to begin anew.
        late: whether the rows were counted before, so that only their labels are new.
        level: the most that false alarms may amount to.
    """
    if late and state is None:
        raise ValueError("--late goes on with an earlier watch: name its file with --state")
    if out.suffix != ".html":
        raise ValueError(f"--out {out}: the name must end in .html")
    in_range("level", level, 0, 1, open_low=True, open_high=True)
    scorer = open_scorer(folder)
    watches, fingerprints = _begun(scorer, state, level)
    found = _read(scorer, rows, time)
    if not late and found.fingerprint in fingerprints:
        raise DataError("these rows were counted before: name new ones, or add --late if only their labels are new")
    labels = [
        _followed(name, watches[name], found.scores[:, index], found.labels[:, index], late)
        for index, name in enumerate(scorer.labels)
        if name in watches
    ]
    if state is not None:
        _keep(state, watches, [*fingerprints, found.fingerprint])
    watched = Watched(labels, found.remarks + _unwatched(scorer, watches))
    write_text(out, watch_page({"aim": str(scorer.model.classifier.aim), "labels": labels, "level": level}))
    return watched


def _begun(scorer: FolderScorer, state: Path | None, level: float) -> tuple[dict[str, Watch], list[str]]:
    """A watch for each label with a threshold, and the fingerprints of what they have counted."""
    if state is not None and state.exists():
        return _kept(state, scorer)
    having = [index for index, point in enumerate(scorer.points) if point.threshold is not None]
    if not having:
        reasons = "; ".join(dict.fromkeys(str(point.reason) for point in scorer.points))
        raise ModelFileError(f"nothing to watch, as the model has no threshold: {reasons}")
    references = scorer.data.get("scores")
    references = references if isinstance(references, list) and len(references) == len(scorer.labels) else None
    watches = {}
    for index in having:
        reference = None if references is None else references[index]
        # Each label has its share of the false alarms.
        watches[scorer.labels[index]] = Watch(
            scorer.points[index], reference_scores=reference or None, level=level / len(having)
        )
    return watches, []


def _kept(state: Path, scorer: FolderScorer) -> tuple[dict[str, Watch], list[str]]:
    facts = read_json(state)
    kept, fingerprints = facts.get("watches"), facts.get("fingerprints")
    if facts.get("format") != FORMAT or not isinstance(kept, dict) or not isinstance(fingerprints, list):
        raise ModelFileError(f"{state} does not hold a watch: name another file with --state")
    points = dict(zip(scorer.labels, scorer.points, strict=True))
    watches = {}
    for name, facts_of_label in kept.items():
        try:
            watches[name] = Watch.from_json(json.dumps(facts_of_label))
        except ValueError as error:
            raise ModelFileError(f"{state} does not hold a watch: {error}") from error
        if name not in points or watches[name].point != points[name]:
            raise ModelFileError(f"{state} watches another model: name another file with --state")
    return watches, [str(one) for one in fingerprints]


def _keep(state: Path, watches: Mapping[str, Watch], fingerprints: list[str]) -> None:
    kept = {name: json.loads(one.to_json()) for name, one in watches.items()}
    write_text(state, json.dumps({"format": FORMAT, "fingerprints": fingerprints, "watches": kept}) + "\n")


def _read(scorer: FolderScorer, rows: RowSource, time: str | None) -> NewRows:
    with tempfile.TemporaryDirectory(prefix="aimfor-") as place:
        source = rows.opened(Path(place), scorer.missing)
        if time is not None:
            check_name("time", time, [] if isinstance(source, Matrix) else source.schema.names)
        drift = Drift(scorer.model.preparation, scorer.data)
        scores = np.concatenate(
            [scorer.model.classifier.raw_scores(features) for features, _ in scorer.pieces(source, drift)]
        )
        labels, remarks = _labels(scorer, source, len(scores))
        order = np.arange(len(scores))
        if time is not None:
            assert isinstance(source, Table)
            order = np.argsort(times_of(source, time), kind="stable")
        remarks += [] if isinstance(source, Matrix) else [remark._asdict() for remark in source.remarks]
        return NewRows(scores[order], labels[order], source.fingerprint, remarks + drift.remarks(scorer.labels))


def _labels(scorer: FolderScorer, source: Table | Matrix, rows: int) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Labels `[n, L]`, nan where a row has none."""
    absent = source.labels is None if isinstance(source, Matrix) else scorer.label_columns[0] not in source.schema.names
    if absent:
        text = "there is no label: only the share of alerts and the scores are watched"
        return np.full((rows, len(scorer.labels)), np.nan), [{"kind": "no label", "column": None, "text": text}]
    known, present = read_known_labels(scorer, source)
    if len(known) != rows:
        raise DataError(f"the data have {rows} rows but {len(known)} labels")
    labels = known.astype(np.float64)
    if present is None:
        return labels, []
    labels[~present] = np.nan
    text = f"{int((~present).sum()):,} rows have no label: they count for the share of alerts and the scores only"
    return labels, [{"kind": "no label", "column": None, "text": text}]


def _followed(name: str, watch: Watch, scores: np.ndarray, labels: np.ndarray, late: bool) -> dict[str, Any]:
    """Count the rows of a label some at a time, and what was found on the way."""
    trace = [_look(watch)]
    for part in np.array_split(np.arange(len(scores)), min(LOOKS, max(len(scores), 1))):
        watch.update(scores[part], labels[part], seen_before=late)
        trace.append(_look(watch))
    status, known = watch.status(), ~np.isnan(labels)
    questions = [
        {
            "name": question,
            "promise": question in watch.promises,
            "text": _text(watch, question),
            "alarm": status.evidence[question] >= limit,
            "evidence": status.evidence[question],
            "limit": limit,
        }
        for question, limit in status.limits.items()
    ]
    rates = rates_at(watch.point.threshold, labels[known], scores[known], None, INTERVAL_LEVEL) if known.any() else None
    flagged = float((scores >= watch.point.threshold).mean()) if len(scores) else None
    return {
        "name": name,
        "alarm": status.alarm,
        "sentence": str(status),
        "rows": status.rows,
        "labels": status.labels,
        "questions": questions,
        "alerts": flagged,
        "rates": rates,
        "trace": trace,
    }


def _look(watch: Watch) -> dict[str, Any]:
    status = watch.status()
    return {"rows": status.rows, "labels": status.labels, "evidence": status.evidence}


def _text(watch: Watch, question: str) -> str:
    if question in watch.promises:
        sense, target = watch.promises[question]
        return f"{question} {sense} {target:.6g}"
    return {"scores": "scores as before", "share of alerts": "share of alerts as before"}[question]


def _unwatched(scorer: FolderScorer, watches: Mapping[str, Watch]) -> list[dict[str, Any]]:
    names = [name for name in scorer.labels if name not in watches]
    if not names:
        return []
    text = f"{len(names)} labels without a threshold are not watched: {', '.join(names[:5])}"
    return [{"kind": "no threshold", "column": None, "text": text}]
