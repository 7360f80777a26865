"""Enter, for training: the tensors of a batch become scores and weights per entry, or one sentence on what is wrong."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from aimfor import checks

# Sums over a batch, weighted by 1 / prior, must stay within float32.
LARGEST_SCORE = 1e25


class Batch(NamedTuple):
    """A checked batch, each `[B, L]`.

    Attributes:
        scores: float32 or float64, still part of the caller's graph; 0 where the entry has no weight.
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
    rows = _per_entry("mask", mask, scores), _per_entry("weights", weights, scores)
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must be of dtype torch.bool, got {mask.dtype}")
    dense = _one_hot(labels, scores, mask) if multiclass else labels
    if dense.shape != scores.shape:
        raise ValueError(f"labels must have the shape of scores, {tuple(scores.shape)}, got {tuple(labels.shape)}")

    if scores.ndim == 1:
        scores, dense = scores.unsqueeze(1), dense.unsqueeze(1)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    present, entry_weights = _presence(*rows, scores)
    if present is not None:
        _all_entries("weights", entry_weights, entry_weights.isfinite() & (entry_weights >= 0), "finite and >= 0")
        scores, dense = torch.where(present, scores, 0.0), torch.where(present, dense, 0)
    _all_entries("scores", scores, scores.abs() <= LARGEST_SCORE, f"finite and at most {LARGEST_SCORE:g} in size")
    positive = dense == 1
    _all_entries("labels", dense, positive | (dense == 0), "0 or 1")
    return Batch(scores, entry_weights * positive, entry_weights * ~positive)


def score_matrix(scores: Tensor, at_least: int = 1) -> None:
    """Check that scores are a floating-point matrix with enough columns."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        raise TypeError(
            f"scores must be a floating-point tensor, got {getattr(scores, 'dtype', type(scores).__name__)}"
        )
    if scores.ndim != 2 or scores.shape[1] < at_least:
        raise ValueError(f"scores must have shape [B, C] with C >= {at_least}, got {tuple(scores.shape)}")


def known_priors(priors: float | Sequence[float] | Tensor | None, num_labels: int) -> Tensor | None:
    """Known priors as `[L]`, each strictly between 0 and 1."""
    if priors is None:
        return None
    row = checks.per_column("priors", priors, (1, num_labels), 0, 1, open_low=True, open_high=True)
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


def _one_hot(labels: Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be whole numbers when multiclass, got {labels.dtype}")
    if labels.shape != scores.shape[:1]:
        raise ValueError(f"labels must have shape {tuple(scores.shape[:1])} when multiclass, got {tuple(labels.shape)}")
    valid = (labels >= 0) & (labels < scores.shape[1])
    if mask is not None and mask.shape == labels.shape:
        labels, valid = torch.where(mask, labels, 0), valid | ~mask
    _all_entries("labels", labels, valid, f"in 0..{scores.shape[1] - 1}")
    return F.one_hot(labels.long(), scores.shape[1])


def _presence(mask: Tensor | None, weights: Tensor | None, scores: Tensor) -> tuple[Tensor | None, Tensor]:
    """Which entries are there (None for all), and the weight of each."""
    ones = torch.ones_like(scores, requires_grad=False)
    if mask is None and weights is None:
        return None, ones
    entry_weights = ones if weights is None else weights.detach().to(scores).expand_as(scores)
    if mask is not None:
        entry_weights = torch.where(mask, entry_weights, 0.0)
    return entry_weights != 0, entry_weights


def _all_entries(name: str, values: Tensor, valid: Tensor, must: str) -> None:
    if not bool(valid.all()):
        raise ValueError(f"{name} must be {must} in every entry, got {values.detach()[~valid][0].item()}")
