"""The pairwise surrogate of the area under the ROC curve, which the paper compares with."""

import torch
from torch import Tensor

from aimfor._base import checks
from aimfor.loss._autograd import attach_gradient
from aimfor.loss._batch import training_batch
from aimfor.loss._surrogates import SURROGATES
from aimfor.loss.engines import Entries, entries, sums_and_gradient


def pairwise_auc_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    surrogate: str = "hinge",
    weights: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Mean surrogate loss of f(positive) - f(negative) over all pairs of the batch (Rakotomamonjy, 2004).

    A pair asks whether the negative stays below a threshold that is the positive's score. So this is the same pass as
    any aim's, with the scores themselves as thresholds: O(B^2 L) in time, O(B L) in memory.

    Args:
        scores: `[B]` or `[B, L]`.
        labels: 0/1 of the same shape.
        surrogate: "hinge", "log" or "smooth_hinge".
        weights: `[B]` or like scores; a pair weighs the product of its weights.
        mask: bool, `[B]` or like scores, False where the label is unknown.

    Returns:
        Mean over the labels of their means over pairs; a label without a pair adds 0.

    Example:
        >>> pairwise_auc_loss(torch.tensor([2.0, 0.0, 0.5]), torch.tensor([1, 0, 0]))
        tensor(0.)
    """
    checks.choice("surrogate", surrogate, [name for name, one in SURROGATES.items() if one.convex])
    num_labels = scores.shape[1] if isinstance(scores, Tensor) and scores.ndim == 2 else 1
    batch = training_batch(scores, labels, weights, mask, num_labels)
    checks.rule(num_labels > 0, "scores", "must have at least one column", tuple(scores.shape))
    with torch.no_grad():
        given = entries(batch)
        # Each class by itself: products of weights and of their totals would leave float32.
        checked = Entries(given.scores, _shares(given.positive_weights), _shares(given.negative_weights))
        costs = checked.positive_weights / num_labels
        sums, gradient = sums_and_gradient(
            checked, checked.scores, torch.zeros_like(costs), costs, SURROGATES[surrogate]
        )
        value = (costs * sums.negative_loss).sum()
        gradient += costs * sums.negative_slope
    return attach_gradient(value, scores, gradient.view_as(scores).to(scores.dtype))


def _shares(weights: Tensor) -> Tensor:
    """Weights over their total in each label; 0 where there is none."""
    total = weights.sum(0)
    return weights / torch.where(total > 0, total, 1.0)
