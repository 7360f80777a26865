"""The experiment that chose the defaults of the bare loss, on tables that no reported table has.

    python -m benchmarks.rivals.defaults            # resumes from results/defaults.csv; about 20 minutes of one core
    python -m benchmarks.rivals.defaults --report   # the tables

Candidates: hinge or smooth hinge, and beside the aim none, a half or four fifths of log-loss. Aims at a point and F1
have exact rates, areas the bounding form. Steps, batches and settings are those of the rivals, the same for all. One of
the six settings of rate and decay is chosen on the rows that choose.

Tables: those of shared/apart.py; and of several labels the letters, two tables of the suite on splits that it does not
report, GoEmotions' training rows as embeddings, and multi-label tables with other labels than the reported ones and
without the rows that measure these.

The rule: one candidate for aims at a point and F1, and one for areas. It must not be behind log-loss by a standard
error over tables, for any aim, linear or network, one label or several. Of those that are left the best mean rank over
all cells decides. If none is left, the fewest such losses decide first, and an aim with such a loss takes the best
candidate that has none there. At points more than half of log-loss is no candidate, because it does not keep 96 % of
the best line of Figure 1.

The rule had one candidate for all aims at first, and no four fifths. It then gave half of log-loss to areas too. Tables
of many rare labels, other labels among them, showed that areas lose with it there, so four fifths became a candidate.
At points every candidate had a loss at F1 with several labels. That such an aim takes another candidate was added when
the reported tables of several labels had shown the same loss; only the hinge with four fifths has none.
Candidates had other settings than log-loss at first, starts by log-loss instead of decays. That compared settings, not
losses, as rare labels need a decay. All cells were run again with the same settings, by the same rule.
"""

import argparse
import warnings
from collections.abc import Callable, Iterable
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import aimfor
from aimfor import metrics
from benchmarks.embeddings.embed import PARTS, load_embeddings
from benchmarks.long_tail import long_tail
from benchmarks.rivals.training import BATCH_SIZE, DECAYS, HIDDEN, RATES, STEPS
from benchmarks.shared import apart, page, sets
from benchmarks.shared.baselines import scaled
from benchmarks.shared.cells import Cells
from benchmarks.shared.data import data_folder
from benchmarks.shared.forms import BOUNDING
from benchmarks.shared.grids import Entrant, shuffled, started, train
from benchmarks.shared.heads import Setting
from benchmarks.shared.spread import spread
from benchmarks.suite import suite

NAME = "defaults"
SPLITS = (701, 702)
SINGLE = tuple(name for name in apart.TABLES if name != "letters")
EMBEDDED = "goemotions, training rows"
SEVERAL = (("letters", "linear"), ("yeast", "linear"), ("yeast", "mlp"), ("enron", "linear"), ("letters", "mlp"))
SEVERAL += ((EMBEDDED, "linear"),)
OTHER_LABELS = ", other labels"
SEVERAL += tuple((f"{name}{OTHER_LABELS}", "linear") for name in ("bibtex", "rcv1sub1", "corel5k", "delicious"))
SEVERAL_AIMS = ("aucpr", "f1", "recall@precision>=0.7")
MODELS = ("linear", "mlp")
BASELINE, FORMER = "log-loss", "hinge, bounding, log-loss 0"
SHARES, SURROGATES = (0.0, 0.5, 0.8), ("hinge", "smooth_hinge")
KINDS: dict[str, Callable[[str], bool]] = {"areas": lambda aim: aim == "aucpr", "points": lambda aim: aim != "aucpr"}
CANDIDATES = {
    f"{surrogate}, log-loss {share:g}": (surrogate, share) for surrogate, share in product(SURROGATES, SHARES)
}


class Rows(NamedTuple):
    """Scaled features and labels [n, L], as tensors."""

    X: Tensor
    Y: Tensor


def split_of(name: str, seed: int) -> list[Rows] | None:
    """Rows that fit, choose and measure; None, after a printed line, when the set is absent."""
    if name.endswith(OTHER_LABELS):
        found = long_tail.other_labels(name.removesuffix(OTHER_LABELS), data_folder(), seed)
        return None if found is None else [Rows(*part) for part in found]
    if name == EMBEDDED:
        found = load_embeddings("goemotions", data_folder())
        if found is None:
            return None
        inside = found.parts == PARTS.index("train")
        rows = sets.Rows(found.X[inside].astype(np.float64), np.empty((inside.sum(), 0), str), found.Y[inside])
        parts = sets.split(rows, seed)
        features = scaled(*(part.numbers for part in parts))
    else:
        rows = apart.load(name) if name in apart.TABLES else sets.load(name, data_folder())
        if rows is None:
            return None
        parts = sets.split(rows, seed)
        features = scaled(*sets.prepare(*parts))
    dense = [X if isinstance(X, np.ndarray) else X.toarray() for X in features]  # pyright: ignore
    return [
        Rows(torch.from_numpy(X).float(), torch.from_numpy(part.labels).float())
        for X, part in zip(dense, parts, strict=True)
    ]


def log_loss(scores: Tensor, labels: Tensor, step: int = 0) -> Tensor:
    """Of each model, summed over models."""
    target = labels[:, None].expand_as(scores)
    return scores.shape[1] * F.binary_cross_entropy_with_logits(scores, target)


def entrants(model: str, aims: Iterable[str], labels: int) -> dict[str, Entrant]:
    """Log-loss with its grid, and everything else for every aim."""
    grid = [Setting(rate, decay) for decay, rate in product(DECAYS[model], RATES[model])]
    found = {BASELINE: Entrant(grid, log_loss)}
    for aim in aims:
        found[f"{FORMER}; {aim}"] = Entrant(grid, long_tail.bare(aim, len(grid), labels, **BOUNDING))
        for candidate, (surrogate, share) in CANDIDATES.items():
            constraint = "surrogate" if aim == "aucpr" else "exact"
            options = {"surrogate": surrogate, "constraint": constraint, "log_loss": share}
            found[f"{candidate}; {aim}"] = Entrant(grid, long_tail.bare(aim, len(grid), labels, **options))
    return found


def run(cells: Cells, wanted: Iterable[tuple[int, str, str]]) -> None:
    """Every split, model and set that is not finished."""
    for split, model, name in wanted:
        key = {"set": name, "split": split, "model": model if name in SINGLE else f"several labels, {model}"}
        aims = tuple(suite.AIMS) if name in SINGLE else SEVERAL_AIMS
        if len(cells.find(**key)) == (2 + len(CANDIDATES)) * len(aims):
            continue
        parts = split_of(name, split)
        if parts is None:
            continue
        cells.drop(**key)
        for aim in aims:
            grids = trained(parts, model, split, (aim,))
            for method, grid in grids.items():
                keep(cells, key | {"method": method.split(";")[0], "aim": aim}, aim, parts, grid)
        print(f"{name}, split {split}, {model}: done", flush=True)


def trained(parts: list[Rows], model: str, split: int, aims: tuple[str, ...]) -> dict[str, list[np.ndarray]]:
    """The scores of every method's models on the rows that choose and measure, [n, G, L]."""
    methods = entrants(model, aims, parts[0].Y.shape[1])
    counts = [len(entrant.settings) for entrant in methods.values()]
    X, Y = parts[0]
    start = started(X.shape[1], Y.shape[1], sum(counts), HIDDEN if model == "mlp" else None, split)
    stack = train(X, Y, methods.values(), start, shuffled(len(X), BATCH_SIZE, split), STEPS)
    scores = [stack.scores(part.X).split(counts, 1) for part in parts[1:]]
    return {method: [part[place].double().numpy() for part in scores] for place, method in enumerate(methods)}


def keep(cells: Cells, key: dict[str, object], aim: str, parts: list[Rows], grid: list[np.ndarray]) -> None:
    """The setting that the rows that choose like best, measured on the others."""
    chosen, measured = (part.Y.numpy().astype(np.int64) for part in parts[1:])
    found = [suite.macro(aim, chosen, grid[0][:, place]) for place in range(grid[0].shape[1])]
    best = int(np.argmax(found))
    cells.add(**key, setting=best, validation=found[best], test=suite.macro(aim, measured, grid[1][:, best]))


def gains(cells: Cells, model: str, aim: str, method: str) -> np.ndarray:
    """Minus log-loss on the test rows, mean over splits, one number per table."""
    names = list(dict.fromkeys(row["set"] for row in cells.find(model=model, aim=aim)))
    ours, theirs = (
        [np.mean(page.values(cells.find(model=model, aim=aim, set=name, method=one), "test")) for name in names]
        for one in (method, BASELINE)
    )
    return np.array(ours) - np.array(theirs)


def report(cells: Cells) -> None:
    """Gains over log-loss and mean ranks."""
    models = list(dict.fromkeys(row["model"] for row in cells.rows))
    for model in models:
        aims = list(dict.fromkeys(row["aim"] for row in cells.find(model=model)))
        methods_of = (FORMER, *CANDIDATES)
        found = {(method, aim): gains(cells, model, aim, method) for method, aim in product(methods_of, aims)}
        ranks = {aim: _ranks(np.stack([found[method, aim] for method in CANDIDATES])) for aim in aims}
        rows = []
        for method in methods_of:
            shown = [page.signed(spread(list(found[method, aim]))) for aim in aims]
            place = list(CANDIDATES).index(method) if method in CANDIDATES else None
            rank = "" if place is None else f"{np.mean([ranks[aim][place].mean() for aim in aims]):.2f}"
            rows.append([method, *shown, rank])
        page.Table(f"{model}: minus log-loss, mean over tables ± standard error", ["", *aims, "mean rank"], rows).show()
    for kind, of_kind in KINDS.items():
        ranks = [[method, f"{rank:.2f}"] for method, rank in mean_ranks(cells, of_kind).items()]
        page.Table(f"Mean rank over all cells, {kind}", ["", "mean rank"], ranks).show()


def mean_ranks(cells: Cells, of_kind: Callable[[str], bool]) -> dict[str, float]:
    """Over all models and tables, and the aims of a kind."""
    pairs = dict.fromkeys((row["model"], row["aim"]) for row in cells.rows if of_kind(str(row["aim"])))
    found = [_ranks(np.stack([gains(cells, *pair, method) for method in CANDIDATES])) for pair in pairs]
    return dict(zip(CANDIDATES, np.concatenate(found, axis=1).mean(1).tolist(), strict=True))


def _ranks(values: np.ndarray) -> np.ndarray:
    """[methods, tables] -> the place of each, 1 for the highest, equals share theirs."""
    above = (values[None] > values[:, None]).sum(1)
    equal = (values[None] == values[:, None]).sum(1)
    return above + (equal + 1) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", nargs="+", type=int, default=SPLITS)
    names = list(dict.fromkeys([*SINGLE, *(name for name, _ in SEVERAL)]))
    parser.add_argument("--sets", nargs="+", choices=names, default=names, metavar="SET", help=", ".join(names))
    parser.add_argument("--report", action="store_true", help="only the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
    warnings.simplefilter("ignore", aimfor.VacuousRangeWarning)
    warnings.simplefilter("ignore", metrics.UndefinedMetricWarning)
    cells = page.committed(NAME)
    if not arguments.report:
        for split in arguments.splits:
            wanted = [*product(SINGLE, MODELS), *SEVERAL]
            run(cells, ((split, model, name) for name, model in wanted if name in arguments.sets))
    report(cells)


if __name__ == "__main__":
    main()
