"""The watch: false alarms over any length, real alarms soon, late and partial labels, its state as JSON."""

import json
import math
import re

import numpy as np
import pytest
from scipy import stats

import aimfor
from aimfor import Watch
from aimfor.operating_points import choose_points
from aimfor.operating_points._evidence import SHIFTS, Evidence, failure_factors, rank_factors


def draw(rng, size, gap=2.0, prior=0.3):
    labels = rng.random(size) < prior
    return gap * labels + rng.normal(size=size), labels


def point(text="recall@precision>=0.8", confidence=0.9, seed=0):
    scores, labels = draw(np.random.default_rng(seed), 2000)
    return choose_points(labels, scores, text, confidence=confidence)


def share_of_alarms(streams, rows, rate=0.1, most=0.1, level=0.05):
    """Of streams that fail exactly as often as they may."""
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(streams):
        evidence = Evidence.of_bets(len(SHIFTS))
        evidence.add(failure_factors(rng.random(rows) < rate, most))
        alarms += evidence.highest >= math.log(1 / level)
    return alarms / streams


def test_quiet_streams_rarely_raise_an_alarm():
    assert share_of_alarms(1000, 1000) <= stats.binom.isf(1e-4, 1000, 0.05) / 1000
    assert share_of_alarms(200, 1000, rate=0.2) > 0.95


@pytest.mark.slow
def test_ten_thousand_quiet_streams():
    assert share_of_alarms(10_000, 5000) <= 0.05


def whole_watch_alarms(streams, batches, size, seed=0):
    """Labels, alerts and scores together; the operating point is chosen anew for every stream."""
    rng, alarms = np.random.default_rng(seed), 0
    for _ in range(streams):
        scores, labels = draw(rng, 500)
        chosen = choose_points(labels, scores, "precision@recall>=0.8", confidence=0.95)
        watch = Watch(chosen, reference_scores=draw(rng, 400)[0])
        for _ in range(batches):
            status = watch.update(*draw(rng, size))
        alarms += status.alarm
    return alarms / streams


def test_a_quiet_watch_rarely_raises_an_alarm():
    assert whole_watch_alarms(300, 4, 100) <= stats.binom.isf(1e-4, 300, 0.05) / 300


@pytest.mark.slow
def test_ten_thousand_quiet_watches():
    assert whole_watch_alarms(10_000, 4, 150) <= 0.05


@pytest.mark.parametrize(
    ("text", "name"),
    [("recall@precision>=0.8", "precision"), ("precision@recall>=0.8", "recall"), ("tpr@fpr<=0.1", "fpr")],
)
def test_a_broken_promise_is_found(text, name):
    rng, watch = np.random.default_rng(1), Watch(point(text))
    for _ in range(10):
        assert not watch.update(*draw(rng, 200)).alarm
    for _ in range(20):
        scores, labels = draw(rng, 200, gap=0.8)
        status = watch.update(scores + (0.8 if name == "fpr" else 0.0), labels)
    assert status.alarm
    assert any(reason.startswith(f"The promise {name} ") for reason in status.reasons)
    assert watch.update(*draw(rng, 200)).alarm  # an alarm stays
    assert str(status).startswith("The ")


def test_without_labels_it_watches_alerts_and_scores():
    rng = np.random.default_rng(2)
    watch = Watch(point(), reference_scores=draw(rng, 1000)[0])
    for _ in range(5):
        assert not watch.update(draw(rng, 200)[0]).alarm
    for _ in range(20):
        status = watch.update(draw(rng, 200)[0] + 0.7)
    assert {reason.split(" is ")[0].split(" are ")[0] for reason in status.reasons} == {
        "The share of alerts",
        "The scores",
    }
    assert status.labels == 0


def test_late_and_partial_labels_count_once():
    rng = np.random.default_rng(3)
    scores, labels = draw(rng, 300)
    at_once, late = Watch(point()), Watch(point())
    at_once.update(scores, labels)
    first = np.arange(300) < 120
    late.update(scores, np.where(first, labels, np.nan))
    late.update(scores[~first], labels[~first], seen_before=True)
    assert late.status().evidence == pytest.approx(at_once.status().evidence)
    assert (late.rows, late.labels) == (300, 300)


def test_decisions_in_place_of_scores():
    scores, labels = draw(np.random.default_rng(4), 200)
    by_score, by_decision = Watch(point()), Watch(point())
    assert by_score.update(scores, labels) == by_decision.update(decisions=point().predict(scores), y_true=labels)


@pytest.mark.parametrize("reference", [False, True])
def test_a_watch_goes_on_from_its_json(reference):
    rng = np.random.default_rng(5)
    watch = Watch(point(), reference_scores=draw(rng, 300)[0] if reference else None, random_state=3)
    watch.update(*draw(rng, 100))
    other = Watch.from_json(watch.to_json())
    scores, labels = draw(rng, 100)
    assert other.update(scores, labels) == watch.update(scores, labels)
    assert other.to_json() == watch.to_json()


def test_other_promises():
    watch = Watch(point("f1", confidence=None), promises={"recall": 0.5, "fpr": 0.4})
    assert watch.promises == {"recall": (">=", 0.5), "fpr": ("<=", 0.4)}
    assert set(watch.update(*draw(np.random.default_rng(0), 100)).evidence) == {"recall", "fpr", "share of alerts"}


def test_a_budget_of_alerts_is_watched_without_labels():
    rng, watch = np.random.default_rng(6), Watch(point("recall@alerts<=0.1"))
    for _ in range(10):
        status = watch.update(draw(rng, 200)[0] + 0.5)
    assert "The promise alerts <= 0.1 no longer holds." in status.reasons


@pytest.mark.parametrize("most", [0.02, 0.1, 0.5])
def test_the_mean_factor_is_one_where_the_promise_just_holds(most):
    failed, kept = np.exp(failure_factors(np.array([True, False]), most))
    assert most * failed + (1 - most) * kept == pytest.approx(np.ones(len(SHIFTS)))
    middles = (np.arange(200_000) + 0.5) / 200_000
    assert np.exp(rank_factors(middles)).mean(0) == pytest.approx(np.ones(6), rel=0.05)


BAD = [
    (lambda watch: Watch("point"), TypeError, "point must be an OperatingPoint, got str"),
    (
        lambda watch: Watch(aimfor.operating_point([0, 1], [2, 1], "recall@precision>=0.9")),
        ValueError,
        "a watch needs a threshold, got none for 'recall@precision>=0.9'",
    ),
    (lambda watch: Watch(point(), level=0), ValueError, "level must be in (0, 1), got 0"),
    (lambda watch: Watch(point(), promises={"luck": 0.5}), ValueError, "a rate must be one of 'precision'"),
    (lambda watch: Watch(point(), promises={"recall": 2}), ValueError, "the promised recall must be in (0, 1), got 2"),
    (lambda watch: Watch(point(), promises={}), ValueError, "promises must name a rate, or be None"),
    (lambda watch: Watch(point(), reference_scores=[1.0]), ValueError, "reference_scores must be at least 40 numbers"),
    (lambda watch: Watch(point(), reference_scores=[[1.0]]), ValueError, "reference_scores must have shape [n]"),
    (lambda watch: watch.update(), ValueError, "update needs either y_score or decisions, got both or neither"),
    (lambda watch: watch.update([1.0], decisions=[1]), ValueError, "update needs either y_score or decisions"),
    (lambda watch: watch.update([math.nan]), ValueError, "y_score must be finite in every entry, got nan"),
    (lambda watch: watch.update([[1.0]]), ValueError, "y_score must have shape [n], got (1, 1)"),
    (lambda watch: watch.update([1.0], [2]), ValueError, "y_true must be 0, 1 or nan in every entry, got 2.0"),
    (lambda watch: watch.update([1.0], [0, 1]), ValueError, "y_true must have one entry for each of the 1 rows"),
    (lambda watch: watch.update(decisions=[3]), ValueError, "decisions must be 0 or 1 in every entry, got 3.0"),
    (lambda watch: Watch.from_json("{"), ValueError, "a watch must be JSON text, got something else"),
    (lambda watch: Watch.from_json("{}"), ValueError, "a watch must be a JSON object with the format 'aimfor watch'"),
    (
        lambda watch: Watch.from_json(json.dumps({"format": "aimfor watch"})),
        ValueError,
        "a watch must have all of its entries, got a fault: KeyError('promises')",
    ),
    (
        lambda watch: Watch.from_json(json.dumps(json.loads(watch.to_json()) | {"alerts": [1, "x"]})),
        ValueError,
        "alerts must be a number, got 'x'",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call(Watch(point()))
