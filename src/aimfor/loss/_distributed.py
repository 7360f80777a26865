"""Count over ranks: the only file that knows `torch.distributed`.

Whether there is a process group is asked at every call, so a loss built before the group works like one built after.
"""

from typing import Any

import torch
from torch import Tensor


def world_size() -> int:
    """Number of processes that train together; 1 without a process group."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return 1


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The tensor added up over all ranks, the same on each."""
    if world_size() == 1:
        return tensor
    total = tensor.to(torch.float64, copy=True)  # one type for all ranks, whatever the type of their scores
    torch.distributed.all_reduce(total)
    return total.to(tensor.dtype)


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
