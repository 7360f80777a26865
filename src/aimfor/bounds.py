"""Count: from scores and thresholds to the sums per anchor and label that every aim is made of.

One pass gives the loss sums, the threshold derivatives, the exact error counts and the gradient of the scores. The
anchors are visited one after the other, so the largest tensor is `[B, L]`; a `[B, L, K]` one never exists.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from aimfor.surrogates import Surrogate


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
    gradient = torch.zeros_like(scores)
    rows = []
    for threshold, cost_of_positives, cost_of_negatives in zip(thresholds, positive_cost, negative_cost, strict=True):
        distance = scores - threshold
        above = distance >= 0
        margin = distance if sharpness is None else distance * sharpness
        positive_loss, negative_loss = surrogate.loss(margin), surrogate.loss(-margin)
        positive_slope, negative_slope = surrogate.slope(margin), surrogate.slope(-margin)
        if sharpness is not None:
            positive_slope, negative_slope = positive_slope * sharpness, negative_slope * sharpness
        positive_slope, negative_slope = positive_slope * positive_weights, negative_slope * negative_weights
        gradient += cost_of_positives * positive_slope - cost_of_negatives * negative_slope
        rows.append(
            torch.stack(
                [
                    (positive_loss * positive_weights).sum(0),
                    (negative_loss * negative_weights).sum(0),
                    positive_slope.sum(0),
                    negative_slope.sum(0),
                    (positive_weights * ~above).sum(0),
                    (negative_weights * above).sum(0),
                ]
            )
        )
    return Sums(*torch.stack(rows, dim=1)), gradient


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
