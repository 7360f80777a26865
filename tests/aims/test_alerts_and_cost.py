"""Budgets of alerts and costs of errors: exact metrics, thresholds, and what the loss reaches."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression

import aimfor
from aimfor import metrics
from aimfor.operating_points import alert_threshold, choose_points
from relaxed import best_line

row = st.tuples(st.integers(0, 1), st.integers(-3, 3), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
rows = st.lists(row, min_size=1, max_size=25).filter(lambda rows: any(label and weight for label, _, weight in rows))


def arrays(rows):
    labels, scores, weights = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return labels == 1, scores, weights


def counted(labels, scores, weights, threshold):
    flagged = scores >= threshold
    return weights[flagged & labels].sum(), weights[flagged & ~labels].sum()


@settings(max_examples=200)
@given(rows=rows, target=st.floats(0.05, 0.95))
def test_metrics_of_alerts_equal_brute_force(rows, target):
    labels, scores, weights = arrays(rows)
    positives, total = weights[labels].sum(), weights.sum()
    recalls, precisions = [0.0], []
    for threshold in scores[weights > 0]:
        tp, fp = counted(labels, scores, weights, threshold)
        if tp + fp <= target * total * (1 + 1e-12) and tp > 0:
            recalls.append(tp / positives)
        if tp + fp >= target * total * (1 - 1e-12):
            precisions.append(tp / (tp + fp))
    recall = aimfor.RecallAtAlerts(target).metric(labels, scores, sample_weight=weights)
    precision = aimfor.PrecisionAtAlerts(target).metric(labels, scores, sample_weight=weights)
    assert recall == pytest.approx(max(recalls))
    assert precision == pytest.approx(max(precisions))
    assert metrics.recall_at_alerts(labels, scores, target, sample_weight=weights).value == recall
    assert metrics.precision_at_alerts(labels, scores, target, sample_weight=weights).value == precision


@settings(max_examples=200)
@given(rows=st.lists(row, min_size=1, max_size=25), fp=st.floats(0.01, 100), fn=st.floats(0.01, 100))
def test_the_cost_equals_brute_force(rows, fp, fn):
    labels, scores, weights = arrays(rows)
    if weights.sum() == 0:
        with pytest.raises(aimfor.UndefinedMetricError, match="above 0 in some row for expected_cost"):
            metrics.expected_cost(labels, scores, fp, fn, sample_weight=weights)
        return
    costs = {}
    for threshold in [*scores[weights > 0], math.inf]:
        found, wrong = counted(labels, scores, weights, threshold)
        costs[threshold] = (fp * wrong + fn * (weights[labels].sum() - found)) / weights.sum()
    found = metrics.expected_cost(labels, scores, fp, fn, sample_weight=weights)
    assert found.value == pytest.approx(min(costs.values()))
    assert costs[found.threshold] == pytest.approx(found.value)
    assert aimfor.Cost(fp, fn).metric(labels, scores, sample_weight=weights) == found.value


def test_costs_of_several_labels():
    labels, scores = np.array([[1, 0], [0, 1], [1, 1]]), np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    both = aimfor.Cost((1, 2), (3, 4)).metric(labels, scores)
    alone = [aimfor.Cost(1, 3).metric(labels[:, 0], scores[:, 0]), aimfor.Cost(2, 4).metric(labels[:, 1], scores[:, 1])]
    assert both.tolist() == alone


def test_scorers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + rng.normal(size=300) > 1
    model = LogisticRegression().fit(X, y)
    scores = model.decision_function(X)
    for text, sign in (("recall@alerts<=0.1", 1), ("precision@alerts>=0.1", 1), ("cost[fp=1,fn=5]", -1)):
        assert aimfor.scorer(text)(model, X, y) == sign * aimfor.aim(text).metric(y, scores)


# The loss


def misspecified(seed: int, num_rows: int = 20_000):
    """No line has both clouds of positives on top: one lies alone, the other behind a cloud of negatives."""
    rng = np.random.default_rng(seed)
    labels, kind = rng.random(num_rows) < 0.05, rng.random(num_rows)
    features = rng.normal(size=(num_rows, 2))
    features[labels] += np.where((kind[labels] < 0.5)[:, None], [3.0, 0.0], [0.3, 2.0])
    features[~labels & (kind < 0.05)] += [0.0, 3.2]
    return features, labels


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("text", ["recall@alerts<=0.02", "cost[fp=1,fn=5]"])
def test_the_loss_reaches_nearly_the_best_line(text, seed):
    features, labels = misspecified(seed)
    aim = aimfor.aim(text)
    sign = 1 if aim.greater_is_better else -1
    best = best_line(lambda y_true, y_score: sign * np.asarray(aim.metric(y_true, y_score)), features, labels)

    inputs, targets = torch.tensor(features, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(seed)
    # A share of log-loss protects flexible models; a line that cannot serve all thresholds does better without it.
    model, loss = torch.nn.Linear(2, 1), aimfor.Loss(aim, surrogate="sigmoid", log_loss=0.0)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 2000)
    for _ in range(2000):
        batch = torch.randint(len(inputs), (1000,))
        optimiser.zero_grad()
        loss(model(inputs[batch]).squeeze(1), targets[batch]).backward()
        optimiser.step()
        schedule.step()
    scores = model(inputs).squeeze(1).detach().numpy()
    reached = sign * aim.metric(labels, scores)
    if text.startswith("recall"):
        logistic = aim.metric(labels, LogisticRegression().fit(features, labels).decision_function(features))
        assert reached >= 0.95 * best
        assert logistic < 0.9 * best  # the problem is one where it matters what is trained for
        assert (scores >= loss.thresholds.item()).mean() <= 0.025
    else:
        assert reached >= best * 1.05  # costs are negative here


# Thresholds


def test_an_alert_budget_holds_on_the_population():
    rng, draws, level, broken = np.random.default_rng(0), 500, 0.1, 0
    for _ in range(draws):
        found = alert_threshold(rng.normal(size=400), 0.05, confidence=1 - level)
        broken += found.threshold is not None and stats.norm.sf(found.threshold) > 0.05
        assert found.threshold is None or found.claimable >= 1 - level
    assert broken <= stats.binom.isf(1e-4, draws, level)
    assert broken > 0.3 * level * draws  # it does not waste the budget


def test_labels_add_nothing_to_an_alert_budget():
    rng = np.random.default_rng(0)
    labels = rng.random(500) < 0.3
    scores = 2.0 * labels + rng.normal(size=500)
    for confidence in (None, 0.9):
        point = choose_points(labels, scores, "recall@alerts<=0.1", confidence=confidence)
        alone = alert_threshold(scores, 0.1, confidence=confidence)
        flagged = point.counts.tp + point.counts.fp
        # Rows without a positive between the two thresholds make no difference to recall.
        assert alone.threshold <= point.threshold
        assert not labels[(scores >= alone.threshold) & (scores < point.threshold)].any()
        assert flagged <= alone.alerts * 500
        assert "alerts 0." in str(point)


def test_a_threshold_where_it_costs_least_to_flag_nothing():
    point = aimfor.operating_point([0, 0, 0, 1], [4.0, 3.0, 2.0, 1.0], "cost[fp=10,fn=1]")
    assert point.threshold > 4
    assert point.predict([4.0, 3.0]).tolist() == [0, 0]
    assert point.precision is None
    assert (point.counts.tp, point.counts.fp) == (0, 0)
    assert aimfor.OperatingPoint.from_json(point.to_json()) == point
    assert "least cost with 10 for a false positive and 1 for a false negative" in str(point)


BAD = [
    (lambda: aimfor.Cost(0, 1), ValueError, "fp must be in [1e-06, 1e+06], got 0"),
    (lambda: aimfor.Cost(1, math.nan), ValueError, "fn must be in [1e-06, 1e+06], got nan"),
    (lambda: aimfor.Cost("1", 2), TypeError, "fp must be a number or a tuple of numbers, got '1'"),
    (lambda: aimfor.Cost((1, 2), (1, 2, 3)), ValueError, "fp and fn must have as many entries, got [2, 3]"),
    (lambda: aimfor.RecallAtAlerts(1.5), ValueError, "max_alerts must be in (0, 1), got 1.5"),
    (lambda: aimfor.PrecisionAtAlerts(0), ValueError, "min_alerts must be in (0, 1), got 0"),
    (lambda: aimfor.RecallAtAlerts(0.6, band=2), ValueError, "band must keep all anchors around 0.6 in (0, 1), got 2"),
    (lambda: aimfor.aim("cost[fp=1,fp=2]"), ValueError, "aim must be a known aim, got 'cost[fp=1,fp=2]'"),
    (lambda: aimfor.aim("cost[fp=1,fn=-2]"), ValueError, "fn must be in [1e-06, 1e+06], got -2.0"),
    (lambda: aimfor.aim("cost[fp=1,fn=2]; band=2"), ValueError, "an option of Cost must be left out, got 'band='"),
    (
        lambda: aimfor.operating_point([0, 1], [1, 2], "cost[fp=1,fn=2]", confidence=0.9),
        ValueError,
        "confidence needs an aim with a constraint, got 'cost[fp=1,fn=2]'",
    ),
    (lambda: alert_threshold([], 0.1), ValueError, "y_score must have shape [n] with n > 0, got (0,)"),
    (lambda: alert_threshold([[1.0]], 0.1), ValueError, "y_score must have shape [n] with n > 0, got (1, 1)"),
    (lambda: alert_threshold([math.nan], 0.1), ValueError, "y_score must be finite in every entry, got nan"),
    (lambda: alert_threshold([1.0], 1), ValueError, "max_alerts must be in (0, 1), got 1"),
    (lambda: alert_threshold([1.0], 0.1, confidence=2), ValueError, "confidence must be in (0, 1), got 2"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
