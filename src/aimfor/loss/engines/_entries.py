"""A batch entry by entry, and its log-loss: the plain form that every engine may fall back to."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from aimfor.loss._batch import Batch, Positives, every_entry, valid_positions, valid_scores, valid_weights
from aimfor.loss._step import LogLossCosts


class Entries(NamedTuple):
    """A batch entry by entry, each `[B, L]`.

    Attributes:
        scores: float32 or float64; 0 where the entry has no weight.
        positive_weights: weight of the entry where its label is 1, else 0.
        negative_weights: weight of the entry where its label is 0, else 0.
    """

    scores: Tensor
    positive_weights: Tensor
    negative_weights: Tensor


def entries(batch: Batch) -> Entries:
    """Check every value of a batch and write it out entry by entry."""
    scores = batch.scores.detach()
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    weights = _entry_weights(batch.mask, batch.weights, scores)
    present = weights != 0
    scores = torch.where(present, scores, 0.0)
    valid_scores(scores)
    labels = batch.labels
    if isinstance(labels, Positives):
        labels = _dense(valid_positions(labels, scores.shape[1]), scores)
    labels = torch.where(present, labels, 0)
    positive = labels == 1
    every_entry("labels", labels, positive | (labels == 0))
    return Entries(scores, weights * positive, weights * ~positive)


def add_log_loss_(gradient: Tensor, checked: Entries, costs: LogLossCosts) -> Tensor:
    """Add the gradient of log-loss to that of a batch; gives the cost of each label, `[L]`."""
    scores, positive_weights, negative_weights = checked
    sides = ((-1.0, positive_weights, costs.positive), (1.0, negative_weights, costs.negative))
    total = torch.zeros_like(scores[0])
    for sign, weights, cost in sides:
        if cost is None:
            continue
        cost = cost.to(scores)
        total += cost * (F.softplus(sign * scores) * weights).sum(0)
        gradient.addcmul_(torch.sigmoid(sign * scores).mul_(weights), sign * cost)
    return total


def _entry_weights(mask: Tensor | None, weights: Tensor | None, scores: Tensor) -> Tensor:
    """The weight of each entry, 0 where it is absent."""
    if weights is None:
        entry_weights = torch.ones_like(scores)
    else:
        valid_weights(weights, mask)
        entry_weights = weights.to(scores).expand_as(scores)
    return entry_weights if mask is None else torch.where(mask, entry_weights, 0.0)


def _dense(positives: Positives, scores: Tensor) -> Tensor:
    rows = torch.repeat_interleave(positives.starts.diff())
    dense = torch.zeros_like(scores)
    return dense.index_put_((rows, positives.columns), scores.new_ones(()), accumulate=True)
