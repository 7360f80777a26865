"""From a job to a model folder, with log-loss on the same rows for comparison."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import platform
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aimfor._base.errors import DataError
from aimfor._base.ranks import ALONE, Ranks
from aimfor.aims import Aim
from aimfor.aims import aim as read_aim
from aimfor.cli._drift import alert_share, profile_of
from aimfor.cli._job import Job
from aimfor.cli._ranks import Follower, Leader, check_shared
from aimfor.cli._run import Run, alone_in
from aimfor.cli._segments import segments_of
from aimfor.cli._work_folder import WORK, empty, make_work_folder, place_of_rows, remove_work_folder
from aimfor.estimator import Classifier, Extras, fit_classifier
from aimfor.model_folder import save_model
from aimfor.model_kinds import Fit
from aimfor.operating_points import OperatingPoint, choose_points, one_per_label
from aimfor.report import MAX_POINTS, UNSEEN, explain, measure_label, story
from aimfor.tables import Dataset, SplitPart
from aimfor.training import Candidate, Contest, Observer, plain

# With many labels each curve gets fewer points, as a page has to hold them all.
LEAST_POINTS = 50
MOST_WATCHED, REFERENCES = 20, 400  # labels whose scores are kept for a watch, and how many of each
LIBRARIES = ("aimfor", "torch", "numpy", "scikit-learn", "pyarrow")


@dataclass(frozen=True)
class Fitted:
    """A job that was done: the model, its contest (None with an exact solver) and the rows."""

    classifier: Classifier
    fit: Fit | None
    dataset: Dataset

    @property
    def held_out(self) -> SplitPart:
        """Rows that choose."""
        return self.dataset.validation if len(self.dataset.validation.labels) else self.dataset.train

    @property
    def measuring_part(self) -> int:
        """The number of the part of the split that measures."""
        parts = (self.dataset.train, self.dataset.validation, self.dataset.test)
        return max(number for number, part in enumerate(parts) if len(part.labels))

    @property
    def measuring(self) -> tuple[SplitPart, str]:
        """Rows that measure, and what to call them: those that nothing was chosen on, where there are any."""
        if len(self.dataset.test.labels):
            return self.dataset.test, UNSEEN
        if len(self.dataset.validation.labels):
            return self.dataset.validation, "the validation rows, which also chose model and threshold"
        return self.dataset.train, "the rows it was trained on"

    @property
    def ranks(self) -> Ranks:
        """Those that measure together: held-out rows are with all of them, rows to train on are not."""
        share = self.dataset.share
        return share.ranks if share is not None and self.held_out is not self.dataset.train else ALONE

    @property
    def points(self) -> tuple[OperatingPoint, ...]:
        """One per label."""
        points = self.classifier.operating_point_
        return points if isinstance(points, tuple) else (points,)

    def columns(self, part: SplitPart) -> np.ndarray:
        """The labels of a part as 0/1 `[n, L]`; of three and more classes, one column for each."""
        if not self.dataset.multiclass:
            return part.labels.reshape(len(part.labels), -1)
        return (part.labels[:, None] == np.arange(len(self.dataset.classes))).astype(np.uint8)

    def scores(self, part: SplitPart, candidate: Candidate | None = None) -> np.ndarray:
        """Raw scores `[n, L]` of the rows of a part, by the model or by another candidate."""
        return (self.classifier if candidate is None else self.with_model(candidate)).raw_scores(part.features)

    @property
    def contest(self) -> Contest | None:
        """All candidates."""
        return None if self.fit is None else self.fit.contest

    def with_model(self, candidate: Candidate) -> Classifier:
        """The classifier with the model of another candidate; the operating point is left as it is."""
        assert self.fit is not None, "there is no candidate without a contest"
        model = copy.copy(self.classifier)
        model.model_ = self.fit.model_of(candidate)
        return model


def fit(job: Job, out: Path, *, command: str, resume: bool, shown: Observer, ranks: Ranks = ALONE) -> dict[str, Any]:
    """Fit, and write the model folder.

    Args:
        job: what to fit.
        out: the folder; an earlier model in it stays until the new one is whole.
        command: how it was asked for, for the page.
        resume: whether to go on from what an interrupted run left in the folder.
        shown: who shows progress.
        ranks: the processes that fit together; the first writes the folder.

    Returns:
        The facts of the page, but for its history; on other ranks than the first, none.
    """
    check_shared(job.options, job.sql, job.by, ranks)
    if ranks.number > 0:
        _follow(job, ranks)
        return {}
    classifier, work = job.classifier(), make_work_folder(out)
    run = Run(work, shown)
    with alone_in(work), place_of_rows(work) as place:
        if not resume:
            empty(work)
        try:
            return _fit(job, classifier, out, place, command, run, ranks)
        finally:
            # What can be taken up again stays: after a kill, a stop by hand, an error in the midst of training.
            if run.done or not run.begun_stages:
                remove_work_folder(work)


def _follow(job: Job, ranks: Ranks) -> None:
    """What the ranks after the first do: train with it on rows of their own, and take turns with what is measured."""
    from aimfor.cli._compare import side_by_side

    with tempfile.TemporaryDirectory(prefix="aimfor-") as place:
        fitted = train(job.classifier(), job.dataset(Path(place), ranks), Follower(ranks), job.memory)
        if fitted.ranks.size > 1:
            finish = side_by_side(fitted)
            measured(fitted)
            finish([])


def _fit(
    job: Job, classifier: Classifier, out: Path, place: Path, command: str, run: Run, ranks: Ranks
) -> dict[str, Any]:
    from aimfor.cli._compare import side_by_side  # which trains and measures by this module

    started = time.monotonic()
    run.on_stage_begin("reading the data")
    dataset = job.dataset(place, ranks)
    command = job.write(out / WORK, dataset.fingerprint, command)
    _check_confidence(classifier, dataset)
    segments = job.segments(place, dataset.split == Fitted(classifier, None, dataset).measuring_part)
    begun, budget = time.monotonic(), classifier.budget
    with run.interruptible():
        fitted = train(classifier, dataset, run if ranks.size == 1 else Leader(run, ranks), job.memory)
    over = budget is not None and time.monotonic() - begun >= budget
    run.on_stage_begin("measuring")
    beside = side_by_side(fitted)
    labels = measured(fitted, segments)
    facts = {
        "aim": str(read_aim(job.aim)),
        "labels": labels,
        "kinds": beside(labels),
        "importance": _importance(fitted, run),
        "candidates": [{**entry, "chosen": bool(np.any(entry["chosen"]))} for entry in classifier.history_],
        "data": {"said": dataset.said, **dataset.summary},
        "made": _made(job, dataset, command, time.monotonic() - started, run.stopped),
        "confidence": classifier.confidence,
        "group": job.group,
        "time": job.time,
        "stopped": run.stopped,
        "budget_over": over,
    }
    chosen = {} if fitted.contest is None else fitted.contest.winner.loss
    with story(out, facts, run.evaluations):
        save_model(
            out,
            classifier,
            preparation=dataset.preparation,
            extra={"data": _data_facts(job, fitted, labels)},
            loss_state={name: chosen[name] for name in ("multipliers", "thresholds", "priors") if name in chosen},
        )
    run.done = not run.stopped
    return facts


def _data_facts(job: Job, fitted: Fitted, labels: list[dict[str, Any]]) -> dict[str, Any]:
    """What later commands need to know of the data, for model.json."""
    dataset, rows = fitted.dataset, fitted.dataset.row_hashes
    return {
        "label_columns": list(job.labels),
        "labels": list(dataset.label_names),
        "weight": job.weight,
        "group": job.group,
        "fingerprint": dataset.fingerprint,
        "missing": list(job.missing),
        "profile": profile_of(dataset.summary["columns"]),
        "alerts": _alerts(fitted, labels),
        "scores": reference_scores(fitted),
        "row_hashes": list(rows.hashes) if rows else [],
        "row_hash_limit": rows and rows.limit,
        "row_chance": rows and rows.chance,
    }


def _alerts(fitted: Fitted, labels: list[dict[str, Any]]) -> list[list[float] | None]:
    """The share of rows with an alert for each label, and of how many: new rows will count the same each, too."""
    part, _ = fitted.measuring
    if part.weights is None:
        return [alert_share(one["operating"]) for one in labels]
    count, scores = len(part.labels), fitted.scores(part)
    limits = [point.threshold for point in fitted.points]
    return [None if one is None else [float((scores[:, n] >= one).mean()), count] for n, one in enumerate(limits)]


def train(classifier: Classifier, dataset: Dataset, observer: Observer, memory: int) -> Fitted:
    """Fit the classifier on the rows of a data set; of rows on disk trees hold as many as fit into the memory."""
    held_out = tuple(dataset.validation) if len(dataset.validation.labels) else None
    columns = None if dataset.preparation is None else dataset.preparation.table_columns
    X, labels, weights, groups = dataset.train
    extras = Extras(columns, memory, groups, dataset.share, "the validation rows")
    fit = fit_classifier(classifier, X, labels, weights, held_out, observer, extras)
    if len(dataset.label_names) == 1 or dataset.multiclass:
        # Rows came as numbers, a byte each; their names are these.
        classes = np.asarray(_as_values(dataset.classes))
        classifier.targets_ = dataclasses.replace(classifier.targets_, classes=classes)
    return Fitted(classifier, fit, dataset)


def _as_values(classes: tuple[str, ...]) -> list[Any]:
    """Classes that were written as truth values or as numbers as such, others as texts."""
    if classes == ("false", "true"):
        return [False, True]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            values = [kind(text) for text in classes]
            if [str(value) for value in values] == list(classes):
                return values
    return list(classes)


def measured(fitted: Fitted, segments: pa.Array | None = None, *, promises: bool = True) -> list[dict[str, Any]]:
    """Every label on the rows that measure, log-loss beside it, and each value of the segments by itself.

    Without `promises` there is nothing about other targets, which take longer than all the rest. Ranks share these, and
    give nothing else but for the first.
    """
    (part, on), ranks = fitted.measuring, fitted.ranks if promises else ALONE
    baseline = None if fitted.contest is None or ranks.number > 0 else fitted.contest.best(plain)
    held_out, deciding = fitted.held_out, deciding_rows(fitted.held_out)
    scores, chosen_on = fitted.scores(part), fitted.scores(held_out)[deciding]
    other = None if baseline is None else fitted.scores(part, baseline)
    labels, validation = fitted.columns(part), fitted.columns(held_out)[deciding]
    chosen_weights, groups = (None if one is None else one[deciding] for one in held_out[2:])
    names = fitted.dataset.label_names
    aims = aims_of(fitted.classifier, len(names))
    found = [
        measure_label(
            name,
            labels=labels[:, index],
            scores=scores[:, index],
            baseline_scores=None if other is None else other[:, index],
            point=fitted.points[index],
            aim=aims[index],
            weights=part.weights,
            validation=(validation[:, index], chosen_on[:, index], chosen_weights, groups) if promises else None,
            dependent=part.groups is not None,
            num_points=max(LEAST_POINTS, MAX_POINTS // len(names)),
            positive=name if fitted.dataset.multiclass else fitted.dataset.classes[1],
            on=on,
            ranks=ranks,
        )
        for index, name in enumerate(names)
    ]
    for index, entry in enumerate(found if segments is not None else ()):
        own = {"labels": labels[:, index], "scores": scores[:, index], "weights": part.weights}
        entry["segments"] = segments_of(segments, **own, point=fitted.points[index], level=entry["level"])
    return found


def _importance(fitted: Fitted, observer: Observer) -> dict[str, Any] | None:
    """What the columns are worth on the rows that measure; None where these were trained on or lack a class."""
    part, _ = fitted.measuring
    if part is fitted.dataset.train:
        return None
    labels, preparation = fitted.columns(part), fitted.dataset.preparation
    return explain(fitted.classifier, part.features, labels, part.weights, preparation, observer)


def reference_scores(fitted: Fitted) -> list[list[float]]:
    """Scores of some rows that measure, for each label, by which `aimfor watch` sees that scores change."""
    if len(fitted.points) > MOST_WATCHED:
        return []
    part = fitted.measuring[0]
    rows = np.random.default_rng(0).permutation(len(part.labels))[:REFERENCES]
    return [[float(f"{score:.7g}") for score in column] for column in fitted.scores(part)[rows].T]


def aims_of(classifier: Classifier, num_labels: int) -> list[Aim]:
    """The aim of each label by itself."""
    return one_per_label(read_aim(classifier.aim), num_labels)


def deciding_rows(held_out: SplitPart) -> np.ndarray:
    """The numbers of those held-out rows that choose the threshold: all that have a weight."""
    return np.arange(len(held_out.labels)) if held_out.weights is None else np.flatnonzero(held_out.weights)


def _check_confidence(classifier: Classifier, dataset: Dataset) -> None:
    """Refuse a confidence that even a perfect ranking of the rows that choose the threshold could not give."""
    if classifier.confidence is None:
        return
    fitted = Fitted(classifier, None, dataset)
    held_out = fitted.held_out
    deciding = deciding_rows(held_out)
    labels = fitted.columns(held_out)[deciding]
    groups = None if held_out.groups is None else held_out.groups[deciding]
    aims = aims_of(classifier, labels.shape[1])
    for index, name in enumerate(dataset.label_names):
        own, aim = labels[:, index], aims[index]
        point = choose_points(own, own.astype(np.float64), aim, confidence=classifier.confidence, groups=groups)
        if point.threshold is None:
            grouped = "" if groups is None else f" in {point.num_groups} groups, each counted as one row,"
            raise DataError(
                f"--confidence {classifier.confidence:g} needs more validation rows for the threshold than {len(own)}"
                f"{grouped} with {own.sum()} positives of {name!r}: not even a perfect ranking of them could show {aim}"
                ". Hold out more rows with --validation-fraction, or ask for a milder target or a lower confidence."
            )


def _made(job: Job, dataset: Dataset, command: str, seconds: float, stopped: bool) -> dict[str, str]:
    versions = [f"python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES)]
    return {
        "command": command,
        "versions": ", ".join(versions),
        "seed": str(job.seed),
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "fingerprint": dataset.fingerprint,
        "seconds": f"{seconds:.1f}" + (", stopped by hand before it was done" if stopped else ""),
        "model": str(job.options.get("model", "auto")),
    }
