"""What the loss learns while the model trains: priors, thresholds and multipliers.

Everything is a buffer, so no optimiser ever sees it; one step is one call of `learn_`, made from numbers that are
already summed over ranks, so that every rank makes the same step.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from aimfor.aims import Anchors, Rates
from aimfor.loss._possible_state import refuse_impossible

# Running averages are plain means over the first steps, then forget at this rate.
FORGET = 0.01
# The same for the typical slope by which threshold steps are divided.
FORGET_SLOPE = 0.001
# A constraint looks infeasible when, with its multiplier at its limit or nothing predicted positive, so many steps have
# not lowered its violation by this factor: a model that still grows into it does so slowly but steadily.
PATIENCE = 500
PROGRESS = 0.95
# How many batches of a label pass between two looks for such a constraint.
LOOK_EVERY = 100
# The lowest violation before any was seen: every one is lower, and it is finite, as all of a state is.
NOTHING_SEEN = torch.finfo(torch.float32).max
# Errors are counted in every so many batches of a label, where they do not drive the multipliers and it has some: to
# count them takes a tenth of a pass. A divisor of LOOK_EVERY, as the look needs them, and a power of two, of which a
# remainder costs next to nothing.
COUNT_EVERY = 4
# A multiplier is divided by its bound. Under a limit on the false-positive rate, or a recall to be kept, that of the
# optimum is at most 1 where the ROC curve is concave; under a precision to be kept, false positives weigh two thirds of
# what they ever can at 2. Further up it would only be wound up while the model is on its way, and drown other anchors.
MAX_MULTIPLIER = 2.0
# Batches of the present weight that a count of the classes may hold.
LONGEST_COUNT = 2.0**20
# Load and room of a constraint below this are those of predicting nothing.
SMALLEST_SIZE = 1e-3
# A counted prior stays so far from 0 and 1, as a given one must: beyond, float32 cannot tell it from them.
NEAREST_TO_ENDS = 1e-7
# Scores that differ by less are one score; it keeps a tight surrogate from becoming infinitely sharp on them.
SMALLEST_DEVIATION = 1e-6
# Two slopes that differ by less, against their sum, cancel: the rest is rounding, and a threshold step of full size
# would be made of it.
ROUNDING = 1e-6
# A batch pulls the running mean of the scores, and their spread, by so many deviations at most: a single score gone
# astray would otherwise lengthen the steps of the thresholds for hundreds of batches.
OUTLYING = 4.0
# A deviation below this share of the mean is the rounding of scores that are all the same, and holds nothing back.
MEAN_ROUNDING = 1e-5
# Started low: a constraint that weighs too much at first costs more steps than one that has to be learned.
START_MULTIPLIER = 0.1
# Every buffer and the number that it starts with. Those of PER_LABEL are `[L]`, most others `[K, L]`.
STARTS = {
    "steps": 0,
    "class_weight": 0.0,
    "thresholds": 0.0,
    "multipliers": START_MULTIPLIER,
    "rates": 0.0,
    "positives": 1.0,
    "exact_positives": 1.0,  # of the batches whose errors were counted
    "negatives": 1.0,
    "exact_negatives": 1.0,
    "score_mean": 0.0,
    "score_variance": 0.0,
    "slope_square": 0.0,
    "violation_square": 0.0,
    "lowest_violation": NOTHING_SEEN,
    "fruitless_steps": 0.0,
}
PER_LABEL = (
    "steps",
    *("positives", "exact_positives", "negatives", "exact_negatives"),
    *("score_mean", "score_variance"),
)


class Step(NamedTuple):
    """What a pass has found, from which the state learns.

    Attributes:
        active: `[L]`, 1 for labels to update, 0 for the others, which keep their state.
        anchors: the table of the aim.
        surrogate: surrogate rates of the batch.
        exact: 0-1 rates of the batch, looked at where `counts_for` is not 0; None where that is nowhere.
        negatives: `[L]`, weight of negatives that came, over the weight to be expected.
        counts_for: `[L]`, for how many batches the 0-1 rates stand.
        exact_drives: whether, or `[L]` where, the exact rates drive the multipliers instead of the surrogate ones.
        slope: `[K, L]`, derivative of the Lagrangian in the thresholds.
        variance: `[L]`, variance of the scores of the batch.
    """

    active: Tensor
    anchors: Anchors
    surrogate: Rates
    exact: Rates | None
    negatives: Tensor
    counts_for: Tensor
    exact_drives: bool | Tensor
    slope: Tensor
    variance: Tensor


def above(one: Tensor, other: Tensor | float) -> Tensor:
    """1 where one > other, else 0. As floats: masks of bools, and `where`, take several times as long."""
    return torch.gt(one, other, out=torch.empty_like(one))


def difference(one: Tensor, other: Tensor) -> Tensor:
    """one - other, 0 where that is rounding; writes over both."""
    rest, both = one - other, one.abs_().add_(other.abs_()).mul_(ROUNDING)
    return rest.mul_(torch.gt(torch.abs(rest, out=other), both, out=both))


def driving(surrogate: Rates, exact: Rates | None, exact_drives: bool | Tensor) -> Rates:
    """Exact rates where they drive the multipliers, else the surrogate ones."""
    if exact is None:
        return surrogate
    if isinstance(exact_drives, bool):
        return exact if exact_drives else surrogate
    u, v = (torch.where(exact_drives, *pair) for pair in zip(exact[:2], surrogate[:2], strict=True))
    return Rates(u, v, surrogate.p)


class State(nn.Module):
    """Priors, thresholds, multipliers and running rates of one loss; float32 whatever the model's dtype.

    Args:
        anchor_count: K.
        num_labels: L.
        priors: of each label the share of positives that the aim is about; None for the counted one.
    """

    loaded = of_another_aim = False  # by ways that set buffers one by one
    class_weight: Tensor
    steps: Tensor
    thresholds: Tensor
    multipliers: Tensor
    rates: Tensor
    positives: Tensor
    exact_positives: Tensor
    negatives: Tensor
    exact_negatives: Tensor
    score_mean: Tensor
    score_variance: Tensor
    slope_square: Tensor
    violation_square: Tensor
    lowest_violation: Tensor
    fruitless_steps: Tensor

    @torch.inference_mode(False)  # what is made in that mode can never be changed outside of it
    def __init__(self, anchor_count: int, num_labels: int, priors: Sequence[float] | None):
        super().__init__()
        # Batches learned from, and whether the user was told of constraints that cannot be met: plain numbers, as a
        # device would have to be waited for.
        self.batches, self.warned = 0, False
        # An option, as plain numbers: frameworks that make models without memory fill in buffers, and nothing else.
        self.given: tuple[float, ...] | None = None if priors is None else tuple(priors)
        self._given_tensor: Tensor | None = None
        per_label, per_anchor = (num_labels,), (anchor_count, num_labels)
        sizes = {
            **dict.fromkeys(PER_LABEL, per_label),
            "class_weight": (2, num_labels),  # positives, negatives
            "rates": (4, *per_anchor),  # surrogate u, v; exact u, v
        }
        for name, start in STARTS.items():
            kind = torch.long if name == "steps" else torch.float32
            self.register_buffer(name, torch.full(sizes.get(name, per_anchor), start, dtype=kind))
        # Without memory there are no numbers: whoever gives it memory may fill in some of them, or none.
        self.without_numbers = self.thresholds.is_meta

    @property
    def device(self) -> torch.device:
        """Where the state is."""
        return self._buffers["thresholds"].device  # pyright: ignore[reportOptionalMemberAccess]

    @property
    def given_priors(self) -> Tensor | None:
        """`[L]` priors that were given, on the device of the state; None for the counted ones."""
        if self.given is None:
            return None
        kept, device = self._given_tensor, self.thresholds.device
        if kept is None or kept.device != device:
            kept = torch.tensor(self.given, dtype=torch.float32, device=device)
            self.__dict__["_given_tensor"] = kept
        return kept

    def fill_in_(self) -> None:
        """Start with right numbers where a state that was made without memory has been given some.

        What was loaded stays. Who loads a state sets its extra state too; otherwise nobody has written to the memory.
        """
        buffers = {name: getattr(self, name) for name in STARTS}
        if any(buffer.is_meta for buffer in buffers.values()):
            return
        if self.of_another_aim or not (self.loaded and self.batches):
            self.reset_()
        for name, buffer in buffers.items():
            refuse_impossible(f"state.{name}", name, buffer)
        self.without_numbers = False

    def reset_(self) -> None:
        """Forget everything that was learned."""
        self.batches, self.warned, self.without_numbers = 0, False, self.thresholds.is_meta
        for name, start in STARTS.items():
            getattr(self, name).fill_(start)

    @property
    def counted_priors(self) -> Tensor:
        """`[L]` share of positives in the training batches; 0.5 until both classes have been seen."""
        positives, negatives = self.class_weight
        share = (positives / (positives + negatives).clamp(min=1e-30)).clamp(NEAREST_TO_ENDS, 1 - NEAREST_TO_ENDS)
        taking_part = self.taking_part
        return share.mul_(taking_part).add_(taking_part.sub_(1), alpha=-0.5)

    @property
    def priors(self) -> Tensor:
        """`[L]` share of positives that the aim is about."""
        return self.counted_priors if self.given_priors is None else self.given_priors

    @property
    def surrogate_rates(self) -> Rates:
        """Running surrogate rates."""
        return Rates(self.rates[0], self.rates[1], self.positives)

    @property
    def exact_rates(self) -> Rates:
        """Running 0-1 rates."""
        return Rates(self.rates[2], self.rates[3], self.exact_positives)

    def driving_rates(self, exact_drives: bool | Tensor) -> Rates:
        """Running rates of those that drive the multipliers."""
        return driving(self.surrogate_rates, self.exact_rates, exact_drives)

    @property
    def taking_part(self) -> Tensor:
        """`[L]`, 1 for labels of which both classes have been seen, else 0."""
        return above(torch.minimum(*self.class_weight), 0.0)

    def count_batch_(self) -> None:
        """One batch more. Not by an assignment, for which a module looks through all that it holds."""
        self.__dict__["batches"] += 1

    def observe_(self, census: Tensor) -> None:
        """Count the classes of a training batch; a label that takes part for the first time starts at its mean.

        Args:
            census: `[3, L]`, weights of the negatives and of the positives of the batch, weighted mean of its scores.
        """
        negative_weight, positive_weight, mean_score = census
        weight = negative_weight + positive_weight
        came = above(weight, 0.0)
        # Before a count is so long that float32 would round a batch away, it is halved: its share stays as it is.
        full = above(self.class_weight.sum(0), LONGEST_COUNT * weight).mul_(came)
        self.class_weight *= full.mul_(-0.5).add_(1)
        self.class_weight += torch.stack([positive_weight, negative_weight])
        active, steps = self.taking_part.mul_(came), self.steps.float()
        starting = (1 - steps).clamp_(min=0).mul_(active)
        self.thresholds.lerp_(mean_score, starting)
        # The mean is a running one, so that batches of one row have a spread too.
        reach = self._square_reach().sqrt_()
        mean_score = mean_score.clamp(self.score_mean - reach, self.score_mean + reach)
        self.score_mean.lerp_(mean_score, steps.add_(1).reciprocal_().clamp_(min=FORGET).mul_(active))

    def _square_reach(self) -> Tensor:
        """`[L]`, the square of how far from the running mean of the scores a batch may count for; inf until they have
        spread."""
        spread = above(self.score_variance, (MEAN_ROUNDING * self.score_mean).square_())
        return (OUTLYING**2 * self.score_variance).add_(1 - spread).div_(spread)

    def learn_(self, step: Step, dual_rate: float, threshold_rate: float) -> None:
        """One step of multipliers and thresholds.

        Args:
            step: what the pass has found.
            dual_rate: step of a multiplier when its constraint is broken by its own size.
            threshold_rate: step of a threshold in standard deviations of the scores.
        """
        active, anchors = step.active, step.anchors
        slope = step.slope.float()
        self.steps += active.long()
        first_mean = 1 / self.steps.float().clamp_(min=1)
        forget = active * first_mean.clamp(min=FORGET)
        forget_slope = active * first_mean.clamp(min=FORGET_SLOPE)
        running = (*self.rates[:2], self.positives, self.negatives)
        for mean, found in zip(running, (*step.surrogate, step.negatives), strict=True):
            mean.lerp_(found.float(), forget)
        if step.exact is not None:
            running = (*self.rates[2:], self.exact_positives, self.exact_negatives)
            for mean, found in zip(running, (*step.exact, step.negatives), strict=True):
                mean.lerp_(found.float(), forget * step.counts_for)
        self.score_variance.lerp_(torch.minimum(step.variance.float(), self._square_reach()), forget)

        if anchors.multiplier is None:
            stepped = torch.add(self.multipliers, self._dual_step_(step, forget), alpha=dual_rate)
            stepped = stepped.clamp_(min=0, max=MAX_MULTIPLIER)
            if step.exact is not None:  # asked first: a remainder takes as long as several other operations
                looking = (active > 0) & (self.steps % LOOK_EVERY == 0)
                if bool(looking.any()):
                    self._look_(step, looking)
        else:
            stepped = anchors.multiplier
        self.multipliers.lerp_(stepped, active)

        self.slope_square.lerp_(slope.square(), forget_slope)
        tiny = torch.finfo(slope.dtype).tiny
        typical = self.slope_square.clamp(min=tiny).sqrt_()
        normalised = torch.div(slope, typical, out=typical)
        self.thresholds.addcmul_(normalised, active * self.score_variance.sqrt(), value=-threshold_rate)

    @property
    def stuck(self) -> Tensor:
        """`[K, L]`, constraints that stay broken, without getting better, while their multiplier is at its limit or
        nothing is predicted positive. One that only a bound breaks is none: the true rates have met it."""
        return self.fruitless_steps >= PATIENCE

    def forget_looks_(self) -> None:
        """Start the search for constraints that cannot be met anew."""
        self.fruitless_steps.zero_()
        self.lowest_violation.fill_(NOTHING_SEEN)

    def counts_for(self, active: Tensor, exact_drives: bool | Tensor) -> Tensor:
        """`[L]`, for how many batches this one stands in the exact rates, or 0: its errors need not be counted."""
        # By the label's own batches: those of the loss may be such that it is always absent when errors are counted.
        others = COUNT_EVERY * ((self.steps + 1) & (COUNT_EVERY - 1) == 0).float()
        always = above(COUNT_EVERY - self.steps.float(), 0.0).add_(exact_drives).clamp_(max=1)
        return active * always.mul_(1 - others).add_(others)

    def _look_(self, step: Step, looking: Tensor) -> None:
        violation = step.anchors.violation(self.driving_rates(step.exact_drives))
        better = violation < PROGRESS * self.lowest_violation
        self.lowest_violation.copy_(torch.where(looking & better, violation, self.lowest_violation))
        exact = self.exact_rates
        nothing = (exact.recall < SMALLEST_SIZE) & (exact.v < SMALLEST_SIZE)
        pressed = looking & (nothing | (self.multipliers >= MAX_MULTIPLIER))
        # The scores of log-loss can be too small for a bound that the model itself meets. Width 0 asks nothing.
        met = (violation <= 0) | (step.anchors.width <= 0) | (~nothing & (step.anchors.violation(exact) <= 0))
        self.fruitless_steps += LOOK_EVERY * pressed
        self.fruitless_steps *= ~(looking & (better | met))

    def _dual_step_(self, step: Step, forget: Tensor) -> Tensor:
        """The violation in units in which one dual rate serves every target, batch size and stage of training."""
        # Against its running size: few predicted positives break a precision by little in absolute terms. Where there
        # are next to none at all a precision says nothing, and the multiplier gives way until there are some.
        size = step.anchors.size(self.driving_rates(step.exact_drives))
        violation = step.anchors.violation(driving(step.surrogate, step.exact, step.exact_drives)).float()
        sizeable = above(size, SMALLEST_SIZE)
        relative = violation.div_(size.clamp_(min=SMALLEST_SIZE)).mul_(sizeable).add_(sizeable.sub_(1))
        del size, sizeable
        # Against its typical magnitude where that is above 1, so that a batch which happens to hold many times its
        # share of errors does not throw the multiplier. The divisor forgets slowly, so a mean of zero stays zero; below
        # 1 it is left out, so that steps vanish as the constraint is met.
        self.violation_square.lerp_(relative.square(), forget)
        return relative.div_(self.violation_square.clamp(min=1).sqrt_())

    def get_extra_state(self) -> Tensor:
        """Batches, whether the user was warned and, where there are some, the given priors."""
        if self.without_numbers:
            self.fill_in_()
        numbers = [self.batches, int(self.warned)]
        if self.given is None:
            return torch.tensor(numbers, device="cpu")
        return torch.tensor([*numbers, *self.given], dtype=torch.float64, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        batches, warned, *priors = state.tolist()
        self.batches, self.warned, self.loaded = int(batches), bool(warned), True
        if priors and self.given is None:  # those that this loss was given stay
            self.given = tuple(priors)

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs) -> None:
        for name, own in self._buffers.items():
            new = state_dict.get(prefix + name)
            if own is not None and new is not None and new.is_floating_point():
                # Whatever it was kept as: the engines read float32.
                new = state_dict[prefix + name] = new.to(own.dtype)
            if new is not None:
                refuse_impossible(prefix + name, name, new)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if all(prefix + name in state_dict for name in STARTS):
            self.without_numbers = False

    def _apply(self, fn, recurse=True):
        # Moves with the model, but stays float32: counts and small steps do not survive half precision.
        def moved(tensor: Tensor) -> Tensor:
            device = fn(tensor).device
            return torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.to(device=device)

        nothing_there = self.thresholds.is_meta
        super()._apply(moved, recurse)
        if nothing_there and not self.thresholds.is_meta:  # `to_empty` after torch.device("meta")
            self.reset_()
        return self
