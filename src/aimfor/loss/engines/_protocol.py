"""Count, one batch of a loss: by an engine of torch, or by the C++ engine, which knows the whole step."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from aimfor.aims import Anchors
from aimfor.loss._batch import Batch
from aimfor.loss._distributed import world_size
from aimfor.loss._state import SMALLEST_DEVIATION, State
from aimfor.loss._surrogates import SURROGATES, Surrogate
from aimfor.loss.engines import _fused as fused
from aimfor.loss.engines import _native as native
from aimfor.loss.engines import _reference as bounds
from aimfor.loss.engines._reference import Counts, Sums


class Options(NamedTuple):
    """What a loss was told: its surrogate, whether exact rates drive its multipliers, and its rates."""

    surrogate: Surrogate
    exact: bool
    dual_rate: float
    threshold_rate: float
    warmup: int


class TorchRun:
    """One batch and the engine of torch that counts it."""

    @torch.no_grad()
    def __init__(self, state: State, options: Options, batch: Batch, engine: str):
        self.state, self.options = state, options
        if engine == "plain":
            self.census, self._count = bounds.census(batch), partial(bounds.count, batch)
        else:
            listed = fused.listed(batch)
            self.census, self._count = fused.census(listed), partial(fused.count, listed)

    def observe_(self) -> Tensor:
        self.state.observe_(self.census)
        return self.state.counted_priors

    def count(self, anchors: Anchors, positive_cost: Tensor, negative_cost: Tensor, errors: bool) -> Counts:
        """The pass on the rung of the ladder that each label has reached."""
        state, surrogate = self.state, self.options.surrogate

        def on(surrogate: Surrogate, sharpness: Tensor | None = None) -> Counts:
            arguments = state.thresholds, positive_cost, negative_cost, surrogate, sharpness, state.score_mean
            return self._count(*arguments, errors=errors)

        if surrogate.sharpness is None:
            return on(surrogate)
        # What is counted of labels that take no part yet is multiplied by 0: be it by any surrogate, of any sharpness.
        taking_part = state.taking_part
        warming = (taking_part > 0) & (state.steps < self.options.warmup)
        hinge = on(SURROGATES["hinge"]) if bool(warming.any()) else None
        if hinge is not None and torch.equal(warming, taking_part > 0):
            return hinge
        deviation = state.score_variance.sqrt().clamp(min=SMALLEST_DEVIATION)
        tight = on(surrogate, taking_part * surrogate.sharpness / deviation)
        if hinge is None:
            return tight
        sums = Sums(*(torch.where(warming, *pair) for pair in zip(hinge.sums, tight.sums, strict=True)))
        return Counts(sums, tight.squares, torch.where(warming, hinge.gradient, tight.gradient))


class NativeRun:
    """One batch and the C++ engine, which knows the whole step."""

    def __init__(self, state: State, options: Options, batch: Batch, learning: bool):
        self.prepared = native.Prepared(batch, state)
        self.prepared.take_census()
        self.rules = native.rules(
            options.surrogate.name,
            options.dual_rate,
            options.threshold_rate,
            options.warmup,
            options.exact,
            learning,
        )

    @property
    def census(self) -> Tensor:
        return self.prepared.census

    @census.setter
    def census(self, summed: Tensor) -> None:
        self.prepared.census.copy_(summed)

    def observe_(self) -> Tensor:
        return self.prepared.observe_(self.rules)

    def step(self, anchors: Anchors) -> tuple[Tensor, Tensor]:
        return self.prepared.step(anchors, self.rules)

    def count(self, anchors: Anchors, positive_cost: Tensor, negative_cost: Tensor, errors: bool) -> Counts:
        return self.prepared.count(anchors, self.rules)


@torch.no_grad()
def log_loss(batch: Batch, cost: Tensor, multiclass: bool) -> tuple[Tensor, Tensor]:
    """Log-loss as a pass: the log surrogate at threshold 0, times log 2, by which that is divided to be a bound.

    Args:
        batch: one that has been through the census.
        cost: `[L]`, what the losses of a label are multiplied by.
        multiclass: whether scores are log-odds of exclusive classes; the positives alone are then the cross-entropy.

    Returns:
        The sum over rows and labels, and its gradient in the scores.
    """
    positive_cost = math.log(2) * cost.unsqueeze(0)
    negative_cost = torch.zeros_like(positive_cost) if multiclass else positive_cost
    at_zero = torch.zeros_like(positive_cost)
    costs = at_zero, positive_cost, negative_cost, SURROGATES["log"], None, at_zero[0]
    sums, _, gradient = fused.count(fused.listed(batch), *costs, errors=False)
    return (sums.positive_loss * positive_cost + sums.negative_loss * negative_cost).sum(), gradient


def reduced(reduce: Callable[[Tensor], Tensor], counts: Counts) -> tuple[Sums, Tensor]:
    """The sums of a pass over all ranks, in one message."""
    if world_size() == 1:
        return counts.sums, counts.squares
    together = reduce(torch.cat([*counts.sums, counts.squares.unsqueeze(0)]))
    return Sums(*together[:-1].unflatten(0, (len(counts.sums), -1))), together[-1]
