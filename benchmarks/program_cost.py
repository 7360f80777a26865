"""What the program needs on much data: memory of a fit that streams, and the time of scoring.

    python benchmarks/program_cost.py              # 10 GB of Parquet in --folder, results/program_cost.csv; ten minutes
    python benchmarks/program_cost.py --quick      # a million rows, keeps nothing

Rows of 50 normal columns, a million to a file of 300 MB, are made in the folder unless they are there already. `aimfor
fit` reads all files; its memory is the highest of its process, everything included. `aimfor score` reads one of them on
one core; reading alone, by pyarrow, is shown beside it.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from common import RESULTS, Cells, print_table

COLUMNS, ROWS = 50, 1_000_000


def make_shard(path: Path, seed: int) -> None:
    if path.exists():
        return
    random = np.random.default_rng(seed)
    X = random.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    weight = np.random.default_rng(1).normal(size=COLUMNS).astype(np.float32)
    score = X @ weight / 7 - 2.5 + 0.5 * random.standard_normal(ROWS, dtype=np.float32)
    y = (random.random(ROWS) < 1 / (1 + np.exp(-2 * score))).astype(np.int8)
    table = pa.table({**{f"x{index}": X[:, index] for index in range(COLUMNS)}, "y": y})
    parquet.write_table(table, path, row_group_size=100_000)


def run(*arguments: str) -> tuple[float, float]:
    """Seconds and peak megabytes of the program with these arguments."""
    # The highest of all children so far is what the system tells, hence a process of its own for each.
    measured = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", measured, sys.executable, "-m", "aimfor.cli", *arguments]
    start = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return time.perf_counter() - start, int(told) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "aimfor_rows", help="of the rows")
    parser.add_argument("--shards", type=int, default=34, help="files of a million rows")
    parser.add_argument("--quick", action="store_true", help="one file, keeps nothing")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    shards = [
        arguments.folder / f"part-{index:03d}.parquet" for index in range(1 if arguments.quick else arguments.shards)
    ]
    for index, shard in enumerate(shards):
        make_shard(shard, 100 + index)
    cells = Cells(None if arguments.quick else RESULTS / "program_cost.csv")
    cells.drop()
    size = sum(shard.stat().st_size for shard in shards)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as work:
        names = [str(shard) for shard in shards]
        seconds, peak = run("fit", *names, "--label", "y", "--aim", "aucpr", "--out", f"{work}/run")
        cells.add(job="fit", rows=len(shards) * ROWS, gigabytes=size / 1e9, seconds=seconds, peak_megabytes=peak)
        os.sched_setaffinity(0, {0})
        start = time.perf_counter()
        for _ in parquet.ParquetFile(shards[0]).iter_batches():
            pass
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        gigabytes = shards[0].stat().st_size / 1e9
        cells.add(job="read by pyarrow", rows=ROWS, gigabytes=gigabytes, seconds=seconds, peak_megabytes=peak)
        seconds, peak = run("score", f"{work}/run", names[0], "--out", f"{work}/scored.csv")
        cells.add(job="score", rows=ROWS, gigabytes=gigabytes, seconds=seconds, peak_megabytes=peak)
    columns = ["job", "rows", "gigabytes", "seconds", "peak_megabytes"]
    print_table("the program on much data", columns, [[row[name] for name in columns] for row in cells.rows])


if __name__ == "__main__":
    main()
