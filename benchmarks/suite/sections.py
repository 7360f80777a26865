"""The sections of docs/results/ on the public suite, from its CSV files alone."""

from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean

import numpy as np

from benchmarks.shared import forms, page
from benchmarks.shared.cells import Cells
from benchmarks.shared.spread import Spread, spread
from benchmarks.suite import tabular_linear
from benchmarks.suite.report import EITHER, LEVEL, OURS, Paired, error_of_these_sets, gains
from benchmarks.suite.suite import AIMS, LABELS_PICTURE, MULTILABEL_AIMS, NAME

# The methods as README.md and docs/why.md name them.
SHOWN = {
    "log-loss": "log-loss",
    "balanced": "log-loss, balanced",
    EITHER: "log-loss, plain or balanced by validation",
    OURS: "`aimfor.Classifier`",
}
CONSTRAINED = [aim for aim, judge in AIMS.items() if judge.constraint is not None]
# Tables of docs/why.md: the largest gain of three aims, and the largest loss at one.
EXAMPLES = (
    ("PageBlocks", "precision@recall>=0.9"),
    ("annthyroid", "f1"),
    ("ijcnn1", "tpr@fpr<=0.01"),
    ("kddcup99", "tpr@fpr<=0.01"),
)


@lru_cache(maxsize=1)
def cells() -> Cells:
    return page.committed(NAME)


def by_set(model: str, method: str, aim: str, single: bool = True) -> dict[str, float]:
    """The exact metric on test rows, mean over the splits of each set."""
    found: dict[str, list[float]] = {}
    for row in cells().find(model=model, method=method, aim=aim):
        if (row["labels"] == "1") == single:
            found.setdefault(row["set"], []).append(float(row["test"]))
    return {name: fmean(values) for name, values in found.items()}


def metric(model: str, method: str, aim: str, single: bool = True) -> float:
    """The mean over sets."""
    return fmean(by_set(model, method, aim, single).values())


def metrics_table(model: str) -> str:
    """Methods in rows, aims in columns."""
    named = "linear model" if model == "linear" else "network"
    rows = [
        [shown, *(f"{metric(model, method, aim):.3f}" for aim in AIMS)]
        for method, shown in SHOWN.items()
        if cells().find(model=model, method=method)
    ]
    return page.grid([named, *page.code(AIMS)], rows)


@lru_cache
def pairs_of(model: str, other: str) -> dict[str, dict[str, Paired]]:
    """Per aim and set, the estimator minus another method."""
    return gains(cells(), list(AIMS), model, other)


def mean_gain(model: str, other: str, aim: str) -> Spread:
    """The mean over sets, with the larger of its two standard errors: over sets, and of just these sets."""
    pairs = pairs_of(model, other)[aim]
    over_sets = spread(pair.difference.mean for pair in pairs.values())
    return over_sets._replace(error=max(over_sets.error, error_of_these_sets(pairs)))


def clear(model: str, other: str) -> list[str]:
    """The aims whose mean gain is above twice both of its standard errors."""
    found = {aim: mean_gain(model, other, aim) for aim in AIMS}
    return [aim for aim, one in found.items() if one.mean > 2 * one.error]


def gains_table(model: str) -> str:
    others = [other for other in SHOWN if other != OURS and cells().find(model=model, method=other)]
    rows = [[SHOWN[other], *(page.gained(mean_gain(model, other, aim).mean) for aim in AIMS)] for other in others]
    return page.grid(["gain over", *page.code(AIMS)], rows)


def counts(model: str, other: str = "log-loss") -> tuple[int, int, int, int]:
    """Pairs of set and aim: better than another method, equal, worse, and worse with significance after Holm."""
    pairs = [pair for found in pairs_of(model, other).values() for pair in found.values()]
    winners = [pair.winner for pair in pairs]
    significant = sum(pair.p_holm < LEVEL for pair in pairs)
    return winners.count(OURS), winners.count("-"), winners.count("other"), significant


def counted(model: str) -> str:
    """How often the estimator is better than log-loss, as sentences."""
    better, equal, worse, significant = counts(model)
    return (
        f"`aimfor.Classifier` is better than log-loss in {better} of {better + equal + worse} pairs of table and aim, "
        f"equal in {equal} and worse in {worse}. Equal means within one standard error over the splits. "
        f"{significant or 'None'} of the losses {'are' if significant > 1 else 'is'} significant after Holm's "
        "correction."
    )


def verdict(model: str) -> str:
    """How many of the mean gains over log-loss are above 0, and how many clearly so."""
    above = sum(mean_gain(model, "log-loss", aim).mean > 0 for aim in AIMS)
    stand_out = len(clear(model, "log-loss"))
    return (
        f"At {above} of {len(AIMS)} aims the mean gain over log-loss is above 0, and at {stand_out} it is clear of "
        "noise."
    )


def clear_gains(model: str) -> str:
    """Which mean gains stand out of their noise."""
    told = []
    for other in ("log-loss", EITHER):
        if cells().find(model=model, method=other):
            found = ", ".join(page.code(clear(model, other))) or "none"
            told.append(f"- Clear gains over {SHOWN[other]}: {found}.")
    return "\n".join(told)


def errors_table(model: str, other: str) -> str:
    """What a statistician asks of the mean gains."""
    rows = []
    for aim, pairs in pairs_of(model, other).items():
        differences = [pair.difference.mean for pair in pairs.values()]
        over_sets, winners = spread(differences), [pair.winner for pair in pairs.values()]
        rows.append(
            [
                f"`{aim}`",
                f"{over_sets.mean:+.4f}",
                f"{np.median(differences):+.4f}",
                f"{over_sets.error:.4f}",
                f"{error_of_these_sets(pairs):.4f}",
                *(str(winners.count(winner)) for winner in (OURS, "-", "other")),
            ]
        )
    header = ["aim", "mean", "median", "error over tables", "error of these tables", "better", "equal", "worse"]
    return page.grid(header, rows)


def statistics(model: str) -> str:
    others = [other for other in SHOWN if other != OURS and cells().find(model=model, method=other)]
    parts = []
    for other in others:
        parts += [f"Gain over {SHOWN[other]}:", errors_table(model, other)]
    return page.fold(
        "Standard errors of the gains",
        "The error over tables tells how far the mean moves with another collection of tables. The error of these "
        "tables comes from their splits. It is corrected for shared rows (Nadeau and Bengio, 2003).",
        *parts,
    )


def linear_section() -> str:
    sets = len(by_set("linear", OURS, "aucpr"))
    return "\n\n".join(
        [
            "## Does it help linear models on tables?",
            f"{verdict('linear')} The table has the exact metric on test rows, averaged over {sets} public tables with "
            "five splits each. Every method chooses its setting by the same metric on validation rows. Log-loss is "
            "logistic regression with seven values of C.",
            metrics_table("linear"),
            "What `aimfor.Classifier` adds:",
            gains_table("linear"),
            "A gain is clear if it is above twice its standard error, both over tables and over their splits.",
            clear_gains("linear"),
            counted("linear"),
            statistics("linear"),
            page.source(NAME),
        ]
    )


def network_section() -> str:
    sets = len(by_set("mlp", OURS, "aucpr"))
    return "\n\n".join(
        [
            "## Does it help networks on tables?",
            f"{verdict('mlp')} These are means over {sets} of the tables, again with five splits each. Log-loss has "
            "18 settings of rate, decay and steps.",
            metrics_table("mlp"),
            "What `aimfor.Classifier` adds:",
            gains_table("mlp"),
            clear_gains("mlp"),
            counted("mlp"),
            page.picture(NAME, "For each aim and table, what the estimator gains over log-loss, linear and networks"),
            statistics("mlp"),
            page.source(NAME),
        ]
    )


def extremes_section() -> str:
    """The sets with the largest gain and the largest loss."""
    found = pairs_of("linear", "log-loss")
    order = {aim: sorted(found[aim], key=lambda name: found[aim][name].difference.mean) for aim in AIMS}
    rows = []
    for title, place in (("largest gain", -1), ("largest loss", 0)):
        rows.append([title, *(f"{found[aim][order[aim][place]].difference.mean:+.3f}" for aim in AIMS)])
        rows.append(["its table", *(order[aim][place] for aim in AIMS)])
    return "\n\n".join(
        [
            "## Where are the gains and losses largest?",
            "Gains are uneven: most of each mean comes from a few tables. The tables with the largest gain and loss of "
            "linear models, against log-loss:",
            page.grid(["linear model", *page.code(AIMS)], rows),
            "The metric itself on four of them:",
            examples_table(),
            page.picture(NAME, "For each aim and table, what the estimator gains over log-loss, linear and networks"),
            page.source(NAME),
        ]
    )


def examples_table() -> str:
    rows = [
        [SHOWN[method], *(f"{by_set('linear', method, aim)[name]:.3f}" for name, aim in EXAMPLES)]
        for method in ("log-loss", EITHER, OURS)
    ]
    return page.grid(["linear model", *(f"{name}, `{aim}`" for name, aim in EXAMPLES)], rows)


def labels_section() -> str:
    """Sets with several labels per row."""
    rows = []
    for model, shown in (("linear", "linear"), ("mlp", "network")):
        for method in ("log-loss", OURS):
            means = (metric(model, method, aim, single=False) for aim in MULTILABEL_AIMS)
            sets = len(by_set(model, method, MULTILABEL_AIMS[0], single=False))
            rows.append([f"{shown}, {SHOWN[method]}", str(sets), *(f"{one:.3f}" for one in means)])
    return "\n\n".join(
        [
            "## Does it help with several labels per row?",
            f"{labels_verdict()} These are means over the labels of a table, then over tables.",
            page.grid(["model, loss", "tables", *page.code(MULTILABEL_AIMS)], rows),
            page.picture(LABELS_PICTURE, "For each table of several labels, what the estimator gains over log-loss"),
            page.source(NAME),
        ]
    )


def labels_verdict() -> str:
    kinds = [(model, aim) for model in ("linear", "mlp") for aim in MULTILABEL_AIMS]
    found = []
    for model, aim in kinds:
        ours, theirs = (by_set(model, method, aim, single=False) for method in (OURS, "log-loss"))
        found.append(spread(ours[name] - theirs[name] for name in ours))
    stand_out = sum(one.mean > 2 * one.error for one in found)
    return f"Of {len(found)} mean gains, {stand_out} is above twice its standard error over tables."


def share_held(model: str, method: str, aim: str) -> float:
    """How often the constraint holds on test rows at the threshold that validation rows chose."""
    found = cells().find(model=model, method=method, aim=aim)
    holds = [row["holds"] == "True" for row in found if row["labels"] == "1" and row["holds"]]
    return fmean(holds)


def held_section() -> str:
    def table(model: str, methods: Sequence[str]) -> str:
        named = "linear model" if model == "linear" else "network"
        rows = [[SHOWN[one], *(f"{share_held(model, one, aim):.0%}" for aim in CONSTRAINED)] for one in methods]
        return page.grid([named, *page.code(CONSTRAINED)], [[cell.replace("%", " %") for cell in row] for row in rows])

    shares = [
        100 * share_held(model, method, aim)
        for model in ("linear", "mlp")
        for method in ("log-loss", OURS)
        for aim in CONSTRAINED
    ]
    return "\n\n".join(
        [
            "## How often does the constraint hold on new rows?",
            f"Between {min(shares):.0f} % and {max(shares):.0f} % of the time, if the threshold just meets it on "
            "validation rows. With `aimfor.Classifier` the same rows also chose among more candidates.",
            table("linear", ("log-loss", OURS)),
            table("mlp", ("log-loss", OURS)),
            "[Thresholds with a confidence](#thresholds-with-a-confidence) keep the promise more often.",
            page.source(NAME),
        ]
    )


def recipe_section() -> str:
    """The bare loss beside converged logistic regression."""
    made = page.committed(tabular_linear.NAME)
    rows = []
    for method in tabular_linear.METHODS:
        means = []
        for aim in tabular_linear.AIMS:
            found = [page.values(made.find(set=name, aim=aim, method=method), "test") for name in tabular_linear.SETS]
            means.append(fmean(fmean(values) for values in found))
        shown = "`aimfor.Loss`" if method == "aimfor" else method
        rows.append([shown, *(f"{one:.3f}" for one in means)])
    differences = [one for aim in tabular_linear.AIMS for one in tabular_linear.gains(made, aim).values()]
    return "\n\n".join(
        [
            "## Does one recipe do as well?",
            f"`aimfor.Loss` alone, with six settings of rate and decay. {forms.TOLD} Logistic regression is converged "
            f"and has seven values of C. Means over {len(tabular_linear.SETS)} tables, linear models:",
            page.grid(["method", *page.code(tabular_linear.AIMS)], rows),
            page.tally(differences, "pairs of table and aim"),
            page.fold(
                "By table",
                tabular_linear.table(made).markdown(),
                page.picture(tabular_linear.NAME, "Differences on held-out rows, for each aim and table"),
            ),
            page.source(tabular_linear.NAME),
        ]
    )
