"""Count: from scores and thresholds to the sums per anchor and label that every aim is made of.

One pass gives the loss sums, the threshold derivatives, the exact error counts and the gradient of the scores. Anchors
are visited in blocks: one at a time for a large batch, so that a `[B, L, K]` tensor never exists, and as many as fit a
fixed budget for a small one, where calling an operation costs more than carrying it out.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from aimfor.surrogates import Surrogate

# Entries of the largest temporary that a block of several anchors may need.
BLOCK_ENTRIES = 2**16


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


def sums_and_gradient(
    scores: Tensor,
    positive_weights: Tensor,
    negative_weights: Tensor,
    thresholds: Tensor,
    positive_cost: Tensor,
    negative_cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None = None,
) -> tuple[Sums, Tensor]:
    """Sum surrogate losses, slopes and errors over rows, and differentiate their weighted total by the scores.

    Args:
        scores: `[B, L]`.
        positive_weights: `[B, L]`, the weight of the entry where it is positive, else 0.
        negative_weights: `[B, L]`, the weight of the entry where it is negative, else 0.
        thresholds: `[K, L]`.
        positive_cost: `[K, L]`, weight of positive_loss in the total that is differentiated.
        negative_cost: `[K, L]`, weight of negative_loss in that total.
        surrogate: the stand-in for the 0-1 loss.
        sharpness: `[L]`, factor on the margins; None for 1.

    Returns:
        The sums, and `[B, L]` the gradient of sum(positive_cost * positive_loss + negative_cost * negative_loss).
    """
    signs = torch.where(negative_weights > 0, -1.0, 1.0).to(scores)
    gradient = torch.zeros_like(scores)
    blocks = []
    per_block = max(1, BLOCK_ENTRIES // scores.numel())
    for first in range(0, len(thresholds), per_block):
        block = slice(first, first + per_block)
        margin = signs * (scores - thresholds[block].unsqueeze(1))  # [anchors of the block, B, L]
        # A score equal to the threshold is predicted positive: right for a positive, wrong for a negative.
        wrong_positive, wrong_negative = margin < 0, margin <= 0
        if sharpness is not None:
            margin = margin * sharpness
        loss, slope = surrogate.loss(margin), surrogate.slope(margin)
        if sharpness is not None:
            slope = slope * sharpness
        positive_slope, negative_slope = slope * positive_weights, slope * negative_weights
        costs = positive_cost[block].unsqueeze(1), negative_cost[block].unsqueeze(1)
        gradient += (costs[0] * positive_slope - costs[1] * negative_slope).sum(0)
        terms = (
            loss * positive_weights,
            loss * negative_weights,
            positive_slope,
            negative_slope,
            wrong_positive * positive_weights,
            wrong_negative * negative_weights,
        )
        blocks.append([term.sum(1) for term in terms])
    return Sums(*(torch.cat(parts) for parts in zip(*blocks, strict=True))), gradient


def attach_gradient(value: Tensor, scores: Tensor, gradient: Tensor) -> Tensor:
    """Give `value`, computed outside autograd, its already known gradient in the scores."""
    return _AttachedGradient.apply(value, scores, gradient)  # pyright: ignore[reportReturnType]


class _AttachedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value: Tensor, scores: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs: Tensor):
        (gradient,) = ctx.saved_tensors
        return None, grad_outputs[0] * gradient, None
