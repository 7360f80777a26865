"""A rate and its aim, registered in one place, work everywhere or are refused in one sentence."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import aimfor
from aimfor.aims import FIXED_SEQUENCE, POINT_AIMS, RATES, WALK, Constraint, PointAim, Rate, Rates, register_rate
from aimfor.aims import _rates as rates_module
from aimfor.metrics import Share
from aimfor.report import measure_label
from cases import NATIVE, SURROGATES

SHARE = Share("falsework", ("fp",), ("positives", "negatives"))


def at_most(slack: Tensor, priors: Tensor, rest: Tensor | None, rates: Rates) -> Constraint:
    """(1 - prior) v / q <= 1."""
    one, zero = torch.ones_like(slack), torch.zeros_like(slack)
    return Constraint(zero, (1 - priors) / slack, one, zero)


FALSEWORK = {
    "name": "falsework",
    "share": SHARE,
    "title": "share of false alarms in all rows",
    "deed": "gives a false alarm for {} of all rows",
    "greater_is_better": False,
    "cost": "v",
    "constrain": {"<=": at_most},
    "slack_from_one": False,
    "test": FIXED_SEQUENCE,
    "round_targets": (0.01, 0.1),
}


@pytest.fixture(autouse=True)
def _registries_as_they_were():
    rates, aims = dict(RATES), dict(POINT_AIMS)
    yield
    for registry, before in ((RATES, rates), (POINT_AIMS, aims)):
        registry.clear()
        registry.update(before)


def register(**changes) -> type[PointAim]:
    """The one place: the rate, then its aim."""
    register_rate(Rate(**{**FALSEWORK, **changes}))

    @dataclass(frozen=True)
    class RecallAtFalsework(PointAim):
        max_falsework: float
        band: float | None = None
        num_anchors: int | None = None

        objective = "recall"
        constrained = "falsework"
        sense = "<="

    return RecallAtFalsework


def rows(size: int = 600, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = rng.random(size) < 0.3
    return labels, 1.5 * labels + rng.normal(size=size)


def counted(labels, scores, threshold):
    found = scores >= threshold
    return (found & labels).sum() / labels.sum(), (found & ~labels).sum() / labels.size


def test_text_and_record():
    kind = register()
    record = aimfor.aim("recall@falsework<=0.05")
    assert record == kind(0.05)
    assert str(record) == "recall@falsework<=0.05"
    with pytest.raises(ValueError, match=r"did you mean 'recall@falsework<=0\.05'"):
        aimfor.aim("recal@falswork<=0.05")


def test_the_exact_metric_is_that_of_brute_force():
    register()
    labels, scores = rows()
    allowed = [
        recall
        for recall, falsework in (counted(labels, scores, threshold) for threshold in scores)
        if falsework <= 0.05 + 1e-12
    ]
    assert aimfor.aim("recall@falsework<=0.05").metric(labels, scores) == pytest.approx(max(allowed))


@pytest.mark.parametrize("confidence", [None, 0.9])
def test_the_operating_point_is_that_of_brute_force(confidence):
    register()
    labels, scores = rows()
    point = aimfor.operating_point(labels, scores, "recall@falsework<=0.05", confidence=confidence)
    kept = {}
    for threshold in scores:
        recall, falsework = counted(labels, scores, threshold)
        false_alarms = round(falsework * labels.size)
        tail = stats.binom.cdf(false_alarms, labels.size, 0.05)
        if recall > 0 and falsework <= 0.05 + 1e-12 and (confidence is None or tail <= 1 - confidence + 1e-12):
            kept[threshold] = recall
    best = max(kept.values())
    assert point.recall == pytest.approx(best)
    assert kept[point.threshold] == pytest.approx(best)
    assert point.chosen == "most recall with falsework <= 0.05"
    assert aimfor.OperatingPoint.from_json(point.to_json()) == point


@pytest.mark.parametrize("engine", ["fused", NATIVE])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_loss_is_that_of_the_reference(engine, surrogate, monkeypatch):
    register()
    labels, scores = rows()
    values, gradients, multipliers = [], [], []
    for name in ("plain", engine):
        monkeypatch.setenv("AIMFOR_ENGINE", name)
        loss = aimfor.Loss("recall@falsework<=0.05", surrogate=surrogate, warmup=2)
        inputs = torch.tensor(scores, dtype=torch.float32, requires_grad=True)
        for _ in range(5):
            value = loss(inputs, torch.tensor(labels))
        inputs.grad = None
        value.backward()
        values.append(value.item())
        gradients.append(inputs.grad.clone())
        multipliers.append(loss.multipliers.clone())
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(*multipliers)
    assert gradients[0].abs().sum() > 0


def test_the_loss_keeps_the_constraint():
    register()
    torch.manual_seed(0)
    labels = torch.rand(4000) < 0.3
    inputs = torch.randn(4000, 3) + 2 * labels.unsqueeze(1)
    model, loss = torch.nn.Linear(3, 1), aimfor.Loss("recall@falsework<=0.05", constraint="exact")
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(600):
        optimiser.zero_grad()
        loss(model(inputs).squeeze(1), labels).backward()
        optimiser.step()
    scores = model(inputs).squeeze(1).detach().numpy()
    recall, falsework = counted(labels.numpy(), scores, loss.thresholds.item())
    assert falsework <= 0.055
    assert recall > 0.95


def test_the_sentence_of_the_report():
    register()
    labels, scores = rows()
    point = aimfor.operating_point(labels, scores, "recall@falsework<=0.05")
    new_labels, new_scores = rows(seed=1)
    measured = measure_label(
        "fraud",
        labels=new_labels,
        scores=new_scores,
        point=point,
        aim=aimfor.aim(point.aim),
        validation=(labels, scores, None),
    )
    recall, falsework = counted(new_labels, new_scores, point.threshold)
    assert measured["operating"]["falsework"] == pytest.approx(falsework)
    assert measured["operating"]["recall"] == pytest.approx(recall)
    assert "share of false alarms in all rows" in measured["sentence"]
    assert "gives a false alarm for" in measured["sentence"]
    assert [point["promised"] for point in measured["promise"]["points"]] == [0.01, 0.05, 0.1]


def test_a_rate_without_an_exact_test_has_no_confidence():
    register(test=None)
    assert aimfor.operating_point(*rows(), "recall@falsework<=0.05").threshold is not None
    with pytest.raises(ValueError, match="confidence needs a rate with an exact test, got 'falsework', which has none"):
        aimfor.operating_point(*rows(), "recall@falsework<=0.05", confidence=0.9)


REFUSED_RATES = [
    ({"cost": "w"}, "cost of the rate 'falsework' must be 'u', 'v' or None, got 'w'"),
    ({"constrain": {"==": at_most}}, "a sense of the rate 'falsework' must be '>=' or '<=', got '=='"),
    ({"test": "recall's"}, "test of the rate 'falsework' must be in the list of tests, got \"recall's\""),
    ({"test": WALK}, "the rate 'falsework' must be the share of positives above the threshold for a walk"),
    (
        {"share": Share("falsework", ("fp",), ("tp", "fp"))},
        "the rate 'falsework' may rise with the threshold, so it needs another test",
    ),
    ({"name": "recall"}, "the name of a rate must be new, got 'recall'"),
    ({"name": "false work"}, "the name of a rate must be of lower-case letters, got 'false work'"),
    ({"constrain": {}}, "the registry has no constraint, got 'falsework<='"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED_RATES)
def test_refused_rates(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        register(**changes)


def define(objective: str, constrained: str, sense: str) -> None:
    names = {"objective": objective, "constrained": constrained, "sense": sense}
    type("Unknown", (PointAim,), names)


REFUSED_AIMS = [
    (("recall", "luck", ">="), "a rate must be one of 'precision', 'recall', 'tpr', 'fpr'"),
    (("luck", "recall", ">="), "a rate must be one of 'precision', 'recall', 'tpr', 'fpr'"),
    (("recall", "precision", "<="), "the registry has 'precision>=', got 'precision<='"),
]


@pytest.mark.parametrize(("names", "message"), REFUSED_AIMS)
def test_refused_aims(names, message):
    before = dict(POINT_AIMS)
    with pytest.raises(ValueError, match=message):
        define(*names)
    assert before == POINT_AIMS


def test_a_rate_that_cannot_be_an_objective():
    register(cost=None)
    with pytest.raises(ValueError, match="the rate 'falsework' has no cost in the loss"):
        define("falsework", "recall", ">=")


def test_every_rate_is_read_from_one_place():
    assert rates_module.RATES is RATES
    for name, rate in RATES.items():
        assert rate.deed.count("{}") == 1, name
        assert rate.test is not None, name


@pytest.mark.parametrize("missing", ["objective", "constrained", "sense"])
def test_an_aim_that_lacks_a_part_of_its_question_is_refused(missing):
    names = {"objective": "recall", "constrained": "fpr", "sense": "<="}
    del names[missing]
    with pytest.raises(TypeError, match=f"^Unknown must have `{missing}` as a text, as RecallAtPrecision has$"):
        type("Unknown", (PointAim,), names)


def plain(kind):
    return kind


@pytest.mark.parametrize("decorator", [plain, dataclass])
def test_an_aim_that_is_no_frozen_dataclass_is_refused(decorator):
    @decorator
    class RecallAtMostFPR(PointAim):
        max_fpr: float = 0.1
        band: float | None = None
        num_anchors: int | None = None

        objective = "recall"
        constrained = "fpr"
        sense = "<="

    with pytest.raises(TypeError, match="RecallAtMostFPR must be a dataclass with frozen=True, its target"):
        RecallAtMostFPR(0.1)
    with pytest.raises(TypeError, match="RecallAtMostFPR must be a dataclass with frozen=True, its target"):
        aimfor.aim("recall@fpr<=0.1")


def test_an_aim_without_a_band_is_refused():
    @dataclass(frozen=True)
    class RecallAtMostFPR(PointAim):
        max_fpr: float

        objective = "recall"
        constrained = "fpr"
        sense = "<="

    with pytest.raises(TypeError, match="the fields band and num_anchors after it"):
        RecallAtMostFPR(0.1)
