"""How many anchors: AUCPR trained with K = 5, 10 and 20 of them, beside log-loss, and what a step costs.

    python -m benchmarks.paper.anchors            # resumes from results/anchors.csv; about 5 minutes of one core
    python -m benchmarks.paper.anchors --quick    # reproduce two sets, one seed and compare
    python -m benchmarks.paper.anchors --report   # the tables and results/anchors.png

The paper reports results with 5, 10 and 20 anchors as essentially identical. Here: frozen features of CIFAR-10, one
class against the rest, and four tables of the public suite, each with a linear model (`paper_common.side_by_side`).
The metric is exact average precision, the mean over labels. A seed is another split of a table, and for CIFAR-10
another draw of the images that choose. Times are processor times of one head's whole step, the methods taking turns.
"""

import argparse
from itertools import product

from benchmarks.paper import side_by_side as paper
from benchmarks.shared import data, page
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.forms import BOUNDING
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.shared.spread import spread

NAME = "anchors"
SEEDS = (1, 2, 3)
ANCHORS = (5, 10, 20)
BASELINE, DEFAULT = "log-loss", "K = 10"
METHODS = {
    BASELINE: paper.log_loss,
    **{f"K = {number}": paper.aimed(f"aucpr; num_anchors={number}", **BOUNDING) for number in ANCHORS},
}
QUICK = [("mammography", 1), ("htru2", 1)]
TIME_FACTOR = 2.0  # of the ratio to log-loss; small steps on a shared machine vary that much


def run(cells: Cells, arguments: argparse.Namespace, wanted: list[tuple[str, int]]) -> None:
    """Every wanted set and seed that is not finished."""
    folder = data.data_folder(arguments.data)
    for name, seed, split in paper.unfinished(cells, wanted, folder, lambda name: len(METHODS)):
        plan = paper.PLANS[name]
        scored = paper.side_by_side(split, METHODS, plan, seed)
        times = paper.step_milliseconds(split, METHODS, plan)
        for method in METHODS:
            found = paper.chosen(scored[method], plan.grid, paper.macro("aucpr"))
            measured = {"validation": found.validation, "ap": found.test, "step_ms": times[method]}
            cell = {"set": name, "method": method, "seed": seed, "steps": plan.steps}
            cells.add(**cell, **found.setting._asdict(), **measured)


def again(cells: Cells, arguments: argparse.Namespace) -> list[Reproduced]:
    """The quick cells beside the committed ones."""
    run(cells, arguments, QUICK)
    known = page.committed(NAME)
    found = compare(known, cells, keys=("set", "method", "seed"), over="seed", measures=("ap",))
    for (name, seed), method in product(QUICK, list(METHODS)[1:]):
        if cells.find(set=name, seed=seed):
            before, now = (time_ratio(one, name, method, seed) for one in (known, cells))
            found.append(page.within_factor(f"{name}, {method}: step / log-loss's", before, now, TIME_FACTOR))
    return found


def time_ratio(cells: Cells, name: str, method: str, seed: int) -> float:
    """Time of a step over that of log-loss in the same turns."""
    ours, theirs = (
        page.values(cells.find(set=name, method=one, seed=seed), "step_ms")[0] for one in (method, BASELINE)
    )
    return ours / theirs


def precision_table(cells: Cells) -> page.Table:
    """Average precision of every method, and what 5 and 20 anchors differ from 10."""
    rows = []
    for name in paper.sets_of(cells):
        found = {method: cells.find(set=name, method=method) for method in METHODS}
        shown = [page.plain(spread(page.values(found[method], "ap"))) for method in METHODS]
        others = [page.signed(page.differences(found[method], found[DEFAULT], "ap")) for method in ("K = 5", "K = 20")]
        rows.append([name, *shown, *others])
    header = ["set", *METHODS, "K = 5 minus K = 10", "K = 20 minus K = 10"]
    return page.Table(
        "Average precision on held-out rows, mean ± standard deviation over seeds; differences ± standard error",
        header,
        rows,
    )


def time_table(cells: Cells) -> page.Table:
    """Time of a step, and of log-loss's."""
    rows = []
    for name in paper.sets_of(cells):
        seeds = [int(row["seed"]) for row in cells.find(set=name, method=BASELINE)]
        ratios = [
            f"{spread(time_ratio(cells, name, method, seed) for seed in seeds).mean:.2f}"
            for method in list(METHODS)[1:]
        ]
        milliseconds = spread(page.values(cells.find(set=name, method=BASELINE), "step_ms")).mean
        rows.append([name, f"{milliseconds:.2f}", *ratios])
    header = ["set", "log-loss, ms", *(f"{method} / log-loss" for method in list(METHODS)[1:])]
    return page.Table(
        "Median processor time of a whole step (linear model, loss, gradients, AdamW), mean over seeds", header, rows
    )


def draw(cells: Cells) -> None:
    """Differences to ten anchors with their errors, and times."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    names = paper.sets_of(cells)
    for place, method in enumerate(("K = 5", "K = 20", BASELINE)):
        pairs = [(cells.find(set=name, method=method), cells.find(set=name, method=DEFAULT)) for name in names]
        found = [page.differences(ours, theirs, "ap") for ours, theirs in pairs]
        heights = [row + 0.2 * (place - 1) for row in range(len(names))]
        left.errorbar(
            [one.mean for one in found],
            heights,
            xerr=[one.error for one in found],
            fmt="os^"[place],
            color=page.COLOURS[(1, 2, 0)[place]],
            label=method,
            capsize=3,
        )
    left.axvline(0, color="grey", linewidth=1)
    left.set(yticks=range(len(names)), yticklabels=names, xlabel="average precision minus that of K = 10")
    left.set_title("5, 10, 20 anchors, and log-loss", loc="left")
    for place, name in enumerate(names):
        seeds = [int(row["seed"]) for row in cells.find(set=name, method=BASELINE)]
        ratios = [spread(time_ratio(cells, name, f"K = {number}", seed) for seed in seeds).mean for number in ANCHORS]
        right.plot(ANCHORS, ratios, marker="os^Dv"[place], color=page.COLOURS[place], label=name)
    right.axhline(1, color="grey", linewidth=1, linestyle=":")
    right.set(xlabel="number of anchors", ylabel="time of a step / log-loss's", xticks=ANCHORS, ylim=(0, None))
    right.set_title("What a step costs", loc="left")
    for axes in (left, right):
        axes.legend(fontsize=8)
    figure.savefig(RESULTS / f"{NAME}.png")


def report(cells: Cells) -> None:
    """Tables to the terminal, picture to the results."""
    precision_table(cells).show()
    time_table(cells).show()
    draw(cells)


if __name__ == "__main__":
    paper.command(
        __doc__, NAME, again, lambda cells, asked: run(cells, asked, list(product(paper.SETS, SEEDS))), report
    )
