"""The numbers behind the page: exact counts, beside `aimfor.metrics` and a brute force."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import aimfor
from aimfor.report._measure import measure_label
from ranks_in_threads import in_ranks

AIMS = [
    "recall@precision>=0.6",
    "precision@recall>=0.7",
    "tpr@fpr<=0.1",
    "fpr@tpr>=0.8",
    "recall@alerts<=0.2",
    "cost[fp=1,fn=5]",
    "aucpr",
    "aucpr[recall>=0.5]",
    "aucroc",
    "f1",
]


def problem(n=400, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.3).astype(int)
    return labels, labels + noise * rng.normal(size=n)


def measured(text, labels, scores, validation=None, confidence=None, **options):
    validation = problem(seed=1) if validation is None else validation
    aim = aimfor.aim(text)
    point = aimfor.operating_point(*validation, aim, confidence=confidence)
    return measure_label(
        "label",
        labels=labels,
        scores=scores,
        validation=(*validation, None),
        point=point,
        aim=aim,
        **options,
    )


def json_safe(value):
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.parametrize("text", AIMS)
def test_numbers_at_the_operating_threshold_are_those_of_metrics(text):
    labels, scores = problem()
    baseline = scores + problem(seed=2)[1]
    found = measured(text, labels, scores, baseline_scores=baseline)
    operating = found["operating"]
    predicted = scores >= operating["threshold"]
    assert [operating[name] for name in ("tp", "fp", "fn", "tn")] == [
        (predicted & (labels == 1)).sum(),
        (predicted & (labels == 0)).sum(),
        (~predicted & (labels == 1)).sum(),
        (~predicted & (labels == 0)).sum(),
    ]
    for rate in ("precision", "recall", "fpr"):
        exact = getattr(aimfor.metrics, rate)(labels, scores, operating["threshold"])
        assert operating[rate] == pytest.approx(exact, rel=1e-12)
    assert found["metric"]["ours"] == aimfor.aim(text).metric(labels, scores)
    assert found["metric"]["baseline"] == aimfor.aim(text).metric(labels, baseline)
    assert found["rows"] == 400
    assert found["positives"] == labels.sum()
    json_safe(found)


def test_intervals_are_exact_ones_at_the_confidence_of_the_point():
    labels, scores = problem()
    for confidence, level in ((None, 0.95), (0.8, 0.8)):
        operating = measured("recall@precision>=0.6", labels, scores, confidence=confidence)["operating"]
        exact = stats.binomtest(operating["tp"], operating["tp"] + operating["fp"]).proportion_ci(level)
        assert operating["intervals"]["precision"] == pytest.approx(tuple(exact))


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.booleans(), st.integers(-8, 8), st.sampled_from([0.0, 0.5, 3.0])), min_size=1),
    text=st.sampled_from(AIMS),
    weighted=st.booleans(),
)
def test_any_rows_give_finite_numbers_that_agree(rows, text, weighted):
    labels, scores, weights = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    if weighted:
        weights[0] = 1.0  # some row must count
    options = {"weights": weights} if weighted else {}
    found = json_safe(measured(text, labels, scores, **options))
    counted = weights if weighted else np.ones(len(labels))
    # Equal weights count rows.
    unit = counted[counted > 0][0] if len(set(counted[counted > 0])) == 1 else 1.0
    curve = found["curve"]
    assert curve["thresholds"] == sorted(set(curve["thresholds"]), reverse=True)
    for threshold, tp, fp in zip(*curve.values(), strict=True):
        reached = scores >= threshold
        assert tp * unit == pytest.approx(counted[reached & (labels == 1)].sum())
        assert fp * unit == pytest.approx(counted[reached & (labels == 0)].sum())
    histogram = found["histogram"]
    assert sum(histogram["positives"]) * unit == pytest.approx(counted[labels == 1].sum())
    assert sum(histogram["negatives"]) * unit == pytest.approx(counted[labels == 0].sum())
    assert len(histogram["edges"]) == len(histogram["positives"]) + 1 <= 51
    assert (np.diff(histogram["edges"]) > 0).all()


@pytest.mark.parametrize("prior", [0.5, 0.001])
def test_a_thinned_curve_looks_unchanged_and_keeps_the_operating_threshold(prior):
    rng = np.random.default_rng(0)
    labels = (rng.random(200_000) < prior).astype(int)
    scores = 2 * labels + rng.normal(size=labels.size)
    found = measured("recall@precision>=0.6", labels, scores)
    curve = found["curve"]
    assert 500 < len(curve["thresholds"]) <= 1001
    assert found["operating"]["threshold"] in curve["thresholds"]
    at = curve["thresholds"].index(found["operating"]["threshold"])
    assert (curve["tp"][at], curve["fp"][at]) == (found["operating"]["tp"], found["operating"]["fp"])
    full = measured("recall@precision>=0.6", labels, scores, num_points=10**9)["curve"]
    assert len(full["thresholds"]) >= 200_000

    def rates(counts):
        tp, fp = np.array(counts["tp"]), np.array(counts["fp"])
        return np.stack([tp / labels.sum(), fp / (labels == 0).sum(), tp / np.maximum(tp + fp, 1)], axis=1)

    # Each point left out lies close to the next one kept, in all three rates at once: a few pixels at most.
    kept = np.searchsorted(-np.array(curve["thresholds"]), -np.array(full["thresholds"]))
    assert np.abs(rates(curve)[kept] - rates(full)).max() < 0.02


@pytest.mark.parametrize(
    ("text", "rate", "sense"),
    [
        ("recall@precision>=0.55", "precision", ">="),
        ("precision@recall>=0.7", "recall", ">="),
        ("tpr@fpr<=0.03", "fpr", "<="),
        ("fpr@tpr>=0.8", "recall", ">="),
        ("aucpr", "precision", ">="),
        ("f1", "precision", ">="),
        ("aucroc[fpr<=0.1]", "fpr", "<="),
    ],
)
def test_the_promise_is_chosen_on_validation_rows_and_kept_on_test_rows(text, rate, sense):
    labels, scores = problem()
    validation = problem(seed=1)
    promise = measured(text, labels, scores, validation)["promise"]
    assert (promise["rate"], promise["sense"]) == (rate, sense)
    targets = [point["promised"] for point in promise["points"]]
    assert targets == sorted(targets)
    if isinstance(aimfor.aim(text), aimfor.aims.PointAim):
        assert aimfor.aim(text).target in targets
    for point in promise["points"]:
        if point["threshold"] is None:
            assert point["delivered"] is None
            continue
        kept = getattr(aimfor.metrics, rate)(*validation, point["threshold"])
        assert kept >= point["promised"] - 1e-12 if sense == ">=" else kept <= point["promised"] + 1e-12
        delivered = getattr(aimfor.metrics, rate)(labels, scores, point["threshold"])
        assert point["delivered"] == pytest.approx(delivered)
        assert point["interval"][0] <= delivered <= point["interval"][1]


def test_the_promise_has_the_confidence_of_the_point():
    labels, scores = problem()
    plain = measured("precision@recall>=0.7", labels, scores)["promise"]["points"]
    sure = measured("precision@recall>=0.7", labels, scores, confidence=0.99)["promise"]["points"]
    lower = [
        one["threshold"] - other["threshold"] for one, other in zip(plain, sure, strict=True) if other["threshold"]
    ]
    assert len(lower) > 5
    # Few rows may have one and the same threshold, as without a confidence it passes a test too.
    assert min(lower) >= 0
    assert np.mean(np.array(lower) > 0) > 0.7


def test_sentences_and_verdicts():
    labels, scores = problem()
    met = measured("recall@precision>=0.5", labels, scores, (labels, scores))
    assert met["verdict"] == "met"
    assert met["constraint"]["held"] is True
    assert met["sentence"].startswith("Met on these rows, though the interval reaches beyond the target: at threshold ")
    assert met["sentence"].endswith("; asked was at least 50 %.")
    assert "of the positives (recall, 95 % interval " in met["sentence"]

    far = measured("recall@precision>=0.6", labels, -scores)  # the scores are upside down on the test rows
    assert far["verdict"] == "missed"
    assert far["sentence"].startswith("Not met: ")

    none = measured("recall@precision>=0.9", labels, scores, (np.array([0, 1]), np.array([1.0, 0.0])))
    assert none["verdict"] == "no threshold"
    assert none["operating"]["threshold"] is None
    assert none["sentence"].startswith("No threshold: no threshold has precision >= 0.9 on held-out data")

    free = measured("f1", labels, scores)
    assert free["verdict"] == "no constraint"
    assert free["constraint"] is None
    assert "the best F1 on held-out data" in free["sentence"]

    high = measured("recall@precision>=0.9", labels, scores, (np.array([0, 1]), np.array([0.0, 99.0])))
    assert high["verdict"] == "unknown"
    assert "has no precision here" in high["sentence"]


def test_a_missed_target_inside_the_interval_is_within_chance():
    labels, scores = np.array([1] * 17 + [0] * 3 + [0] * 80), np.array([1.0] * 20 + [0.0] * 80)
    chosen_on = (np.array([1] * 9 + [0] * 11), np.array([1.0] * 9 + [1.0] + [0.0] * 10))
    found = measured("recall@precision>=0.9", labels, scores, chosen_on)
    assert found["operating"]["precision"] == 0.85
    assert found["constraint"]["held"] is False
    assert found["verdict"] == "within chance"


def test_one_class_gives_none_where_a_rate_does_not_exist():
    scores = np.array([0.5, 1.5, 2.5])
    found = json_safe(measured("recall@precision>=0.6", np.zeros(3), scores))
    assert found["metric"]["ours"] is None
    assert found["operating"]["recall"] is None
    assert found["operating"]["intervals"]["recall"] is None
    found = json_safe(measured("tpr@fpr<=0.1", np.ones(3), scores))
    assert found["constraint"]["held"] is None


def test_unequal_weights_have_no_intervals():
    labels, scores = problem()
    weights = np.where(labels == 1, 2.0, 1.0)
    found = measured("recall@precision>=0.6", labels, scores, weights=weights)
    threshold = found["operating"]["threshold"]
    exact = aimfor.metrics.precision(labels, scores, threshold, sample_weight=weights)
    assert found["operating"]["precision"] == pytest.approx(exact)
    assert found["operating"]["intervals"] is None


@pytest.mark.parametrize("text", ["recall@precision>=0.6", "tpr@fpr<=0.1", "aucroc"])
def test_ranks_measure_together_what_one_process_does(text):
    rows = problem()
    alone = measured(text, *rows)
    for size in (2, 4):
        first, *others = in_ranks(lambda ranks: measured(text, *rows, ranks=ranks), size)
        assert first == alone
        assert others == [{name: alone[name] for name in ("promise", "band")}] * (size - 1)


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([0, 2], [1.0, 2.0], "0 or 1"),
        ([0, 1], [1.0, np.nan], "finite"),
        ([[0], [1]], [[1.0], [2.0]], r"labels must have shape \[n\]"),
        ([], [], "must not be empty"),
    ],
)
def test_bad_rows(labels, scores, message):
    with pytest.raises(ValueError, match=message):
        measured("f1", labels, scores)
