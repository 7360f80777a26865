"""Many rare labels: the bare loss beside losses made for them, on frozen embeddings and on multi-label tables.

    python -m benchmarks.embeddings.embed                # first: the embeddings
    python -m benchmarks.long_tail.long_tail             # resumes from results/long_tail.csv
    python -m benchmarks.long_tail.long_tail --sets sms_spam_embedded --splits 0 --models linear   # a part
    python -m benchmarks.long_tail.long_tail --report    # the tables
    python -m benchmarks.long_tail.long_tail --quick     # reproduce some cells and compare

Linear heads and heads with one hidden layer. Every method has the same six settings of rate and decay, the same start,
batches and steps. The setting is chosen for each aim by the mean of its exact metric over labels, on the rows that
choose. Own settings of a rival are those of its authors (losses.py). `aimfor` is the bare loss at its defaults.

Embeddings: GoEmotions in the parts of its authors, Reuters in ModApte's, where a fifth of the training documents
chooses, and SMS spam as the suite splits it. Tables: the ten of the suite, at most 10,000 rows, the 500 features that
most training rows have, and 30 labels, evenly over frequency. Labels have at least 20 positives. Rare labels are the
third with the fewest positives among the training rows.
"""

import argparse
import warnings
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.model_selection import train_test_split
from torch import Tensor

import aimfor
from aimfor import metrics
from benchmarks.embeddings.embed import PARTS, READERS, load_embeddings
from benchmarks.long_tail import losses
from benchmarks.shared import page, sets
from benchmarks.shared.baselines import scaled
from benchmarks.shared.cells import Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.grids import Entrant, StepLoss, shuffled, started, train
from benchmarks.shared.heads import Setting
from benchmarks.shared.reproduced import Reproduced, compare

NAME = "long_tail"
EMBEDDED = tuple(f"{name}_embedded" for name in READERS)
TABLES = ("yeast", "enron", "corel5k", "tmc2007_500", "bibtex", "delicious", "imdb_f", "rcv1sub1", "goemotions")
TABLES += ("reuters21578",)
SETS = (*EMBEDDED, *TABLES)
AIMS = ("aucpr", "recall@precision>=0.7", "f1", "tpr@fpr<=0.01")
MODELS = {"linear": None, "mlp": 128}
SPLITS = (0, 1, 2)
STEPS, BATCH_SIZE = 1_000, 256
MAX_ROWS, MAX_FEATURES, MAX_LABELS = 10_000, 500, 30
GRIDS = {
    "linear": [Setting(*pair) for pair in product((0.01, 0.03, 0.1), (0.0, 0.3))],
    "mlp": [Setting(*pair) for pair in product((1e-3, 3e-3, 1e-2), (0.0, 1.0))],
}
BASELINE, OURS = "log-loss", "aimfor"
RIVALS = ("asymmetric", "two-way", "LDAM with deferred weights", "distribution-balanced")
METHODS = (BASELINE, *RIVALS, OURS)
KEYS = ("set", "model", "split", "method", "aim")
MEASURES = ("test", "test_rare")
QUICK = {"sets": ("yeast",), "splits": (0,), "models": ("linear",)}


class Rows(NamedTuple):
    """Scaled features and labels, float32."""

    X: Tensor
    Y: Tensor


# Data.


def split_of(name: str, folder: Path, seed: int) -> list[Rows] | None:
    """Rows that fit, choose and measure; None, after a printed line, when something is absent."""
    parts = _embedded(name.removesuffix("_embedded"), folder, seed) if name in EMBEDDED else _table(name, folder, seed)
    if parts is None:
        return None
    features = scaled(*(X for X, _ in parts))
    dense = [X.toarray() if sparse.issparse(X) else np.asarray(X) for X in features]  # pyright: ignore
    return [
        Rows(torch.from_numpy(X).float(), torch.from_numpy(Y).float()) for X, (_, Y) in zip(dense, parts, strict=True)
    ]


def _embedded(name: str, folder: Path, seed: int) -> list[tuple[np.ndarray, np.ndarray]] | None:
    found = load_embeddings(name, folder)
    if found is None:
        return None
    Y = found.Y[:, found.Y.sum(0) >= sets.MIN_POSITIVES]
    X = found.X.astype(np.float64)
    places = [np.flatnonzero(found.parts == PARTS.index(part)) for part in PARTS]
    fit, choose, measure = places
    if not len(measure):
        fit, measure = train_test_split(fit, test_size=0.3, stratify=Y[fit, 0], random_state=seed)
    if not len(choose):
        fit, choose = train_test_split(fit, test_size=0.2, random_state=seed)
    return [(X[place], Y[place]) for place in (fit, choose, measure)]


def _table(name: str, folder: Path, seed: int) -> list[tuple[np.ndarray, np.ndarray]] | None:
    rows = sets.load(name, folder)
    if rows is None:
        return None
    rows = _drawn(rows)
    by_count = _by_count(rows.labels)
    labels = np.sort(by_count[_evenly(len(by_count))])
    parts = sets.split(rows, seed)
    kept = _most_used(parts[0].numbers)
    return [(part.numbers[:, kept], part.labels[:, labels]) for part in parts]


def other_labels(name: str, folder: Path, seed: int) -> list[Rows] | None:
    """Rows that fit, choose and measure, with the labels that no reported table has, for choices that are made apart.

    They are among those that fit and choose in the first reported split. None measures there.
    """
    rows = sets.load(name, folder)
    if rows is None:
        return None
    rows = _drawn(rows)
    by_count = _by_count(rows.labels)
    rest = np.delete(by_count, _evenly(len(by_count)))
    labels = np.sort(rest[_evenly(len(rest))])
    fit, choose, _ = sets.split(rows, SPLITS[0])
    numbers = sparse.vstack([sparse.csr_matrix(part.numbers) for part in (fit, choose)]).tocsr()
    found = np.concatenate([part.labels[:, labels] for part in (fit, choose)])
    order = np.random.default_rng(seed).permutation(len(found))
    places = np.split(order, [int(0.56 * len(order)), int(0.7 * len(order))])
    kept = _most_used(numbers[places[0]])
    dense = [X.toarray() for X in scaled(*(numbers[place][:, kept] for place in places))]  # pyright: ignore
    seen = found[places[0]].sum(0) > 0
    return [
        Rows(torch.from_numpy(X).float(), torch.from_numpy(found[place][:, seen]).float())
        for X, place in zip(dense, places, strict=True)
    ]


def _drawn(rows: sets.Rows) -> sets.Rows:
    return rows.take(np.sort(np.random.default_rng(sets.DRAW_SEED).permutation(len(rows.labels))[:MAX_ROWS]))


def _by_count(Y: np.ndarray) -> np.ndarray:
    """The labels with enough positives and negatives, the rarest first."""
    counts = Y.sum(0)
    common = np.flatnonzero((counts >= sets.MIN_POSITIVES) & (counts <= len(Y) - sets.MIN_POSITIVES))
    return common[np.argsort(counts[common], kind="stable")]


def _evenly(count: int) -> np.ndarray:
    """At most so many places of labels as are reported, evenly over all."""
    return np.linspace(0, count - 1, min(MAX_LABELS, count)).round().astype(int)


def _most_used(numbers: object) -> np.ndarray:
    """The features that most rows have."""
    matrix = sparse.csr_matrix(numbers)
    used = np.bincount(matrix.indices, minlength=matrix.shape[1])
    return np.sort(np.argsort(-used, kind="stable")[:MAX_FEATURES])


# Training.


def entrants(model: str, fit: Rows) -> dict[str, Entrant]:
    """The methods without an aim under their names, ours with the aim."""
    positives, rows = fit.Y.sum(0), len(fit.Y)
    plain: dict[str, StepLoss] = {
        BASELINE: losses.log_loss,
        "asymmetric": losses.asymmetric,
        "two-way": losses.two_way,
        "LDAM with deferred weights": losses.margins_with_deferred_weights(positives, rows, STEPS),
        "distribution-balanced": losses.distribution_balanced(positives, rows),
    }
    aimed = {f"{OURS}; {aim}": bare(aim, len(GRIDS[model]), fit.Y.shape[1]) for aim in AIMS}
    return {name: Entrant(GRIDS[model], loss) for name, loss in (plain | aimed).items()}


def bare(aim: str, models: int, labels: int, **options: Any) -> StepLoss:
    """The bare loss of all models at once: every label of every model has thresholds and multipliers of its own."""
    made = aimfor.Loss(aim, num_labels=models * labels, **options)

    def loss(scores: Tensor, targets: Tensor, step: int) -> Tensor:
        return models * made(scores.flatten(1), targets[:, None].expand_as(scores).flatten(1))

    return loss


def run(cells: Cells, name: str, split: int, model: str, methods: Iterable[str], folder: Path) -> None:
    """The methods of one set, split and model that are not finished."""
    key = {"set": name, "model": model, "split": split}
    missing = [method for method in methods if len(cells.find(**key, method=method)) < len(AIMS)]
    parts = split_of(name, folder, split) if missing else None
    if parts is None:
        return
    (X, Y), *others = parts
    each = len(GRIDS[model])
    trained = {one: entrant for one, entrant in entrants(model, parts[0]).items() if one.split("; ")[0] in missing}
    start = started(X.shape[1], Y.shape[1], each * len(trained), MODELS[model], split)
    stack = train(X, Y, trained.values(), start, shuffled(len(X), BATCH_SIZE, split), STEPS)
    scores = [stack.scores(part.X).split(each, 1) for part in others]
    found = {method: [part[place].double().numpy() for part in scores] for place, method in enumerate(trained)}
    for method, aim in product(missing, AIMS):
        grid = found.get(method) or found[f"{method}; {aim}"]
        cells.drop(**key, method=method, aim=aim)
        cells.add(**key, method=method, aim=aim, labels=Y.shape[1], fit_rows=len(X), **chosen(aim, model, parts, grid))
    print(f"{name}, split {split}, {model}: done", flush=True)


def chosen(aim: str, model: str, parts: list[Rows], grid: list[np.ndarray]) -> dict[str, object]:
    """The setting that the rows that choose like best, measured on the others: all labels, and the rare ones."""
    metric = aimfor.aim(aim).metric
    Y_choose, Y_measure = (part.Y.numpy().astype(np.int64) for part in parts[1:])
    means = [float(np.nanmean(metric(Y_choose, grid[0][:, place]))) for place in range(grid[0].shape[1])]
    best = int(np.argmax(means))
    by_label = np.asarray(metric(Y_measure, grid[1][:, best])).reshape(-1)
    rare = np.argsort(parts[0].Y.sum(0).numpy(), kind="stable")[: max(1, Y_measure.shape[1] // 3)]
    setting = GRIDS[model][best]
    return {
        "rate": setting.rate,
        "decay": setting.decay,
        "validation": means[best],
        "test": float(np.nanmean(by_label)),
        "test_rare": float(np.nanmean(by_label[rare])),
    }


def run_all(cells: Cells, arguments: argparse.Namespace) -> None:
    for split, model, name in product(arguments.splits, arguments.models, arguments.sets):
        run(cells, name, split, model, arguments.methods, data_folder(arguments.data))


def again(cells: Cells, arguments: argparse.Namespace) -> list[Reproduced]:
    """The quick cells beside the committed ones."""
    run_all(cells, argparse.Namespace(**(vars(arguments) | QUICK)))
    return compare(page.committed(NAME), cells, keys=KEYS, over="split", measures=MEASURES, floor=0.005)


def main() -> None:
    from benchmarks.long_tail import sections

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, metavar="SET", help=", ".join(SETS))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--splits", nargs="+", type=int, default=SPLITS)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--report", action="store_true", help="only the tables")
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
    warnings.simplefilter("ignore", aimfor.VacuousRangeWarning)
    warnings.simplefilter("ignore", metrics.UndefinedMetricWarning)
    if arguments.quick:
        return page.hold(lambda cells: again(cells, arguments))
    cells = page.committed(NAME)
    if not arguments.report:
        run_all(cells, arguments)
    print(sections.section())
    return None


if __name__ == "__main__":
    main()
