"""Averaged forests beside the best single forest of the same search, on the binary sets of the public suite.

    python -m benchmarks.trees.averages                          # all of it; resumes from results/trees_averages.csv
    python -m benchmarks.trees.averages --sets mammography --splits 0 1
    python -m benchmarks.trees.averages --report                 # the table from what is finished

Every split: 30 % of the rows measure, a fifth of the others choose, the rest trains. One search trains 12 log-loss
forests. "by metric" keeps the forest with the best exact metric on the rows that choose, "by log-loss" the one with the
lowest log-loss there, and "average" is `model="trees"`. Measured: the exact metric of the aim on the rows that measure.
"""

import argparse
import time
import warnings
from collections import defaultdict
from statistics import fmean

import numpy as np
import torch

import aimfor
from aimfor.model_kinds import KINDS, Problem, Settings, Task
from aimfor.training import Data, FeatureRows, Observer, Scaling
from benchmarks.shared import page, sets
from benchmarks.shared.cells import Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.spread import spread

NAME = "trees_averages"
AIMS = ("recall@precision>=0.9", "precision@recall>=0.9", "tpr@fpr<=0.01", "aucpr", "f1")
OURS, OTHERS = "average", ("by metric", "by log-loss")
# A set is even within 0.002.
WON, EVEN, LOST = (lambda mean: mean > 0.002), (lambda mean: abs(mean) <= 0.002), (lambda mean: mean < -0.002)


class Forests(Observer):
    """Keeps the forests of one split, which do not depend on the aim."""

    def __init__(self):
        self.states = {}

    def save(self, stage, state):
        self.states[stage] = state

    def saved(self, stage):
        return self.states.get(stage)


def run(name: str, rows: sets.Rows, cells: Cells, split: int) -> None:
    if all(cells.find(set=name, split=split, aim=aim, method=OURS) for aim in AIMS):
        return
    parts = sets.split(rows, split)
    features = sets.prepare(*parts)
    labels = [part.labels.astype(np.uint8) for part in parts]
    scaling = Scaling(np.zeros(features[0].shape[1]), np.ones(features[0].shape[1]))  # trees need none
    data = [Data(FeatureRows(X, scaling), torch.from_numpy(Y), None) for X, Y in zip(features, labels, strict=True)]
    problem, forests = Problem(features[0].shape[1], 1, False, scaling, Settings()), Forests()
    for aim in AIMS:
        start = time.perf_counter()
        fit = KINDS["trees"].fit(Task(problem, aimfor.aim(aim), data[0], data[1], split), forests)
        seconds = time.perf_counter() - start
        *singles, average = fit.contest.candidates
        chosen = {
            OURS: average,
            "by metric": max(singles, key=lambda one: (one.value, one.merit)),
            "by log-loss": min(singles, key=lambda one: log_loss(one.scores[:, 0], labels[1][:, 0])),
        }
        for method, candidate in chosen.items():
            scores = fit.model_of(candidate).scores(features[2])[:, 0]
            measured = {"validation": candidate.value, "test": float(aimfor.aim(aim).metric(labels[2][:, 0], scores))}
            cells.add(set=name, split=split, aim=aim, method=method, **measured, seconds=seconds)


def log_loss(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(np.logaddexp(0, np.where(labels == 1, -scores, scores)).mean())


def differences(cells: Cells, other: str, aim: str) -> dict[str, float]:
    """For each set the metric of the average minus that of another method, a mean over splits."""
    by_set = defaultdict(list)
    for row in cells.find(aim=aim, method=OURS):
        (beside,) = cells.find(set=row["set"], split=row["split"], aim=aim, method=other)
        by_set[row["set"]].append(float(row["test"]) - float(beside["test"]))
    return {name: fmean(values) for name, values in by_set.items()}


def report(cells: Cells) -> None:
    print("| average minus | aim | difference | sets won, even, lost |\n|---|---|---|---|")
    for other in OTHERS:
        for aim in AIMS:
            means = list(differences(cells, other, aim).values())
            gain = spread(means)
            counts = [sum(check(mean) for mean in means) for check in (WON, EVEN, LOST)]
            print(f"| {other} | {aim} | {gain.mean:+.4f} ± {gain.error:.4f} | {', '.join(map(str, counts))} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name in sets.BINARY if name not in sets.TEXT]
    parser.add_argument("--sets", nargs="+", choices=names, default=names, metavar="SET", help=", ".join(names))
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--report", action="store_true", help="only the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", aimfor.UndefinedMetricWarning)
    cells = page.committed(NAME)
    if not arguments.report:
        for split in arguments.splits:
            for name in arguments.sets:
                rows = sets.load(name, data_folder(arguments.data))
                if rows is not None:
                    run(name, rows, cells, split)
    report(cells)


if __name__ == "__main__":
    main()
