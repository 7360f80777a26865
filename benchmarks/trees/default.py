"""`aimfor.Classifier` at its defaults beside LightGBM with a search of as many forests, on the public suite.

    python -m benchmarks.trees.default                             # all of it; resumes from results/trees_default.csv
    python -m benchmarks.trees.default --sets mammography --splits 0 1
    python -m benchmarks.trees.default --report                    # the tables from what is finished
    python -m benchmarks.trees.default --quick                     # reproduce a few cells and compare

Every split: 30 % of the rows measure, a fifth of the others choose, the rest fits, the same rows for every method.
LightGBM trains 12 forests by our search on the rows that fit. "by metric" keeps the one with the best exact metric on
the rows that choose, "by log-loss" the one with the lowest log-loss there. "auto" and "trees" are
`Classifier(aim, model=...)` with the same rows. Where 400 rows of each class fit, an eighth of these chooses its model,
and the rows that choose are for its threshold alone. All thresholds are from the rows that choose. Measured on the
other rows: the exact metric of the aim (`test`), and at the threshold the objective and whether the constraint holds.

What does not depend on the aim is trained once for the five aims of a split (replay.py). The quick form trains
everything anew, and finds the same numbers. The methods "option: ..." are the average across kinds and its members.
"""

import argparse
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from sklearn.utils import check_random_state

import aimfor
from aimfor.boosting import FoundForest, Sample, search
from aimfor.estimator._fitting import fit_classifier
from aimfor.model_kinds import Fit, Model
from aimfor.model_kinds._average import Average
from aimfor.training import Observer
from benchmarks.shared import page, sets
from benchmarks.shared.baselines import Candidate
from benchmarks.shared.cells import Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.suite.suite import AIMS, Chosen, Split, by_metric, decided, measured, prepared
from benchmarks.trees.default_report import BY_LOG_LOSS, BY_METRIC, OPTION, OURS, report
from benchmarks.trees.replay import Shared, replayed_networks

NAME = "trees_default"
FORESTS = 12
SPLITS = range(5)
# Cells that are made again in seconds.
QUICK = {"sets": ("mammography", "fault"), "aims": ("aucpr", "tpr@fpr<=0.01")}


def fit_ours(model: str, aim: str, split: Split, seed: int, observer: Observer) -> tuple[Chosen, Fit]:
    """The estimator as a user would call it."""
    classifier = aimfor.Classifier(aim, model=model, random_state=seed)
    held_out = (split.validation.X, split.validation.Y[:, 0])
    start = time.perf_counter()
    fit = fit_classifier(classifier, split.fit.X, split.fit.Y[:, 0], None, held_out, observer)
    seconds = time.perf_counter() - start
    assert fit is not None
    scores = [classifier.decision_function(part.X)[:, None] for part in split[1:]]
    # The decision function has its threshold at 0 already.
    threshold = np.inf if classifier.operating_point_.threshold is None else 0.0
    winner = fit.contest.winner
    return Chosen(Candidate(f"{winner.kind}: {winner.recipe.name}", True, *scores), np.array([threshold]), seconds), fit


def options_of(fit: Fit) -> dict[str, Model]:
    """What the default chooses among first: the average, and each of its members alone."""
    (average,) = (fit.model_of(one) for one in fit.contest.candidates if one.kind == "auto")
    assert isinstance(average, Average)
    return {"average": average, **{member.model.kind: member.model for member in average.members}}


def fit_lightgbm(split: Split, seed: int) -> tuple[list[FoundForest], float]:
    """The forests of the search, on all rows that fit."""
    drawn = int(check_random_state(seed).randint(2**31 - 1))  # as the estimator draws its own
    start = time.perf_counter()
    training, held_out = (Sample(part.X, part.Y[:, 0]) for part in (split.fit, split.validation))
    found = list(search(training, held_out, seed=drawn, forests=FORESTS))
    return found, time.perf_counter() - start


def lightgbm_chosen(split: Split, seed: int, aims: list[str]) -> dict[str, dict[str, Chosen]]:
    """For each aim the single forests that LightGBM's users would keep."""
    forests, seconds = fit_lightgbm(split, seed)
    singles = [
        Candidate(f"forest {one.place + 1}", True, one.scores[:, None], one.forest.scores(split.test.X)[:, None])
        for one in forests
    ]
    lowest = singles[int(np.argmin([one.log_loss for one in forests]))]
    Y = split.validation.Y
    return {
        aim: {
            BY_METRIC: decided(aim, by_metric(aim, singles, Y), Y, seconds),
            BY_LOG_LOSS: decided(aim, lowest, Y, seconds),
        }
        for aim in aims
    }


def run(name: str, rows: sets.Rows, cells: Cells, seed: int, aims: list[str], fresh: bool = False) -> None:
    """All cells of one split that are not finished."""
    missing = [aim for aim in aims if not cells.find(set=name, split=seed, aim=aim, method=OURS)]
    if not missing:
        return
    split = prepared(rows, seed)
    size = {"fit_rows": len(split.fit.Y), "features": split.fit.X.shape[1], "positives": int(rows.labels.sum())}
    lightgbm = {}
    if not all(cells.find(set=name, split=seed, aim=aim, method=BY_LOG_LOSS) for aim in missing):
        lightgbm = lightgbm_chosen(split, seed, missing)
    shared = Shared()
    with nullcontext() if fresh else replayed_networks():
        for aim in missing:
            Y = split.validation.Y
            found = lightgbm.get(aim, {})
            found["trees"] = fit_ours("trees", aim, split, seed, Observer() if fresh else shared)[0]
            ours, fit = fit_ours("auto", aim, split, seed, Observer() if fresh else shared)
            for option, model in options_of(fit).items():
                scores = (model.scores(part.X) for part in split[1:])
                found[f"{OPTION}{option}"] = decided(aim, Candidate(option, True, *scores), Y, 0.0)
            for method, chosen in {**found, OURS: ours}.items():  # ours last: it says that the others are there
                cells.add(set=name, split=seed, aim=aim, method=method, **size, **measured(aim, chosen, split))
    print(f"{name}, split {seed}: done", flush=True)


def again(cells: Cells, folder: Path) -> list[Reproduced]:
    """One split of small sets, every fit by itself."""
    for name in QUICK["sets"]:
        rows = sets.load(name, folder)
        if rows is not None:
            run(name, rows, cells, SPLITS[0], list(QUICK["aims"]), fresh=True)
    keys = ("set", "split", "aim", "method")
    return compare(page.committed(NAME), cells, keys=keys, over="split", measures=("validation", "test"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(sets.BINARY)
    parser.add_argument("--sets", nargs="+", choices=names, default=names, metavar="SET", help=", ".join(names))
    parser.add_argument("--splits", nargs="+", type=int, default=list(SPLITS))
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--report", action="store_true", help="only the tables")
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", aimfor.LowConfidenceWarning)  # the share of constraints that hold is measured
    warnings.simplefilter("ignore", aimfor.UndefinedMetricWarning)
    if arguments.quick:
        return page.hold(lambda cells: again(cells, data_folder(arguments.data)))
    cells = page.committed(NAME)
    if not arguments.report:
        for split in arguments.splits:
            for name in arguments.sets:
                rows = sets.load(name, data_folder(arguments.data))
                if rows is not None:
                    run(name, rows, cells, split, list(AIMS))
    return report(cells)


if __name__ == "__main__":
    main()
