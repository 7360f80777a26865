"""Enter, for training: the tensors of a batch become scores and weights per entry, or one sentence on what is wrong."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from aimfor import checks
from aimfor.log_odds import log_odds

# Sums over a batch, weighted by 1 / prior, must stay within float32.
LARGEST = 1e25


class Batch(NamedTuple):
    """A checked batch, each `[B, L]`.

    Attributes:
        scores: float32 or float64, still part of the caller's graph; log-odds when multiclass; 0 where the entry has no
            weight.
        positive_weights: weight of the entry where its label is 1, else 0.
        negative_weights: weight of the entry where its label is 0, else 0.
    """

    scores: Tensor
    positive_weights: Tensor
    negative_weights: Tensor


def training_batch(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    mask: Tensor | None,
    num_labels: int,
    multiclass: bool = False,
) -> Batch:
    """Check one training batch. Entries with weight 0 or mask False are absent: nothing there is looked at.

    Args:
        scores: `[B]` when there is one label, or `[B, L]`.
        labels: 0/1 of the shape of scores; class indices `[B]` when multiclass.
        weights: `[B]` or like scores; None for 1.
        mask: bool, `[B]` or like scores; None for all True.
        num_labels: L.
        multiclass: whether labels are class indices.
    """
    for name, value in (("scores", scores), ("labels", labels), ("weights", weights), ("mask", mask)):
        if not isinstance(value, Tensor) and (name in ("scores", "labels") or value is not None):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    _check_scores(scores, num_labels, multiclass)
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must be of dtype torch.bool, got {mask.dtype}")
    if labels.is_complex():
        raise TypeError(f"labels must be real, got {labels.dtype}")
    matrix = scores.unsqueeze(1) if scores.ndim == 1 else scores
    matrix = matrix.to(torch.promote_types(scores.dtype, torch.float32))
    entry_weights = _entry_weights(_per_entry("mask", mask, scores), _per_entry("weights", weights, scores), matrix)
    present = entry_weights != 0
    # A class without a label of its own still stands among the others of its row.
    looked_at = present.any(1, keepdim=True) if multiclass else present
    matrix = torch.where(looked_at, matrix, 0.0)
    _all_entries("scores", matrix, matrix.abs() <= LARGEST, f"finite and at most {LARGEST:g} in size")
    dense = _one_hot(labels, scores, looked_at) if multiclass else labels
    if dense.shape != scores.shape:
        raise ValueError(f"labels must have the shape of scores, {tuple(scores.shape)}, got {tuple(labels.shape)}")
    dense = torch.where(present, dense.unsqueeze(1) if dense.ndim == 1 else dense, 0)
    positive = dense == 1
    _all_entries("labels", dense, positive | (dense == 0), "0 or 1")
    ranked = torch.where(present, log_odds(matrix), 0.0) if multiclass else matrix
    return Batch(ranked, entry_weights * positive, entry_weights * ~positive)


def known_priors(priors: float | Sequence[float] | Tensor | None, num_labels: int) -> Tensor | None:
    """Known priors as `[L]`, each strictly between 0 and 1."""
    if priors is None:
        return None
    row = checks.per_column("priors", priors, (1, num_labels), 0, 1, open_low=True, open_high=True)
    for prior in row:
        checks.away_from_ends("priors", prior)
    return torch.tensor(row, dtype=torch.float32)


def _check_scores(scores: Tensor, num_labels: int, multiclass: bool) -> None:
    if not scores.is_floating_point():
        raise TypeError(f"scores must be floating point, got {scores.dtype}")
    allowed = f"[B, {num_labels}]" if multiclass or num_labels > 1 else "[B] or [B, 1]"
    one_column = scores.ndim == 1 and num_labels == 1
    if not one_column and (scores.ndim != 2 or scores.shape[1] != num_labels):
        raise ValueError(f"scores must have shape {allowed} for num_labels={num_labels}, got {tuple(scores.shape)}")
    checks.rule(len(scores) > 0, "scores", "must have at least one row", tuple(scores.shape))


def _per_entry(name: str, value: Tensor | None, scores: Tensor) -> Tensor | None:
    """A per-row or per-entry tensor as a matrix that broadcasts against `[B, L]`."""
    if value is None:
        return None
    if value.shape == scores.shape:
        return value if value.ndim == 2 else value.unsqueeze(1)
    if value.shape == scores.shape[:1]:
        return value.unsqueeze(1)
    allowed = dict.fromkeys([tuple(scores.shape[:1]), tuple(scores.shape)])
    raise ValueError(f"{name} must have shape {' or '.join(map(str, allowed))}, got {tuple(value.shape)}")


def _one_hot(labels: Tensor, scores: Tensor, looked_at: Tensor) -> Tensor:
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be whole numbers when multiclass, got {labels.dtype}")
    if labels.shape != scores.shape[:1]:
        raise ValueError(f"labels must have shape {tuple(scores.shape[:1])} when multiclass, got {tuple(labels.shape)}")
    labels = torch.where(looked_at.squeeze(1), labels, 0)
    _all_entries("labels", labels, (labels >= 0) & (labels < scores.shape[1]), f"in 0..{scores.shape[1] - 1}")
    return F.one_hot(labels.long(), scores.shape[1])


def _entry_weights(mask: Tensor | None, weights: Tensor | None, matrix: Tensor) -> Tensor:
    """The weight of each entry, 0 where it is absent."""
    if weights is None:
        entry_weights = torch.ones_like(matrix, requires_grad=False)
    else:
        weights = weights.detach()
        valid = (weights == 0) | ((weights >= 1 / LARGEST) & (weights <= LARGEST))
        valid = valid if mask is None else valid | ~mask
        _all_entries("weights", weights.expand_as(valid), valid, f"0 or between {1 / LARGEST:g} and {LARGEST:g}")
        entry_weights = weights.to(matrix).expand_as(matrix)
    return entry_weights if mask is None else torch.where(mask, entry_weights, 0.0)


def _all_entries(name: str, values: Tensor, valid: Tensor, must: str) -> None:
    if not bool(valid.all()):
        raise ValueError(f"{name} must be {must} in every entry, got {values.detach()[~valid][0].item()}")
