"""How the rivals compare: ranks with a critical difference, and differences with their spread.

A number of a set is the mean over the splits that every method of the table has finished; sets that lack a method are
left out. Methods are ranked on every set, 1 is best, equals share their mean rank; the mean over sets is compared by
the Nemenyi test: two methods differ at level 0.05 when their mean ranks are further apart than the critical difference.
A difference between two methods is taken split by split. The standard error of a mean difference is that over sets.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy import stats

from benchmarks.rivals.methods import OTHER_MODELS, OURS, RIVALS
from benchmarks.shared import page
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.spread import Spread, spread
from benchmarks.suite.suite import AIMS

CSV, PLOT = RESULTS / "rivals.csv", RESULTS / "rivals.png"
SUITE = RESULTS / "suite.csv"
CLASSIFIER, LOG_LOSS = "aimfor.Classifier", "log-loss of the public suite"
FROM_SUITE = {"aimfor": CLASSIFIER, "log-loss": LOG_LOSS}
LEVEL = 0.05
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


def ranked_aims(model: str, ours: str = OURS) -> dict[str, Ranked]:
    """For each aim the mean ranks of the rivals and of one of ours."""
    rows = [*_with_all_methods(page.committed(CSV.stem).find(stage="quality"), model), *_suite_rows(model)]
    return _ranked_aims(rows, ours)


def mean_differences(model: str) -> dict[str, dict[str, Spread]]:
    """For each rival and aim the bare loss minus the rival, mean over sets."""
    quality = page.committed(CSV.stem).find(stage="quality")
    rows = _with_trees(_with_all_methods(quality, model), quality)
    found: dict[str, dict[str, Spread]] = {}
    for rival in (*RIVALS, *OTHER_MODELS):
        for aim in AIMS:
            if pairs := _paired(rows, aim, OURS, rival):
                found.setdefault(rival, {})[aim] = spread(fmean(values) for values in pairs.values())
    return found


def behind_trees(model: str = "linear", ours: str = OURS) -> list[float]:
    """For each aim how far one of ours is behind boosted trees, mean over sets."""
    quality = page.committed(CSV.stem).find(stage="quality")
    rows = [*_with_trees(_with_all_methods(quality, model), quality), *_suite_rows(model)]
    found = [_paired(rows, aim, OTHER_MODELS[0], ours) for aim in AIMS]
    return [float(np.mean([np.mean(values) for values in by_set.values()])) for by_set in found if by_set]


def trees_lead(model: str, ours: str = OURS) -> tuple[float, float]:
    """The smallest and the largest lead of boosted trees over one of ours, over the aims."""
    found = behind_trees(model, ours)
    return min(found), max(found)


def _paired(rows: list[dict[str, str]], aim: str, one: str, other: str) -> dict[str, list[float]]:
    """Differences per set, split by split."""
    a, b = _values(rows, aim, one), _values(rows, aim, other)
    found: dict[str, list[float]] = {}
    for key in sorted(set(a) & set(b)):
        found.setdefault(key[0], []).append(a[key] - b[key])
    return found


def _suite_rows(model: str) -> list[dict[str, str]]:
    """The cells of the estimator and of log-loss in the public suite, under their names here."""
    found = page.committed(SUITE.stem).find(model=model)
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
