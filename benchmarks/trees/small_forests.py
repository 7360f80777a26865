"""Small forests: the objective of an aim beside log-loss, at most 40 trees of 4 leaves.

    python -m benchmarks.trees.small_forests             # all of it; resumes from results/small_forests.csv
    python -m benchmarks.trees.small_forests --sets htru2 --splits 0
    python -m benchmarks.trees.small_forests --report    # the table from what is finished

Thirteen sets with 2 to 24 % positives, five splits: 30 % of the rows measure, a fifth of the others choose, the rest
fits. Every method has nine forests, three rates at three numbers of trees. The rows that choose take the forest with
the highest sum of 2/3 of the aim's exact metric and 1/3 of average precision, and the objective takes its thresholds
from them. Measured on the other rows: the aim's exact metric.
"""

import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

import lightgbm
import numpy as np

import aimfor
from aimfor.boosting import metric, objective, starting_score
from benchmarks.shared import page, sets
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.spread import spread

NAME = "small_forests"
SETS = ("mammography", "adult", "w8a", "ijcnn1", "htru2", "diabetes130", "bankruptcy_year1", "bankruptcy_year5")
SETS += ("campaign", "celeba", "annthyroid", "PageBlocks", "ALOI")
SPLITS = range(5)
AIMS = ("recall@precision>=0.9", "precision@recall>=0.9", "tpr@fpr<=0.01", "aucpr", "f1")
LOG_LOSS = "log-loss"
METHODS = (LOG_LOSS, "focus", "ratio")
LEAVES, RATES, TREES = 4, (0.1, 0.2, 0.4), (10, 20, 40)
AREA_SHARE = 1 / 3


class Part(NamedTuple):
    """Features and labels."""

    X: sets.Features
    y: np.ndarray


class Candidate(NamedTuple):
    """A forest: its rate, its number of trees and its scores of the rows that choose and that measure."""

    rate: float
    trees: int
    choose: np.ndarray
    measure: np.ndarray


def forests(parts: list[Part], method: str, aim: str | None) -> Iterator[Candidate]:
    """The nine forests of a method; log-loss has no aim."""
    fit, choose, measure = parts
    start = starting_score(fit.y)
    for rate in RATES:
        settings = {"num_leaves": LEAVES, "learning_rate": rate, "num_threads": 1, "verbose": -1, "metric": "none"}
        data = lightgbm.Dataset(*fit, init_score=np.full(len(fit.y), start))
        options = {}
        if aim is None:
            settings["objective"], settings["boost_from_average"] = "binary", False
        else:
            rounds = max(TREES) // 4 if method == "focus" else 0
            settings["objective"] = objective(aim, method=method, log_loss_rounds=rounds)
            held = lightgbm.Dataset(*choose, init_score=np.full(len(choose.y), start), reference=data)
            options = {"valid_sets": [held], "feval": metric(aim, feeds=settings["objective"])}
        booster = lightgbm.train(settings, data, max(TREES), **options)
        for trees in TREES:
            scores = (booster.predict(part.X, raw_score=True, num_iteration=trees) for part in (choose, measure))
            yield Candidate(rate, trees, *scores)


def merit(aim: str, y: np.ndarray, scores: np.ndarray) -> float:
    area = aimfor.metrics.average_precision(y, scores)
    return (1 - AREA_SHARE) * aimfor.aim(aim).metric(y, scores) + AREA_SHARE * area


def run(cells: Cells, name: str, split: int, folder) -> None:
    todo = [(aim, method) for aim in AIMS for method in METHODS]
    todo = [key for key in todo if not cells.find(set=name, split=split, aim=key[0], method=key[1])]
    rows = sets.load(name, folder) if todo else None
    if rows is None:
        return
    raw = sets.split(rows, split)
    parts = [Part(X, part.labels[:, 0]) for X, part in zip(sets.prepare(*raw), raw, strict=True)]
    began = time.perf_counter()
    plain = [*forests(parts, LOG_LOSS, None)]
    plain_seconds = time.perf_counter() - began
    for aim, method in todo:
        began = time.perf_counter()
        grid = plain if method == LOG_LOSS else [*forests(parts, method, aim)]
        seconds = plain_seconds if method == LOG_LOSS else time.perf_counter() - began
        best = max(grid, key=lambda candidate: merit(aim, parts[1].y, candidate.choose))
        cells.add(
            set=name,
            split=split,
            aim=aim,
            method=method,
            rows=len(parts[0].y),
            positives=float(parts[0].y.mean()),
            rate=best.rate,
            trees=best.trees,
            choose=float(aimfor.aim(aim).metric(parts[1].y, best.choose)),
            test=float(aimfor.aim(aim).metric(parts[2].y, best.measure)),
            seconds=seconds,
            lightgbm=lightgbm.__version__,
        )
    print(f"{name}, split {split}: done", flush=True)


def rows_of(cells: Cells) -> list[list[str]]:
    """The level of log-loss and differences to it on test rows: means over sets with their standard errors."""
    level = [f"{spread(_by_set(cells, LOG_LOSS, aim).values()).mean:.3f}" for aim in AIMS]
    found = [["log-loss, level", *level]]
    for method in METHODS[1:]:
        entries = []
        for aim in AIMS:
            ours, plain = (_by_set(cells, one, aim) for one in (method, LOG_LOSS))
            gain = spread(ours[name] - plain[name] for name in ours)
            entries.append(f"{gain.mean:+.3f} ± {gain.error:.3f}")
        found.append([f'`"{method}"`', *entries])
    return found


def report(cells: Cells) -> str:
    counted = {row["set"] for row in cells.rows}
    table = page.grid(["method", *AIMS], rows_of(cells))
    return f"{table}\n\n{len(counted)} sets, {len(cells.rows)} cells"


def _by_set(cells: Cells, method: str, aim: str) -> dict[str, float]:
    found = cells.find(method=method, aim=aim)
    return {
        name: float(np.mean([float(row["test"]) for row in found if row["set"] == name]))
        for name in SETS
        if any(row["set"] == name for row in found)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--splits", nargs="+", type=int, default=SPLITS)
    parser.add_argument("--data")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    cells = Cells(RESULTS / f"{NAME}.csv")
    if not arguments.report:
        for split in arguments.splits:
            for name in arguments.sets:
                run(cells, name, split, data_folder(arguments.data))
    print(report(cells))


if __name__ == "__main__":
    main()
