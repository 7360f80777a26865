"""The paper's Figure 1: the line of log-loss and the line trained for precision at recall 0.95, drawn on the data.

    python -m benchmarks.paper.figure_1            # resumes from results/figure_1.csv; about a minute of one core
    python -m benchmarks.paper.figure_1 --quick    # reproduce two seeds and compare
    python -m benchmarks.paper.figure_1 --report   # the table and docs/figure_1.png

The data are those of `aimfor.demo`: three draws of 2,000 points for each seed, which train, choose and measure. All
losses have the same line, grid, batches and steps (`paper_common.side_by_side`); rate and decay are chosen by precision
at recall 0.95, and thresholds too, on the points that choose. The best line there is comes from trying 2,000 directions
on the points that measure, so it is a ceiling and no method.
"""

from itertools import product

import numpy as np
import torch

from aimfor import metrics
from aimfor.cli._demo import best_precision, figure_1
from benchmarks.paper import side_by_side as paper
from benchmarks.shared import page
from benchmarks.shared.cells import ROOT, Cells
from benchmarks.shared.forms import BOUNDING
from benchmarks.shared.heads import Setting, train_heads
from benchmarks.shared.reproduced import Reproduced, compare
from benchmarks.shared.spread import Spread, spread

NAME = "figure_1"
PICTURE = ROOT / "docs" / "figure_1.png"
SEEDS = (0, 1, 2, 3, 4)
QUICK = (0, 1)
TARGET = 0.95
AIM = f"precision@recall>={TARGET}"
ROWS = 2_000
PLAN = paper.Plan(2_000, 256, [Setting(*pair) for pair in product((0.01, 0.03, 0.1), (0.0, 0.1))])
BASELINE, OURS, ALONE, BOUND = "log-loss", "aimfor", "aimfor, `log_loss=0`", "aimfor, bounding form"
METHODS = {
    BASELINE: paper.log_loss,
    OURS: paper.aimed(AIM),
    ALONE: paper.aimed(AIM, log_loss=0),
    BOUND: paper.aimed(AIM, **BOUNDING),
}
MEASURES = ("precision_at_recall", "best_line", "precision", "recall", "accuracy")


def split_of(seed: int) -> paper.Split:
    """Three draws of the points."""
    parts = [figure_1(ROWS, 3 * seed + place) for place in range(3)]
    return paper.Split(*(paper.Part(torch.from_numpy(X), torch.from_numpy(y)[:, None].float()) for X, y in parts))


def run(cells: Cells, seeds: tuple[int, ...]) -> None:
    """The lines of every seed that is not finished."""
    for seed, method in product(seeds, METHODS):
        if not cells.find(method=method, seed=seed):
            cells.add(method=method, seed=seed, **line(split_of(seed), method, seed))
            print(f"{method}, seed {seed}: done", flush=True)


def line(split: paper.Split, method: str, seed: int) -> dict[str, object]:
    """Train a line for each setting; the chosen one, its thresholds, and what it is worth held out."""
    each = len(PLAN.grid)
    heads = train_heads(
        *split.train,
        METHODS[method](each, 1),
        PLAN.grid,
        num_labels=1,
        steps=PLAN.steps,
        seed=seed,
        batch_size=PLAN.batch_size,
    )
    scored = paper.Split(*(paper.Part(heads.scores(part.X), part.Y) for part in split))
    found = paper.chosen(scored, PLAN.grid, paper.macro(AIM))
    place = PLAN.grid.index(found.setting)
    labels, scores = labels_and_scores(scored.choose, place)
    threshold, accurate = metrics.precision_at_recall(labels, scores, TARGET).threshold, most_accurate(labels, scores)
    labels, scores = labels_and_scores(scored.measure, place)
    across, up = (float(one) for one in heads.weight[:, place, 0])
    return {
        "steps": PLAN.steps,
        **found.setting._asdict(),
        "across": across,
        "up": up,
        "bias": float(heads.bias[place, 0]),
        "threshold": threshold,
        "accurate_threshold": accurate,
        "precision_at_recall": found.test,
        "best_line": best_precision(figure_1(ROWS, 3 * seed + 2)),
        "precision": metrics.precision(labels, scores, threshold),
        "recall": metrics.recall(labels, scores, threshold),
        "accuracy": float(np.mean((scores >= accurate) == labels)),
    }


def labels_and_scores(part: paper.Part, place: int) -> tuple[np.ndarray, np.ndarray]:
    """Of one head, for the exact metrics."""
    return part.Y[:, 0].numpy().astype(np.int64), part.X[:, place, 0].double().numpy()


def most_accurate(labels: np.ndarray, scores: np.ndarray) -> float:
    """The threshold with the fewest errors."""
    order = np.argsort(-scores, kind="stable")
    gained = np.cumsum(np.where(labels[order] == 1, 1, -1))
    return float(scores[order][np.argmax(gained)])


def again(cells: Cells) -> list[Reproduced]:
    """The quick cells beside the committed ones."""
    run(cells, QUICK)
    return compare(page.committed(NAME), cells, keys=("method", "seed"), over="seed", measures=MEASURES)


def table(cells: Cells) -> page.Table:
    """Both lines and the best there is."""
    rows = []
    for method in METHODS:
        found = cells.find(method=method)
        rows.append(
            [method, *(page.plain(spread(page.values(found, one)), 3) for one in MEASURES if one != "best_line")]
        )
    best = spread(page.values(cells.find(method=BASELINE), "best_line"))
    rows.append(["best line there is", page.plain(best, 3), "", "", ""])
    header = ["line", f"precision at recall {TARGET:g}", "precision", "recall", "accuracy at its best"]
    title = (
        "Held-out points, mean ± standard deviation over seeds; the first column is read off the held-out curve, the "
        "others use thresholds chosen on validation points"
    )
    return page.Table(title, header, rows)


def gain(cells: Cells) -> Spread:
    """Ours minus log-loss."""
    return page.differences(cells.find(method=OURS), cells.find(method=BASELINE), "precision_at_recall")


def share(cells: Cells, method: str = OURS) -> Spread:
    """A method over the best line there is."""
    found = cells.find(method=method)
    return spread(float(row["precision_at_recall"]) / float(row["best_line"]) for row in found)


def draw(cells: Cells, seed: int = SEEDS[0]) -> None:
    """The held-out points of one seed, and the lines of both losses at their thresholds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.6), dpi=130, layout="constrained")
    axes = figure.subplots()
    points = figure_1(ROWS, 3 * seed + 2)
    for label, name, marker, colour in ((0, "negative", "s", page.COLOURS[6]), (1, "positive", "^", page.COLOURS[2])):
        x, y = points.features[points.labels == label].T
        axes.scatter(x, y, s=12, marker=marker, color=colour, alpha=0.55, linewidths=0, label=name)
    theirs, ours = (cells.find(method=method, seed=seed)[0] for method in (BASELINE, OURS))
    accurate = f"log-loss, at its most accurate: {float(theirs['accuracy']):.0%} right"
    draw_line(axes, theirs, "accurate_threshold", label=accurate, color=page.COLOURS[0], linewidth=1.2)
    for name, row, colour in (("log-loss", theirs, page.COLOURS[0]), ("aimfor", ours, page.COLOURS[3])):
        text = f"{name}, at recall {TARGET:g}: precision {float(row['precision_at_recall']):.2f}"
        draw_line(axes, row, "threshold", label=text, color=colour, linewidth=2.4, linestyle=(0, (5, 2)))
    best = float(theirs["best_line"])
    axes.plot([], [], " ", label=f"best line there is: precision {best:.2f}")
    axes.set(xlim=(-6.8, 4.4), ylim=(-5.5, 4.3), xlabel="first feature", ylabel="second feature")
    shown = " and ".join(f"{float(row['precision_at_recall']):.2f}" for row in (theirs, ours))
    axes.set_title(f"Precision at recall {TARGET:g} of log-loss's line and of aimfor's: {shown}", loc="left")
    axes.legend(loc="lower left", fontsize=8, frameon=False)
    figure.savefig(PICTURE)


def draw_line(axes, row: dict[str, str], threshold: str, **style) -> None:
    """Where the score is at the threshold."""
    weights = np.array([float(row["across"]), float(row["up"])])
    foot = weights * (float(row[threshold]) - float(row["bias"])) / (weights @ weights)
    axes.axline(tuple(foot), tuple(foot + weights[::-1] * (-1, 1)), **style)


def report(cells: Cells) -> None:
    """Table to the terminal, picture to the docs."""
    table(cells).show()
    draw(cells)


if __name__ == "__main__":
    paper.command(__doc__, NAME, lambda cells, _: again(cells), lambda cells, _: run(cells, SEEDS), report)
