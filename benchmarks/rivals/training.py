"""How the methods of the rivals table are trained: the rows of a task, models side by side, the same budget."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.shared.baselines import Candidate, scaled
from benchmarks.shared.grids import Stack
from benchmarks.shared.sets import Features
from benchmarks.suite import suite

STEPS, BATCH_SIZE, HIDDEN = 1_000, 256, 64
RATES = {"linear": (0.03, 0.1, 0.3), "mlp": (1e-3, 3e-3, 1e-2)}
DECAYS = {"linear": (0.0, 0.1), "mlp": (0.0, 1.0)}
# PESG steps like SGD on probabilities, whose gradients are small; 0.1 is its authors' rate.
PESG_RATES, EPOCH_DECAYS = (0.03, 0.1, 0.3), (2e-3, 2e-2)
DUAL_RATES = (0.01, 0.1)
RARE = 0.1
TEMPERATURES = ((0.05, 0.005), (0.5, 0.05))
GAMMAS_FOCAL, GAMMAS_AP, LAMBDAS = (1.0, 2.0), (0.1, 0.9), (0.1, 1.0)
C_GRID = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2)
TREES, LEAVES = (100, 300), (7, 15, 31)
CONSTRAINED = ("recall@precision>=0.9", "precision@recall>=0.9", "tpr@fpr<=0.01")
AREA_AIMS = ("aucpr", "recall@precision>=0.9", "precision@recall>=0.9", "f1")


class Task(NamedTuple):
    """One split of a set, scaled by its training rows, as dense tensors and as it came; and the model to train."""

    split: suite.Split
    X: Tensor
    y: Tensor
    X_validation: Tensor
    X_test: Tensor
    model: str
    seed: int

    @property
    def share(self) -> float:
        """Share of positives among the training rows."""
        return float(self.y.mean())


class Run(NamedTuple):
    """Training under way: what a step does with its rows and number, optimisers whose rates fall, and the batches."""

    step: Callable[[Tensor, int], None]
    optimisers: list[torch.optim.Optimizer]
    batches: Iterator[Tensor]


class Method(NamedTuple):
    """How a method gets its candidates for aims.

    Attributes:
        train: the candidates of its grid for each aim of a group.
        package: what it needs, as a distribution; None for torch alone.
        shared: aims that are trained for at once, group by group; aims in no group are not served.
        models: the kinds of model it trains.
        threshold: its own way to choose one on the rows that choose; None for that of the table.
    """

    train: Callable[[Task, tuple[str, ...]], dict[str, list[Candidate]]]
    package: str | None
    shared: tuple[tuple[str, ...], ...]
    models: tuple[str, ...] = ("linear", "mlp")
    threshold: Callable[[Task, str, Candidate], float] | None = None


class Models:
    """G models of one shape from one start, and their scores in one product."""

    def __init__(self, features: int, kind: str, count: int, seed: int):
        self.kind = kind
        self.each = [_model(features, kind, seed) for _ in range(count)]
        self.by_place = list(zip(*(model.parameters() for model in self.each), strict=True))

    def stacked(self) -> Stack:
        """The same models as one stack, for losses that see all of them at once."""
        found = []
        for place, parameters in enumerate(self.by_place):
            each = torch.stack([parameter.detach() for parameter in parameters])  # [G, out, in] or [G, out]
            found.append((each.permute(2, 0, 1) if place % 2 == 0 else each).contiguous().requires_grad_())
        return Stack(found)

    def scores(self, X: Tensor) -> Tensor:
        """Rows [n, D] -> scores [n, G]."""
        weight, bias, *out = (torch.cat(parameters) for parameters in self.by_place)
        if self.kind == "linear":
            return F.linear(X, weight, bias)
        out_weight, out_bias = out
        hidden = F.linear(X, weight, bias).relu().unflatten(1, out_weight.shape)
        return torch.einsum("ngh,gh->ng", hidden, out_weight) + out_bias


def _model(features: int, kind: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if kind == "linear":
        return nn.Linear(features, 1)
    return nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))


def prepared(split: suite.Split, model: str, seed: int) -> Task:
    """Features scaled by the training rows, dense."""
    parts = scaled(*(part.X for part in split))
    fit, validation, test = (_dense(X) for X in parts)
    return Task(split, fit, torch.from_numpy(split.fit.Y[:, 0]).float(), validation, test, model, seed)


def _dense(X: Features) -> Tensor:
    return torch.from_numpy(sparse.csr_matrix(X).toarray() if sparse.issparse(X) else np.asarray(X)).float()


def trained(task: Task, names: list[str], start: Callable[[Models], Run]) -> list[Candidate]:
    """Train one model per name for all steps; their scores of the rows that choose and measure."""
    models = Models(task.X.shape[1], task.model, len(names), task.seed)
    run = start(models)
    rates = [[group["lr"] for group in optimiser.param_groups] for optimiser in run.optimisers]
    for step, rows in zip(range(STEPS), run.batches, strict=False):
        schedule = 0.5 * (1 + math.cos(math.pi * step / STEPS))
        for optimiser, own in zip(run.optimisers, rates, strict=True):
            for group, rate in zip(optimiser.param_groups, own, strict=True):
                group["lr"] = rate * schedule
        run.step(rows, step)
    with torch.no_grad():
        return candidates(names, *(models.scores(X) for X in (task.X_validation, task.X_test)))


def candidates(names: Sequence[str], *scores: Tensor) -> list[Candidate]:
    """The candidates of scores [n, G] of the rows that choose and measure; those that are not finite are left out."""
    parts = [part.double().numpy() for part in scores]
    found = [Candidate(name, True, *(part[:, [place]] for part in parts)) for place, name in enumerate(names)]
    return [one for one in found if np.isfinite(one.validation).all() and np.isfinite(one.test).all()]


def shuffled(task: Task) -> Iterator[Tensor]:
    """Batches in random order, epoch by epoch."""
    generator = torch.Generator().manual_seed(task.seed)
    size = min(BATCH_SIZE, len(task.X))
    while True:
        order = torch.randperm(len(task.X), generator=generator)
        yield from order[: len(order) - len(order) % size].split(size)
