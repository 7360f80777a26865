"""The step in torch: costs from the state, the pass of an engine, then value and state from its sums."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from aimfor.aims import Anchors, Rates
from aimfor.loss._distributed import Exchange, Message, Ranks
from aimfor.loss._state import State, Step, above, difference
from aimfor.loss._surrogates import Surrogate

if TYPE_CHECKING:
    from aimfor.loss.engines import Pass


class LossRules(NamedTuple):
    """How a loss takes one batch.

    Attributes:
        surrogate: the stand-in for the 0-1 loss.
        exact: whether exact rates drive the multipliers.
        dual_rate, threshold_rate: steps of multipliers and thresholds.
        warmup: batches that a label spends on the hinge before a tight surrogate.
        learning: whether the state moves.
        log_loss: share of log-loss in the gradient, see `_share_of_aim`.
        exclusive: whether labels are exclusive classes, of which log-loss is the cross-entropy.
        ranks: the processes whose batches are one.
    """

    surrogate: Surrogate
    exact: bool
    dual_rate: float
    threshold_rate: float
    warmup: int
    learning: bool
    log_loss: float
    exclusive: bool
    ranks: Ranks


class Sums(NamedTuple):
    """Weighted sums over the rows of a batch, each `[K, L]`.

    Attributes:
        positive_loss: surrogate loss of the positives (L+ of the paper); weight of positives minus it is `tp_lower`.
        negative_loss: surrogate loss of the negatives (L-), which is `fp_upper`.
        positive_slope: derivative of positive_loss in the margin; minus its derivative in the threshold.
        negative_slope: derivative of negative_loss in the margin, which is its derivative in the threshold.
        false_negatives: weight of positives with score < threshold.
        false_positives: weight of negatives with score >= threshold.
    """

    positive_loss: Tensor
    negative_loss: Tensor
    positive_slope: Tensor
    negative_slope: Tensor
    false_negatives: Tensor
    false_positives: Tensor


class PassCounts(NamedTuple):
    """What a pass gives.

    Attributes:
        sums: see `Sums`.
        squares: `[L]`, weighted squares of the scores' distances from a mean.
        gradient: `[B, L]`, of the total cost by the scores.
        log_loss: `[L]`, cost of the log-loss of each label; None where it was not asked for.
    """

    sums: Sums
    squares: Tensor
    gradient: Tensor
    log_loss: Tensor | None = None


class LogLossCosts(NamedTuple):
    """What the log-loss of an entry is multiplied by, each `[L]`.

    Attributes:
        positive: where the label is 1.
        negative: where the label is 0; None where that is 0, as the cross-entropy of exclusive classes has it.
    """

    positive: Tensor
    negative: Tensor | None


def exact_drives(state: State, rules: LossRules) -> bool | Tensor:
    """Where the exact rates drive the multipliers: on the convex rung of a ladder too, because the hinge may have no
    feasible point where the tight surrogate, for which it only prepares, has one."""
    if rules.exact or rules.surrogate.convex:
        return rules.exact
    return state.steps < rules.warmup


@torch.no_grad()
def torch_step(run: "Pass", anchors: Anchors) -> Exchange[tuple[Tensor, Tensor]]:
    """Value and gradient of the Lagrangian on one batch; moves the state where the rules say that it is learning.

    Ranks send their sums to one another in the middle.
    """
    state, rules, census = run.state, run.rules, run.census
    units = _units(state, census, run.counted_priors)
    multipliers = state.multipliers if anchors.multiplier is None else anchors.multiplier
    costs = _costs(anchors, multipliers, units, rules, state.class_weight)
    counts_for = state.counts_for(units.active, exact_drives(state, rules)) if rules.learning else None
    errors = counts_for is not None and bool(counts_for.any())
    counts = _counted(run, anchors, costs, units, errors)
    sums, squares, log_loss = yield from summed(rules.ranks, counts)

    # In place from here on, and let go of early: what is `[K, L]` adds up beside the gradient.
    u_cost, v_cost, share, of_aim = costs
    del costs
    positives = census[1] * units.u
    lagrangian = (sums.positive_loss * u_cost).addcmul_(sums.negative_loss, v_cost)
    lagrangian.addcmul_(multipliers, share * anchors.width * anchors.largest_room(positives), value=-1)
    value = lagrangian.sum() if log_loss is None else (log_loss + of_aim * lagrangian.sum(0)).sum()
    del lagrangian
    if counts_for is None:
        return value, counts.gradient
    slope = difference(sums.negative_slope.mul_(v_cost), sums.positive_slope.mul_(u_cost))
    del u_cost, v_cost
    surrogate = Rates(sums.positive_loss.mul_(units.u), sums.negative_loss.mul_(units.v), positives)
    exact = None
    if errors:
        exact = Rates(sums.false_negatives.mul_(units.u), sums.false_positives.mul_(units.v), positives)
    step = Step(
        active=units.active,
        anchors=anchors,
        surrogate=surrogate,
        exact=exact,
        negatives=census[0] * units.v,
        counts_for=counts_for,
        exact_drives=exact_drives(state, rules),
        slope=slope,
        variance=squares / units.weight,
    )
    state.learn_(step, rules.dual_rate, rules.threshold_rate)
    # Data-parallel training averages the gradients over ranks, and each rank holds only its rows of the sum.
    return value, counts.gradient * rules.ranks.size if rules.ranks.size > 1 else counts.gradient


class _Units(NamedTuple):
    """What turns sums into rates, each `[L]`: u and v are 0 for labels that take no part in this batch."""

    active: Tensor
    weight: Tensor
    u: Tensor
    v: Tensor


def _units(state: State, census: Tensor, counted: Tensor) -> _Units:
    came = census[0] + census[1]
    active = state.taking_part.mul_(above(came, 0.0))
    # Rates are shares of each class as the batches hold it; what the aim is about, a given prior if there is one,
    # enters with the false positives per positive.
    weight = came * active + (1 - active)
    return _Units(active, weight, active / (counted * weight), active / ((1 - counted) * weight))


class _Costs(NamedTuple):
    """What the losses of positives and of negatives are multiplied by, `[K, L]`, and two shares, `[L]`.

    Attributes:
        u, v: the costs.
        share: by which those of a label are divided.
        of_aim: the part of the aim in the gradient of a label; the rest is log-loss.
    """

    u: Tensor
    v: Tensor
    share: Tensor
    of_aim: Tensor | float


def _costs(anchors: Anchors, multipliers: Tensor, units: _Units, rules: LossRules, class_weight: Tensor) -> _Costs:
    u_cost, v_cost = anchors.costs(multipliers)
    # All anchors of a label by one factor: the minimiser of the label stays, and the gradient keeps the size of
    # that of log-loss however the multipliers grow, so that a learning rate and a shared trunk serve all labels.
    u_total, v_total = u_cost.sum(0), v_cost.sum(0)
    total = u_total + v_total
    share = units.active / (total + (1 - above(total, 0.0))) / len(units.active)
    of_aim = _share_of_aim(rules, torch.stack([u_total, v_total]) / total, class_weight, units.active)
    return _Costs(u_cost.mul_(share * units.u), v_cost.mul_(share * units.v), share, of_aim)


def _share_of_aim(rules: LossRules, shares: Tensor, class_weight: Tensor, active: Tensor) -> Tensor | float:
    """The part of the aim in the gradient of each label.

    Shares are meant of gradients of one size. Under log-loss the weights of a positive and of a negative row add up to
    2 / (W L). Under the aim they add up to more where a class is rare: to 1 / prior while the multiplier is small. As a
    share of the values, log-loss would have next to no part in the gradient of a rare label. A cross-entropy is one
    loss for all classes, so its share is the same for all.

    Args:
        rules: the share that was asked for.
        shares: `[2, L]`, shares of u and of v in the cost of the aim.
        class_weight: `[2, L]`, of all positives and negatives. Of a prior near 1 the rest would be rounding.
        active: `[L]`, 1 for labels that take part.
    """
    if rules.log_loss == 0 or rules.exclusive:
        return 1 - rules.log_loss
    size = 0.5 * class_weight.sum(0) * (shares / class_weight).sum(0)
    # A label that takes no part has no size, and one whose range asks nothing has no costs.
    size = torch.where((active > 0) & (size > 0), size, 1.0).to(active)
    return (1 - rules.log_loss) / (rules.log_loss * size + (1 - rules.log_loss))


def _counted(run: "Pass", anchors: Anchors, costs: _Costs, units: _Units, errors: bool) -> PassCounts:
    """The pass, with log-loss beside the aim where the rules have a share for it."""
    of_aim, exclusive = costs.of_aim, run.rules.exclusive
    if run.rules.log_loss == 0:
        return run.count(anchors, costs.u, costs.v, errors)
    cost = units.active / units.weight * ((1 - of_aim) if exclusive else (1 - of_aim) / len(units.weight))
    log_costs = LogLossCosts(cost, None if exclusive else cost)
    # Only the gradient is shared out: thresholds are learned from the aim alone, at any share.
    return run.count_with_log_loss(anchors, of_aim * costs.u, of_aim * costs.v, errors, log_costs)


def summed(ranks: Ranks, counts: PassCounts) -> Exchange[tuple[Sums, Tensor, Tensor | None]]:
    """Sums, squares and log-loss of a pass over all ranks, in one message."""
    sums, squares, _, log_loss = counts
    if ranks.size == 1:
        return sums, squares, log_loss
    extra = torch.stack([squares] if log_loss is None else [squares, log_loss])
    received = yield Message(ranks, torch.cat([*sums, extra]))
    together, extra = received.split([len(sums) * len(sums[0]), len(extra)])
    return Sums(*together.unflatten(0, (len(sums), -1))), extra[0], None if log_loss is None else extra[1]
