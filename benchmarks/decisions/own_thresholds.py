"""On which rows, and how carefully, should `Classifier` choose its threshold when no confidence is asked for?

Two ways to use a fifth of the rows that is held out:

- same: all of these rows choose among the candidates, and choose the threshold again;
- apart: an eighth of the training rows chooses among the candidates, all rows held out choose the threshold.

For each way the threshold is the best on its rows ("plain"), or also passes the exact test at 0.5 to 0.9, or at 0.5 if
none does. If none passes at all, it is the best, or with "surest" and a constraint on precision the one with the lowest
p-value. The splits are not those that `own_promises.py` reports on.

    python -m benchmarks.decisions.own_thresholds [--data FOLDER] [--quick] [--report]
"""

import argparse
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from sklearn.model_selection import train_test_split

import aimfor
from aimfor.operating_points import choose_points
from benchmarks.decisions.judging import AIMS, best_of, judge
from benchmarks.decisions.promises import parts
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.page import print_table
from benchmarks.shared.sets import BINARY, load

NAME = "decisions_own_thresholds"
SPLITS = (100,)
MAX_ROWS, STEPS = 6_000, 500
WAYS = ("same", "apart")
CHOICES = ("plain", "0.5", "0.7", "0.8", "0.9", "0.5 surest", "0.7 surest", "0.8 surest", "0.9 surest")


def fitted(way: str, X: Any, y: np.ndarray, aim: str, split: int) -> Iterator[Any]:
    """The classifier, and the rows that choose its threshold."""
    train, held = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=split)
    model, deciding = aimfor.Classifier(aim, model="linear", steps=STEPS, random_state=split), held
    if way == "apart":
        train, held = train_test_split(train, test_size=0.125, stratify=y[train], random_state=split)
    # Nothing but the rows that are given here may choose.
    with mock.patch("aimfor.estimator._fitting.with_choosing", lambda fitted, held_out, _: (fitted, held_out)):
        yield model.fit(X[train], y[train], validation_data=(X[held], y[held]))
    yield deciding


def chosen(choice: str, aim: str, y: np.ndarray, scores: np.ndarray) -> float | None:
    """The threshold by one of the choices."""
    best = choose_points(y, scores, aim).threshold
    if choice == "plain" or best is None:
        return best
    confidence, *surest = choice.split()
    found = None
    for tested in (float(confidence), 0.5):
        found = choose_points(y, scores, aim, confidence=tested).threshold if found is None else found
    if found is None and surest and aim.startswith("recall@precision"):
        found = choose_points(y, scores, aim, surest=True).threshold
    if found is None:
        return best
    return min(best, found) if aim.startswith("precision@recall") else max(best, found)


def run(cells: Cells, where: dict[str, Any], data: tuple[Any, np.ndarray, Any, np.ndarray]) -> None:
    """All ways and choices for one aim on one split of one set."""
    X, y, X_test, y_test = data
    best = None
    for way in WAYS:
        model, deciding = fitted(way, X, y, where["aim"], where["split"])
        scores, test = model.raw_scores(X[deciding])[:, 0], model.raw_scores(X_test)[:, 0]
        best = best_of(where["aim"], y_test, test) if best is None else best
        cell: dict[str, Any] = {}
        for choice in CHOICES:
            judged = judge(where["aim"], y_test, test, chosen(choice, where["aim"], y[deciding], scores))
            cell |= {f"{choice} {name}": judged[name] for name in ("holds", "objective")}
        cells.add(**where, way=way, best=best, own_best=best_of(where["aim"], y_test, test), **cell)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--quick", action="store_true", help="one small set, nothing is kept")
    parser.add_argument("--report", action="store_true", help="the tables from the finished cells")
    arguments = parser.parse_args()
    cells = Cells(None if arguments.quick else RESULTS / f"{NAME}.csv")
    folder = data_folder(arguments.data)
    for split in () if arguments.report else SPLITS[: 1 if arguments.quick else None]:
        for name in ("mammography",) if arguments.quick else BINARY:
            rows = load(name, folder)
            data = None if rows is None else parts(rows, split, MAX_ROWS)
            for aim in AIMS if data is not None else ():
                where = {"set": name, "split": split, "aim": aim}
                if data is not None and not cells.find(**where):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # weak claims are what is measured here
                        run(cells, where, data)
    report(cells)


def report(cells: Cells) -> None:
    """How often the constraint holds, of the cells with a threshold; the objective, 0 where it is broken or missing."""
    for aim in AIMS:
        lines = []
        for way in WAYS:
            rows = cells.find(aim=aim, way=way)
            for choice in CHOICES if rows else ():
                having = [row for row in rows if row[f"{choice} holds"] != ""]
                held = [row for row in having if row[f"{choice} holds"] == "1"]
                given_up = np.mean([float(row["best"]) - float(row[f"{choice} objective"]) for row in held])
                counted = np.sum([float(row[f"{choice} objective"]) for row in held]) / len(rows)
                share = f"{100 * len(held) / len(having):.0f}"
                own = np.mean([float(row["own_best"]) for row in rows])
                cells_of = f"{len(having)} of {len(rows)}"
                lines.append([way, choice, cells_of, share, f"{given_up:.3f}", f"{counted:.3f}", f"{own:.3f}"])
        header = ["rows", "choice", "with threshold", "holds, %", "given up where it holds", "objective kept", "best"]
        print_table(aim, header, lines)


if __name__ == "__main__":
    main()
