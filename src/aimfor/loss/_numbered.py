"""Losses by number: an operation of a compiled graph takes tensors and numbers, no modules."""

import itertools
import weakref
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from aimfor.loss._loss import Loss

_NUMBERS = itertools.count()
_LOSSES: weakref.WeakValueDictionary[int, "Loss"] = weakref.WeakValueDictionary()


def numbered_loss(number: int) -> "Loss":
    """The loss of this number."""
    return _LOSSES[number]


def take_number(loss: "Loss") -> Tensor:
    """A number for a loss. It is a tensor, as a compiled graph would be compiled again for another number."""
    number = next(_NUMBERS)
    _LOSSES[number] = loss
    return torch.tensor(number, device="cpu")
