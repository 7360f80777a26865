"""Time, messages and bytes of `aimfor fit` with 1, 2 and 4 processes on the same rows.

    python -m benchmarks.cost.ranks [--rows 1000000] [--rounds 2]

The control is two whole fits at the same time that know nothing of each other. Half of its seconds is what two cores
allow for one such fit, were all of its work shared. Fits of half of the rows would not tell that: they repeat every
step and evaluation. Messages are those of training for each step, by wrappers around torch's collectives. Where
other work shares the machine, the CPU seconds of the busiest process tell more than the seconds of the clock.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

OUT = Path(__file__).parents[1] / "results" / "ranks.csv"
COLUMNS, GROUPS, STEPS = 20, 64, 300
FIELDS = ("what", "processes", "rows", "seconds", "cpu", "reading", "training", "messages_a_step", "bytes_a_step")
COUNTED = """
import json, os, pickle, sys, time
import torch
from torch import distributed
import aimfor.cli._fit as program
import aimfor.cli._job as job
from aimfor.cli import main

counts = {"messages": 0, "bytes": 0, "reading": 0.0, "training": 0.0}
running = []

def counted(work):
    def run(*arguments, **options):
        if "training" in running:
            own = next(one for one in (*arguments, *options.values()) if isinstance(one, torch.Tensor))
            counts["messages"] += 1
            counts["bytes"] += own.numel() * own.element_size()
        return work(*arguments, **options)
    return run

for name in ("all_reduce", "all_gather", "broadcast"):
    wrapped = counted(getattr(distributed, name))
    setattr(distributed, name, wrapped)
    setattr(distributed.distributed_c10d, name, wrapped)

def timed(name, work):
    def run(*arguments, **options):
        begun = time.monotonic()
        running.append(name)
        try:
            return work(*arguments, **options)
        finally:
            running.remove(name)
            counts[name] += time.monotonic() - begun
    return run

job.Job.dataset = timed("reading", job.Job.dataset)
program.train = timed("training", program.train)
try:
    main()
finally:
    counts["cpu"] = time.process_time()
    print("counted", json.dumps(counts), file=sys.stderr)
"""


def write_rows(path: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    random = np.random.default_rng(0)
    size = -(-rows // GROUPS)
    schema = pa.schema([*((f"x{column}", pa.float64()) for column in range(COLUMNS)), ("label", pa.int64())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, size):
            values = random.normal(size=(min(size, rows - start), COLUMNS))
            label = (values[:, :5].sum(1) + random.normal(size=len(values)) * 2 > 4.5).astype(np.int64)
            writer.write_table(pa.table([*values.T, label], schema=schema), row_group_size=size)


def started(path: Path, out: Path, size: int) -> list[subprocess.Popen]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", COUNTED, "fit", str(path), "--label", "label", "--model", "linear"]
    command += ["--aim", "recall@precision>=0.8", "--steps", str(STEPS), "--out", str(out)]
    group = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    environment = {**os.environ, **{name: str(value) for name, value in group.items()}}
    pipe = subprocess.PIPE
    return [
        subprocess.Popen(command, env={**environment, "RANK": str(rank)}, stdout=pipe, stderr=pipe, text=True)
        for rank in range(size)
    ]


def measured(jobs: list[tuple[Path, Path, int]]) -> tuple[float, dict[str, float]]:
    """Seconds until all jobs are done, and the counts of the first process; CPU seconds of the busiest one."""
    begun = time.monotonic()
    processes = [process for job in jobs for process in started(*job)]
    told = [process.communicate()[1] for process in processes]
    seconds = time.monotonic() - begun
    for process, text in zip(processes, told, strict=True):
        if process.returncode:
            raise RuntimeError(text[-2000:])
    counted = [
        json.loads(line.removeprefix("counted"))
        for text in told
        for line in text.splitlines()
        if line.startswith("counted")
    ]
    return seconds, {**counted[0], "cpu": max(counts["cpu"] for counts in counted)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        whole = place / "whole.parquet"
        write_rows(whole, asked.rows)
        for number in range(asked.rounds):
            for size in (1, 2, 4):
                seconds, counts = measured([(whole, place / f"run{number}{size}", size)])
                found.append(row("fit", size, asked.rows, seconds, counts))
                print(found[-1], flush=True)
            both = [(whole, place / f"control{number}{one}", 1) for one in range(2)]
            seconds, counts = measured(both)
            found.append(row("control", 2, asked.rows, seconds, counts))
            print(found[-1], flush=True)
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def row(what: str, size: int, rows: int, seconds: float, counts: dict[str, float]) -> dict[str, object]:
    return {
        "what": what,
        "processes": size,
        "rows": rows,
        "seconds": round(seconds, 1),
        "cpu": round(counts["cpu"], 1),
        "reading": round(counts["reading"], 1),
        "training": round(counts["training"], 1),
        "messages_a_step": round(counts["messages"] / STEPS, 1),
        "bytes_a_step": round(counts["bytes"] / STEPS),
    }


if __name__ == "__main__":
    main()
