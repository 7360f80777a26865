"""Linear heads trained side by side.

A grid of (rate, decay) is trained as heads of one linear model: one matrix product serves all of them, each head has
its own rate and decay, and no head sees another's gradient. Decay is decoupled (AdamW), so that it means the same for
losses of any scale.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

HeadsLoss = Callable[[Tensor, Tensor], Tensor]
"""Scores [B, G, L] of G heads and labels [B] -> the sum over heads of each head's own loss."""


class Setting(NamedTuple):
    """Learning rate at the start (it falls to 0 along a half cosine) and decoupled weight decay."""

    rate: float
    decay: float


class Heads(NamedTuple):
    """G linear models: weight [D, G, L], bias [G, L]."""

    weight: Tensor
    bias: Tensor

    def scores(self, features: Tensor) -> Tensor:
        """Features [n, D] -> scores [n, G, L]."""
        flat = torch.addmm(self.bias.flatten(), features, self.weight.flatten(1))
        return flat.unflatten(1, self.bias.shape)


def train_heads(
    features: Tensor,
    labels: Tensor,
    loss: HeadsLoss,
    settings: Sequence[Setting],
    *,
    num_labels: int,
    steps: int,
    seed: int,
    batch_size: int = 128,
) -> Heads:
    """Train one linear head per setting on the same batches from the same start."""
    generator = torch.Generator().manual_seed(seed)
    bound = features.shape[1] ** -0.5
    start = torch.empty(features.shape[1] + 1, 1, num_labels).uniform_(-bound, bound, generator=generator)
    start = start.repeat(1, len(settings), 1)
    weight = start[:-1].clone().requires_grad_()
    bias = start[-1].clone().requires_grad_()
    rates = torch.tensor([setting.rate for setting in settings])[:, None]
    decays = torch.tensor([setting.decay for setting in settings])[:, None]
    optimiser = AdamW([weight, bias], [rates * decays, torch.zeros_like(rates)], rates)
    heads = Heads(weight, bias)
    for step, rows in zip(range(steps), _batches(len(features), batch_size, generator), strict=False):
        loss(heads.scores(features[rows]), labels[rows]).backward()
        optimiser.step_(0.5 * (1 + math.cos(math.pi * step / steps)))
    return Heads(weight.detach(), bias.detach())


class AdamW:
    """AdamW whose rate and decay differ between heads."""

    def __init__(self, parameters: list[Tensor], shrinkage: list[Tensor], rates: Tensor):
        self.parameters, self.shrinkage, self.rates, self.count = parameters, shrinkage, rates, 0
        self.means = [torch.zeros_like(parameter) for parameter in parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step_(self, schedule: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        self.count += 1
        size = schedule / (1 - beta1**self.count)
        root = math.sqrt(1 - beta2**self.count)
        for parameter, shrinkage, mean, square in zip(
            self.parameters, self.shrinkage, self.means, self.squares, strict=True
        ):
            gradient = parameter.grad
            assert gradient is not None
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            parameter.mul_(1 - schedule * shrinkage)
            parameter.sub_((mean / square.sqrt().div_(root).add_(epsilon)).mul_(size * self.rates))
            parameter.grad = None


def _batches(rows: int, batch_size: int, generator: torch.Generator) -> Iterable[Tensor]:
    batch_size = min(batch_size, rows)
    while True:
        order = torch.randperm(rows, generator=generator)
        yield from order[: rows - rows % batch_size].split(batch_size)
