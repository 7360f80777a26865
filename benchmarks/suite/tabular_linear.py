"""Tabular sets, linear model: each aim beside converged logistic regression, at the aim's own exact metric.

    python -m benchmarks.suite.tabular_linear            # resumes from results/tabular_linear.csv
    python -m benchmarks.suite.tabular_linear --quick    # reproduce one split of one set and compare
    python -m benchmarks.suite.tabular_linear --report   # the table from the finished cells

Every seed is a stratified split: half of the rows train, a fifth chooses, the rest measures. The C of logistic
regression and the rate and decay of aimfor are chosen per aim, by the aim's own metric on the rows that choose, from 7
and 6 values. Metrics at a threshold are taken at the best threshold of the rows they are measured on, for both.
"""

import argparse
import time
import warnings
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import aimfor
from benchmarks.shared import data, page
from benchmarks.shared.cells import Cells
from benchmarks.shared.forms import BOUNDING
from benchmarks.shared.heads import Setting, train_heads
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.shared.spread import spread

NAME = "tabular_linear"
SETS = ("mammography", *data.ADBENCH)
AIMS = ("aucpr", "recall@precision>=0.9", "precision@recall>=0.9", "tpr@fpr<=0.01", "f1")
METHODS = ("logistic regression", "aimfor")
SEEDS = (0, 1, 2)
STEPS = 3_000
C_GRID = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3)
GRID = [Setting(*pair) for pair in product((0.01, 0.03, 0.1), (0.0, 0.1))]


class Split(NamedTuple):
    """Standardised rows that train, choose and measure, each a table."""

    train: data.Table
    choose: data.Table
    measure: data.Table


class Candidates(NamedTuple):
    """One column of scores per candidate, for the rows that choose and those that measure; how each is named."""

    choose: np.ndarray
    measure: np.ndarray
    names: list[str]
    feasible: list[bool]


def split_table(table: data.Table, seed: int) -> Split:
    """Half, a fifth and the rest of the rows, standardised with the first part's statistics."""
    X, X_rest, y, y_rest = train_test_split(*table, train_size=0.5, stratify=table.y, random_state=seed)
    X_choose, X_measure, y_choose, y_measure = train_test_split(
        X_rest, y_rest, train_size=0.4, stratify=y_rest, random_state=seed
    )
    mean, deviation = X.mean(0), X.std(0)
    deviation[deviation == 0] = 1
    parts = (X, y), (X_choose, y_choose), (X_measure, y_measure)
    return Split(*(data.Table((rows - mean) / deviation, labels) for rows, labels in parts))


def logistic_regressions(split: Split) -> Candidates:
    """Logistic regression at every C, each to convergence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a fit that has not converged is no baseline
        models = [LogisticRegression(C=C, max_iter=100_000, tol=1e-6).fit(*split.train) for C in C_GRID]
    columns = [np.stack([model.decision_function(part.X) for model in models], axis=1) for part in split[1:]]
    return Candidates(*columns, [f"C={C:g}" for C in C_GRID], [True] * len(C_GRID))


def aimed_models(aim: str, split: Split, seed: int) -> Candidates:
    """The aim at every setting of the grid, as heads of one model."""
    loss = aimfor.Loss(aim, num_labels=len(GRID), **BOUNDING)
    with warnings.catch_warnings():
        # Kept as a column of the results instead.
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        heads = train_heads(
            torch.from_numpy(split.train.X).float(),
            torch.from_numpy(split.train.y),
            lambda scores, labels: len(GRID) * loss(scores[:, :, 0], labels[:, None].expand(-1, len(GRID))),
            GRID,
            num_labels=1,
            steps=STEPS,
            seed=seed,
            batch_size=256,
        )
    columns = [heads.scores(torch.from_numpy(part.X).float())[:, :, 0].double().numpy() for part in split[1:]]
    names = [f"rate={setting.rate:g} decay={setting.decay:g}" for setting in GRID]
    return Candidates(*columns, names, loss.diagnostics().feasible.any(0).tolist())


def add_cell(cells: Cells, named: dict[str, object], split: Split, candidates: Candidates, seconds: float) -> None:
    """Choose by the aim's metric on the rows that choose, then measure that candidate once."""
    metric = aimfor.aim(str(named["aim"])).metric
    on_choose = [float(metric(split.choose.y, scores)) for scores in candidates.choose.T]
    best = int(np.argmax(on_choose))
    cells.add(
        **named,
        chosen=candidates.names[best],
        feasible=candidates.feasible[best],
        validation=on_choose[best],
        test=float(metric(split.measure.y, candidates.measure[:, best])),
        seconds=seconds,
    )


def run(name: str, rows: data.Table, cells: Cells, seed: int) -> None:
    """All cells of one split that are not finished."""
    split = split_table(rows, seed)
    keys = [{"set": name, "aim": aim, "seed": seed} for aim in AIMS]
    missing = [key for key in keys if not cells.find(**key, method="logistic regression")]
    if missing:
        start = time.perf_counter()
        candidates = logistic_regressions(split)
        seconds = time.perf_counter() - start
        for key in missing:
            add_cell(cells, key | {"method": "logistic regression"}, split, candidates, seconds)
    for key in keys:
        if not cells.find(**key, method="aimfor"):
            start = time.perf_counter()
            candidates = aimed_models(str(key["aim"]), split, seed)
            add_cell(cells, key | {"method": "aimfor"}, split, candidates, time.perf_counter() - start)


def table(cells: Cells) -> page.Table:
    """Per set and aim: both methods at the aim's metric on held-out rows, and their difference split by split."""
    rows = []
    for aim, name in product(AIMS, SETS):
        theirs, ours = (cells.find(set=name, aim=aim, method=one) for one in METHODS)
        if theirs and ours:
            shown = [page.plain(spread(page.values(found, "test"))) for found in (theirs, ours)]
            rows.append([f"`{aim}`", name, *shown, page.signed(page.differences(ours, theirs, "test"))])
    header = ["aim, measured by its exact metric", "set", *METHODS, "difference ± standard error"]
    return page.Table("Held-out rows, mean ± standard deviation over splits", header, rows)


def gains(cells: Cells, aim: str) -> dict[str, page.Spread]:
    """Per set, ours minus logistic regression, split by split."""
    pairs = {name: [cells.find(set=name, aim=aim, method=one) for one in METHODS] for name in SETS}
    return {name: page.differences(ours, theirs, "test") for name, (theirs, ours) in pairs.items() if theirs and ours}


def report(cells: Cells) -> None:
    """The table to the terminal, the picture beside the CSV."""
    table(cells).show()
    panels = {aim: {"": gains(cells, aim)} for aim in AIMS}
    page.draw_differences(NAME, "The bare loss minus converged logistic regression, linear, held-out rows", panels)


def again(cells: Cells, folder: Path) -> list[Reproduced]:
    """One split of the first set."""
    rows = data.load_table(SETS[0], folder)
    if rows is None:
        return []
    run(SETS[0], rows, cells, SEEDS[0])
    keys = ("set", "aim", "seed", "method")
    return compare(page.committed(NAME), cells, keys=keys, over="seed", measures=("validation", "test"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--redo", action="store_true", help="forget aimfor's cells first")
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    parser.add_argument("--report", action="store_true", help="only the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = data.data_folder(arguments.data)
    if arguments.quick:
        return page.hold(lambda cells: again(cells, folder))
    cells = page.committed(NAME)
    if arguments.redo:
        cells.drop(method="aimfor")
    for name in () if arguments.report else SETS:
        rows = data.load_table(name, folder)
        if rows is not None:
            for seed in SEEDS:
                run(name, rows, cells, seed)
            print(f"{name}: done", flush=True)
    return report(cells)


if __name__ == "__main__":
    main()
