"""Aims: their text, their tables, their exact metrics."""

import dataclasses
import importlib.metadata
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import aimfor
from aimfor import (
    AUCPR,
    AUCROC,
    Cost,
    FBeta,
    FPRAtTPR,
    PrecisionAtAlerts,
    PrecisionAtRecall,
    RecallAtAlerts,
    RecallAtPrecision,
    TPRAtFPR,
    metrics,
)
from aimfor.aims._table import Rates
from cases import AIMS, written_out

TEXTS = {
    "recall@precision>=0.9": RecallAtPrecision(0.9),
    "recall@precision>=(0.9, 0.8)": RecallAtPrecision((0.9, 0.8)),
    "recall@precision>=0.9; band=2": RecallAtPrecision(0.9, band=2),
    "precision@recall>=0.95": PrecisionAtRecall(0.95),
    "tpr@fpr<=0.01": TPRAtFPR(0.01),
    "tpr@fpr<=1e-05": TPRAtFPR(1e-5),
    "fpr@tpr>=0.9": FPRAtTPR(0.9),
    "aucpr": AUCPR(),
    "aucpr; num_anchors=20; spacing=geometric": AUCPR(num_anchors=20, spacing="geometric"),
    "aucpr[precision>=0.8]": AUCPR(min_precision=0.8),
    "aucpr[precision<=0.5]": AUCPR(max_precision=0.5),
    "aucpr[0.6<=precision<=0.9]": AUCPR(min_precision=0.6, max_precision=0.9),
    "aucpr[recall>=0.5]": AUCPR(min_recall=0.5),
    "aucpr[0.2<=recall<=0.8]": AUCPR(min_recall=0.2, max_recall=0.8),
    "aucroc": AUCROC(),
    "aucroc[fpr<=0.1]": AUCROC(max_fpr=0.1),
    "aucroc[0.01<=fpr<=0.1]": AUCROC(min_fpr=0.01, max_fpr=0.1),
    "f1": FBeta(1),
    "f2": FBeta(2),
    "f0.5": FBeta(0.5),
    "f(1, 2)": FBeta((1.0, 2.0)),
    "recall@alerts<=0.01": RecallAtAlerts(0.01),
    "recall@alerts<=0.01; band=2": RecallAtAlerts(0.01, band=2),
    "precision@alerts>=0.001": PrecisionAtAlerts(0.001),
    "cost[fp=1,fn=20]": Cost(1, 20),
    "cost[fp=0.5,fn=(2, 3)]": Cost(0.5, (2, 3)),
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_record(text):
    assert aimfor.aim(text) == TEXTS[text]
    assert str(TEXTS[text]) == text
    assert aimfor.aim(text.upper().replace(";", " ; ")) == TEXTS[text]
    assert aimfor.aim(TEXTS[text]) is TEXTS[text]
    assert hash(aimfor.aim(text)) == hash(TEXTS[text])


POINT_KINDS = (RecallAtPrecision, PrecisionAtRecall, TPRAtFPR, FPRAtTPR, RecallAtAlerts, PrecisionAtAlerts)
SHARE = st.floats(1e-6, 1 - 1e-6)
TARGET = st.one_of(SHARE, st.tuples(SHARE, SHARE))
END = st.one_of(SHARE, st.sampled_from([0.0, 1.0]))
ENDS = st.tuples(END, END).filter(lambda ends: ends[1] - ends[0] > 2e-6)
AREA_OPTIONS = {"num_anchors": st.integers(1, 50), "spacing": st.sampled_from(["uniform", "geometric"])}


@given(
    record=st.one_of(
        *(st.builds(kind, TARGET) for kind in POINT_KINDS),
        st.builds(Cost, st.floats(1e-5, 1e5), st.one_of(st.floats(1e-5, 1e5), st.tuples(SHARE, SHARE))),
        st.builds(RecallAtPrecision, st.floats(0.7, 0.99), band=st.floats(1.01, 3), num_anchors=st.integers(2, 9)),
        st.builds(lambda ends, **o: AUCPR(min_precision=ends[0], max_precision=ends[1], **o), ENDS, **AREA_OPTIONS),
        st.builds(lambda ends, **o: AUCPR(min_recall=ends[0], max_recall=ends[1], **o), ENDS, **AREA_OPTIONS),
        st.builds(lambda ends, **o: AUCROC(min_fpr=ends[0], max_fpr=ends[1], **o), ENDS, **AREA_OPTIONS),
        st.builds(FBeta, st.floats(0.01, 100)),
    )
)
def test_every_record_prints_a_text_that_parses_back(record):
    assert aimfor.aim(str(record)) == record


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("recal@precision>=0.9", "recall@precision>=0.9"),
        ("recall@precision=0.9", "recall@precision>=0.9"),
        ("recall@precision>0.75", "recall@precision>=0.75"),
        ("recall at precision 0.9", "recall@precision>=0.9"),
        ("tpr@fpr>=0.01", "tpr@fpr<=0.01"),
        ("auc-pr", "aucpr"),
        ("average_precision", "aucpr"),
        ("roc_auc", "aucroc"),
        ("aucpr[recal>=0.5]", "aucpr[recall>=0.5]"),
        ("aucroc[0.01<fpr<0.1]", "aucroc[0.01<=fpr<=0.1]"),
        ("f1-score", "f1"),
        ("f_beta", "f1"),
        ("R@P0.9", "recall@precision>=0.9"),
        ("p@r>=0.95", "precision@recall>=0.95"),
        ("recall@precision>=80%", "recall@precision>=0.8"),
        ("recal@precision>=0.8; band=2", "recall@precision>=0.8; band=2"),
        ("aucpr[0.8<=precision]", "aucpr[precision>=0.8]"),
        ("aucpr[0.8 < recal]", "aucpr[recall>=0.8]"),
        ("recall@0.9<=precision", "recall@precision>=0.9"),
        ("aucroc[0.1>=fpr]", "aucroc[fpr<=0.1]"),
        ("aucroc[0.1>=fpr>=0.01]", "aucroc[0.01<=fpr<=0.1]"),
        ("aucroc[0.1>fpr>0.01]", "aucroc[0.01<=fpr<=0.1]"),
        ("roc_auc[fpr<=0.1]", "aucroc[fpr<=0.1]"),
        ("fpr@recall>=0.9", "fpr@tpr>=0.9"),
        ("recall@fpr<=0.01", "tpr@fpr<=0.01"),
        ("precision@tpr>=0.9", "precision@recall>=0.9"),
        ("tpr@precision>=0.9", "recall@precision>=0.9"),
        ("aucpr[tpr>=0.5]", "aucpr[recall>=0.5]"),
        ("trp@fpr<=0.01", "tpr@fpr<=0.01"),
        ("TPR@1%FPR", "tpr@fpr<=0.01"),
        ("precision at 90% recall", "precision@recall>=0.9"),
        ("recall@precision>=99.99999%", "recall@precision>=0.9999999"),
        ("recall@precison>=(0.9,0.8)", "recall@precision>=(0.9, 0.8)"),
        ("aucpr[(0.1, 0.2)<=recal<=0.5]", "aucpr[(0.1, 0.2)<=recall<=0.5]"),
        ("sensitivity@specificity>=0.9", "tpr@fpr<=0.1"),
        ("tpr@TNR>95%", "tpr@fpr<=0.05"),
        ("specificity@sensitivity>=0.9", "fpr@tpr>=0.9"),
        ("ppv@recall>=0.9", "precision@recall>=0.9"),
        ("recall@top 1%", "recall@alerts<=0.01"),
        ("precision@alert>=0.001", "precision@alerts>=0.001"),
        ("cost(fp=1, fn=20)", "cost[fp=1,fn=20]"),
        ("f_beta=2", "f2"),
        ("f_beta(2)", "f2"),
        ("macro F2", "f2"),
        ("aucpr, num_anchors=3", "aucpr; num_anchors=3"),
        ("AUCPR(num_anchors=3)", "aucpr; num_anchors=3"),
        ("aucpr num_anchors=3", "aucpr; num_anchors=3"),
        ("recall@precision>=0.9, band=2; num_anchors=3", "recall@precision>=0.9; band=2; num_anchors=3"),
    ],
)
def test_a_misspelt_aim_gets_the_nearest_right_spelling(wrong, right):
    with pytest.raises(ValueError, match="did you mean") as caught:
        aimfor.aim(wrong)
    assert f"got {wrong!r}; did you mean {right!r}?" in str(caught.value)
    assert str(aimfor.aim(right)) == right


@pytest.mark.parametrize("wrong", ["", "accuracy", "recall@precision", "recall@0.9", "recall@precision>=0.9,0.8", "f#"])
def test_a_text_far_from_every_aim_gets_examples(wrong):
    with pytest.raises(ValueError, match=r"aim must be a text such as 'recall@precision>=0.9'") as caught:
        aimfor.aim(wrong)
    assert str(caught.value).endswith(f"got {wrong!r}")


@pytest.mark.parametrize(
    ("wrong", "reading", "fault"),
    [
        ("recal@precision>=1.7", "recall@precision>=1.7", "min_precision must be in (0, 1), got 1.7"),
        ("aucroc[0.1>=fpr>=0.2]", "aucroc[0.2<=fpr<=0.1]", "min_fpr must be below max_fpr, got 0.2 and 0.1"),
        ("aucpr, band=2", "aucpr; band=2", "an option of AUCPR must be one of num_anchors=, spacing=, got 'band='"),
    ],
)
def test_a_misspelt_aim_does_not_hide_another_fault(wrong, reading, fault):
    with pytest.raises(ValueError, match="read as") as caught:
        aimfor.aim(wrong)
    assert str(caught.value) == f"aim must be a known aim, got {wrong!r}; read as {reading!r}, {fault}"


@given(st.text("aucprofelisn@[]<>=#()0.1,;% ", max_size=30))
def test_any_text_is_an_aim_or_a_value_error(text):
    try:
        record = aimfor.aim(text)
    except ValueError:
        return
    assert aimfor.aim(str(record)) == record


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: aimfor.aim("recall@precision>=1.7"), ValueError, r"min_precision must be in \(0, 1\), got 1.7"),
        (lambda: RecallAtPrecision(1), ValueError, r"min_precision must be in \(0, 1\), got 1"),
        (lambda: RecallAtPrecision((0.9, 0.0)), ValueError, r"min_precision must be in \(0, 1\), got 0.0"),
        (lambda: RecallAtPrecision(()), ValueError, "min_precision must have at least one entry"),
        (
            lambda: RecallAtPrecision("0.9"),
            TypeError,
            "min_precision must be a number or a tuple of numbers, got '0.9'",
        ),
        (lambda: RecallAtPrecision([0.9, 0.8]), TypeError, r"a number or a tuple of numbers, got \[0.9, 0.8\]"),
        (lambda: RecallAtPrecision((0.9, "0.8")), TypeError, "min_precision must be a number, got '0.8'"),
        (lambda: AUCROC(max_fpr=[0.1, 0.2]), TypeError, r"max_fpr must be a number or a tuple of numbers, got \[0.1"),
        (lambda: RecallAtPrecision(float("nan")), ValueError, "min_precision must be in"),
        (lambda: RecallAtPrecision(0.9, band=1), ValueError, r"band must be in \(1, inf\), got 1"),
        (
            lambda: RecallAtPrecision(0.4, band=2),
            ValueError,
            r"band must keep all anchors around 0.4 in \(0, 1\), got 2",
        ),
        (lambda: TPRAtFPR(0.0), ValueError, r"max_fpr must be in \(0, 1\), got 0.0"),
        (lambda: AUCPR(min_precision=0.9, max_precision=0.8), ValueError, "min_precision must be below max_precision"),
        (lambda: aimfor.aim("aucroc[0.1<=fpr<=0.1]"), ValueError, "min_fpr must be below max_fpr, got 0.1 and 0.1"),
        (lambda: AUCPR(min_precision=1.0), ValueError, "min_precision must be below 1, got 1.0"),
        (lambda: aimfor.aim("aucroc[fpr<=0]"), ValueError, "^max_fpr must be above 0, got 0.0"),
        (lambda: AUCROC(max_fpr=(0.1, 0.0)), ValueError, "^max_fpr must be above 0, got 0.0"),
        (lambda: AUCROC(max_fpr=5e-7), ValueError, "^max_fpr must be above 0 by at least 1e-06, got 5e-07"),
        (
            lambda: AUCPR(min_recall=1 - 5e-7),
            ValueError,
            "^min_recall must be below 1 by at least 1e-06, got 0.9999995",
        ),
        (
            lambda: aimfor.aim("aucroc[0.5<=fpr<=0.50000001]"),
            ValueError,
            "^min_fpr must be below max_fpr by at least 1e-06, got 0.5 and 0.50000001",
        ),
        *(
            (lambda text=text: aimfor.aim(text), ValueError, "^m.*must be at least 1e-07 away from 0 and 1, got")
            for text in (
                "aucpr[precision>=0.99999999]",
                "aucpr[recall>=0.99999999]",
                "aucpr[recall<=1e-20]",
                "aucroc[fpr<=1e-45]",
                "aucroc[1e-45<=fpr<=0.1]",
                "aucpr[0.5<=precision<=(0.9, 0.99999999)]",
            )
        ),
        (lambda: AUCROC(max_fpr=1.5), ValueError, r"max_fpr must be in \[0, 1\], got 1.5"),
        (
            lambda: AUCPR(min_precision=0.5, min_recall=0.5),
            ValueError,
            "^AUCPR must have a range of precision or a range of recall, got min_precision and min_recall",
        ),
        (lambda: AUCPR(num_anchors=0), ValueError, "num_anchors must be at least 1, got 0"),
        (lambda: AUCPR(num_anchors=2.5), TypeError, "num_anchors must be a whole number, got 2.5"),
        (lambda: AUCPR(spacing="log"), ValueError, "spacing must be one of 'uniform', 'geometric', got 'log'"),
        (lambda: FBeta(0), ValueError, r"beta must be in \[0.001, 1000\], got 0"),
        (lambda: RecallAtPrecision(1 - 1e-9), ValueError, "min_precision must be at least 1e-07 away from 0 and 1"),
        (lambda: RecallAtPrecision(0.9, 2, 1), ValueError, "num_anchors must be at least 2, got 1"),
        (
            lambda: RecallAtPrecision(0.9, num_anchors=7),
            ValueError,
            "num_anchors must be left out without a band, got 7",
        ),
        (lambda: aimfor.aim("f1; band=2"), ValueError, "an option of FBeta must be left out, got 'band='"),
        *(
            (lambda text=text: aimfor.aim(text), ValueError, "num_anchors must be left out without a band, got 7")
            for text in ("recall@precision>=0.9; num_anchors=7", "tpr@fpr<=0.1; num_anchors=7")
        ),
        (lambda: aimfor.aim("aucpr; num_anchors=5; num_anchors=6"), ValueError, "num_anchors must be given once"),
        (lambda: aimfor.aim("aucpr; anchors=5"), ValueError, "an option of an aim must be one of band="),
        (
            lambda: aimfor.aim("aucpr; band=2"),
            ValueError,
            "an option of AUCPR must be one of num_anchors=, spacing=, got 'band='",
        ),
        (lambda: aimfor.aim("aucpr; num_anchors=many"), ValueError, "num_anchors must be a whole number, got 'many'"),
        (lambda: aimfor.aim(0.9), TypeError, "aim must be a text or an aim record, got float"),
    ],
)
def test_bad_aims(make, error, message):
    with pytest.raises(error, match=message):
        make()


def table(aim, priors):
    priors = torch.tensor(priors, dtype=torch.float64)
    nothing = torch.zeros(aim.anchor_count, len(priors), dtype=torch.float64)
    anchors = aim.anchors(priors, Rates(nothing, nothing, torch.ones(len(priors))))
    return written_out(anchors, aim.anchor_count, len(priors))


@pytest.mark.parametrize("text", AIMS)
def test_tables_are_finite_and_widths_add_up(text):
    aim = aimfor.aim(text)
    anchors = table(aim, [1e-6, 0.01, 0.3, 0.999])
    for name, part in anchors._asdict().items():
        if isinstance(part, torch.Tensor) and not (name == "slack" and isinstance(aim, (FBeta, Cost))):
            assert part.isfinite().all(), name
            assert part.shape == (aim.anchor_count, 4)
    if not isinstance(aim, FBeta):
        total = anchors.width.sum(0)
        assert ((total - 1).abs() < 1e-9).logical_or(total == 0).all()


@pytest.mark.parametrize("spacing", ["uniform", "geometric"])
@given(prior=st.floats(1e-6, 0.999), low=st.just(0.0) | st.floats(1e-7, 0.9))
def test_aucpr_anchors_lie_strictly_between_prior_and_one(spacing, prior, low):
    targets = table(AUCPR(min_precision=low, spacing=spacing), [prior]).target[:, 0]
    assert (targets > max(prior, low)).all()
    assert (targets < 1).all()
    assert (targets.diff() > 0).all()


@pytest.mark.parametrize("text", ["aucpr; num_anchors=60", "aucroc; num_anchors=300"])
def test_many_geometric_anchors_stay_apart_from_the_ends(text):
    aim = aimfor.aim(f"{text}; spacing=geometric")
    nothing = torch.zeros(aim.anchor_count, 2)
    anchors = aim.anchors(torch.tensor([1e-6, 0.5]), Rates(nothing, nothing, torch.ones(2)))
    assert all(part.isfinite().all() for part in anchors if isinstance(part, torch.Tensor))


def test_a_range_below_the_prior_weighs_nothing():
    anchors = table(AUCPR(max_precision=0.3), [0.1, 0.6])
    assert anchors.width.sum(0).tolist() == pytest.approx([1, 0])


def test_tables_of_the_paper():
    """The rows of the design: constraint coefficients in the form load <= room."""
    kappa = 0.8 / 0.2
    row = table(RecallAtPrecision(0.9), [0.2])
    u, v = 0.3, 0.02
    rates = Rates(torch.tensor([[u]]), torch.tensor([[v]]), torch.ones(1))
    # a kappa v + (1 - a) u <= 1 - a, divided by 1 - a
    assert row.violation(rates).item() == pytest.approx((0.9 * kappa * v + 0.1 * u - 0.1) / 0.1)
    assert row.objective(rates).item() == pytest.approx(u)
    row = table(PrecisionAtRecall(0.9), [0.2])
    assert row.violation(rates).item() == pytest.approx((u - 0.1) / 0.1)
    assert row.objective(rates).item() == pytest.approx(v)
    row = table(TPRAtFPR(0.01), [0.2])
    assert row.violation(rates).item() == pytest.approx((v - 0.01) / 0.01)
    assert row.objective(rates).item() == pytest.approx(u)
    # The Lagrangian of the paper: (1 + lambda) L+ + lambda a / (1 - a) L- - lambda |Y+|, divided by |Y+|.
    u_cost, v_cost = table(RecallAtPrecision(0.9), [0.2]).costs(torch.tensor(2.0))
    assert (u_cost.item(), v_cost.item()) == pytest.approx((3.0, 2.0 * kappa * 9))


def test_f_beta_follows_the_gradient_of_the_surrogate_f_beta():
    prior, beta2 = 0.2, 4.0
    u = torch.tensor([[0.3]], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([[0.1]], dtype=torch.float64, requires_grad=True)
    kappa = (1 - prior) / prior
    surrogate = (1 + beta2) * (1 - u) / (beta2 + 1 - u + kappa * v)
    expected = torch.autograd.grad(-surrogate.sum(), [u, v])
    anchors = FBeta(2).anchors(torch.tensor([prior], dtype=torch.float64), Rates(u.detach(), v.detach(), torch.ones(1)))
    assert anchors.multiplier is not None
    torch.testing.assert_close(anchors.costs(anchors.multiplier), expected)
    # lambda of the paper at its fixed point
    assert anchors.multiplier.item() == pytest.approx((beta2 + kappa * 0.1) / 0.7**2)


def test_band_surrounds_its_target():
    targets = table(RecallAtPrecision(0.9, band=2), [0.1]).target[:, 0]
    assert targets[[0, 2, 4]].tolist() == pytest.approx([0.8, 0.9, 0.95])
    targets = table(TPRAtFPR(0.01, band=2, num_anchors=3), [0.1]).target[:, 0]
    assert targets.tolist() == pytest.approx([0.02, 0.01, 0.005])


def test_a_band_has_five_anchors_unless_told():
    assert RecallAtPrecision(0.9).anchor_count == 1
    assert RecallAtPrecision(0.9, band=2).anchor_count == 5
    assert RecallAtPrecision(0.9, band=2, num_anchors=7).anchor_count == 7
    assert str(RecallAtPrecision(0.9, band=2, num_anchors=7)) == "recall@precision>=0.9; band=2; num_anchors=7"


@pytest.mark.parametrize("spacing", ["uniform", "geometric"])
@pytest.mark.parametrize(
    "text",
    [
        "aucpr[precision>=0.999999]",
        "aucpr[0.5<=precision<=0.9999999]",
        "aucpr[recall>=0.999999]",
        "aucpr[recall<=0.000001]",
        "aucpr[0.3<=recall<=0.300001]",
        "aucroc[fpr<=0.000001]",
        "aucroc[1e-7<=fpr<=0.1]",
        "aucroc[fpr>=0.999999]",
        "aucroc[0.5<=fpr<=0.500001]",
    ],
)
def test_the_narrowest_ranges_still_train(text, spacing):
    torch.manual_seed(0)
    loss = aimfor.Loss(f"{text}; spacing={spacing}", warmup=1)
    scores, labels = torch.randn(64, requires_grad=True), (torch.rand(64) < 0.3).float()
    for _ in range(5):
        value = loss(scores, labels)
    assert value.isfinite()
    assert all(part.isfinite().all() for part in loss.state_dict().values() if part.is_floating_point())
    assert torch.autograd.grad(value, scores)[0].abs().sum() > 0


def test_targets_per_label():
    anchors = table(RecallAtPrecision((0.9, 0.5), band=1.5, num_anchors=3), [0.1, 0.2])
    assert anchors.target[1].tolist() == pytest.approx([0.9, 0.5])
    anchors = table(AUCROC(max_fpr=(0.1, 0.2), num_anchors=1), [0.1, 0.2])
    assert anchors.target.tolist() == [[pytest.approx(0.05), pytest.approx(0.1)]]
    with pytest.raises(ValueError, match=r"aim must have one target per label \(3 labels\), got 2"):
        aimfor.Loss(RecallAtPrecision((0.9, 0.5)), num_labels=3)


def test_metrics_of_the_aims():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    scores = labels + rng.normal(size=200)
    weights = rng.random(200)
    expected = {
        "recall@precision>=0.9": metrics.recall_at_precision(labels, scores, 0.9, sample_weight=weights).value,
        "precision@recall>=0.95": metrics.precision_at_recall(labels, scores, 0.95, sample_weight=weights).value,
        "tpr@fpr<=0.1": metrics.tpr_at_fpr(labels, scores, 0.1, sample_weight=weights).value,
        "fpr@tpr>=0.9": metrics.fpr_at_tpr(labels, scores, 0.9, sample_weight=weights).value,
        "aucpr": metrics.average_precision(labels, scores, sample_weight=weights),
        "aucpr[precision>=0.8]": metrics.mean_recall_over_precision(labels, scores, 0.8, 1, sample_weight=weights),
        "aucpr[recall>=0.5]": metrics.mean_precision_over_recall(labels, scores, 0.5, 1, sample_weight=weights),
        "aucroc": metrics.roc_auc(labels, scores, sample_weight=weights),
        "aucroc[0.01<=fpr<=0.1]": metrics.mean_tpr_over_fpr(labels, scores, 0.01, 0.1, sample_weight=weights),
        "f2": metrics.f_beta(labels, scores, 2.0, sample_weight=weights).value,
    }
    for text, value in expected.items():
        assert aimfor.aim(text).metric(labels, scores, sample_weight=weights) == pytest.approx(value), text
    assert [aimfor.aim(text).greater_is_better for text in expected] == [text != "fpr@tpr>=0.9" for text in expected]
    per_label = RecallAtPrecision((0.9, 0.5)).metric(np.stack([labels] * 2, 1), np.stack([scores] * 2, 1))
    assert per_label.tolist() == [RecallAtPrecision(t).metric(labels, scores) for t in (0.9, 0.5)]


@pytest.mark.parametrize("text", AIMS)
def test_records_are_frozen(text):
    record = aimfor.aim(text)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(record)[0].name, 0.5)


def test_the_warning_of_a_metric_points_at_its_caller():
    labels, scores = np.array([[0, 0], [1, 0]]), np.array([[0.1, 0.2], [0.3, 0.4]])
    for text in AIMS:
        if text.startswith("cost"):  # a cost exists for any rows
            continue
        with pytest.warns(metrics.UndefinedMetricWarning) as caught:
            aimfor.aim(text).metric(labels, scores)
        assert [warning.filename for warning in caught] == [__file__], text


def test_names_of_the_package():
    assert aimfor.UndefinedMetricError is metrics.UndefinedMetricError
    assert aimfor.__version__ == importlib.metadata.version("aimfor")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        aimfor.nothing  # noqa: B018


@pytest.mark.parametrize("text", ["(" * 10**6, "f" + "1" * 10**6 + "x", "aucpr[" + "0.1<=" * 10**5, "recall" * 10**5])
def test_a_very_long_text_is_refused_soon(text):
    start = time.monotonic()
    with pytest.raises(ValueError, match="aim must be") as refused:
        aimfor.aim(text)
    assert len(str(refused.value)) < 1000
    assert time.monotonic() - start < 5


def test_anchors_over_recall_count_by_the_slope_of_precision():
    aim, prior = AUCPR(min_recall=0.5, num_anchors=4), 0.1
    priors = torch.tensor([prior], dtype=torch.float64)
    v = torch.tensor([[0.3], [0.1], [0.02], [0.0]], dtype=torch.float64)
    nothing = torch.zeros_like(v)
    anchors = aim.anchors(priors, Rates(nothing, nothing, torch.ones(1, dtype=torch.float64)))
    counted = aim.counted(anchors, priors, Rates(nothing, v, torch.ones(1, dtype=torch.float64)))
    v.requires_grad_()
    recall = anchors.target
    precision = recall * prior / (recall * prior + (1 - prior) * v)
    (slopes,) = torch.autograd.grad(precision.sum(), v)
    torch.testing.assert_close(counted.width, slopes / slopes.sum())
    assert counted._replace(width=anchors.width) == anchors


def test_an_empty_range_of_recall_counts_nothing():
    aim = AUCPR(min_recall=(0.5, 0.5), max_recall=(0.9, 0.500001))
    priors = torch.tensor([0.1, 0.5])
    rates = Rates(*(torch.zeros(10, 2) for _ in range(2)), torch.ones(2))
    width = aim.counted(aim.anchors(priors, rates), priors, rates).width
    assert width.isfinite().all()
    torch.testing.assert_close(width[:, 0].sum(), torch.tensor(1.0))
