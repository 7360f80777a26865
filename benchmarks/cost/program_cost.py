"""What the program needs on much data: memory of a fit that streams, and the time of scoring.

    python -m benchmarks.cost.program_cost              # 10 GB of Parquet in --folder; ten minutes
    python -m benchmarks.cost.program_cost --quick      # reproduce reading and scoring and compare
    python -m benchmarks.cost.program_cost --report     # the table from the finished cells

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

from benchmarks.shared import page
from benchmarks.shared.cells import Cells
from benchmarks.shared.reproduced import Reproduced

NAME = "program_cost"
COLUMNS, ROWS = 50, 1_000_000
# Seconds vary so much between minutes of a shared machine; memory does not.
TIME_TOLERANCE, MEMORY_TOLERANCE = 3.0, 1.2


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
    command = [sys.executable, "-c", measured, sys.executable, "-m", "aimfor", *arguments]
    start = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return time.perf_counter() - start, int(told) * 1024 / 1e6


def fit(cells: Cells, shards: list[Path], out: Path) -> None:
    """Fit on all files."""
    size = sum(shard.stat().st_size for shard in shards)
    seconds, peak = run("fit", *map(str, shards), "--label", "y", "--aim", "aucpr", "--out", str(out))
    cells.add(job="fit", rows=len(shards) * ROWS, gigabytes=size / 1e9, seconds=seconds, peak_megabytes=peak)


def score(cells: Cells, shard: Path, model: Path) -> None:
    """Read one file, then score it, on one core."""
    os.sched_setaffinity(0, {0})
    start = time.perf_counter()
    for _ in parquet.ParquetFile(shard).iter_batches():
        pass
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    size = {"rows": ROWS, "gigabytes": shard.stat().st_size / 1e9}
    cells.add(job="read by pyarrow", **size, seconds=seconds, peak_megabytes=peak)
    seconds, peak = run("score", str(model), str(shard), "--out", str(model.parent / "scored.csv"))
    cells.add(job="score", **size, seconds=seconds, peak_megabytes=peak)


def make(cells: Cells, folder: Path, count: int) -> None:
    """All cells, on so many files."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = [folder / f"part-{index:03d}.parquet" for index in range(count)]
    for index, shard in enumerate(shards):
        make_shard(shard, 100 + index)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        fit(cells, shards, Path(work) / "run")
        score(cells, shards[0], Path(work) / "run")


def again(cells: Cells, folder: Path) -> list[Reproduced]:
    """A fit on one file, whose memory must not be above that of many, and scoring."""
    make(cells, folder, 1)
    before = {row["job"]: row for row in page.committed(NAME).rows}
    found = []
    for row in cells.rows:
        for one, factor in (("peak_megabytes", MEMORY_TOLERANCE), ("seconds", TIME_TOLERANCE)):
            if row["job"] == "score" or (row["job"], one) == ("fit", "peak_megabytes"):
                numbers = float(before[row["job"]][one]), float(row[one])
                found.append(page.within_factor(f"{row['job']}: {one}", *numbers, factor))
    return found


def table(cells: Cells) -> page.Table:
    header = ["job", "rows", "GB of Parquet", "seconds", "peak memory, MB"]
    rows = [
        [
            row["job"],
            f"{int(row['rows']):,}",
            f"{float(row['gigabytes']):.1f}",
            f"{float(row['seconds']):.1f}",
            f"{float(row['peak_megabytes']):.0f}",
        ]
        for row in cells.rows
    ]
    return page.Table("The program on much data, everything included", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "aimfor_rows", help="of the rows")
    parser.add_argument("--shards", type=int, default=34, help="files of a million rows")
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    parser.add_argument("--report", action="store_true", help="only the table")
    arguments = parser.parse_args()
    if arguments.quick:
        return page.hold(lambda cells: again(cells, arguments.folder))
    cells = page.committed(NAME)
    if not arguments.report:
        cells.drop()
        make(cells, arguments.folder, arguments.shards)
    return table(cells).show()


if __name__ == "__main__":
    main()
