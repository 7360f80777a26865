"""The sorting routine: every distinct score is a threshold, and the counts there are what a plain count gives."""

from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve, roc_curve

from aimfor import metrics
from aimfor.metrics import _curve as curves
from aimfor.metrics._curve import Curve, cumulate

rows = st.lists(st.tuples(st.booleans(), st.integers(-3, 3), st.sampled_from([0.0, 0.25, 1.0, 3.0])), max_size=20)


def curve_of(rows) -> Curve:
    labels, scores, weights = zip(*rows, strict=True) if rows else ((), (), ())
    return cumulate(np.array(labels, dtype=bool), np.array(scores, dtype=float), np.array(weights, dtype=float))


def counts(rows, threshold: float) -> tuple[float, float]:
    tp = sum(weight for label, score, weight in rows if label and score >= threshold)
    fp = sum(weight for label, score, weight in rows if not label and score >= threshold)
    return tp, fp


def assert_same(one: Curve, other: Curve) -> None:
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@given(rows)
def test_curve_equals_counting(rows):
    curve = curve_of(rows)
    assert curve.thresholds.tolist() == sorted({float(score) for _, score, weight in rows if weight}, reverse=True)
    assert list(zip(curve.tp, curve.fp, strict=True)) == [counts(rows, threshold) for threshold in curve.thresholds]
    assert (curve.num_positives, curve.num_negatives) == counts(rows, -np.inf)


@given(rows, st.sampled_from([-np.inf, -3.5, -3, -1, 0, 0.5, 2, 3, 3.5, np.inf]))
def test_counts_at_any_threshold(rows, threshold):
    assert curve_of(rows).at(threshold) == counts(rows, threshold)


@given(rows, st.randoms())
def test_order_of_rows_does_not_matter(rows, random):
    shuffled = random.sample(rows, len(rows))
    assert_same(curve_of(shuffled), curve_of(rows))


@given(rows)
def test_weight_zero_is_absence(rows):
    assert_same(curve_of([row for row in rows if row[2]]), curve_of(rows))


@given(rows)
def test_a_row_twice_is_weight_two(rows):
    assert_same(curve_of(rows + rows), curve_of([(label, score, 2 * weight) for label, score, weight in rows]))


def test_rates_equal_scikit_learn():
    rng = np.random.default_rng(0)
    labels, scores, weights = rng.random(200) < 0.3, rng.integers(0, 50, 200) / 7, rng.random(200) + 0.1
    curve = cumulate(labels, scores, weights)
    fpr, tpr, thresholds = roc_curve(labels, scores, sample_weight=weights, drop_intermediate=False)
    np.testing.assert_array_equal(curve.thresholds, thresholds[1:])
    np.testing.assert_allclose(curve.fpr, fpr[1:], rtol=1e-12)
    np.testing.assert_allclose(curve.recall, tpr[1:], rtol=1e-12)
    precision, recall, thresholds = precision_recall_curve(labels, scores, sample_weight=weights)
    np.testing.assert_allclose(curve.precision, precision[:-1][::-1], rtol=1e-12)
    np.testing.assert_allclose(curve.recall, recall[:-1][::-1], rtol=1e-12)


def test_rates_end_at_exactly_one():
    curve = cumulate(np.arange(1000) % 3 == 0, np.arange(1000) / 3, np.full(1000, 0.1))
    assert (curve.recall[-1], curve.fpr[-1]) == (1, 1)


def test_a_million_rounded_weights_do_not_drift():
    size = 1_000_000
    curve = cumulate(np.arange(size) % 10 == 0, np.zeros(size), np.full(size, 0.1))
    np.testing.assert_allclose([curve.num_positives, curve.num_negatives], [10_000, 90_000], rtol=1e-15)


def test_weights_of_all_sizes_are_cumulated_exactly():
    rng = np.random.default_rng(0)
    weights = rng.random(1000) * 10.0 ** rng.integers(-8, 9, 1000)
    curve = cumulate(np.ones(1000, dtype=bool), -np.arange(1000.0), weights)
    exact = [float(total) for total in accumulate(map(Fraction, weights.tolist()))]
    np.testing.assert_allclose(curve.tp, exact, rtol=3e-16)
    assert (curve.gained_tp >= 0).all()


@pytest.mark.parametrize("scores", [[1e308, -1e308], [5e-324, 0.0], [1.0, np.nextafter(1.0, 0.0)]])
def test_extreme_scores_stay_distinct(scores):
    assert cumulate(np.array([True, False]), np.array(scores), np.ones(2)).thresholds.tolist() == scores


def test_arguments_are_not_modified():
    labels, scores, weights = np.array([True, False, True]), np.array([1.0, 3.0, 2.0]), np.array([1.0, 0.0, 2.0])
    copies = labels.copy(), scores.copy(), weights.copy()
    cumulate(labels, scores, weights)
    for array, copy in zip((labels, scores, weights), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e100, 1e300, 1.7e308])
def test_the_size_of_weights_does_not_change_rates(size):
    labels, scores = np.arange(1000) % 3 == 0, np.sin(np.arange(1000))
    curve, expected = (cumulate(labels, scores, np.full(1000, one)) for one in (size, 1.0))
    np.testing.assert_allclose(curve.precision, expected.precision, rtol=1e-15)
    np.testing.assert_allclose(curve.recall, expected.recall, rtol=1e-15)
    np.testing.assert_allclose(curve.fpr, expected.fpr, rtol=1e-15)
    assert curve.num_positives + curve.num_negatives < np.inf


def test_nothing_is_left_of_the_smallest_weights_beside_the_largest():
    curve = cumulate(np.array([True, False, True]), np.array([3.0, 2.0, 1.0]), np.array([5e-324, 1e308, 1e308]))
    np.testing.assert_allclose(curve.precision, [0.0, 0.5])


def test_inside_curves_kept_a_column_is_sorted_once(monkeypatch):
    random = np.random.default_rng(0)
    labels, scores = random.random((50, 2)) < 0.4, random.normal(size=(50, 2))
    sorted_columns = []
    real = curves.cumulate
    monkeypatch.setattr(curves, "cumulate", lambda *column: sorted_columns.append(column) or real(*column))
    apart = [one(labels, scores).tolist() for one in (metrics.average_precision, metrics.roc_auc)]
    assert len(sorted_columns) == 4
    with curves.curves_kept():
        together = [one(labels, scores).tolist() for one in (metrics.average_precision, metrics.roc_auc)]
        assert len(sorted_columns) == 6
        # Other labels, scores or weights at the same place are other columns.
        for other in ((~labels, scores), (labels, -scores)):
            assert metrics.roc_auc(*other).tolist() == pytest.approx([1 - value for value in apart[1]])
        weighted = metrics.average_precision(labels, scores, sample_weight=random.random(50) + 0.1)
        assert weighted.tolist() != apart[0]
    assert together == apart
    before = len(sorted_columns)
    metrics.roc_auc(labels, scores)
    assert len(sorted_columns) == before + 2
