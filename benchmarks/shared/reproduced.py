"""The quick form of a benchmark runs some of its cells again and compares them with the committed ones.

A quick cell is a cell of the full run, with the same keys (data, method, setting, seed), so that there is one
definition of every number. It passes when it is no further from the committed cell than the committed cells of its
group are from each other: one standard deviation over their seeds or splits, or `floor` where that is smaller (another
processor rounds differently, and three seeds may agree by chance).
"""

import math
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.shared.cells import Cells

# The exit status of a script that could reproduce nothing.
NOTHING_MADE = 3


class Reproduced(NamedTuple):
    """One number: its cell, as committed, as it is now, and how far the two may be apart."""

    cell: str
    committed: float
    now: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return abs(self.now - self.committed) <= self.tolerance


def compare(
    committed: Cells, again: Cells, *, keys: Sequence[str], over: str, measures: Sequence[str], floor: float = 0.005
) -> list[Reproduced]:
    """Every measure of every reproduced cell, beside the committed one.

    Args:
        committed: the cells of the full run.
        again: the cells of the quick form.
        keys: the columns that name a cell.
        over: that of the keys (seed or split) over which the committed cells of a group spread.
        measures: the columns to compare.
        floor: the smallest tolerance.
    """
    found = []
    for row in again.rows:
        same = committed.find(**{key: row[key] for key in keys})
        group = committed.find(**{key: row[key] for key in keys if key != over})
        name = ", ".join(row[key] for key in keys)
        for measure in measures:
            values = [float(one[measure]) for one in group]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            value = float(same[0][measure]) if same else math.nan  # a cell that was never committed does not hold
            found.append(Reproduced(f"{name}: {measure}", value, float(row[measure]), max(deviation, floor)))
    return found


def told(found: Sequence[Reproduced]) -> bool:
    """Print what was reproduced, and return whether all of it holds.

    If nothing was, as where the data are absent, the script ends with a status of its own.
    """
    if not found:
        print("  skipped: nothing could be reproduced")
        sys.exit(NOTHING_MADE)
    for one in found:
        if not one.holds:
            print(f"  OFF {one.cell}: committed {one.committed:.4f}, now {one.now:.4f}, within {one.tolerance:.4f}")
    print(f"  {sum(one.holds for one in found)} of {len(found)} numbers within the spread of the committed ones")
    return all(one.holds for one in found)
