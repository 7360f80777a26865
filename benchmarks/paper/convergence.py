"""Convergence: held-out average precision against steps and against seconds, log-loss and AUCPR.

    python -m benchmarks.paper.convergence            # resumes from its CSV; about 7 minutes of one core
    python -m benchmarks.paper.convergence --quick    # reproduce two sets, one seed and compare
    python -m benchmarks.paper.convergence --report   # the tables and results/convergence.png

The paper calls the convergence of its losses indistinguishable from that of vanilla SGD. Rate and decay of every method
are chosen from one grid by validation rows at the end of training. The chosen settings are then trained again from
weights 0, one head each, the methods taking turns batch by batch, so that they see the same rows and a slow minute of
the machine is slow for all. Held-out rows are looked at on the way and choose nothing. Seconds are those of the steps
(scores, loss, gradients, AdamW), not of the looks. Data and seeds as in anchors.py.
"""

import argparse
import warnings
from itertools import product, takewhile
from typing import NamedTuple

import numpy as np

import aimfor
from benchmarks.paper import side_by_side as paper
from benchmarks.shared import data, page
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.forms import BOUNDING
from benchmarks.shared.heads import Setting
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.shared.spread import spread

NAME = "convergence"
SEEDS = (1, 2, 3)
LOOKS, FIRST_LOOK = 24, 10
NEAR = 0.005  # of average precision: what counts as having arrived
BASELINE = "log-loss"
METHODS = {
    BASELINE: paper.log_loss,
    "aucpr": paper.aimed("aucpr", **BOUNDING),
    "aucpr, smooth hinge": paper.aimed("aucpr", **(BOUNDING | {"surrogate": "smooth_hinge"})),
}
QUICK = [("mammography", 1), ("htru2", 1)]
TIME_FACTOR = 2.0  # of the ratio to log-loss; small steps on a shared machine vary that much


class Arrivals(NamedTuple):
    """Runs that reach log-loss's final value and stay until the end, by when log-loss itself does, and those that
    reach it and leave it again."""

    runs: int
    stay: int
    earlier: int
    same: int
    later: int
    faster: int
    leave: int

    @property
    def never(self) -> int:
        return self.runs - self.stay


def looks_of(steps: int) -> list[int]:
    """The steps after which held-out rows are looked at, by equal factors."""
    return sorted({round(step) for step in np.geomspace(FIRST_LOOK, steps, LOOKS)})


def run(cells: Cells, arguments: argparse.Namespace, wanted: list[tuple[str, int]]) -> None:
    """Every wanted set and seed that is not finished."""
    folder = data.data_folder(arguments.data)
    for name, seed, split in paper.unfinished(cells, wanted, folder, looks_in_all):
        plan = paper.PLANS[name]
        scored = paper.side_by_side(split, METHODS, plan, seed)
        settings = {method: paper.chosen(scored[method], plan.grid, paper.macro("aucpr")).setting for method in METHODS}
        for look in curves(split, settings, plan, seed):
            cells.add(set=name, seed=seed, **look)


def looks_in_all(name: str) -> int:
    """The number of cells of a set and seed."""
    return len(METHODS) * len(looks_of(paper.PLANS[name].steps))


def curves(split: paper.Split, settings: dict[str, Setting], plan: paper.Plan, seed: int) -> list[dict[str, object]]:
    """One head for each method, trained in turns; what is seen at every look."""
    labels, metric, looks = split.train.Y.shape[1], paper.macro("aucpr"), looks_of(plan.steps)
    running = {
        method: paper.Training(paper.zeros(split.train, 1), make(1, labels), [settings[method]], plan.steps)
        for method, make in METHODS.items()
    }
    seen = []
    with warnings.catch_warnings():
        # Whether a constraint can be met is not the question here; the held-out metric is.
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        for step, rows in enumerate(paper.draws(len(split.train.X), plan.batch_size, plan.steps, seed), start=1):
            X, Y = split.train.X[rows], split.train.Y[rows]
            for one in running.values():
                one.step_(X, Y)
            if step in looks:
                for method, one in running.items():
                    ap = metric(split.measure.Y, one.scores(split.measure.X)[:, 0])
                    look = {"method": method, **settings[method]._asdict(), "step": step, "seconds": one.seconds}
                    seen.append(look | {"ap": ap})
    return seen


def again(cells: Cells, arguments: argparse.Namespace) -> list[Reproduced]:
    """The quick cells beside the committed ones."""
    run(cells, arguments, QUICK)
    known = page.committed(NAME)
    found = compare(known, cells, keys=("set", "method", "step", "seed"), over="seed", measures=("ap",))
    for (name, seed), method in product(QUICK, list(METHODS)[1:]):
        if cells.find(set=name, seed=seed):
            before, now = (time_ratio(one, name, method, seed) for one in (known, cells))
            found.append(page.within_factor(f"{name}, {method}: seconds / log-loss's", before, now, TIME_FACTOR))
    return found


def time_ratio(cells: Cells, name: str, method: str, seed: int) -> float:
    """Seconds of all steps over those of log-loss."""
    ours, theirs = (
        max(page.values(cells.find(set=name, method=one, seed=seed), "seconds")) for one in (method, BASELINE)
    )
    return ours / theirs


def final(cells: Cells, name: str, method: str, seed: int) -> float:
    """Held-out average precision at the end."""
    steps = paper.PLANS[name].steps
    return page.values(cells.find(set=name, method=method, seed=seed, step=steps), "ap")[0]


def looks_at(cells: Cells, name: str, method: str, seed: int) -> list[dict[str, str]]:
    """The looks of a run, first to last."""
    return sorted(cells.find(set=name, method=method, seed=seed), key=lambda row: int(row["step"]))


def arrival(cells: Cells, name: str, method: str, seed: int, short_of: float) -> dict[str, str] | None:
    """The look from which on all have log-loss's final value, or are at most `short_of` below it; None if none is."""
    target = final(cells, name, BASELINE, seed) - short_of
    # Backwards from the end, because a value that is reached and left again is no arrival.
    kept = list(takewhile(lambda row: float(row["ap"]) >= target, reversed(looks_at(cells, name, method, seed))))
    return kept[-1] if kept else None


def passed(cells: Cells, name: str, method: str, seed: int, short_of: float) -> bool:
    """Whether any look is there, whatever follows."""
    target = final(cells, name, BASELINE, seed) - short_of
    return any(ap >= target for ap in page.values(looks_at(cells, name, method, seed), "ap"))


def arrivals_shown(cells: Cells, name: str, method: str, short_of: float) -> str:
    """Median over seeds of the step of arrival, with that of the seconds, or how many seeds arrived."""
    found = [arrival(cells, name, method, seed, short_of) for seed in seeds_of(cells, name)]
    reached = [row for row in found if row is not None]
    if len(reached) < len(found):
        return f"{len(reached)} of {len(found)} seeds"
    steps, seconds = (float(np.median(page.values(reached, column))) for column in ("step", "seconds"))
    return f"{steps:.0f} ({seconds:.2f} s)"


def seeds_of(cells: Cells, name: str) -> list[int]:
    """The finished seeds of a set."""
    return sorted({int(row["seed"]) for row in cells.find(set=name)})


def table(cells: Cells) -> page.Table:
    """Final values, arrivals and time, a row for each set and method."""
    rows = []
    for name, method in product(paper.sets_of(cells), METHODS):
        seeds = seeds_of(cells, name)
        ap = spread(final(cells, name, method, seed) for seed in seeds)
        gain = spread(final(cells, name, method, seed) - final(cells, name, BASELINE, seed) for seed in seeds)
        ratio = spread(time_ratio(cells, name, method, seed) for seed in seeds).mean
        arrived = [arrivals_shown(cells, name, method, short_of) for short_of in (NEAR, 0.0)]
        difference = "" if method == BASELINE else page.signed(gain)
        rows.append([f"{name}, {method}", page.plain(ap), difference, *arrived, f"{ratio:.2f}"])
    header = [
        "set, method",
        "final average precision",
        "minus log-loss",
        f"steps to within {NEAR:g} of log-loss's final value",
        "steps to that value",
        "seconds / log-loss's",
    ]
    title = (
        "Held-out rows, mean ± standard deviation over seeds. Steps are those of the first evaluation that stays at "
        "the value, median over seeds, or how many seeds arrive"
    )
    return page.Table(title, header, rows)


def arrivals_of(cells: Cells, method: str, short_of: float) -> Arrivals:
    """Every run of a method beside log-loss's own run to the same target."""
    runs = runs_of(cells)
    pairs = [[arrival(cells, name, one, seed, short_of) for one in (method, BASELINE)] for name, seed in runs]
    arrived = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    later = [int(ours["step"]) - int(theirs["step"]) for ours, theirs in arrived]
    return Arrivals(
        runs=len(runs),
        stay=len(arrived),
        earlier=sum(steps < 0 for steps in later),
        same=later.count(0),
        later=sum(steps > 0 for steps in later),
        faster=sum(float(ours["seconds"]) < float(theirs["seconds"]) for ours, theirs in arrived),
        leave=sum(passed(cells, name, method, seed, short_of) for name, seed in runs) - len(arrived),
    )


def runs_of(cells: Cells) -> list[tuple[str, int]]:
    """The finished sets and seeds."""
    return [(name, seed) for name in paper.sets_of(cells) for seed in seeds_of(cells, name)]


def arrivals_table(cells: Cells) -> page.Table:
    """The counts of every method, for log-loss's final value itself and for what is near it."""
    rows = []
    for method, short_of in product(list(METHODS)[1:], (0.0, NEAR)):
        found = arrivals_of(cells, method, short_of)
        target = f"within {short_of:g} of it" if short_of else "log-loss's final value"
        counts = (found.stay, found.earlier, found.same, found.later, found.faster, found.never, found.leave)
        rows.append([f"{method}: {target}", *map(str, counts)])
    header = [
        "method and target",
        "reach it and stay",
        "at an earlier look than log-loss",
        "at the same look",
        "at a later look",
        "in fewer seconds",
        "do not",
        "of these reach it and leave it",
    ]
    title = f"Runs, of {len(runs_of(cells))}, that reach log-loss's final value and stay there until the end"
    return page.Table(title, header, rows)


def draw(cells: Cells) -> None:
    """Each set a column; against steps above, against seconds below; the mean over seeds."""
    from matplotlib.figure import Figure

    names = paper.sets_of(cells)
    figure = Figure(figsize=(3.2 * len(names), 6), dpi=110, layout="constrained")
    panels = figure.subplots(2, len(names), squeeze=False)
    for column, name in enumerate(names):
        for place, method in enumerate(METHODS):
            looks = [cells.find(set=name, method=method, step=step) for step in looks_of(paper.PLANS[name].steps)]
            ap, seconds = ([spread(page.values(rows, one)).mean for rows in looks] for one in ("ap", "seconds"))
            steps = looks_of(paper.PLANS[name].steps)
            for axes, across in zip(panels[:, column], (steps, seconds), strict=True):
                axes.plot(across, ap, color=page.COLOURS[place], linestyle=("-", "--", ":")[place], label=method)
        panels[0, column].set_title(name, loc="left")
        for axes, label in zip(panels[:, column], ("steps", "seconds of training"), strict=True):
            top = max(page.values(cells.find(set=name), "ap"))
            axes.set(xscale="log", xlabel=label, ylim=(max(0, top - 0.25), top + 0.01))
            axes.grid(alpha=0.3)
    panels[0, 0].legend(fontsize=8, loc="lower right")
    for axes in panels[:, 0]:
        axes.set_ylabel("average precision, held out")
    figure.suptitle("Log-loss and AUCPR on the way: steps above, seconds below")
    figure.savefig(RESULTS / f"{NAME}.png")


def report(cells: Cells) -> None:
    """Table to the terminal, picture to the results."""
    for one in (table(cells), arrivals_table(cells)):
        one.show()
    draw(cells)


if __name__ == "__main__":
    paper.command(
        __doc__, NAME, again, lambda cells, asked: run(cells, asked, list(product(paper.SETS, SEEDS))), report
    )
