"""The demo: log-loss and aimfor on two small problems, measured on rows that neither has seen.

Both sides have the same linear model, batches, optimiser and number of steps; the loss is all that differs. It needs
the extras `cli`, `report` and `sklearn`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from aimfor import metrics
from aimfor._base.warnings import InfeasibleConstraintWarning
from aimfor.loss import Loss
from aimfor.metrics import cumulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

TARGET = 0.95
STEPS_OF_LINES = 1000
STEPS_OF_DIGITS = 2000
NUM_SPLITS = 10
DECAYS = (3e-4, 3e-3, 3e-2)
TRAINING, VALIDATION, HELD_OUT = range(3)
COLOURS = {"log-loss": "#4a4a4a", "aimfor": "#0a8f4f", "positive": "#d1495b", "negative": "#8fb3d9"}

TrainingLoss = Callable[..., Tensor]


class DemoRows(NamedTuple):
    """A data set: features `[n, d]` and labels `[n]`, 0 or 1."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]


class Line(NamedTuple):
    """A trained line through Figure 1, its thresholds chosen on the training rows, and what it is worth held out."""

    weights: NDArray[np.float32]
    accurate_threshold: float
    threshold: float
    accuracy: float
    precision_at_recall: float
    precision: float
    recall: float


class Ranking(NamedTuple):
    """One split of the digits: held-out labels, scores, and decisions at the threshold chosen on validation rows."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float32]
    decisions: NDArray[np.bool_]


def run(folder: Path, seed: int = 0) -> Path:
    """Train both losses on both problems, print two tables, and write one picture.

    Args:
        folder: where the picture goes; made when absent.
        seed: of the data, the splits and the models.

    Returns:
        Path of the picture.
    """
    needed = {"rich": "rich", "matplotlib": "matplotlib", "sklearn": "scikit-learn"}
    missing = [name for module, name in needed.items() if find_spec(module) is None]
    if missing:
        raise ModuleNotFoundError(f"the demo needs {', '.join(missing)}: pip install 'aimfor[cli,report,sklearn]'")
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    held_out = figure_1(2000, 2 * seed + 1)
    for_lines = {"log-loss": log_loss, "aimfor": Loss(f"precision@recall>={TARGET}")}
    num_labels = NUM_SPLITS * len(DECAYS)
    aim = Loss(f"recall@precision>={TARGET}", num_labels=num_labels)
    for_digits = {"log-loss": log_loss, "aimfor": aim}
    lines: dict[str, Line] = {}
    rankings: dict[str, list[Ranking]] = {}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        for name, loss in for_lines.items():
            task = progress.add_task(f"Figure 1, {name}", total=STEPS_OF_LINES)
            lines[name] = fit_line(loss, figure_1(2000, 2 * seed), held_out, seed, partial(progress.advance, task))
        for name, loss in for_digits.items():
            task = progress.add_task(f"digits, {name}", total=STEPS_OF_DIGITS)
            rankings[name] = rank_digits(loss, seed, partial(progress.advance, task))

    console.print(_table_of_lines(lines, best_precision(held_out)))
    console.print(_table_of_digits(rankings))
    picture = folder / "aimfor.png"
    _draw(picture, held_out, lines, rankings)
    console.print(f"Picture: {picture}")
    return picture


def figure_1(num_rows: int, seed: int) -> DemoRows:
    """The paper's Figure 1 made real: points in the plane whose most accurate line is a poor one at recall 0.95.

    Most positives lie above, and a small cloud of them (9 %) far below. Most negatives lie to the left, fewer to the
    right between the two positive clouds. A line across separates the large positive cloud from nearly all negatives,
    so it is the accurate one, and the one log-loss leans to: it gives up the small cloud. But recall 0.95 needs that
    cloud, and moving this line down to it takes in most negatives. A steep line with all positives on its right keeps
    the many negatives out and lets the fewer ones in: less accurate, and by far the most precise at that recall.

    Args:
        num_rows: number of points; 22 % are positive.
        seed: of the points.

    Returns:
        Features `[num_rows, 2]` and labels.

    Example:
        >>> rows = figure_1(1000, seed=0)
        >>> rows.features.shape, int(rows.labels.sum())
        ((1000, 2), 220)
    """
    rng = np.random.default_rng(seed)
    # share of the rows, centre, standard deviation, label
    clouds = [
        (0.20, (1.5, 2.0), (0.5, 0.5), 1),
        (0.02, (1.5, -3.5), (0.5, 0.5), 1),
        (0.13, (2.0, -0.2), (0.5, 0.5), 0),
        (0.65, (-1.5, 0.0), (0.5, 0.75), 0),
    ]
    sizes = [round(share * num_rows) for share, *_ in clouds]
    sizes[-1] += num_rows - sum(sizes)
    parts = [rng.normal(centre, spread, (size, 2)) for size, (_, centre, spread, _) in zip(sizes, clouds, strict=True)]
    labels = np.repeat([label for *_, label in clouds], sizes)
    order = rng.permutation(num_rows)
    return DemoRows(np.concatenate(parts)[order].astype(np.float32), labels[order])


def best_precision(rows: DemoRows, num_directions: int = 2000) -> float:
    """The highest precision at recall 0.95 of any line, by trying directions all around."""
    angles = np.linspace(0, 2 * np.pi, num_directions, endpoint=False)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    columns = (rows.features @ directions).T
    return max(metrics.precision_at_recall(rows.labels, scores, TARGET).value for scores in columns)


def log_loss(scores: Tensor, labels: Tensor, *, mask: Tensor) -> Tensor:
    """What is usually trained: binary cross-entropy over the known entries, the mean over labels."""
    losses = binary_cross_entropy_with_logits(scores, labels.to(scores), reduction="none")
    return ((losses * mask).sum(0) / mask.sum(0).clamp(min=1)).mean()


def train(
    loss: TrainingLoss,
    features: Tensor,
    labels: Tensor,
    *,
    mask: Tensor,
    decays: Tensor,
    steps: int,
    seed: int,
    advance: Callable[[], object],
) -> nn.Linear:
    """Train linear scores with Adam on batches of 256 rows; the same for every loss.

    Args:
        loss: `log_loss` or an `aimfor.Loss`.
        features: `[n, d]`.
        labels: `[n, L]`.
        mask: `[n, L]`, True where the model may see the label.
        decays: `[L]`, the penalty on the squared weights of each label.
        steps: number of batches.
        seed: of the first weights and the batches.
        advance: called after each step.

    Returns:
        The model.
    """
    # One generator of its own keeps the caller's random numbers as they were, and gives both losses the same batches.
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(features.shape[1], labels.shape[1])
    nn.init.normal_(model.weight, std=0.1, generator=generator)
    nn.init.zeros_(model.bias)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        batch = torch.randint(len(features), (256,), generator=generator)
        optimiser.zero_grad()
        penalty = (decays.unsqueeze(1) * model.weight.square()).sum(1).mean()
        (loss(model(features[batch]), labels[batch], mask=mask[batch]) + penalty).backward()
        optimiser.step()
        schedule.step()
        advance()
    return model


def fit_line(
    loss: TrainingLoss, training: DemoRows, held_out: DemoRows, seed: int, advance: Callable[[], object]
) -> Line:
    """Train a line, choose its thresholds on the training rows, and measure it on the held-out ones."""
    labels = torch.from_numpy(training.labels).unsqueeze(1)
    model = train(
        loss,
        torch.from_numpy(training.features),
        labels,
        mask=torch.ones_like(labels, dtype=torch.bool),
        decays=torch.zeros(1),
        steps=STEPS_OF_LINES,
        seed=seed,
        advance=advance,
    )
    weights = model.weight.detach().numpy()[0]  # the bias moves no line here: thresholds are chosen below
    scores, unseen = training.features @ weights, held_out.features @ weights
    curve = cumulate(training.labels == 1, scores.astype(np.float64), np.ones(len(scores)))
    accurate_threshold = float(curve.thresholds[np.argmax(curve.tp - curve.fp)])
    threshold = metrics.precision_at_recall(training.labels, scores, TARGET).threshold
    return Line(
        weights,
        accurate_threshold,
        threshold,
        accuracy=float(np.mean((unseen >= accurate_threshold) == held_out.labels)),
        precision_at_recall=metrics.precision_at_recall(held_out.labels, unseen, TARGET).value,
        precision=metrics.precision(held_out.labels, unseen, threshold),
        recall=metrics.recall(held_out.labels, unseen, threshold),
    )


def rank_digits(loss: TrainingLoss, seed: int, advance: Callable[[], object]) -> list[Ranking]:
    """Train "8 against the rest" on several splits of the digits at once, and rank the held-out rows of each.

    Each column of the model is one split with one weight decay, and sees the labels of that split's training rows only.
    The decay and the threshold are chosen on the validation rows, by the aim itself.
    """
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    features, labels = (pixels / 16).astype(np.float32), (digits == 8).astype(np.int64)
    parts = np.stack([_split(labels, np.random.default_rng([seed, k])) for k in range(NUM_SPLITS)], axis=1)
    rows = torch.from_numpy(features)
    columns = np.repeat(np.arange(NUM_SPLITS), len(DECAYS))
    with warnings.catch_warnings():
        # Under the largest decay some splits do not reach the precision; the validation rows judge each column anyway.
        warnings.simplefilter("ignore", InfeasibleConstraintWarning)
        model = train(
            loss,
            rows,
            torch.from_numpy(labels).unsqueeze(1).expand(-1, len(columns)),
            mask=torch.from_numpy(parts == TRAINING)[:, columns],
            decays=torch.tensor(DECAYS).repeat(NUM_SPLITS),
            steps=STEPS_OF_DIGITS,
            seed=seed,
            advance=advance,
        )
    with torch.no_grad():
        scores = model(rows).numpy().reshape(len(labels), NUM_SPLITS, len(DECAYS))
    return [_choose(labels, scores[:, split], parts[:, split]) for split in range(NUM_SPLITS)]


def _split(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Half of each class for training, a quarter for validation, a quarter held out."""
    parts = np.empty_like(labels)
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(labels == label))
        for part, chunk in enumerate(np.split(rows, [len(rows) // 2, len(rows) * 3 // 4])):
            parts[chunk] = part
    return parts


def _choose(labels: NDArray[np.int64], scores: NDArray[np.float32], parts: NDArray[np.int64]) -> Ranking:
    seen, unseen = parts == VALIDATION, parts == HELD_OUT

    def on_validation(column: NDArray[np.float32]) -> tuple[float, float]:
        found = metrics.recall_at_precision(labels[seen], column[seen], TARGET)
        return found.value, metrics.average_precision(labels[seen], column[seen])

    best = max(scores.T, key=on_validation)
    threshold = metrics.recall_at_precision(labels[seen], best[seen], TARGET).threshold
    return Ranking(labels[unseen], best[unseen], best[unseen] >= threshold)


def _table_of_lines(lines: dict[str, Line], best: float) -> Table:
    from rich.table import Table

    table = Table(
        title="Figure 1: 2,000 points in the plane, and as many held out",
        caption="All on held-out rows. The first column is read off the held-out curve; the others use a threshold "
        "chosen on the training rows. The best line was found by trying 2,000 directions on the held-out rows.",
        caption_justify="left",
    )
    for heading in ("line", f"precision at recall {TARGET}", "precision", "recall", "accuracy at its best"):
        table.add_column(heading, justify="left" if heading == "line" else "right")
    for name, line in lines.items():
        values = line.precision_at_recall, line.precision, line.recall, line.accuracy
        table.add_row(name, *(f"{value:.3f}" for value in values))
    table.add_row("best there is", f"{best:.3f}", "", "", "")
    return table


def _table_of_digits(rankings: dict[str, list[Ranking]]) -> Table:
    from rich.table import Table

    table = Table(
        title=f'scikit-learn\'s digits: "8" against the rest, mean of {NUM_SPLITS} splits',
        caption="All on held-out rows. The first two columns are read off the held-out curve; the others use a "
        "threshold chosen on validation rows, where the weight decay was chosen too, from the same three for both. In "
        "brackets: standard error over the splits, which share rows, so take it as a guide.",
        caption_justify="left",
    )
    for heading in ("loss", f"recall at precision {TARGET}", "average precision", "precision", "recall"):
        table.add_column(heading, justify="left" if heading == "loss" else "right")
    measured = {name: _held_out_values(ranked) for name, ranked in rankings.items()}
    for name, values in measured.items():
        # Pooled, because a split whose validation rows offer no threshold predicts nothing and has no precision.
        labels = np.concatenate([ranking.labels for ranking in rankings[name]])
        decisions = np.concatenate([ranking.decisions for ranking in rankings[name]]).astype(float)
        at_threshold = [metric(labels, decisions, 0.5) for metric in (metrics.precision, metrics.recall)]
        table.add_row(name, *(f"{value:.3f}" for value in (*values.mean(0), *at_threshold)))
    gain = measured["aimfor"] - measured["log-loss"]
    errors = gain.std(0, ddof=1) / NUM_SPLITS**0.5
    table.add_row(
        "difference", *(f"{mean:+.3f} ({error:.3f})" for mean, error in zip(gain.mean(0), errors, strict=True)), "", ""
    )
    return table


def _held_out_values(rankings: list[Ranking]) -> NDArray[np.float64]:
    """`[splits, 2]`: recall at the target precision, average precision."""
    return np.array(
        [
            (metrics.recall_at_precision(labels, scores, TARGET).value, metrics.average_precision(labels, scores))
            for labels, scores, _ in rankings
        ]
    )


def _draw(path: Path, held_out: DemoRows, lines: dict[str, Line], rankings: dict[str, list[Ranking]]) -> None:
    # The figure without pyplot draws with Agg, needs no screen and leaves no state behind.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.4), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_lines(left, held_out, lines)
    _draw_curves(right, rankings)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def _draw_lines(axes: Axes, held_out: DemoRows, lines: dict[str, Line]) -> None:
    for label, name, marker in ((0, "negative", "s"), (1, "positive", "^")):
        x, y = held_out.features[held_out.labels == label].T
        axes.scatter(x, y, s=14, marker=marker, color=COLOURS[name], alpha=0.6, linewidths=0, label=name)

    def draw(weights: NDArray[np.float32], threshold: float, label: str, **style: Any) -> None:
        foot = weights * threshold / (weights @ weights)
        axes.axline(tuple(foot), tuple(foot + weights[::-1] * (-1, 1)), label=label, **style)

    log_loss, ours = lines["log-loss"], lines["aimfor"]
    accurate = f"log-loss, at its most accurate: {log_loss.accuracy:.0%} right"
    draw(log_loss.weights, log_loss.accurate_threshold, accurate, color=COLOURS["log-loss"], linewidth=1.2)
    for name, line in (("log-loss", log_loss), ("aimfor", ours)):
        text = f"{name}, moved to recall {TARGET}: precision {line.precision_at_recall:.2f}"
        draw(line.weights, line.threshold, text, color=COLOURS[name], linewidth=2.4, linestyle=(0, (5, 2)))
    axes.set(xlim=(-6.6, 4.4), ylim=(-5.5, 4.3), xticks=[], yticks=[])  # the free corner on the left is the legend's
    axes.set_title("Figure 1: the most accurate line is a poor one at recall 0.95", loc="left")
    axes.legend(loc="lower left", fontsize=9, frameon=False)


def _draw_curves(axes: Axes, rankings: dict[str, list[Ranking]]) -> None:
    precisions = np.append(np.arange(0.5, 1.0, 0.01), 1.0)
    for name, ranked in rankings.items():
        recalls = np.array(
            [
                [metrics.recall_at_precision(labels, scores, float(at)).value for at in precisions]
                for labels, scores, _ in ranked
            ]
        )
        reached = _held_out_values(ranked)[:, 0].mean()
        axes.plot(recalls.T, precisions, color=COLOURS[name], alpha=0.15, linewidth=0.8)
        label = f"{name}: recall {reached:.2f} at precision {TARGET}"
        axes.plot(recalls.mean(0), precisions, color=COLOURS[name], linewidth=2.4, label=label)
        axes.plot(reached, TARGET, "o", color=COLOURS[name], markersize=8, clip_on=False)
    axes.axhline(TARGET, color=COLOURS["positive"], linewidth=1, linestyle=":", label=f"precision {TARGET}")
    axes.set(xlim=(0.2, 1), ylim=(0.5, 1.005), xlabel="recall, held out", ylabel="precision, held out")
    axes.set_title(f'Digits, "8" against the rest: mean of {NUM_SPLITS} splits', loc="left")
    axes.legend(loc="lower left", fontsize=9, frameon=False)
