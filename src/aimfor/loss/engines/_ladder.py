"""Counts of the torch engines, with every label on the rung of the ladder that it has reached."""

from typing import Protocol

import torch
from torch import Tensor

from aimfor.aims import Anchors
from aimfor.loss._state import SMALLEST_DEVIATION, State
from aimfor.loss._step import LogLossCosts, LossRules, PassCounts, Sums
from aimfor.loss._surrogates import HINGE, Surrogate
from aimfor.loss.engines._protocol import Pass


class CountOneSurrogate(Protocol):
    """The pass with one surrogate for all labels; see `_reference.count`."""

    def __call__(
        self,
        thresholds: Tensor,
        positive_cost: Tensor,
        negative_cost: Tensor,
        surrogate: Surrogate,
        sharpness: Tensor | None,
        score_mean: Tensor,
        *,
        errors: bool,
        log_costs: LogLossCosts | None,
    ) -> PassCounts: ...


class LadderPass(Pass):
    """A pass by functions that know one surrogate at a time."""

    def __init__(self, state: State, rules: LossRules, census: Tensor, count_one: CountOneSurrogate):
        self.state, self.rules, self.census = state, rules, census
        self._count_one = count_one

    def count(self, anchors: Anchors, positive_cost: Tensor, negative_cost: Tensor, errors: bool) -> PassCounts:
        return self.count_with_log_loss(anchors, positive_cost, negative_cost, errors, None)

    def count_with_log_loss(
        self,
        anchors: Anchors,
        positive_cost: Tensor,
        negative_cost: Tensor,
        errors: bool,
        log_costs: LogLossCosts | None,
    ) -> PassCounts:
        state, surrogate = self.state, self.rules.surrogate
        asked = {"errors": errors, "log_costs": log_costs}

        def on(surrogate: Surrogate, sharpness: Tensor | None = None) -> PassCounts:
            costs = positive_cost, negative_cost
            return self._count_one(state.thresholds, *costs, surrogate, sharpness, state.score_mean, **asked)

        if surrogate.sharpness is None:
            return on(surrogate)
        # What is counted of labels that take no part yet is multiplied by 0: be it by any surrogate, of any sharpness.
        taking_part = state.taking_part
        warming = (taking_part > 0) & (state.steps < self.rules.warmup)
        hinge = on(HINGE) if bool(warming.any()) else None
        if hinge is not None and torch.equal(warming, taking_part > 0):
            return hinge
        deviation = state.score_variance.sqrt().clamp(min=SMALLEST_DEVIATION)
        tight = on(surrogate, taking_part * surrogate.sharpness / deviation)
        if hinge is None:
            return tight
        sums = Sums(*(torch.where(warming, *pair) for pair in zip(hinge.sums, tight.sums, strict=True)))
        gradient = torch.where(warming, hinge.gradient, tight.gradient)
        return PassCounts(sums, tight.squares, gradient, tight.log_loss)
