"""Sums over ranks. Only this file imports `torch.distributed`.

Whether there is a process group is asked at every call, so a loss built before the group works like one built after.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor


class Ranks(NamedTuple):
    """The processes that train together; `size` is 1 for one that trains alone, `group` is None for all of them."""

    size: int
    group: Any = None

    def sums(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each tensor added up over all ranks, the same on each; they travel in one message."""
        if self.size == 1:
            return list(tensors)
        flat = tensors[0].flatten() if len(tensors) == 1 else torch.cat([tensor.flatten() for tensor in tensors])
        total = flat.to(torch.float64, copy=True)  # one type for all ranks, whatever the type of their scores
        torch.distributed.all_reduce(total, group=self.group)
        parts = total.split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True)]


ALONE = Ranks(1)


class Message(NamedTuple):
    """A tensor that is to be added up over some ranks."""

    ranks: Ranks
    tensor: Tensor


Result = TypeVar("Result")
Exchange: TypeAlias = Generator[Message, Tensor, Result]
"""Work that yields what it sends, is given the sum over the ranks, and returns its result. Alone it yields nothing."""


def exchanged(works: Sequence[Exchange[Result]]) -> list[Result]:
    """The results of works that go on side by side, which have the same ranks: what they send at the same time is one
    message. On every rank they must be the same works in the same order.
    """
    results: dict[int, Result] = {}
    received: dict[int, Any] = dict.fromkeys(range(len(works)))  # None begins a work
    while received:
        messages: dict[int, Message] = {}
        for number, total in received.items():
            try:
                messages[number] = works[number].send(total)
            except StopIteration as done:
                results[number] = done.value
        received = {}
        if messages:
            ranks = next(iter(messages.values())).ranks
            totals = ranks.sums([message.tensor for message in messages.values()])
            received = dict(zip(messages, totals, strict=True))
    return [results[number] for number in range(len(works))]


def finished(work: Exchange[Result]) -> Result:
    """The result of a work by itself."""
    try:
        message = next(work)
    except StopIteration as done:  # alone, without the lists of `exchanged`
        return done.value
    while True:
        try:
            message = work.send(message.ranks.sums([message.tensor])[0])
        except StopIteration as done:
            return done.value


def training_ranks(process_group: Any) -> Ranks:
    """The ranks of a process group: all for None, this one alone for False or without a group."""
    if process_group is False or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return ALONE
    return Ranks(torch.distributed.get_world_size(process_group), process_group)


def checked_group(process_group: Any) -> Any:
    """A process group, that of a dimension of a DeviceMesh, None or False; raises TypeError for anything else."""
    if process_group is None or process_group is False:
        return process_group
    if hasattr(process_group, "get_group"):  # a DeviceMesh; one of several dimensions says itself what to do
        return process_group.get_group()
    if not isinstance(process_group, torch.distributed.ProcessGroup):
        raise TypeError(
            "process_group must be None, False, a process group or one dimension of a DeviceMesh such as mesh['data'], "
            f"got {type(process_group).__name__}"
        )
    return process_group


class Overflow(Exception):
    """Scores in half precision that are not finite, on this rank or another: a gradient scaler skips such a step."""


def sum_census(ranks: Ranks, census: Tensor) -> Exchange[Tensor]:
    """The census of all ranks; raises ValueError where another rank refused its input, Overflow where its scores are
    not finite.

    One message, `[3 L + 2]`: the last numbers count the ranks that refused and those that overflowed.
    """
    if ranks.size == 1:
        return census
    exact = census.double()
    # Of means only sums can be added up. In double precision the mean of one and the same score stays that score.
    score_sum = exact[2] * (exact[0] + exact[1])
    received = yield Message(ranks, torch.cat([exact[0], exact[1], score_sum, exact.new_zeros(2)]))
    if received[-2] > 0:
        raise ValueError("scores, labels, weights and mask must be valid on every rank, another rank refused its own")
    if received[-1] > 0:
        raise Overflow
    negatives, positives, score_sum = received[:-2].unflatten(0, (3, -1))
    weight = negatives + positives
    mean = score_sum / torch.where(weight > 0, weight, 1.0)
    return torch.stack([negatives, positives, mean]).to(census.dtype)


def report_refusal(ranks: Ranks, like: Tensor, overflow: bool) -> Exchange[None]:
    """Send the other ranks, which wait for this one's census, that its input was refused or its scores overflowed.

    Args:
        ranks: the ranks that wait.
        like: one row of the census.
        overflow: which of the two.
    """
    if ranks.size > 1:
        message = like.new_zeros(3 * len(like) + 2)
        message[-1 if overflow else -2] = 1.0
        yield Message(ranks, message)


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
