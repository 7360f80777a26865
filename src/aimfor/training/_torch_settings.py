"""Torch's number of threads and its generator, set for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Torch with one thread, where batches are too small for a second one to bring more than it costs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(seed: int, wanted: bool = True) -> Iterator[None]:
    """Torch's own generator from a seed, for modules that draw from it; afterwards it is where the caller left it."""
    if not wanted:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
