"""Several losses on the scores of one batch, whose ranks send the numbers of all of them together."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from aimfor.loss._autograd import attach_gradient
from aimfor.loss._distributed import exchanged
from aimfor.loss._loss import Loss


class LossCall(NamedTuple):
    """A loss and what it would be called with; see `Loss.forward`."""

    loss: Loss
    scores: Tensor
    labels: Tensor
    weights: Tensor | None = None


def values_of(calls: Sequence[LossCall]) -> list[Tensor]:
    """The values of losses that have the same ranks: two messages for all of them, where each would send two.

    Where one refuses its input on some rank, this raises on every rank, as the loss by itself does.
    """
    learning = torch.is_grad_enabled()
    works = [
        loss._exchange(scores, labels, weights, None, learning and loss.training)
        for loss, scores, labels, weights in calls
    ]
    return [attach_gradient(*found) for found in exchanged(works)]
