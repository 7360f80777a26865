"""The default beside AutoGluon and CatBoost with the same time of one core.

    python -m benchmarks.trees.automl --rivals PYTHON    # the Python of an environment with automl_requirements.txt
    python -m benchmarks.trees.automl --sets adult --rivals PYTHON
    python -m benchmarks.trees.automl --report

Every set has one split: 30 % of the rows measure, and each method does as it likes with the others. AutoGluon has the
preset "medium_quality" and average precision as its metric, CatBoost its defaults, ours is `Classifier("aucpr")`. Each
may take `SECONDS` of the processor, which is the wall time of one core that has nothing else to do. AutoGluon and
CatBoost get the raw columns, with categories and missing values; ours gets the numbers of shared/sets.py. Measured:
average precision, wall time and processor time. Without that environment a line says so.
"""

import argparse
import os
import resource
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch

import aimfor
from benchmarks.shared import page, sets
from benchmarks.shared.cells import Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.spread import spread

NAME = "trees_automl"
SETS = ("mammography", "annthyroid", "PageBlocks", "htru2", "fault", "Waveform", "satellite", "bankruptcy_year1")
OURS, RIVALS = "auto", ("AutoGluon", "CatBoost")
SECONDS = 30
SPLIT = 0
WORKER = Path(__file__).with_name("automl_worker.py")


class Table:
    """The rows of one set that train and that measure."""

    def __init__(self, rows: sets.Rows):
        fit, choose, self.test = sets.split(rows, SPLIT)
        self.train = sets.Rows(*(np.concatenate(parts) for parts in zip(fit, choose, strict=True)))

    def ours(self, seconds: float) -> np.ndarray:
        train, test = sets.prepare(self.train, self.test)
        with mock.patch("time.monotonic", time.process_time):  # the clock of `budget`
            classifier = aimfor.Classifier("aucpr", budget=seconds, random_state=SPLIT)
            return classifier.fit(train, self.train.labels[:, 0]).decision_function(test)

    def theirs(self, python: str, method: str, seconds: float) -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "rows.npz", Path(folder) / "scores.npy"
            parts = {"train": self.train, "test": self.test}
            arrays = {f"{part}_numbers": rows.numbers for part, rows in parts.items()}
            arrays |= {f"{part}_categories": rows.categories for part, rows in parts.items()}
            np.savez(source, train_labels=self.train.labels[:, 0], **arrays)
            command = [python, str(WORKER), method, str(seconds), str(source), str(target)]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""})
            return np.load(target)


def processor_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(name: str, rows: sets.Rows, cells: Cells, python: str | None, methods: list[str]) -> None:
    table = Table(rows)
    fits: dict[str, Callable[[], np.ndarray]] = {OURS: lambda: table.ours(SECONDS)}
    if python is not None:
        fits |= {method: lambda method=method: table.theirs(python, method, SECONDS) for method in RIVALS}
    for method, fit in fits.items():
        if method not in methods or cells.find(set=name, method=method):
            continue
        start, used = time.perf_counter(), processor_seconds()
        scores = fit()
        seconds, used = time.perf_counter() - start, processor_seconds() - used
        area = aimfor.metrics.average_precision(table.test.labels[:, 0], scores)
        times = {"limit": SECONDS, "seconds": seconds, "processor": used}
        cells.add(set=name, split=SPLIT, method=method, average_precision=area, **times)
        print(f"{name}, {method}: {area:.4f}, {seconds:.0f} s, processor {used:.0f} s", flush=True)


def areas(cells: Cells) -> dict[str, list[float]]:
    """For each set with all methods the average precision of each, ours first."""
    found = {}
    for name in SETS:
        rows = [cells.find(set=name, method=method) for method in (OURS, *RIVALS)]
        if all(rows):
            found[name] = [float(own[0]["average_precision"]) for own in rows]
    return found


def grid(cells: Cells) -> str:
    """Every set, and the mean over sets."""
    found = areas(cells)
    lines = [[name, *(f"{area:.3f}" for area in own)] for name, own in found.items()]
    means = [f"{np.mean(column):.3f}" for column in zip(*found.values(), strict=True)]
    return page.grid(["set", "`aimfor.Classifier`", *RIVALS], [*lines, ["mean", *means]])


def times(cells: Cells) -> str:
    """Processor seconds of every method, least and most over the sets."""
    lines = []
    for method, shown in zip((OURS, *RIVALS), ("`aimfor.Classifier`", *RIVALS), strict=True):
        taken = [float(cells.find(set=name, method=method)[0]["processor"]) for name in areas(cells)]
        lines.append([shown, f"{min(taken):.0f}", f"{np.mean(taken):.0f}", f"{max(taken):.0f}"])
    return page.grid(["method", "least", "mean", "most"], lines)


def leads(cells: Cells) -> dict[str, tuple[float, float, int]]:
    """Of each rival ours minus it: mean and standard error over sets, and on how many sets ours is ahead."""
    found = {}
    for place, rival in enumerate(RIVALS, start=1):
        differences = [own[0] - own[place] for own in areas(cells).values()]
        total = spread(differences)
        found[rival] = total.mean, total.error, sum(one > 0 for one in differences)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, metavar="SET", help=", ".join(SETS))
    parser.add_argument("--methods", nargs="+", choices=(OURS, *RIVALS), default=(OURS, *RIVALS))
    parser.add_argument("--rivals", metavar="PYTHON", help="the Python that has AutoGluon and CatBoost installed")
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--report", action="store_true", help="only the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", aimfor.LowConfidenceWarning)
    cells = page.committed(NAME)
    if not arguments.report:
        if arguments.rivals is None:
            print("skipped AutoGluon and CatBoost: --rivals names no environment")
        for name in arguments.sets:
            rows = sets.load(name, data_folder(arguments.data))
            if rows is not None:
                run(name, rows, cells, arguments.rivals, arguments.methods)
    print(grid(cells))
    for rival, (mean, error, ahead) in leads(cells).items():
        print(f"ours minus {rival}: {mean:+.4f} ± {error:.4f}, ahead on {ahead} of {len(areas(cells))} sets")


if __name__ == "__main__":
    main()
