"""Operating points: the best of all thresholds, constraints that hold on the population, the record, refusals."""

import dataclasses
import json
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import aimfor
from aimfor import OperatingPoint, metrics, operating_point
from aimfor.aims import Cost, FBeta, PointAim
from cases import AIMS

AT_CONSTRAINT = [
    "recall@precision>=0.6",
    "precision@recall>=0.7",
    "tpr@fpr<=0.3",
    "fpr@tpr>=0.7",
    "recall@alerts<=0.3",
    "precision@alerts>=0.3",
]
row = st.tuples(st.integers(0, 1), st.integers(-3, 3), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
rows = st.lists(row, min_size=1, max_size=25)


def arrays(rows):
    labels, scores, weights = zip(*rows, strict=True)
    return np.array(labels), np.array(scores, dtype=float), np.array(weights)


def random_data(seed: int, size: int = 300, prior: float = 0.4, ties: bool = False):
    rng = np.random.default_rng(seed)
    labels = rng.random(size) < prior
    scores = 2.5 * labels + rng.normal(size=size)
    return labels, np.round(scores, 1) if ties else scores


def rates_of(labels, scores, weights, threshold):
    """Precision, recall and fpr by counting."""
    positive, predicted = labels == 1, scores >= threshold
    tp, fp = weights[positive & predicted].sum(), weights[~positive & predicted].sum()
    recall, fpr = tp / max(weights[positive].sum(), 1e-300), fp / max(weights[~positive].sum(), 1e-300)
    alerts = (tp + fp) / weights.sum()
    return {"precision": tp / (tp + fp), "recall": recall, "tpr": recall, "fpr": fpr, "alerts": alerts}


def taken_apart(aim: PointAim):
    """Objective, constrained rate and target; a rate that should be low comes with a minus, so that more is better."""
    return aim.objective, aim.constrained, aim.target


def signed(rates, name):
    return -rates[name] if name == "fpr" else rates[name]


def kept_by(rates, aim):
    """By how much more than asked; the constraint is kept at 0 and above."""
    room = rates[aim.constrained] - aim.target
    return room if aim.sense == ">=" else -room


def all_rates_of(point):
    """Also those that the record has no field for."""
    return {name: point.counts.rate(name) for name in ("precision", "recall", "tpr", "fpr", "alerts")}


# Against brute force


@pytest.mark.parametrize("text", [*AIMS, *AT_CONSTRAINT])
@settings(max_examples=50)
@given(rows=rows)
def test_is_the_best_of_all_thresholds(text, rows):
    labels, scores, weights = arrays(rows)
    point = operating_point(labels, scores, text, sample_weight=weights)
    aim = aimfor.aim(text)
    thresholds = set(scores[weights > 0].tolist())
    if weights[labels == 1].sum() == 0:
        assert (point.threshold, point.reason) == (None, "y_true holds no positive")
        return
    if "fpr" in text and "auc" not in text and weights[labels == 0].sum() == 0:
        assert (point.threshold, point.reason) == (None, "y_true holds no negative")
        return
    all_rates = {threshold: rates_of(labels, scores, weights, threshold) for threshold in thresholds}
    if isinstance(aim, PointAim):
        objective, rate, _ = taken_apart(aim)
        kept = [one for one in all_rates.values() if kept_by(one, aim) >= -1e-12 and one["recall"] > 0]
        if not kept:
            nearest = max(kept_by(one, aim) for one in all_rates.values())
            assert point.threshold is None
            assert point.reason.startswith(f"no threshold has {rate} ")
            assert kept_by(all_rates_of(point), aim) == pytest.approx(nearest)
            return
        best = max(signed(one, objective) for one in kept)
        assert point.threshold in thresholds
        assert signed(all_rates[point.threshold], objective) == pytest.approx(best)
        assert kept_by(all_rates[point.threshold], aim) >= -1e-12
        same = metrics.at_constraint(aim.tradeoff, labels, scores, aim.target, sample_weight=weights)
        assert point.threshold == same.threshold
    elif isinstance(aim, Cost):
        total, costs = weights.sum(), {math.inf: aim.fn * weights[labels == 1].sum() / weights.sum()}
        for threshold in thresholds:
            flagged = scores >= threshold
            wrong, missed = weights[flagged & (labels == 0)].sum(), weights[~flagged & (labels == 1)].sum()
            costs[threshold] = (aim.fp * wrong + aim.fn * missed) / total
        reached = costs[point.threshold if point.threshold in thresholds else math.inf]
        assert reached == pytest.approx(min(costs.values()))
        assert point.threshold in thresholds or point.threshold > max(thresholds)
        if point.threshold not in thresholds:
            return
    else:
        beta = aim.beta if isinstance(aim, FBeta) else 1.0
        f = {
            threshold: (1 + beta**2) * one["precision"] * one["recall"] / (beta**2 * one["precision"] + one["recall"])
            for threshold, one in all_rates.items()
            if one["recall"] > 0
        }
        assert f[point.threshold] == pytest.approx(max(f.values()))
        assert point.chosen == f"best F{beta:g}"
    for name in ("precision", "recall", "fpr"):
        if getattr(point, name) is not None:
            assert getattr(point, name) == pytest.approx(all_rates[point.threshold][name])


@pytest.mark.parametrize(
    "text", ["precision@recall>=0.7", "tpr@fpr<=0.3", "fpr@tpr>=0.7", "recall@alerts<=0.4", "precision@alerts>=0.2"]
)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_with_confidence_it_is_the_best_of_those_that_pass(text, ties, confidence):
    labels, scores = random_data(0, 80, ties=ties)
    point = operating_point(labels, scores, text, confidence=confidence)
    objective, rate, target = taken_apart(aimfor.aim(text))
    passing = []
    for threshold in np.unique(scores):
        predicted = scores >= threshold
        if rate == "alerts":
            flagged, at_most = predicted.sum(), aimfor.aim(text).sense == "<="
            tail = stats.binom.cdf(flagged, labels.size, target)
            tail = tail if at_most else stats.binom.sf(flagged - 1, labels.size, target)
        elif rate == "fpr":
            tail = stats.binom.cdf((predicted & ~labels).sum(), (~labels).sum(), target)
        else:
            tail = stats.binom.cdf((~predicted & labels).sum(), labels.sum(), 1 - target)
        if tail <= 1 - confidence and (predicted & labels).any():
            passing.append(threshold)
    ones = np.ones(labels.size)
    best = max(signed(rates_of(labels, scores, ones, threshold), objective) for threshold in passing)
    assert point.threshold in passing
    assert signed(rates_of(labels, scores, ones, point.threshold), objective) == pytest.approx(best)
    same = [one for one in passing if signed(rates_of(labels, scores, ones, one), objective) >= best - 1e-12]
    assert point.threshold == (max(same) if objective == "fpr" else min(same))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("target", "prior"), [(0.9, 0.5), (0.7, 0.3), (0.5, 0.1)])
def test_the_walk_for_precision_is_the_one_that_is_written_down(seed, target, prior):
    labels, scores = random_data(seed, 400, prior=prior)
    level, kept, budget = 0.1, [], 0.0
    first = next(m for m in range(1, 1000) if target**m <= level / 3)
    starts = [first * 2**k for k in range(20) if k == 0 or first * 2**k < 400]
    ranked = labels[np.argsort(-scores)]
    for count in range(1, 401):
        arrived = budget > 0
        if count in starts:
            budget += level * 0.5 ** starts.index(count) / sum(0.5**k for k in range(len(starts)))
        tail = stats.binom.sf(ranked[:count].sum() - 1, count, target)
        if tail > budget:
            budget = 0.0
        elif arrived and budget > 0:
            kept.append(count)
    point = operating_point(labels, scores, f"recall@precision>={target}", confidence=1 - level)
    if kept:
        assert point.counts.tp + point.counts.fp == kept[-1]
        assert point.threshold == np.sort(scores)[::-1][kept[-1] - 1]
    else:
        assert point.threshold is None
        assert point.reason.startswith(f"no threshold has precision >= {target} with 90 % confidence (")


@pytest.mark.parametrize("text", AT_CONSTRAINT)
def test_more_confidence_is_not_better_in_the_objective(text):
    labels, scores = random_data(1, 2000)
    objective = taken_apart(aimfor.aim(text))[0]
    points = [operating_point(labels, scores, text, confidence=confidence) for confidence in (None, 0.8, 0.95, 0.999)]
    values = [signed(dataclasses.asdict(point) | {"tpr": point.recall}, objective) for point in points]
    assert all(point.threshold is not None for point in points)
    assert values == sorted(values, reverse=True)


# On the population: rates at any threshold are known, and the share of draws that break the constraint is bounded

LEVEL = 0.2  # a larger level than one would ask for: a share near it is seen with fewer draws
DRAWS = 500


def gaussians(prior: float, hard: float = 0.0, step: float = 0.0):
    """Two Gaussians; `hard` of the negatives lie above the positives, so that precision falls at the top."""

    def draw(rng, size):
        labels = rng.random(size) < prior
        above = ~labels & (rng.random(size) < hard)
        scores = np.where(labels, 2.0, np.where(above, 4.0, 0.0)) + rng.normal(size=size)
        return labels, np.round(scores / step) * step if step else scores

    def rates(threshold):
        edge = threshold - step / 2  # what is rounded up to the threshold
        recall = stats.norm.sf(edge - 2)
        fpr = (1 - hard) * stats.norm.sf(edge) + hard * stats.norm.sf(edge - 4)
        return recall, fpr, prior

    return draw, rates


def atoms(positives, negatives):
    """Scores 0, 1, 2, ... with these masses of both classes."""
    positives, negatives = np.array(positives), np.array(negatives)
    prior = positives.sum()

    def draw(rng, size):
        cell = rng.choice(2 * len(positives), size, p=np.concatenate([negatives, positives]))
        return cell >= len(positives), (cell % len(positives)).astype(float)

    def rates(threshold):
        above = np.arange(len(positives)) >= threshold
        return positives[above].sum() / prior, negatives[above].sum() / (1 - prior), prior

    return draw, rates


def flat(precision: float):
    """The precision is the same at every threshold above the middle: just below the target, every one is wrong."""

    def draw(rng, size):
        scores = rng.random(size)
        return rng.random(size) < np.where(scores > 0.5, precision, 0.0), scores

    def rates(threshold):
        tp, predicted = precision * min(1 - threshold, 0.5), 1 - threshold
        prior = precision / 2
        return tp / prior, (predicted - tp) / (1 - prior), prior

    return draw, rates


def population_rates(rates):
    recall, fpr, prior = rates
    tp, fp = prior * recall, (1 - prior) * fpr
    return {"precision": tp / (tp + fp), "recall": recall, "tpr": recall, "fpr": fpr}


def share_that_violates(population, text, size, confidence, seed=0):
    draw, rates = population
    aim = aimfor.aim(text)
    _, rate, target = taken_apart(aim)
    rng, violations = np.random.default_rng(seed), 0
    for _ in range(DRAWS):
        threshold = operating_point(*draw(rng, size), aim, confidence=confidence).threshold
        if threshold is not None:
            value = population_rates(rates(threshold))[rate]
            violations += value > target * (1 + 1e-9) if rate == "fpr" else value < target * (1 - 1e-9)
    return violations / DRAWS


# A violation is a coin of at most LEVEL: more than this many of DRAWS come up once in ten thousand times.
MOST = stats.binom.isf(1e-4, DRAWS, LEVEL) / DRAWS

POPULATIONS = {
    "two Gaussians": (gaussians(0.4), 300),
    "few positives": (gaussians(0.1), 500),
    "negatives on top": (gaussians(0.4, hard=0.03), 500),
    "ties": (gaussians(0.4, step=0.5), 300),
    "just below": (flat(0.7999), 600),
    "up and down": (atoms([0.05, 0.1, 0.1, 0.15], [0.5375, 0.0251, 0.0, 0.0374]), 300),
    "bad at the top": (atoms([0.1, 0.16, 0.08, 0.06], [0.5348, 0.0402, 0.002, 0.023]), 200),
}


@pytest.mark.parametrize("text", ["recall@precision>=0.8", "precision@recall>=0.8", "tpr@fpr<=0.05"])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_constraint_holds_on_the_population(name, text):
    population, size = POPULATIONS[name]
    assert share_that_violates(population, text, size, 1 - LEVEL) <= MOST


@pytest.mark.parametrize("text", ["recall@precision>=0.8", "precision@recall>=0.8", "tpr@fpr<=0.05"])
def test_without_confidence_that_test_would_fail(text):
    population, size = POPULATIONS["two Gaussians"]
    assert share_that_violates(population, text, size, None) > MOST


def test_levels_are_used_where_the_choice_is_simple():
    # Order statistics are exact but for steps of the binomial: much below the level would be power thrown away.
    population, size = POPULATIONS["two Gaussians"]
    assert share_that_violates(population, "precision@recall>=0.8", size, 1 - LEVEL) > 0.6 * LEVEL


# Weights, ties, order, kinds of input


@pytest.mark.parametrize("text", [*AT_CONSTRAINT, "aucpr", "f2"])
@settings(max_examples=50)
@given(rows=st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=15))
def test_whole_weights_are_repeated_rows(text, rows):
    labels, scores, weights = arrays(rows)
    if weights.sum() == 0:
        return
    weighted = operating_point(labels, scores, text, sample_weight=weights)
    repeated = operating_point(np.repeat(labels, weights), np.repeat(scores, weights), text)
    assert weighted.threshold == repeated.threshold
    if len(set(weights[weights > 0])) > 1:
        np.testing.assert_allclose(weighted.counts, repeated.counts)
        assert weighted.intervals is None


@pytest.mark.parametrize("confidence", [None, 0.9])
@pytest.mark.parametrize("text", AT_CONSTRAINT)
def test_equal_weights_are_no_weights(text, confidence):
    labels, scores = random_data(2)
    weights = np.full(labels.size, 0.1)
    weights[::7] = 0
    alone = operating_point(labels[weights > 0], scores[weights > 0], text, confidence=confidence)
    assert operating_point(labels, scores, text, confidence=confidence, sample_weight=weights) == alone


@pytest.mark.parametrize("confidence", [None, 0.9])
@pytest.mark.parametrize("text", AT_CONSTRAINT)
def test_order_and_scale_of_rows_do_not_matter(text, confidence):
    labels, scores = random_data(3)
    point = operating_point(labels, scores, text, confidence=confidence)
    order = np.random.default_rng(0).permutation(labels.size)
    assert operating_point(labels[order], scores[order], text, confidence=confidence) == point
    scaled = operating_point(labels, 4 * scores, text, confidence=confidence)
    assert scaled == dataclasses.replace(point, threshold=4 * point.threshold)


@pytest.mark.parametrize(
    ("aim", "rows"), [("recall@precision>=0.9", 40), ("precision@recall>=0.9", 29), ("tpr@fpr<=0.01", 299)]
)
def test_the_fewest_rows_that_make_sure_are_those_of_the_page(aim, rows):
    for count, sure in ((rows - 1, False), (rows, True)):
        labels = np.arange(count + 1) > 0 if "fpr" not in aim else np.arange(count + 1) == count
        point = operating_point(labels, np.arange(count + 1.0), aim, confidence=0.95)
        assert (point.threshold is not None) == sure


def test_one_score_for_all_rows():
    labels, scores = np.arange(1000) < 950, np.zeros(1000)
    point = operating_point(labels, scores, "recall@precision>=0.9", confidence=0.95)
    assert (point.threshold, point.recall, point.fpr) == (0.0, 1.0, 1.0)
    assert operating_point(labels, scores, "recall@precision>=0.94", confidence=0.95).threshold is None
    assert operating_point(labels, scores, "tpr@fpr<=0.5").threshold is None


def test_tensors_and_lists():
    labels, scores = random_data(4)
    scores = scores.astype(np.float32)
    point = operating_point(labels, scores, "f1")
    assert operating_point(torch.tensor(labels), torch.tensor(scores, requires_grad=True), "f1") == point
    assert operating_point(labels.tolist(), scores.tolist(), aimfor.FBeta(1)) == point


def test_one_point_per_label():
    labels, scores = (np.stack(pair, axis=1) for pair in zip(*map(random_data, range(3)), strict=True))
    targets = (0.9, 0.8, 0.7)
    for confidence in (None, 0.9):
        points = operating_point(labels, scores, aimfor.RecallAtPrecision(targets), confidence=confidence, source="x")
        for label, target in enumerate(targets):
            aim = f"recall@precision>={target}"
            alone = operating_point(labels[:, label], scores[:, label], aim, confidence=confidence, source="x")
            assert points[label] == alone
            assert points[label].aim == aim
    (point,) = operating_point(labels[:, :1], scores[:, :1], "aucpr[precision>=(0.5,)]")
    assert point.aim == "aucpr[precision>=0.5]"


def test_a_label_without_a_class_does_not_stop_the_others():
    labels, scores = random_data(0)
    columns = np.stack([labels, 0 * labels, 0 * labels + 1], axis=1)
    points = operating_point(columns, np.stack([scores] * 3, axis=1), "tpr@fpr<=0.1")
    assert [point.reason for point in points] == [None, "y_true holds no positive", "y_true holds no negative"]
    assert [point.threshold is None for point in points] == [False, True, True]
    assert points[1].recall is None
    assert points[2].fpr is None
    assert points[2].intervals.fpr is None
    assert operating_point([1, 1], [2.0, 1.0], "recall@precision>=0.9").threshold == 1.0  # needs no negative
    assert operating_point([0, 1], [2.0, 1.0], "f1", sample_weight=[0.0, 0.0]).reason == "y_true holds no positive"


# The record


@pytest.mark.parametrize(("hits", "misses"), [(0, 5), (5, 0), (3, 7), (300, 12)])
def test_intervals_are_clopper_pearson(hits, misses):
    labels = [1] * (hits + misses) + [0] * 3
    scores = [1.0] * hits + [0.0] * misses + [1.0] * 3
    for confidence in (None, 0.8):
        # A recall that is asked for and reached at the higher score alone keeps the point there, or at the lower one.
        point = operating_point(labels, scores, "fpr@tpr>=0.0001", confidence=confidence)
        found = round(point.recall * (hits + misses))
        exact = stats.binomtest(found, hits + misses).proportion_ci(confidence or 0.95, "exact")
        assert point.intervals.recall == pytest.approx((exact.low, exact.high))


def test_paragraph():
    point = operating_point([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], "recall@precision>=0.75", source="the third fold")
    assert str(point) == (
        "recall@precision>=0.75: positive where score >= 2, the most recall with precision >= 0.75 on the third fold"
        " (5 rows, 3 positive). It has precision 0.75 (95 % interval 0.1941 to 0.9937), recall 1 (95 % interval 0.2924"
        " to 1), fpr 0.5 (95 % interval 0.01258 to 0.9874): 3 true and 1 false positives, 0 false and 1 true negatives."
        " The constraint can be claimed with 0 % confidence at most."
    )
    close = operating_point([0, 1], [1.0, 1.0000000014538313], "f1")
    assert "score >= 1.0000000014538313, " in str(close)  # with fewer digits the negative is there too
    none = operating_point([0, 1], [2, 1], "recall@precision>=0.9", confidence=0.9)
    assert str(none).startswith(
        "recall@precision>=0.9: no threshold, as no threshold has precision >= 0.9 with 90 % confidence (more"
        " rows like these would probably not do), on held-out data (2 rows, 1 positive). The nearest has "
    )
    assert "best F1 on" in str(operating_point([0, 1], [1, 2], "aucroc"))
    assert "\n" not in str(none)
    assert "recall unknown" in str(operating_point([0, 0], [2, 1], "f2"))


def test_predict():
    point = operating_point([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], "recall@precision>=0.75")
    assert point.predict([[1.9, 2.0], [2.1, -1.0]]).tolist() == [[0, 1], [1, 0]]
    assert point.predict(torch.tensor([2.0])).dtype == np.int64
    with pytest.raises(ValueError, match=r"^y_score must be finite in every entry, got nan$"):
        point.predict([np.nan])
    nothing = operating_point([0, 1], [2, 1], "recall@precision>=0.9")
    message = r"^predict needs a threshold, got none for 'recall@precision>=0\.9': no threshold has precision >= 0\.9$"
    with pytest.raises(ValueError, match=message):
        nothing.predict([1.0])


@pytest.mark.parametrize("text", [*AIMS, *AT_CONSTRAINT])
@pytest.mark.parametrize("confidence", [None, 0.9])
@settings(max_examples=20)
@given(rows=rows, weighted=st.booleans())
def test_json_and_back(text, confidence, rows, weighted):
    labels, scores, weights = arrays(rows)
    if confidence and (not isinstance(aimfor.aim(text), PointAim) or weighted):
        return
    point = operating_point(labels, scores, text, confidence=confidence, sample_weight=weights if weighted else None)
    again = OperatingPoint.from_json(point.to_json())
    assert again == point
    assert OperatingPoint.from_json(json.loads(point.to_json())) == point
    assert (type(again.counts), type(again.intervals)) == (type(point.counts), type(point.intervals))
    json.loads(point.to_json(), parse_constant=pytest.fail)  # no NaN, no Infinity


GOOD = json.loads(operating_point([1, 1, 0, 1, 0], [5, 4, 3, 2, 1], "recall@precision>=0.75").to_json())
BAD_JSON = [
    ({"precision": 0.1}, "precision must be that of the counts, 0.75, got 0.1"),
    ({"fpr": None}, "fpr must be that of the counts, 0.5, got None"),
    (
        {"intervals": GOOD["intervals"] | {"precision": [0.1, 0.2]}},
        "the interval of precision must hold the rate, 0.75, got (0.1, 0.2)",
    ),
    ({"intervals": GOOD["intervals"] | {"fpr": None}}, "the interval of fpr must hold the rate, 0.5, got None"),
    ({"aim": "f1", "confidence": 0.9}, "confidence needs an aim with a constraint, got 'f1'"),
    ({"aim": "recall@precision>=(0.75, 0.5)"}, "aim must have one target in one operating point, got 'recall@prec"),
    ({"num_rows": 6}, "counts must be those of 6 rows, 3 of them positive, got [3, 1, 0, 1]"),
    ({"num_positives": 2}, "counts must be those of 5 rows, 2 of them positive, got [3, 1, 0, 1]"),
    ({"threshold": "2"}, "threshold must be a number, got '2'"),
    ({"threshold": math.nan}, "threshold must be in"),
    ({"threshold": math.inf}, "threshold must be finite, got inf"),
    ({"threshold": 10**400}, "threshold must be a number, got '1000"),
    ({"threshold": True}, "threshold must be a number, got 'True'"),
    ({"threshold": None}, "reason must stand where threshold is null, got None"),
    ({"reason": "so"}, "reason must stand where threshold is null, got 'so'"),
    ({"aim": "recal@precision>=0.9"}, "aim must be a known aim, got 'recal@precision>=0.9'; did you mean"),
    ({"aim": 3}, "aim must be a text, got '3'"),
    ({"precision": 1.5}, r"precision must be in [0, 1], got 1.5"),
    ({"counts": [1, 2, 3, 4]}, "counts must be a JSON object, got list"),
    ({"counts": {"tp": 1}}, "counts must have the entry 'fp', got ['tp']"),
    ({"counts": GOOD["counts"] | {"tp": -1}}, "tp must be in [0, inf], got -1"),
    ({"intervals": {"precision": [0.5], "recall": None, "fpr": None}}, "the interval of precision must be two numbers"),
    ({"intervals": {"precision": [1, 0], "recall": None, "fpr": None}}, "the interval of precision must go upwards"),
    ({"confidence": 1}, "confidence must be in (0, 1), got 1"),
    ({"num_rows": 2.5}, "num_rows must be a whole number, got 2.5"),
    ({"num_rows": 2}, "num_positives must be at most num_rows, 2, got 3"),
    ({"source": None}, "source must be a text, got 'None'"),
    ({"claimable": 1.5}, "claimable must be in [0, 1], got 1.5"),
    ({"claimable": "all"}, "claimable must be a number, got 'all'"),
    ({"num_groups": 0.5}, "num_groups must be a whole number, got 0.5"),
    ({"extra": 1}, "an operating point must have no entries but aim, threshold"),
]


@pytest.mark.parametrize(("change", "message"), BAD_JSON)
def test_bad_json_entries(change, message):
    with pytest.raises(ValueError, match="^" + message.replace("[", r"\[").replace("(", r"\(").replace(")", r"\)")):
        OperatingPoint.from_json(GOOD | change)


LATER = ("claimable", "num_groups")  # an earlier version did not write these


@pytest.mark.parametrize("name", LATER)
def test_a_file_without_a_later_entry_is_read(name):
    point = OperatingPoint.from_json({key: value for key, value in GOOD.items() if key != name})
    assert getattr(point, name) is None


@pytest.mark.parametrize("name", [name for name in GOOD if name not in LATER])
def test_missing_json_entries(name):
    with pytest.raises(ValueError, match=f"^an operating point must have the entry '{name}', got "):
        OperatingPoint.from_json({key: value for key, value in GOOD.items() if key != name})


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "[]", "3", '{"aim": NaN', 5, None])
def test_what_is_no_json_object(text):
    with pytest.raises(ValueError, match=r"^an operating point must "):
        OperatingPoint.from_json(text)


# Bad input

BAD = [
    ({"y_true": [0, 2]}, ValueError, r"y_true must be 0 or 1 in every entry, got 2\.0"),
    ({"y_score": [0.0, np.nan]}, ValueError, r"y_score must be finite in every entry, got nan"),
    (
        {"aim": "recal@precision>=0.9"},
        ValueError,
        r"aim must be a known aim, .*did you mean 'recall@precision>=0\.9'\?",
    ),
    ({"aim": 0.9}, TypeError, r"aim must be a text or an aim record, got float"),
    (
        {"aim": "f(1, 2)"},
        ValueError,
        r"aim must have one target where y_true has shape \[n\], got 'f\(1, 2\)'",
    ),
    ({"confidence": 1.0}, ValueError, r"confidence must be in \(0, 1\), got 1\.0"),
    ({"confidence": 95}, ValueError, r"confidence must be in \(0, 1\), got 95"),
    ({"confidence": "0.9"}, TypeError, r"confidence must be a number, got '0\.9'"),
    ({"confidence": 0.9, "aim": "aucpr"}, ValueError, r"confidence needs an aim with a constraint, got 'aucpr'"),
    ({"confidence": 0.9, "aim": "f2"}, ValueError, r"confidence needs an aim with a constraint, got 'f2'"),
    (
        {"confidence": 0.9, "sample_weight": [1.0, 2.0]},
        ValueError,
        r"confidence needs equal sample weights, as exact tails count rows, got unequal ones",
    ),
    ({"source": 3}, TypeError, r"source must be a text, got 3"),
]


@pytest.mark.parametrize(("change", "exception", "message"), BAD)
def test_bad_input(change, exception, message):
    good = {"y_true": [0, 1], "y_score": [0.0, 1.0], "aim": "recall@precision>=0.9"}
    with pytest.raises(exception, match=f"^{message}$"):
        operating_point(**(good | change))


def test_targets_for_another_number_of_labels():
    with pytest.raises(ValueError, match=r"^aim must have one target or 2, got 'tpr@fpr<=\(0\.1, 0\.2, 0\.3\)'$"):
        operating_point([[0, 1], [1, 0]], [[0, 1], [1, 0]], "tpr@fpr<=(0.1, 0.2, 0.3)")


def test_without_scipy_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs scipy .*: pip install 'aimfor\[sklearn\]'$"):
        operating_point([0, 1], [0.0, 1.0], "f1")
