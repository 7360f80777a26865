"""Log-loss in place of the aim for the first batches of a loss."""

import math

import torch
from torch import Tensor

from aimfor.loss._batch import Batch
from aimfor.loss._state import State, above
from aimfor.loss._step import LossRules
from aimfor.loss._surrogates import LOG
from aimfor.loss.engines import count_fused


def log_loss_step(
    batch: Batch, state: State, rules: LossRules, census: Tensor, multiclass: bool
) -> tuple[Tensor, Tensor]:
    """What trains the scores in the first batches: a mean over labels, of classes the cross-entropy."""
    came = census[0] + census[1]
    active = state.taking_part.mul_(above(came, 0.0))
    cost = active / (came * active + (1 - active))
    value, gradient = log_loss(batch, cost if multiclass else cost / len(active), multiclass)
    state.forget_looks_()  # no constraint has been tried yet
    ranks = rules.ranks
    return ranks.sum(value), gradient * ranks.size if ranks.size > 1 else gradient


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
    costs = at_zero, positive_cost, negative_cost, LOG, None, at_zero[0]
    sums, _, gradient = count_fused(batch, *costs, errors=False)
    return (sums.positive_loss * positive_cost + sums.negative_loss * negative_cost).sum(), gradient
