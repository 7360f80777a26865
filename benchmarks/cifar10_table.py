"""The CIFAR-10 table of the paper: each objective measured by every metric, beside softmax and pairwise AUCROC.

    python benchmarks/cifar10_table.py                       # resumes from results/cifar10_table.csv
    python benchmarks/cifar10_table.py --trunk-steps 200000  # the last layers on a trunk that is trained on
    python benchmarks/cifar10_table.py --end-to-end 200000   # the paper's own protocol: the whole network per objective
    python benchmarks/cifar10_table.py --quick               # some cells again, held to the committed ones
    python benchmarks/cifar10_table.py --report              # tables and plots from the CSV

Two models. `network`: the paper's network (cifar10_cnn.py), its trunk trained once with cross-entropy and frozen; the
last two layers are trained on per objective from there, cross-entropy too, for equal steps. `features`: frozen patch
features with a linear head from scratch.

Every objective is trained for the same steps with the same grid of settings. 45,000 of the training images train, 5,000
choose: for each column of the table, and for every row alike, the setting with the best mean of that column over the
seeds on the validation images. Test images are measured for all settings and choose nothing.

Scores are ranked in several ways. Pooled metrics put all (image, class) pairs in one ranking, as the paper does; they
need scores that compare between classes, which neither softmax logits nor one-vs-rest scores are made to do. So softmax
is ranked by logits and by probabilities, one-vs-rest by scores and by margins (the score less the threshold learned for
its class, for the area the mean of its thresholds), objectives on log-odds by those, which rank as probabilities do.
"""

import argparse
import functools
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aimfor
import cifar10_cnn as cnn
import data
import paper_common as paper
import remade
from aimfor.curves import Curve, cumulate
from common import RESULTS, Cells, Setting, Spread, spread, train_heads
from patch_features import DEFAULT_CACHE, load_features

CSV = RESULTS / "cifar10_table.csv"
CLASSES = 10
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SEEDS = (1, 2, 3)
STEPS = {"network": 2_000, "features": 10_000}
GRIDS = {
    "network": [Setting(rate, 0.0) for rate in (1e-4, 3e-4, 1e-3, 3e-3)],
    "features": [Setting(*pair) for pair in product((3e-3, 1e-2, 3e-2), (0.0, 0.03))],
}
AIMS = (
    "aucpr",
    "precision@recall>=0.7",
    "precision@recall>=0.9",
    "precision@recall>=0.95",
    "recall@precision>=0.7",
    "recall@precision>=0.9",
    "recall@precision>=0.95",
)
METRICS = ("aucpr", "p_at_r70", "p_at_r95", "r_at_p70", "r_at_p95")
RECALLS = np.linspace(0.02, 1.0, 50)
KEYS = ("model", "objective", "form", "ranked", "trunk_steps", "steps", "rate", "decay", "seed")


class Objective(nn.Module):
    """A loss for G heads: scores [B, G, 10] and classes [B] -> the sum of each head's own loss."""

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        """The ways to rank scores [n, G, 10] after training, by name."""
        raise NotImplementedError


class CrossEntropy(Objective):
    """Softmax log-loss."""

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        return scores.shape[1] * F.cross_entropy(scores.flatten(0, 1), classes.repeat_interleave(scores.shape[1]))

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        return {"logits": scores, "probabilities": log_odds(scores)}


class Pairwise(Objective):
    """`aimfor.pairwise_auc_loss` with the hinge, for exclusive classes.

    An image is a positive of one class only, so that B x B pairs of images hold all pairs of all classes.
    """

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        own = scores.gather(2, classes[:, None, None].expand(-1, scores.shape[1], 1))  # [B, G, 1]
        margins = own.squeeze(2).T - scores[:, :, classes]  # negative, head, positive
        positives = torch.bincount(classes, minlength=CLASSES)
        pairs = (positives * (len(classes) - positives)).clamp(min=1)
        weights = (classes[:, None] != classes) / (CLASSES * pairs[classes])
        return ((1 - margins).relu() * weights[:, None]).sum()

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        return {"scores": scores}


class OneVsRest(Objective):
    """An aim on the raw scores of each class against the rest."""

    def __init__(self, aim: str, heads: int, surrogate: str = "hinge"):
        super().__init__()
        self.heads, self.loss = heads, aimfor.Loss(aim, num_labels=heads * CLASSES, surrogate=surrogate)

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        labels = F.one_hot(classes, CLASSES)[:, None].expand_as(scores)
        return self.heads * self.loss(scores.flatten(1), labels.flatten(1))

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        return {"scores": scores, "margins": scores - self.loss.thresholds.mean(0).view(self.heads, CLASSES)}


class LogOdds(OneVsRest):
    """An aim on softmax log-odds; for one head it is `aimfor.Loss(aim, num_labels=10, multiclass=True)`."""

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        return super().forward(log_odds(scores), classes)

    def rankings(self, scores: Tensor) -> dict[str, Tensor]:
        return {"log-odds": log_odds(scores)}


def log_odds(scores: Tensor) -> Tensor:
    """Softmax log-odds along the last axis."""
    return aimfor.log_odds(scores.reshape(-1, CLASSES)).view_as(scores)


class Named(NamedTuple):
    """An objective by name: what it trains for, on which form of the scores, and how to make it for G heads."""

    objective: str
    form: str
    make: Callable[[int], Objective]


OBJECTIVES = [
    Named("cross-entropy", "softmax", lambda heads: CrossEntropy()),
    Named("aucroc", "pairwise", lambda heads: Pairwise()),
    *(Named(aim, "one-vs-rest", functools.partial(OneVsRest, aim)) for aim in AIMS),
    *(Named(aim, "log-odds", functools.partial(LogOdds, aim)) for aim in AIMS),
    # Beside the paper's hinge, as log-odds come with this bound in the other tables too.
    Named("aucpr, log surrogate", "log-odds", functools.partial(LogOdds, "aucpr", surrogate="log")),
]


class Held(NamedTuple):
    """Scores [n, G, 10] of images that were not trained on, and their classes [n]."""

    scores: Tensor
    classes: Tensor


class Model(NamedTuple):
    """What the objectives train: by (objective, settings, seed) to scores of the validation and the test images."""

    name: str
    trunk_steps: int
    train: Callable[[Objective, Sequence[Setting], int], tuple[Held, Held]]


def features_model(folder: Path, cache: Path) -> Model | None:
    """A linear head on patch features; None when CIFAR-10 is absent."""
    features = load_features(folder, cache)
    if features is None:
        return None
    order = cnn.split_rows(len(features.train))
    held_out, kept = order[: cnn.VALIDATION_ROWS], order[cnn.VALIDATION_ROWS :]
    train, classes = features.train[kept], features.train_classes[kept]
    validation, validation_classes = features.train[held_out], features.train_classes[held_out]

    def trained(objective: Objective, settings: Sequence[Setting], seed: int) -> tuple[Held, Held]:
        heads = train_heads(train, classes, objective, settings, num_labels=CLASSES, steps=STEPS["features"], seed=seed)
        validated = Held(heads.scores(validation), validation_classes)
        return validated, Held(heads.scores(features.test), features.test_classes)

    return Model("features", 0, trained)


def network_model(folder: Path, cache: Path, trunk_steps: int, only_cached: bool = False) -> Model | None:
    """The last layers on a trunk of so many steps; None when CIFAR-10, or with `only_cached` the trunk, is absent."""
    if only_cached and not (cache / f"cifar10_trunk_{trunk_steps}.pt").is_file():
        print(f"skipped the network: no trunk of {trunk_steps} steps in the cache (benchmarks/cifar10_cnn.py)")
        return None
    images = data.load_cifar10(folder)
    if images is None:
        return None
    split = cnn.split_images(images)
    network = cnn.trunk(split, trunk_steps, cache)
    features = cnn.trunk_features(network, split, trunk_steps, cache)

    def trained(objective: Objective, settings: Sequence[Setting], seed: int) -> tuple[Held, Held]:
        layers = cnn.train_last_layers(features, network, objective, settings, steps=STEPS["network"], seed=seed)
        validated = Held(layers.scores(features.validation), features.validation_classes)
        return validated, Held(layers.scores(features.test), features.test_classes)

    return Model("network", trunk_steps, trained)


class OneHead(nn.Module):
    """An objective for scores [B, 10]."""

    def __init__(self, objective: Objective):
        super().__init__()
        self.objective = objective

    def forward(self, scores: Tensor, classes: Tensor) -> Tensor:
        return self.objective(scores[:, None], classes)


def run_end_to_end(folder: Path, cache: Path, cells: Cells, steps: int) -> None:
    """The whole network trained per objective, one seed each; a run that is stopped goes on from its last state."""
    images = data.load_cifar10(folder)
    if images is None:
        return
    split = cnn.split_images(images)
    setting, seed = Setting(cnn.RATE, cnn.DENSE_DECAY), SEEDS[0]
    for named in OBJECTIVES:
        key = {"model": "end-to-end", "objective": named.objective, "form": named.form, "steps": steps, "seed": seed}
        if cells.find(**key):
            continue
        start, objective = time.perf_counter(), named.make(1)
        file = f"cifar10_{named.form}_{named.objective}_{seed}".replace(">=", "")
        network = cnn.train_network(split, OneHead(objective), steps, cache, file, seed=seed)
        validation = Held(cnn.scores_of(network, split.validation)[:, None], split.validation_classes)
        test = Held(cnn.scores_of(network, split.test)[:, None], split.test_classes)
        add(cells, key | {"trunk_steps": 0}, objective, [setting], validation, test, time.perf_counter() - start)


def run(model: Model, named: Named, cells: Cells, seed: int, grid: Sequence[Setting]) -> None:
    """Train the settings that are not finished side by side, and measure them."""
    key = {
        "model": model.name,
        "objective": named.objective,
        "form": named.form,
        "trunk_steps": model.trunk_steps,
        "steps": STEPS[model.name],
        "seed": seed,
    }
    missing = [setting for setting in grid if not cells.find(**key, **setting._asdict())]
    if not missing:
        return
    start, objective = time.perf_counter(), named.make(len(missing))
    with warnings.catch_warnings():
        # Settings that cannot meet a constraint are judged on the validation images, as all are.
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        validation, test = model.train(objective, missing, seed)
    seconds = time.perf_counter() - start
    add(cells, key, objective, missing, validation, test, seconds)
    print(f"{model.name}, seed {seed}: {named.objective} ({named.form}), {seconds:.0f} s", flush=True)


@torch.no_grad()
def add(
    cells: Cells,
    key: dict,
    objective: Objective,
    settings: Sequence[Setting],
    validation: Held,
    test: Held,
    seconds: float,
) -> None:
    """A cell for each setting and each way to rank."""
    chosen_by, told = (objective.rankings(held.scores.double()) for held in (validation, test))
    for ranked, (index, setting) in product(told, enumerate(settings)):
        validated = measure(chosen_by[ranked][:, index], validation.classes)
        tested = measure(told[ranked][:, index], test.classes)
        cells.add(
            **{name: (key | setting._asdict() | {"ranked": ranked})[name] for name in KEYS},
            **{f"validation_{name}": value for name, value in validated.rates.items()},
            **{f"test_{name}": value for name, value in tested.rates.items()},
            class_aucpr=_join(tested.class_aucpr),
            curve=_join(tested.curve),
            seconds=seconds,
        )


class Measured(NamedTuple):
    """Rates by name; AUCPR of each class; pooled precision at `RECALLS`, each the best with at least that recall."""

    rates: dict[str, float]
    class_aucpr: list[float]
    curve: list[float]


def measure(scores: Tensor, classes: Tensor) -> Measured:
    """All columns of scores [n, 10]: pooled, macro, accuracy. Scores are sorted once, as several metrics read them."""
    labels = F.one_hot(classes, CLASSES).bool().numpy()
    values = scores.numpy()
    pooled = curve_of(labels.ravel(), values.ravel())
    each = [rates_of(curve_of(labels[:, one], values[:, one])) for one in range(CLASSES)]
    macro = {f"macro_{name}": float(np.mean([rates[name] for rates in each])) for name in METRICS}
    accuracy = {"accuracy": float(np.mean(values.argmax(1) == classes.numpy()))}
    precisions = [precision_at_recall(pooled, recall) for recall in RECALLS]
    return Measured(rates_of(pooled) | macro | accuracy, [rates["aucpr"] for rates in each], precisions)


def curve_of(labels: np.ndarray, scores: np.ndarray) -> Curve:
    """Counts at every distinct score."""
    return cumulate(labels, scores, np.ones(len(scores)))


def rates_of(curve: Curve) -> dict[str, float]:
    """`METRICS` of a curve, as `aimfor.metrics` has them."""
    return {
        "aucpr": float(np.average(curve.precision, weights=curve.gained_tp)),
        "p_at_r70": precision_at_recall(curve, 0.7),
        "p_at_r95": precision_at_recall(curve, 0.95),
        "r_at_p70": recall_at_precision(curve, 0.7),
        "r_at_p95": recall_at_precision(curve, 0.95),
    }


def precision_at_recall(curve: Curve, recall: float) -> float:
    """The best precision with at least this recall; a recall met to rounding is met."""
    return float(curve.precision[curve.recall >= recall - 1e-9].max())


def recall_at_precision(curve: Curve, precision: float) -> float:
    """The best recall with at least this precision, 0 where no threshold has it."""
    return float(curve.recall[curve.precision >= precision - 1e-9].max(initial=0.0))


def _join(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


# Tables, pictures and the section, from the cells alone.


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
NOISE = 2  # standard errors


class Run(NamedTuple):
    """The finished cells of one model, at its longest training, and the seeds that all its lines have."""

    model: str
    rows: list[dict[str, str]]
    lines: list[Line]
    seeds: list[str]


def runs_of(cells: Cells) -> list[Run]:
    """The models that have cells of both softmax and an aim."""
    found = []
    for model in ("network", "features", "end-to-end"):
        rows = [row for row in cells.rows if row["model"] == model]
        longest = max(((int(row["trunk_steps"]), int(row["steps"])) for row in rows), default=(0, 0))
        rows = [row for row in rows if (int(row["trunk_steps"]), int(row["steps"])) == longest]
        seeds = {line: {row["seed"] for row in rows if line == _line(row)} for line in LINES}
        lines = [line for line in LINES if seeds[line]]
        if lines:
            found.append(Run(model, rows, lines, sorted(set.intersection(*(seeds[line] for line in lines)))))
    return [run for run in found if run.seeds]


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


def values_table(run: Run) -> paper.Table:
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
    return paper.Table(title, ["trained for", "as", *(SHOWN[column] for column in COLUMNS)], rows)


def gains_table(run: Run, prefix: str = "") -> paper.Table:
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
    return paper.Table(title, header, rows)


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
        paper.picture(CSV.stem, "Gain over softmax ranked by logits, per metric: the paper's, ours, and softmax's own"),
        *(part for run in runs for part in _parts_of(run)),
        paper.picture(f"{CSV.stem}_curve", "Precision by recall over all pairs of image and class"),
        paper.picture(f"{CSV.stem}_classes", "AUCPR of each class"),
        f"{paper.made_by(CSV.stem, cells)} As the runs recorded it: {_commands(cells)}.",
    ]
    return "\n\n".join(parts)


def _commands(cells: Cells) -> str:
    return "; ".join(f"`{command}`" for command in sorted({row["command"] for row in cells.rows}))


def _parts_of(run: Run) -> list[str]:
    return [
        f"### {run.model}",
        values_table(run).markdown(),
        gains_table(run).markdown(),
        f"{_rule(run)} Pooled metrics:",
        verdict(run),
        gains_table(run, "macro_").markdown(),
        classes_won(run),
        at_the_ends(run),
    ]


def _rule(run: Run) -> str:
    if len(run.seeds) == 1:
        return "One seed only, which has no standard error: every difference counts as a gap, whatever its size."
    shared = "the test images and the trunk" if run.model == "network" else "the test images"
    return (
        f"A gap counts when its mean is more than {NOISE} standard errors from 0, over {len(run.seeds)} seeds that "
        f"share {shared}: of other images they tell nothing."
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
    steps, trunk_steps = (int(run.rows[0][name]) for name in ("steps", "trunk_steps"))
    return {
        "network": f"The paper's network; trunk of {trunk_steps:,} steps with cross-entropy, then frozen; the last two "
        f"layers trained on from there for {steps:,} steps per objective, cross-entropy too. A trunk made for softmax "
        "may favour softmax.",
        "features": f"Frozen patch features, a linear head from scratch, {steps:,} steps.",
        "end-to-end": f"The paper's network, trained end to end for {steps:,} steps per objective.",
    }[run.model]


def report(cells: Cells) -> None:
    """Tables to the terminal, pictures beside the CSV."""
    runs = runs_of(cells)
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
    (LOGITS, "softmax by logits", paper.COLOURS[0], "-"),
    (PROBABILITIES, "softmax by probabilities", paper.COLOURS[2], "-"),
    (PAIRWISE, "pairwise AUCROC", paper.COLOURS[4], ":"),
    (Line("aucpr", "one-vs-rest", "scores"), "AUCPR one-vs-rest, by scores", paper.COLOURS[6], "--"),
    (Line("aucpr", "one-vs-rest", "margins"), "AUCPR one-vs-rest, by margins", paper.COLOURS[1], "-"),
    (Line("aucpr", "log-odds", "log-odds"), "AUCPR on log-odds", paper.COLOURS[3], "-."),
)


def draw_gains(runs: list[Run]) -> None:
    """Everything over softmax by logits, per metric: the paper's gain, ours, and softmax's own probabilities."""
    figure, panels = _panels(runs)
    for run, axes in zip(runs, panels, strict=True):
        bars = [
            ("the paper's", "#999999", [spread([PAPER[metric][1]]) for metric in METRICS]),
            (
                "softmax, only ranked by probabilities",
                paper.COLOURS[2],
                [gain(run, PROBABILITIES, LOGITS, metric) for metric in METRICS],
            ),
        ]
        for form, colour in zip(OURS, (paper.COLOURS[6], paper.COLOURS[1], paper.COLOURS[3]), strict=True):
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
    """1 or -1 where a difference is above or below 0 by more than the noise; one seed has no noise to tell."""
    error = NOISE * (0.0 if np.isnan(value.error) else value.error)
    return int(value.mean > error) - int(value.mean < -error)


def _list(metrics: Sequence[str], of: int) -> str:
    return f"{', '.join(SHOWN[metric] for metric in metrics) or 'none'} ({len(metrics)} of {of})"


def quick(folder: Path, cache: Path, committed: Cells) -> bool:
    """One seed of a few objectives again, all settings side by side as in the full run; true when as committed."""
    trunk_steps = max((int(row["trunk_steps"]) for row in committed.rows), default=cnn.TRUNK_STEPS)
    models = features_model(folder, cache), network_model(folder, cache, trunk_steps, only_cached=True)
    wanted = {
        "features": {("cross-entropy", "softmax"), ("aucpr", "log-odds")},
        "network": {("cross-entropy", "softmax"), ("aucpr", "one-vs-rest"), ("aucpr", "log-odds")},
    }
    with tempfile.TemporaryDirectory() as temporary:
        again = Cells(Path(temporary) / CSV.name)
        for model, named in product(models, OBJECTIVES):
            if model is not None and (named.objective, named.form) in wanted[model.name]:
                run(model, named, again, SEEDS[0], GRIDS[model.name])
    if not again.rows:
        return True  # nothing to hold to where there are no images
    columns = [f"test_{name}" for name in (*METRICS, "macro_aucpr", "accuracy")]
    # Rounding alone, one head trained apart from the others, moved a pooled metric of one-vs-rest scores by 0.006.
    return remade.told(remade.compare(committed, again, keys=KEYS, over="seed", measures=columns, floor=0.01))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of the cached features and networks")
    parser.add_argument("--trunk-steps", type=int, default=cnn.TRUNK_STEPS, help="of the network's shared trunk")
    parser.add_argument("--models", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--end-to-end", type=int, metavar="STEPS", help="train the whole network per objective instead")
    parser.add_argument("--quick", action="store_true", help="some cells again, held to the committed ones")
    parser.add_argument("--report", action="store_true", help="tables and plots from the CSV")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder, cells = data.data_folder(arguments.data), Cells(CSV)
    if arguments.quick:
        raise SystemExit(not quick(folder, arguments.cache, cells))
    if arguments.end_to_end:
        run_end_to_end(folder, arguments.cache, cells, arguments.end_to_end)
    elif not arguments.report:
        makers = {
            "features": lambda: features_model(folder, arguments.cache),
            "network": lambda: network_model(folder, arguments.cache, arguments.trunk_steps),
        }
        models = [makers[name]() for name in arguments.models]
        for seed, model, named in product(arguments.seeds, models, OBJECTIVES):
            if model is not None:
                run(model, named, cells, seed, GRIDS[model.name])
    report(cells)


if __name__ == "__main__":
    main()
