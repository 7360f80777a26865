"""The work of `aimfor compare`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from aimfor.aims import aim as read_aim
from aimfor.cli._fit import Fitted, deciding_rows, measured, train
from aimfor.cli._job import Job
from aimfor.estimator import Scored, points_of
from aimfor.training import Candidate, Contest, Observer, Recipe, plain

# Log-loss beside the aim


def _balanced(recipe: Recipe) -> bool:
    return recipe.aim is None and recipe.balanced


METHODS = {"log-loss": plain, "balanced log-loss": _balanced}


def compare(job: Job, folder: Path, *, splits: int, shown: Observer) -> list[dict[str, Any]]:
    """Log-loss, balanced log-loss and the aim: same model, rows and budget, measured on rows that none of them saw.

    Where several kinds of models compete, the best log-loss candidate of each kind is measured too.

    Args:
        job: what to fit.
        folder: for rows that memory does not hold.
        splits: how many times the rows are split anew.
        shown: who shows progress.

    Returns:
        One dict per split, method and label, as `measure_label` gives, with `split` and `method`.
    """
    for name, only in (("solver", "sgd"), ("surrogate", "auto")):
        value = job.options.get(name, only)
        if value != only:
            raise ValueError(f"{name} must be {only!r}, whose candidates are compared, got {value!r}")
    found = []
    if job.time is not None:
        splits = 1  # by time there is but one split
    for split in range(splits):
        again = dataclasses.replace(job, seed=job.seed + split)
        shown.on_stage_begin("reading the data")
        fitted = train(again.classifier(), again.dataset(folder), shown, job.memory)
        assert fitted.contest is not None, "candidates are there without an exact solver"
        for method, candidate in compared(fitted.contest).items():
            found += [{"split": split, "method": method, **one} for one in measured(_with(fitted, candidate))]
        found += [{"split": split, "method": "aimfor", **one} for one in measured(fitted)]
    return found


def compared(contest: Contest) -> dict[str, Candidate]:
    """The candidates beside ours: log-loss, plain and balanced, and of several kinds the best log-loss of each."""
    found = {method: contest.best(wanted) for method, wanted in METHODS.items()}
    kinds = list(dict.fromkeys(one.kind for one in contest.candidates if plain(one.recipe)))
    for kind in kinds if len(kinds) > 1 else []:
        own = contest._replace(candidates=[one for one in contest.candidates if one.kind == kind])
        found[f"log-loss, {kind}"] = own.best(plain)
    return {method: candidate for method, candidate in found.items() if candidate is not None}


def _with(fitted: Fitted, candidate: Candidate) -> Fitted:
    """The same rows with the model of another candidate, its operating point chosen on the same rows as ours."""
    model = fitted.with_model(candidate)
    held_out, deciding = fitted.held_out, deciding_rows(fitted.held_out)
    labels = fitted.columns(held_out)[deciding]
    weights = None if held_out.weights is None else held_out.weights[deciding]
    rows = Scored(labels, model.raw_scores(held_out.features)[deciding], weights, fitted.points[0].source)
    aim = read_aim(model.aim)
    model.operating_point_ = points_of(aim, [rows] * labels.shape[1], model.confidence)
    return dataclasses.replace(fitted, classifier=model)
