"""Losses made for labels of which many are rare, each from its paper, with the settings that its authors give.

All take scores [B, G, L] of G models and labels [B, L], and give the sum over models of each one's mean over rows.

- Asymmetric loss (Ridnik et al., 2021): negatives that are easy count less, by a power of their probability, and those
  below a margin not at all.
- Two-way loss (Kobayashi, 2023): the positives of a row above its negatives, and the same for the rows of a label.
- LDAM with deferred weights (Cao et al., 2019): margins that grow as a class gets rarer, and in the last fifth of the
  steps weights by the effective number of rows. Each label is a problem of two classes here. The scale of the original
  belongs to normalised weights, which these models do not have, so it is 1.
- Distribution-balanced loss (Wu et al., 2020): rows weigh less for a label that comes with frequent ones, and negatives
  push less. With the focal power and the settings of Huang et al. (2021) for texts, and as there without resampling.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.shared.grids import StepLoss

ABSENT = -1e4  # a score that takes no part in a sum of exponentials


def log_loss(scores: Tensor, labels: Tensor, step: int = 0) -> Tensor:
    return scores.shape[1] * F.binary_cross_entropy_with_logits(scores, labels[:, None].expand_as(scores))


def asymmetric(scores: Tensor, labels: Tensor, step: int = 0, power: float = 4.0, margin: float = 0.05) -> Tensor:
    """Powers 0 for positives and 4 for negatives, margin 0.05."""
    positive = labels[:, None] * F.logsigmoid(scores)
    shifted = (scores.sigmoid() - margin).clamp(min=0)
    negative = (1 - labels[:, None]) * shifted**power * torch.log1p(-shifted)
    return -(positive + negative).sum(2).mean(0).sum()


def two_way(scores: Tensor, labels: Tensor, step: int = 0, temperature: float = 4.0) -> Tensor:
    """Rows, then labels; temperature 4 for the positives."""
    given = labels[:, None].expand_as(scores) > 0
    return sum(_one_way(scores, given, across, temperature) for across in (2, 0))  # pyright: ignore


def _one_way(scores: Tensor, given: Tensor, across: int, temperature: float) -> Tensor:
    negatives = scores.masked_fill(given, ABSENT).logsumexp(across)
    positives = temperature * (-scores / temperature).masked_fill(~given, ABSENT).logsumexp(across)
    both = given.any(across) & ~given.all(across)
    values = F.softplus(negatives + positives).where(both, 0.0)
    return scores.shape[1] * values.sum() / both.sum().clamp(min=1)


def margins_with_deferred_weights(positives: Tensor, rows: int, steps: int) -> StepLoss:
    """Largest margin 0.5, weights by the effective number of rows with beta 0.9999 from four fifths of the steps on."""
    counts = torch.stack([rows - positives, positives]).clamp(min=1)  # [2, L]
    margins = counts**-0.25
    margins = 0.5 * margins / margins.max()
    beta = 0.9999
    weights = (1 - beta) / (1 - beta**counts)
    weights = 2 * weights / weights.sum(0)

    def loss(scores: Tensor, labels: Tensor, step: int) -> Tensor:
        target = labels[:, None].expand_as(scores)
        moved = scores + torch.where(target > 0, -margins[1], margins[0])
        weight = torch.where(target > 0, weights[1], weights[0]) if step >= 0.8 * steps else None
        return scores.shape[1] * F.binary_cross_entropy_with_logits(moved, target, weight)

    return loss


def distribution_balanced(positives: Tensor, rows: int) -> StepLoss:
    """Smoothed weights with 0.1, 10 and 0.9, bias 0.05, negatives scaled by 2, focal power 2."""
    low, slope, middle, bias, scale, power = 0.1, 10.0, 0.9, 0.05, 2.0, 2.0
    counts = positives.clamp(min=1)
    inverse = 1 / counts
    shift = -bias * torch.log(rows / counts - 1)

    def loss(scores: Tensor, labels: Tensor, step: int) -> Tensor:
        repeated = (labels * inverse).sum(1, keepdim=True).clamp(min=1e-12)
        weights = low + torch.sigmoid(slope * (inverse / repeated - middle))  # [B, L]
        target = labels[:, None].expand_as(scores)
        moved = scores + shift
        moved = torch.where(target > 0, moved, scale * moved)
        entropy = F.binary_cross_entropy_with_logits(moved, target, reduction="none")
        value = (1 - torch.exp(-entropy)) ** power * torch.where(target > 0, entropy, entropy / scale)
        return (weights[:, None] * value).sum(2).mean(0).sum()

    return loss
