"""What training minimises: the losses of many heads as one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aimfor.aims import Aim
from aimfor.loss import Loss, LossCall, log_odds, values_of
from aimfor.training._recipes import Recipe
from aimfor.training._rows import Batch, Data

# Batches on the hinge before a tight surrogate: fewer than the default of `Loss`, because training is shorter.
WARMUP = 200
# The diagnostics of its loss that a candidate keeps.
LEARNED = ("multipliers", "thresholds", "priors", "violation", "surrogate_recall", "recall")


class LogLoss:
    """Log-loss of many heads, some of them balanced.

    Args:
        recipes: one per head.
        data: the training rows, whose share of positives sets the balance.
        multiclass: whether labels are classes.
    """

    def __init__(self, recipes: Sequence[Recipe], data: Data, multiclass: bool):
        self.multiclass = multiclass
        self.factors = None
        if not multiclass and any(recipe.balanced for recipe in recipes):
            priors = data.mean_labels()
            shares = torch.from_numpy(np.stack([1 - priors, priors]).clip(1e-9)).float().to(data.rows.device)
            balanced = torch.tensor([recipe.balanced for recipe in recipes], device=data.rows.device)
            # [2, G, L]: the weight of a negative and of a positive in each head.
            self.factors = torch.where(balanced[:, None], 0.5 / shares[:, None], 1.0)

    def __call__(self, scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        """The sum over heads and labels of the mean over rows, for scores `[B, G, L]`.

        Weights have mean 1 over all batches, so a batch of heavier rows counts more.
        """
        if self.multiclass:
            targets = labels[:, None].expand(-1, scores.shape[1])
            losses = F.cross_entropy(scores.transpose(1, 2), targets, reduction="none")
        else:
            targets = labels[:, None].to(scores.dtype).expand_as(scores)
            losses = F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
            if self.factors is not None:
                losses = losses * torch.lerp(self.factors[0], self.factors[1], targets)
            losses = losses.sum(2)
        if weights is None:
            return losses.mean(0).sum()
        return (losses * weights[:, None]).mean(0).sum()


class Objectives:
    """The losses of many heads as one. Heads of the same recipe are columns of one `Loss`.

    Args:
        recipes: one per head.
        num_labels: L.
        data: the training rows.
        multiclass: whether labels are classes; the loss of the aim then gets log-odds.
        shared: whether a batch is what all ranks have of it together.
    """

    def __init__(self, recipes: Sequence[Recipe], num_labels: int, data: Data, multiclass: bool, shared: bool = False):
        self.num_labels, self.multiclass, self.shared = num_labels, multiclass, shared
        self.groups: list[tuple[Loss | LogLoss, list[int]]] = []
        kinds = [(one.aim, one.surrogate, one.constraint) if one.aim else None for one in recipes]
        # Neighbouring heads share a loss, because a slice of the scores costs less than a selection of columns.
        for kind, run in itertools.groupby(range(len(kinds)), key=kinds.__getitem__):
            heads = list(run)
            if kind is None:
                self.groups.append((LogLoss([recipes[head] for head in heads], data, multiclass), heads))
                continue
            aim, surrogate, constraint = kind
            # Log-loss is a candidate of its own.
            options: dict[str, Any] = {"surrogate": surrogate, "constraint": constraint, "log_loss": 0.0}
            options |= {"warmup": WARMUP, "process_group": None if self.shared else False}
            loss = Loss(repeated(aim, len(heads)), num_labels=len(heads) * num_labels, **options)
            loss.state.warned = True  # no warning of infeasible constraints: such candidates lose the contest
            self.groups.append((loss.to(data.rows.device), heads))

    def __call__(self, scores: Tensor, batch: Batch) -> Tensor:
        """The sum of all heads' losses on a batch, scores `[B, G, L]`; its mean over processes is that of all rows."""
        labels, weights = batch.labels, batch.weights
        odds, targets = scores, labels
        if self.multiclass and self.losses():
            odds = log_odds(scores.flatten(0, 1)).view_as(scores)
            targets = F.one_hot(labels, self.num_labels)
        groups = list(zip(self.groups, self._parts(scores), self._parts(odds), strict=True))
        calls = [
            LossCall(loss, columns := own.flatten(1), _repeated(targets, columns), weights)
            for (loss, _), _, own in groups
            if isinstance(loss, Loss)
        ]
        # By itself each loss is called as anybody calls it; ranks send the numbers of all losses together.
        values = values_of(calls) if self.shared else [loss(*given, weights=own) for loss, *given, own in calls]
        aimed = iter(_summed(value, call, batch) for value, call in zip(values, calls, strict=True))
        found = [
            _portion(loss(own, labels, weights), batch) if isinstance(loss, LogLoss) else next(aimed)
            for (loss, _), own, _ in groups
        ]
        return sum(found[1:], found[0])

    def _parts(self, scores: Tensor) -> Sequence[Tensor]:
        """The scores of each group. A single group skips the split, which would take a noticeable part of a step."""
        return [scores] if len(self.groups) == 1 else scores.split([len(heads) for _, heads in self.groups], 1)

    def losses(self) -> list[tuple[int, Loss]]:
        """The losses that have a state, with the numbers of their groups."""
        return [(index, loss) for index, (loss, _) in enumerate(self.groups) if isinstance(loss, Loss)]

    def learned(self) -> list[dict[str, Tensor]]:
        """The `Diagnostics` of the loss of each head, for its own labels; empty for log-loss."""
        found: list[dict[str, Tensor]] = [{} for heads in self.groups for _ in heads[1]]
        for _, loss in self.losses():
            heads = next(heads for one, heads in self.groups if one is loss)
            numbers = loss.diagnostics()._asdict()
            for place, head in enumerate(heads):
                own = slice(place * self.num_labels, (place + 1) * self.num_labels)
                found[head] = {name: numbers[name][..., own].cpu() for name in LEARNED}
        return found


def _portion(value: Tensor, batch: Batch) -> Tensor:
    """A mean over the rows of this process as its part of the mean over the batch."""
    return value if batch.mean_weight is None else batch.portion * value


def _repeated(targets: Tensor, columns: Tensor) -> Tensor:
    """The targets of each of the heads whose scores are side by side in the columns."""
    heads = columns.shape[1] // targets.shape[1]
    return targets.to(columns.dtype).repeat(1, heads) if heads > 1 else targets


def _summed(value: Tensor, call: LossCall, batch: Batch) -> Tensor:
    """The sum over labels, as for log-loss, so that a decay means the same for both."""
    weights, count = call.weights, call.scores.shape[1]
    if weights is not None:  # the loss divides by the weight of its batch, which differs between batches
        value = (weights.mean() if batch.mean_weight is None else batch.mean_weight) * value
    return value if count == 1 else count * value


def repeated(aim: Aim, times: int) -> Aim:
    """The aim for `times` copies of its labels: targets per label are repeated."""
    tuples = {field.name: getattr(aim, field.name) for field in fields(aim)}  # pyright: ignore[reportArgumentType]
    longer = {name: value * times for name, value in tuples.items() if isinstance(value, tuple)}
    return replace(aim, **longer) if longer else aim  # pyright: ignore[reportArgumentType]
