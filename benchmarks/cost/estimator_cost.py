"""What linear models of `aimfor.Classifier` cost: an epoch of one recipe, memory, and a fit with all candidates.

    python -m benchmarks.cost.estimator_cost            # results/estimator_cost.csv, some minutes
    python -m benchmarks.cost.estimator_cost --quick    # reproduce the sparse rows and compare
    python -m benchmarks.cost.estimator_cost --report   # the tables from the finished cells

An epoch is a third of the difference between fits of four epochs and of one, so that checks, scaling and the choice of
a threshold, which come once, are not in it; the three methods take turns in a new order every round, and medians over
rounds are shown, of the ratios too. Memory is the highest of a fresh process during `fit` over that before it, as a
share of X. Dense: 1,000,000 x 50 float32. Sparse: 200,000 x 50,000 with 20 non-zeros a row. A fit with all candidates
takes turns with the grid of seven logistic regressions of shared/baselines.py on rows of three sizes. What the default
costs, which trains trees too, is in trees/costs.py.
"""

import argparse
import random
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.linear_model import SGDClassifier

import aimfor
from benchmarks.shared import page
from benchmarks.shared.baselines import logistic_regressions
from benchmarks.shared.cells import Cells
from benchmarks.shared.reproduced import Reproduced

NAME = "estimator_cost"
KINDS, WHOLE = ("dense", "sparse"), "all candidates"
ROUNDS = 7
# Ratios of times vary so much between minutes of a shared machine.
TOLERANCE = 1.5
BATCH = 512
COLUMNS = (("seconds",), ("lowest", "highest"), ("ratio",), ("memory",))
METHODS = ("scikit-learn SGDClassifier, log-loss", "Classifier, log-loss", "Classifier, aucpr")
WHOLE_SIZES = ((2_000, 10), (20_000, 20), (100_000, 50))
WHOLE_METHODS = ("seven logistic regressions", "Classifier, aucpr, all candidates")
WHOLE_ROUNDS = 3


def make_rows(kind: str, size: tuple[int, int] = (1_000_000, 50)) -> tuple[Any, np.ndarray]:
    """Rows with a linear signal and about 5 % positives; dense ones of any size."""
    generator = np.random.default_rng(0)
    if kind == "dense":
        rows, width = size
        X: Any = generator.standard_normal((rows, width), dtype=np.float32)
    else:
        rows, width, nonzeros = 200_000, 50_000, 20
        columns = generator.integers(0, width, rows * nonzeros, dtype=np.int32)
        values = generator.standard_normal(rows * nonzeros, dtype=np.float32)
        X = sparse.csr_matrix(
            (values, columns, np.arange(0, rows * nonzeros + 1, nonzeros, dtype=np.int32)), (rows, width)
        )
        X.sum_duplicates()
    signal = X @ generator.standard_normal(width).astype(np.float32)
    noisy = signal + generator.standard_normal(rows) * signal.std()
    return X, (noisy > np.quantile(noisy, 0.95)).astype(np.int64)


def fit(method: str, X: Any, y: np.ndarray, epochs: int) -> float:
    """Fit for some epochs; the seconds that it took."""
    start = time.perf_counter()
    if method == METHODS[0]:
        SGDClassifier(loss="log_loss", max_iter=epochs, tol=None, random_state=0).fit(X, y)
        return time.perf_counter() - start
    surrogate = "log_loss" if method == METHODS[1] else "hinge"
    rows = len(y) - round(0.1 * len(y))
    options: dict[str, Any] = {
        "model": "linear",
        "surrogate": surrogate,
        "validation_fraction": 0.1,
        "patience": 10**6,
        "random_state": 0,
    }
    aimfor.Classifier("aucpr", steps=epochs * (rows // BATCH), batch_size=BATCH, **options).fit(X, y)
    return time.perf_counter() - start


def peak(kind: str, method: str) -> None:
    """In a fresh process: print the memory that `fit` takes, as a share of X."""
    X, y = make_rows(kind)
    size = X.nbytes if kind == "dense" else X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    fit(method, X[:2000], y[:2000], 1)  # what is loaded once
    # Give the allocator's free memory back, so that the peak before `fit` is not what making the rows took.
    base = current_memory()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    fit(method, X, y, 1)
    print((peak_memory() - base) / size)


def current_memory() -> int:
    """Resident bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def peak_memory() -> int:
    """Highest resident bytes since the mark was reset."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def run(cells: Cells, kind: str) -> None:
    """Time and memory of all methods on one kind of rows; the methods take turns."""
    X, y = make_rows(kind)
    taken: dict[str, list[float]] = {method: [] for method in METHODS}
    order = random.Random(0)
    for method in METHODS:  # what is loaded once
        fit(method, X[:2000], y[:2000], 1)
    for _ in range(ROUNDS):
        for method in order.sample(METHODS, len(METHODS)):
            taken[method].append((-fit(method, X, y, 1) + fit(method, X, y, 4)) / 3)
    middle = {method: statistics.median(times) for method, times in taken.items()}
    slower = max(METHODS[:2], key=middle.__getitem__)
    for method in METHODS:
        command = [sys.executable, "-m", "benchmarks.cost.estimator_cost", "--peak", kind, method]
        share = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        # Round by round, because the machine is slow for minutes.
        ratio = statistics.median(one / other for one, other in zip(taken[method], taken[slower], strict=True))
        measured = {"seconds": middle[method], "ratio": ratio, "memory": share}
        spread = {"lowest": min(taken[method]), "highest": max(taken[method])}
        cells.add(kind=kind, method=method, rows=len(y), **measured, **spread)


def run_whole(cells: Cells) -> None:
    """A fit with all candidates in turns with the grid of log-loss, both on the same rows."""
    for size in WHOLE_SIZES:
        X, y = make_rows("dense", size)
        cut = size[0] // 5
        taken: dict[str, list[float]] = {method: [] for method in WHOLE_METHODS}
        for _ in range(WHOLE_ROUNDS):
            for method in WHOLE_METHODS:
                start = time.perf_counter()
                if method == WHOLE_METHODS[0]:
                    logistic_regressions(X[cut:], y[cut:, None], X[:cut], X[:cut], balanced=False)
                else:
                    linear = aimfor.Classifier(model="linear", random_state=0)
                    linear.fit(X[cut:], y[cut:], validation_data=(X[:cut], y[:cut]))
                taken[method].append(time.perf_counter() - start)
        middle = {method: statistics.median(times) for method, times in taken.items()}
        for method, times in taken.items():
            measured = {"seconds": middle[method], "ratio": middle[method] / middle[WHOLE_METHODS[0]], "memory": ""}
            named = {"kind": WHOLE, "method": method, "rows": f"{size[0]} x {size[1]}"}
            cells.add(**named, **measured, lowest=min(times), highest=max(times))


def whole_table(cells: Cells) -> page.Table:
    rows = [
        [row["rows"], row["method"], f"{float(row['seconds']):.2f}", f"{float(row['ratio']):.0f}"]
        for row in cells.find(kind=WHOLE)
    ]
    title = "All candidates, one thread"
    return page.Table(title, ["rows", "method", "seconds", "over the logistic regressions"], rows)


def table(cells: Cells) -> page.Table:
    header = ["rows", "method", "seconds an epoch", "lowest to highest", "over the slower log-loss", "memory over X"]

    def shown(row: dict[str, str], *columns: str) -> str:
        return " to ".join(f"{float(row[one]):.2f}" for one in columns)

    singles = [row for row in cells.rows if row["kind"] in KINDS]
    rows = [[row["kind"], row["method"], *(shown(row, *of) for of in COLUMNS)] for row in singles]
    return page.Table("A single recipe, one thread", header, rows)


def again(cells: Cells) -> list[Reproduced]:
    """The sparse rows, which take less time."""
    run(cells, KINDS[1])
    before = {row["method"]: row for row in page.committed(NAME).find(kind=KINDS[1])}
    return [
        page.within_factor(
            f"{KINDS[1]}, {row['method']}: {one}", float(before[row["method"]][one]), float(row[one]), TOLERANCE
        )
        for row in cells.rows
        for one in ("ratio", "memory")
        if row["method"] == METHODS[2]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    parser.add_argument("--report", action="store_true", help="only the table")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        return peak(*arguments.peak)
    if arguments.quick:
        return page.hold(again)
    cells = page.committed(NAME)
    if not arguments.report:
        cells.drop()
        for kind in KINDS:
            run(cells, kind)
        run_whole(cells)
    table(cells).show()
    return whole_table(cells).show()


if __name__ == "__main__":
    main()
