"""Accuracy against AUCPR, the paper's trade on ImageNet at K = 5, on Fashion-MNIST with a small convolutional network.

    python -m benchmarks.paper.accuracy_trade            # resumes from its CSV; some 10 minutes of a core
    python -m benchmarks.paper.accuracy_trade --quick    # reproduce two methods, one seed and compare
    python -m benchmarks.paper.accuracy_trade --report   # the tables and results/accuracy_trade.png

The paper gains 1.1 points of AUCPR on ImageNet for 0.4 points of accuracy. Here every method trains the same network
with the same batches for the same number of steps. Rate and decay are chosen from one grid by 10,000 of the training
images, by the mean of accuracy and macro average precision; the chosen setting is then trained on all 60,000 for each
seed and measured once on the official test images. Classes that exclude one another are ranked across images by their
softmax log-odds (the same order as probabilities), one-vs-rest scores by themselves; accuracy is that of the highest
score. Cross-entropy ranked by raw logits is shown beside it, because that is what one gets without the softmax.
"""

import argparse
import gzip
import math
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aimfor
from benchmarks.paper import side_by_side as paper
from benchmarks.shared import data, page
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.forms import BOUNDING
from benchmarks.shared.heads import Setting
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.shared.spread import Spread, spread

NAME = "accuracy_trade"
CLASSES, ANCHORS = 10, 5
SEEDS = (1, 2, 3)
STEPS, BATCH_SIZE = 1_000, 128
VALIDATION_IMAGES = 10_000
GRID = [Setting(*pair) for pair in product((1e-3, 3e-3, 1e-2), (0.0, 0.1))]
AIM = f"aucpr; num_anchors={ANCHORS}"
BASELINE = "cross-entropy"
QUICK_METHODS, QUICK_SEED = (BASELINE, "aucpr, log-odds"), 1
MEASURES = ("accuracy", "ap")

NetworkLoss = Callable[[Tensor, Tensor], Tensor]


class Method(NamedTuple):
    """A loss of logits [B, 10] and class indices [B], and by what its classes are ranked across images."""

    make_loss: Callable[[], NetworkLoss]
    rank: Callable[[Tensor], Tensor]


class Images(NamedTuple):
    """Images [n, 1, 28, 28] and class indices [n]."""

    X: Tensor
    classes: Tensor


def cross_entropy() -> NetworkLoss:
    return F.cross_entropy


def aucpr_log_odds(surrogate: str = "hinge") -> NetworkLoss:
    return aimfor.Loss(AIM, num_labels=CLASSES, multiclass=True, **(BOUNDING | {"surrogate": surrogate}))


def aucpr_one_vs_rest() -> NetworkLoss:
    loss = aimfor.Loss(AIM, num_labels=CLASSES, **BOUNDING)
    return lambda logits, classes: loss(logits, F.one_hot(classes, CLASSES))


def as_they_are(logits: Tensor) -> Tensor:
    return logits


METHODS = {
    BASELINE: Method(cross_entropy, aimfor.log_odds),
    "aucpr, log-odds": Method(aucpr_log_odds, aimfor.log_odds),
    "aucpr, log-odds, log": Method(lambda: aucpr_log_odds("log"), aimfor.log_odds),
    "aucpr, one-vs-rest": Method(aucpr_one_vs_rest, as_they_are),
}


def load(folder: Path) -> tuple[Images, Images] | None:
    """Training and test images, standardised by the training ones; None, after a printed line, when absent."""
    files = [
        folder / "fashion_mnist" / f"{part}-{kind}-ubyte.gz"
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ]
    for file in files:
        if not file.is_file():
            print(f"skipped Fashion-MNIST: no {file} (set --data or AIMFOR_DATA; github.com/zalandoresearch)")
            return None
    X, classes, X_test, classes_test = (read_idx(file) for file in files)
    mean, deviation = float(X.mean()), float(X.std())
    train, test = (
        Images(torch.from_numpy((one[:, None] - mean) / deviation).float(), torch.from_numpy(y.astype(np.int64)))
        for one, y in ((X, classes), (X_test, classes_test))
    )
    return train, test


def read_idx(path: Path) -> np.ndarray:
    """An array in the idx format: its fourth byte is the number of axes, then big-endian lengths."""
    with gzip.open(path) as file:
        content = file.read()
    axes = content[3]
    shape = np.frombuffer(content, ">i4", count=axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def network() -> nn.Module:
    """Two strided convolutions and a hidden layer: small enough for one core."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, CLASSES)),
    )


def train(images: Images, method: Method, setting: Setting, seed: int) -> nn.Module:
    """AdamW, the rate falling to 0 along a half cosine; first weights and batches depend on the seed alone."""
    torch.manual_seed(seed)
    model, loss = network(), method.make_loss()
    optimiser = torch.optim.AdamW(model.parameters(), lr=setting.rate, weight_decay=setting.decay)
    with warnings.catch_warnings():
        # Whether the bound of an anchor can be met is not the question here; the exact metrics are.
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        for step, rows in enumerate(paper.draws(len(images.X), BATCH_SIZE, STEPS, seed)):
            for group in optimiser.param_groups:
                group["lr"] = setting.rate * 0.5 * (1 + math.cos(math.pi * step / STEPS))
            optimiser.zero_grad()
            loss(model(images.X[rows]), images.classes[rows]).backward()
            optimiser.step()
    return model.eval()


def measure(model: nn.Module, images: Images, method: Method) -> dict[str, float]:
    """Accuracy, and macro average precision as the method ranks and by raw logits."""
    with torch.no_grad():
        logits = torch.cat([model(part) for part in images.X.split(1_000)]).double()
    labels = F.one_hot(images.classes, CLASSES)
    precision, raw = (aimfor.metrics.average_precision(labels, scores) for scores in (method.rank(logits), logits))
    accuracy = (logits.argmax(1) == images.classes).double().mean()
    return {"accuracy": float(accuracy), "ap": float(np.mean(precision)), "ap_raw": float(np.mean(raw))}


def run(cells: Cells, arguments: argparse.Namespace) -> None:
    """The grid of every method on validation images, then the chosen setting for every seed."""
    loaded = load(data.data_folder(arguments.data))
    if loaded is None:
        return
    train_images, test_images = loaded
    order = torch.randperm(len(train_images.X), generator=torch.Generator().manual_seed(0))
    held_out, kept = (
        Images(*(part[index] for part in train_images))
        for index in (order[:VALIDATION_IMAGES], order[VALIDATION_IMAGES:])
    )
    for name in METHODS:
        for setting in GRID:
            make_cell(cells, "validation", name, setting, 0, kept, held_out)
        for seed in SEEDS:
            make_cell(cells, "test", name, choose(cells, name), seed, train_images, test_images)
        print(f"{name}: done", flush=True)


def make_cell(cells: Cells, stage: str, name: str, setting: Setting, seed: int, fit: Images, held_out: Images) -> None:
    """Train and measure, unless that is finished."""
    cell = {"stage": stage, "method": name, "steps": STEPS, **setting._asdict(), "seed": seed}
    if cells.find(**cell):
        return
    start = time.perf_counter()
    model = train(fit, METHODS[name], setting, seed)
    seconds = time.perf_counter() - start
    cells.add(**cell, **measure(model, held_out, METHODS[name]), seconds=seconds)


def choose(cells: Cells, name: str) -> Setting:
    """The setting with the best mean of accuracy and average precision on the validation images."""
    rows = cells.find(stage="validation", method=name)
    best = max(rows, key=lambda row: sum(float(row[measure]) for measure in MEASURES))
    return Setting(float(best["rate"]), float(best["decay"]))


def again(cells: Cells, arguments: argparse.Namespace) -> list[Reproduced]:
    """The quick cells beside the committed ones, at the settings that the committed validation images chose."""
    loaded, known = load(data.data_folder(arguments.data)), page.committed(NAME)
    if loaded is None:
        return []
    for name in QUICK_METHODS:
        make_cell(cells, "test", name, choose(known, name), QUICK_SEED, *loaded)
    return compare(known, cells, keys=("stage", "method", "rate", "decay", "seed"), over="seed", measures=MEASURES)


def tested(cells: Cells, name: str) -> list[dict[str, str]]:
    """The test cells of a method at its chosen setting."""
    rows = cells.find(stage="test", method=name)
    return cells.find(stage="test", method=name, **choose(cells, name)._asdict()) if rows else []


def methods_of(cells: Cells) -> list[str]:
    """The methods with finished test cells."""
    return [name for name in METHODS if tested(cells, name)]


def table(cells: Cells) -> page.Table:
    """Accuracy and average precision in per cent, and differences in points."""
    rows, base = [], tested(cells, BASELINE)
    for name in methods_of(cells):
        found, setting = tested(cells, name), choose(cells, name)
        columns = (*MEASURES, "ap_raw")
        shown = [page.plain(spread(100 * value for value in page.values(found, column)), 2) for column in columns]
        moved = [page.signed(points(found, base, measure), 2) if name != BASELINE else "" for measure in MEASURES]
        moved.append(page.signed(points(found, by_raw_logits(base), "ap"), 2))
        rows.append([name, *shown, *moved, f"{setting.rate:g}, {setting.decay:g}"])
    header = [
        "trained",
        "accuracy, %",
        "AUCPR, %",
        "by raw scores, %",
        "accuracy, points",
        "AUCPR, points",
        "AUCPR, points against cross-entropy by raw logits",
        "rate, decay",
    ]
    title = "Test images, mean ± standard deviation over seeds; points against cross-entropy ± standard error"
    return page.Table(title, header, rows)


def points(ours: list[dict[str, str]], theirs: list[dict[str, str]], measure: str) -> Spread:
    """Difference in percentage points, seed by seed."""
    difference = page.differences(ours, theirs, measure)
    return difference.times(100)


def by_raw_logits(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The same cells with their ranking by raw logits as the metric."""
    return [row | {"ap": row["ap_raw"]} for row in rows]


def draw(cells: Cells) -> None:
    """One point for each seed, the mean larger."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4.4), dpi=120, layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(methods_of(cells)):
        accuracy, precision = (
            [100 * value for value in page.values(tested(cells, name), measure)] for measure in MEASURES
        )
        marker, colour = "os^D"[place], page.COLOURS[place]
        axes.plot(accuracy, precision, marker, color=colour, markersize=5, alpha=0.6)
        axes.plot(np.mean(accuracy), np.mean(precision), marker, color=colour, markersize=11, label=name)
    accuracy, raw = (np.mean(page.values(tested(cells, BASELINE), column)) * 100 for column in ("accuracy", "ap_raw"))
    axes.plot(
        accuracy, raw, "o", markerfacecolor="none", color="black", markersize=11, label=f"{BASELINE}, by raw logits"
    )
    axes.set(xlabel="accuracy on test images, %", ylabel="macro average precision on test images, %")
    axes.set_title("Fashion-MNIST: accuracy against AUCPR (small: seeds, large: mean)", loc="left", fontsize=11)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    figure.savefig(RESULTS / f"{NAME}.png")


def report(cells: Cells) -> None:
    """Table to the terminal, picture to the results."""
    table(cells).show()
    draw(cells)


if __name__ == "__main__":
    paper.command(__doc__, NAME, again, run, report)
