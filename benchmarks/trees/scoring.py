"""Scoring: the walker of forests beside LightGBM's own predict, on one core.

    python -m benchmarks.trees.scoring                 # 1,000,000 rows of 50 features, six forests of 100 trees
    python -m benchmarks.trees.scoring --rows 100000   # a tenth of them
    python -m benchmarks.trees.scoring --report

The forests are trained on 50,000 rows that are drawn in the same way. A cell is the least CPU time of several runs of
one walker on all rows and all forests, as other work on the machine only ever adds to it.
"""

import argparse
import time
from collections.abc import Callable, Iterator

import lightgbm
import numpy as np
import torch

from aimfor.boosting import Forest, from_lightgbm
from aimfor.boosting._walk import feature_matrix, numpy_scores
from benchmarks.shared.cells import RESULTS, Cells

NAME = "forest_scoring"
FEATURES, FORESTS, TREES, TRAINING_ROWS = 50, 6, 100, 50_000
# What the forests are like: leaves of a tree, the share of missing values, how many features are categories.
KINDS = {"31 leaves": (31, 0.0, 0), "31 leaves, missing, categories": (31, 0.1, 10), "8 leaves": (8, 0.0, 0)}
DTYPES = ("float64", "float32")


def table(rows: int, missing: float, categories: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, FEATURES))
    X[:, :categories] = rng.integers(0, 30, size=(rows, categories))
    if missing:
        X[rng.random(X.shape) < missing] = np.nan
    return X


def boosters(leaves: int, missing: float, categories: int) -> Iterator[lightgbm.Booster]:
    X = table(TRAINING_ROWS, missing, categories, seed=0)
    rng = np.random.default_rng(1)
    slope = rng.normal(size=FEATURES)
    filled = np.nan_to_num(X - X[:, :1] * (np.arange(FEATURES) < categories))
    y = (np.tanh(filled) @ slope + filled[:, -1] * filled[:, -2] + rng.normal(size=len(X)) > 4).astype(int)
    for seed in range(FORESTS):
        settings = {"objective": "binary", "num_leaves": leaves, "seed": seed, "feature_fraction": 0.75, "verbose": -1}
        data = lightgbm.Dataset(X, y, categorical_feature=[*range(categories)])
        yield lightgbm.train(settings | {"num_threads": 1, "learning_rate": 0.1}, data, TREES)


def walkers(trained: list[lightgbm.Booster], forests: list[Forest]) -> dict[str, Callable[[np.ndarray], list]]:
    return {
        "lightgbm": lambda X: [booster.predict(X, raw_score=True, num_threads=1) for booster in trained],
        "aimfor": lambda X: [forest.scores(X) for forest in forests],
        "aimfor, numpy": lambda X: [numpy_scores(forest._walk, feature_matrix(X, FEATURES)) for forest in forests],
    }


def run(cells: Cells, rows: int, repeats: int, dtypes: list[str]) -> None:
    for kind, (leaves, missing, categories) in KINDS.items():
        for dtype in dtypes:
            if len(cells.find(rows=rows, kind=kind, dtype=dtype)) == 3:
                continue
            cells.drop(rows=rows, kind=kind, dtype=dtype)
            trained = [*boosters(leaves, missing, categories)]
            X = table(rows, missing, categories, seed=2).astype(dtype)
            expected = None
            for walker, score in walkers(trained, [from_lightgbm(booster) for booster in trained]).items():
                part = X[: rows // 20] if walker == "aimfor, numpy" else X  # numpy takes minutes for all of them
                times = []
                for _ in range(1 if walker == "aimfor, numpy" else repeats):
                    began = time.process_time()
                    scores = score(part)
                    times.append((time.process_time() - began) * rows / len(part))
                expected = scores if expected is None else expected
                equal = all(np.array_equal(one, other[: len(one)]) for one, other in zip(scores, expected, strict=True))
                key = {"rows": rows, "features": FEATURES, "forests": FORESTS, "trees": TREES, "kind": kind}
                cells.add(**key, dtype=dtype, walker=walker, seconds=min(times), equal=equal)
                print(kind, dtype, walker, f"{min(times):.2f} s", equal, flush=True)


def report(cells: Cells) -> str:
    lines = ["| forests | features | LightGBM | aimfor | ratio | aimfor in numpy |", "|---|---|---|---|---|---|"]
    rows = max((int(row["rows"]) for row in cells.rows), default=0)
    for kind in KINDS:
        for dtype in DTYPES:
            found = {row["walker"]: float(row["seconds"]) for row in cells.find(rows=rows, kind=kind, dtype=dtype)}
            if len(found) == 3:
                theirs, ours, plain = found["lightgbm"], found["aimfor"], found["aimfor, numpy"]
                lines.append(
                    f"| {kind} | {dtype} | {theirs:.1f} s | {ours:.1f} s | {ours / theirs:.2f} | {plain:.0f} s |"
                )
    return "\n".join([*lines, f"\n{rows:,} rows of {FEATURES} features, {FORESTS} forests of {TREES} trees, one core"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cells = Cells(RESULTS / f"{NAME}.csv")
    if not arguments.report:
        run(cells, arguments.rows, arguments.repeats, arguments.dtypes)
    print(report(cells))


if __name__ == "__main__":
    main()
