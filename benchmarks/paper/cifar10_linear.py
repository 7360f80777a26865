"""CIFAR-10, frozen patch features, linear head: the area under the precision-recall curve against log-loss.

    python -m benchmarks.paper.cifar10_linear            # resumes from results/cifar10_linear.csv
    python -m benchmarks.paper.cifar10_linear --quick    # reproduce some cells and compare
    python -m benchmarks.paper.cifar10_linear --report   # the tables from the finished cells
    python -m benchmarks.paper.cifar10_linear --centroids 512 --methods "cross-entropy"  # other features

Every method gets the same grid of steps, rate and decay. The setting is chosen on 10,000 of the training images, by the
mean of macro average precision and macro recall at precision 0.9; the head is then trained on all 50,000 for each seed
and measured once on the official test images. Softmax scores are ranked by probability (as log-odds, which rank the
same and do not round); the ranking by raw logits is shown beside it.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import aimfor
from benchmarks.paper.patch_features import DEFAULT_CACHE, Features, load_features
from benchmarks.shared import data, page
from benchmarks.shared.cells import Cells
from benchmarks.shared.forms import BOUNDING
from benchmarks.shared.heads import HeadsLoss, Setting, train_heads
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.shared.spread import Spread, spread

NAME = "cifar10_linear"
CLASSES = 10
MIN_PRECISION = 0.9
SEEDS = (1, 2, 3)
VALIDATION_ROWS = 10_000
RESAMPLES = 200
STEPS = (10_000, 30_000)
# Exclusive classes gain longer; of the grid only what was good at fewer steps, and on the first features only.
LONGEST = 100_000
CENTROIDS, OTHER_CENTROIDS = 256, (384, 512)
# Wide enough that every method has its best rate inside, also when its scores are multiplied by 0.1 or 10; with lower
# rates or fewer steps log-loss looks worse than it is.
GRID = [Setting(*pair) for pair in product((1e-3, 3e-3, 1e-2, 3e-2, 1e-1), (0.0, 0.01, 0.03, 0.1, 0.3))]
CENTRE = [Setting(*pair) for pair in product((3e-3, 1e-2, 3e-2), (0.0, 0.01, 0.03))]
LONG = ("cross-entropy", "aucpr log-odds log")


class Method(NamedTuple):
    """How a head is trained (a loss for a number of heads), and by what its classes are ranked."""

    make_loss: Callable[[int], HeadsLoss]
    rank: Callable[[Tensor], Tensor]


class Chosen(NamedTuple):
    """The setting of a method that did best on the validation images."""

    steps: int
    setting: Setting


def binary_cross_entropy(heads: int, scale: float = 1.0) -> HeadsLoss:
    """Log-loss of each class against the rest."""
    return lambda scores, classes: (
        heads * F.binary_cross_entropy_with_logits(scale * scores, one_vs_rest(scores, classes))
    )


def cross_entropy(heads: int) -> HeadsLoss:
    """Softmax log-loss."""
    return lambda scores, classes: heads * F.cross_entropy(scores.flatten(0, 1), classes.repeat_interleave(heads))


def aucpr(heads: int, scale: float = 1.0, aim: str = "aucpr", **options: Any) -> HeadsLoss:
    """Area under the precision-recall curve of each class against the rest; `Loss` averages over all heads' labels."""
    loss = aimfor.Loss(aim, num_labels=heads * CLASSES, **(BOUNDING | options))
    return lambda scores, classes: heads * loss(scale * scores.flatten(1), one_vs_rest(scores, classes).flatten(1))


def aucpr_log_odds(heads: int, **options: Any) -> HeadsLoss:
    """The same on softmax log-odds; with one head it is `Loss("aucpr", num_labels=10, multiclass=True)`."""
    loss = aucpr(heads, **options)
    return lambda scores, classes: loss(log_odds(scores), classes)


def log_odds(scores: Tensor) -> Tensor:
    """Softmax log-odds along the last axis."""
    return aimfor.log_odds(scores.reshape(-1, CLASSES)).view_as(scores)


def as_they_are(scores: Tensor) -> Tensor:
    """One-vs-rest scores rank by themselves."""
    return scores


def one_vs_rest(scores: Tensor, classes: Tensor) -> Tensor:
    """Class indices [B] as 0/1 labels in the shape of the scores [B, G, 10]."""
    return F.one_hot(classes, CLASSES).to(scores)[:, None].expand_as(scores)


METHODS = {
    "bce": Method(binary_cross_entropy, as_they_are),
    "aucpr": Method(aucpr, as_they_are),
    "aucpr smooth hinge": Method(partial(aucpr, surrogate="smooth_hinge"), as_they_are),
    "cross-entropy": Method(cross_entropy, log_odds),
    "aucpr log-odds": Method(aucpr_log_odds, log_odds),
    "aucpr log-odds log": Method(partial(aucpr_log_odds, surrogate="log"), log_odds),
    "aucpr log-odds smooth hinge": Method(partial(aucpr_log_odds, surrogate="smooth_hinge"), log_odds),
    "aucpr[precision>=0.3] log-odds log": Method(
        partial(aucpr_log_odds, surrogate="log", aim="aucpr[precision>=0.3]"), log_odds
    ),
}


def measure(scores: Tensor, classes: Tensor) -> tuple[float, float]:
    """Macro average precision and macro recall at precision 0.9."""
    labels = F.one_hot(classes, CLASSES)
    precision = aimfor.metrics.average_precision(labels, scores)
    recall = aimfor.metrics.recall_at_precision(labels, scores, MIN_PRECISION).value
    return float(precision.mean()), float(recall.mean())


def measure_cell(scores: Tensor, classes: Tensor, method: Method) -> dict[str, float]:
    """The columns of a cell: ranked as the method ranks, and by raw scores."""
    scores = scores.double()
    ranked = method.rank(scores)
    precision, recall = measure(ranked, classes)
    raw_precision, raw_recall = measure(scores, classes)
    return {"ap": precision, "recall_at_p90": recall, "ap_raw": raw_precision, "recall_at_p90_raw": raw_recall}


def search(name: str, method: Method, features: Features, cells: Cells, grid: list[Setting], steps: int) -> None:
    """Train all settings of the grid as heads of one model; measure them on the validation images."""
    missing = [one for one in grid if not cells.find(stage="validation", method=name, steps=steps, **one._asdict())]
    if not missing:
        return
    order = torch.randperm(len(features.train), generator=torch.Generator().manual_seed(0))
    held_out, kept = order[:VALIDATION_ROWS], order[VALIDATION_ROWS:]
    start = time.perf_counter()
    heads = train_heads(
        features.train[kept],
        features.train_classes[kept],
        method.make_loss(len(missing)),
        missing,
        num_labels=CLASSES,
        steps=steps,
        seed=0,
    )
    seconds = time.perf_counter() - start
    scores = heads.scores(features.train[held_out])
    for index, setting in enumerate(missing):
        measured = measure_cell(scores[:, index], features.train_classes[held_out], method)
        cell = {"stage": "validation", "method": name, "steps": steps, **setting._asdict(), "seed": 0}
        cells.add(**cell, **measured, seconds=seconds)


def choose(name: str, cells: Cells, **where: object) -> Chosen:
    """The setting with the best mean of the two metrics on the validation images, among those `where` says."""
    best = max(cells.find(stage="validation", method=name, **where), key=_both)
    return Chosen(int(best["steps"]), Setting(float(best["rate"]), float(best["decay"])))


def test(name: str, method: Method, features: Features, cells: Cells, chosen: Chosen, seed: int) -> None:
    """Train the chosen setting on all training images; measure it on the test images."""
    cell = {"stage": "test", "method": name, "steps": chosen.steps, **chosen.setting._asdict(), "seed": seed}
    if cells.find(**cell):
        return
    start = time.perf_counter()
    scores = test_scores(method, features, chosen, seed)
    seconds = time.perf_counter() - start
    measured = measure_cell(scores, features.test_classes, method)
    if method.rank is log_odds:
        # Of what is reported. Settings at the end of the grid may saturate until probabilities round to 1.
        by_probability = measure(scores.double().softmax(-1), features.test_classes)
        off = (by_probability[0] - measured["ap"], by_probability[1] - measured["recall_at_p90"])
        assert max(map(abs, off)) < 1e-4, off
    cells.add(**cell, **measured, seconds=seconds)


def test_scores(method: Method, features: Features, chosen: Chosen, seed: int) -> Tensor:
    """Scores of the test images, trained on all training images."""
    heads = train_heads(
        features.train,
        features.train_classes,
        method.make_loss(1),
        [chosen.setting],
        num_labels=CLASSES,
        steps=chosen.steps,
        seed=seed,
    )
    return heads.scores(features.test)[:, 0]


def resample_images(ours: str, theirs: str, features: Features, cells: Cells) -> None:
    """How much a difference moves with the test images, which all seeds share: its standard deviation when images are
    drawn with replacement, the same for both."""
    cell = {"stage": "images", "method": f"{ours} - {theirs}", "steps": "", "rate": "", "decay": "", "seed": SEEDS[0]}
    if cells.find(**cell):
        return
    start = time.perf_counter()
    ranked = [
        METHODS[name].rank(test_scores(METHODS[name], features, choose(name, cells), SEEDS[0]).double())
        for name in (ours, theirs)
    ]
    generator, count = torch.Generator().manual_seed(0), len(features.test_classes)
    moved = []
    for _ in range(RESAMPLES):
        drawn = torch.randint(count, (count,), generator=generator)
        measured = [measure(scores[drawn], features.test_classes[drawn]) for scores in ranked]
        moved.append([one - other for one, other in zip(*measured, strict=True)])
    ap, recall = (spread(values).deviation for values in zip(*moved, strict=True))
    seconds = time.perf_counter() - start
    cells.add(**cell, ap=ap, recall_at_p90=recall, ap_raw="", recall_at_p90_raw="", seconds=seconds)


PAIRS = (
    ("aucpr", "bce", ""),
    ("aucpr smooth hinge", "bce", ""),
    ("aucpr log-odds", "cross-entropy", ""),
    ("aucpr log-odds log", "cross-entropy", ""),
    ("aucpr log-odds smooth hinge", "cross-entropy", ""),
    ("aucpr[precision>=0.3] log-odds log", "cross-entropy", ""),
    ("aucpr log-odds log", "cross-entropy", "_raw"),
)
"""Ours, theirs, and by which scores theirs are ranked: its own, or raw ones."""


def tested(name: str, cells: Cells, **where: object) -> list[dict[str, str]]:
    """The cells of a method on the test images, at its chosen setting among those `where` says."""
    if not cells.find(stage="test", method=name, **where):
        return []
    steps, setting = choose(name, cells, **where)
    return cells.find(stage="test", method=name, steps=steps, **setting._asdict())


def measured_table(cells: Cells) -> page.Table:
    rows = []
    for name, method in METHODS.items():
        found = tested(name, cells)
        for column in (("", "_raw") if method.rank is log_odds else ("",)) if found else ():
            shown = [page.plain(spread(page.values(found, one + column))) for one in ("ap", "recall_at_p90")]
            setting = [found[0][key] for key in ("steps", "rate", "decay")]
            rows.append([name + (", by logits" if column else ""), *shown, *setting])
    header = ["method", "macro AP", f"macro R@P{MIN_PRECISION}", "steps", "rate", "decay"]
    return page.Table("Test images, mean ± standard deviation over seeds", header, rows)


def differences_table(cells: Cells) -> page.Table:
    rows = []
    for ours, theirs, column in PAIRS:
        found = [tested(name, cells) for name in (ours, theirs)]
        if all(found):
            name = f"{ours} - {theirs}" + (", by logits" if column else "")
            images = [] if column else cells.find(stage="images", method=name)
            line = [name]
            for one in ("ap", "recall_at_p90"):
                line += [page.signed(difference(*found, one, column)), f"{float(images[0][one]):.4f}" if images else ""]
            rows.append(line)
    columns = ("macro AP", f"macro R@P{MIN_PRECISION}")
    header = ["", *(text for one in columns for text in (one, "other images"))]
    return page.Table("Differences, mean ± standard error over seeds; what other test images move them", header, rows)


def steps_table(cells: Cells) -> page.Table:
    """What longer training leaves of the difference between cross-entropy and its rival."""
    theirs, ours = LONG
    rows = []
    for steps in (*STEPS, LONGEST):
        found = [tested(name, cells, steps=steps) for name in (ours, theirs)]
        if all(found):
            means = [page.plain(spread(page.values(one, "recall_at_p90"))) for one in reversed(found)]
            differences = [page.signed(difference(*found, one, "")) for one in ("ap", "recall_at_p90")]
            rows.append([f"{steps:,}", *means, *differences])
    recall = f"macro R@P{MIN_PRECISION}"
    header = ["steps", *(f"{recall}, {name}" for name in LONG), "difference of macro AP", f"of {recall}"]
    return page.Table("Test images, both at their best setting of so many steps", header, rows)


def _both(row: dict[str, str]) -> float:
    return float(row["ap"]) + float(row["recall_at_p90"])


def difference(ours: list[dict[str, str]], theirs: list[dict[str, str]], metric: str, column: str) -> Spread:
    """Ours as it ranks, theirs by the scores named."""
    ranked = [row | {metric: row[metric + column]} for row in theirs]
    return page.differences(ours, ranked, metric)


def again(cells: Cells, features: Features | None) -> list[Reproduced]:
    """The searches of two methods at the smallest number of steps, and one seed of their tests."""
    committed = page.committed(NAME)
    for name in ("bce", "aucpr smooth hinge") if features is not None else ():
        search(name, METHODS[name], features, cells, GRID, STEPS[0])
        test(name, METHODS[name], features, cells, choose(name, committed), SEEDS[0])
    keys = ("stage", "method", "steps", "rate", "decay", "seed")
    return compare(committed, cells, keys=keys, over="seed", measures=("ap", "recall_at_p90"))


def report(name: str, cells: Cells) -> None:
    """Tables to the terminal, the picture beside the CSV."""
    measured_table(cells).show()
    differences_table(cells).show()
    pairs = {f"{a} - {b}": [tested(one, cells) for one in (a, b)] for a, b, column in PAIRS if not column}
    panels = {
        title: {"": {pair: difference(*found, metric, "") for pair, found in pairs.items() if all(found)}}
        for metric, title in (("ap", "macro AP"), ("recall_at_p90", f"macro R@P{MIN_PRECISION}"))
    }
    page.draw_differences(name, "Linear heads on frozen features of CIFAR-10, test images, over seeds", panels)


def arguments_of(description: str | None) -> argparse.ArgumentParser:
    """The options of the CIFAR-10 benchmarks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of the cached features")
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    parser.add_argument("--report", action="store_true", help="only the tables")
    return parser


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--redo", nargs="+", choices=list(METHODS), default=[], help="forget their cells first")
    parser.add_argument("--centroids", type=int, default=CENTROIDS, help="of the features; each number has its own CSV")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    name = name_of(arguments.centroids)
    cells = page.committed(name)
    if not arguments.report:
        features = load_features(data.data_folder(arguments.data), arguments.cache, arguments.centroids)
        if arguments.quick:
            return page.hold(lambda made: again(made, features))
        if features is None:
            return None
        run(cells, features, arguments.methods, arguments.redo, long=LONG if arguments.centroids == CENTROIDS else ())
    return report(name, cells)


def name_of(centroids: int) -> str:
    """Of the CSV for features of so many centroids."""
    return NAME if centroids == CENTROIDS else f"{NAME}_{centroids}_centroids"


def run(cells: Cells, features: Features, methods: list[str], redo: list[str], long: tuple[str, ...]) -> None:
    """All cells of these methods that are not finished."""
    for name in redo:
        cells.drop(method=name)
    for name in methods:
        for steps in STEPS:
            search(name, METHODS[name], features, cells, GRID, steps)
        if name in long:
            search(name, METHODS[name], features, cells, CENTRE, LONGEST)
        chosen_ones = {choose(name, cells)}
        if name in LONG:  # compared at each number of steps
            searched = {row["steps"] for row in cells.find(stage="validation", method=name)}
            chosen_ones |= {choose(name, cells, steps=steps) for steps in searched}
        for chosen, seed in product(chosen_ones, SEEDS):
            test(name, METHODS[name], features, cells, chosen, seed)
        print(f"{name}: chosen {choose(name, cells)}", flush=True)
    for ours, theirs, column in PAIRS:
        if not column and ours in methods and theirs in methods:
            resample_images(ours, theirs, features, cells)


if __name__ == "__main__":
    main()
