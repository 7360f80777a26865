"""How often does the constraint of `aimfor.Classifier` and of `aimfor fit` hold on test rows, and what does it cost?

    python -m benchmarks.decisions.own_promises            # about half an hour on one core
    python -m benchmarks.decisions.own_promises --report   # the tables from the finished cells
    python -m benchmarks.decisions.own_promises --quick    # one small set, nothing is kept

The public sets of `promises.py`, at most 6,000 rows of each: 70 % to fit and choose on, 30 % to judge. The program
gets the first part as a CSV file, splits it as it always does, and is judged on the same test rows. Models are linear,
with 500 steps a stage; `Classifier` trains trees too, on the sets of `TREES`.

The objective given up is the difference from the best threshold on the test rows for the very same model.
"""

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

import aimfor
from aimfor.cli._fit import fit as fit_job
from aimfor.cli._job import Job
from aimfor.training import Observer
from benchmarks.decisions.judging import AIMS, PAGE, judge, put_between
from benchmarks.decisions.promises import answers, parts
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.sets import BINARY, load

NAME = "decisions_own_promises"
SPLITS = 3
MAX_ROWS, STEPS = 6_000, 500
CONFIDENCE = 0.95
MOST_COLUMNS = 500  # of a CSV file for the program; the others are left to `Classifier`
TREES = ("mammography", "annthyroid", "PageBlocks", "satellite", "skin", "Waveform")
WAYS = (
    "Classifier",
    "Classifier, confidence=0.95",
    "Classifier, trees",
    "Classifier, trees, confidence=0.95",
    "aimfor fit",
    "aimfor fit --confidence 0.95",
)


def by_classifier(X: Any, y: np.ndarray, X_test: Any, aim: str, split: int, way: str) -> tuple[np.ndarray, Any]:
    """Scores of the test rows and the threshold."""
    confidence = CONFIDENCE if "confidence" in way else None
    kind = "trees" if "trees" in way else "linear"
    model = aimfor.Classifier(aim, model=kind, confidence=confidence, steps=STEPS, random_state=split).fit(X, y)
    return model.raw_scores(X_test)[:, 0], model.threshold_


def by_program(X: Any, y: np.ndarray, X_test: Any, aim: str, split: int, way: str) -> tuple[np.ndarray, Any]:
    """The same of a model folder that `aimfor fit` wrote."""
    names = [f"x{index}" for index in range(X.shape[1])]
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "rows.csv", Path(folder) / "run"
        pd.DataFrame(X, columns=names).assign(label=y).to_csv(path, index=False)
        options = {"model": "linear", "steps": STEPS, "confidence": CONFIDENCE if "confidence" in way else None}
        job = Job((str(path),), ("label",), aim, numeric=tuple(names), seed=split, options=options)
        fit_job(job, out, command="", resume=False, shown=Observer())
        model = aimfor.load(out)
    features = model[:-1].transform(pd.DataFrame(X_test, columns=names))
    return model[-1].raw_scores(features)[:, 0], model[-1].threshold_


def run(cells: Cells, name: str, split: int, data: tuple[Any, np.ndarray, Any, np.ndarray]) -> None:
    """All aims on one split of one set, and all ways; the program and trees have the first split only."""
    X, y, X_test, y_test = data
    for way in WAYS:
        program = way.startswith("aimfor fit")
        if ("trees" in way and (name not in TREES or split)) or (program and (split or not as_file(X))):
            continue
        for aim in AIMS:
            where = {"set": name, "split": split, "aim": aim, "way": way}
            if cells.find(**where):
                continue
            try:
                scores, threshold = (by_program if program else by_classifier)(X, y, X_test, aim, split, way)
            except aimfor.DataError:  # so few rows that not even a perfect ranking could give the confidence
                scores, threshold = np.zeros(len(y_test)), None
            cells.add(**where, **judge(aim, y_test, scores, threshold))


def as_file(X: Any) -> bool:
    """Whether the program gets these features as a CSV file."""
    return not sparse.issparse(X) and X.shape[1] <= MOST_COLUMNS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--report", action="store_true", help="the tables from the finished cells")
    parser.add_argument("--quick", action="store_true", help="one small set, nothing is kept")
    arguments = parser.parse_args()
    cells = Cells(None if arguments.quick else RESULTS / f"{NAME}.csv")
    folder = data_folder(arguments.data)
    for split in () if arguments.report else range(1 if arguments.quick else SPLITS):
        for name in ("mammography",) if arguments.quick else BINARY:
            rows = load(name, folder)
            if rows is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # weak claims are what is measured here
                    run(cells, name, split, parts(rows, split, MAX_ROWS))
    print(table(cells))
    if not arguments.quick:
        put_between(PAGE, NAME, table(cells))


def table(cells: Cells) -> str:
    """What the page shows."""
    return answers(cells, WAYS)


if __name__ == "__main__":
    main()
