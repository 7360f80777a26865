"""Categories beyond the 64 most frequent ones of a column: shared by their hash, or target-encoded out of fold.

    python -m benchmarks.tables.categories             # all of it; resumes from results/categories.csv
    python -m benchmarks.tables.categories --sets diabetes130 --splits 0
    python -m benchmarks.tables.categories --report    # the table from what is finished

Every way has a feature for each of the 64 most frequent categories, as the program has. They differ in the others:

- `one`: all others share one feature.
- `hash`: they share 64 features by their hash.
- `target`: the log-odds of the positive class in each category, shrunk by scikit-learn's empirical Bayes. Training rows
  get it from the other four fifths of the training rows, all other rows from all training rows.
- `both`: the features of `hash` and of `target`.

Sets: diabetes130 has three columns of some 800 diagnoses, and one of 73 specialities; kddcup99 has 66 services. In
"adult crossed" occupation, education and country make one column, and age and hours another. The made sets have two
columns of 2,000 categories, with frequencies of Zipf's law. In the first each category has an effect of its own, in the
second only the 64 most frequent ones have. Of 12,500 rows 10,000 train and the others choose; up to 30,000 more
measure average precision. The linear model is scikit-learn's logistic regression with the best of four penalties, the
network its `MLPClassifier` with one layer of 64 and the best of two penalties: what counts here are the features.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import TargetEncoder

from aimfor.tables import Preparation
from benchmarks.shared import sets
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.spread import spread

NAME = "categories"
SPLITS = range(3)
PENALTIES = {"linear": (0.01, 0.1, 1.0, 10.0), "mlp": (1e-3, 1.0)}
MODELS = ("linear", "mlp")
WAYS = ("one", "hash", "target", "both")
KNOWN, MEASURING = 12_500, 30_000
MANY, HASHED = 64, 64


def columns_of(rows: sets.Rows) -> dict[str, np.ndarray]:
    """The columns of a set by name."""
    numbers = {f"number {index}": column for index, column in enumerate(rows.numbers.T)}
    return numbers | {f"category {index}": column for index, column in enumerate(rows.categories.T)}


def plain(name: str, folder: Path) -> tuple[dict[str, np.ndarray], np.ndarray] | None:
    """A set of the suite."""
    rows = sets.load(name, folder)
    return None if rows is None else (columns_of(rows), rows.labels[:, 0])


def crossed_adult(folder: Path) -> tuple[dict[str, np.ndarray], np.ndarray] | None:
    """Adult with two columns that combine others, in the place of these."""
    rows = sets.load("adult", folder)
    if rows is None:
        return None
    columns = columns_of(rows)
    person = [columns.pop(f"category {index}") for index in (1, 3, 7)]  # education, occupation, country
    times = [columns.pop(f"number {index}").astype(int).astype(str) for index in (0, 5)]  # age, hours
    return columns | {"person": _joined(person), "times": _joined(times)}, rows.labels[:, 0]


def _joined(columns: Sequence[np.ndarray]) -> np.ndarray:
    return np.array(["/".join(cells) for cells in zip(*columns, strict=True)])


def made(every: bool, folder: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Two columns of 2,000 categories and four numbers, whose sum of effects tells the label; 10 % are positive."""
    rng = np.random.default_rng(0)
    count, sizes = KNOWN + MEASURING, 2000
    chances = 1 / np.arange(1, sizes + 1)
    score = rng.logistic(size=count)
    columns: dict[str, np.ndarray] = {}
    for name in ("town", "shop"):
        codes = rng.choice(sizes, count, p=chances / chances.sum())
        effects = rng.normal(size=sizes)
        effects[0 if every else slice(MANY, None)] = 0.0
        score = score + effects[codes]
        columns[name] = np.char.add(f"{name} ", codes.astype(str))
    for index in range(4):
        columns[f"number {index}"] = rng.normal(size=count)
        score = score + 0.5 * columns[f"number {index}"]
    return columns, (score > np.quantile(score, 0.9)).astype(np.int64)


SETS: dict[str, Callable[[Path], tuple[dict[str, np.ndarray], np.ndarray] | None]] = {
    "diabetes130": lambda folder: plain("diabetes130", folder),
    "kddcup99": lambda folder: plain("kddcup99", folder),
    "adult crossed": crossed_adult,
    "made, all count": lambda folder: made(True, folder),
    "made, 64 count": lambda folder: made(False, folder),
}


def features(way: str, parts: Sequence[dict[str, np.ndarray]], labels: np.ndarray) -> list[np.ndarray]:
    """The features of the rows that train, then of the others; all is learned on the first, of which are the labels."""
    tables = [pa.table({name: _column(column) for name, column in part.items()}) for part in parts]
    preparation = Preparation().fit(tables[0])
    large = [part.name for part in preparation.parts_ if getattr(part, "buckets", 0)]
    buckets = HASHED if way in ("hash", "both") else 1
    preparation.parts_ = tuple(
        replace(part, buckets=buckets) if part.name in large else part for part in preparation.parts_
    )
    found = [preparation.transform(table) for table in tables]
    if way in ("one", "hash") or not large:
        return found
    encoder = TargetEncoder(target_type="binary", random_state=0)  # pyright: ignore[reportArgumentType]
    cells = [np.column_stack([part[name] for name in large]) for part in parts]
    chances = [encoder.fit_transform(cells[0], labels), *(encoder.transform(other) for other in cells[1:])]
    odds = [np.log(np.clip(one, 1e-4, 1 - 1e-4) / (1 - np.clip(one, 1e-4, 1 - 1e-4))) for one in chances]
    centre, scale = odds[0].mean(axis=0), odds[0].std(axis=0) + 1e-12
    return [np.hstack([own, (more - centre) / scale]) for own, more in zip(found, odds, strict=True)]


def _column(values: np.ndarray) -> pa.Array:
    return pa.array(values, from_pandas=True) if values.dtype.kind == "f" else pa.array(values.tolist())


def run(cells: Cells, name: str, split: int, folder: Path) -> None:
    """All ways, aims and models on one split of one set."""
    todo = [(way, model) for way in WAYS for model in MODELS]
    todo = [key for key in todo if not cells.find(set=name, split=split, way=key[0], model=key[1])]
    loaded = SETS[name](folder) if todo else None
    if loaded is None:
        return
    columns, labels = loaded
    order = np.random.default_rng(split).permutation(len(labels))
    places = [order[: KNOWN * 4 // 5], order[KNOWN * 4 // 5 : KNOWN], order[KNOWN : KNOWN + MEASURING]]
    parts = [{key: column[place] for key, column in columns.items()} for place in places]
    train, choose, measure = (labels[place] for place in places)
    for way in dict.fromkeys(key[0] for key in todo):
        X = features(way, parts, train)
        for _, model in [key for key in todo if key[0] == way]:
            began = time.perf_counter()
            test, chosen = best_of(model, X, (train, choose, measure), split)
            cells.add(
                set=name,
                split=split,
                way=way,
                model=model,
                features=X[0].shape[1],
                penalty=chosen,
                test=test,
                seconds=time.perf_counter() - began,
            )
    print(f"{name}, split {split}: done", flush=True)


def best_of(model: str, X: list[np.ndarray], y: Sequence[np.ndarray], seed: int) -> tuple[float, float]:
    """Average precision on the rows that measure, with the penalty that does best on the rows that choose."""
    found = []
    for penalty in PENALTIES[model]:
        if model == "linear":
            classifier = LogisticRegression(C=1 / penalty, max_iter=300, tol=1e-3)
        else:
            classifier = MLPClassifier((64,), alpha=penalty, early_stopping=True, max_iter=40, random_state=seed)
        classifier.fit(X[0], y[0])
        areas = [
            average_precision_score(y[part], np.asarray(classifier.predict_proba(X[part]))[:, 1]) for part in (1, 2)
        ]
        found.append((areas[0], areas[1], penalty))
    _, test, chosen = max(found)
    return float(test), chosen


def report(cells: Cells) -> str:
    """The metric on test rows: the mean over splits of each set, then the gain over `hash` over sets."""
    lines = []
    for model in MODELS:
        lines += [f"\n{model}\n", "| set | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
        table = {name: [_mean(cells, name, way, model) for way in WAYS] for name in SETS}
        table = {name: means for name, means in table.items() if not np.isnan(means).any()}
        lines += [f"| {name} | {' | '.join(f'{one:.4f}' for one in means)} |" for name, means in table.items()]
        gains = [spread(means[index] - means[WAYS.index("hash")] for means in table.values()) for index in range(4)]
        entries = " | ".join(f"{gain.mean:+.4f} ± {gain.error:.4f}" for gain in gains)
        lines.append(f"| against hash | {entries} |")
    return "\n".join(lines)


def _mean(cells: Cells, name: str, way: str, model: str) -> float:
    found = [float(row["test"]) for row in cells.find(set=name, way=way, model=model)]
    return float(np.mean(found)) if found else float("nan")


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--splits", nargs="+", type=int, default=SPLITS)
    parser.add_argument("--data")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    cells = Cells(RESULTS / f"{NAME}.csv")
    for split in () if arguments.report else arguments.splits:
        for name in arguments.sets:
            run(cells, name, split, data_folder(arguments.data))
    print(report(cells))


if __name__ == "__main__":
    main()
