"""The public suite: `aimfor.Classifier` at its defaults beside log-loss, converged and tuned, on held-out rows.

    python -m benchmarks.suite.suite                                 # all of it; resumes from results/suite.csv
    python -m benchmarks.suite.suite --sets mammography --splits 0 1 # a part
    python -m benchmarks.suite.suite --methods log-loss balanced either  # the baselines only
    python -m benchmarks.suite.suite --report                        # the tables from what is finished
    python -m benchmarks.suite.suite --quick                         # reproduce a few cells and compare

Every split: 30 % of the rows measure, a fifth of the others choose, the rest fits, the same rows for every method.
Plain and balanced log-loss choose their setting per aim by the aim's exact metric on the rows that choose (ties by
average precision); "either" has the settings of both and chooses as the estimator does. All methods take their
threshold from these rows: best objective subject to the aim's constraint, for the area the best F1. Measured on the
other rows: the aim's exact metric (`test`, which needs no threshold from elsewhere), and at the threshold the objective
and whether the constraint holds. shared/sets.py prepares the sets, shared/baselines.py trains the baselines, report.py
tests the differences.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import aimfor
from aimfor import metrics
from aimfor.training import _contest as candidates
from aimfor.training import _loop as training
from aimfor.training._recipes import Recipe
from benchmarks.shared import page, sets
from benchmarks.shared.baselines import Candidate, logistic_regressions, networks
from benchmarks.shared.cells import Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.shared.sets import Features, Rows
from benchmarks.suite.report import EITHER, OURS, draw, report

NAME, LABELS_PICTURE = "suite", "suite_labels"
MODELS = ("linear", "mlp")
# The baselines, and whether the classes of their settings are balanced.
BASELINES = {"log-loss": (False,), "balanced": (True,), EITHER: (False, True)}
METHODS = (*BASELINES, OURS)
SPLITS = range(5)
# Cells that are made again in seconds.
QUICK = {"sets": ("mammography", "enron", "fault"), "aims": ("aucpr", "recall@precision>=0.9")}


class Judge(NamedTuple):
    """How an aim is judged at a threshold: who chooses it, what counts there, and what must hold (name and target)."""

    choose: Callable[[np.ndarray, np.ndarray], metrics.AtThreshold]
    objective: str
    constraint: str | None = None
    target: float = 0.0


AIMS = {
    "aucpr": Judge(metrics.f_beta, "f1"),
    "recall@precision>=0.9": Judge(lambda y, s: metrics.recall_at_precision(y, s, 0.9), "recall", "precision", 0.9),
    "precision@recall>=0.9": Judge(lambda y, s: metrics.precision_at_recall(y, s, 0.9), "precision", "recall", 0.9),
    "f1": Judge(metrics.f_beta, "f1"),
    "tpr@fpr<=0.01": Judge(lambda y, s: metrics.tpr_at_fpr(y, s, 0.01), "recall", "fpr", 0.01),
}
MULTILABEL_AIMS = ("aucpr", "f1")


class Part(NamedTuple):
    """Prepared features and labels [n, L]."""

    X: Features
    Y: np.ndarray


class Split(NamedTuple):
    """The rows that fit, choose and measure."""

    fit: Part
    validation: Part
    test: Part


class Chosen(NamedTuple):
    """What a method offers for one aim: scores of both parts, and thresholds, one per label (inf: none qualifies)."""

    candidate: Candidate
    thresholds: np.ndarray
    seconds: float


def prepared(rows: Rows, seed: int) -> Split:
    parts = sets.split(rows, seed)
    return Split(*(Part(X, part.labels) for X, part in zip(sets.prepare(*parts), parts, strict=True)))


def macro(aim: str, Y: np.ndarray, scores: np.ndarray) -> float:
    """The aim's exact metric, averaged over the labels that have a positive among these rows."""
    return float(np.nanmean(aimfor.aim(aim).metric(Y, scores)))


def by_metric(aim: str, grid: list[Candidate], Y: np.ndarray) -> Candidate:
    """The candidate with the best exact metric on the rows that choose, of equals that with the best ranking."""
    merits = [(macro(aim, Y, one.validation), macro("aucpr", Y, one.validation)) for one in grid]
    return grid[max(range(len(grid)), key=merits.__getitem__)]


def as_the_estimator(aim: str, grids: dict[bool, list[Candidate]], Y: np.ndarray, seed: int) -> Candidate:
    """The candidate of plain or balanced log-loss that the rule of the estimator keeps."""
    parsed = aimfor.aim(aim)
    found, trained = [], []
    for balanced, grid in grids.items():
        for one in grid:
            judgement = candidates.judgement(parsed, one.validation, Y, None)
            found.append(one)
            trained.append(training.Candidate(Recipe(None, balanced=balanced), *judgement, one.validation, {}, 0, {}))
    return found[candidates.choose(trained, parsed, Y, None, seed)]


def decided(aim: str, best: Candidate, Y: np.ndarray, seconds: float) -> Chosen:
    """A baseline with its thresholds."""
    thresholds = AIMS[aim].choose(Y, best.validation).threshold
    return Chosen(best, np.nan_to_num(thresholds, nan=np.inf, posinf=np.inf), seconds)


def fit_aimfor(aim: str, split: Split, model: str, seed: int) -> Chosen:
    """The estimator as a user would call it, on the same rows."""
    single = split.fit.Y.shape[1] == 1
    labels = [part.Y[:, 0] if single else part.Y for part in split]
    start = time.perf_counter()
    classifier = aimfor.Classifier(aim, model=model, random_state=seed)
    classifier.fit(split.fit.X, labels[0], validation_data=(split.validation.X, labels[1]))
    seconds = time.perf_counter() - start
    scores = [classifier.decision_function(part.X).reshape(len(part.Y), -1) for part in split[1:]]
    points = [classifier.operating_point_] if single else classifier.operating_point_
    # The decision function has its threshold at 0 already.
    thresholds = np.array([np.inf if point.threshold is None else 0.0 for point in points])
    name = " + ".join(str(entry["name"]) for entry in classifier.history_ if np.any(entry["chosen"]))
    return Chosen(Candidate(name, True, *scores), thresholds, seconds)


def measured(aim: str, chosen: Chosen, split: Split) -> dict[str, object]:
    """The numbers of a cell."""
    judge, Y = AIMS[aim], split.test.Y
    rates = rates_at(Y, chosen.candidate.test >= chosen.thresholds)
    value = float(np.nanmean(rates[judge.objective]))
    attained = holds = ""
    if judge.constraint is not None:
        attained = float(rates[judge.constraint][0])
        if np.isinf(chosen.thresholds[0]):
            holds, value = "no threshold", 0.0  # not the precision of no alarm at all
        else:
            holds = attained <= judge.target if judge.constraint == "fpr" else attained >= judge.target
    return {
        "chosen": chosen.candidate.name,
        "converged": chosen.candidate.converged,
        "validation": macro(aim, split.validation.Y, chosen.candidate.validation),
        "test": macro(aim, Y, chosen.candidate.test),
        "objective": value,
        "constraint": attained,
        "holds": holds,
        "seconds": chosen.seconds,
    }


def rates_at(Y: np.ndarray, positive: np.ndarray) -> dict[str, np.ndarray]:
    """Rates of the predictions per label; nan for labels without positives. No alarm at all is precision 1."""
    tp, fp = (Y * positive).sum(0).astype(float), ((1 - Y) * positive).sum(0).astype(float)
    positives, negatives = Y.sum(0).astype(float), (1 - Y).sum(0).astype(float)
    positives[positives == 0] = np.nan
    alarms = tp + fp
    return {
        "precision": np.divide(tp, alarms, out=np.ones_like(tp), where=alarms > 0),
        "recall": tp / positives,
        "fpr": fp / negatives,
        "f1": 2 * tp / (alarms + positives),
    }


def run(name: str, rows: Rows, cells: Cells, seed: int, model: str, aims: list[str], methods: list[str]) -> None:
    """All cells of one split and model that are not finished."""
    key = {"set": name, "labels": rows.labels.shape[1], "model": model, "split": seed}
    missing = {one: [aim for aim in aims if not cells.find(**key, method=one, aim=aim)] for one in methods}
    if not any(missing.values()):
        return
    split = prepared(rows, seed)
    size = {"fit_rows": len(split.fit.Y), "features": split.fit.X.shape[1], "positives": int(rows.labels.sum())}

    def keep(method: str, aim: str, chosen: Chosen) -> None:
        cells.add(**key, method=method, aim=aim, **size, **measured(aim, chosen, split))

    asked = {one: balanced for one, balanced in BASELINES.items() if missing.get(one)}
    grids, seconds = log_losses(split, model, seed, sorted({one for balanced in asked.values() for one in balanced}))
    for method, balanced in asked.items():
        for aim in missing[method]:
            Y = split.validation.Y
            best = as_the_estimator(aim, grids, Y, seed) if method == EITHER else by_metric(aim, grids[balanced[0]], Y)
            keep(method, aim, decided(aim, best, Y, sum(seconds[one] for one in balanced)))
    for aim in missing.get(OURS, ()):
        keep(OURS, aim, fit_aimfor(aim, split, model, seed))
    print(f"{name}, split {seed}, {model}: done", flush=True)


def log_losses(
    split: Split, model: str, seed: int, weightings: list[bool]
) -> tuple[dict[bool, list[Candidate]], dict[bool, float]]:
    """The grid of each weighting of the classes, balanced or not, and the seconds it took."""
    (X, Y), (X_validation, Y_validation), (X_test, _) = split
    if model == "mlp" and weightings:
        start = time.perf_counter()
        grids = networks(X, Y, X_validation, Y_validation, X_test, balanced=weightings, seed=seed)
        return grids, dict.fromkeys(grids, (time.perf_counter() - start) / len(weightings))
    grids, seconds = {}, {}
    for balanced in weightings:
        start = time.perf_counter()
        grids[balanced] = logistic_regressions(X, Y, X_validation, X_test, balanced=balanced)
        seconds[balanced] = time.perf_counter() - start
    return grids, seconds


def again(cells: Cells, folder: Path) -> list[Reproduced]:
    """One split of small sets, linear, one of them sparse with several labels; of the last one also our network."""
    for name in QUICK["sets"]:
        rows = sets.load(name, folder)
        if rows is not None:
            run(name, rows, cells, SPLITS[0], "linear", *asked_of(rows, list(QUICK["aims"]), list(METHODS)))
            if name == QUICK["sets"][-1]:
                run(name, rows, cells, SPLITS[0], "mlp", list(QUICK["aims"]), [OURS])
    keys = ("set", "labels", "model", "split", "method", "aim")
    return compare(page.committed(NAME), cells, keys=keys, over="split", measures=("validation", "test"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*sets.BINARY, *sets.MULTILABEL]
    parser.add_argument("--sets", nargs="+", choices=names, default=names, metavar="SET", help=", ".join(names))
    parser.add_argument("--aims", nargs="+", choices=list(AIMS), default=list(AIMS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--splits", nargs="+", type=int, default=list(SPLITS))
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--redo", action="store_true", help="forget the cells that are asked for first")
    parser.add_argument("--report", action="store_true", help="only the tables")
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", aimfor.LowConfidenceWarning)  # the share of constraints that hold is measured
    warnings.simplefilter("ignore", metrics.UndefinedMetricWarning)  # labels without a positive are left out of a mean
    if arguments.quick:
        return page.hold(lambda cells: again(cells, data_folder(arguments.data)))
    cells = page.committed(NAME)
    if not arguments.report:
        run_all(cells, arguments)
    report(cells, list(AIMS))
    draw(NAME, cells, list(AIMS))
    draw(LABELS_PICTURE, cells, list(MULTILABEL_AIMS), single=False)


def asked_of(rows: Rows, aims: list[str], methods: list[str]) -> tuple[list[str], list[str]]:
    """The aims and methods that sets with so many labels have."""
    if rows.labels.shape[1] == 1:
        return aims, methods
    return [aim for aim in aims if aim in MULTILABEL_AIMS], [one for one in methods if one in ("log-loss", OURS)]


def run_all(cells: Cells, arguments: argparse.Namespace) -> None:
    for name in arguments.sets:
        rows = sets.load(name, data_folder(arguments.data))
        if rows is None:
            continue
        aims, methods = asked_of(rows, arguments.aims, arguments.methods)
        models = [model for model in arguments.models if model == "linear" or name not in sets.TEXT]
        for model in models:
            for seed in arguments.splits:
                if arguments.redo:
                    for aim in aims:
                        for method in methods:
                            cells.drop(set=name, split=seed, model=model, aim=aim, method=method)
                run(name, rows, cells, seed, model, aims, methods)


if __name__ == "__main__":
    main()
