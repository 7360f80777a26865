"""Several processes that fit one model, each with its own rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor


class Ranks:
    """The processes of a job. This one works alone; those of torchrun override all methods.

    Attributes:
        number: of this process, from 0.
        size: how many there are.
        turns: that all of them have taken so far.
    """

    number: int = 0
    size: int = 1
    turns: int = 0

    def gather(self, given: Any) -> list[Any]:
        """What every rank gave, in the order of ranks."""
        return [given]

    def average_(self, tensors: Sequence[Tensor], said: bool = False) -> bool:
        """Replace each tensor by its mean over the ranks; gives whether any rank says so, in the same message."""
        return said

    def first(self, given: Any) -> Any:
        """What the first rank gave."""
        return self.gather(given)[0]

    def sum(self, given: Any) -> Any:
        """The sum of numbers or arrays over the ranks."""
        return sum(self.gather(given)) if self.size > 1 else given

    def any(self, given: bool) -> bool:
        """Whether any rank says so."""
        return any(self.gather(given))


ALONE = Ranks()


def in_turns(work: Callable[[int], Any], count: int, ranks: Ranks) -> list[Any]:
    """What some work gives for the numbers below `count`, which the ranks take by turns; the same on each of them."""
    return begin_turns(work, count, ranks)()


def begin_turns(work: Callable[[int], Any], count: int, ranks: Ranks) -> Callable[[], list[Any]]:
    """Do this rank's turns of `in_turns`; the result waits for those of others, and gives what all of them found.

    Turns go on where those before them ended, and the last rank begins, as the first has work of its own.
    """
    size, before = ranks.size, ranks.turns
    owners = [(size - 1 + before + index) % size for index in range(count)]
    own = [work(index) for index, owner in enumerate(owners) if owner == ranks.number]
    if size > 1:
        ranks.turns += count

    def finish() -> list[Any]:
        every = ranks.gather(own)
        return [every[owner][index // size] for index, owner in enumerate(owners)]

    return finish


@dataclass(frozen=True)
class RowShare:
    """Which of all rows are those of this rank: runs of rows, dealt out to the ranks by turns.

    Run `k` of rank `r` comes at place `k * size + r` in the order of all rows. That order does not depend on the number
    of ranks, so neither does anything that is drawn by the place of a row.

    Attributes:
        lengths: rows of each run of this rank, in order.
        ranks: that share the rows.
    """

    lengths: np.ndarray
    ranks: Ranks = ALONE
    _cache: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def whole(cls, count: int) -> RowShare:
        """All rows are this process's."""
        return cls(np.array([count]))

    def __len__(self) -> int:
        return int(self.lengths.sum())

    @property
    def total(self) -> int:
        """Rows of all ranks."""
        return self._places[1]

    def starts(self, counts: np.ndarray) -> tuple[np.ndarray, int]:
        """Where the things of each run start among those of all ranks, and how many there are.

        Args:
            counts: things of each run of this rank.
        """
        every = self.ranks.gather(counts)
        table = np.zeros((max(map(len, every)), self.ranks.size), dtype=np.int64)
        for rank, own in enumerate(every):
            table[: len(own), rank] = own
        ends = np.cumsum(table.reshape(-1)).reshape(table.shape)
        return (ends - table)[: len(counts), self.ranks.number], int(ends[-1, -1])

    @property
    def _places(self) -> tuple[np.ndarray, int]:
        if "places" not in self._cache:
            self._cache["places"] = self.starts(self.lengths)
        return self._cache["places"]

    @property
    def runs(self) -> list[slice]:
        """The rows of each run among those of this rank."""
        ends = np.cumsum(self.lengths)
        return [slice(int(end - length), int(end)) for end, length in zip(ends, self.lengths, strict=True)]

    def select(self, rows: np.ndarray) -> RowShare:
        """The share of some of the rows.

        Args:
            rows: numbers of rows of this rank, rising.
        """
        lengths = np.diff(np.searchsorted(rows, np.append(0, np.cumsum(self.lengths))))
        return RowShare(lengths, self.ranks)

    def local(self, numbers: np.ndarray) -> np.ndarray:
        """Of row numbers among all rows, those of this rank as numbers among its own, in the same order."""
        return self.found(numbers)[1]

    def found(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `local`, behind the places of those numbers among the given ones."""
        if self.ranks.size == 1:
            return np.arange(len(numbers)), numbers
        starts, _ = self._places
        run = np.searchsorted(starts, numbers, side="right") - 1
        within = numbers - starts[run]
        mine = (run >= 0) & (within < self.lengths[run])
        first = np.cumsum(self.lengths) - self.lengths
        return np.flatnonzero(mine), (first[run] + within)[mine]

    def collect(self, rows: np.ndarray) -> np.ndarray:
        """An array `[n, ...]` with an entry for each row of this rank -> that of all rows, on every rank."""
        if self.ranks.size == 1:
            return rows
        every = self.ranks.gather([rows[run] for run in self.runs])
        turns = max(map(len, every))
        return np.concatenate([runs[turn] for turn in range(turns) for runs in every if turn < len(runs)])

    def own(self, rows: np.ndarray) -> np.ndarray:
        """An array with an entry for each of all rows -> that of the rows of this rank."""
        if self.ranks.size == 1:
            return rows
        starts, _ = self._places
        parts = [rows[start : start + length] for start, length in zip(starts, self.lengths, strict=True)]
        return np.concatenate(parts)
