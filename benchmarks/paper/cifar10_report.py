"""What the cells of the CIFAR-10 table say: values, gains as the paper shows them, pictures; from the CSV alone."""

import functools
from collections.abc import Sequence
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
    title = f"{describe(run)} Test images, mean and standard deviation over seeds; the best of each column is bold"
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


def verdict(run: Run) -> str:
    """Which of the paper's gaps are there, by a rule: a gap is there when it is above 0 by more than the noise."""
    told = []
    for form in OURS:
        lines = {metric: Line(AIMED[metric], *form) for metric in METRICS}
        lines = {metric: line for metric, line in lines.items() if line in run.lines}
        if lines:
            told.append(_verdict_of_form(run, lines))
    return "\n".join(told)


def _verdict_of_form(run: Run, lines: dict[str, Line]) -> str:
    over = {
        name: {metric: gain(run, line, theirs, metric) for metric, line in lines.items()}
        for name, theirs in (("logits", LOGITS), ("probabilities", PROBABILITIES), ("pairs", PAIRWISE))
    }
    above = {name: [one for one in found if _sign(found[one]) > 0] for name, found in over.items()}
    below = {name: [one for one in found if _sign(found[one]) < 0] for name, found in over.items()}
    by_ranking = [one for one in above["logits"] if one not in above["probabilities"]]
    shown = functools.partial(_list, of=len(lines))
    return (
        f"- {_how(next(iter(lines.values())))}: the gap over softmax by logits is there in {shown(above['logits'])}. "
        f"It stays against the probabilities of the same softmax in {shown(above['probabilities'])}; it came from "
        f"ranking by logits in {shown(by_ranking)}. Below softmax by probabilities in {shown(below['probabilities'])}. "
        f"Over pairwise AUCROC: above in {shown(above['pairs'])}, below in {shown(below['pairs'])}."
    )


def own_aim(run: Run) -> str:
    """Whether training for a metric beats training for the whole area, in that metric."""
    over = {
        f"{SHOWN[metric]}, {_how(Line(AIMED[metric], *form))}": gain(
            run, Line(AIMED[metric], *form), Line("aucpr", *form), metric
        )
        for metric, form in product(METRICS[1:], OURS)
        if {Line(AIMED[metric], *form), Line("aucpr", *form)} <= set(run.lines)
    }
    above, below = ([name for name, one in over.items() if _sign(one) == sign] for sign in (1, -1))
    worst, best = (pick(over, key=lambda name: over[name].mean) for pick in (min, max))
    return (
        "Trained for its own precision or recall instead of for AUCPR, a line is better in that column in "
        f"{len(above)} of {len(over)} cases and worse in {len(below)}: from {over[worst].mean:+.1f} points ({worst}) "
        f"to {over[best].mean:+.1f} ({best})."
    )


def section() -> str:
    """The section of the page, from the cells alone."""
    cells = Cells(CSV)
    runs = runs_of(cells)
    parts = [
        "## CIFAR-10, the paper's table",
        "The paper reports what training for a metric gains in it over pairwise AUCROC and over softmax, with one "
        "network trained end to end per objective for 200,000 steps. In its source the two models have the same "
        "accuracy, 87.2 and 87.1 %, while their AUCPR is 94.2 and 84.6 %: a difference between rankings of all "
        "(image, class) pairs rather than between classifiers. Softmax logits are not made to be compared between "
        "images, its probabilities are; the paper does not say by which it ranked, so both are here. Settings are "
        "chosen per line and column on 5,000 validation images from the same grid. Aims use the hinge where nothing "
        "else is said.",
        page.picture(CSV.stem, "Gain over softmax ranked by logits, per metric: the paper's, ours, and softmax's own"),
        *(part for run in runs for part in (_parts_of(run, runs) if run in longest(runs) else _briefly(run))),
        page.picture(f"{CSV.stem}_curve", "Precision by recall over all pairs of image and class"),
        page.picture(f"{CSV.stem}_classes", "AUCPR of each class"),
        f"{page.made_by(CSV.stem, cells)} As the runs recorded it: {_commands(cells)}.",
    ]
    return "\n\n".join(parts)


def _commands(cells: Cells) -> str:
    return "; ".join(f"`{command}`" for command in sorted({row["command"] for row in cells.rows}))


def _parts_of(run: Run, runs: list[Run]) -> list[str]:
    shorter = [one for one in runs if one.model == run.model and one.trunk_steps == run.trunk_steps and one is not run]
    return [
        f"### {run.model}",
        values_table(run).markdown(),
        gains_table(run).markdown(),
        f"{_rule(run)} Pooled metrics:",
        verdict(run),
        own_aim(run),
        gains_table(run, "macro_").markdown(),
        classes_won(run),
        at_the_ends(run),
        *(what_steps_add(run, one) for one in shorter[:1]),
    ]


def what_steps_add(run: Run, shorter: Run) -> str:
    """How far from converged the shorter run was, line by line of those that are drawn, in points."""

    def added(line: Line, column: str) -> str:
        before, after = (100 * np.mean(tested(one, line, column)) for one in (shorter, run))
        return f"{after - before:+.1f} of {SHOWN[column]}"

    told = [
        f"{name} {', '.join(added(line, column) for column in ('aucpr', 'r_at_p95', 'accuracy'))}"
        for line, name, *_ in DRAWN
        if line in run.lines and line in shorter.lines
    ]
    left_out = dict.fromkeys(line.objective for line in shorter.lines if line not in run.lines)
    only = f" Trained for {shorter.steps:,} steps only: {', '.join(left_out)}." if left_out else ""
    return f"From {shorter.steps:,} to {run.steps:,} steps, in points: {'; '.join(told)}.{only}"


def _briefly(run: Run) -> list[str]:
    """A run of fewer steps: which gaps it has."""
    return [f"{describe(run)} {_rule(run)} Pooled metrics:", verdict(run)]


def _rule(run: Run) -> str:
    if len(run.seeds) == 1:
        return "One seed only, which has no standard error: every difference counts as a gap, whatever its size."
    shared = "the test images and the trunk" if run.model == "network" else "the test images"
    return (
        f"A gap counts when its mean is clear of 0 by Student's t, level 0.05, over {len(run.seeds)} seeds that share "
        f"{shared}: of other images they tell nothing."
    )


def at_the_ends(run: Run) -> str:
    """How often the best rate was the smallest or the largest of the grid, where a wider grid might do better."""
    rates = sorted({float(row["rate"]) for row in run.rows})
    chose = {
        who: [
            float(chosen(run, line, column)[0]["rate"])
            for line, column in product(run.lines, COLUMNS)
            if (line.form == "softmax") == (who == "softmax")
        ]
        for who in ("softmax", "the other lines")
    }
    told = "; ".join(
        f"{who} chose the smallest {found.count(rates[0])} times and the largest {found.count(rates[-1])} times of "
        f"{len(found)}"
        for who, found in chose.items()
    )
    return f"Of the rates {', '.join(f'{rate:g}' for rate in rates)}: {told}."


def describe(run: Run) -> str:
    """What was trained, for how long."""
    return {
        "network": f"The paper's network; trunk of {run.trunk_steps:,} steps with cross-entropy, then frozen; the last "
        f"two layers trained on from there for {run.steps:,} steps per objective, cross-entropy too. A trunk made for "
        "softmax may favour softmax.",
        "features": f"Frozen patch features, a linear head from scratch, {run.steps:,} steps.",
        "end-to-end": f"The paper's network, trained end to end for {run.steps:,} steps per objective.",
    }[run.model]


def report(cells: Cells) -> None:
    """Tables to the terminal, pictures beside the CSV."""
    runs = longest(runs_of(cells))
    for run in runs:
        values_table(run).show()
        gains_table(run).show()
        print(f"\n{verdict(run)}")
        gains_table(run, "macro_").show()
        print(f"\n{classes_won(run)}\n{at_the_ends(run)}")
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


def classes_won(run: Run) -> str:
    """In how many classes training for AUCPR is above softmax, as in the paper's figure."""
    told = [
        f"{_how(ours)} in {np.sum(class_areas(run, ours) > class_areas(run, theirs))} over {_how(theirs)}"
        for ours, theirs in product(
            (one[0] for one in DRAWN[3:] if one[0].ranked != "margins"), (LOGITS, PROBABILITIES)
        )
        if ours in run.lines
    ]
    return f"Of {CLASSES} classes, the AUCPR of the class is higher when trained for it: {'; '.join(told)}."


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


def _sign(value: Spread) -> int:
    """1 or -1 where a difference is clear of 0; one seed has no noise to tell."""
    return value.sign if value.count > 1 else int(np.sign(value.mean))


def _list(metrics: Sequence[str], of: int) -> str:
    return f"{', '.join(SHOWN[metric] for metric in metrics) or 'none'} ({len(metrics)} of {of})"
