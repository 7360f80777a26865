"""Does the constraint of an operating point hold on the population, and what does being sure of it cost?

    python -m benchmarks.decisions.operating_points            # about half an hour on one core; needs scipy
    python -m benchmarks.decisions.operating_points --quick    # reproduce a few cells and compare
    python -m benchmarks.decisions.operating_points --report   # the tables from the finished cells

Scores are drawn from distributions whose population rates are known at every threshold, so that each chosen threshold
can be judged without error. All methods see the same draws:

- aimfor: `operating_point` with confidence 0.95;
- MAPIE: its `BinaryClassificationController` at confidence level 0.95 as it comes, Holm over 100 thresholds; and the
  same with its fixed sequence, walked from the end where the constraint is easiest to keep;
- no confidence: the best threshold on the draw itself, `operating_point` without confidence.

"violates" is the share of draws whose threshold breaks the constraint in the population, with its simulation error: at
most 0.05 is promised. "given up" is how much less of the objective the threshold has in the population than the
oracle's, the best that keeps the constraint there; a draw without a threshold gives up all of it.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

import aimfor
from benchmarks.shared import page
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.reproduced import Reproduced, compare

NAME = "operating_points"
CONFIDENCE = 0.95
DRAWS = {500: 500, 2_000: 500, 10_000: 200}  # by the number of rows
PRIORS = (0.01, 0.1, 0.4)
DISTANCE = 3.0  # between the means of the classes, in standard deviations
STEP = 0.5  # between the distinct scores of the tied kind


class Population(NamedTuple):
    """Two classes on a line. A score is the log-odds it would have between two Gaussians, as a probability.

    Attributes:
        prior: share of positives.
        step: scores are rounded to multiples of it; 0 keeps them.
        hard: share of the negatives that lie above the positives, which makes precision fall at the highest thresholds.
    """

    prior: float
    step: float = 0.0
    hard: float = 0.0

    def draw(self, size: int, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Labels and probabilities."""
        labels = rng.random(size) < self.prior
        hard = ~labels & (rng.random(size) < self.hard)
        points = np.where(labels, DISTANCE, np.where(hard, DISTANCE + 2, 0.0)) + rng.normal(size=size)
        if self.step:
            points = np.round(points / self.step) * self.step
        return labels, expit(self._log_odds(points))

    def rates(self, thresholds: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Population precision, recall and false-positive rate at these probabilities."""
        points = (logit(thresholds) - self._log_odds(0.0)) / DISTANCE
        if self.step:  # the lower edge of what is rounded to the next multiple; the small number undoes rounding
            points = (np.ceil(points / self.step - 1e-6) - 0.5) * self.step
        recall = norm.sf(points - DISTANCE)
        fpr = (1 - self.hard) * norm.sf(points) + self.hard * norm.sf(points - DISTANCE - 2)
        tp, fp = self.prior * recall, (1 - self.prior) * fpr
        return {"precision": tp / (tp + fp), "recall": recall, "tpr": recall, "fpr": fpr}

    def _log_odds(self, points):
        return DISTANCE * points - DISTANCE**2 / 2 + math.log(self.prior / (1 - self.prior))


def populations(prior: float) -> dict[str, Population]:
    # Hard negatives: one for every 25 positives.
    return {
        "two Gaussians": Population(prior),
        "tied": Population(prior, step=STEP),
        "hard negatives": Population(prior, hard=0.04 * prior / (1 - prior)),
    }


class Asked(NamedTuple):
    """An aim at one target, taken apart."""

    aim: str
    objective: str
    rate: str
    target: float

    def kept(self, rates: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        rate = rates[self.rate]
        return rate <= self.target if self.rate == "fpr" else rate >= self.target


def asked(prior: float) -> list[Asked]:
    precision = 0.5 if prior == 0.01 else 0.9
    return [
        Asked(f"recall@precision>={precision}", "recall", "precision", precision),
        Asked("precision@recall>=0.9", "precision", "recall", 0.9),
        Asked("tpr@fpr<=0.01", "tpr", "fpr", 0.01),
    ]


Method = Callable[[NDArray[np.bool_], NDArray[np.float64], Asked], float | None]
"""Labels, probabilities and aim -> threshold, or None."""


def ours(labels, scores, aim: Asked) -> float | None:
    return aimfor.operating_point(labels, scores, aim.aim, confidence=CONFIDENCE).threshold


def no_confidence(labels, scores, aim: Asked) -> float | None:
    return aimfor.operating_point(labels, scores, aim.aim).threshold


def mapie_default(labels, scores, aim: Asked) -> float | None:
    return mapie(labels, scores, aim, np.linspace(0, 0.99, 100), "bonferroni_holm")


def mapie_fixed_sequence(labels, scores, aim: Asked) -> float | None:
    grid = np.linspace(0, 0.99, 100)
    return mapie(labels, scores, aim, grid if aim.rate == "recall" else grid[::-1], "fixed_sequence")


def mapie(labels, scores, aim: Asked, grid: NDArray[np.float64], fwer_method: str) -> float | None:
    from mapie.risk_control import BinaryClassificationController

    controller = BinaryClassificationController(
        lambda rows: np.stack([1 - rows[:, 0], rows[:, 0]], axis=1),
        risk=aim.rate,
        target_level=aim.target,
        confidence_level=CONFIDENCE,
        best_predict_param_choice="recall" if aim.objective == "tpr" else aim.objective,
        list_predict_params=grid,
        fwer_method=fwer_method,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where it finds no threshold
        controller.calibrate(scores[:, None], labels.astype(int))
    best = controller.best_predict_param
    # Probabilities are above 0: at its threshold 0 all rows are positive.
    return None if best is None else max(float(best), float(np.finfo(float).tiny))


METHODS: dict[str, Method] = {
    "aimfor": ours,
    "MAPIE": mapie_default,
    "MAPIE fixed sequence": mapie_fixed_sequence,
    "no confidence": no_confidence,
}


def mapie_version() -> str | None:
    try:
        return version("mapie")
    except PackageNotFoundError:
        return None


def oracle(population: Population, aim: Asked) -> float:
    """The objective of the best threshold that keeps the constraint in the population."""
    rates = population.rates(expit(np.linspace(-30, 30, 300_001)))
    return float(rates[aim.objective][aim.kept(rates)].max())


def measure(population: Population, aim: Asked, size: int, draws: int, methods: dict[str, Method], seed: int) -> dict:
    """For each method, over the draws: violates, found, given up, and seconds per draw."""
    best = oracle(population, aim)
    rng = np.random.default_rng(seed)
    thresholds = {name: np.full(draws, np.nan) for name in methods}
    seconds = dict.fromkeys(methods, 0.0)
    for draw in range(draws):
        labels, scores = population.draw(size, rng)
        for name, method in methods.items():
            start = time.perf_counter()
            found = method(labels, scores, aim)
            seconds[name] += (time.perf_counter() - start) / draws
            thresholds[name][draw] = np.nan if found is None else found
    result = {}
    for name, chosen in thresholds.items():
        found = ~np.isnan(chosen)
        rates = population.rates(chosen[found])
        violates = (~aim.kept(rates)).sum() / draws
        given_up = np.full(draws, best)
        given_up[found] -= rates[aim.objective]
        result[name] = {
            "violates": float(violates),
            "violates_error": math.sqrt(violates * (1 - violates) / draws),
            "found": float(found.mean()),
            "oracle": best,
            "given_up": float(given_up.mean()),
            "given_up_error": float(given_up.std(ddof=1) / math.sqrt(draws)),
            "seconds": seconds[name],
        }
    return result


def tables(cells: Cells) -> list[page.Table]:
    """One table for each kind of scores."""
    found = []
    for kind in populations(0.1):
        rows = []
        for aim in dict.fromkeys(row["aim"] for row in cells.find(scores=kind)):
            for prior, size in product(PRIORS, DRAWS):
                made = [cells.find(scores=kind, aim=aim, prior=prior, rows=size, method=name) for name in METHODS]
                if all(made):
                    rows.append([f"`{aim}`, {prior:.0%}, {size:,}", *shown([one[0] for one in made])])
        header = ["aim, prior, rows", "oracle", *METHODS]
        found.append(page.Table(f"{kind[0].upper()}{kind[1:]}; violates / found / given up", header, rows))
    return found


def draw(cells: Cells) -> None:
    """Every cell of every method: how often the constraint breaks, and what is given up."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), dpi=110, layout="constrained")
    axes = figure.subplots(1, len(METHODS), sharex=True, sharey=True)
    for axis, name, colour in zip(axes, METHODS, page.COLOURS[1:], strict=False):
        made = cells.find(method=name)
        axis.scatter(page.values(made, "violates"), page.values(made, "given_up"), s=10, color=colour)
        axis.axvline(1 - CONFIDENCE, color="black", linewidth=0.8)
        axis.set_title(name, fontsize=9, loc="left")
        axis.set_xlabel("share of draws that violate", fontsize=8)
    axes[0].set_ylabel("objective given up", fontsize=8)
    figure.suptitle(f"Thresholds with confidence {CONFIDENCE}: left of the line the promise is kept", fontsize=10)
    figure.savefig(RESULTS / f"{NAME}.png")


def shown(found: list[dict[str, str]]) -> list[str]:
    cells = [
        f"{float(one['violates']):.3f} / {float(one['found']):.2f} / {float(one['given_up']):.3f}" for one in found
    ]
    return [f"{float(found[0]['oracle']):.3f}", *cells]


def run(cells: Cells, size: int, draws: int, prior: float, kind: str, methods: dict[str, Method]) -> None:
    """The cells of one population and size that are not finished."""
    for seed, aim in enumerate(asked(prior)):
        cell = {"scores": kind, "prior": prior, "aim": aim.aim, "rows": size, "draws": draws, "seed": seed}
        missing = {name: one for name, one in methods.items() if not cells.find(**cell, method=name)}
        for name, result in measure(populations(prior)[kind], aim, size, draws, missing, seed).items():
            cells.add(**cell, method=name, **result, mapie=mapie_version())


def again(cells: Cells, methods: dict[str, Method]) -> list[Reproduced]:
    """The smallest size at one prior."""
    size, draws = next(iter(DRAWS.items()))
    run(cells, size, draws, PRIORS[1], "two Gaussians", methods)
    keys = ("scores", "prior", "aim", "rows", "draws", "seed", "method")
    return compare(page.committed(NAME), cells, keys=keys, over="seed", measures=("violates", "found", "given_up"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="reproduce some cells and compare")
    parser.add_argument("--redo", action="store_true", help="forget the finished cells first")
    parser.add_argument("--report", action="store_true", help="only the tables")
    arguments = parser.parse_args()
    methods = METHODS
    if mapie_version() is None:
        print("MAPIE is skipped: pip install mapie")
        methods = {name: method for name, method in METHODS.items() if not name.startswith("MAPIE")}
    if arguments.quick:
        return page.hold(lambda cells: again(cells, methods))
    cells = page.committed(NAME)
    if arguments.redo:
        cells.drop()
    for size, draws in () if arguments.report else DRAWS.items():
        for prior, kind in product(PRIORS, populations(0.1)):
            run(cells, size, draws, prior, kind, methods)
    for table in tables(cells):
        table.show()
    return draw(cells)


if __name__ == "__main__":
    main()
