"""Is the promise of ThresholdClassifier kept on populations whose rates are known at every threshold?

    python -m benchmarks.decisions.simulated            # a few minutes on one core
    python -m benchmarks.decisions.simulated --report   # the table from the finished cells

Rows are drawn from mixtures of normal distributions. A logistic regression scores them by a linear function, so its
scores are mixtures of normal distributions too, and the rates of every threshold in the population are exact. Each draw
is fitted anew with `confidence=0.95` and a held-out share. At most 5 % of the draws may break their constraint.
"""

import argparse
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

import aimfor
from benchmarks.decisions.judging import PAGE, put_between
from benchmarks.shared.cells import RESULTS, Cells
from benchmarks.shared.page import grid

NAME = "decisions_simulated"
CONFIDENCE, SHARE, DRAWS = 0.95, 0.4, 2_000
ROWS, PRIORS = (400, 2_000), (0.1, 0.3)
AIMS = ("recall@precision>=0.8", "precision@recall>=0.8", "tpr@fpr<=0.05")


class Population(NamedTuple):
    """Normal distributions of unit variance: for each class shares and centres `[k, d]`."""

    negative_shares: np.ndarray
    negative_centres: np.ndarray
    positive_shares: np.ndarray
    positive_centres: np.ndarray

    def draw(self, rows: int, prior: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Features and labels of independent rows."""
        y = (rng.random(rows) < prior).astype(np.int64)
        X = rng.normal(size=(rows, self.negative_centres.shape[1]))
        for label, (shares, centres) in enumerate((self[:2], self[2:])):
            of_class = np.flatnonzero(y == label)
            X[of_class] += centres[rng.choice(len(shares), size=len(of_class), p=shares)]
        return X, y

    def caught(self, model: LogisticRegression, threshold: float) -> tuple[float, float]:
        """False-positive and true-positive rate of a threshold on the decision function."""
        weights, offset = model.coef_[0], model.intercept_[0]
        size = np.linalg.norm(weights)
        fpr, tpr = (
            float(shares @ norm.sf((threshold - offset - centres @ weights) / size))
            for shares, centres in (self[:2], self[2:])
        )
        return fpr, tpr


POPULATIONS = {
    "two normals": Population(np.ones(1), np.zeros((1, 3)), np.ones(1), np.array([[2.0, 1.0, 0.0]])),
    # A few negatives lie beyond the positives, so that precision falls again at the top.
    "negatives on top": Population(
        np.array([0.98, 0.02]),
        np.array([[0.0, 0.0, 0.0], [4.0, 2.0, 0.0]]),
        np.array([0.5, 0.5]),
        np.array([[2.5, 1.0, 0.0], [1.0, 1.0, 1.0]]),
    ),
}


def broken(name: str, aim: str, rows: int, prior: float, seed: int) -> bool | None:
    """Whether the threshold of one draw breaks its constraint in the population; None without a threshold."""
    population = POPULATIONS[name]
    X, y = population.draw(rows, prior, np.random.default_rng(seed))
    model = aimfor.ThresholdClassifier(
        LogisticRegression(), aim, confidence=CONFIDENCE, cv=SHARE, random_state=seed
    ).fit(X, y)
    if model.threshold_ is None:
        return None
    fpr, tpr = population.caught(model.estimator_, model.threshold_)
    precision = prior * tpr / (prior * tpr + (1 - prior) * fpr)
    return {AIMS[0]: precision < 0.8, AIMS[1]: tpr < 0.8, AIMS[2]: fpr > 0.05}[aim]


def run(name: str, aim: str, rows: int, prior: float, draws: int) -> dict[str, Any]:
    """How many of the draws break their constraint, and how many have a threshold."""
    found = [broken(name, aim, rows, prior, seed) for seed in range(draws)]
    return {"draws": draws, "with_threshold": draws - found.count(None), "broken": found.count(True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--report", action="store_true", help="the table from the finished cells")
    arguments = parser.parse_args()
    cells = Cells(RESULTS / f"{NAME}.csv")
    for name, aim, rows, prior in () if arguments.report else product(POPULATIONS, AIMS, ROWS, PRIORS):
        where = {"population": name, "aim": aim, "rows": rows, "prior": prior}
        if not cells.find(**where):
            cells.add(**where, **run(name, aim, rows, prior, DRAWS))
    print(table(cells))
    put_between(PAGE, NAME, table(cells))


def table(cells: Cells) -> str:
    """For each population and aim the share of draws with a threshold, and of those that break their constraint."""
    header = ["population", "aim", "rows", "positives", "with a threshold", "broken"]
    lines = []
    for row in cells.rows:
        draws, having, bad = (int(row[column]) for column in ("draws", "with_threshold", "broken"))
        prior = f"{100 * float(row['prior']):.0f} %"
        shares = [f"{100 * having / draws:.1f} %", f"{100 * bad / draws:.1f} %"]
        lines.append([row["population"], f"`{row['aim']}`", row["rows"], prior, *shares])
    return grid(header, lines)


if __name__ == "__main__":
    main()
