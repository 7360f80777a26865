"""Categories and missing values as trees read them themselves, beside the features of linear models.

    python -m benchmarks.trees.categories                        # resumes from results/trees_categories.csv
    python -m benchmarks.trees.categories --sets adult --splits 0 1
    python -m benchmarks.trees.categories --report               # the table from what is finished

Every split: 30 % of the rows are set aside and never used here, a fifth of the others judges, and of the rest a fifth
chooses rounds and forests and the remainder trains. The preparation of `aimfor fit` is learned on the rows that train.
"coded": forests read its features, a category as several of 0 and 1, a missing number as the mean with a mark.
"columns": forests read columns, a category as a set, a missing number as missing. Both are `model="trees"`.
Measured: the exact metric of the aim on the rows that judge.
"""

import argparse
import time
import warnings
from collections import defaultdict

import numpy as np
import pyarrow as pa
import torch

import aimfor
from aimfor.model_kinds import KINDS, Problem, Settings, Task
from aimfor.tables import Preparation
from aimfor.training import Data, FeatureRows, Scaling
from benchmarks.shared import page, sets
from benchmarks.shared.cells import Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.spread import Spread, spread
from benchmarks.trees.averages import AIMS, Forests

NAME = "trees_categories"
SETS = ("adult", "diabetes130", "kddcup99", "bankruptcy_year1", "bankruptcy_year5")
# Tables of other sizes: of so many rows, drawn from the set.
SMALLER = {"adult, 5,000 rows": ("adult", 5000), "diabetes130, 10,000 rows": ("diabetes130", 10_000)}
METHODS = ("coded", "columns")


def table_of(rows: sets.Rows) -> pa.Table:
    """The raw columns of some rows."""
    numbers = {f"number {place}": pa.array(column, from_pandas=True) for place, column in enumerate(rows.numbers.T)}
    texts = {f"category {place}": pa.array(column.astype(str)) for place, column in enumerate(rows.categories.T)}
    return pa.table({**numbers, **texts})


def run(name: str, rows: sets.Rows, cells: Cells, split: int) -> None:
    if all(cells.find(set=name, split=split, aim=aim, method=METHODS[-1]) for aim in AIMS):
        return
    fit, judge, _ = sets.split(rows, split)
    keep, choose = sets._split_index(fit.labels, np.arange(len(fit.labels)), 0.2, split)
    parts = (fit.take(keep), fit.take(choose), judge)
    preparation = Preparation(categorical=[f"category {place}" for place in range(rows.categories.shape[1])])
    preparation.fit(table_of(parts[0]))
    features = [preparation.transform(table_of(part)) for part in parts]
    labels = [part.labels.astype(np.uint8) for part in parts]
    width = features[0].shape[1]
    scaling = Scaling(np.zeros(width), np.ones(width))  # trees need none
    data = [Data(FeatureRows(X, scaling), torch.from_numpy(Y), None) for X, Y in zip(features, labels, strict=True)]
    for method, columns in zip(METHODS, (None, preparation.table_columns), strict=True):
        problem, forests = Problem(width, 1, False, scaling, Settings(), columns), Forests()
        for aim in AIMS:
            start = time.perf_counter()
            found = KINDS["trees"].fit(Task(problem, aimfor.aim(aim), data[0], data[1], split), forests)
            seconds = time.perf_counter() - start
            measured = float(aimfor.aim(aim).metric(labels[2][:, 0], found.model.scores(features[2])[:, 0]))
            cells.add(set=name, split=split, aim=aim, method=method, judged=measured, seconds=seconds)


def differences(cells: Cells, aim: str) -> dict[str, np.ndarray]:
    """For each set the metric with columns minus that with codes, one number for each split."""
    found = defaultdict(list)
    for row in cells.find(aim=aim, method=METHODS[1]):
        (beside,) = cells.find(set=row["set"], split=row["split"], aim=aim, method=METHODS[0])
        found[row["set"]].append(float(row["judged"]) - float(beside["judged"]))
    return {name: np.array(values) for name, values in found.items()}


def rows_of(cells: Cells) -> list[list[str]]:
    """One row for each set and one for their mean, each with a difference for every aim."""
    by_aim = {aim: differences(cells, aim) for aim in AIMS}
    found = [[name, *(signed(spread(by_aim[aim][name])) for aim in AIMS)] for name in by_aim[AIMS[0]]]
    means = [spread([values.mean() for values in by_aim[aim].values()]) for aim in AIMS]
    return [*found, ["mean over tables", *map(signed, means)]]


def signed(gain: Spread) -> str:
    return f"{gain.mean:+.3f} ± {gain.error:.3f}"


def report(cells: Cells) -> None:
    print(page.grid(["columns minus codes", *AIMS], rows_of(cells)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = (*SETS, *SMALLER)
    parser.add_argument("--sets", nargs="+", choices=names, default=names, metavar="SET", help=", ".join(names))
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(3)))
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--report", action="store_true", help="only the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", aimfor.UndefinedMetricWarning)
    cells = page.committed(NAME)
    if not arguments.report:
        for split in arguments.splits:
            for name in arguments.sets:
                source, most = SMALLER.get(name, (name, None))
                rows = sets.load(source, data_folder(arguments.data))
                if rows is not None:
                    run(
                        name, rows.take(np.random.default_rng(split).permutation(len(rows.labels))[:most]), cells, split
                    )
    report(cells)


if __name__ == "__main__":
    main()
