"""Weigh: what the loss learns by itself while the model trains: priors, thresholds and multipliers.

Everything is a buffer, so no optimiser ever sees it; one step is one call of `learn_`, made from numbers that are
already summed over ranks, so that every rank makes the same step.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from aimfor.aims import Anchors, Rates

# Running averages are plain means over the first steps, then forget at this rate.
FORGET = 0.01
# The same for the typical slope by which threshold steps are divided.
FORGET_SLOPE = 0.001
# A constraint is given up when, with its multiplier at its limit, so many steps have not lowered its violation by this
# factor: a model that still grows into it does so slowly but steadily.
PATIENCE = 500
PROGRESS = 0.95
# A multiplier is of order 1 where the constraint can be met (it is divided by its bound). One that has come this far
# already weighs hardly anything but the constraint, and going on would drown every other anchor.
MAX_MULTIPLIER = 20.0
# Load and room of a constraint below this are those of predicting nothing.
SMALLEST_SIZE = 1e-3
# Started low: a constraint that weighs too much at first costs more steps than one that has to be learned.
START_MULTIPLIER = 0.1


class Census(NamedTuple):
    """What a batch holds, per label, each `[L]`: its weight, the weight of its positives, the weighted mean score."""

    weight: Tensor
    positive_weight: Tensor
    mean_score: Tensor


class Step(NamedTuple):
    """What a pass has found, from which the state learns.

    Attributes:
        active: `[L]`, labels to update; the others keep their state.
        anchors: the table of the aim.
        surrogate: surrogate rates of the batch.
        exact: 0-1 rates of the batch.
        driving: those of the two that drive the multipliers.
        slope: `[K, L]`, derivative of the Lagrangian in the thresholds.
        variance: `[L]`, variance of the scores of the batch.
    """

    active: Tensor
    anchors: Anchors
    surrogate: Rates
    exact: Rates
    driving: Rates
    slope: Tensor
    variance: Tensor


class State(nn.Module):
    """Priors, thresholds, multipliers and running rates of one loss; float32 whatever the model's dtype.

    Args:
        anchor_count: K.
        num_labels: L.
        priors: `[L]` known priors, which are then never changed; None to count them.
    """

    priors: Tensor
    class_weight: Tensor
    steps: Tensor
    thresholds: Tensor
    multipliers: Tensor
    rates: Tensor
    positives: Tensor
    score_variance: Tensor
    slope_square: Tensor
    violation_square: Tensor
    driving_rates: Tensor
    lowest_violation: Tensor
    fruitless_steps: Tensor

    def __init__(self, anchor_count: int, num_labels: int, priors: Tensor | None):
        super().__init__()
        self.known_priors = priors is not None
        per_label, per_anchor = (num_labels,), (anchor_count, num_labels)
        self.register_buffer("priors", torch.full(per_label, 0.5) if priors is None else priors.clone())
        self.register_buffer("class_weight", torch.zeros(2, num_labels))  # positives, negatives
        self.register_buffer("steps", torch.zeros(per_label, dtype=torch.long))
        self.register_buffer("thresholds", torch.zeros(per_anchor))
        self.register_buffer("multipliers", torch.full(per_anchor, START_MULTIPLIER))
        self.register_buffer("rates", torch.zeros(4, *per_anchor))  # surrogate u, v; exact u, v
        self.register_buffer("positives", torch.ones(per_label))
        self.register_buffer("score_variance", torch.zeros(per_label))
        self.register_buffer("slope_square", torch.zeros(per_anchor))
        self.register_buffer("violation_square", torch.zeros(per_anchor))
        self.register_buffer("driving_rates", torch.zeros(2, *per_anchor))
        self.register_buffer("lowest_violation", torch.full(per_anchor, torch.finfo(torch.float32).max))
        self.register_buffer("fruitless_steps", torch.zeros(per_anchor))

    @property
    def surrogate_rates(self) -> Rates:
        """Running surrogate rates."""
        return Rates(self.rates[0], self.rates[1], self.positives)

    @property
    def exact_rates(self) -> Rates:
        """Running 0-1 rates."""
        return Rates(self.rates[2], self.rates[3], self.positives)

    @property
    def running_driving_rates(self) -> Rates:
        """Running rates of those that drive the multipliers."""
        return Rates(self.driving_rates[0], self.driving_rates[1], self.positives)

    @property
    def taking_part(self) -> Tensor:
        """`[L]`, the labels of which both classes have been seen."""
        return (self.class_weight > 0).all(0)

    def observe_(self, census: Census) -> None:
        """Count the classes of a training batch; a label that takes part for the first time starts at its mean."""
        self.class_weight += torch.stack([census.positive_weight, census.weight - census.positive_weight])
        if not self.known_priors:
            positives, negatives = self.class_weight
            self.priors.copy_(torch.where(self.taking_part, positives / (positives + negatives), self.priors))
        starting = self.taking_part & (self.steps == 0)
        self.thresholds.copy_(torch.where(starting, census.mean_score, self.thresholds))

    def learn_(self, step: Step, dual_rate: float, threshold_rate: float) -> None:
        """One step of multipliers and thresholds.

        Args:
            step: what the pass has found.
            dual_rate: step of a multiplier when its constraint is broken by its own size.
            threshold_rate: step of a threshold in standard deviations of the scores.
        """
        active, anchors = step.active, step.anchors
        slope = step.slope.float()
        self.steps += active
        first_mean = 1 / self.steps.clamp(min=1)
        forget = active * first_mean.clamp(min=FORGET)
        forget_slope = active * first_mean.clamp(min=FORGET_SLOPE)
        self.rates.lerp_(torch.stack([*step.surrogate[:2], *step.exact[:2]]).float(), forget)
        self.driving_rates.lerp_(torch.stack([*step.driving[:2]]).float(), forget)
        self.positives.lerp_(step.surrogate.p, forget)
        self.score_variance.lerp_(step.variance.float(), forget)

        if anchors.multiplier is None:
            stepped = self.multipliers + dual_rate * self._dual_step_(step, forget)
            stepped = stepped.clamp(min=0).clamp(max=MAX_MULTIPLIER)
            self._count_fruitless_steps_(step)
        else:
            stepped = anchors.multiplier
        self.multipliers.copy_(torch.where(active, stepped, self.multipliers))

        self.slope_square.lerp_(slope.square(), forget_slope)
        tiny = torch.finfo(slope.dtype).tiny
        normalised = slope / self.slope_square.sqrt().clamp(min=tiny)
        self.thresholds -= active * threshold_rate * self.score_variance.sqrt() * normalised

    @property
    def stuck(self) -> Tensor:
        """`[K, L]`, constraints that stay broken, without getting better, while their multiplier is at its limit."""
        return self.fruitless_steps >= PATIENCE

    def _count_fruitless_steps_(self, step: Step) -> None:
        violation = step.anchors.violation(self.running_driving_rates)
        better = violation < PROGRESS * self.lowest_violation
        self.lowest_violation.copy_(torch.where(step.active & better, violation, self.lowest_violation))
        waiting = ~better & (violation > 0) & (self.multipliers >= MAX_MULTIPLIER)
        self.fruitless_steps.copy_(torch.where(step.active, (self.fruitless_steps + 1) * waiting, self.fruitless_steps))

    def _dual_step_(self, step: Step, forget: Tensor) -> Tensor:
        """The violation in units in which one dual rate serves every target, batch size and stage of training."""
        # Against its running size: few predicted positives break a precision by little in absolute terms. Where there
        # are next to none at all a precision says nothing, and the multiplier gives way until there are some.
        size = step.anchors.size(self.running_driving_rates)
        violation = step.anchors.violation(step.driving).float()
        relative = torch.where(size > SMALLEST_SIZE, violation / size.clamp(min=SMALLEST_SIZE), -1.0)
        # Against its typical magnitude where that is above 1, so that a batch which happens to hold many times its
        # share of errors does not throw the multiplier. The divisor forgets slowly, so a mean of zero stays zero; below
        # 1 it is left out, so that steps vanish as the constraint is met.
        self.violation_square.lerp_(relative.square(), forget)
        return relative / self.violation_square.sqrt().clamp(min=1)

    def _apply(self, fn, recurse=True):
        # Moves with the model, but stays float32: counts and small steps do not survive half precision.
        return super()._apply(lambda tensor: tensor.to(device=fn(tensor).device), recurse)
