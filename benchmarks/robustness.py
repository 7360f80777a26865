"""How much the AUCPR result on CIFAR-10 moves with the loss's own rates and with the scale of the scores.

    python benchmarks/robustness.py            # needs the setting chosen by cifar10_linear.py
    python benchmarks/robustness.py --quick    # a minute, keeps nothing

The one-vs-rest head with the smooth hinge, three times:

- at its chosen setting, while dual_rate moves over a factor of 100 around its default and threshold_rate over 10;
- with its scores multiplied by 0.1 and 10 before the loss sees them, at the best setting of the same grid;
- the same with rate and decay left as they were chosen at scale 1. For a linear head under AdamW a factor on the scores
  is the same factor on the rate and its inverse on the decay, so this moves any loss; log-loss is shown beside it.
"""

import math
import time
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

import aimfor
import data
from cifar10_linear import (
    CLASSES,
    GRID,
    METHODS,
    SEEDS,
    STEPS,
    Chosen,
    Method,
    arguments_of,
    as_they_are,
    aucpr,
    binary_cross_entropy,
    choose,
    measure_cell,
    search,
    test,
)
from common import RESULTS, Cells, Setting, print_table, spread, train_heads
from patch_features import Features, load_features

OURS, THEIRS = "aucpr smooth hinge", "bce"
SCALES = (0.1, 10.0)


class Rates(NamedTuple):
    """Factors on dual_rate and on threshold_rate."""

    dual: float = 1.0
    threshold: float = 1.0


RATES = [
    Rates(),
    *(Rates(dual=factor) for factor in (0.1, 0.3, 3.0, 10.0)),
    *(Rates(threshold=factor) for factor in (math.sqrt(0.1), math.sqrt(10))),
]
RETUNED = "best of the grid"
UNTOUCHED = "rate and decay as at scale 1"


def scaled(name: str, scale: float, tuning: str) -> str:
    """The name of a method whose scores are multiplied."""
    return f"{name}, scores x {scale:g}, {tuning}"


def methods_at(scale: float) -> dict[str, Method]:
    """The two methods with their scores multiplied; they rank as they did."""
    return {
        OURS: Method(partial(aucpr, scale=scale, surrogate="smooth_hinge"), as_they_are),
        THEIRS: Method(partial(binary_cross_entropy, scale=scale), as_they_are),
    }


def move_rates(features: Features, cells: Cells, chosen: Chosen, seed: int) -> None:
    """Train heads that differ in the loss's own rates side by side; measure them on the test images."""
    if len(cells.find(stage="rates", seed=seed)) == len(RATES):
        return
    cells.drop(stage="rates", seed=seed)
    default = aimfor.Loss("aucpr")
    losses = [
        aucpr(
            1,
            surrogate="smooth_hinge",
            dual_rate=one.dual * default.dual_rate,
            threshold_rate=one.threshold * default.threshold_rate,
        )
        for one in RATES
    ]

    def loss(scores: Tensor, classes: Tensor) -> Tensor:
        return torch.stack([one(scores[:, [head]], classes) for head, one in enumerate(losses)]).sum()

    start = time.perf_counter()
    heads = train_heads(
        features.train,
        features.train_classes,
        loss,
        [chosen.setting] * len(RATES),
        num_labels=CLASSES,
        steps=chosen.steps,
        seed=seed,
    )
    seconds = time.perf_counter() - start
    scores = heads.scores(features.test)
    for index, rates in enumerate(RATES):
        cell = {"stage": "rates", "method": rates_name(rates), "steps": chosen.steps, **chosen.setting._asdict()}
        measured = measure_cell(scores[:, index], features.test_classes, METHODS[OURS])
        cells.add(**cell, seed=seed, **measured, seconds=seconds)


def rates_name(rates: Rates) -> str:
    """`OURS` with the factors that are not 1."""
    return ", ".join([OURS, *(f"{name}_rate x {value:.3g}" for name, value in rates._asdict().items() if value != 1)])


def report(cells: Cells, chosen: dict[str, Chosen], reference: dict[str, list[tuple[float, float]]]) -> None:
    """Distance from the unmoved result, seed by seed."""
    rows = []

    def add(name: str, found: list[dict[str, str]], unmoved: list[tuple[float, float]]) -> None:
        values = measured(found)
        differences = zip(*((a[0] - b[0], a[1] - b[1]) for a, b in zip(values, unmoved, strict=True)), strict=True)
        precision, recall = (spread(column).mean for column in zip(*values, strict=True))
        moved = [spread(column) for column in differences]
        shown = [f"{one.mean:+.4f} +- {one.error:.4f}" for one in moved]
        rows.append([name, f"{precision:.4f}", shown[0], f"{recall:.4f}", shown[1]])

    unmoved = measured(cells.find(stage="rates", method=OURS))
    for rates in RATES:
        add(rates_name(rates), cells.find(stage="rates", method=rates_name(rates)), unmoved)
    for tuning in (RETUNED, UNTOUCHED):
        for name in (OURS, THEIRS):
            for scale in SCALES:
                method = scaled(name, scale, tuning)
                steps, setting = choose(method, cells) if tuning == RETUNED else chosen[name]
                found = cells.find(stage="test", method=method, steps=steps, **setting._asdict())
                add(f"{method}: rate {setting.rate:g}, decay {setting.decay:g}", found, reference[name])
    columns = ["", "macro AP", "moved", "macro R@P0.9", "moved"]
    print_table("test images, mean over seeds, +- standard error of what moved", columns, rows)


def measured(found: list[dict[str, str]]) -> list[tuple[float, float]]:
    """Both metrics of the seeds in their order."""
    found = sorted(found, key=lambda row: int(row["seed"]))
    return [(float(row["ap"]), float(row["recall_at_p90"])) for row in found]


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--redo", action="store_true", help="forget the finished cells first")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    features = load_features(data.data_folder(arguments.data), arguments.cache)
    if features is None:
        return
    cells = Cells(None if arguments.quick else RESULTS / "robustness.csv")
    unscaled = Cells(None if arguments.quick else RESULTS / "cifar10_linear.csv")
    if arguments.redo:
        cells.drop()
    if arguments.quick:
        grid, all_steps, seeds = GRID[5:9], (300,), SEEDS[:2]
        chosen = dict.fromkeys((OURS, THEIRS), Chosen(300, Setting(1e-3, 0.1)))
        for name, seed in ((name, seed) for name in chosen for seed in seeds):
            test(name, METHODS[name], features, unscaled, chosen[name], seed)
    else:
        grid, all_steps, seeds = GRID, STEPS, SEEDS
        chosen = {name: choose(name, unscaled) for name in (OURS, THEIRS)}
    for seed in seeds:
        move_rates(features, cells, chosen[OURS], seed)
    for scale in SCALES:
        for name, method in methods_at(scale).items():
            retuned = scaled(name, scale, RETUNED)
            for steps in all_steps:
                search(retuned, method, features, cells, grid, steps)
            for seed in seeds:
                test(retuned, method, features, cells, choose(retuned, cells), seed)
                test(scaled(name, scale, UNTOUCHED), method, features, cells, chosen[name], seed)
    reference = {}
    for name, one in chosen.items():
        found = unscaled.find(stage="test", method=name, steps=one.steps, **one.setting._asdict())
        reference[name] = measured([row for row in found if int(row["seed"]) in seeds])
    report(cells, chosen, reference)


if __name__ == "__main__":
    main()
