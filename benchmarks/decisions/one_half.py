"""What does `confidence=0.5` change against the best threshold on the rows?

    python -m benchmarks.decisions.one_half            # a minute on one core
    python -m benchmarks.decisions.one_half --report   # the table from the finished cells

Scores are drawn from normal distributions whose rates are known at every threshold: two normals, or the same with 2 %
of the negatives far above the positives, so that precision falls again at the top. A fifth of the rows is positive.
"""

import argparse

import numpy as np
from scipy.stats import norm

from aimfor.operating_points import choose_points
from benchmarks.decisions.judging import put_between
from benchmarks.shared.cells import RESULTS, ROOT, Cells
from benchmarks.shared.page import grid

NAME = "decisions_one_half"
PAGE = ROOT / "docs" / "operating_points.md"
DRAWS, PRIOR, DISTANCE = 300, 0.2, 2.5
HARD = {"two normals": 0.0, "negatives on top": 0.02}  # share of the negatives that lie far above
ROWS = (300, 1_500)
AIMS = ("recall@precision>=0.8", "precision@recall>=0.8", "tpr@fpr<=0.05")


def draw(rows: int, hard: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores."""
    labels = rng.random(rows) < PRIOR
    centres = np.where(labels, DISTANCE, 2 * DISTANCE * (rng.random(rows) < hard))
    return labels, centres + rng.normal(size=rows)


def keeps(aim: str, threshold: float, hard: float) -> bool:
    """Whether the constraint holds in the population."""
    recall = float(norm.sf(threshold - DISTANCE))
    fpr = float((1 - hard) * norm.sf(threshold) + hard * norm.sf(threshold - 2 * DISTANCE))
    precision = PRIOR * recall / (PRIOR * recall + (1 - PRIOR) * fpr)
    return {AIMS[0]: precision >= 0.8, AIMS[1]: recall >= 0.8, AIMS[2]: fpr <= 0.05}[aim]


def run(cells: Cells, population: str, rows: int, aim: str) -> None:
    """One setting."""
    rng, hard = np.random.default_rng(rows), HARD[population]
    found: dict[str, list[bool]] = {"best": [], "half": []}
    for _ in range(DRAWS):
        labels, scores = draw(rows, hard, rng)
        for name, confidence in (("best", None), ("half", 0.5)):
            threshold = choose_points(labels, scores, aim, confidence=confidence).threshold
            if threshold is not None:
                found[name].append(keeps(aim, threshold, hard))
    shares = {
        f"{name} {what}": value
        for name, held in found.items()
        for what, value in (("found", len(held) / DRAWS), ("held", float(np.mean(held)) if held else ""))
    }
    cells.add(population=population, rows=rows, aim=aim, **shares)


def table(cells: Cells) -> str:
    """What the page shows."""
    header = ["population", "rows", "aim", "best: found", "held", "`confidence=0.5`: found", "held"]
    shown = [
        [row["population"], f"{int(row['rows']):,}", f"`{row['aim']}`"]
        + [
            f"{100 * float(value):.0f} %" if (value := row[f"{name} {what}"]) else "-"
            for name in ("best", "half")
            for what in ("found", "held")
        ]
        for row in cells.rows
    ]
    return grid(header, shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--report", action="store_true", help="the table from the finished cells")
    arguments = parser.parse_args()
    cells = Cells(RESULTS / f"{NAME}.csv")
    for population in HARD:
        for rows in ROWS:
            for aim in AIMS:
                if not arguments.report and not cells.find(population=population, rows=rows, aim=aim):
                    run(cells, population, rows, aim)
    print(table(cells))
    put_between(PAGE, NAME, table(cells))


if __name__ == "__main__":
    main()
