"""Areas of interest: training for a part of a curve, measured on that part, beside the whole area and log-loss.

    python -m benchmarks.paper.areas            # resumes from results/areas.csv; about 8 minutes of one core
    python -m benchmarks.paper.areas --quick    # reproduce two sets, one seed and compare
    python -m benchmarks.paper.areas --report   # the tables and results/areas.png

Three ranges: AUCPR over precision >= 0.8, AUCPR over recall >= 0.5, AUCROC over false-positive rates <= 0.05. Every
method chooses its rate and decay for each range by the range's own exact metric on validation rows, log-loss and the
whole areas too, so what differs is the loss alone (`paper_common.side_by_side`). Data and seeds as in anchors.py.
"""

import argparse
from collections.abc import Iterable
from itertools import product

from benchmarks.paper import side_by_side as paper
from benchmarks.shared import data, page
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.shared.spread import Spread, spread

NAME = "areas"
SEEDS = (1, 2, 3)
BASELINE = "log-loss"
# The range, and the area it is a part of.
WHOLE = {"aucpr[precision>=0.8]": "aucpr", "aucpr[recall>=0.5]": "aucpr", "aucroc[fpr<=0.05]": "aucroc"}
METHODS = {BASELINE: paper.log_loss, **{aim: paper.aimed(aim) for aim in ("aucpr", "aucroc", *WHOLE)}}
QUICK = [("mammography", 1), ("htru2", 1)]


def run(cells: Cells, arguments: argparse.Namespace, wanted: list[tuple[str, int]]) -> None:
    """Every wanted set and seed that is not finished; each range with log-loss, its whole area and itself."""
    folder = data.data_folder(arguments.data)
    for name, seed, split in paper.unfinished(cells, wanted, folder, lambda name: len(compared())):
        plan = paper.PLANS[name]
        scored = paper.side_by_side(split, METHODS, plan, seed)
        for area, method in compared():
            found = paper.chosen(scored[method], plan.grid, paper.macro(area))
            cell = {"set": name, "area": area, "method": method, "seed": seed, "steps": plan.steps}
            cells.add(**cell, **found.setting._asdict(), validation=found.validation, test=found.test)


def compared() -> list[tuple[str, str]]:
    """Every range with the methods that are measured on it."""
    return [(area, method) for area, whole in WHOLE.items() for method in (BASELINE, whole, area)]


def again(cells: Cells, arguments: argparse.Namespace) -> list[Reproduced]:
    """The quick cells beside the committed ones."""
    run(cells, arguments, QUICK)
    keys = ("set", "area", "method", "seed")
    return compare(page.committed(NAME), cells, keys=keys, over="seed", measures=("test",))


def gain(cells: Cells, name: str, area: str, over: str) -> Spread:
    """What training on the range adds to another method, on the range."""
    ours, theirs = (cells.find(set=name, area=area, method=method) for method in (area, over))
    return page.differences(ours, theirs, "test")


def area_table(cells: Cells, area: str) -> page.Table:
    """One range: log-loss, the whole area, the range, and differences."""
    whole, rows = WHOLE[area], []
    for name in paper.sets_of(cells):
        shown = [
            page.plain(spread(page.values(cells.find(set=name, area=area, method=method), "test")))
            for method in (BASELINE, whole, area)
        ]
        rows.append([name, *shown, *(page.signed(gain(cells, name, area, over)) for over in (whole, BASELINE))])
    header = ["set", "trained: log-loss", f"`{whole}`", f"`{area}`", "range minus whole", "range minus log-loss"]
    title = f"Measured: `{area}`, mean ± standard deviation over seeds; differences ± standard error"
    return page.Table(title, header, rows)


def over_whole(cells: Cells, areas: Iterable[str] = WHOLE) -> list[Spread]:
    """What training on the range adds to training on its whole area, for every set and each of the ranges."""
    return [gain(cells, name, area, WHOLE[area]) for name, area in product(paper.sets_of(cells), areas)]


def over_log_loss(cells: Cells, areas: Iterable[str] = WHOLE) -> list[Spread]:
    """What training on the range adds to log-loss, for every set and each of the ranges."""
    return [gain(cells, name, area, BASELINE) for name, area in product(paper.sets_of(cells), areas)]


def mean_gain(cells: Cells, area: str, over: str = BASELINE) -> Spread:
    """What training on the range adds to another method, mean over sets."""
    return spread(gain(cells, name, area, over).mean for name in paper.sets_of(cells))


def draw(cells: Cells) -> None:
    """Gains over the whole area and over log-loss, a panel for each range."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), dpi=120, layout="constrained")
    names = paper.sets_of(cells)
    for axes, (area, whole) in zip(figure.subplots(1, 3, sharey=True), WHOLE.items(), strict=True):
        for place, over in enumerate((whole, BASELINE)):
            found = [gain(cells, name, area, over) for name in names]
            axes.errorbar(
                [one.mean for one in found],
                [row + 0.2 * (place - 0.5) for row in range(len(names))],
                xerr=[one.error for one in found],
                fmt="os"[place],
                color=page.COLOURS[place + 1],
                label=f"minus {over}",
                capsize=3,
            )
        axes.axvline(0, color="grey", linewidth=1)
        axes.set(yticks=range(len(names)), yticklabels=names, xlabel="difference, held-out rows")
        axes.set_title(area, loc="left")
        axes.legend(fontsize=8)
    figure.suptitle("Trained on the range, measured on the range (right of 0: the range pays)", fontsize=11)
    figure.savefig(RESULTS / f"{NAME}.png")


def report(cells: Cells) -> None:
    """Tables to the terminal, picture to the results."""
    for area in WHOLE:
        area_table(cells, area).show()
    draw(cells)


if __name__ == "__main__":
    paper.command(
        __doc__, NAME, again, lambda cells, asked: run(cells, asked, list(product(paper.SETS, SEEDS))), report
    )
