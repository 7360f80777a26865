"""The tables of the rivals: ranks with a critical difference, differences with their spread, constraints, costs.

A number of a set is the mean over the splits that every method of the table has finished; sets that lack a method are
left out. Methods are ranked on every set, 1 is best, equals share their mean rank; the mean over sets is compared by
the Nemenyi test: two methods differ at level 0.05 when their mean ranks are further apart than the critical difference.
A difference between two methods is taken split by split; a set counts as even when its mean is at most its standard
error over splits, or at most 0.005. The standard error of a mean difference is that over sets.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from benchmarks.rivals.methods import OTHER_MODELS, OURS, RIVALS, VARIANTS
from benchmarks.shared import baselines, page
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.spread import spread
from benchmarks.suite.suite import AIMS

CSV, PLOT = RESULTS / "rivals.csv", RESULTS / "rivals.png"
SUITE = RESULTS / "suite.csv"
CLASSIFIER, LOG_LOSS = "aimfor.Classifier", "log-loss of the public suite"
FROM_SUITE = {"aimfor": CLASSIFIER, "log-loss": LOG_LOSS}
EVEN, LEVEL = 0.005, 0.05
# The same numbers added up in another order are still equal; those of the cells have six digits.
ROUNDING = 1e-9
OUR_COLOUR, RIVAL_COLOUR = "#D55E00", "#0072B2"

Values = dict[tuple[str, str], float]
"""(set, split) -> number."""


class Ranked(NamedTuple):
    """Mean ranks of methods over sets: methods, sets, splits per set, ranks [sets, methods], critical difference, p."""

    methods: list[str]
    sets: list[str]
    splits: float
    ranks: np.ndarray
    critical: float
    p: float

    def mean(self, method: str) -> float:
        return float(self.ranks[:, self.methods.index(method)].mean())

    def error(self, method: str) -> float:
        return spread(self.ranks[:, self.methods.index(method)]).error

    def place(self, method: str) -> int:
        """Which by mean rank, 1 is first."""
        return 1 + sum(self.mean(other) < self.mean(method) - ROUNDING for other in self.methods)

    def lead(self, method: str) -> float:
        """By how much its mean rank is better than the best of the others."""
        return min(self.mean(other) for other in self.methods if other != method) - self.mean(method)

    def told_place(self, method: str) -> str:
        """The place of how many, and whether another method has the same mean rank."""
        equals = sum(abs(self.mean(other) - self.mean(method)) <= ROUNDING for other in self.methods)
        return f"{self.place(method)} of {len(self.methods)}{', shared' if equals > 1 else ''}"


def report(cells: Cells) -> None:
    print(written(cells))


def written(cells: Cells) -> str:
    """The section of the page of results."""
    quality = [row for row in cells.rows if row["stage"] == "quality"]
    parts = [_head(cells, quality)]
    for model in ("linear", "mlp"):
        rows = _with_all_methods(quality, model)
        if any(row["method"] == OURS for row in rows):
            parts += [_ranks(rows, model), _low_grids(rows), _in_place(rows, model)]
            parts += [_differences(_with_trees(rows, quality), model), _holds(rows, model), _others(rows)]
    parts.append(_costs(cells.find(stage="cost")))
    return "\n\n".join(part for part in parts if part) + "\n"


def _with_all_methods(quality: list[dict[str, str]], model: str) -> list[dict[str, str]]:
    """A model's rows of the splits that all rivals and ours have finished: every table is of the same splits."""
    rows = [row for row in quality if row["model"] == model]
    wanted = {(row["method"], row["aim"]) for row in rows if row["method"] in (*RIVALS, OURS)}
    finished: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for row in rows:
        finished.setdefault((row["set"], row["split"]), set()).add((row["method"], row["aim"]))
    return [row for row in rows if wanted <= finished[row["set"], row["split"]]]


def _with_trees(rows: list[dict[str, str]], quality: list[dict[str, str]]) -> list[dict[str, str]]:
    """With the other models on the same splits: they have run once, beside the linear models."""
    places = {(row["set"], row["split"]) for row in rows}
    trees = [row for row in quality if row["method"] in OTHER_MODELS and (row["set"], row["split"]) in places]
    return [*(row for row in rows if row["method"] not in OTHER_MODELS), *trees]


def ranked(rows: Sequence[dict[str, str]], aim: str, ours: str = OURS) -> Ranked | None:
    """Ranks of the rivals that have this aim and of one of ours; None while no set has all of them."""
    methods = [method for method in (*RIVALS, ours) if any(_is(row, aim, method) for row in rows)]
    values = [_values(rows, aim, method) for method in methods]
    common = sorted(set.intersection(*(set(one) for one in values))) if values else []
    sets = sorted({name for name, _ in common})
    if ours not in methods or len(methods) < 3 or len(sets) < 2:
        return None
    table = np.array([[np.mean([one[key] for key in common if key[0] == name]) for one in values] for name in sets])
    table = table.round(9)  # equals stay equal, in the test too
    ranks = np.array([stats.rankdata(-line) for line in table])
    count = len(methods)
    quantile = float(stats.studentized_range.ppf(1 - LEVEL, count, np.inf)) / math.sqrt(2)
    critical = quantile * math.sqrt(count * (count + 1) / (6 * len(sets)))
    p = float(stats.friedmanchisquare(*table.T).pvalue)
    return Ranked(methods, sets, len(common) / len(sets), ranks, critical, p)


def _ranked_aims(rows: Sequence[dict[str, str]], ours: str = OURS) -> dict[str, Ranked]:
    return {aim: found for aim in AIMS if (found := ranked(rows, aim, ours)) is not None}


def standings(model: str, ours: str) -> list[Ranked]:
    """For each aim the mean ranks of the rivals and of a method in the place of ours."""
    rows = [*_with_all_methods(Cells(CSV).find(stage="quality"), model), *_suite_rows(model)]
    return list(_ranked_aims(rows, ours).values())


def behind_trees(model: str = "linear", ours: str = OURS) -> list[float]:
    """For each aim how far one of ours is behind boosted trees, mean over sets."""
    quality = Cells(CSV).find(stage="quality")
    rows = [*_with_trees(_with_all_methods(quality, model), quality), *_suite_rows(model)]
    found = [_paired(rows, aim, OTHER_MODELS[0], ours) for aim in AIMS]
    return [float(np.mean([np.mean(values) for values in by_set.values()])) for by_set in found if by_set]


def trees_lead(model: str, ours: str = OURS) -> tuple[float, float]:
    """The smallest and the largest lead of boosted trees over one of ours, over the aims."""
    found = behind_trees(model, ours)
    return min(found), max(found)


def _head(cells: Cells, quality: list[dict[str, str]]) -> str:
    if not cells.rows:
        return "## Rivals\n\nNothing is finished yet."
    sets = sorted({row["set"] for row in quality})
    splits = sorted({row["split"] for row in quality})
    first = cells.rows[0]
    packages = ", ".join(sorted({row["package"] for row in cells.rows}))
    return (
        "## Rivals\n\n"
        "Same rows, splits, models, steps, rows of a batch and number of settings for everyone, but that LibAUC draws "
        "half of each batch from the positives, as it asks for, and scikit-learn trains to convergence. The setting is "
        "chosen on validation rows. Ranks and differences are by the aim's exact metric on test rows, which asks for "
        "the best threshold there is; what thresholds from the validation rows give is in the tables of constraints. "
        "`aimfor` is the bare loss with the hinge in the same loop. Its defaults were set while looking at other "
        "splits of some of these sets (benchmarks/README.md). How each rival is trained: "
        "`benchmarks/rivals/methods.py`.\n\n"
        f"`python -m benchmarks.rivals.rivals`; {len(sets)} sets ({', '.join(sets)}), splits {', '.join(splits)}, "
        "of networks those that their table counts; "
        f"{first['steps']} steps of {first['batch']} rows, six settings each; {first['machine']}; {packages}. "
        f"Cells: [{CSV.name}](../benchmarks/results/{CSV.name}).\n\n"
        f"{page.picture(PLOT.stem, 'Mean ranks of all methods for each aim, with the critical difference')}"
    )


def _ranks(rows: list[dict[str, str]], model: str) -> str:
    tables = _ranked_aims(rows)
    if not tables:
        return f"### {model}\n\nNo two sets have all methods yet."
    header = ["method", *(f"`{aim}`" for aim in tables)]
    body = [
        [method, *(_rank(found, method) if method in found.methods else "" for found in tables.values())]
        for method in (*RIVALS, OURS)
        if any(method in found.methods for found in tables.values())
    ]
    body.append(["critical difference", *(f"{one.critical:.2f}" for one in tables.values())])
    body.append(["sets; splits each, on the mean", *(f"{len(one.sets)}; {one.splits:.1f}" for one in tables.values())])
    title = f"### {model}: mean rank by the aim's exact metric, ± its standard error over sets"
    places = "\n".join(f"- {_place(aim, found)}" for aim, found in tables.items())
    return "\n\n".join([title, page.grid(header, body), places])


def _low_grids(rows: list[dict[str, str]]) -> str:
    """Whose highest rate is chosen so often that a still higher one might be better."""
    often = []
    for method in (*RIVALS, OURS, *VARIANTS):
        chosen = [row["chosen"].split()[0] for row in rows if row["method"] == method]
        rates = [float(text.removeprefix("rate=")) for text in chosen if text.startswith("rate=")]
        # Each rate of a grid is chosen somewhere, so that the highest chosen one is that of the grid.
        if rates and (share := rates.count(max(rates)) / len(rates)) > 0.5:
            often.append(f"{method} ({share:.0%})")
    return (
        f"The highest rate is chosen in more than half of the cells, so that the grid may be too low: {_listed(often)}."
    )


def _in_place(rows: list[dict[str, str]], model: str) -> str:
    """Other ways to use aimfor, and the suite's log-loss, each ranked among the rivals in the place of ours."""
    rows = [*rows, *_suite_rows(model)]
    lines = {way: [_rank_and_place(rows, aim, way) for aim in AIMS] for way in (*VARIANTS, *FROM_SUITE.values())}
    body = [[way, *shown] for way, shown in lines.items() if any(shown)]
    if not body:
        return ""
    text = (
        "Other ways to use aimfor, each ranked among the same rivals in its place: mean rank ± its standard error over "
        "sets (which place of how many; on how many sets and how many splits of each, on the mean, and the rank of "
        "`aimfor` on just these); sets that it was not run on are left out. Differences below the critical difference "
        "are not distinguishable; on fewer sets than above it is larger, as one over the root of their number."
    )
    header = ["in place of `aimfor`", *(f"`{aim}`" for aim in AIMS)]
    return "\n\n".join([f"{text} {_budgets(rows, model)}", page.grid(header, body)])


def _budgets(rows: list[dict[str, str]], model: str) -> str:
    """What the methods of the public suite choose from, and what log-loss alone makes of it."""
    first = [found.place(LOG_LOSS) == 1 for found in _ranked_aims(rows, LOG_LOSS).values()]
    networks = math.prod(map(len, (baselines.RATES, baselines.DECAYS, baselines.STEPS)))
    settings = {
        "linear": f"{len(baselines.C_GRID)} values of C to convergence (nearly the line of scikit-learn above)",
        "mlp": f"{networks} settings of up to {max(baselines.STEPS):,} steps, the best snapshot of each",
    }
    return (
        f"`{CLASSIFIER}` at its defaults and {LOG_LOSS}, plain and tuned for the aim, are read from "
        f"results/{SUITE.name}, same rows, and have a larger budget than the rivals: the estimator a dozen and more "
        f"candidates, log-loss {settings[model]}. First places of theirs are in part that budget: log-loss alone, with "
        f"it, is first for {sum(first)} of {len(first)} aims; how far the two are apart is told with the public suite."
    )


def _rank(found: Ranked, method: str) -> str:
    text = f"{found.mean(method):.2f} ± {found.error(method):.2f}"
    return f"**{text}**" if found.place(method) == 1 else text


def _rank_and_place(rows: Sequence[dict[str, str]], aim: str, variant: str) -> str:
    found = ranked(rows, aim, variant)
    if found is None:
        return ""
    places = {(row["set"], row["split"]) for row in rows if _is(row, aim, variant)}
    bare = ranked([row for row in rows if (row["set"], row["split"]) in places], aim)
    beside = "" if bare is None else f", `aimfor` {bare.mean(OURS):.2f}"
    rank = f"{found.mean(variant):.2f} ± {found.error(variant):.2f}"
    return f"{rank} ({found.told_place(variant)}; {len(found.sets)} sets of {found.splits:.1f}{beside})"


def _place(aim: str, found: Ranked) -> str:
    best = [method for method in found.methods if found.place(method) == 1]
    own = found.mean(OURS)
    behind = [m for m in found.methods if m != OURS and found.mean(m) - own > found.critical]
    ahead = [m for m in found.methods if m != OURS and own - found.mean(m) > found.critical]
    text = f"`{aim}`: aimfor is number {found.told_place(OURS)}"
    if best != [OURS]:
        text += f"; {'first' if len(best) == 1 else 'shared first'}: {_listed(best)}"
    text += f". Beyond the critical difference: ahead of {_listed(behind)}, behind {_listed(ahead)}"
    return f"{text} (Friedman p = {found.p:.2g})."


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "none"


def _differences(rows: list[dict[str, str]], model: str) -> str:
    """Ours minus each rival: mean over sets with its standard error, and sets won, even, lost."""
    header = ["aimfor -", *(f"`{aim}`" for aim in AIMS)]
    body = []
    for rival in (*RIVALS, *OTHER_MODELS):
        line = [_difference(_paired(rows, aim, OURS, rival)) for aim in AIMS]
        if any(line):
            body.append([rival, *line])
    if not body:
        return ""
    title = f"### {model}: aimfor minus the rival, mean over sets ± standard error; sets won, even, lost"
    return "\n\n".join([title, page.grid(header, body), _about_splits(rows)])


def _about_splits(rows: list[dict[str, str]]) -> str:
    """When a set is even, and how many sets have the splits to tell."""
    aim = next(iter(AIMS))  # all have the same splits
    pairs = [_paired(rows, aim, OURS, other) for other in (OURS, OTHER_MODELS[0])]
    own, trees = ([len(values) for values in by_set.values()] for by_set in pairs)
    text = (
        f"Even is within a standard error over splits, or within {EVEN:g}; a single split has no error, so that "
        f"{EVEN:g} alone decides: {own.count(1)} of {len(own)} sets."
    )
    beside = (
        f" {OTHER_MODELS[0]} ({sum(trees)} of the {sum(own)} splits, {trees.count(1)} of {len(trees)} sets with a "
        "single one): another model, the same one beside linear models and networks, as what a user might pick instead."
    )
    return text + (beside if trees else "")


def _paired(rows: list[dict[str, str]], aim: str, one: str, other: str) -> dict[str, list[float]]:
    """Differences per set, split by split."""
    a, b = _values(rows, aim, one), _values(rows, aim, other)
    found: dict[str, list[float]] = {}
    for key in sorted(set(a) & set(b)):
        found.setdefault(key[0], []).append(a[key] - b[key])
    return found


def _difference(paired: dict[str, list[float]]) -> str:
    if len(paired) < 2:
        return ""
    means = {name: spread(values) for name, values in paired.items()}
    over = spread(one.mean for one in means.values())
    won = lost = 0
    for one in means.values():
        # Two splits, one of them without a difference, have a mean that equals its error.
        margin = max(EVEN, 0.0 if math.isnan(one.error) else one.error) + ROUNDING
        won, lost = won + (one.mean > margin), lost + (one.mean < -margin)
    return f"{over.mean:+.3f} ± {over.error:.3f}; {won}, {len(means) - won - lost}, {lost}"


def _holds(rows: list[dict[str, str]], model: str) -> str:
    """How often the constraint holds on test rows at the threshold of the validation rows, and what it gives there."""
    aims = [aim for aim, judge in AIMS.items() if judge.constraint is not None]
    body = []
    for method in (*RIVALS, *OTHER_MODELS, OURS, *VARIANTS):
        found = [[row for row in rows if _is(row, aim, method)] for aim in aims]
        if any(found):
            body.append([method, *map(_held, found)])
    title = (
        f"### {model}: how often the constraint holds on test rows at the chosen threshold, and the objective there\n\n"
        "Thresholds just meet the constraint on validation rows; no method here asks for a confidence. Where no "
        "threshold qualified the objective is 0."
    )
    return f"{title}\n\n{page.grid(['method', *(f'`{aim}`' for aim in aims)], body)}"


def _held(rows: list[dict[str, str]]) -> str:
    if not rows:
        return ""
    share = np.mean([row["holds"] == "True" for row in rows])
    return f"{share:.0%} of {len(rows)}; {np.mean([float(row['objective']) for row in rows]):.3f}"


def _others(rows: list[dict[str, str]]) -> str:
    """How far log-loss under this budget is from converged logistic regression."""
    paired = {aim: _paired(rows, aim, "BCE", "scikit-learn") for aim in AIMS}
    told = "; ".join(f"`{aim}` {_difference(found).split(';')[0]}" for aim, found in paired.items() if len(found) > 1)
    return told and f"How far the steps are from convergence: BCE minus scikit-learn, mean over sets: {told}."


def _costs(rows: list[dict[str, str]]) -> str:
    if not rows:
        return ""
    body = [
        [
            row["method"],
            f"{float(row['microseconds']) / 1e3:,.2f}" if row["microseconds"] else "",
            f"{float(row['time_ratio']):.2f} ({float(row['time_low']):.2f} to {float(row['time_high']):.2f})"
            if row["time_ratio"]
            else "",
            _peak(row["peak_mb"]),
            row["lines"],
        ]
        for row in sorted(rows, key=lambda row: float(row["time_ratio"] or "inf"))
    ]
    header = ["method", "ms per step", "ratio to BCE (quartiles)", "peak MB of a step, 4,096 rows", "lines to write"]
    title = "### Cost: one linear model of 30 features, batches of 256 rows, one thread"
    note = "The lines are those of `benchmarks/rivals/snippets.py`, which are what is timed."
    for row in (row for row in rows if row["time_ratio"] and float(row["microseconds"]) > 2e5):
        hours = f"{6 * float(row['microseconds']) / 1e6 * float(row['steps']) / 3600:.0f} hours"
        note += f" {row['method']} is in no other table: its grid of six would take {hours} per set and split."
    return "\n\n".join([title, page.grid(header, body), note])


def _peak(text: str) -> str:
    """Megabytes; less than one is what the process happens to have at hand."""
    return text and ("< 1" if float(text) < 1 else f"{float(text):.1f}")


def _suite_rows(model: str) -> list[dict[str, str]]:
    """The cells of the estimator and of log-loss in the public suite, under their names here."""
    found = Cells(SUITE).find(model=model)
    return [{**row, "method": FROM_SUITE[row["method"]]} for row in found if row["method"] in FROM_SUITE]


def _values(rows: Sequence[dict[str, str]], aim: str, method: str) -> Values:
    return {(row["set"], row["split"]): float(row["test"]) for row in rows if _is(row, aim, method)}


def _is(row: dict[str, str], aim: str, method: str) -> bool:
    return row["aim"] == aim and row["method"] == method


def draw(cells: Cells) -> None:
    """Mean ranks per aim, with the critical difference; a row of panels per model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    quality = [row for row in cells.rows if row["stage"] == "quality"]
    models = ("linear", "mlp")
    by_model = {model: found for model in models if (found := _ranked_aims(_with_all_methods(quality, model)))}
    if not by_model:
        return
    size = (3.1 * len(AIMS), 3.6 * len(by_model))
    figure, grid = plt.subplots(len(by_model), len(AIMS), figsize=size, squeeze=False, constrained_layout=True)
    for axes, (model, tables) in zip(grid, by_model.items(), strict=True):
        for axis, aim in zip(axes, AIMS, strict=True):
            if aim in tables:
                _panel(axis, tables[aim], f"{aim}\n{model}, {len(tables[aim].sets)} sets")
            else:
                axis.set_visible(False)
    firsts = (
        f"{sum(one.place(OURS) == 1 for one in tables.values())} of {len(tables)} aims ({model})"
        for model, tables in by_model.items()
    )
    title = f"Same model, same budget: aimfor is first by mean rank for {', '.join(firsts)}"
    figure.suptitle(f"{title}\nmean rank on test rows by the aim's own metric (1 is best), ± standard error over sets")
    figure.savefig(PLOT, dpi=110)
    plt.close(figure)


def _panel(axis, found: Ranked, title: str) -> None:
    order = sorted(found.methods, key=found.mean, reverse=True)
    for place, method in enumerate(order):
        marker, colour, size = ("D", OUR_COLOUR, 7) if method == OURS else ("o", RIVAL_COLOUR, 5)
        point = {"x": found.mean(method), "y": place, "xerr": found.error(method)}
        axis.errorbar(**point, fmt=marker, color=colour, markersize=size, capsize=2)
    best = found.mean(order[-1])
    axis.plot([best, best + found.critical], [len(order) - 0.4] * 2, color="black", linewidth=2)
    axis.text(best, len(order) - 0.25, "critical difference", fontsize=8)
    axis.set_yticks(range(len(order)), order, fontsize=8)
    for label, method in zip(axis.get_yticklabels(), order, strict=True):
        label.set_fontweight("bold" if method == OURS else "normal")
    axis.set(xlabel="mean rank", ylim=(-0.6, len(order) + 0.3))
    axis.set_title(title, fontsize=10)
    axis.grid(axis="x", alpha=0.3)
