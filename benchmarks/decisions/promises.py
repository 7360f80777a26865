"""How often does the constraint of a threshold hold on test rows, and what does that cost?

    python -m benchmarks.decisions.promises            # about an hour on one core
    python -m benchmarks.decisions.promises --report   # the table from the finished cells, also into docs/decide.md
    python -m benchmarks.decisions.promises --quick    # one small set, nothing is kept

24 public sets of at most 20,000 rows, LightGBM and logistic regression as they come, three splits: 70 % of the rows for
everything that is fitted and chosen, 30 % to judge. Four ways to a threshold, all on the same rows:

- ThresholdClassifier: as it comes, out-of-fold scores of five folds;
- with confidence=0.95: one held-out quarter, `cv=0.25`;
- TunedThresholdClassifierCV: scikit-learn's, on the same folds; its scorer is the objective where the constraint holds
  in a fold, else 0;
- one validation split: the best threshold on the same held-out quarter.

The objective given up is the difference from the best threshold on the test rows of a model of all training rows.
"""

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import joblib
import numpy as np
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import confusion_matrix, make_scorer
from sklearn.model_selection import (
    StratifiedKFold,
    StratifiedShuffleSplit,
    TunedThresholdClassifierCV,
    train_test_split,
)
from sklearn.utils.metaestimators import available_if

import aimfor
from benchmarks.decisions.judging import AIMS, MODELS, PAGE, best_of, judge, model_of, put_between, rates, score
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.page import grid
from benchmarks.shared.sets import BINARY, Rows, load, prepare

NAME = "decisions_promises"
SPLITS = 3
MAX_ROWS = 20_000
SHARE, CONFIDENCE = 0.25, 0.95


class Remembered(ClassifierMixin, BaseEstimator):
    """A classifier that is fitted once for the same rows: the ways and aims differ in thresholds only."""

    fits: ClassVar[dict[str, Any]] = {}

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def fit(self, X: Any, y: np.ndarray) -> "Remembered":
        key = str(joblib.hash((X, y, self.estimator)))
        if key not in self.fits:
            self.fits[key] = clone(self.estimator).fit(X, y)
        self.fitted_ = self.fits[key]
        self.classes_ = self.fitted_.classes_
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.fitted_.predict_proba(X)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        return self.fitted_.decision_function(X)


Way = Callable[[Any, Any, np.ndarray, str, int], tuple[Any, float | None]]
"""(model, X, y, aim, split) -> the fitted model and the threshold on its scores."""


def by_folds(model: Any, X: Any, y: np.ndarray, aim: str, split: int) -> tuple[Any, float | None]:
    made = aimfor.ThresholdClassifier(model, aim, random_state=split).fit(X, y)
    return made.estimator_, made.threshold_


def with_confidence(model: Any, X: Any, y: np.ndarray, aim: str, split: int) -> tuple[Any, float | None]:
    made = aimfor.ThresholdClassifier(model, aim, confidence=CONFIDENCE, cv=SHARE, random_state=split).fit(X, y)
    return made.estimator_, made.threshold_


def by_scikit_learn(model: Any, X: Any, y: np.ndarray, aim: str, split: int) -> tuple[Any, float | None]:
    def objective(y_true: np.ndarray, decided: np.ndarray) -> float:
        tn, fp, fn, tp = confusion_matrix(y_true, decided, labels=[0, 1]).ravel().tolist()
        _, value, holds = rates(aim, tp, fp, fn, tn)
        return value if holds else 0.0

    folds = StratifiedKFold(5, shuffle=True, random_state=split)
    tuned = TunedThresholdClassifierCV(model, scoring=make_scorer(objective), cv=folds).fit(X, y)
    threshold = float(tuned.best_threshold_)  # a probability
    return tuned.estimator_, float(logit(threshold)) if hasattr(model, "decision_function") else threshold


def by_one_split(model: Any, X: Any, y: np.ndarray, aim: str, split: int) -> tuple[Any, float | None]:
    fit, held = next(StratifiedShuffleSplit(1, test_size=SHARE, random_state=split).split(X, y))
    fitted = clone(model).fit(X[fit], y[fit])
    return fitted, aimfor.operating_point(y[held], score(fitted, X[held]), aim).threshold


WAYS: dict[str, Way] = {
    "ThresholdClassifier": by_folds,
    "ThresholdClassifier, confidence=0.95": with_confidence,
    "TunedThresholdClassifierCV": by_scikit_learn,
    "one validation split": by_one_split,
}


def problems(folder: Path, quick: bool) -> Iterator[tuple[str, int]]:
    """Sets and splits; all sets of a split before the next, so that a stopped run has seen all sets."""
    for split in range(1 if quick else SPLITS):
        for name in ("mammography",) if quick else BINARY:
            yield name, split


def parts(rows: Rows, split: int, most: int = MAX_ROWS) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Features and labels to fit and choose on, and to judge on."""
    index = np.arange(len(rows.labels))
    y = rows.labels[:, 0]
    if len(index) > most:
        index = train_test_split(index, train_size=most, stratify=y, random_state=0)[0]
    fit, test = train_test_split(index, test_size=0.3, stratify=y[index], random_state=split)
    X, X_test = prepare(rows.take(fit), rows.take(test))
    return X, y[fit], X_test, y[test]


def run(cells: Cells, name: str, split: int, rows: Rows) -> None:
    """All models, aims and ways on one split of one set."""
    X, y, X_test, y_test = parts(rows, split)
    for model_name in MODELS:
        where = {"set": name, "model": model_name, "split": split}
        if cells.find(**where):
            continue
        model = Remembered(model_of(model_name, X))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of models that do not converge and of thresholds that promise little
            full = score(clone(model).fit(X, y), X_test)
            for aim in AIMS:
                best = best_of(aim, y_test, full)
                for way, choose in WAYS.items():
                    fitted, threshold = choose(model, X, y, aim, split)
                    judged = judge(aim, y_test, score(fitted, X_test), threshold)
                    cells.add(**where, aim=aim, way=way, **judged | {"best": best})
        Remembered.fits.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--report", action="store_true", help="the table from the finished cells")
    parser.add_argument("--quick", action="store_true", help="one small set, nothing is kept")
    arguments = parser.parse_args()
    cells = Cells(None if arguments.quick else RESULTS / f"{NAME}.csv")
    folder = data_folder(arguments.data)
    for name, split in () if arguments.report else problems(folder, arguments.quick):
        rows = load(name, folder)
        if rows is not None:
            run(cells, name, split, rows)
    print(table(cells))
    if not arguments.quick:
        put_between(PAGE, NAME, table(cells))


def table(cells: Cells) -> str:
    """What the page shows."""
    return answers(cells, WAYS)


def answers(cells: Cells, ways: Iterable[str]) -> str:
    """Three tables: how often the constraint holds, what is given up where it does, how often there is no threshold."""
    titles = (
        "**The constraint holds on test rows** (of the cells with a threshold):",
        "**Objective given up** (where the constraint holds):",
        "**Cells without a threshold**:",
    )
    lines: list[list[list[str]]] = [[], [], []]
    for way in ways:
        found = [summary([row for row in cells.rows if (row["aim"], row["way"]) == (aim, way)]) for aim in AIMS]
        for question, answers in enumerate(zip(*found, strict=True)):
            lines[question].append([way, *answers])
    header = ["", *(f"`{aim}`" for aim in AIMS)]
    return "\n\n".join(f"{title}\n\n{grid(header, part)}" for title, part in zip(titles, lines, strict=True))


def summary(rows: list[dict[str, str]]) -> tuple[str, str, str]:
    """The three answers for one way and one aim."""
    having = [row for row in rows if row["holds"] != ""]
    held = [row for row in having if row["holds"] == "1"]
    given_up = np.mean([float(row["best"]) - float(row["objective"]) for row in held]) if held else np.nan
    share = f"{100 * len(held) / len(having):.0f} %" if having else "-"
    return share, f"{given_up:.3f}" if held else "-", f"{len(rows) - len(having)} of {len(rows)}"


if __name__ == "__main__":
    main()
