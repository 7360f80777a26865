"""The sections of docs/results/ about the default: beside LightGBM's search, beside AutoML, and what it costs."""

from benchmarks.shared import page
from benchmarks.shared.cells import Cells
from benchmarks.trees import automl, costs, default
from benchmarks.trees import default_report as report
from benchmarks.trees.default_report import AIMS, OURS, RIVALS, TREES


def default_section() -> str:
    cells = page.committed(default.NAME)
    parts = [
        "## Is the default as good as tuned LightGBM?",
        f"{verdict(cells)} Both train {default.FORESTS} forests with the same settings on the same training rows, "
        f"{_extent(cells)}. If these have at least 400 rows of each class, `Classifier` sets an eighth of them aside "
        "to choose forests. The chosen forests then train again on all of them. LightGBM keeps its single best forest, "
        "and both take thresholds from the same held-out rows. The difference is in the aim's exact metric on test "
        "rows, ours minus LightGBM's.",
        page.grid(["24 tables", *page.code(AIMS)], report.means(cells)),
    ]
    for ours in (OURS, TREES):
        for other, shown in RIVALS.items():
            table = page.grid(report.HEADER, report.differences(cells, ours, other))
            parts.append(f'`model="{ours}"` beside {shown}:\n\n{table}')
    return "\n\n".join([*parts, _meaning(cells), page.source(default.NAME)])


def readme_claim() -> str:
    """What README.md says of the default."""
    cells = page.committed(default.NAME)
    found = [report.compared(cells, aim, OURS, report.BY_METRIC).difference.mean for aim in AIMS]
    return (
        f"On {_extent(cells)}, it differs from LightGBM with as many forests by {page.gained(min(found))} to "
        f"{page.gained(max(found))}."
    )


def readme_automl_claim() -> str:
    """What README.md says of AutoGluon and CatBoost."""
    cells = page.committed(automl.NAME)
    leads = " and ".join(f"{page.gained(mean)} ({rival})" for rival, (mean, _, _) in automl.leads(cells).items())
    return f"On {len(automl.areas(cells))} small tables its average precision differs from theirs by {leads}."


def verdict(cells: Cells) -> str:
    """How many aims are ahead and behind, as a sentence."""
    found = {other: [report.compared(cells, aim, OURS, other) for aim in AIMS] for other in RIVALS}
    every = [one for own in found.values() for one in own]
    level = all(one.difference.mean >= -one.difference.error for one in every)
    told = ["On average the default does not fall behind." if level else "The default falls behind at some aims."]
    for other, shown in RIVALS.items():
        ratios = [one.difference.mean / one.difference.error for one in found[other]]
        ahead, behind = sum(one > 2 for one in ratios), sum(one < -1 for one in ratios)
        told.append(f"Against {shown} it is ahead at {ahead} of {len(AIMS)} aims and behind at {behind}.")
        lost = [f"{name} at `{aim}`" for aim, one in zip(AIMS, found[other], strict=True) for name in one.lost]
        told += [f"It loses {', '.join(lost)} after Holm's correction."] if lost else []
    return " ".join(told)


def _extent(cells: Cells) -> str:
    done = report.splits(cells)
    least, most = min(done.values()), max(done.values())
    splits = f"{least} to {most} splits" if least < most else "one split" if most == 1 else f"{most} splits"
    return f"{len(done)} tables with {splits} each"


def _meaning(cells: Cells) -> str:
    few = min(report.splits(cells).values()) < 2
    test = " It needs two splits of a table." if few else ""
    return (
        "Ahead means by more than two standard errors over tables, behind by more than one. A table counts as even "
        f"where the difference is at most {report.EVEN}. Lost after Holm: by the corrected resampled t-test at level "
        f"0.05, over all tables of an aim.{test}"
    )


def share_section() -> str:
    cells = page.committed(default.NAME)
    kept = report.choices(cells)
    total = sum(kept.values())
    most, count = next(iter(kept.items()))
    return "\n\n".join(
        [
            "## What does the average across kinds add?",
            "The default averages trees and a network three to one. The table has each alternative minus the trees "
            f"of the same fit, means over tables. The default kept the {_named(most)} in {count} of {total} fits.",
            page.grid(["kept instead of the trees", *page.code(AIMS)], report.option_rows(cells)),
            "How often each was kept: " + ", ".join(f"{_named(name)} {number}" for name, number in kept.items()) + ".",
            "How often the constraint holds on test rows, at the threshold from held-out rows:",
            page.grid(
                ["aim", '`model="auto"`', '`model="trees"`', "LightGBM by metric", "LightGBM by log-loss"],
                report.held(cells, (OURS, TREES, *RIVALS)),
            ),
            page.source(default.NAME),
        ]
    )


def _named(kept: str) -> str:
    return kept.replace("trees, mlp", "trees and network").replace("mlp", "network")


def automl_section() -> str:
    cells = page.committed(automl.NAME)
    sets = len(automl.areas(cells))
    told = [
        f"Its mean difference to {rival} is {page.gained(mean)} ± {error:.3f}, and it is ahead on {ahead} of {sets} "
        "tables."
        for rival, (mean, error, ahead) in automl.leads(cells).items()
    ]
    return "\n\n".join(
        [
            "## How does it compare with AutoGluon and CatBoost?",
            f"`aimfor.Classifier` is at its defaults for `aucpr`. {' '.join(told)} The table has average precision on "
            f"test rows of one split. Each method may take {automl.SECONDS} seconds of one core. AutoGluon has its "
            "preset of medium quality without neural networks, which need torch there. CatBoost has its defaults. Ours "
            "trains on at most four fifths of the rows, because the remaining rows choose the model and its threshold.",
            automl.grid(cells),
            "Seconds of one core that each took:",
            automl.times(cells),
            "Command: `python -m benchmarks.trees.automl --rivals PYTHON`. Numbers: "
            "[trees_automl.csv](../../benchmarks/results/trees_automl.csv).",
        ]
    )


def cost_section() -> str:
    cells = page.committed(costs.NAME)
    return "\n\n".join(
        [
            "## What do trees and the default cost?",
            "A fit on one core, with everything it does, beside a bare LightGBM search of as many forests with the "
            f"same settings. {costs.forests_told(cells)} Seconds are those of the processor. Memory is what the fit "
            "takes beyond its rows.",
            costs.table(cells),
            page.source(costs.NAME),
        ]
    )
