"""Count over ranks: the only file that knows `torch.distributed`.

Whether there is a process group is asked at every call, so a loss built before the group works like one built after.
"""

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
