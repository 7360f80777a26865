"""The page of docs/results/ on many rare labels, from its CSV file alone."""

from itertools import product
from statistics import fmean

from benchmarks.long_tail.long_tail import AIMS, BASELINE, EMBEDDED, METHODS, MODELS, NAME, OURS, RIVALS, TABLES
from benchmarks.shared import page
from benchmarks.shared.spread import Spread, spread

KINDS = {"embeddings": EMBEDDED, "tables": TABLES}
SHOWN = {"linear": "linear head", "mlp": "hidden layer"}
POINT = "recall@precision>=0.7"


def names(kind: str, model: str) -> list[str]:
    """The sets of a kind that have finished cells."""
    return [name for name in KINDS[kind] if page.committed(NAME).find(set=name, model=model, method=OURS)]


def mean(name: str, model: str, method: str, aim: str, measure: str = "test") -> float:
    """Of a set, over its splits."""
    return fmean(page.values(page.committed(NAME).find(set=name, model=model, method=method, aim=aim), measure))


def over_sets(kind: str, model: str, method: str, aim: str, measure: str = "test") -> Spread:
    return spread(mean(name, model, method, aim, measure) for name in names(kind, model))


def gain(kind: str, model: str, method: str, aim: str, measure: str = "test") -> Spread:
    """Minus log-loss, mean over sets."""
    return spread(
        mean(name, model, method, aim, measure) - mean(name, model, BASELINE, aim, measure)
        for name in names(kind, model)
    )


def called(method: str) -> str:
    return "`aimfor.Loss`" if method == OURS else method


def gain_table(kind: str, model: str) -> str:
    """Every method minus log-loss, mean over sets, for all labels and the rare ones at the point."""
    rows = []
    for method in (*RIVALS, OURS):
        shown = [page.signed(gain(kind, model, method, aim), 3) for aim in AIMS]
        rare = page.signed(gain(kind, model, method, POINT, "test_rare"), 3)
        rows.append([called(method), *shown, rare])
    count = len(names(kind, model))
    header = [f"{kind} ({count}), {SHOWN[model]}", *page.code(AIMS), f"rare labels, `{POINT}`"]
    return page.grid(header, rows)


def set_table(model: str, aim: str) -> str:
    """Every method on every set."""
    shown = [name for kind in KINDS for name in names(kind, model)]
    best = {name: max(mean(name, model, method, aim) for method in METHODS) for name in shown}

    def cell(name: str, method: str) -> str:
        value = mean(name, model, method, aim)
        return f"**{value:.3f}**" if value == best[name] else f"{value:.3f}"

    rows = [[name.replace("_embedded", ", embedded"), *(cell(name, method) for method in METHODS)] for name in shown]
    return page.grid([f"`{aim}`, {SHOWN[model]}", *map(called, METHODS)], rows)


def first(model: str) -> str:
    """Where the bare loss stands at its point on embeddings, as a sentence."""
    values = {method: over_sets("embeddings", model, method, POINT).mean for method in METHODS}
    rival = max(RIVALS, key=lambda method: values[method])
    return (
        f"With a {SHOWN[model]} on embeddings, `aimfor.Loss` has a mean recall at precision 0.7 of {values[OURS]:.3f}, "
        f"log-loss of {values[BASELINE]:.3f}, and the best rival, {rival}, of {values[rival]:.3f}."
    )


def by_set() -> str:
    """On which embeddings the bare loss is ahead of everything at its point, as a sentence."""
    shown = names("embeddings", "linear")
    values = {name: {method: mean(name, "linear", method, POINT) for method in METHODS} for name in shown}
    ahead = [name for name, one in values.items() if one[OURS] > max(one[other] for other in METHODS if other != OURS)]
    behind = [name for name, one in values.items() if one[OURS] < one[BASELINE]]
    listed = [" and ".join(name.removesuffix("_embedded") for name in part) or "none" for part in (ahead, behind)]
    return f"It is ahead of all others on {listed[0]}, and behind log-loss on {listed[1]}."


def over_all() -> str:
    """How the bare loss compares with log-loss over all sets with linear heads, as a sentence."""
    found = {
        aim: spread(
            mean(name, "linear", OURS, aim) - mean(name, "linear", BASELINE, aim)
            for kind in KINDS
            for name in names(kind, "linear")
        )
        for aim in AIMS
    }
    listed = ", ".join(f"{page.signed(one, 3)} at `{aim}`" for aim, one in found.items())
    return f"Over all {found[POINT].count} sets, its mean difference to log-loss is {listed}."


def section() -> str:
    finished = {kind: [model for model in MODELS if names(kind, model)] for kind in KINDS}
    return "\n\n".join(
        [
            "## Does it help labels that are rare?",
            " ".join([*(first(model) for model in finished["embeddings"]), by_set(), over_all()]),
            "Each number is the mean over labels of the aim's exact metric on test rows. Every method has the same six "
            "settings of rate and decay. Rare labels are the third with the fewest positives. The tables show each "
            "method minus log-loss, the mean over sets ± its standard error.",
            *(gain_table(kind, model) for kind in KINDS for model in finished[kind]),
            page.fold(
                "Every set",
                *(set_table(model, aim) for model, aim in product(MODELS, AIMS) if names("embeddings", model)),
            ),
            "The embeddings are those of a small sentence encoder, "
            "[`embed.py`](../../benchmarks/embeddings/embed.py). [`losses.py`](../../benchmarks/long_tail/losses.py) "
            "has the rivals, with the settings of their authors.",
            page.source(NAME),
        ]
    )
