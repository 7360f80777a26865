"""The tables of the default beside LightGBM's search: differences with their spread, tests, what averages share.

A difference is taken within a split, which shares all rows between methods. Statistics are those of the suite: the mean
over sets with the standard error over sets. A set is won or lost where its mean is more than `EVEN` from 0. A loss of a
set is tested by the corrected resampled t-test with Holm's correction over the sets of an aim; a set with one split has
no test.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.shared import page
from benchmarks.shared.cells import Cells
from benchmarks.shared.spread import Spread, spread
from benchmarks.suite.report import LEVEL, Paired, Values, paired

OURS, TREES, BY_METRIC, BY_LOG_LOSS, OPTION = "auto", "trees", "by metric", "by log-loss", "option: "
RIVALS = {BY_METRIC: "the single best by the aim's metric", BY_LOG_LOSS: "the single best by log-loss"}
# Sets whose difference is smaller count as even.
EVEN = 0.002
# The order of the suite.
AIMS = ("aucpr", "recall@precision>=0.9", "precision@recall>=0.9", "f1", "tpr@fpr<=0.01")


class Compared(NamedTuple):
    """One aim: the difference over sets, and its sets."""

    difference: Spread
    pairs: dict[str, Paired]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Sets won, even and lost."""
        means = [pair.difference.mean for pair in self.pairs.values()]
        won, lost = sum(mean > EVEN for mean in means), sum(mean < -EVEN for mean in means)
        return won, len(means) - won - lost, lost

    @property
    def tested(self) -> int:
        """How many sets have the splits that a test needs."""
        return sum(not math.isnan(pair.p) for pair in self.pairs.values())

    @property
    def lost(self) -> list[str]:
        """Sets that are lost after Holm's correction."""
        return [name for name, pair in self.pairs.items() if pair.p_holm < LEVEL]


def values(cells: Cells, aim: str, method: str) -> Values:
    return {(row["set"], row["split"]): float(row["test"]) for row in cells.find(aim=aim, method=method)}


def compared(cells: Cells, aim: str, ours: str, other: str) -> Compared:
    """One method minus another."""
    pairs = paired(values(cells, aim, ours), values(cells, aim, other))
    return Compared(spread(pair.difference.mean for pair in pairs.values()), pairs)


def splits(cells: Cells) -> dict[str, int]:
    """How many splits of each set are finished, for all aims."""
    found: dict[str, int] = {}
    for row in cells.find(method=OURS, aim=AIMS[-1]):
        found[row["set"]] = found.get(row["set"], 0) + 1
    return found


def differences(cells: Cells, ours: str, other: str) -> list[list[str]]:
    """A row for each aim: difference, its error, sets won, even and lost, sets lost after Holm."""
    lines = []
    for aim in AIMS:
        found = compared(cells, aim, ours, other)
        level = spread(_by_set(values(cells, aim, other)))
        numbers = [f"{level.mean:.3f}", page.gained(found.difference.mean), f"{found.difference.error:.3f}"]
        lost = str(len(found.lost)) if found.tested else "not tested"
        lines.append([f"`{aim}`", *numbers, *map(str, found.counts), lost])
    return lines


def means(cells: Cells) -> list[list[str]]:
    """A row for each method: the mean over sets at every aim."""
    shown = {BY_METRIC: "LightGBM, best by the metric", BY_LOG_LOSS: "LightGBM, lowest log-loss"}
    shown |= {TREES: '`aimfor.Classifier`, `model="trees"`', OURS: "`aimfor.Classifier`"}
    return [
        [name, *(f"{spread(_by_set(values(cells, aim, method))).mean:.3f}" for aim in AIMS)]
        for method, name in shown.items()
    ]


def choices(cells: Cells) -> dict[str, int]:
    """How often each option was kept, the most frequent first."""
    found: dict[str, int] = {}
    for row in cells.find(method=OURS):
        kind, _, name = row["chosen"].partition(": ")
        shown = name if kind == "auto" else kind
        found[shown] = found.get(shown, 0) + 1
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def option_names(cells: Cells) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in cells.rows if row["method"].startswith(OPTION)))


def option_rows(cells: Cells) -> list[list[str]]:
    """What each option alone would have had, minus trees alone."""
    lines = []
    for option in (*option_names(cells), OURS):
        if option != f"{OPTION}trees":
            own = [compared(cells, aim, option, f"{OPTION}trees").difference for aim in AIMS]
            name = "as chosen" if option == OURS else option.removeprefix(OPTION)
            lines.append([name, *(page.gained(one.mean) for one in own)])
    return lines


def held(cells: Cells, methods: Sequence[str]) -> list[list[str]]:
    """The share of splits in which the constraint holds at the threshold from the rows that choose."""
    lines = []
    for aim in AIMS:
        shares = []
        for method in methods:
            found = [row["holds"] for row in cells.find(aim=aim, method=method) if row["holds"]]
            shares.append(f"{100 * found.count('True') / len(found):.0f} %" if found else "")
        if all(shares):
            lines.append([f"`{aim}`", *shares])
    return lines


HEADER = ["aim", "LightGBM", "difference", "standard error", "sets won", "even", "lost", "lost after Holm"]


def report(cells: Cells) -> None:
    done = splits(cells)
    print(f"{len(done)} sets, {sum(done.values())} splits")
    for ours in (OURS, TREES):
        for other, shown in RIVALS.items():
            page.print_table(f'model="{ours}" minus {shown}', HEADER, differences(cells, ours, other))
    page.print_table("options minus trees alone", ["option", *AIMS], option_rows(cells))
    page.print_table("constraint holds", ["aim", OURS, TREES, *RIVALS], held(cells, (OURS, TREES, *RIVALS)))
    print("kept:", ", ".join(f"{name} {count}" for name, count in choices(cells).items()))
    for other in RIVALS:
        worst = {aim: compared(cells, aim, OURS, other).difference for aim in AIMS}
        told = (f"{aim} {one.mean / one.error:+.1f}" for aim, one in worst.items() if not math.isnan(one.error))
        print(f"in standard errors, against {other}:", ", ".join(told))


def _by_set(found: Values) -> list[float]:
    sets: dict[str, list[float]] = {}
    for (name, _), value in found.items():
        sets.setdefault(name, []).append(value)
    return [sum(own) / len(own) for own in sets.values()]
