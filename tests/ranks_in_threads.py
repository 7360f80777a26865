"""Ranks that are threads of this process, for all that needs no process group of torch."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aimfor._base.ranks import ALONE, Ranks


class ThreadRanks(Ranks):
    def __init__(self, number: int, size: int, barrier: threading.Barrier, slots: list[Any]):
        self.number, self.size, self.barrier, self.slots = number, size, barrier, slots

    def gather(self, given: Any) -> list[Any]:
        self.slots[self.number] = pickle.dumps(given)  # as processes do: each gets copies of its own
        self.barrier.wait()
        found = [pickle.loads(slot) for slot in self.slots]
        self.barrier.wait()
        return found


def in_ranks(work: Callable[[Ranks], Any], size: int) -> list[Any]:
    """What some work gives on each of so many ranks."""
    if size == 1:
        return [work(ALONE)]
    barrier, slots = threading.Barrier(size, timeout=60), [None] * size

    def one(number: int) -> Any:
        try:
            return work(ThreadRanks(number, size, barrier, slots))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as threads:
        return [job.result() for job in [threads.submit(one, number) for number in range(size)]]
