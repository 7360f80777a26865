"""The sections of docs/results/ on the rivals, from their CSV files alone."""

from functools import lru_cache
from statistics import fmean

from benchmarks.rivals import report
from benchmarks.rivals.methods import OURS, RIVALS
from benchmarks.rivals.report import CLASSIFIER, LOG_LOSS, Ranked
from benchmarks.shared import page
from benchmarks.suite.sections import by_set
from benchmarks.suite.suite import AIMS

NAME = "rivals"
MODELS = {"linear": "linear model", "mlp": "network"}
# Ways to use aimfor and log-loss, as docs/why.md names them.
WAYS = {
    OURS: "`aimfor.Loss`, same budget as the rivals",
    "aimfor without log-loss": "the same with `log_loss=0`",
    "aimfor bounding form": 'the same with the hinge, `constraint="surrogate"` and `log_loss=0`',
    CLASSIFIER: "`aimfor.Classifier`, larger budget",
    LOG_LOSS: "log-loss, larger budget",
}


@lru_cache
def ranks(model: str, ours: str = OURS) -> dict[str, Ranked]:
    """Per aim the mean ranks of the rivals and of a way to use aimfor."""
    return report.ranked_aims(model, ours)


def rank_table(model: str) -> str:
    found = ranks(model)
    rows = []
    for method in (*RIVALS, OURS):
        if any(method in one.methods for one in found.values()):
            shown = "`aimfor.Loss`" if method == OURS else method
            means = [f"{one.mean(method):.1f}" if method in one.methods else "" for one in found.values()]
            rows.append([shown, *means])
    return page.grid([f"{MODELS[model]}, mean rank", *page.code(found)], rows)


def firsts(model: str, method: str) -> int:
    """For how many aims a method is first by mean rank among the rivals, alone or shared."""
    return sum(one.place(method) == 1 for one in ranks(model, method).values())


def place_table(model: str) -> str:
    """Which place each way to use aimfor takes among the rivals."""
    rows = []
    for way, shown in WAYS.items():
        found = ranks(model, way)
        whole = found and all(len(one.sets) == len(ranks(model)[aim].sets) for aim, one in found.items())
        if whole or way in (CLASSIFIER, LOG_LOSS):
            rows.append([shown, *(str(found[aim].place(way)) if aim in found else "" for aim in AIMS)])
    sizes = sorted({len(one.methods) for one in ranks(model).values()})
    header = f"{MODELS[model]}, place among {' or '.join(map(str, sizes))}"
    return page.grid([header, *page.code(AIMS)], rows)


def significance(model: str) -> str:
    """Whom the bare loss is ahead of, and behind, by more than the critical difference."""
    lines = []
    for aim, one in ranks(model).items():
        own = one.mean(OURS)
        better = [m for m in one.methods if m != OURS and one.mean(m) - own > one.critical]
        worse = [m for m in one.methods if m != OURS and own - one.mean(m) > one.critical]
        lines.append(
            f"- `{aim}`: significantly better than {_listed(better)}, significantly worse than {_listed(worse)}."
        )
    return "\n".join(lines)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def details(model: str) -> str:
    found = ranks(model)
    rows = [
        ["critical difference of mean ranks", *(f"{one.critical:.2f}" for one in found.values())],
        ["p of Friedman's test", *(f"{one.p:.1g}" for one in found.values())],
        ["tables", *(str(len(one.sets)) for one in found.values())],
        ["splits of each table", *(f"{one.splits:.1f}" for one in found.values())],
    ]
    differences = report.mean_differences(model)
    gains = [
        [rival, *(page.gained(line[aim].mean) if aim in line else "" for aim in AIMS)]
        for rival, line in differences.items()
    ]
    errors = [
        [rival, *(f"{line[aim].error:.3f}" if aim in line else "" for aim in AIMS)]
        for rival, line in differences.items()
    ]
    return page.fold(
        f"Tests and differences, {MODELS[model]}",
        "Two mean ranks differ significantly if they are further apart than the critical difference (Nemenyi).",
        page.grid(["", *page.code(found)], rows),
        significance(model),
        "`aimfor.Loss` minus the rival, mean over tables:",
        page.grid(["rival", *page.code(AIMS)], gains),
        "The standard error over tables of that mean:",
        page.grid(["rival", *page.code(AIMS)], errors),
    )


def over_log_loss(model: str) -> str:
    """The bare loss minus log-loss with the same budget, as a sentence."""
    found = report.mean_differences(model)["BCE"]
    means = [one.mean for one in found.values()]
    ahead = sum(round(mean, 3) > 0 for mean in means)  # as the table shows it
    behind = [aim for aim, one in found.items() if one.mean < -one.error]
    where = f"At {_listed(page.code(behind))} it is" if behind else "At no aim is it"
    return (
        f"With {MODELS[model]}s, `aimfor.Loss` is ahead of log-loss at {ahead} of {len(means)} aims. The mean "
        f"differences over tables are {page.gained(min(means))} to {page.gained(max(means))}. {where} behind by more "
        "than a standard error."
    )


def section() -> str:
    """Mean ranks with the same budget."""
    first = {model: firsts(model, OURS) for model in MODELS}
    return "\n\n".join(
        [
            "## Is the loss better than its rivals?",
            f"With the same budget for everyone, `aimfor.Loss` comes first at {first['linear']} of {len(AIMS)} aims "
            f"with linear models and at {first['mlp']} with networks. Rank 1 is best. All methods have the same rows, "
            "models, steps and number of settings. [`methods.py`](../../benchmarks/rivals/methods.py) says how each "
            "rival is trained.",
            *map(over_log_loss, MODELS),
            rank_table("linear"),
            rank_table("mlp"),
            page.picture(NAME, "Mean ranks of all methods for each aim, with the critical difference"),
            details("linear"),
            details("mlp"),
            page.source(NAME),
        ]
    )


def budget_section() -> str:
    """Ways to use aimfor, each in the place of the bare loss."""
    return "\n\n".join(
        [
            "## Is it the aim, or is it the search?",
            "Each row takes the place of `aimfor.Loss` among the same rivals. Equal mean ranks share a "
            "place. The last two rows try more settings than the rivals.",
            place_table("linear"),
            place_table("mlp"),
            f"With networks and the larger budget, log-loss comes first at {firsts('mlp', LOG_LOSS)} of {len(AIMS)} "
            f"aims and `aimfor.Classifier` at {firsts('mlp', CLASSIFIER)}.",
            page.source(NAME, "suite"),
        ]
    )


@lru_cache(maxsize=1)
def model_rows() -> list[list[str]]:
    """Linear models, networks and boosted trees on the tables and splits that all of them have."""
    cells = page.committed(NAME)
    suite = page.committed("suite")
    trees = cells.find(stage="quality", method="LightGBM")
    networks = {(row["set"], row["split"]) for row in suite.find(model="mlp", method="aimfor", aim="aucpr")}
    boosted = {(row["set"], row["split"]) for row in trees if row["aim"] == "aucpr"}
    places = boosted & networks

    def mean(rows: list[dict[str, str]]) -> float:
        found: dict[str, list[float]] = {}
        for row in rows:
            if (row["set"], row["split"]) in places:
                found.setdefault(row["set"], []).append(float(row["test"]))
        return fmean(fmean(values) for values in found.values())

    lines = []
    for model, shown in (("linear", "linear"), ("mlp", "network")):
        for method, loss in (("log-loss", "log-loss"), ("aimfor", "`aimfor.Classifier`")):
            means = [mean(suite.find(model=model, method=method, aim=aim)) for aim in AIMS]
            lines.append([f"{shown}, {loss}", *(f"{one:.3f}" for one in means)])
    means = [mean([row for row in trees if row["aim"] == aim]) for aim in AIMS]
    return [*lines, ["LightGBM, log-loss", *(f"{one:.3f}" for one in means)]]


def trees_section() -> str:
    sets = len(by_set("mlp", "aimfor", "aucpr"))
    leads = {model: report.trees_lead(model) for model in MODELS}
    return "\n\n".join(
        [
            "## Are boosted trees better?",
            f"LightGBM with log-loss leads `aimfor.Loss` by {leads['linear'][0]:.2f} to "
            f"{leads['linear'][1]:.2f} with linear models and by {leads['mlp'][0]:.2f} to {leads['mlp'][1]:.2f} with "
            f"networks. The table has the means over {sets} tables with three splits each.",
            page.grid(["model, loss", *page.code(AIMS)], model_rows()),
            page.source(NAME, "suite"),
        ]
    )


def cost_section() -> str:
    rows = []
    for row in sorted(page.committed(NAME).find(stage="cost"), key=lambda row: float(row["time_ratio"] or "inf")):
        if row["time_ratio"]:
            method = "`aimfor.Loss`" if row["method"] == OURS else row["method"]
            peak = float(row["peak_mb"]) if row["peak_mb"] else None
            memory = "" if peak is None else "below 1" if peak < 1 else f"{peak:.0f}"
            rows.append([method, f"{float(row['time_ratio']):,.1f}", memory, row["lines"]])
    return "\n\n".join(
        [
            "## What do the rivals cost?",
            "One step of a linear model with 30 features and 256 rows, on one thread. Memory is the peak of a step "
            "with 4,096 rows. Lines are those a user writes "
            "([`snippets.py`](../../benchmarks/rivals/snippets.py)).",
            page.grid(["method", "times BCE", "peak memory, MB", "lines of code"], rows),
            page.source(NAME),
        ]
    )
