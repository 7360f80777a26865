"""What the scripts share: tables and pictures, for the terminal and for docs/results/, and quick forms.

The sections of docs/results/ are in `sections.py` of each folder, and results_page.py joins them. Words around
numbers must stay true when the numbers change.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.reproduced import Reproduced, told
from benchmarks.shared.scripts import SCRIPTS
from benchmarks.shared.spread import Spread, spread

# Distinguishable without colour vision (Okabe and Ito).
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class Table(NamedTuple):
    """A table to print or to put on the page."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def show(self) -> None:
        print_table(self.title, self.header, self.rows)

    def markdown(self) -> str:
        return f"{self.title}:\n\n{grid(self.header, self.rows)}"


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of the page without a title."""
    if uneven := [row for row in rows if len(row) != len(header)]:
        raise ValueError(f"every row of a table must have {len(header)} cells, got {uneven[0]}")
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@lru_cache
def committed(name: str) -> Cells:
    """The finished cells of a script, read once."""
    return Cells(RESULTS / f"{name}.csv")


def hold(make: Callable[[Cells], list[Reproduced]]) -> None:
    """Reproduce cells in a temporary file, and exit with status 1 when a number is off."""
    with tempfile.TemporaryDirectory() as folder:
        if not told(make(Cells(Path(folder) / "again.csv"))):
            sys.exit(1)


def within_factor(cell: str, before: float, now: float, factor: float) -> Reproduced:
    """Time or memory, or a ratio of them, reproduced. It is off when it has grown by more than the factor."""
    return Reproduced(cell, before, now, max(before * (factor - 1), before - now))


def values(rows: Iterable[dict[str, str]], column: str) -> list[float]:
    """A column as numbers."""
    return [float(row[column]) for row in rows]


def differences(ours: list[dict[str, str]], theirs: list[dict[str, str]], column: str, pair_by: str = "seed") -> Spread:
    """Ours minus theirs, seed by seed."""
    before = {row[pair_by]: float(row[column]) for row in theirs}
    return spread(float(row[column]) - before[row[pair_by]] for row in ours if row[pair_by] in before)


def plain(value: Spread, digits: int = 4) -> str:
    """Mean and standard deviation."""
    return f"{value.mean:.{digits}f} ± {value.deviation:.{digits}f}"


def signed(value: Spread, digits: int = 4) -> str:
    """Difference and its standard error."""
    return f"{value.mean:+.{digits}f} ± {value.error:.{digits}f}"


def gained(value: float, digits: int = 3) -> str:
    """A difference with its sign; none where it rounds to 0."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def tally(found: Sequence[Spread], what: str) -> str:
    """How many differences are clear of 0, above and below, as a sentence."""
    signs = [one.sign for one in found]
    return (
        f"Of {len(found)} {what}, {signs.count(1)} are clearly better, {signs.count(-1)} clearly worse and "
        f"{signs.count(0)} within noise (Student's t, level 0.05)."
    )


def source(name: str, *further: str) -> str:
    """How to reproduce a section, and where its numbers are."""
    files = " and ".join(f"[{one}.csv](../../benchmarks/results/{one}.csv)" for one in (name, *further))
    return f"Command: `python -m {SCRIPTS[name]}`. Numbers: {files}."


def fold(title: str, *parts: str) -> str:
    """Parts of the page that open with a click."""
    return "\n\n".join([f"<details>\n<summary>{title}</summary>", *parts, "</details>"])


def code(names: Iterable[str]) -> list[str]:
    """Names as inline code."""
    return [f"`{name}`" for name in names]


def draw_differences(name: str, title: str, panels: dict[str, dict[str, dict[str, Spread]]]) -> None:
    """A panel for each metric, a colour for each series, a line for each difference with its standard error."""
    from matplotlib.figure import Figure

    series = list(dict.fromkeys(one for panel in panels.values() for one in panel))
    lines = list(dict.fromkeys(line for panel in panels.values() for own in panel.values() for line in own))[::-1]
    size = (0.07 * max(map(len, lines)) + 2.6 * len(panels), 1.6 + 0.12 * len(lines) * (1 + len(series)))
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, (metric, panel) in zip(axes, panels.items(), strict=True):
        for place, (label, found) in enumerate(panel.items()):
            heights = [lines.index(line) + 0.22 * ((len(panel) - 1) / 2 - place) for line in found]
            means, errors = ([getattr(one, part) for one in found.values()] for part in ("mean", "error"))
            colour = COLOURS[1 + series.index(label)]
            axis.errorbar(means, heights, xerr=errors, fmt="os^"[place], color=colour, markersize=4, label=label)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(metric, fontsize=9, loc="left")
        axis.set_yticks(range(len(lines)), lines, fontsize=8)
        axis.tick_params(axis="x", labelsize=8)
        axis.grid(axis="x", alpha=0.3)
    figure.suptitle(title, fontsize=10)
    if len(series) > 1:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(series), fontsize=8)
    figure.savefig(RESULTS / f"{name}.png")


def picture(name: str, text: str) -> str:
    """The picture of a script, for the page."""
    return f"![{text}](../../benchmarks/results/{name}.png)"


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table of aligned columns, the first to the left."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    print(f"\n{title}")
    for first, *others in lines:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *cells]))
