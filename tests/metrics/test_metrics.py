"""Exact metrics: equal to scikit-learn, to counting in fractions over all thresholds, and to what mathematics says."""

import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from aimfor import metrics
from aimfor._base.errors import UndefinedMetricError
from aimfor._base.warnings import UndefinedMetricWarning
from aimfor.metrics._measure import AtThreshold

AT_THRESHOLD = {
    "recall_at_precision": partial(metrics.recall_at_precision, min_precision=0.6),
    "precision_at_recall": partial(metrics.precision_at_recall, min_recall=0.7),
    "tpr_at_fpr": partial(metrics.tpr_at_fpr, max_fpr=0.3),
    "fpr_at_tpr": partial(metrics.fpr_at_tpr, min_tpr=0.7),
    "f_beta": partial(metrics.f_beta, beta=2.0),
}
AREAS = {
    "average_precision": metrics.average_precision,
    "roc_auc": metrics.roc_auc,
    "mean_recall_over_precision": partial(metrics.mean_recall_over_precision, low=0.3, high=0.9),
    "mean_precision_over_recall": partial(metrics.mean_precision_over_recall, low=0.3, high=0.9),
    "mean_tpr_over_fpr": partial(metrics.mean_tpr_over_fpr, low=0.1, high=0.6),
}
AT_GIVEN_THRESHOLD = {
    "precision": partial(metrics.precision, threshold=0.0),
    "recall": partial(metrics.recall, threshold=0.0),
    "fpr": partial(metrics.fpr, threshold=0.0),
}
ALL = AT_THRESHOLD | AREAS | AT_GIVEN_THRESHOLD
NEED_NEGATIVES = {"tpr_at_fpr", "fpr_at_tpr", "roc_auc", "mean_tpr_over_fpr", "fpr"}
NEED_POSITIVES = set(ALL) - {"precision", "fpr"}

every_metric = pytest.mark.parametrize("metric", [pytest.param(metric, id=name) for name, metric in ALL.items()])
row = st.tuples(st.integers(0, 1), st.integers(-3, 3), st.sampled_from([0.0, 0.5, 1.0, 3.0]))


@st.composite
def data(draw, max_size: int = 20):
    """Labels, scores with ties, weights; both classes are there, and a score above 0, so that every metric exists."""
    rows = [
        *draw(st.lists(row, max_size=max_size)),
        (1, draw(st.integers(0, 3)), 1.0),
        (0, draw(st.integers(-3, 3)), 1.0),
    ]
    labels, scores, weights = zip(*draw(st.permutations(rows)), strict=True)
    return np.array(labels), np.array(scores, dtype=float), np.array(weights)


def random_data(seed: int, size: int = 60, ties: bool = True):
    rng = np.random.default_rng(seed)
    labels = (np.arange(size) < max(2, size // 4)).astype(int)
    scores = labels + rng.normal(size=size)
    return labels, np.round(scores, 1) if ties else scores, rng.random(size) + 0.1


def assert_close(one, other, name: str = "", threshold_of=lambda threshold: threshold) -> None:
    if isinstance(one, AtThreshold):
        np.testing.assert_array_equal(one.threshold, threshold_of(other.threshold), err_msg=name)
    np.testing.assert_allclose(value_of(one), value_of(other), rtol=1e-9, atol=1e-12, err_msg=name)


def value_of(result):
    return result.value if isinstance(result, AtThreshold) else result


# Against scikit-learn


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True])
def test_areas_equal_scikit_learn(seed, weighted):
    labels, scores, weights = random_data(seed)
    weight = weights if weighted else None
    ap = sk.average_precision_score(labels, scores, sample_weight=weight)
    auc = sk.roc_auc_score(labels, scores, sample_weight=weight)
    assert metrics.average_precision(labels, scores, sample_weight=weight) == pytest.approx(ap, rel=1e-12)
    assert metrics.roc_auc(labels, scores, sample_weight=weight) == pytest.approx(auc, rel=1e-12)
    assert metrics.mean_tpr_over_fpr(labels, scores, 0, 1, sample_weight=weight) == pytest.approx(auc, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("low", "high"), [(0.0, 0.1), (0.0, 0.37), (0.2, 0.25), (0.5, 1.0)])
def test_partial_roc_area_equals_scikit_learn(seed, low, high):
    labels, scores, weights = random_data(seed)
    mine = metrics.mean_tpr_over_fpr(labels, scores, low, high, sample_weight=weights)
    fpr, tpr, _ = sk.roc_curve(labels, scores, sample_weight=weights, drop_intermediate=False)
    inside = (fpr > low) & (fpr < high)
    start, end = (0.0 if low == 0 else np.interp(low, fpr, tpr)), np.interp(high, fpr, tpr)
    area = sk.auc(np.r_[low, fpr[inside], high], np.r_[start, tpr[inside], end])
    if low == 0:  # the curve may rise straight up at fpr 0; scikit-learn's own partial area knows, in McClish's form
        standardised = sk.roc_auc_score(labels, scores, sample_weight=weights, max_fpr=high)
        least, most = high**2 / 2, high
        area = least + (2 * standardised - 1) * (most - least)
    assert mine == pytest.approx(area / (high - low), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("target", [0.3, 0.5, 0.75, 0.9])
def test_points_equal_scikit_learn_curves(seed, target):
    labels, scores, weights = random_data(seed)
    precision, recall, _ = sk.precision_recall_curve(labels, scores, sample_weight=weights)
    fpr, tpr, _ = sk.roc_curve(labels, scores, sample_weight=weights, drop_intermediate=False)
    f2 = 5 * precision * recall / np.maximum(4 * precision + recall, 1e-300)
    expected = {
        "recall_at_precision": recall[precision >= target].max(),
        "precision_at_recall": precision[recall >= target].max(),
        "tpr_at_fpr": tpr[fpr <= target].max(),
        "fpr_at_tpr": fpr[tpr >= target].min(),
    }
    for name, value in expected.items():
        mine = getattr(metrics, name)(labels, scores, target, sample_weight=weights)
        assert mine.value == pytest.approx(value, rel=1e-12), name
    assert metrics.f_beta(labels, scores, 2, sample_weight=weights).value == pytest.approx(f2.max(), rel=1e-12)


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.3, 1.0])
def test_rates_at_a_threshold_equal_scikit_learn(threshold):
    labels, scores, weights = random_data(0)
    predicted = scores >= threshold
    precision = sk.precision_score(labels, predicted, sample_weight=weights)
    recall = sk.recall_score(labels, predicted, sample_weight=weights)
    fpr = sk.recall_score(1 - labels, predicted, sample_weight=weights)
    assert metrics.precision(labels, scores, threshold, sample_weight=weights) == pytest.approx(precision)
    assert metrics.recall(labels, scores, threshold, sample_weight=weights) == pytest.approx(recall)
    assert metrics.fpr(labels, scores, threshold, sample_weight=weights) == pytest.approx(fpr)


# Against counting in fractions over all distinct thresholds


def points(labels, scores, weights):
    """(threshold, tp, fp, |Y+|, |Y-|) for every distinct score of a row with weight, in exact arithmetic."""
    weights = [Fraction(weight) for weight in weights.tolist()]
    rows = list(zip(labels.tolist(), scores.tolist(), weights, strict=True))
    for threshold in {score for _, score, weight in rows if weight}:
        tp = sum((w for label, score, w in rows if label and score >= threshold), Fraction(0))
        fp = sum((w for label, score, w in rows if not label and score >= threshold), Fraction(0))
        yield threshold, tp, fp, sum(w for label, _, w in rows if label), sum(w for label, _, w in rows if not label)


def best(candidates):
    """The candidate (objective, preference, value, threshold) of the highest objective, then preference."""
    *_, value, threshold = max(candidates, default=(0, 0, 0, np.inf))
    return AtThreshold(float(value), threshold)


@given(data(), st.integers(1, 20).map(lambda k: Fraction(k, 20)))
def test_points_equal_brute_force(data, target):
    labels, scores, weights = data
    curve = list(points(*data))
    expected = {
        metrics.recall_at_precision: best(
            (tp / pos, t, tp / pos, t) for t, tp, fp, pos, _ in curve if tp / (tp + fp) >= target
        ),
        metrics.precision_at_recall: best(
            (tp / (tp + fp), -t, tp / (tp + fp), t) for t, tp, fp, pos, _ in curve if tp / pos >= target
        ),
        metrics.tpr_at_fpr: best(
            (tp / pos, t, tp / pos, t) for t, tp, fp, pos, neg in curve if tp and fp / neg <= target
        ),
        metrics.fpr_at_tpr: best((-fp / neg, -t, fp / neg, t) for t, tp, fp, pos, neg in curve if tp / pos >= target),
    }
    for metric, value in expected.items():
        assert_close(metric(labels, scores, float(target), sample_weight=weights), value)


@given(data(), st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(2), Fraction(3)]))
def test_f_beta_equals_brute_force(data, beta):
    labels, scores, weights = data
    expected = best(
        (value := (1 + beta**2) * tp / (tp + fp + beta**2 * pos), t, value, t) for t, tp, fp, pos, _ in points(*data)
    )
    assert_close(metrics.f_beta(labels, scores, float(beta), sample_weight=weights), expected)


@given(data())
def test_roc_auc_counts_pairs(data):
    labels, scores, weights = data
    pairs = np.sign(scores[labels == 1][:, None] - scores[labels == 0]) / 2 + 0.5
    pair_weights = weights[labels == 1][:, None] * weights[labels == 0]
    expected = np.average(pairs, weights=pair_weights)
    assert metrics.roc_auc(labels, scores, sample_weight=weights) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", AT_THRESHOLD)
def test_value_is_found_again_at_the_threshold(name):
    labels, scores, weights = random_data(1)
    value, threshold = AT_THRESHOLD[name](labels, scores, sample_weight=weights)
    precision, recall, fpr = (
        rate(labels, scores, threshold, sample_weight=weights)
        for rate in (metrics.precision, metrics.recall, metrics.fpr)
    )
    expected = {
        "recall_at_precision": recall,
        "precision_at_recall": precision,
        "tpr_at_fpr": recall,
        "fpr_at_tpr": fpr,
        "f_beta": 5 * precision * recall / (4 * precision + recall),
    }
    assert value == pytest.approx(expected[name], rel=1e-12)


# Areas are the integrals of the point metrics

CELLS = 400


def mean_over_grid(point_metric, low, high, *args, **kwargs):
    middles = low + (np.arange(CELLS) + 0.5) * (high - low) / CELLS
    return np.mean([point_metric(*args, middle, **kwargs).value for middle in middles])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.25, 0.6), (0.9, 1.0)])
@pytest.mark.parametrize(
    ("area", "point", "ties"),
    [
        (metrics.mean_recall_over_precision, metrics.recall_at_precision, False),
        (metrics.mean_recall_over_precision, metrics.recall_at_precision, True),
        (metrics.mean_precision_over_recall, metrics.precision_at_recall, False),
        (metrics.mean_precision_over_recall, metrics.precision_at_recall, True),
        # Where classes tie, the ROC curve is a slope and tpr_at_fpr a step: scikit-learn is the test there.
        (metrics.mean_tpr_over_fpr, metrics.tpr_at_fpr, False),
    ],
)
def test_area_equals_integral_of_point_metric(area, point, low, high, ties, seed):
    labels, scores, weights = random_data(seed, ties=ties)
    expected = mean_over_grid(point, low, high, labels, scores, sample_weight=weights)
    # Steps of a monotone function of total height at most 1 are misplaced by less than one cell.
    assert area(labels, scores, low, high, sample_weight=weights) == pytest.approx(expected, abs=1 / CELLS)


@given(data(), st.sampled_from([0.2, 0.5, 0.55]))
def test_area_of_a_range_is_the_mean_of_its_parts(data, cut):
    labels, scores, weights = data
    for area in (metrics.mean_recall_over_precision, metrics.mean_precision_over_recall, metrics.mean_tpr_over_fpr):
        left, right, whole = (
            area(labels, scores, low, high, sample_weight=weights) for low, high in [(0, cut), (cut, 1), (0, 1)]
        )
        assert whole == pytest.approx(cut * left + (1 - cut) * right, abs=1e-12)


@given(data())
def test_both_areas_under_the_precision_recall_staircase_agree(data):
    labels, scores, weights = data
    over_precision = metrics.mean_recall_over_precision(labels, scores, 0, 1, sample_weight=weights)
    over_recall = metrics.mean_precision_over_recall(labels, scores, 0, 1, sample_weight=weights)
    assert over_precision == pytest.approx(over_recall, abs=1e-12)
    assert over_recall >= metrics.average_precision(labels, scores, sample_weight=weights) - 1e-12


@given(data())
def test_narrow_area_is_the_point(data):
    labels, scores, weights = data
    target = 0.4142  # no rate of a small data set
    for area, point in [
        (metrics.mean_recall_over_precision, metrics.recall_at_precision),
        (metrics.mean_precision_over_recall, metrics.precision_at_recall),
    ]:
        narrow = area(labels, scores, target, target + 1e-9, sample_weight=weights)
        assert narrow == pytest.approx(point(labels, scores, target, sample_weight=weights).value, abs=1e-6)


# Properties


@given(data(), st.randoms())
def test_order_of_rows_does_not_matter(data, random):
    labels, scores, weights = data
    order = random.sample(range(len(labels)), len(labels))
    for name, metric in ALL.items():
        shuffled = metric(labels[order], scores[order], sample_weight=weights[order])
        assert_close(shuffled, metric(labels, scores, sample_weight=weights), name)


@given(data(), st.sampled_from([2.0, 0.1, 3.0, 1e-9]))
def test_scale_of_weights_does_not_matter(data, scale):
    labels, scores, weights = data
    for name, metric in ALL.items():
        scaled = metric(labels, scores, sample_weight=scale * weights)
        assert_close(scaled, metric(labels, scores, sample_weight=weights), name)


@given(data())
def test_weight_one_is_no_weight_and_a_row_twice_is_weight_two(data):
    labels, scores, _ = data
    ones, two_first = np.ones(len(labels)), np.r_[2.0, np.ones(len(labels) - 1)]
    twice = np.append(labels, labels[:1]), np.append(scores, scores[:1])
    for name, metric in ALL.items():
        assert_close(metric(labels, scores, sample_weight=ones), metric(labels, scores), name)
        assert_close(metric(labels, scores, sample_weight=two_first), metric(*twice), name)


@given(data())
def test_weight_zero_is_absence(data):
    labels, scores, weights = data
    present = weights > 0
    for name, metric in ALL.items():
        without = metric(labels[present], scores[present], sample_weight=weights[present])
        assert_close(metric(labels, scores, sample_weight=weights), without, name)


@given(data())
def test_increasing_function_of_scores_changes_no_value(data):
    labels, scores, weights = data

    def increasing(score):
        return np.exp(3 * score) - 7

    for name, metric in (AT_THRESHOLD | AREAS).items():
        mapped = metric(labels, increasing(scores), sample_weight=weights)
        assert_close(mapped, metric(labels, scores, sample_weight=weights), name, threshold_of=increasing)


@given(data())
def test_values_are_rates(data):
    labels, scores, weights = data
    for name, metric in ALL.items():
        value = value_of(metric(labels, scores, sample_weight=weights))
        assert isinstance(value, float), name
        assert 0 <= value <= 1, name


@given(data(), st.sampled_from([0.1, 1 / 3, 0.7]))
def test_weights_that_round_reach_their_target(data, weight):
    """A target equal to the rate of a threshold is met, however the cumulated weights are rounded."""
    labels, scores, _ = data
    threshold = scores[labels == 1].max()
    precision, recall = metrics.precision(labels, scores, threshold), metrics.recall(labels, scores, threshold)
    weights = np.full(len(labels), weight)
    assert metrics.recall_at_precision(labels, scores, precision, sample_weight=weights).value >= recall - 1e-12
    assert metrics.precision_at_recall(labels, scores, recall, sample_weight=weights).value >= precision - 1e-12


# Known values


@pytest.mark.parametrize(("part", "rows", "weight"), [(9, 12, 0.1), (8, 10, 0.7), (11, 20, 0.3)])
def test_share_that_rounds_down_meets_its_target(part, rows, weight):
    inside, weights, share = np.arange(rows) < part, np.full(rows, weight), part / rows
    assert metrics.recall_at_precision(inside, np.ones(rows), share, sample_weight=weights) == (1.0, 1.0)
    # The same share as a recall, with one negative below that counts as soon as the threshold must go lower.
    labels, scores, weights = np.r_[np.ones(rows), 0], np.r_[inside, 0], np.r_[weights, 1]
    assert metrics.precision_at_recall(labels, scores, share, sample_weight=weights) == (1.0, 1.0)
    assert metrics.fpr_at_tpr(labels, scores, share, sample_weight=weights) == (0.0, 1.0)


def test_share_that_rounds_up_meets_its_target():
    labels, scores = [0] * 10 + [1], [1] * 3 + [0] * 7 + [1]  # three weights of 0.1 are 0.30000000000000004
    assert metrics.tpr_at_fpr(labels, scores, 0.3, sample_weight=[0.1] * 11) == (1.0, 1.0)


def test_ties_between_thresholds_go_to_the_better_side():
    labels = [1, 0, 1, 0]
    scores = [4, 3, 2, 1]
    assert metrics.recall_at_precision(labels, scores, 0.1) == (1.0, 2.0)  # 1 has this recall too, at precision 1/2
    assert metrics.tpr_at_fpr(labels, scores, 1.0) == (1.0, 2.0)
    assert metrics.fpr_at_tpr([1, 1, 0, 0], scores, 0.5) == (0.0, 3.0)  # 4 has this fpr too, at tpr 1/2
    assert metrics.precision_at_recall([1, 0, 1, 0], [4, 3, 3, 3], 0.5) == (1.0, 4.0)
    assert metrics.precision_at_recall([1, 1, 0, 0], scores, 0.5) == (1.0, 3.0)  # 4 has this precision too


def test_nothing_allowed_is_nothing_predicted():
    assert metrics.recall_at_precision([0, 1], [2, 1], 0.9) == (0.0, np.inf)
    assert metrics.tpr_at_fpr([0, 1], [2, 1], 0.5) == (0.0, np.inf)
    assert metrics.tpr_at_fpr([0, 0, 1], [3, 2, 1], 0.5) == (0.0, np.inf)  # 3 is allowed, but catches no positive
    assert metrics.recall([0, 1], [2, 1], np.inf) == 0.0
    assert metrics.fpr([0, 1], [2, 1], np.inf) == 0.0


def test_perfect_and_constant_scores():
    labels = np.arange(70) < 7
    for name, metric in AREAS.items():
        assert metric(labels, labels * 1.0 - np.arange(70) / 100) == 1.0, name
    constant = np.zeros(70)
    assert metrics.average_precision(labels, constant) == pytest.approx(0.1)
    assert metrics.roc_auc(labels, constant) == 0.5
    assert metrics.recall_at_precision(labels, constant, 0.1) == (1.0, 0.0)
    assert metrics.mean_tpr_over_fpr(labels, constant, 0.0, 0.5) == pytest.approx(0.25)


def test_f_beta_goes_from_precision_to_recall():
    labels, scores, _ = random_data(2)
    assert metrics.f_beta(labels, scores, 1e-9).value == pytest.approx(
        metrics.precision_at_recall(labels, scores, 1e-9).value
    )
    assert metrics.f_beta(labels, scores, 1e200).value == pytest.approx(1.0)
    assert metrics.f_beta(labels, scores) == metrics.f_beta(labels, scores, 1.0)


# What may be passed


@every_metric
@pytest.mark.parametrize(
    "of",
    [
        np.ndarray.tolist,
        torch.tensor,
        lambda array: torch.tensor(array, dtype=torch.bfloat16, requires_grad=True),
        lambda array: torch.tensor(array, dtype=torch.float16),
        lambda array: array.astype(np.float32),
    ],
    ids=["list", "tensor", "bfloat16 with grad", "float16", "float32"],
)
def test_lists_tensors_and_small_floats(metric, of):
    labels, scores, weights = (
        np.array([1, 0, 1, 0, 0]),
        np.array([2.5, 2.0, 2.0, 0.5, -1.0]),
        np.array([1.0, 2, 3, 1, 1]),
    )
    result = metric(of(labels * 1.0), of(scores), sample_weight=of(weights))
    assert_close(result, metric(labels, scores, sample_weight=weights))


@every_metric
def test_labels_of_any_kind(metric):
    labels, scores, _ = random_data(0)
    expected = metric(labels, scores)
    for same in (labels.astype(bool), labels.astype(np.uint8), labels * 1.0, torch.tensor(labels).bool()):
        assert_close(metric(same, scores), expected)


@every_metric
def test_arguments_are_not_modified(metric):
    arrays = [array * 1.0 for array in random_data(0)]
    tensors = [torch.tensor(array) for array in arrays]
    metric(tensors[0], tensors[1], sample_weight=tensors[2])
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)


# Columns


@pytest.mark.parametrize("weighting", ["none", "per row", "per entry"])
@every_metric
def test_columns_are_measured_one_by_one(metric, weighting):
    labels, scores, weights = (np.stack(columns, axis=1) for columns in zip(*map(random_data, range(3)), strict=True))
    weights = {"none": None, "per row": weights[:, 0], "per entry": weights}[weighting]
    together = metric(labels, scores, sample_weight=weights)
    for column in range(3):
        weight = weights[:, column] if weights is not None and weights.ndim == 2 else weights
        alone = metric(labels[:, column], scores[:, column], sample_weight=weight)
        if isinstance(together, AtThreshold):
            assert (together.value[column], together.threshold[column]) == alone
        else:
            assert together[column] == alone


@every_metric
def test_one_column_is_still_columns(metric):
    labels, scores, weights = random_data(0)
    result = metric(labels[:, None], scores[:, None], sample_weight=weights)
    assert np.shape(value_of(result)) == (1,)


@pytest.mark.parametrize("of", [tuple, list, np.array, torch.tensor])
def test_targets_per_column(of):
    labels, scores, weights = (np.stack(columns, axis=1) for columns in zip(*map(random_data, range(2)), strict=True))
    targets, lows, highs = (0.25, 0.75), (0.0, 0.5), (0.25, 1.0)
    for name in AT_THRESHOLD:
        metric = getattr(metrics, name)
        together = metric(labels, scores, of(targets), sample_weight=weights)
        for column, target in enumerate(targets):
            alone = metric(labels[:, column], scores[:, column], target, sample_weight=weights[:, column])
            assert (together.value[column], together.threshold[column]) == alone
        again = metrics.recall(labels, scores, of(together.threshold.tolist()), sample_weight=weights)
        assert again.shape == (2,)
    for name in ("mean_recall_over_precision", "mean_precision_over_recall", "mean_tpr_over_fpr"):
        metric = getattr(metrics, name)
        together = metric(labels, scores, of(lows), of(highs), sample_weight=weights)
        for column in range(2):
            alone = metric(
                labels[:, column], scores[:, column], lows[column], highs[column], sample_weight=weights[:, column]
            )
            assert together[column] == alone


# One class only


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("label", [0, 1])
def test_one_class(name, label):
    labels, scores = [label] * 3, [1.0, 2.0, 2.0]
    if name in (NEED_POSITIVES if label == 0 else NEED_NEGATIVES):
        missing = "negative" if label else "positive"
        with pytest.raises(UndefinedMetricError, match=rf"y_true must hold a {missing} .* for {name}, got none"):
            ALL[name](labels, scores)
    else:
        # All rates of one class alone are 1, but for the precision without positives.
        assert value_of(ALL[name](labels, scores)) == (0.0 if name == "precision" and label == 0 else 1.0)


@pytest.mark.parametrize("name", sorted(ALL))
def test_weight_zero_on_a_class_is_one_class(name):
    labels, scores, weights = [1, 0, 1], [3.0, 2.0, 1.0], np.array([1.0, 1.0, 1.0])
    for label, needing in [(1, NEED_POSITIVES), (0, NEED_NEGATIVES)]:
        if name in needing:
            with pytest.raises(UndefinedMetricError):
                ALL[name](labels, scores, sample_weight=np.where(np.array(labels) == label, 0.0, weights))


@pytest.mark.parametrize("name", sorted(NEED_POSITIVES))
def test_columns_without_positives_are_nan_and_named(name):
    labels, scores, _ = random_data(0)
    labels = np.stack([labels, 0 * labels, labels, 0 * labels], axis=1)
    with pytest.warns(UndefinedMetricWarning, match=rf"^{name} does not exist in column 1, 3 of y_true") as caught:
        result = ALL[name](labels, np.stack([scores] * 4, axis=1))
    assert [warning.filename for warning in caught] == [__file__]
    for part in result if isinstance(result, AtThreshold) else [result]:
        assert np.isnan(part).tolist() == [False, True, False, True]
    alone = ALL[name](labels[:, 0], scores)
    assert value_of(result)[0] == value_of(alone)


def test_precision_where_nothing_is_predicted():
    with pytest.raises(UndefinedMetricError, match=r"must reach the threshold for precision, got no row >= 3\.0"):
        metrics.precision([0, 1], [1.0, 2.0], 3.0)
    with pytest.warns(UndefinedMetricWarning, match="precision does not exist in column 0 of y_true"):
        result = metrics.precision([[0, 0], [1, 1]], [[1.0, 1.0], [2.0, 2.0]], (3.0, 1.0))
    np.testing.assert_array_equal(result, [np.nan, 0.5])


def test_columns_that_exist_do_not_warn():
    labels, scores, _ = random_data(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for metric in ALL.values():
            metric(labels[:, None], scores[:, None])


# Bad input

GOOD = {"y_true": [0, 1, 1], "y_score": [0.1, 0.4, 0.8]}

TEXTS = ": compare texts with the positive one, as in y == 'yes'"
BAD_ARRAYS = [
    ("y_true", [0, 1, 2], ValueError, r"y_true must be 0 or 1 in every entry, got 2\.0"),
    ("y_true", [-1, 1, 1], ValueError, r"y_true must be 0 or 1 in every entry, got -1\.0"),
    ("y_true", [0, 1, np.nan], ValueError, r"y_true must be 0 or 1 in every entry, got nan"),
    ("y_true", [0, 1, 0.5], ValueError, r"y_true must be 0 or 1 in every entry, got 0\.5"),
    ("y_true", ["0", "1", "1"], TypeError, r"y_true must hold real numbers, got dtype <U1" + TEXTS),
    ("y_true", [0, None, 1], TypeError, r"y_true must hold real numbers, got dtype object" + TEXTS),
    ("y_true", None, TypeError, r"y_true must hold real numbers, got dtype object" + TEXTS),
    ("y_true", 1, ValueError, r"y_true must have shape \[n\] or \[n, num_labels\], got \(\)"),
    ("y_true", [[[0, 1, 1]]], ValueError, r"y_true must have shape \[n\] or \[n, num_labels\], got \(1, 1, 3\)"),
    ("y_true", [[0, 1], [1]], ValueError, r"y_true must be a rectangular array, got rows of unequal length"),
    ("y_true", [], ValueError, r"y_true must not be empty, got shape \(0,\)"),
    ("y_true", np.zeros((3, 0)), ValueError, r"y_true must not be empty, got shape \(3, 0\)"),
    ("y_score", [0.1, np.nan, 0.8], ValueError, r"y_score must be finite in every entry, got nan"),
    ("y_score", [0.1, np.inf, 0.8], ValueError, r"y_score must be finite in every entry, got inf"),
    ("y_score", torch.tensor([0.1, -torch.inf, 0.8]), ValueError, r"y_score must be finite in every entry, got -inf"),
    ("y_score", [1, 2j, 3], TypeError, r"y_score must hold real numbers, got dtype complex128"),
    ("y_score", torch.tensor([1, 2j, 3]), TypeError, r"y_score must hold real numbers, got dtype torch\.complex64"),
    ("y_score", torch.eye(3).to_sparse(), TypeError, r"y_score must be a dense tensor, got torch\.sparse_coo"),
    *(
        (
            "y_score",
            make([1, 2, sign * (2**53 + 1)]),
            ValueError,
            rf"y_score must be a whole number of at most 2\*\*53 in size in every entry, got {sign * (2**53 + 1)}",
        )
        for make in (list, np.array, torch.tensor)
        for sign in (1, -1)
    ),
    ("y_score", [0.1, 0.4], ValueError, r"y_score must have the shape of y_true, \(3,\), got \(2,\)"),
    (
        "y_score",
        [[0.1], [0.4], [0.8]],
        ValueError,
        r"y_score must have the shape of y_true, \(3,\), got \(3, 1\): pass y_score\[:, 0\]",
    ),
    ("y_score", 0.5, ValueError, r"y_score must have the shape of y_true, \(3,\), got \(\)"),
    ("sample_weight", [1, -1, 1], ValueError, r"sample_weight must be finite and >= 0 in every entry, got -1\.0"),
    ("sample_weight", [1, np.nan, 1], ValueError, r"sample_weight must be finite and >= 0 in every entry, got nan"),
    ("sample_weight", [1, np.inf, 1], ValueError, r"sample_weight must be finite and >= 0 in every entry, got inf"),
    ("sample_weight", [[1], [1], [1]], ValueError, r"sample_weight must have shape \(3,\), got \(3, 1\)"),
    ("sample_weight", [1, 1], ValueError, r"sample_weight must have shape \(3,\), got \(2,\)"),
    ("sample_weight", 1.0, ValueError, r"sample_weight must have shape \(3,\), got \(\)"),
    ("sample_weight", "balanced", TypeError, r"sample_weight must hold real numbers, got dtype <U8"),
]


@every_metric
@pytest.mark.parametrize(("argument", "value", "exception", "message"), BAD_ARRAYS)
def test_bad_arrays(metric, argument, value, exception, message):
    with pytest.raises(exception, match=f"^{message}$"):
        metric(**(GOOD | {argument: value}))


BAD_TARGETS = [
    ("recall_at_precision", {"min_precision": 1.7}, ValueError, r"min_precision must be in \(0, 1\], got 1\.7"),
    ("recall_at_precision", {"min_precision": 0}, ValueError, r"min_precision must be in \(0, 1\], got 0"),
    ("recall_at_precision", {"min_precision": np.nan}, ValueError, r"min_precision must be in \(0, 1\], got nan"),
    ("recall_at_precision", {"min_precision": "0.9"}, TypeError, r"min_precision must be a number, got '0\.9'"),
    ("recall_at_precision", {"min_precision": None}, TypeError, r"min_precision must be a number, got None"),
    ("recall_at_precision", {"min_precision": True}, TypeError, r"min_precision must be a number, got True"),
    (
        "recall_at_precision",
        {"min_precision": (0.9, 0.5)},
        ValueError,
        r"min_precision must be one number where y_true has shape \[n\], got \(0\.9, 0\.5\)",
    ),
    ("precision_at_recall", {"min_recall": -0.1}, ValueError, r"min_recall must be in \(0, 1\], got -0\.1"),
    ("tpr_at_fpr", {"max_fpr": 1.01}, ValueError, r"max_fpr must be in \[0, 1\], got 1\.01"),
    ("fpr_at_tpr", {"min_tpr": 0.0}, ValueError, r"min_tpr must be in \(0, 1\], got 0\.0"),
    ("f_beta", {"beta": 0}, ValueError, r"beta must be in \(0, inf\), got 0"),
    ("f_beta", {"beta": np.inf}, ValueError, r"beta must be in \(0, inf\), got inf"),
    ("precision", {"threshold": np.nan}, ValueError, r"threshold must be in \[-inf, inf\], got nan"),
    ("recall", {"threshold": "0.5"}, TypeError, r"threshold must be a number, got '0\.5'"),
    *(
        (name, {"low": low, "high": high}, ValueError, message)
        for name in ("mean_recall_over_precision", "mean_precision_over_recall", "mean_tpr_over_fpr")
        for low, high, message in [
            (0.9, 0.5, r"low must be below high, got 0\.9 and 0\.5"),
            (0.5, 0.5, r"low must be below high, got 0\.5 and 0\.5"),
            (-0.1, 0.5, r"low must be in \[0, 1\], got -0\.1"),
            (0.5, 1.1, r"high must be in \[0, 1\], got 1\.1"),
        ]
    ),
]


@pytest.mark.parametrize(("name", "target", "exception", "message"), BAD_TARGETS)
def test_bad_targets(name, target, exception, message):
    with pytest.raises(exception, match=f"^{message}$"):
        getattr(metrics, name)(**GOOD, **target)


BAD_COLUMN_INPUT = [
    ({"min_precision": (0.9,)}, r"min_precision must have one entry for each of the 2 labels, got 1"),
    ({"min_precision": (0.9, 1.7)}, r"min_precision must be in \(0, 1\], got 1\.7"),
    ({"y_score": [0.1, 0.4, 0.8]}, r"y_score must have the shape of y_true, \(3, 2\), got \(3,\)"),
    ({"sample_weight": [1.0, 1.0]}, r"sample_weight must have shape \(3,\) or \(3, 2\), got \(2,\)"),
    ({"sample_weight": [[1.0]] * 3}, r"sample_weight must have shape \(3,\) or \(3, 2\), got \(3, 1\)"),
]


@pytest.mark.parametrize(("change", "message"), BAD_COLUMN_INPUT)
def test_bad_column_input(change, message):
    good = {"y_true": [[0, 1], [1, 0], [1, 1]], "y_score": [[0.1, 0.4]] * 3, "min_precision": 0.5}
    with pytest.raises(ValueError, match=f"^{message}$"):
        metrics.recall_at_precision(**(good | change))


def test_scores_as_a_column_never_meet_scores_as_a_row():
    for y_true, y_score in [(torch.zeros(3), torch.zeros(3, 1)), (torch.zeros(3, 1), torch.zeros(3))]:
        with pytest.raises(ValueError, match="y_score must have the shape of y_true"):
            metrics.roc_auc(y_true, y_score)
