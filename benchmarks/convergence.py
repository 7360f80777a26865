"""Convergence: held-out average precision against steps and against seconds, log-loss and AUCPR.

    python benchmarks/convergence.py            # resumes from results/convergence.csv; about 7 minutes of one core
    python benchmarks/convergence.py --quick    # two sets, one seed again, held to the committed cells
    python benchmarks/convergence.py --report   # the tables and results/convergence.png

The paper calls the convergence of its losses indistinguishable from that of vanilla SGD. Rate and decay of every method
are chosen from one grid by validation rows at the end of training. The chosen settings are then trained again from
weights 0, one head each, the methods taking turns batch by batch, so that they see the same rows and a slow minute of
the machine is slow for all. Held-out rows are looked at on the way and choose nothing. Seconds are those of the steps
(scores, loss, gradients, AdamW), not of the looks. Data and seeds as in anchors.py.
"""

import argparse
import warnings
from itertools import product

import numpy as np

import aimfor
import data
import page
import paper_common as paper
from common import RESULTS, Cells, Setting, spread
from remade import Remade, compare

NAME = "convergence"
SEEDS = (1, 2, 3)
LOOKS, FIRST_LOOK = 24, 10
NEAR = 0.005  # of average precision: what counts as having arrived
BASELINE = "log-loss"
METHODS = {
    BASELINE: paper.log_loss,
    "aucpr": paper.aimed("aucpr"),
    "aucpr, smooth hinge": paper.aimed("aucpr", surrogate="smooth_hinge"),
}
QUICK = [("mammography", 1), ("htru2", 1)]
TIME_FACTOR = 2.0  # of the ratio to log-loss; small steps on a shared machine vary that much


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


def again(cells: Cells, arguments: argparse.Namespace) -> list[Remade]:
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


def arrival(cells: Cells, name: str, method: str, seed: int, short_of: float) -> dict[str, str] | None:
    """The first look that has log-loss's final value, or is no more than `short_of` below it; None if none has."""
    target = final(cells, name, BASELINE, seed) - short_of
    reached = [row for row in cells.find(set=name, method=method, seed=seed) if float(row["ap"]) >= target]
    return min(reached, key=lambda row: int(row["step"]), default=None)


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
        "Held-out rows, mean ± standard deviation over seeds (differences ± standard error); steps of the first look "
        "that arrives, median over seeds, or how many seeds arrive"
    )
    return page.Table(title, header, rows)


def conclusion(cells: Cells) -> str:
    """How often a method needs no more steps than log-loss, or no more seconds, to come near its final value."""
    told = []
    for method in list(METHODS)[1:]:
        pairs = [
            (arrival(cells, name, method, seed, NEAR), arrival(cells, name, BASELINE, seed, NEAR))
            for name in paper.sets_of(cells)
            for seed in seeds_of(cells, name)
        ]
        arrived = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
        steps, seconds = (
            sum(float(ours[column]) <= float(theirs[column]) for ours, theirs in arrived)
            for column in ("step", "seconds")
        )
        told.append(
            f"`{method}` comes to within {NEAR:g} of log-loss's final value in {len(arrived)} of {len(pairs)} runs, in "
            f"{steps} of them in no more steps than log-loss itself needs for that, in {seconds} in no more seconds."
        )
    return " ".join(told)


def section() -> str:
    """The section of the page, from the cells alone."""
    cells = page.committed(NAME)
    return "\n\n".join(
        [
            "## Convergence",
            "The paper calls the convergence of its losses indistinguishable from that of vanilla SGD. Each method at "
            "the rate and decay that validation rows chose for it from the same six settings; the rate falls to 0 "
            "along a half cosine, and the optimiser is AdamW for all.",
            table(cells).markdown(),
            f"{conclusion(cells)} {paper.grid_ends(cells.find(step=FIRST_LOOK), paper.plan_of)}",
            page.picture(NAME, "Held-out average precision against steps and against seconds"),
            page.made_by(NAME, cells),
        ]
    )


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
    table(cells).show()
    print(f"\n{conclusion(cells)}")
    draw(cells)


if __name__ == "__main__":
    paper.command(
        __doc__, NAME, again, lambda cells, asked: run(cells, asked, list(product(paper.SETS, SEEDS))), report
    )
