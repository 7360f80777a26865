"""Warnings of the program on the public suite, where nothing is wrong that a new split would not show too.

    python -m benchmarks.tables.false_alarms             # all of it; resumes from results/false_alarms.csv
    python -m benchmarks.tables.false_alarms --sets adult --splits 0
    python -m benchmarks.tables.false_alarms --report    # the counts from what is finished

Each set is cut at random into 70 % that `aimfor fit` gets and 30 % that `aimfor evaluate` gets, in three ways. All
limits are at their defaults. A warning about leaks, ids, duplicates or drift is an alarm, and so is a column that is
dropped as an id. The file has one row for every alarm, and one with kind "none" for a command without any.
"""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet

from aimfor.cli._fit import fit
from aimfor.cli._job import Job
from aimfor.cli._score import RowSource, evaluate
from aimfor.training import Observer
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.data import data_folder
from benchmarks.tables import raw_tables

NAME = "false_alarms"
SPLITS = range(3)
NONE = "none"
OPTIONS = {"model": "linear", "surrogate": "log", "steps": 20}


def run(cells: Cells, name: str, split: int, folder: Path) -> None:
    """Fit and evaluate one set once, and keep what was warned of."""
    if cells.find(set=name, split=split, command_run="evaluate"):
        return
    loaded = raw_tables.load(name, folder)
    if loaded is None:
        return
    table, labels = loaded
    began = time.perf_counter()
    known = np.random.default_rng(split).random(table.num_rows) < 0.7
    with tempfile.TemporaryDirectory() as place:
        paths = [Path(place) / "known.parquet", Path(place) / "unseen.parquet"]
        for path, rows in zip(paths, (known, ~known), strict=True):
            pyarrow.parquet.write_table(table.filter(pyarrow.array(rows)), path)
        job = Job((str(paths[0]),), tuple(labels), "f1", seed=split, options=OPTIONS)
        facts = fit(job, Path(place) / "run", command="", resume=False, shown=Observer())
        _, drift = evaluate(Path(place) / "run", RowSource([str(paths[1])]))
    ids = [
        {"kind": "id", "column": column["name"], "text": "dropped as an id"}
        for column in facts["data"]["columns"]
        if column["reason"] == "all unique"
    ]
    for command, found in (("fit", facts["data"]["warnings"] + ids), ("evaluate", drift)):
        for alarm in found or [{"kind": NONE, "column": "", "text": ""}]:
            cells.add(
                set=name,
                split=split,
                rows=table.num_rows,
                columns=table.num_columns - len(labels),
                command_run=command,
                kind=alarm["kind"],
                column=alarm["column"] or "",
                text=alarm["text"],
            )
    print(
        f"{name}, split {split}: {len(ids)} ids, {len(facts['data']['warnings'])} + {len(drift)} warnings, "
        f"{time.perf_counter() - began:.0f} s",
        flush=True,
    )


def report(cells: Cells) -> str:
    """How many commands there were, and every alarm with the splits in which it was heard."""
    commands = {(row["set"], row["split"], row["command_run"]) for row in cells.rows}
    alarms = Counter(
        (row["set"], row["command_run"], row["kind"], row["column"]) for row in cells.rows if row["kind"] != NONE
    )
    columns = sum(int(row["columns"]) for row in {row["set"]: row for row in cells.rows}.values())
    sets = len({name for name, _, _ in commands})
    lines = [f"{len(commands)} commands on {sets} sets with {columns:,} columns; {len(alarms)} different alarms."]
    lines += [f"- {', '.join(key)}: {count} times" for key, count in sorted(alarms.items())]
    return "\n".join(lines)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--sets", nargs="+", default=list(raw_tables.TABLES))
    parser.add_argument("--splits", nargs="+", type=int, default=list(SPLITS))
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    cells = Cells(RESULTS / f"{NAME}.csv")
    for name in () if given.report else given.sets:
        for split in given.splits:
            run(cells, name, split, data_folder(given.data))
    print(report(cells))


if __name__ == "__main__":
    main()
