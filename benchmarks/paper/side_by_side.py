"""What the scripts on the paper's tables share: splits of real sets, and methods trained side by side.

In `side_by_side` all settings of all methods are heads of one linear model. So every method has the same grid of rate
and decay, the same first weights, the same batches and the same number of steps; the setting is chosen on the rows that
choose, by the metric that is reported, and that head alone is measured on the rows that measure.
"""

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import aimfor
from benchmarks.paper.patch_features import load_features
from benchmarks.shared import page, sets
from benchmarks.shared.baselines import scaled
from benchmarks.shared.cells import Cells
from benchmarks.shared.heads import AdamW, Heads, HeadsLoss, Setting, train_heads
from benchmarks.shared.reproduced import Reproduced

CIFAR = "CIFAR-10 features"
# The first sets of the public suite whose features are dense.
TABULAR = ("mammography", "adult", "ijcnn1", "htru2")
SETS = (*TABULAR, CIFAR)
VALIDATION_IMAGES = 10_000

MakeLoss = Callable[[int, int], HeadsLoss]
"""A number of heads and a number of labels -> the loss of scores [B, G, L] and labels [B, L], summed over heads."""
Metric = Callable[[Tensor, Tensor], float]
"""Labels [n, L] and scores [n, L] -> the mean over labels."""


class Plan(NamedTuple):
    """How long a set is trained, and the grid that every method chooses from."""

    steps: int
    batch_size: int
    grid: list[Setting]


class Part(NamedTuple):
    """Rows: features [n, D] and labels [n, L], 0 or 1, both float32."""

    X: Tensor
    Y: Tensor


class Split(NamedTuple):
    """Rows that train, choose and measure."""

    train: Part
    choose: Part
    measure: Part


class Measured(NamedTuple):
    """A method at the setting it chose: that setting, the metric on the rows that chose, on those that measure."""

    setting: Setting
    validation: float
    test: float


PLANS = {
    CIFAR: Plan(6_000, 128, [Setting(*pair) for pair in product((3e-3, 1e-2, 3e-2), (0.0, 0.03))]),
    **{name: Plan(3_000, 256, [Setting(*pair) for pair in product((0.01, 0.03, 0.1), (0.0, 0.1))]) for name in TABULAR},
}


# Data.


def splits_of(name: str, folder: Path) -> Callable[[int], Split] | None:
    """A function from a seed to a split of the set; None, after a printed line, when the set is absent."""
    if name == CIFAR:
        features = load_features(folder)
        return None if features is None else partial(_split_images, *features)
    rows = sets.load(name, folder)
    return None if rows is None else partial(_split_table, rows)


def _split_images(X: Tensor, classes: Tensor, X_test: Tensor, classes_test: Tensor, seed: int) -> Split:
    """The official test images measure; of the others a draw by seed chooses and the rest trains."""
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    choose, train = order[:VALIDATION_IMAGES], order[VALIDATION_IMAGES:]
    Y, Y_test = F.one_hot(classes).float(), F.one_hot(classes_test).float()
    return Split(Part(X[train], Y[train]), Part(X[choose], Y[choose]), Part(X_test, Y_test))


def _split_table(rows: sets.Rows, seed: int) -> Split:
    parts = sets.split(rows, seed)
    features = scaled(*sets.prepare(*parts))
    return Split(
        *(
            Part(torch.from_numpy(np.asarray(X, np.float32)), torch.from_numpy(part.labels).float())
            for X, part in zip(features, parts, strict=True)
        )
    )


def unfinished(
    cells: Cells, wanted: Iterable[tuple[str, int]], folder: Path, count: Callable[[str], int]
) -> Iterable[tuple[str, int, Split]]:
    """The wanted sets and seeds that lack cells, each with its split; what they have is forgotten, to be made again.

    Args:
        cells: the finished ones.
        wanted: sets and seeds.
        folder: of the data.
        count: the number of cells that a seed of a set has when it is finished.
    """
    wanted = [(name, seed) for name, seed in wanted if len(cells.find(set=name, seed=seed)) < count(name)]
    for name in dict.fromkeys(name for name, _ in wanted):
        split_by = splits_of(name, folder)
        for seed in (seed for one, seed in wanted if one == name):
            if split_by is not None:
                cells.drop(set=name, seed=seed)
                yield name, seed, split_by(seed)
                print(f"{name}, seed {seed}: done", flush=True)


def sets_of(cells: Cells) -> list[str]:
    """The sets with more than one finished seed, in order."""
    return [name for name in SETS if len({row["seed"] for row in cells.find(set=name)}) > 1]


# Losses of many heads.


def log_loss(heads: int, labels: int) -> HeadsLoss:
    """Binary cross-entropy of each label."""
    return lambda scores, Y: heads * F.binary_cross_entropy_with_logits(scores, Y[:, None].expand_as(scores))


def aimed(aim: str, **options: Any) -> MakeLoss:
    """The loss of an aim; `Loss` averages over the labels of all heads."""

    def make(heads: int, labels: int) -> HeadsLoss:
        loss = aimfor.Loss(aim, num_labels=heads * labels, **options)
        return lambda scores, Y: heads * loss(scores.flatten(1), Y[:, None].expand_as(scores).flatten(1))

    return make


def macro(aim: str) -> Metric:
    """The exact metric of an aim, the mean over labels."""
    metric = aimfor.aim(aim).metric
    return lambda Y, scores: float(np.mean(metric(Y.numpy().astype(np.int64), scores.double().numpy())))


# Training.


class Training:
    """Linear heads in training, one step at a time, so that several may take turns."""

    def __init__(self, start: Heads, loss: HeadsLoss, settings: Sequence[Setting], steps: int):
        self.loss, self.steps, self.done, self.seconds = loss, steps, 0, 0.0
        self.heads = Heads(*(part.clone().requires_grad_() for part in start))
        rates = torch.tensor([setting.rate for setting in settings])[:, None]
        decays = torch.tensor([setting.decay for setting in settings])[:, None]
        self.optimiser = AdamW(list(self.heads), [rates * decays, torch.zeros_like(rates)], rates)

    def step_(self, X: Tensor, Y: Tensor) -> None:
        """One step; the rate falls to 0 along a half cosine."""
        start = time.perf_counter()
        self.loss(self.heads.scores(X), Y).backward()
        self.optimiser.step_(0.5 * (1 + math.cos(math.pi * min(self.done / self.steps, 1))))
        self.done += 1
        self.seconds += time.perf_counter() - start

    def scores(self, X: Tensor) -> Tensor:
        """Scores [n, G, L], without a gradient."""
        with torch.no_grad():
            return self.heads.scores(X)


def zeros(part: Part, heads: int) -> Heads:
    """Heads that know nothing, for the features and labels of these rows."""
    return Heads(torch.zeros(part.X.shape[1], heads, part.Y.shape[1]), torch.zeros(heads, part.Y.shape[1]))


def draws(rows: int, batch_size: int, steps: int, seed: int) -> Iterable[Tensor]:
    """The rows of every batch, drawn with replacement."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.randint(rows, (batch_size,), generator=generator)


def side_by_side(split: Split, methods: dict[str, MakeLoss], plan: Plan, seed: int) -> dict[str, Split]:
    """Train all settings of all methods; per method the scores [n, G, L] in place of the features."""
    labels, each = split.train.Y.shape[1], len(plan.grid)
    losses = [make(each, labels) for make in methods.values()]

    def total(scores: Tensor, Y: Tensor) -> Tensor:
        parts = zip(losses, scores.split(each, dim=1), strict=True)
        return torch.stack([loss(part, Y) for loss, part in parts]).sum()

    with warnings.catch_warnings():
        # Settings that cannot meet a constraint are judged on the rows that choose, as all are.
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        heads = train_heads(
            *split.train,
            total,
            plan.grid * len(methods),
            num_labels=labels,
            steps=plan.steps,
            seed=seed,
            batch_size=plan.batch_size,
        )
    scores = [heads.scores(part.X).split(each, dim=1) for part in split]
    parts = [
        [Part(one[place], part.Y) for one, part in zip(scores, split, strict=True)] for place in range(len(losses))
    ]
    return {name: Split(*found) for name, found in zip(methods, parts, strict=True)}


def chosen(scored: Split, grid: Sequence[Setting], metric: Metric) -> Measured:
    """The setting that does best on the rows that choose, measured once on those that measure."""
    on_validation = [metric(scored.choose.Y, scored.choose.X[:, place]) for place in range(len(grid))]
    best = int(np.argmax(on_validation))
    return Measured(grid[best], on_validation[best], metric(scored.measure.Y, scored.measure.X[:, best]))


def step_milliseconds(split: Split, methods: dict[str, MakeLoss], plan: Plan, turns: int = 200) -> dict[str, float]:
    """Median processor time of a whole step (scores, loss, gradients, AdamW) of one head; methods take turns."""
    rows = next(iter(draws(len(split.train.X), plan.batch_size, 1, 0)))
    X, Y = split.train.X[rows], split.train.Y[rows]
    running = {
        name: Training(zeros(split.train, 1), make(1, split.train.Y.shape[1]), plan.grid[:1], turns)
        for name, make in methods.items()
    }
    times: dict[str, list[float]] = {name: [] for name in methods}
    names = list(methods)
    for turn in range(turns):
        for name in np.random.default_rng(turn).permutation(names).tolist():  # whoever follows whom would pay for it
            before = time.process_time()  # on a shared machine the clock would count the steps of others
            running[name].step_(X, Y)
            times[name].append(1000 * (time.process_time() - before))
    return {name: statistics.median(values) for name, values in times.items()}


# The command line, and what a script tells.


def arguments_of(description: str | None) -> argparse.Namespace:
    """The options of every script here."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    parser.add_argument("--report", action="store_true", help="tables and picture from the finished cells only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    return arguments


def command(
    description: str | None,
    name: str,
    again: Callable[[Cells, argparse.Namespace], list[Reproduced]],
    run: Callable[[Cells, argparse.Namespace], None],
    report: Callable[[Cells], None],
) -> None:
    """The command of a script: the full run and its report, the report alone, or the quick form."""
    arguments = arguments_of(description)
    if arguments.quick:
        return page.hold(lambda cells: again(cells, arguments))
    cells = page.committed(name)
    if not arguments.report:
        run(cells, arguments)
    return report(cells)
