"""The CIFAR-10 table of the paper: each objective measured by every metric, beside softmax and pairwise AUCROC.

    python -m benchmarks.paper.cifar10_table                       # resumes from results/cifar10_table.csv
    python -m benchmarks.paper.cifar10_table --trunk-steps 200000  # the last layers on a trunk that is trained on
    python -m benchmarks.paper.cifar10_table --end-to-end 200000   # the paper's protocol: a whole network per objective
    python -m benchmarks.paper.cifar10_table --quick               # reproduce some cells and compare
    python -m benchmarks.paper.cifar10_table --report              # tables and plots from the CSV

Two models. `network`: the paper's network (cifar10_cnn.py), its trunk trained once with cross-entropy and frozen; the
last two layers are trained on per objective from there, cross-entropy too, for equal steps. `features`: frozen patch
features with a linear head from scratch.

Every objective is trained for the same steps with the same grid of settings. 45,000 of the training images train, 5,000
choose: for each column of the table, and for every row alike, the setting with the best mean of that column over the
seeds on the validation images. Test images are measured for all settings and choose nothing.

Scores are ranked in several ways. Pooled metrics put all (image, class) pairs in one ranking, as the paper does; they
need scores that compare between classes, which neither softmax logits nor one-vs-rest scores are made to do. So softmax
is ranked by logits and by probabilities, one-vs-rest by scores and by margins (the score less the threshold learned for
its class, for the area the mean of its thresholds), objectives on log-odds by those, which rank as probabilities do.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aimfor
from aimfor.metrics._curve import Curve, cumulate
from benchmarks.paper import cifar10_cnn as cnn
from benchmarks.paper.cifar10_objectives import CLASSES, OBJECTIVES, Named, Objective
from benchmarks.paper.cifar10_report import CSV, METRICS, RECALLS, report
from benchmarks.paper.patch_features import DEFAULT_CACHE, load_features
from benchmarks.shared import data, reproduced
from benchmarks.shared.cells import Cells
from benchmarks.shared.heads import Setting, train_heads

SEEDS = (1, 2, 3)
STEPS = {"network": 2_000, "features": 100_000}
GRIDS = {
    "network": [Setting(rate, 0.0) for rate in (1e-4, 3e-4, 1e-3, 3e-3)],
    "features": [Setting(*pair) for pair in product((3e-3, 1e-2, 3e-2), (0.0, 0.03))],
}
KEYS = ("model", "objective", "form", "ranked", "trunk_steps", "steps", "rate", "decay", "seed")


class Held(NamedTuple):
    """Scores [n, G, 10] of images that were not trained on, and their classes [n]."""

    scores: Tensor
    classes: Tensor


class Model(NamedTuple):
    """What the objectives train: by (objective, settings, seed) to scores of the validation and the test images."""

    name: str
    trunk_steps: int
    train: Callable[[Objective, Sequence[Setting], int], tuple[Held, Held]]


def features_model(folder: Path, cache: Path) -> Model | None:
    """A linear head on patch features; None when CIFAR-10 is absent."""
    features = load_features(folder, cache)
    if features is None:
        return None
    order = cnn.split_rows(len(features.train))
    held_out, kept = order[: cnn.VALIDATION_ROWS], order[cnn.VALIDATION_ROWS :]
    train, classes = features.train[kept], features.train_classes[kept]
    validation, validation_classes = features.train[held_out], features.train_classes[held_out]

    def trained(objective: Objective, settings: Sequence[Setting], seed: int) -> tuple[Held, Held]:
        heads = train_heads(train, classes, objective, settings, num_labels=CLASSES, steps=STEPS["features"], seed=seed)
        validated = Held(heads.scores(validation), validation_classes)
        return validated, Held(heads.scores(features.test), features.test_classes)

    return Model("features", 0, trained)


def network_model(folder: Path, cache: Path, trunk_steps: int, only_kept: bool = False) -> Model | None:
    """The last layers on a trunk of so many steps; None when CIFAR-10, or with `only_kept` the trunk, is absent."""
    if only_kept and not cnn.kept_trunk(trunk_steps).is_file():
        print(f"skipped the network: no trunk of {trunk_steps} steps is kept (benchmarks/paper/cifar10_cnn.py)")
        return None
    images = data.load_cifar10(folder)
    if images is None:
        return None
    split = cnn.split_images(images)
    network = cnn.trunk(split, trunk_steps, cache)
    features = cnn.trunk_features(network, split, cache)

    def trained(objective: Objective, settings: Sequence[Setting], seed: int) -> tuple[Held, Held]:
        layers = cnn.train_last_layers(features, network, objective, settings, steps=STEPS["network"], seed=seed)
        validated = Held(layers.scores(features.validation), features.validation_classes)
        return validated, Held(layers.scores(features.test), features.test_classes)

    return Model("network", trunk_steps, trained)


class OneHead(nn.Module):
    """An objective for scores [B, 10]."""

    def __init__(self, objective: Objective):
        super().__init__()
        self.objective = objective

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        return self.objective(scores[:, None], classes)


def run_end_to_end(folder: Path, cache: Path, cells: Cells, steps: int) -> None:
    """The whole network trained per objective, one seed each; a run that is stopped goes on from its last state."""
    images = data.load_cifar10(folder)
    if images is None:
        return
    split = cnn.split_images(images)
    setting, seed = Setting(cnn.RATE, cnn.DENSE_DECAY), SEEDS[0]
    for named in OBJECTIVES:
        key = {"model": "end-to-end", "objective": named.objective, "form": named.form, "steps": steps, "seed": seed}
        if cells.find(**key):
            continue
        start, objective = time.perf_counter(), named.make(1)
        file = f"cifar10_{named.form}_{named.objective}_{seed}".replace(">=", "")
        network = cnn.train_network(split, OneHead(objective), steps, cache, file, seed=seed)
        validation = Held(cnn.scores_of(network, split.validation)[:, None], split.validation_classes)
        test = Held(cnn.scores_of(network, split.test)[:, None], split.test_classes)
        add(cells, key | {"trunk_steps": 0}, objective, [setting], validation, test, time.perf_counter() - start)


def run(model: Model, named: Named, cells: Cells, seed: int, grid: Sequence[Setting]) -> None:
    """Train the settings that are not finished side by side, and measure them."""
    key = {
        "model": model.name,
        "objective": named.objective,
        "form": named.form,
        "trunk_steps": model.trunk_steps,
        "steps": STEPS[model.name],
        "seed": seed,
    }
    missing = [setting for setting in grid if not cells.find(**key, **setting._asdict())]
    if not missing:
        return
    start, objective = time.perf_counter(), named.make(len(missing))
    with warnings.catch_warnings():
        # Settings that cannot meet a constraint are judged on the validation images, as all are.
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        validation, test = model.train(objective, missing, seed)
    seconds = time.perf_counter() - start
    add(cells, key, objective, missing, validation, test, seconds)
    print(f"{model.name}, seed {seed}: {named.objective} ({named.form}), {seconds:.0f} s", flush=True)


@torch.no_grad()
def add(
    cells: Cells,
    key: dict,
    objective: Objective,
    settings: Sequence[Setting],
    validation: Held,
    test: Held,
    seconds: float,
) -> None:
    """A cell for each setting and each way to rank."""
    chosen_by, told = (objective.rankings(held.scores.double()) for held in (validation, test))
    for ranked, (index, setting) in product(told, enumerate(settings)):
        validated = measure(chosen_by[ranked][:, index], validation.classes)
        tested = measure(told[ranked][:, index], test.classes)
        cells.add(
            **{name: (key | setting._asdict() | {"ranked": ranked})[name] for name in KEYS},
            **{f"validation_{name}": value for name, value in validated.rates.items()},
            **{f"test_{name}": value for name, value in tested.rates.items()},
            class_aucpr=_join(tested.class_aucpr),
            curve=_join(tested.curve),
            seconds=seconds,
        )


class Measured(NamedTuple):
    """Rates by name; AUCPR of each class; pooled precision at `RECALLS`, each the best with at least that recall."""

    rates: dict[str, float]
    class_aucpr: list[float]
    curve: list[float]


def measure(scores: Tensor, classes: Tensor) -> Measured:
    """All columns of scores [n, 10]: pooled, macro, accuracy. Scores are sorted once, as several metrics read them."""
    labels = F.one_hot(classes, CLASSES).bool().numpy()
    values = scores.numpy()
    pooled = curve_of(labels.ravel(), values.ravel())
    each = [rates_of(curve_of(labels[:, one], values[:, one])) for one in range(CLASSES)]
    macro = {f"macro_{name}": float(np.mean([rates[name] for rates in each])) for name in METRICS}
    accuracy = {"accuracy": float(np.mean(values.argmax(1) == classes.numpy()))}
    precisions = [precision_at_recall(pooled, recall) for recall in RECALLS]
    return Measured(rates_of(pooled) | macro | accuracy, [rates["aucpr"] for rates in each], precisions)


def curve_of(labels: np.ndarray, scores: np.ndarray) -> Curve:
    """Counts at every distinct score."""
    return cumulate(labels, scores, np.ones(len(scores)))


def rates_of(curve: Curve) -> dict[str, float]:
    """`METRICS` of a curve, as `aimfor.metrics` has them."""
    return {
        "aucpr": float(np.average(curve.precision, weights=curve.gained_tp)),
        "p_at_r70": precision_at_recall(curve, 0.7),
        "p_at_r95": precision_at_recall(curve, 0.95),
        "r_at_p70": recall_at_precision(curve, 0.7),
        "r_at_p95": recall_at_precision(curve, 0.95),
    }


def precision_at_recall(curve: Curve, recall: float) -> float:
    """The best precision with at least this recall; a recall met to rounding is met."""
    return float(curve.precision[curve.recall >= recall - 1e-9].max())


def recall_at_precision(curve: Curve, precision: float) -> float:
    """The best recall with at least this precision, 0 where no threshold has it."""
    return float(curve.recall[curve.precision >= precision - 1e-9].max(initial=0.0))


def _join(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def quick(folder: Path, cache: Path, committed: Cells) -> bool:
    """One seed of a few objectives again, all settings side by side as in the full run; true when as committed."""
    trunk_steps = max((int(row["trunk_steps"]) for row in committed.rows), default=cnn.TRUNK_STEPS)
    models = features_model(folder, cache), network_model(folder, cache, trunk_steps, only_kept=True)
    wanted = {
        "features": {("cross-entropy", "softmax"), ("aucpr", "log-odds")},
        "network": {("cross-entropy", "softmax"), ("aucpr", "one-vs-rest"), ("aucpr", "log-odds")},
    }
    with tempfile.TemporaryDirectory() as temporary:
        again = Cells(Path(temporary) / CSV.name)
        for model, named in product(models, OBJECTIVES):
            if model is not None and (named.objective, named.form) in wanted[model.name]:
                run(model, named, again, SEEDS[0], GRIDS[model.name])
    columns = [f"test_{name}" for name in (*METRICS, "macro_aucpr", "accuracy")]
    # Rounding alone, one head trained apart from the others, moved a pooled metric of one-vs-rest scores by 0.006.
    return reproduced.told(reproduced.compare(committed, again, keys=KEYS, over="seed", measures=columns, floor=0.01))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of the cached features and networks")
    parser.add_argument("--trunk-steps", type=int, default=cnn.TRUNK_STEPS, help="of the network's shared trunk")
    parser.add_argument("--models", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    objectives = list(dict.fromkeys(named.objective for named in OBJECTIVES))
    parser.add_argument("--objectives", nargs="+", choices=objectives, default=objectives, metavar="OBJECTIVE")
    parser.add_argument("--end-to-end", type=int, metavar="STEPS", help="train the whole network per objective instead")
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    parser.add_argument("--report", action="store_true", help="tables and plots from the CSV")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder, cells = data.data_folder(arguments.data), Cells(CSV)
    if arguments.quick:
        raise SystemExit(not quick(folder, arguments.cache, cells))
    if arguments.end_to_end:
        run_end_to_end(folder, arguments.cache, cells, arguments.end_to_end)
    elif not arguments.report:
        makers = {
            "features": lambda: features_model(folder, arguments.cache),
            "network": lambda: network_model(folder, arguments.cache, arguments.trunk_steps),
        }
        models = [makers[name]() for name in arguments.models]
        for seed, model, named in product(arguments.seeds, models, OBJECTIVES):
            if model is not None and named.objective in arguments.objectives:
                run(model, named, cells, seed, GRIDS[model.name])
    report(cells)


if __name__ == "__main__":
    main()
