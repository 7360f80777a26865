"""Models of many settings and several labels trained side by side: linear, or with one hidden layer.

All settings of all methods are models of one stack. They have one start, see the same batches, and none sees another's
gradient; each has its own rate and decay under AdamW, and the rate falls to 0 along half a cosine.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.shared.heads import AdamW, Setting

StepLoss = Callable[[Tensor, Tensor, int], Tensor]
"""Scores [B, g, L] of g models, labels [B, L] and the number of the step -> the sum over models of each one's loss."""


class Entrant(NamedTuple):
    """A method: the settings of its models, and the loss of all of them."""

    settings: Sequence[Setting]
    loss: StepLoss


class Stack(NamedTuple):
    """G models: [D, G, L] and [G, L]; or with a hidden layer [D, G, H], [G, H], [H, G, L] and [G, L]."""

    parameters: list[Tensor]

    def scores(self, X: Tensor) -> Tensor:
        """Rows [n, D] -> scores [n, G, L]."""
        weight, bias, *out = self.parameters
        first = torch.addmm(bias.flatten(), X, weight.flatten(1)).unflatten(1, bias.shape)
        if not out:
            return first
        out_weight, out_bias = out
        found = torch.bmm(first.relu_().transpose(0, 1), out_weight.transpose(0, 1))  # [G, n, L]
        return found.transpose(0, 1) + out_bias


def started(features: int, labels: int, models: int, hidden: int | None, seed: int) -> Stack:
    """All models from one start, drawn as torch.nn.Linear draws it."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(features, labels)] if hidden is None else [(features, hidden), (hidden, labels)]
    drawn = []
    for inputs, outputs in sizes:
        for shape in ((inputs, 1, outputs), (1, outputs)):
            start = torch.empty(shape).uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
            drawn.append(start.repeat_interleave(models, dim=-2).contiguous().requires_grad_())
    return Stack(drawn)


def shuffled(rows: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """Batches in random order, epoch by epoch; what is left of an epoch begins the next."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.int64)
    while True:
        while len(order) < batch_size:
            order = torch.cat([order, torch.randperm(rows, generator=generator)])
        yield order[:batch_size]
        order = order[batch_size:]


def train(
    X: Tensor, Y: Tensor, entrants: Iterable[Entrant], stack: Stack, batches: Iterator[Tensor], steps: int
) -> Stack:
    """Train the models of all entrants, which stand in the stack in their order."""
    entrants = list(entrants)
    settings = [setting for entrant in entrants for setting in entrant.settings]
    rates = torch.tensor([[setting.rate] for setting in settings])
    decays = rates * torch.tensor([[setting.decay] for setting in settings])
    none = torch.zeros_like(rates)
    optimiser = AdamW(stack.parameters, [decays, none] * (len(stack.parameters) // 2), rates)
    counts = [len(entrant.settings) for entrant in entrants]
    for step, rows in zip(range(steps), batches, strict=False):
        parts, labels = stack.scores(X[rows]).split(counts, 1), Y[rows]
        losses = [entrant.loss(part, labels, step) for entrant, part in zip(entrants, parts, strict=True)]
        torch.stack(losses).sum().backward()
        optimiser.step_(0.5 * (1 + math.cos(math.pi * step / steps)))
    return Stack([parameter.detach() for parameter in stack.parameters])
