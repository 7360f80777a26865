"""What trees and the default cost beside the bare LightGBM search: processor time and memory of a fit on one core.

    python -m benchmarks.trees.costs                          # both sizes; resumes from results/trees_costs.csv
    python -m benchmarks.trees.costs --sizes 20000x20         # the smaller one
    python -m benchmarks.trees.costs --report
    python -m benchmarks.trees.costs --quick                  # the smaller one again, compared

The bare search holds a fifth of the rows back and calls LightGBM alone, with the same settings, rounds and patience as
ours. "trees" and "auto" are `Classifier("aucpr", model=...)` on the same rows, with everything that a fit does. Every
fit has a fresh process, and the methods take turns. Memory is the highest resident size during the fit over that before
it, when the rows are there already. Rows: 5 % positives, a linear signal and noise, float32.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from typing import Any
from unittest import mock

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

import aimfor
from aimfor.boosting import _search
from aimfor.model_kinds import _forest_search
from benchmarks.cost.estimator_cost import current_memory, make_rows, peak_memory
from benchmarks.shared import page
from benchmarks.shared.cells import Cells
from benchmarks.shared.reproduced import Reproduced

NAME = "trees_costs"
BARE, METHODS = "LightGBM", ("LightGBM", "trees", "auto")
# Forests of a search and fits of each size: those of the larger one take minutes.
FORESTS = {"20000x20": 12, "1000000x50": 12}
REPEATS = {"20000x20": 1, "1000000x50": 1}
# Ratios of times vary so much between minutes of a shared machine.
TOLERANCE = 1.3


def bare_search(X: np.ndarray, y: np.ndarray, forests: int) -> None:
    """What a user of LightGBM would write."""
    import lightgbm

    fit, held, fit_labels, held_labels = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
    data = lightgbm.Dataset(fit, fit_labels, params={"feature_pre_filter": False, "verbose": -1, "num_threads": 1})
    held_out = lightgbm.Dataset(held, held_labels, reference=data)
    seed = int(check_random_state(0).randint(2**31 - 1))  # as the estimator draws its own
    for place in range(forests):
        settings = _search.settings_of(seed, place)
        rounds = settings.pop("rounds")
        settings |= {"metric": "binary_logloss", "num_threads": 1, "verbose": -1, "feature_pre_filter": False}
        stop = lightgbm.early_stopping(round(_search.PATIENCE * rounds), verbose=False)
        lightgbm.train(settings, data, rounds, valid_sets=[held_out], callbacks=[stop])


def fit(method: str, X: np.ndarray, y: np.ndarray, forests: int) -> None:
    if method == BARE:
        bare_search(X, y, forests)
    else:
        with mock.patch.object(_forest_search, "FORESTS", forests):
            aimfor.Classifier("aucpr", model=method, random_state=0).fit(X, y)


def measure(method: str, size: str) -> None:
    """In a fresh process: print seconds and bytes of one fit."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", aimfor.LowConfidenceWarning)
    rows, width = map(int, size.split("x"))
    X, y = make_rows("dense", (rows, width))
    fit(method, X[:2000], y[:2000], 2)  # what is loaded once
    base = current_memory()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    start, wall = time.process_time(), time.perf_counter()
    fit(method, X, y, FORESTS[size])
    times = {"processor": time.process_time() - start, "seconds": time.perf_counter() - wall}
    print(json.dumps({**times, "bytes": peak_memory() - base}))


def run(cells: Cells, size: str) -> None:
    for repeat in range(REPEATS[size]):
        for method in METHODS:
            if not cells.find(size=size, method=method, repeat=repeat):
                command = [sys.executable, "-m", "benchmarks.trees.costs", "--one", method, size]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found = json.loads(done.stdout)
                cells.add(size=size, method=method, forests=FORESTS[size], repeat=repeat, **found)
                print(size, method, found, flush=True)


def ratios(cells: Cells, size: str, method: str) -> dict[str, float]:
    """Processor seconds, megabytes, and both over the bare search; the least of the repeats."""

    def least(which: str, column: str) -> float:
        return min(page.values(cells.find(size=size, method=which), column))

    found = {"processor": least(method, "processor"), "bytes": least(method, "bytes")}
    return {
        "seconds": found["processor"],
        "megabytes": found["bytes"] / 2**20,
        **{f"{name} ratio": value / least(BARE, name) for name, value in found.items()},
    }


def default_fit() -> tuple[str, str]:
    """Processor seconds of a default fit of 20,000 x 20 rows, and of the bare search of as many forests."""
    cells = page.committed(NAME)
    ours, theirs = (ratios(cells, "20000x20", method)["seconds"] for method in ("auto", BARE))
    return f"{ours:.1f}", f"{theirs:.1f}"


def forests_told(cells: Cells) -> str:
    """How many forests each size has, as a sentence."""
    counts = {size: cells.find(size=size)[0]["forests"] for size in FORESTS if cells.find(size=size)}
    told = ", ".join(f"{count} forests of {_shown(size)} rows" for size, count in counts.items())
    return f"Searches have {told}."


def _shown(size: str) -> str:
    return " x ".join(f"{int(part):,}" for part in size.split("x"))


def table(cells: Cells) -> str:
    lines = []
    for size in REPEATS:
        for method in METHODS:
            if cells.find(size=size, method=method) and cells.find(size=size, method=BARE):
                found = ratios(cells, size, method)
                name = "the bare LightGBM search" if method == BARE else f'`model="{method}"`'
                numbers = [f"{found['seconds']:.1f}", f"{found['processor ratio']:.2f}"]
                numbers += [f"{found['megabytes']:,.0f}", f"{found['bytes ratio']:.2f}"]
                lines.append([_shown(size), name, *numbers])
    return page.grid(["rows x features", "fit", "seconds", "times the search", "memory, MB", "times its memory"], lines)


def again(cells: Cells) -> list[Reproduced]:
    size = next(iter(REPEATS))
    run(cells, size)
    committed = page.committed(NAME)
    found = []
    for method in METHODS[1:]:
        before, now = (ratios(one, size, method)["processor ratio"] for one in (committed, cells))
        found.append(page.within_factor(f"{size}, {method}: times the search", before, now, TOLERANCE))
    return found


def main() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=[*REPEATS], default=[*REPEATS])
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    parser.add_argument("--report", action="store_true", help="only the table")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return measure(*arguments.one)
    if arguments.quick:
        return page.hold(again)
    cells = page.committed(NAME)
    if not arguments.report:
        for size in arguments.sizes:
            run(cells, size)
    return print(table(cells))


if __name__ == "__main__":
    main()
