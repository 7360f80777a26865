"""How a threshold of fold models is carried over to the model that is refitted on all rows: measured, then chosen.

The fold models give out-of-fold scores of all training rows. Ways to choose on them that are compared:

- plain: the best threshold that keeps the constraint on these rows;
- 0.5 to 0.8: the best that passes the exact test at this confidence, or plain where that one keeps the constraint
  better or none passes.

Three ways to carry the threshold over to the refitted model are compared:

- raw: the score itself;
- rank_train: the score that the refitted model exceeds on the same share of its training rows;
- rank_folds: the mean over fold models of the score that each exceeds on the same share of its held-out rows.

The sets are labels of the multi-label sets of the suite and generated ones. `promises.py` reports on other sets.

    python -m benchmarks.decisions.carry_over [--data FOLDER] [--quick]
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold, train_test_split

import aimfor
from benchmarks.decisions.judging import AIMS, MODELS, judge, model_of, score
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.page import print_table
from benchmarks.shared.sets import MULTILABEL, load

SIZES = (1_500, 6_000)
LABELS_OF_A_SET = 3
MIN_POSITIVES = 100
GENERATED = 12
FOLDS = 5
CARRIES = ("raw", "rank_train", "rank_folds")
CHOICES = ("plain", "0.5", "0.6", "0.7", "0.8")


class Task(NamedTuple):
    """A binary problem: features, labels 0/1 and a name."""

    name: str
    X: Any
    y: np.ndarray


def tasks(folder: Path, quick: bool) -> Iterator[Task]:
    """Generated sets of growing difficulty, then labels of the multi-label sets, evenly over frequency."""
    for number in range(2 if quick else GENERATED):
        X, y = make_classification(
            16_000,
            20,
            n_informative=8,
            n_clusters_per_class=3,
            weights=[1 - (0.05, 0.15, 0.4)[number % 3]],
            class_sep=(0.8, 1.2, 1.6, 2.0)[number // 3],
            flip_y=0.01,
            random_state=number,
        )
        yield Task(f"generated_{number}", X, y)
    for name in () if quick else MULTILABEL:
        rows = load(name, folder)
        if rows is None:
            continue
        counts = rows.labels.sum(0)
        common = np.flatnonzero((counts >= MIN_POSITIVES) & (counts <= len(rows.labels) - MIN_POSITIVES))
        by_count = common[np.argsort(counts[common], kind="stable")]
        for place in np.linspace(0, len(by_count) - 1, LABELS_OF_A_SET).round().astype(int):
            label = by_count[place]
            X = sparse.csr_matrix(rows.numbers) if sparse.issparse(rows.numbers) else rows.numbers
            yield Task(f"{name}_{label}", X, rows.labels[:, label])


def thresholds(model: Any, X: Any, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """The refitted model, its scores of the training rows, out-of-fold scores, and the fold of each row."""
    scores, fold_of = np.empty(len(y)), np.empty(len(y), int)
    for number, (fit, held) in enumerate(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(X, y)):
        scores[held] = score(clone(model).fit(X[fit], y[fit]), X[held])
        fold_of[held] = number
    final = clone(model).fit(X, y)
    return final, score(final, X), scores, fold_of


def chosen(choice: str, aim: str, y: np.ndarray, scores: np.ndarray) -> float | None:
    """The threshold on out-of-fold scores."""
    plain = aimfor.operating_point(y, scores, aim).threshold
    if choice == "plain" or plain is None:
        return plain
    tested = aimfor.operating_point(y, scores, aim, confidence=float(choice)).threshold
    if tested is None:
        return plain
    return min(plain, tested) if aim.startswith("precision@recall") else max(plain, tested)


def carried(how: str, threshold: float, out_of_fold: np.ndarray, fold_of: np.ndarray, trained: np.ndarray) -> float:
    """The threshold for the refitted model."""
    if how == "raw":
        return threshold
    share = float((out_of_fold >= threshold).mean())
    if how == "rank_train":
        return float(np.quantile(trained, 1 - share, method="higher"))
    return float(np.mean([np.quantile(out_of_fold[fold_of == fold], 1 - share) for fold in range(FOLDS)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--quick", action="store_true", help="two generated sets, nothing is kept")
    arguments = parser.parse_args()
    cells = Cells(None if arguments.quick else RESULTS / "decisions_carry_over.csv")
    for task in tasks(data_folder(arguments.data), arguments.quick):
        for rows in SIZES:
            for model_name in MODELS:
                where = {"set": task.name, "rows": min(rows, len(task.y) // 2), "model": model_name}
                if not cells.find(**where):
                    run(cells, task, where)
    report(cells)


def run(cells: Cells, task: Task, where: dict[str, Any]) -> None:
    """All aims, choices and ways for one model on one set."""
    index = np.arange(len(task.y))
    fit, test = train_test_split(index, train_size=where["rows"], stratify=task.y, random_state=0)
    y, y_test = task.y[fit], task.y[test]
    model = model_of(where["model"], task.X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model without convergence is a model to decide on all the same
        final, trained, out_of_fold, fold_of = thresholds(model, task.X[fit], y, seed=0)
        test_scores = score(final, task.X[test])
    for aim in AIMS:
        cell: dict[str, Any] = {}
        for choice in CHOICES:
            found = chosen(choice, aim, y, out_of_fold)
            for how in CARRIES:
                threshold = None if found is None else carried(how, found, out_of_fold, fold_of, trained)
                judged = judge(aim, y_test, test_scores, threshold)
                cell |= {f"{choice} {how} {name}": judged[name] for name in ("holds", "objective")}
        cells.add(**where, aim=aim, best=judged["best"], **cell)


def report(cells: Cells) -> None:
    """How often the constraint holds, of the cells with a threshold, and the objective given up."""
    for aim in AIMS:
        rows = [row for row in cells.rows if row["aim"] == aim]
        lines = []
        for choice in CHOICES:
            for how in CARRIES:
                way = f"{choice} {how}"
                having = [row for row in rows if row[f"{way} holds"] != ""]
                holds = np.array([row[f"{way} holds"] == "1" for row in having])
                given_up = np.array([float(row["best"]) - float(row[f"{way} objective"]) for row in having])
                lines.append(
                    [
                        way,
                        f"{len(having)} of {len(rows)}",
                        f"{100 * holds.mean():.0f}",
                        f"{100 * given_up[holds].mean():.1f}",
                    ]
                )
        print_table(aim, ["choice and way", "with threshold", "holds, %", "given up where it holds"], lines)


if __name__ == "__main__":
    main()
