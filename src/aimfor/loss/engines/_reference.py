"""The reference engine: from scores and thresholds to the sums per anchor and label that every aim needs.

This is the plain form, which the faster ones in `fused` and `native` are tested against: a few lines of torch for any
device and dtype. One pass gives the loss sums, the threshold derivatives, the exact error counts and the gradient of
the scores. Anchors are visited one by one, so that a `[B, L, K]` tensor never exists.
"""

from functools import partial

import torch
from torch import Tensor

from aimfor.loss._batch import Batch
from aimfor.loss._state import State
from aimfor.loss._step import LogLossCosts, LossRules, PassCounts, Sums
from aimfor.loss._surrogates import Surrogate
from aimfor.loss.engines._entries import Entries, add_log_loss_, entries
from aimfor.loss.engines._ladder import LadderPass
from aimfor.loss.engines._protocol import CountingEngine


class ReferenceEngine(CountingEngine):
    """Any surrogate, device and dtype, by a few readable lines."""

    name = "plain"

    def description(self) -> str:
        return "torch, a few lines that the other engines are tested against"

    @torch.no_grad()
    def begin(self, batch: Batch, state: State, rules: LossRules) -> LadderPass:
        return LadderPass(state, rules, census(batch), partial(count, batch))


def census(batch: Batch) -> Tensor:
    """Check every value of a batch and count it: `[3, L]`, weights of negatives and of positives, weighted mean of
    scores. The classes are counted apart: what is left of the whole would be rounding where one of them is rare."""
    scores, positive_weights, negative_weights = entries(batch)
    weights = positive_weights + negative_weights
    total, absent = weights.sum(0), weights == 0
    low, high = scores.masked_fill(absent, torch.inf).amin(0), scores.masked_fill(absent, -torch.inf).amax(0)
    mean = mean_between((weights * scores).sum(0), total, low, high)
    return torch.stack([negative_weights.sum(0), positive_weights.sum(0), mean]).float()


def mean_between(score_sum: Tensor, weight: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """`[L]`, weighted mean of scores, 0 without weight. Rounding must not take it out of their range: a threshold
    starts there, and scores that are all the same are then on one side of it."""
    mean = torch.clamp(score_sum / torch.where(weight > 0, weight, 1.0), min=low, max=high)
    return torch.where(weight > 0, mean, 0.0)


def count(
    batch: Batch,
    thresholds: Tensor,
    positive_cost: Tensor,
    negative_cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None,
    score_mean: Tensor,
    *,
    errors: bool = True,
    log_costs: LogLossCosts | None = None,
) -> PassCounts:
    """The pass over a batch that has been through the census; see `sums_and_gradient` for most arguments, and take
    `score_mean`, `[L]`, for what the squares are measured from. False positives and negatives are asked for by
    `errors`; otherwise they may be anything. Log-loss is asked for by its costs."""
    checked = entries(batch)
    b, u_cost, v_cost = (part.to(checked.scores) for part in (thresholds, positive_cost, negative_cost))
    sums, gradient = sums_and_gradient(checked, b, u_cost, v_cost, surrogate, sharpness)
    distance = checked.scores - score_mean.to(checked.scores)
    weights = checked.positive_weights + checked.negative_weights
    log_loss = None if log_costs is None else add_log_loss_(gradient, checked, log_costs)
    return PassCounts(sums, (weights * distance.square()).sum(0), gradient, log_loss)


def sums_and_gradient(
    checked: Entries,
    thresholds: Tensor,
    positive_cost: Tensor,
    negative_cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None = None,
) -> tuple[Sums, Tensor]:
    """Sum surrogate losses, slopes and errors over rows, and differentiate their weighted total by the scores.

    Args:
        checked: the batch.
        thresholds: `[K, L]`.
        positive_cost: `[K, L]`, weight of positive_loss in the total that is differentiated.
        negative_cost: `[K, L]`, weight of negative_loss in that total.
        surrogate: the stand-in for the 0-1 loss.
        sharpness: `[L]`, factor on the margins; None for 1.

    Returns:
        The sums, and `[B, L]` the gradient of sum(positive_cost * positive_loss + negative_cost * negative_loss).
    """
    scores, positive_weights, negative_weights = checked
    signs = torch.where(negative_weights > 0, -1.0, 1.0).to(scores)
    gradient = torch.zeros_like(scores)
    sums = scores.new_empty(len(Sums._fields), *thresholds.shape)
    for anchor, (threshold, *costs) in enumerate(zip(thresholds, positive_cost, negative_cost, strict=True)):
        margin = signs * (scores - threshold)
        # A score equal to the threshold is predicted positive: right for a positive, wrong for a negative.
        wrong_positive, wrong_negative = margin < 0, margin <= 0
        if sharpness is not None:
            margin = margin * sharpness
        loss, slope = surrogate.loss(margin), surrogate.slope(margin)
        if sharpness is not None:
            slope = slope * sharpness
        positive_slope, negative_slope = slope * positive_weights, slope * negative_weights
        gradient += costs[0] * positive_slope - costs[1] * negative_slope
        terms = (
            loss * positive_weights,
            loss * negative_weights,
            positive_slope,
            negative_slope,
            wrong_positive * positive_weights,
            wrong_negative * negative_weights,
        )
        # Into one tensor: small ones, kept between large ones that go, would keep their memory from being used again.
        for which, term in enumerate(terms):
            torch.sum(term, 0, out=sums[which, anchor])
    return Sums(*sums), gradient
