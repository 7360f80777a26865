"""The tables of the rivals: ranks with a critical difference, differences with their spread, constraints, costs.

A number of a set is the mean over the splits that every method of the table has finished; sets that lack a method are
left out. Methods are ranked on every set, 1 is best, equals share their mean rank; the mean over sets is compared by
the Nemenyi test: two methods differ at level 0.05 when their mean ranks are further apart than the critical difference.
A difference between two methods is taken split by split; a set counts as even when its mean is within its standard
error over splits, or within 0.005. The standard error of a mean difference is that over sets.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

import page
from common import RESULTS, Cells, spread
from rivals_methods import OTHER_MODELS, OURS, RIVALS, VARIANTS
from suite import AIMS

CSV, PLOT = RESULTS / "rivals.csv", RESULTS / "rivals.png"
SUITE = RESULTS / "suite.csv"
CLASSIFIER = "aimfor.Classifier"
EVEN, LEVEL = 0.005, 0.05
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
        return 1 + sum(self.mean(other) < self.mean(method) - 1e-9 for other in self.methods)


def report(cells: Cells) -> None:
    print(written(cells))


def written(cells: Cells) -> str:
    """The section of the page of results."""
    quality = [row for row in cells.rows if row["stage"] == "quality"]
    parts = [_head(cells, quality)]
    for model in ("linear", "mlp"):
        rows = _with_all_methods([row for row in quality if row["model"] == model])
        if any(row["method"] == OURS for row in rows):
            parts += [_ranks(rows, model), _differences(rows, model), _holds(rows, model), _others(rows, model)]
    parts.append(_costs(cells.find(stage="cost")))
    return "\n\n".join(part for part in parts if part) + "\n"


def _with_all_methods(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows of the splits that all rivals and ours have finished, so that every table is of the same splits."""
    wanted = {(row["method"], row["aim"]) for row in rows if row["method"] in (*RIVALS, OURS)}
    finished: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for row in rows:
        finished.setdefault((row["set"], row["split"]), set()).add((row["method"], row["aim"]))
    return [row for row in rows if wanted <= finished[row["set"], row["split"]]]


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


def places(model: str, ours: str) -> list[int]:
    """For each aim the place of one of ours by mean rank among the rivals, 1 is first."""
    quality = _with_all_methods(Cells(CSV).find(stage="quality", model=model))
    rows = [*quality, *(_classifier_rows(model) if ours == CLASSIFIER else [])]
    return [found.place(ours) for aim in AIMS if (found := ranked(rows, aim, ours)) is not None]


def behind_trees() -> list[float]:
    """For each aim how far our linear models are behind boosted trees, mean over sets."""
    rows = _with_all_methods(Cells(CSV).find(stage="quality", model="linear"))
    found = [_paired(rows, aim, OTHER_MODELS[0], OURS) for aim in AIMS]
    return [float(np.mean([np.mean(values) for values in by_set.values()])) for by_set in found if by_set]


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
        "`benchmarks/rivals_methods.py`.\n\n"
        f"`python benchmarks/rivals.py`; {len(sets)} sets ({', '.join(sets)}), splits {', '.join(splits)}, "
        f"{first['steps']} steps of {first['batch']} rows, six settings each; {first['machine']}; {packages}. "
        f"Cells: [{CSV.name}](../benchmarks/results/{CSV.name}).\n\n"
        f"{page.picture(PLOT.stem, 'Mean ranks of all methods for each aim, with the critical difference')}"
    )


def _ranks(rows: list[dict[str, str]], model: str) -> str:
    tables = {aim: found for aim in AIMS if (found := ranked(rows, aim)) is not None}
    if not tables:
        return f"### {model}\n\nNo two sets have all methods yet."
    header = ["method", *(f"`{aim}`" for aim in tables)]
    body = [
        [method, *(_rank(found, method) if method in found.methods else "" for found in tables.values())]
        for method in (*RIVALS, OURS)
        if any(method in found.methods for found in tables.values())
    ]
    body.append(["critical difference", *(f"{found.critical:.2f}" for found in tables.values())])
    body.append(
        ["sets; splits each, on the mean", *(f"{len(found.sets)}; {found.splits:.1f}" for found in tables.values())]
    )
    lines = [
        f"### {model}: mean rank by the aim's exact metric, ± its standard error over sets",
        page.grid(header, body),
    ]
    lines.append("\n".join(f"- {_place(aim, found)}" for aim, found in tables.items()))
    header = ["in place of `aimfor`", *(f"`{aim}`" for aim in tables)]
    body = []
    for variant in (*VARIANTS, CLASSIFIER):
        own = rows if variant != CLASSIFIER else [*rows, *_classifier_rows(model)]
        shown = [_rank_and_place(own, aim, variant) for aim in tables]
        if any(shown):
            body.append([variant, *shown])
    if body:
        lines.append(
            f"Other ways to use aimfor, each ranked among the same rivals in its place (which place of how many; on "
            f"how many sets, and the rank of `aimfor` on just these); sets that it was not run on are left out. "
            f"`{CLASSIFIER}` at its defaults is read from results/suite.csv, same rows; it tries more candidates."
        )
        lines.append(page.grid(header, body))
    return "\n\n".join(lines)


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
    place = f"{found.place(variant)} of {len(found.methods)}"
    return f"{found.mean(variant):.2f} ({place}; {len(found.sets)} sets{beside})"


def _place(aim: str, found: Ranked) -> str:
    best = [method for method in found.methods if found.place(method) == 1]
    own = found.mean(OURS)
    behind = [m for m in found.methods if m != OURS and found.mean(m) - own > found.critical]
    ahead = [m for m in found.methods if m != OURS and own - found.mean(m) > found.critical]
    text = f"`{aim}`: aimfor is number {found.place(OURS)} of {len(found.methods)}"
    if best != [OURS]:
        text += f"; first: {_listed(best)}"
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
    even = f"Even is within a standard error over splits, or within {EVEN:g}."
    note = f"{', '.join(OTHER_MODELS)}: another model, beside the table of ranks, as what a user might pick instead."
    notes = [note] if any(line[0] in OTHER_MODELS for line in body) else []
    return "\n\n".join([title, page.grid(header, body), " ".join([even, *notes])])


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
        margin = max(EVEN, 0.0 if math.isnan(one.error) else one.error)
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


def _others(rows: list[dict[str, str]], model: str) -> str:
    """How far log-loss under this budget is from converged logistic regression."""
    shown = [(aim, _difference(_paired(rows, aim, "BCE", "scikit-learn"))) for aim in AIMS]
    shown = [(aim, text) for aim, text in shown if text]
    if model != "linear" or not shown:
        return ""
    told = "; ".join(f"`{aim}` {text.split(';')[0]}" for aim, text in shown)
    return f"How far the steps are from convergence: BCE minus converged logistic regression, mean over sets: {told}."


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
    slow = [row for row in rows if row["time_ratio"] and float(row["microseconds"]) > 2e5]
    title = "### Cost: one linear model of 30 features, batches of 256 rows, one thread"
    note = "The lines are those of `benchmarks/rivals_snippets.py`, which are what is timed."
    for row in slow:
        hours = 6 * float(row["microseconds"]) / 1e6 * float(row["steps"]) / 3600
        note += (
            f" {row['method']} is in no other table: its grid of six would take {hours:.0f} hours per set and split."
        )
    return "\n\n".join([title, page.grid(header, body), note])


def _peak(text: str) -> str:
    """Megabytes; less than one is what the process happens to have at hand."""
    return text and ("< 1" if float(text) < 1 else f"{float(text):.1f}")


def _classifier_rows(model: str) -> list[dict[str, str]]:
    """The estimator's cells of the public suite, under its name here."""
    found = Cells(SUITE).rows
    return [{**row, "method": CLASSIFIER} for row in found if row["method"] == "aimfor" and row["model"] == model]


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
    rows = {model: _with_all_methods([row for row in quality if row["model"] == model]) for model in ("linear", "mlp")}
    by_model = {model: {aim: found for aim in AIMS if (found := ranked(own, aim))} for model, own in rows.items()}
    by_model = {model: found for model, found in by_model.items() if found}
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
        own = method == OURS
        axis.errorbar(
            found.mean(method),
            place,
            xerr=found.error(method),
            fmt="D" if own else "o",
            color=OUR_COLOUR if own else RIVAL_COLOUR,
            markersize=7 if own else 5,
            capsize=2,
        )
    best = found.mean(order[-1])
    axis.plot([best, best + found.critical], [len(order) - 0.4] * 2, color="black", linewidth=2)
    axis.text(best, len(order) - 0.25, "critical difference", fontsize=8)
    axis.set_yticks(range(len(order)), order, fontsize=8)
    for label, method in zip(axis.get_yticklabels(), order, strict=True):
        label.set_fontweight("bold" if method == OURS else "normal")
    axis.set(xlabel="mean rank", ylim=(-0.6, len(order) + 0.3))
    axis.set_title(title, fontsize=10)
    axis.grid(axis="x", alpha=0.3)
