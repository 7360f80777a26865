"""Many labels: further steps of AUCPR from log-loss weights against as many of log-loss.

    python -m benchmarks.paper.many_labels            # resumes from its CSV; about 20 minutes of one core
    python -m benchmarks.paper.many_labels --quick    # reproduce one split of corel5k and compare
    python -m benchmarks.paper.many_labels --report   # the tables and results/many_labels.png

The paper's protocol for JFT: a model trained by log-loss goes on with AUCPR, and the baseline goes on with log-loss for
as long. Here a linear model on the largest multi-label sets. On each of three splits (30 % of the rows measure, a fifth
of the others chooses) log-loss is trained with every setting of a grid; the head with the best mean average precision
on validation rows is the start of all that follows. Every loss then takes the same number of steps from it with every
setting of a second grid, and is chosen and measured in the same way. All labels with a positive in each part count.
Rare labels are the third with the fewest positives among the training rows. Of rcv1sub1 the 4,000 features that most
training rows have are kept, because the weights are dense. What 20,000 labels cost is measured by cost/engine.py.
"""

import argparse
import warnings
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

import aimfor
from benchmarks.paper import side_by_side as paper
from benchmarks.shared import data, page, sets
from benchmarks.shared.baselines import scaled
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.forms import BOUNDING
from benchmarks.shared.heads import Heads, Setting
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.shared.spread import Spread, spread

NAME = "many_labels"
SETS = ("corel5k", "bibtex", "rcv1sub1", "delicious")
SPLITS = (1, 2, 3)
START, BASELINE = "log-loss, the start", "log-loss, further steps"
METHODS = {
    BASELINE: paper.log_loss,
    "aucpr, further steps": paper.aimed("aucpr", **BOUNDING),
    "aucpr, smooth hinge, further steps": paper.aimed("aucpr", **(BOUNDING | {"surrogate": "smooth_hinge"})),
    "aucpr, defaults, further steps": paper.aimed("aucpr"),
}
STEPS, BATCH_SIZE = 800, 128
# These sets overfit: weaker decays and lower rates did worse on validation rows of another split of corel5k. Further
# steps need low rates to keep a start which cannot be bettered; where the lowest loses some of it, the page says so.
FIRST_GRID = [Setting(*pair) for pair in product((0.03, 0.1), (0.3, 1.0, 3.0))]
NEXT_GRID = [Setting(*pair) for pair in product((3e-4, 3e-3, 3e-2), (0.3, 3.0))]
MAX_FEATURES = 4_000
THIRDS = ("rare", "middle", "frequent")
QUICK = [("corel5k", 1)]
MEASURES = ("ap", *(f"ap_{third}" for third in THIRDS))


class Scored(NamedTuple):
    """The best of a grid on validation rows: its setting, its weights as one head, and its average precisions."""

    setting: Setting
    head: Heads
    validation: float
    by_label: np.ndarray


# Further steps.


def load(name: str, folder: Path) -> sets.Rows | None:
    """A set with all of its labels; None, after a printed line, when its file is absent."""
    path = folder / "multilabel" / f"{name}.npz"
    if not path.is_file():
        print(f"skipped {name}: no {path} (set --data or AIMFOR_DATA; see benchmarks/shared/sets.py)")
        return None
    with np.load(path) as z:
        present = np.ones(len(z["X_indices"])) if z["X_binary"] else z["X_data"].astype(np.float64)
        X = sparse.csr_matrix((present, z["X_indices"], z["X_indptr"]), shape=z["X_shape"])
        Y = sparse.csr_matrix((np.ones(len(z["Y_indices"]), np.int64), z["Y_indices"], z["Y_indptr"]), z["Y_shape"])
        shape = tuple(z["X_shape"])
    return sets.Rows(X, np.empty((shape[0], 0), str), Y.toarray())


def split_of(rows: sets.Rows, seed: int) -> paper.Split:
    """Rows that train, choose and measure, dense, with the labels that can be measured on all of them."""
    parts = sets.split(rows, seed)
    labels = np.all([part.labels.any(0) & ~part.labels.all(0) for part in parts], axis=0)
    used = np.bincount(sparse.csr_matrix(parts[0].numbers).indices)
    kept = np.sort(np.argsort(-used, kind="stable")[:MAX_FEATURES])
    features = [sparse.csr_matrix(X) for X in scaled(*(part.numbers[:, kept] for part in parts))]
    return paper.Split(
        *(
            paper.Part(torch.from_numpy(X.toarray()).float(), torch.from_numpy(part.labels[:, labels]).float())
            for X, part in zip(features, parts, strict=True)
        )
    )


def run(cells: Cells, arguments: argparse.Namespace, wanted: list[tuple[str, int]]) -> None:
    """Every wanted set and split that is not finished."""
    for name, seed in wanted:
        missing = [one for one in (START, *METHODS) if not cells.find(set=name, split=seed, method=one)]
        rows = load(name, data.data_folder(arguments.data)) if missing else None
        if rows is None:
            continue
        split = split_of(rows, seed)
        start = best_of(split, paper.log_loss, FIRST_GRID, paper.zeros(split.train, 1), seed)
        for method in missing:
            make = METHODS.get(method)
            scored = start if make is None else best_of(split, make, NEXT_GRID, start.head, seed + 1000)
            add(cells, name, seed, method, split, scored)
        print(f"{name}, split {seed}: done", flush=True)


def best_of(split: paper.Split, make: paper.MakeLoss, grid: list[Setting], start: Heads, seed: int) -> Scored:
    """Train every setting from the same start; the one with the best mean average precision on validation rows."""
    each = len(grid)
    loss = make(each, split.train.Y.shape[1])
    begin = Heads(start.weight.expand(-1, each, -1), start.bias.expand(each, -1))
    training = paper.Training(begin, loss, grid, STEPS)
    with warnings.catch_warnings():
        # Rare labels often cannot meet any anchor; what that costs is what is measured.
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        for rows in paper.draws(len(split.train.X), BATCH_SIZE, STEPS, seed):
            training.step_(split.train.X[rows], split.train.Y[rows])
    scores = training.scores(split.choose.X)
    on_validation = [average_precisions(split.choose.Y, scores[:, place]).mean() for place in range(each)]
    best = int(np.argmax(on_validation))
    weight, bias = (part.detach() for part in training.heads)
    head = Heads(weight[:, best : best + 1].clone(), bias[best : best + 1].clone())
    measured = average_precisions(split.measure.Y, head.scores(split.measure.X)[:, 0])
    return Scored(grid[best], head, float(on_validation[best]), measured)


def average_precisions(Y: Tensor, scores: Tensor) -> np.ndarray:
    """Of each label."""
    return np.asarray(aimfor.metrics.average_precision(Y.numpy().astype(np.int64), scores.double().numpy()))


def add(cells: Cells, name: str, seed: int, method: str, split: paper.Split, scored: Scored) -> None:
    """A finished cell: the mean over labels, over each third by frequency, and every label."""
    positives = split.train.Y.sum(0).numpy().astype(int)
    cells.add(
        set=name,
        method=method,
        split=seed,
        labels=len(positives),
        steps=STEPS,
        **scored.setting._asdict(),
        validation=scored.validation,
        ap=float(scored.by_label.mean()),
        **{f"ap_{third}": mean for third, mean in zip(THIRDS, by_thirds(positives, scored.by_label), strict=True)},
        positives_by_label=" ".join(map(str, positives)),
        ap_by_label=" ".join(f"{value:.4f}" for value in scored.by_label),
    )


def by_thirds(positives: np.ndarray, measured: np.ndarray) -> list[float]:
    """The mean over the labels with the fewest positives, the middle ones, the most frequent ones."""
    order = np.argsort(positives, kind="stable")
    return [float(measured[third].mean()) for third in np.array_split(order, len(THIRDS))]


# What is told.


def again(cells: Cells, arguments: argparse.Namespace) -> list[Reproduced]:
    """The quick cells beside the committed ones."""
    run(cells, arguments, QUICK)
    return compare(page.committed(NAME), cells, keys=("set", "method", "split"), over="split", measures=MEASURES)


def sets_of(cells: Cells) -> list[str]:
    """The sets with more than one finished split, in order."""
    return [name for name in SETS if len(cells.find(set=name, method=list(METHODS)[-1])) > 1]


def gain(cells: Cells, name: str, method: str, measure: str, over: str = BASELINE) -> Spread:
    """A method minus another, split by split."""
    ours, theirs = (cells.find(set=name, method=one) for one in (method, over))
    return page.differences(ours, theirs, measure, pair_by="split")


def over_better(cells: Cells, name: str, method: str, measure: str) -> Spread:
    """A method minus the start or further log-loss, whichever is higher on the held-out rows of the set."""
    return min((gain(cells, name, method, measure, over) for over in (START, BASELINE)), key=lambda one: one.mean)


def by_label(row: dict[str, str], column: str) -> np.ndarray:
    """The numbers of all labels of a cell."""
    return np.array([float(value) for value in row[column].split()])


def labels_gained(cells: Cells, name: str, method: str) -> float:
    """Share of labels whose average precision is above that of log-loss, of those where it differs; over all splits."""
    pairs = zip(cells.find(set=name, method=method), cells.find(set=name, method=BASELINE), strict=True)
    moved = np.concatenate([by_label(ours, "ap_by_label") - by_label(theirs, "ap_by_label") for ours, theirs in pairs])
    return float((moved > 0).sum() / max(1, (moved != 0).sum()))


def table(cells: Cells) -> page.Table:
    """Every method on every set, all labels and the thirds."""
    rows = []
    for name, method in product(sets_of(cells), (START, *METHODS)):
        found = cells.find(set=name, method=method)
        labels = spread(page.values(found, "labels")).mean
        shown = [page.plain(spread(page.values(found, measure)), 3) for measure in MEASURES]
        rows.append([f"{name} ({labels:.0f} labels), {method}", *shown])
    header = ["set, method", "all labels", *(f"{third} third" for third in THIRDS)]
    title = "Average precision on held-out rows, mean over labels, mean ± standard deviation over splits"
    return page.Table(title, header, rows)


def gain_table(cells: Cells) -> page.Table:
    """What further steps add to as many of log-loss, to the start, and to the better of both."""
    rows = []
    for name, method in product(sets_of(cells), METHODS):
        to_start = page.signed(gain(cells, name, method, "ap", over=START))
        if method == BASELINE:
            rows.append([f"{name}, {method}", *[""] * len(MEASURES), "", to_start, ""])
            continue
        shown = [page.signed(gain(cells, name, method, measure)) for measure in MEASURES]
        share = f"{100 * labels_gained(cells, name, method):.0f} %"
        to_better = page.signed(over_better(cells, name, method, "ap"))
        rows.append([f"{name}, {method}", *shown, share, to_start, to_better])
    header = [
        "set, method",
        "all labels",
        *(f"{third} third" for third in THIRDS),
        "labels that gain, of those that move",
        "all labels, minus the start",
        "all labels, minus the better of the start and further log-loss",
    ]
    return page.Table(f"Minus {BASELINE}, ± standard error over splits", header, rows)


def draw(cells: Cells) -> None:
    """Each label's gain against its positives, a panel for each set, with means of equal groups of labels."""
    from matplotlib.figure import Figure

    names = sets_of(cells)
    figure = Figure(figsize=(max(6, 3.2 * len(names)), 3.8), dpi=120, layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for place, method in enumerate(list(METHODS)[1:]):
            pairs = zip(cells.find(set=name, method=method), cells.find(set=name, method=BASELINE), strict=True)
            found = [
                (by_label(ours, "positives_by_label"), by_label(ours, "ap_by_label") - by_label(theirs, "ap_by_label"))
                for ours, theirs in pairs
            ]
            positives, moved = (np.concatenate(part) for part in zip(*found, strict=True))
            if place == 0:
                axes.scatter(positives, moved, s=4, color=page.COLOURS[6], alpha=0.4, linewidths=0, label="a label")
            groups = np.array_split(np.argsort(positives, kind="stable"), 6)
            across, up = ([part[group].mean() for group in groups] for part in (positives, moved))
            axes.plot(across, up, marker="os^"[place], color=page.COLOURS[1 + place], label=f"mean: {method}")
        axes.axhline(0, color="black", linewidth=1)
        axes.set(xscale="log", xlabel="positives among training rows", ylim=(-0.2, 0.2))
        axes.set_title(name, loc="left")
    figure.axes[0].set_ylabel("average precision minus log-loss's")
    figure.axes[0].legend(fontsize=6, loc="lower right")
    figure.suptitle("Further steps of AUCPR minus as many of log-loss, held out")
    figure.savefig(RESULTS / f"{NAME}.png")


def report(cells: Cells) -> None:
    """Tables to the terminal, picture to the results."""
    for one in (table(cells), gain_table(cells)):
        one.show()
    draw(cells)


def main() -> None:
    arguments = paper.arguments_of(__doc__)
    if arguments.quick:
        return page.hold(lambda cells: again(cells, arguments))
    cells = page.committed(NAME)
    if not arguments.report:
        run(cells, arguments, list(product(SETS, SPLITS)))
    return report(cells)


if __name__ == "__main__":
    main()
