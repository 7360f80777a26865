"""The rivals: what else trains for these aims, on the same data, splits, models, batches, steps and tuning budget.

    pip install -c constraints.txt -r benchmarks/rivals/requirements.txt   # in an environment of its own; see the file
    python -m benchmarks.rivals.rivals                                   # all of it; resumes from results/rivals.csv
    python -m benchmarks.rivals.rivals --sets fault --splits 0 --models linear    # a part
    python -m benchmarks.rivals.rivals --report                          # the tables and results/rivals.png
    python -m benchmarks.rivals.rivals --quick                           # reproduce some cells and compare

Sets, splits and judging are those of suite/suite.py: 30 % of the rows measure, a fifth of the others choose, the rest
fits.
Every method has six settings; the one with the best exact metric on the rows that choose is taken, and its threshold is
chosen there too. A rival without an objective for an aim is judged by its model all the same. methods.py tells
how each is trained, snippets.py holds what a user writes for each and is what is timed, report.py ranks.
`aimfor` is the bare loss at its defaults in the same loop and grid; its variants are rows of their own.

Small sets come first, split by split, so that a run that is stopped leaves whole tables.
"""

import argparse
import sys
import tempfile
import time
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from aimfor import metrics
from benchmarks.rivals import sections, snippets
from benchmarks.rivals.methods import METHODS, OURS, VARIANTS, installed
from benchmarks.rivals.report import CSV, draw
from benchmarks.rivals.training import BATCH_SIZE, STEPS, Method, Task, prepared
from benchmarks.shared import sets
from benchmarks.shared.baselines import Candidate
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.reproduced import Reproduced, compare, told
from benchmarks.suite import suite

SMALL = ("fault", "PageBlocks", "Waveform", "satellite", "annthyroid", "mammography", "bankruptcy_year5", "skin")
SMALL += ("bankruptcy_year1", "htru2", "cover", "sms_spam")
LARGE = tuple(name for name in sets.BINARY if name not in SMALL)
MODELS = ("linear", "mlp")
SPLITS = (0, 1, 2)
KEYS = ("stage", "model", "set", "split", "method", "aim")
# Cheap cells of the full run: one small set, one split, a few seconds a method.
QUICK = {"sets": ("fault",), "splits": (0,)}
# The smallest spread that cells are held to. Rounding moves few cells, and those by the setting that is then chosen:
# another engine moved one of a network by 0.02.
FLOORS = {"linear": 0.005, "mlp": 0.02}
QUICK_METHODS = ("BCE", "balanced BCE", "focal", "LibAUC AP", "Cooper", "scikit-learn", "LightGBM", "aimfor")
QUICK_COSTS = ("BCE", "balanced BCE", "aimfor", "LibAUC AP")
FACTOR = 2.5  # how far the ratio of a cost to that of log-loss may be off on another machine


def run(
    name: str, cells: Cells, split: int, model: str, methods: tuple[str, ...], aims: list[str], folder: Path
) -> None:
    """The cells of one set, split and model that are not finished."""
    key = {"stage": "quality", "model": model, "set": name, "split": split}
    missing = {
        method: [
            group
            for group in METHODS[method].shared
            if any(aim in aims and not done(cells, key, method, aim) for aim in group)
        ]
        for method in methods
        if model in METHODS[method].models
    }
    rows = loaded(name, folder) if any(missing.values()) else None
    if rows is None:
        return
    task = prepared(suite.prepared(rows, split), model, split)
    size = {"fit_rows": len(task.X), "features": task.X.shape[1], "positives": int(rows.labels.sum())}
    for method, groups in missing.items():
        for group in groups:
            start = time.perf_counter()
            grids = METHODS[method].train(task, group)
            seconds = (time.perf_counter() - start) / (len(group) if method in (OURS, *VARIANTS) else 1)
            for aim in group:
                if not done(cells, key, method, aim):
                    measured = suite.measured(aim, chosen(task, aim, METHODS[method], grids[aim], seconds), task.split)
                    keep(cells, **key, method=method, aim=aim, **size, **measured)
        if groups:
            print(f"{name}, split {split}, {model}, {method}: done", flush=True)


@lru_cache
def loaded(name: str, folder: Path) -> sets.Rows | None:
    return sets.load(name, folder)


def done(cells: Cells, key: dict[str, object], method: str, aim: str) -> bool:
    return bool(cells.find(**key, method=method, aim=aim))


def chosen(task: Task, aim: str, method: Method, candidates: list[Candidate], seconds: float) -> suite.Chosen:
    """The setting and the threshold, both from the rows that choose."""
    Y = task.split.validation.Y
    best = suite.decided(aim, suite.by_metric(aim, candidates, Y), Y, seconds)
    if method.threshold is None:
        return best
    return best._replace(thresholds=np.array([method.threshold(task, aim, best.candidate)]))


QUALITY = ("fit_rows", "features", "positives", "chosen", "converged", "validation", "test", "objective")
QUALITY += ("constraint", "holds", "seconds")
COST = ("microseconds", "time_ratio", "time_low", "time_high", "peak_mb", "lines")


def keep(cells: Cells, **cell: object) -> None:
    """A row of either stage; what belongs to the other stays empty."""
    method = str(cell["method"])
    package = METHODS[method].package if method in METHODS else snippets.PACKAGES[method]
    given = {name: cell.get(name, "") for name in (*KEYS, *QUALITY, *COST)}
    cells.add(**given, steps=STEPS, batch=BATCH_SIZE, package=installed(package))


def run_costs(cells: Cells, methods: tuple[str, ...]) -> None:
    """Seconds and memory of a step, and lines, measured together because they are compared."""
    key = {"stage": "cost", "model": "linear", "set": "", "split": "", "aim": ""}
    if all(cells.find(**key, method=method) for method in methods):
        return
    for method in methods:
        cells.drop(**key, method=method)
    for method, cost in snippets.measured(methods).items():
        keep(cells, **key, method=method, **cost)


def available(methods: tuple[str, ...], packages: dict[str, str | None]) -> tuple[str, ...]:
    """Those whose package is installed; a line for every other."""
    for name in methods:
        if not installed(packages[name]):
            print(f"skipped {name}: {packages[name]} is not installed (benchmarks/rivals/requirements.txt)")
    return tuple(name for name in methods if installed(packages[name]))


def run_all(cells: Cells, arguments: argparse.Namespace) -> None:
    """Small sets first, split by split, and in a split the variants of ours after everything else."""
    folder = data_folder(arguments.data)
    methods = available(tuple(arguments.methods), {name: one.package for name, one in METHODS.items()})
    main = tuple(method for method in methods if method not in VARIANTS)
    variants = tuple(method for method in methods if method in VARIANTS)
    for model in arguments.models:
        for group in (SMALL, LARGE):
            for split in arguments.splits:
                for part in (main, variants):
                    for name in (one for one in group if one in arguments.sets):
                        run(name, cells, split, model, part, arguments.aims, folder)


def quick(arguments: argparse.Namespace) -> bool:
    """Some cells again, beside the committed ones."""
    committed = Cells(CSV)
    with tempfile.TemporaryDirectory() as folder:
        found, costs = [], Cells(Path(folder) / "costs.csv")
        for model, floor in FLOORS.items():
            again = Cells(Path(folder) / f"{model}.csv")
            settings = vars(arguments) | QUICK | {"methods": QUICK_METHODS, "models": (model,)}
            run_all(again, argparse.Namespace(**settings))
            found += compare(committed, again, keys=KEYS, over="split", measures=("test",), floor=floor)
        run_costs(costs, available(QUICK_COSTS, snippets.PACKAGES))
    quality = told(found)
    ratios = [ratio_again(committed, row) for row in costs.rows if row["method"] != "BCE"]
    print(f"costs as ratios to log-loss, within a factor of {FACTOR}:")
    return told(ratios) and quality


def ratio_again(committed: Cells, row: dict[str, str]) -> Reproduced:
    """The logarithm of a cost's ratio, so that a factor is a difference."""
    found = committed.find(**{name: row[name] for name in KEYS})
    was = float(found[0]["time_ratio"]) if found else float("nan")
    name = f"{row['method']}: log of the time of a step over that of log-loss"
    return Reproduced(name, float(np.log(was)), float(np.log(float(row["time_ratio"]))), float(np.log(FACTOR)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*SMALL, *LARGE]
    parser.add_argument("--sets", nargs="+", choices=names, default=names, metavar="SET", help=", ".join(names))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--aims", nargs="+", choices=list(suite.AIMS), default=list(suite.AIMS))
    parser.add_argument("--splits", nargs="+", type=int, default=SPLITS)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--costs", action="store_true", help="only what a step costs")
    parser.add_argument("--report", action="store_true", help="only the tables and the plot")
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", metrics.UndefinedMetricWarning)
    if arguments.quick:
        sys.exit(0 if quick(arguments) else 1)
    RESULTS.mkdir(exist_ok=True)
    cells = Cells(CSV)
    if not arguments.report:
        run_costs(cells, available(tuple(snippets.SNIPPETS), snippets.PACKAGES))
        if not arguments.costs:
            run_all(cells, arguments)
    print(sections.section(), sections.budget_section(), sections.cost_section(), sep="\n\n")
    draw(cells)


if __name__ == "__main__":
    main()
