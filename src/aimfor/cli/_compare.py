"""The work of `aimfor compare`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aimfor._base.ranks import begin_turns
from aimfor.aims import aim as read_aim
from aimfor.cli._fit import Fitted, deciding_rows, measured, train
from aimfor.cli._job import Job
from aimfor.estimator import Scored, points_of
from aimfor.model_kinds import MOST_TREE_LABELS, trees_available, warn_of_missing_trees
from aimfor.training import Candidate, Contest, Observer, Recipe, plain

# Log-loss beside the aim


def _balanced(recipe: Recipe) -> bool:
    return recipe.aim is None and recipe.balanced


METHODS = {"log-loss": plain, "balanced log-loss": _balanced}
FORESTS = "log-loss, trees"
MOST_SHOWN = 20  # labels, of which the kinds are shown side by side


def compare(job: Job, folder: Path, *, splits: int, shown: Observer) -> list[dict[str, Any]]:
    """Log-loss, balanced log-loss and the aim: same model, rows and budget, measured on rows that none of them saw.

    Where several kinds of models compete, the best log-loss candidate of each kind is measured too. Log-loss forests
    are always among them: where trees do not compete, they are trained beside, if their extra is installed.

    Args:
        job: what to fit.
        folder: for rows that memory does not hold.
        splits: how many times the rows are split anew.
        shown: who shows progress.

    Returns:
        One dict per split, method and label, as `measure_label` gives, with `split`, `method` and `beside`, which says
        that the method is of a kind that did not compete.
    """
    for name, only in (("solver", "sgd"), ("surrogate", "auto")):
        value = job.options.get(name, only)
        if value != only:
            raise ValueError(f"{name} must be {only!r}, whose candidates are compared, got {value!r}")
    found: list[dict[str, Any]] = []
    if job.time is not None:
        splits = 1  # by time there is but one split
    for split in range(splits):
        again = dataclasses.replace(job, seed=job.seed + split)
        shown.on_stage_begin("reading the data")
        dataset = again.dataset(folder)
        fitted = train(again.classifier(), dataset, shown, job.memory)
        assert fitted.contest is not None, "candidates are there without an exact solver"
        methods = {method: (fitted, candidate) for method, candidate in compared(fitted.contest).items()}
        forests = _forests(again, fitted, shown)
        methods |= {} if forests is None else {FORESTS: forests}
        for method, (source, candidate) in methods.items():
            named = {"split": split, "method": method, "beside": source is not fitted}
            found += [{**named, **one} for one in measured(_with(source, candidate))]
        found += [{"split": split, "method": "aimfor", "beside": False, **one} for one in measured(fitted)]
    return found


def _forests(job: Job, fitted: Fitted, shown: Observer) -> tuple[Fitted, Candidate] | None:
    """The best log-loss forest on the same rows, where no trees competed and they can be trained."""
    assert fitted.contest is not None
    labels = len(fitted.dataset.label_names)
    if labels > MOST_TREE_LABELS or any(one.kind == "trees" for one in fitted.contest.candidates):
        return None
    if not trees_available():
        warn_of_missing_trees()
        return None
    trees = dataclasses.replace(job, options={**job.options, "model": "trees"})
    source = train(trees.classifier(), fitted.dataset, shown, job.memory)
    assert source.contest is not None
    best = source.contest.best(plain)
    return None if best is None else (source, best)


def side_by_side(fitted: Fitted) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Of each kind the best log-loss candidate and the best other one, measured like the answer, which is marked.

    Numbers are means over labels; with very many labels there are none. Ranks take the candidates by turns.

    Args:
        fitted: the job.

    Returns:
        What gives them, for what the model of the job measured.
    """
    contest = fitted.contest
    if contest is None or len(fitted.dataset.label_names) > MOST_SHOWN:
        return lambda answer: []
    groups: dict[tuple[str, bool], list[Candidate]] = {}
    for one in contest.candidates:
        groups.setdefault((one.kind, plain(one.recipe)), []).append(one)
    best: dict[tuple[str, bool], Candidate] = {}
    for key, own in groups.items():
        chosen = any(one is contest.winner for one in own)
        found = contest.winner if chosen else contest._replace(candidates=own).best(lambda _: True)
        assert found is not None
        best[key] = found
    others = [one for one in best.values() if one is not contest.winner]

    def measure(number: int) -> dict[str, Any]:
        return _means(measured(_with(fitted, others[number]), promises=False))

    wait = begin_turns(measure, len(others), fitted.ranks)

    def finish(answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
        means = iter(wait())
        found = []
        for (kind, log_loss), one in best.items():
            chosen = one is contest.winner
            facts = {"kind": kind, "name": one.recipe.name, "log_loss": log_loss}
            found.append({**facts, **(_means(answer) if chosen else next(means)), "chosen": chosen})
        return found

    return finish


def _means(labels: list[dict[str, Any]]) -> dict[str, float | None]:
    """The means over labels of what was measured."""
    rates = {rate: _mean([one["operating"][rate] for one in labels]) for rate in ("precision", "recall", "fpr")}
    return {"metric": _mean([one["metric"]["ours"] for one in labels]), **rates}


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


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
    weights, groups = (None if one is None else one[deciding] for one in held_out[2:])
    rows = Scored(labels, model.raw_scores(held_out.features)[deciding], weights, fitted.points[0].source, groups)
    aim = read_aim(model.aim)
    model.operating_point_ = points_of(aim, [rows] * labels.shape[1], model.confidence)
    return dataclasses.replace(fitted, classifier=model)
