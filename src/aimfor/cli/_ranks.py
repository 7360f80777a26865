"""The processes that torchrun started: they fit one model together, each with its own rows."""

from __future__ import annotations

import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from aimfor._base.errors import DataError
from aimfor._base.ranks import ALONE, Ranks
from aimfor.training import Observer, SavedState

# How long a rank waits for the others. A rank that died is noticed at once, as its connections close.
PATIENCE = timedelta(minutes=30)
# The same before there are connections, when nobody would notice; torch tries twice to reach the first rank.
MEETING = timedelta(minutes=1)
# What gloo says of connections that are gone.
LOST = re.compile(r"gloo|connection|timed out|timeout|peer|socket|store", re.IGNORECASE)

ENDED = "ended"


class LostRankError(ValueError):
    """Another rank ended before the work was done."""


class TorchRanks(Ranks):
    """All processes of torch's default group."""

    def __init__(self):
        self.number, self.size = distributed.get_rank(), distributed.get_world_size()

    def gather(self, given: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, given)
        return found

    def first(self, given: Any) -> Any:
        found = [given]
        distributed.broadcast_object_list(found, src=0)
        return found[0]

    def average_(self, tensors: Sequence[Tensor], said: bool = False) -> bool:
        flat = torch.cat([*(tensor.reshape(-1) for tensor in tensors), tensors[0].new_tensor([float(said)])])
        distributed.all_reduce(flat)
        flat /= self.size
        *parts, anybody = flat.split([*(tensor.numel() for tensor in tensors), 1])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))
        return bool(anybody)

    def any(self, given: bool) -> bool:
        flag = torch.tensor([float(given)])
        distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
        return bool(flag)


def restarted() -> bool:
    """Whether torchrun started the processes again after a failure, so that the run goes on."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextmanager
def torchrun_ranks(is_saved: Callable[[], bool] = lambda: False) -> Iterator[Ranks]:
    """Inside, the ranks that torchrun started; without torchrun, this process alone.

    Args:
        is_saved: whether there is a checkpoint, as far as this process can see.

    Raises:
        LostRankError: on every other rank, where one ends before the work is done.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    before = signal.signal(signal.SIGTERM, _stopped)  # with which torchrun ends the others when one has died
    try:
        with _met() as ranks, warnings.catch_warnings():
            if ranks.number > 0:  # the first says it already
                warnings.simplefilter("ignore")
            yield ranks
    except LostRankError as error:
        raise LostRankError(_sentence(str(error), is_saved())) from error
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _met() -> Iterator[TorchRanks]:
    """Inside, all ranks are connected."""
    with _noticing("ended, or did not start in time"):
        distributed.init_process_group("gloo", timeout=MEETING)
    distributed.distributed_c10d._set_pg_timeout(PATIENCE)
    try:
        with _noticing(ENDED):
            yield TorchRanks()
    finally:
        distributed.destroy_process_group()


@contextmanager
def _noticing(happened: str) -> Iterator[None]:
    """Inside, a lost connection means that something happened to another rank."""
    try:
        yield
    except RuntimeError as error:
        if not LOST.search(str(error)):
            raise
        raise LostRankError(happened) from error


def _stopped(number: int, frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise LostRankError(ENDED)


def _sentence(happened: str, is_saved: bool) -> str:
    # By its environment, as a signal may come before the ranks have met.
    rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    if is_saved:
        advice = "start again with --resume to go on"
    elif rank == "0" or os.environ.get("LOCAL_WORLD_SIZE", size) == size:
        advice = "nothing was saved yet, so run the command again"
    else:  # the folder may be on another machine
        advice = "run the command again, with --resume if the first rank saved a checkpoint"
    return f"rank {rank} of {size} stops, as another rank {happened}: {advice}"


class Follower(Observer):
    """What the ranks after the first need: the states that the first has saved."""

    def __init__(self, ranks: Ranks):
        self.ranks = ranks

    def saved(self, stage: str) -> SavedState | None:
        return self.ranks.first(None)


class Leader(Observer):
    """Passes everything on, and gives saved states to the other ranks.

    Args:
        observer: of the first rank.
        ranks: all of them.
    """

    def __init__(self, observer: Observer, ranks: Ranks):
        self.ranks = ranks
        self.on_stage_begin, self.on_batch_end = observer.on_stage_begin, observer.on_batch_end
        self.on_evaluation, self.save = observer.on_evaluation, observer.save
        self.should_stop, self.should_save = observer.should_stop, observer.should_save
        self._saved = observer.saved

    def saved(self, stage: str) -> SavedState | None:
        return self.ranks.first(self._saved(stage))


def check_shared(options: dict[str, Any], sql: str | None, by: str | None, ranks: Ranks) -> None:
    """Raise if several ranks cannot do what is asked for."""
    if ranks.size == 1:
        return
    if sql is not None:
        raise DataError("several ranks cannot share a query: write its rows to Parquet files first")
    if by is not None:
        raise DataError("several ranks measure no values one by one: leave out --by, or ask aimfor evaluate for them")
    if options.get("solver", "sgd") != "sgd":
        raise DataError(f"several ranks need --solver sgd, got {options['solver']!r}")
