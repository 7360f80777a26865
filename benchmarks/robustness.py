"""How much the AUCPR result on CIFAR-10 moves with the loss's own rates and with the scale of the scores.

    python benchmarks/robustness.py            # needs the setting chosen by cifar10_linear.py
    python benchmarks/robustness.py --quick    # 300 steps, keeps nothing

The one-vs-rest head at its chosen setting, while dual_rate moves over a factor of 100 around its default,
threshold_rate over a factor of 10, and the scores that the loss sees are multiplied by 0.1 and 10 (the optimiser's rate
stays as it is). All variants are heads of one model and see the same batches.
"""

import math
import time
from typing import NamedTuple

import torch
from torch import Tensor

import aimfor
import data
from cifar10_linear import CLASSES, METHODS, SEEDS, Chosen, arguments_of, aucpr, choose, measure_cell
from common import RESULTS, Cells, Setting, print_table, spread, train_heads
from patch_features import Features, load_features


class Variant(NamedTuple):
    """Factors on dual_rate, on threshold_rate and on the scores."""

    dual: float = 1.0
    threshold: float = 1.0
    scale: float = 1.0


VARIANTS = [
    Variant(),
    *(Variant(dual=factor) for factor in (0.1, 0.3, 3.0, 10.0)),
    *(Variant(threshold=factor) for factor in (math.sqrt(0.1), math.sqrt(10))),
    *(Variant(scale=factor) for factor in (0.1, 10.0)),
]


def run(features: Features, cells: Cells, chosen: Chosen, seed: int) -> None:
    """Train all variants side by side and measure them on the test images."""
    if len(cells.find(seed=seed)) == len(VARIANTS):
        return
    default = aimfor.Loss("aucpr")
    losses = [
        aucpr(
            1, one.scale, dual_rate=one.dual * default.dual_rate, threshold_rate=one.threshold * default.threshold_rate
        )
        for one in VARIANTS
    ]

    def loss(scores: Tensor, classes: Tensor) -> Tensor:
        return torch.stack([one(scores[:, [head]], classes) for head, one in enumerate(losses)]).sum()

    start = time.perf_counter()
    heads = train_heads(
        features.train,
        features.train_classes,
        loss,
        [chosen.setting] * len(VARIANTS),
        num_labels=CLASSES,
        steps=chosen.steps,
        seed=seed,
    )
    seconds = time.perf_counter() - start
    scores = heads.scores(features.test)
    for index, variant in enumerate(VARIANTS):
        measured = measure_cell(scores[:, index], features.test_classes, METHODS["aucpr"])
        cells.add(
            **variant._asdict(),
            seed=seed,
            steps=chosen.steps,
            **chosen.setting._asdict(),
            dual_rate=variant.dual * default.dual_rate,
            threshold_rate=variant.threshold * default.threshold_rate,
            ap=measured["ap"],
            recall_at_p90=measured["recall_at_p90"],
            seconds=seconds,
        )


def report(cells: Cells) -> None:
    """Mean over seeds per variant, and its distance from the defaults."""
    means = []
    for variant in VARIANTS:
        found = cells.find(**variant._asdict())
        means.append([spread(float(row[column]) for row in found).mean for column in ("ap", "recall_at_p90")])
    rows = []
    for variant, (precision, recall) in zip(VARIANTS, means, strict=True):
        named = ", ".join(f"{name} x {value:.3g}" for name, value in variant._asdict().items() if value != 1)
        moved = f"{precision - means[0][0]:+.4f}", f"{recall - means[0][1]:+.4f}"
        rows.append([named or "defaults", f"{precision:.4f}", moved[0], f"{recall:.4f}", moved[1]])
    print_table("test images, mean over seeds", ["", "macro AP", "moved", "macro R@P0.9", "moved"], rows)
    largest = [max(abs(mean[column] - means[0][column]) for mean in means) for column in (0, 1)]
    print(f"\nlargest deviation: macro AP {largest[0]:.4f}, macro R@P0.9 {largest[1]:.4f}")


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--redo", action="store_true", help="forget the finished cells first")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    features = load_features(data.data_folder(arguments.data), arguments.cache)
    if features is None:
        return
    cells = Cells(None if arguments.quick else RESULTS / "robustness.csv")
    if arguments.redo:
        cells.drop()
    if arguments.quick:
        chosen, seeds = Chosen(300, Setting(1e-3, 0.1)), SEEDS[:1]
    else:
        chosen, seeds = choose("aucpr", Cells(RESULTS / "cifar10_linear.csv")), SEEDS
    for seed in seeds:
        run(features, cells, chosen, seed)
    report(cells)


if __name__ == "__main__":
    main()
