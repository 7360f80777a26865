"""Context managers for torch's number of threads and its random generator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Run torch with one thread. Small batches are slower with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(seed: int, wanted: bool = True) -> Iterator[None]:
    """Seed torch's global generator for modules that draw from it. Afterwards its state is the caller's again."""
    if not wanted:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
