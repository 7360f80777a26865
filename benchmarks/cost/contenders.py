"""Log-loss and ours, each as a function that takes one step, and their ratio when they take turns."""

import os
import random
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

import aimfor
from benchmarks.cost.engine_report import ANCHORS

SHARE = 0.01  # of positives

Contender = Callable[[], None]


def batch(rows: int, labels: int, share: float = SHARE) -> tuple[Tensor, Tensor]:
    """Scores that ask for a gradient, and dense float labels; every label has a positive where rows allow it."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(rows, labels, generator=generator)
    positive = torch.rand(rows, labels, generator=generator) < share
    return scores.requires_grad_(), positive.float()


def log_loss(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Contender:
    def step() -> None:
        scores.grad = None
        F.binary_cross_entropy_with_logits(scores, labels, weights).backward()

    return step


def ours(engine: str, surrogate: str, scores: Tensor, labels: Tensor, anchors: int = ANCHORS, **extra) -> Contender:
    """The aim alone, with the bounds of a surrogate."""
    options = {"surrogate": surrogate, "constraint": "surrogate", "log_loss": 0.0, "warmup": 1}
    loss = aimfor.Loss(f"aucpr; num_anchors={anchors}", num_labels=scores.shape[1], **options)
    return steps_with(loss, engine, scores, labels, **extra)


def steps_with(loss: aimfor.Loss, engine: str, scores: Tensor, labels: Tensor, **extra) -> Contender:
    def step() -> None:
        os.environ["AIMFOR_ENGINE"] = engine
        scores.grad = None
        loss(scores, labels, **extra).backward()

    return step


def broadcast(scores: Tensor, labels: Tensor, anchors: int = ANCHORS) -> Contender:
    """What every public implementation does: one tensor of all rows, labels and anchors, and autograd."""
    thresholds = torch.zeros(anchors, scores.shape[1], requires_grad=True)
    weights = torch.linspace(0.5, 2.0, anchors)[:, None, None]

    def step() -> None:
        scores.grad = thresholds.grad = None
        margin = scores - thresholds[:, None]
        positive = (1 - margin).clamp(min=0) * labels
        negative = (1 + margin).clamp(min=0) * (1 - labels)
        (positive + weights * negative).mean().backward()

    return step


def compare(
    reference: Contender,
    contenders: dict[tuple, Contender],
    turns: int,
    prepare: Callable[[tuple], None] = lambda name: None,
) -> dict[tuple, tuple[float, float, float]]:
    """Ratio of medians to the reference, and quartiles of the ratios turn by turn; `prepare` is not timed."""
    everyone = {(): reference, **contenders}
    for one in everyone.values():
        for _ in range(2):
            one()
    times: dict[tuple, list[float]] = {name: [] for name in everyone}
    order = random.Random(0)
    for _ in range(turns):
        for name in order.sample(list(everyone), len(everyone)):
            prepare(name)
            start = time.perf_counter()
            everyone[name]()
            times[name].append(time.perf_counter() - start)
    found = {}
    for name in contenders:
        ratios = [a / b for a, b in zip(times[name], times[()], strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        found[name] = (statistics.median(times[name]) / statistics.median(times[()]), low, high)
    return found
