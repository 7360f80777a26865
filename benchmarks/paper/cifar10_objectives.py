"""The objectives of the CIFAR-10 table: softmax, pairwise AUCROC, the aims on one-vs-rest scores and on log-odds."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aimfor
from benchmarks.shared.forms import BOUNDING

CLASSES = 10
AIMS = (
    "aucpr",
    "precision@recall>=0.7",
    "precision@recall>=0.9",
    "precision@recall>=0.95",
    "recall@precision>=0.7",
    "recall@precision>=0.9",
    "recall@precision>=0.95",
)


class Objective(nn.Module):
    """A loss for G heads: scores [B, G, 10] and classes [B] -> the sum of each head's own loss."""

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        """The ways to rank scores [n, G, 10] after training, by name."""
        raise NotImplementedError


class CrossEntropy(Objective):
    """Softmax log-loss."""

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        return scores.shape[1] * F.cross_entropy(scores.flatten(0, 1), classes.repeat_interleave(scores.shape[1]))

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        return {"logits": scores, "probabilities": log_odds(scores)}


class Pairwise(Objective):
    """`aimfor.pairwise_auc_loss` with the hinge, for exclusive classes.

    An image is a positive of one class only, so that B x B pairs of images hold all pairs of all classes.
    """

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        own = scores.gather(2, classes[:, None, None].expand(-1, scores.shape[1], 1))  # [B, G, 1]
        margins = own.squeeze(2).T - scores[:, :, classes]  # negative, head, positive
        positives = torch.bincount(classes, minlength=CLASSES)
        pairs = (positives * (len(classes) - positives)).clamp(min=1)
        weights = (classes[:, None] != classes) / (CLASSES * pairs[classes])
        return ((1 - margins).relu() * weights[:, None]).sum()

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        return {"scores": scores}


class OneVsRest(Objective):
    """An aim on the raw scores of each class against the rest."""

    def __init__(self, aim: str, heads: int, surrogate: str = "hinge"):
        super().__init__()
        options = BOUNDING | {"surrogate": surrogate}
        self.heads, self.loss = heads, aimfor.Loss(aim, num_labels=heads * CLASSES, **options)

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        labels = F.one_hot(classes, CLASSES)[:, None].expand_as(scores)
        return self.heads * self.loss(scores.flatten(1), labels.flatten(1))

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        return {"scores": scores, "margins": scores - self.loss.thresholds.mean(0).view(self.heads, CLASSES)}


class LogOdds(OneVsRest):
    """An aim on softmax log-odds; for one head it is `aimfor.Loss(aim, num_labels=10, multiclass=True)`."""

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        return super().forward(log_odds(scores), classes)

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        return {"log-odds": log_odds(scores)}


def log_odds(scores: Tensor) -> Tensor:
    """Softmax log-odds along the last axis."""
    return aimfor.log_odds(scores.reshape(-1, CLASSES)).view_as(scores)


class Named(NamedTuple):
    """An objective by name: what it trains for, on which form of the scores, and how to make it for G heads."""

    objective: str
    form: str
    make: Callable[[int], Objective]


OBJECTIVES = [
    Named("cross-entropy", "softmax", lambda heads: CrossEntropy()),
    Named("aucroc", "pairwise", lambda heads: Pairwise()),
    *(Named(aim, "one-vs-rest", functools.partial(OneVsRest, aim)) for aim in AIMS),
    *(Named(aim, "log-odds", functools.partial(LogOdds, aim)) for aim in AIMS),
    # Beside the paper's hinge, as log-odds come with this bound in the other tables too.
    Named("aucpr, log surrogate", "log-odds", functools.partial(LogOdds, "aucpr", surrogate="log")),
]
