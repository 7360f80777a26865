"""Bounds on precision that hold at all thresholds at once: how tight are ours beside those of others?

    python -m benchmarks.decisions.bands            # a few minutes on one core
    python -m benchmarks.decisions.bands --report   # the tables from the finished cells, into docs/operating_points.md
    python -m benchmarks.decisions.bands --quick    # a few draws, nothing is kept

Labelled rows come from two normal distributions whose rates are known at every threshold. Each method gives lower
bounds on precision, all of which should hold at once in 95 % of the draws:

- aimfor: `rate_band`;
- Dvoretzky, Kiefer and Wolfowitz, with Massart's constant: a band of one width for each class, and the same interval
  for the share of positives;
- Song, Jin and Candes (2026): the scores of the labelled negatives bound the false discoveries among unlabelled rows.
  Their envelope comes from draws of the joint distribution of the ranks, here with equal local levels. It needs no
  labelled positives, and bounds the precision among those very rows, so it answers another question.

A second table has thresholds for one false-positive rate: Tong, Feng and Li (2018), `operating_point` with a
confidence, and the band, which covers all thresholds and pays for that.
"""

import argparse
import math
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import stats

import aimfor
from aimfor.operating_points import rate_band
from benchmarks.decisions.judging import put_between
from benchmarks.shared.cells import RESULTS, ROOT, Cells
from benchmarks.shared.page import grid

NAME = "decisions_bands"
PAGE = ROOT / "docs" / "operating_points.md"
LEVEL, DRAWS, DISTANCE = 0.05, 200, 2.5
SIZES, PRIORS, RECALLS = (500, 2_000), (0.1, 0.3), (0.25, 0.5, 0.75)
ENVELOPE_DRAWS = 999
MAX_FPR = 0.05
METHODS = ("aimfor", "Dvoretzky, Kiefer, Wolfowitz", "Song, Jin, Candes")


def draw(rows: int, prior: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores."""
    labels = rng.random(rows) < prior
    return labels, DISTANCE * labels + rng.normal(size=rows)


def precision_at(thresholds: np.ndarray, prior: float) -> np.ndarray:
    """The precision of the population."""
    recall, fpr = stats.norm.sf(thresholds - DISTANCE), stats.norm.sf(thresholds)
    return prior * recall / (prior * recall + (1 - prior) * fpr)


def by_aimfor(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds from high to low, and lower bounds on precision there."""
    band = rate_band(labels, scores, confidence=1 - LEVEL)
    return band.thresholds, band.precision[0]


def by_dkw(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same with one width for each class, and the same shares of the level as `rate_band` has."""
    order = np.argsort(-scores)
    positives, negatives = int(labels.sum()), int((~labels).sum())
    recall, fpr = np.cumsum(labels[order]) / positives, np.cumsum(~labels[order]) / negatives
    half = [math.sqrt(math.log(2 / (0.45 * LEVEL)) / (2 * count)) for count in (positives, negatives)]
    least = stats.beta.ppf(0.05 * LEVEL, positives, negatives + 1)
    caught, wrong = least * np.maximum(recall - half[0], 0), (1 - least) * np.minimum(fpr + half[1], 1)
    return scores[order], caught / np.maximum(caught + wrong, 1e-300)


def by_envelope(negatives: np.ndarray, unlabelled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same on unlabelled rows, from the scores of labelled negatives."""
    scores = -np.sort(-unlabelled)
    place = np.searchsorted(np.sort(negatives), scores, side="left")
    above = len(negatives) - place  # labelled negatives at or above each threshold
    most = envelope(len(negatives), len(unlabelled))[above]
    flagged = np.arange(1, len(scores) + 1)
    return scores, 1 - np.minimum(most, flagged) / flagged


@lru_cache(maxsize=256)
def envelope(negatives: int, rows: int) -> np.ndarray:
    """For each number of labelled negatives above a threshold, the most false discoveries there among all rows.

    All rows may be negative. With the stated confidence no threshold has more.
    """
    rng = np.random.default_rng(0)
    # How many of the rows lie above the next lower labelled negative, in draws where all are alike.
    gaps = rng.dirichlet(np.ones(negatives + 1), size=ENVELOPE_DRAWS)
    counts = np.cumsum([rng.multinomial(rows, one) for one in gaps], axis=1)
    # Equal local levels: the largest rank among the draws at any place, and the level at which few draws exceed theirs.
    order = np.sort(counts, axis=0)
    ranks = np.array([np.searchsorted(order[:, place], counts[:, place], "left") for place in range(negatives + 1)])
    highest = np.sort(ranks.max(axis=0))
    allowed = highest[math.ceil((1 - LEVEL) * (ENVELOPE_DRAWS + 1)) - 1]
    return order[min(int(allowed), ENVELOPE_DRAWS - 1)]


def run(cells: Cells, rows: int, prior: float, draws: int) -> None:
    """One setting, all methods."""
    rng = np.random.default_rng([rows, int(100 * prior)])
    found: dict[str, list[Any]] = {method: [] for method in METHODS}
    limits: list[list[float]] = []
    at = stats.norm.isf(np.array(RECALLS)) + DISTANCE
    for _ in range(draws):
        labels, scores = draw(rows, prior, rng)
        others, unlabelled = draw(rows, prior, rng)
        bounds = {
            "aimfor": by_aimfor(labels, scores),
            "Dvoretzky, Kiefer, Wolfowitz": by_dkw(labels, scores),
            "Song, Jin, Candes": by_envelope(scores[~labels], unlabelled),
        }
        for method, (thresholds, lower) in bounds.items():
            true = precision_at(thresholds, prior)
            if method == "Song, Jin, Candes":  # about the very rows
                hits = others[np.argsort(-unlabelled)]
                true = np.cumsum(hits) / np.arange(1, rows + 1)
            places = np.searchsorted(-thresholds, -at, side="right") - 1
            found[method].append([bool((lower > true + 1e-12).any()), *lower[places]])
        limits.append(thresholds_for_fpr(labels, scores))
    for method in METHODS:
        made = np.array(found[method], dtype=float).mean(axis=0)
        shown = {f"at recall {recall:g}": bound for recall, bound in zip(RECALLS, made[1:].tolist(), strict=True)}
        true = {f"true at {recall:g}": float(precision_at(x, prior)) for recall, x in zip(RECALLS, at, strict=True)}
        cells.add(rows=rows, prior=prior, method=method, broken=float(made[0]), **shown, **true)
    tong, ours, band = (np.array(column) for column in zip(*limits, strict=True))
    for method, chosen in {"Tong, Feng, Li": tong, "operating_point": ours, "rate_band": band}.items():
        broken = float((stats.norm.sf(chosen) > MAX_FPR).mean())
        power = {f"at recall {RECALLS[0]:g}": float(stats.norm.sf(chosen - DISTANCE).mean())}
        rest = dict.fromkeys([f"at recall {recall:g}" for recall in RECALLS[1:]], "")
        rest |= dict.fromkeys([f"true at {recall:g}" for recall in RECALLS], "")
        cells.add(rows=rows, prior=prior, method=f"fpr: {method}", broken=broken, **power, **rest)


def thresholds_for_fpr(labels: np.ndarray, scores: np.ndarray) -> list[float]:
    """By Tong, Feng and Li, by `operating_point` and by the band: just below the lowest that keeps the rate."""
    negatives = np.sort(scores[~labels])
    count = len(negatives)
    # The smallest rank k for which the k-th score is exceeded by too many new negatives with probability <= 0.05.
    tails = stats.binom.sf(np.arange(count), count, 1 - MAX_FPR)  # at least k + 1 of them below the quantile
    rank = int(np.flatnonzero(tails <= LEVEL)[0])
    point = aimfor.operating_point(labels, scores, f"tpr@fpr<={MAX_FPR}", confidence=1 - LEVEL)
    band = rate_band(labels, scores, confidence=1 - LEVEL)
    safe = band.thresholds[band.fpr[1] <= MAX_FPR]
    top = float(scores.max()) + 1
    return [float(negatives[rank]), top if point.threshold is None else point.threshold, float(min(safe, default=top))]


def table(cells: Cells) -> str:
    """What the page shows."""
    lines, second = [], []
    for rows in SIZES:
        for prior in PRIORS:
            here = {row["method"]: row for row in cells.find(rows=rows, prior=prior)}
            if not here:
                continue
            setting = [f"{rows:,}", f"{100 * prior:.0f} %"]
            true = [f"{float(here['aimfor'][f'true at {recall:g}']):.3f}" for recall in RECALLS]
            lines.append([*setting, "the population", "", *true])
            for method in METHODS:
                row = here[method]
                bounds = [f"{float(row[f'at recall {recall:g}']):.3f}" for recall in RECALLS]
                lines.append([*setting, method, f"{100 * float(row['broken']):.1f} %", *bounds])
            for method in ("Tong, Feng, Li", "operating_point", "rate_band"):
                row = here[f"fpr: {method}"]
                recall = f"{float(row[f'at recall {RECALLS[0]:g}']):.3f}"
                second.append([*setting, method, f"{100 * float(row['broken']):.1f} %", recall])
    first_header = ["rows", "positives", "lower bound by", "broken", *(f"recall {recall:g}" for recall in RECALLS)]
    second_header = ["rows", "positives", f"threshold for fpr <= {MAX_FPR:g} by", "broken", "recall"]
    return f"{grid(first_header, lines)}\n\n{grid(second_header, second)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--report", action="store_true", help="the tables from the finished cells")
    parser.add_argument("--quick", action="store_true", help="a few draws, nothing is kept")
    arguments = parser.parse_args()
    cells = Cells(None if arguments.quick else RESULTS / f"{NAME}.csv")
    for rows in SIZES[: 1 if arguments.quick else None]:
        for prior in PRIORS:
            if not arguments.report and not cells.find(rows=rows, prior=prior):
                run(cells, rows, prior, 3 if arguments.quick else DRAWS)
    print(table(cells))
    if not arguments.quick:
        put_between(PAGE, NAME, table(cells))


if __name__ == "__main__":
    main()
