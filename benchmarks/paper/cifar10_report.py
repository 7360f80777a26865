"""What the cells of the CIFAR-10 table say: values, gains as the paper shows them, pictures; from the CSV alone."""

from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks.paper.cifar10_objectives import CLASSES, OBJECTIVES
from benchmarks.shared import page
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.spread import Spread, spread

CSV = RESULTS / "cifar10_table.csv"
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
METRICS = ("aucpr", "p_at_r70", "p_at_r95", "r_at_p70", "r_at_p95")
RECALLS = np.linspace(0.02, 1.0, 50)


class Line(NamedTuple):
    """A row of the table: an objective, on a form of the scores, ranked in one way."""

    objective: str
    form: str
    ranked: str


WAYS = {
    "softmax": ("logits", "probabilities"),
    "pairwise": ("scores",),
    "one-vs-rest": ("scores", "margins"),
    "log-odds": ("log-odds",),
}
LINES = [Line(named.objective, named.form, way) for named in OBJECTIVES for way in WAYS[named.form]]
LOGITS, PROBABILITIES, PAIRWISE = LINES[:3]
OURS = (("one-vs-rest", "scores"), ("one-vs-rest", "margins"), ("log-odds", "log-odds"))
COLUMNS = ("aucpr", "macro_aucpr", "p_at_r70", "p_at_r95", "r_at_p70", "r_at_p95", "accuracy")
SHOWN = {
    "aucpr": "AUCPR",
    "macro_aucpr": "macro AUCPR",
    "p_at_r70": "P@R70",
    "p_at_r95": "P@R95",
    "r_at_p70": "R@P70",
    "r_at_p95": "R@P95",
    "accuracy": "accuracy",
}
AIMED = dict(
    zip(
        METRICS,
        (
            "aucpr",
            "precision@recall>=0.7",
            "precision@recall>=0.95",
            "recall@precision>=0.7",
            "recall@precision>=0.95",
        ),
        strict=True,
    )
)
# The paper's table of gains, in points: over pairwise AUCROC, over softmax.
PAPER = dict(zip(METRICS, ((0.0, 9.6), (0.2, 13.5), (0.8, 24.1), (-0.2, 12.7), (1.9, 36.6)), strict=True))


class Run(NamedTuple):
    """The finished cells of one model at one length of training, and the seeds that all its lines have."""

    model: str
    trunk_steps: int
    steps: int
    rows: list[dict[str, str]]
    lines: list[Line]
    seeds: list[str]


def runs_of(cells: Cells) -> list[Run]:
    """Every model at every length that has cells of both softmax and an aim, the longest of a model first."""
    found = []
    for model in ("network", "features", "end-to-end"):
        own = [row for row in cells.rows if row["model"] == model]
        for trunk_steps, steps in sorted({(int(row["trunk_steps"]), int(row["steps"])) for row in own}, reverse=True):
            rows = [row for row in own if (int(row["trunk_steps"]), int(row["steps"])) == (trunk_steps, steps)]
            seeds = {line: {row["seed"] for row in rows if line == _line(row)} for line in LINES}
            lines = [line for line in LINES if seeds[line]]
            if {LOGITS, PROBABILITIES, PAIRWISE} < set(lines):
                shared = sorted(set.intersection(*(seeds[line] for line in lines)))
                found.append(Run(model, trunk_steps, steps, rows, lines, shared))
    return [run for run in found if run.seeds]


def longest(runs: list[Run]) -> list[Run]:
    """Of each model the run that is shown in full."""
    return [run for place, run in enumerate(runs) if run.model not in {other.model for other in runs[:place]}]


def chosen(run: Run, line: Line, column: str) -> list[dict[str, str]]:
    """The cells of a line, one per seed, at the setting whose column is best on the validation images."""
    rows = [row for row in run.rows if _line(row) == line and row["seed"] in run.seeds]
    settings = sorted({(row["rate"], row["decay"]) for row in rows})
    groups = [[row for row in rows if (row["rate"], row["decay"]) == setting] for setting in settings]
    best = max(groups, key=lambda group: np.mean([float(row[f"validation_{column}"]) for row in group]))
    return sorted(best, key=lambda row: row["seed"])


def tested(run: Run, line: Line, column: str) -> list[float]:
    """A column of a line on the test images, seed by seed."""
    return [float(row[f"test_{column}"]) for row in chosen(run, line, column)]


def gain(run: Run, ours: Line, theirs: Line, column: str) -> Spread:
    """Ours less theirs in points, seed by seed; each at the setting it chose for the column."""
    pairs = zip(tested(run, ours, column), tested(run, theirs, column), strict=True)
    return spread(100 * (one - other) for one, other in pairs)


def values_table(run: Run) -> page.Table:
    """Every line by every column."""
    found = {line: [spread(tested(run, line, column)) for column in COLUMNS] for line in run.lines}
    best = [max(values[place].mean for values in found.values()) for place in range(len(COLUMNS))]
    rows = [
        [
            line.objective,
            _how(line),
            *(_value(one, one.mean == top) for one, top in zip(values, best, strict=True)),
        ]
        for line, values in found.items()
    ]
    title = f"{describe(run)} Test images, mean and standard deviation over seeds. The best of each column is bold"
    return page.Table(title, ["trained for", "as", *(SHOWN[column] for column in COLUMNS)], rows)


def gains_table(run: Run, prefix: str = "") -> page.Table:
    """The paper's form: what training for a metric gains in it over each baseline, in points."""
    rows = []
    # Within a class margins rank as scores do.
    forms = [form for form in OURS if not prefix or form[1] != "margins"]
    for metric, form in product(METRICS, forms):
        line, column = Line(AIMED[metric], *form), prefix + metric
        if line in run.lines:
            rows.append(
                [
                    f"{SHOWN[metric]}, {_how(line)}",
                    *([] if prefix else [f"{PAPER[metric][0]:+.1f}"]),
                    _gain(run, line, PAIRWISE, column),
                    *([] if prefix else [f"{PAPER[metric][1]:+.1f}"]),
                    _gain(run, line, LOGITS, column),
                    _gain(run, PROBABILITIES, LOGITS, column),
                    _gain(run, line, PROBABILITIES, column),
                ]
            )
    header = [
        "metric and form",
        *([] if prefix else ["paper: over AUCROC"]),
        "over AUCROC",
        *([] if prefix else ["paper: over softmax"]),
        "over softmax by logits",
        "softmax by probabilities over by logits",
        "over softmax by probabilities",
    ]
    how = "the mean over classes of each class's own" if prefix else "all (image, class) pairs in one ranking"
    title = f"{run.model}, {how}: gain when trained for the metric, in points, with its standard error over seeds"
    return page.Table(title, header, rows)


def describe(run: Run) -> str:
    """What was trained, for how long."""
    return {
        "network": f"The paper's network. Its trunk has {run.trunk_steps:,} steps of cross-entropy and is then frozen. "
        f"The last two layers are trained for {run.steps:,} further steps per objective.",
        "features": f"Frozen patch features, a linear head from scratch, {run.steps:,} steps.",
        "end-to-end": f"The paper's network, trained end to end for {run.steps:,} steps per objective.",
    }[run.model]


def report(cells: Cells) -> None:
    """Tables to the terminal, pictures beside the CSV."""
    runs = longest(runs_of(cells))
    for run in runs:
        values_table(run).show()
        gains_table(run).show()
        gains_table(run, "macro_").show()
    if runs:
        draw_gains(runs)
        draw_curves(runs)
        draw_classes(runs)


DRAWN = (
    (LOGITS, "softmax by logits", page.COLOURS[0], "-"),
    (PROBABILITIES, "softmax by probabilities", page.COLOURS[2], "-"),
    (PAIRWISE, "pairwise AUCROC", page.COLOURS[4], ":"),
    (Line("aucpr", "one-vs-rest", "scores"), "AUCPR one-vs-rest, by scores", page.COLOURS[6], "--"),
    (Line("aucpr", "one-vs-rest", "margins"), "AUCPR one-vs-rest, by margins", page.COLOURS[1], "-"),
    (Line("aucpr", "log-odds", "log-odds"), "AUCPR on log-odds", page.COLOURS[3], "-."),
)


def draw_gains(runs: list[Run]) -> None:
    """Everything over softmax by logits, per metric: the paper's gain, ours, and softmax's own probabilities."""
    figure, panels = _panels(runs)
    for run, axes in zip(runs, panels, strict=True):
        bars = [
            ("the paper's", "#999999", [spread([PAPER[metric][1]]) for metric in METRICS]),
            (
                "softmax, only ranked by probabilities",
                page.COLOURS[2],
                [gain(run, PROBABILITIES, LOGITS, metric) for metric in METRICS],
            ),
        ]
        for form, colour in zip(OURS, (page.COLOURS[6], page.COLOURS[1], page.COLOURS[3]), strict=True):
            lines = [Line(AIMED[metric], *form) for metric in METRICS]
            if all(line in run.lines for line in lines):
                found = [gain(run, line, LOGITS, metric) for line, metric in zip(lines, METRICS, strict=True)]
                bars.append((f"trained for the metric, {_how(lines[0])}", colour, found))
        for place, (name, colour, found) in enumerate(bars):
            x = np.arange(len(METRICS)) + (place - (len(bars) - 1) / 2) * 0.8 / len(bars)
            errors = np.nan_to_num([one.error for one in found])
            axes.bar(x, [one.mean for one in found], 0.8 / len(bars), yerr=errors, color=colour, label=name, ecolor="k")
        axes.axhline(0, color="k", linewidth=0.8)
        axes.set(xticks=range(len(METRICS)), xticklabels=[SHOWN[metric] for metric in METRICS])
        axes.set(ylabel="gain over softmax ranked by logits, points")
        axes.set_title(run.model, loc="left")
    _save(figure, panels[0], "The gain over softmax by logits, and how much of it softmax has by probabilities", "")


def draw_curves(runs: list[Run]) -> None:
    """The aggregate precision-recall curve of the paper's figure, mean over seeds."""
    figure, panels = _panels(runs)
    for run, axes in zip(runs, panels, strict=True):
        for line, name, colour, style in DRAWN:
            if line in run.lines:
                curves = [[float(one) for one in row["curve"].split()] for row in chosen(run, line, "aucpr")]
                axes.plot(RECALLS, np.mean(curves, axis=0), style, color=colour, label=name)
        axes.set(xlabel="recall over all (image, class) pairs", ylabel="precision (best with at least that recall)")
        axes.set(xlim=(0, 1), ylim=(0, 1.01))
        axes.grid(alpha=0.3)
        axes.set_title(run.model, loc="left")
    _save(
        figure,
        panels[0],
        "Pooled precision and recall: the same softmax ranked in two ways, beside training for AUCPR",
        "_curve",
    )


def draw_classes(runs: list[Run]) -> None:
    """The bars of the paper's figure: AUCPR of each class, mean over seeds."""
    figure, panels = _panels(runs)
    drawn = [one for one in DRAWN if one[0].ranked != "margins"]
    for run, axes in zip(runs, panels, strict=True):
        for place, (line, name, colour, _) in enumerate(drawn):
            if line in run.lines:
                x = np.arange(CLASSES) + (place - (len(drawn) - 1) / 2) * 0.16
                axes.bar(x, class_areas(run, line), 0.16, color=colour, label=name.removesuffix(", by scores"))
        axes.set(xticks=range(CLASSES), ylabel="AUCPR of the class", ylim=(0, 1))
        axes.set_xticklabels(NAMES, rotation=40, ha="right")
        axes.set_title(run.model, loc="left")
    _save(figure, panels[0], "AUCPR of each class against the rest", "_classes")


def class_areas(run: Run, line: Line) -> np.ndarray:
    """AUCPR of each class, mean over seeds."""
    rows = chosen(run, line, "macro_aucpr")
    return np.mean([[float(one) for one in row["class_aucpr"].split()] for row in rows], axis=0)


def _panels(runs: list[Run]):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 * len(runs), 4.8), dpi=120, layout="constrained")
    return figure, figure.subplots(1, len(runs), squeeze=False)[0]


def _save(figure, axes, title: str, suffix: str) -> None:
    figure.suptitle(title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(RESULTS / f"{CSV.stem}{suffix}.png")


def _line(row: dict[str, str]) -> Line:
    return Line(row["objective"], row["form"], row["ranked"])


def _how(line: Line) -> str:
    return line.form if line.form == line.ranked else f"{line.form}, by {line.ranked}"


def _value(value: Spread, best: bool) -> str:
    text = f"{value.mean:.3f}"
    return (f"**{text}**" if best else text) + ("" if np.isnan(value.deviation) else f" ± {value.deviation:.3f}")


def _gain(run: Run, ours: Line, theirs: Line, column: str) -> str:
    if ours not in run.lines or theirs not in run.lines:
        return ""
    value = gain(run, ours, theirs, column)
    return f"{value.mean:+.1f}" + ("" if np.isnan(value.error) else f" ± {value.error:.1f}")
