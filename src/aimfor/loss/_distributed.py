"""Sums over ranks. Only this file imports `torch.distributed`.

Whether there is a process group is asked at every call, so a loss built before the group works like one built after.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Ranks(NamedTuple):
    """The processes that train together; `size` is 1 for one that trains alone."""

    size: int

    def sum(self, tensor: Tensor) -> Tensor:
        """The tensor added up over all ranks, the same on each."""
        if self.size == 1:
            return tensor
        total = tensor.to(torch.float64, copy=True)  # one type for all ranks, whatever the type of their scores
        torch.distributed.all_reduce(total)
        return total.to(tensor.dtype)


ALONE = Ranks(1)


def training_ranks() -> Ranks:
    """The ranks of the default process group; one without a group."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Ranks(torch.distributed.get_world_size())
    return ALONE


def sum_census(ranks: Ranks, census: Tensor) -> Tensor:
    """The census of all ranks; raises ValueError where another rank refused its input.

    One message, `[3 L + 1]`: the last number counts the ranks that refused.
    """
    if ranks.size == 1:
        return census
    exact = census.double()
    # Of means only sums can be added up. In double precision the mean of one and the same score stays that score.
    score_sum = exact[2] * (exact[0] + exact[1])
    received = ranks.sum(torch.cat([exact[0], exact[1], score_sum, exact.new_zeros(1)]))
    if received[-1] > 0:
        raise ValueError("scores, labels, weights and mask must be valid on every rank, another rank refused its own")
    negatives, positives, score_sum = received[:-1].unflatten(0, (3, -1))
    weight = negatives + positives
    mean = score_sum / torch.where(weight > 0, weight, 1.0)
    return torch.stack([negatives, positives, mean]).to(census.dtype)


def report_refusal(ranks: Ranks, like: Tensor) -> None:
    """Send the other ranks, which wait for this one's census, that its input was refused; `like` is one row of it."""
    if ranks.size > 1:
        ranks.sum(torch.cat([like.new_zeros(3 * len(like)), like.new_ones(1)]))


def group_size(group: Any) -> int:
    """Number of processes in the group: all of them for None, 1 for False or without a process group."""
    if group is False or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    return torch.distributed.get_world_size(group)


def gather_from_ranks(payload: Any, group: Any) -> list[Any]:
    """What every rank of the group gave, in the order of ranks."""
    payloads: list[Any] = [None] * group_size(group)
    torch.distributed.all_gather_object(payloads, payload, group=group)
    return payloads
