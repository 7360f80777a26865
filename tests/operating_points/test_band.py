"""The band: all thresholds at once, on populations that are known."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from aimfor.operating_points import rate_band

LEVEL, DRAWS = 0.2, 300
MOST = stats.binom.isf(1e-4, DRAWS, LEVEL) / DRAWS


def draw(rng, size, prior, step):
    labels = rng.random(size) < prior
    scores = 2.0 * labels + rng.normal(size=size)
    return labels, np.round(scores / step) * step if step else scores


def holds(band, prior, step):
    """Whether every bound holds at every threshold, those between two scores included."""
    edges = band.thresholds - step / 2
    recall, fpr = stats.norm.sf(edges - 2), stats.norm.sf(edges)
    precision = prior * recall / (prior * recall + (1 - prior) * fpr)
    inside = [
        (bounds[0] <= rates + 1e-12).all() and (rates <= bounds[1] + 1e-12).all()
        for bounds, rates in ((band.recall, recall), (band.fpr, fpr), (band.precision, precision))
    ]
    return all(inside)


SLOW = [(400, 0.1, 0.0), (3000, 0.3, 0.0), (400, 0.3, 0.5)]


@pytest.mark.parametrize(
    ("size", "prior", "step"), [(60, 0.5, 0.0), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
@pytest.mark.timeout(900)  # every draw has another number of positives, hence other bounds
def test_the_band_holds_at_all_thresholds_at_once(size, prior, step):
    rng, broken = np.random.default_rng(0), 0
    for _ in range(DRAWS):
        labels, scores = draw(rng, size, prior, step)
        if 0 < labels.sum() < size:
            broken += not holds(rate_band(labels, scores, confidence=1 - LEVEL), prior, step)
    assert broken / DRAWS <= MOST


def test_the_band_is_narrower_at_the_top_than_that_of_dvoretzky_kiefer_and_wolfowitz():
    labels, scores = draw(np.random.default_rng(1), 5000, 0.1, 0.0)
    band = rate_band(labels, scores)
    negatives, positives = (~labels).sum(), labels.sum()
    half_fpr, half_recall = (math.sqrt(math.log(2 / (0.45 * 0.05)) / (2 * rows)) for rows in (negatives, positives))
    widest = 2 * half_fpr
    top = band.fpr[1] < 0.05
    assert (band.fpr[1] - band.fpr[0])[top].max() < 0.8 * widest
    found = (np.cumsum(labels[np.argsort(-scores)]) / positives, np.cumsum(~labels[np.argsort(-scores)]) / negatives)
    prior = 0.1
    dkw = prior * (found[0] - half_recall).clip(0)
    dkw = dkw / (dkw + (1 - prior) * (found[1] + half_fpr))
    # What it says of precision is worth more: the best lower bound of any threshold.
    assert band.precision[0].max() > dkw.max() + 0.05


def test_bounds_are_in_order():
    band = rate_band(*draw(np.random.default_rng(2), 500, 0.3, 0.0))
    for bounds in (band.precision, band.recall, band.fpr):
        assert bounds.shape == (2, band.thresholds.size)
        assert (bounds >= 0).all()
        assert (bounds <= 1).all()
        assert (bounds[0] <= bounds[1]).all()
    assert (np.diff(band.recall) >= 0).all()
    assert band.confidence == 0.95


BAD = [
    ({"confidence": 1}, "confidence must be in (0, 1), got 1"),
    ({"y_true": [1, 1, 1]}, "y_true must hold both classes, got 3 positives"),
    ({"y_true": [0, 2, 1]}, "y_true must be 0 or 1 in every entry, got 2.0"),
    ({"y_score": [1.0, math.inf, 2.0]}, "y_score must be finite in every entry, got inf"),
    ({"y_true": [[0], [1], [1]], "y_score": [[1.0], [2.0], [3.0]]}, "y_true must have shape [n], got (3, 1)"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        rate_band(**{"y_true": [0, 1, 1], "y_score": [1.0, 2.0, 3.0]} | change)
