"""Run a function in two processes of one gloo group."""

import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PATIENCE = 120  # seconds; two processes start and finish within twenty


def join_group(rank: int, folder: str) -> None:
    """Become one of the two."""
    torch.set_num_threads(1)
    address = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=timedelta(seconds=PATIENCE))


def in_two_processes(function, *arguments) -> list:
    """What `function(rank, folder, *arguments)` leaves in `<folder>/<rank>.pt`. One pair of processes in some hundreds
    hangs at the start, so there are three attempts; a metric or loss that waits for a rank in vain fails them all."""
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            if attempt(function, folder, *arguments):
                return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(2)]
    return pytest.fail("the two processes wait for each other")


def attempt(function, folder: str, *arguments) -> bool:
    """Run the function in two processes; False where they have not come to an end."""
    context = mp.start_processes(function, args=(folder, *arguments), nprocs=2, start_method="spawn", join=False)
    end = time.monotonic() + PATIENCE
    while not context.join(timeout=1):
        if time.monotonic() > end:
            for process in context.processes:
                process.kill()
                process.join()
            return False
    return True
