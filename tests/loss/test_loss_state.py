"""What the loss keeps: through a file, at the ends of what float32 can hold, and in what it refuses or tells."""

import io
import warnings

import pytest
import torch

import aimfor
from aimfor.loss import _state as state_rules
from aimfor.loss._surrogates import SURROGATES
from cases import NATIVE


def saved(loss: aimfor.Loss) -> dict:
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def finite(loss: aimfor.Loss) -> bool:
    return all(bool(buffer.isfinite().all()) for buffer in loss.buffers())


def test_a_label_that_comes_late_looks_at_the_same_batches_after_a_stop():
    def run(loss: aimfor.Loss, batches: range) -> None:
        for number in batches:
            generator = torch.Generator().manual_seed(number)
            scores = torch.randn(8, generator=generator)
            labels = torch.zeros(8) if number < 60 else (torch.rand(8, generator=generator) < 0.5).float()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
                loss(scores, labels)

    whole, first, second = (aimfor.Loss("recall@precision>=0.99") for _ in range(3))
    run(whole, range(450))
    run(first, range(150))
    second.load_state_dict(saved(first))
    run(second, range(150, 450))
    assert second.state.batches == 450
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


@pytest.mark.parametrize("options", [{}, {"constraint": "exact"}, {"surrogate": "ramp", "warmup": 5}])
@pytest.mark.parametrize("engine", ["plain", "fused", aimfor.engine().name])
def test_errors_are_counted_when_a_label_is_new_when_they_drive_and_in_its_fourth_batches(monkeypatch, engine, options):
    monkeypatch.setenv("AIMFOR_ENGINE", engine)
    loss = aimfor.Loss("aucpr; num_anchors=3", num_labels=9, **options)
    mean = torch.zeros(2, 3, 9)
    positives, negatives = torch.ones(2, 9)
    for number in range(1, 23):
        generator = torch.Generator().manual_seed(number)
        scores, labels = torch.randn(40, 9, generator=generator), (torch.rand(40, 9, generator=generator) < 0.4).float()
        labels[:, 8] *= number > 10  # a label that comes late
        known = torch.ones(40, 9, dtype=torch.bool)
        known[:, 7] = number % 4 > 0  # one that is absent in every fourth batch
        thresholds, before = loss.thresholds.clone(), loss.state.steps.clone()
        loss(scores, labels, mask=known)
        if number == 1 or number == 11:  # started by this batch
            started = scores.mean(0).expand(3, 9)
            thresholds = torch.where(loss.state.steps == 1, started, thresholds)
        steps = loss.state.steps
        drives = options.get("constraint") == "exact" or ("warmup" in options and steps <= 5)
        stands_for = torch.where((steps <= 4) | torch.as_tensor(drives), 1, 4 * (steps % 4 == 0)) * (steps > before)
        share = stands_for / steps.clamp(min=1)
        wrong = torch.where(labels == 1, scores < thresholds[:, None], scores >= thresholds[:, None])
        prior = loss.state.counted_priors
        u, v = (wrong * labels).sum(1) / (40 * prior), (wrong * (1 - labels)).sum(1) / (40 * (1 - prior))
        mean.lerp_(torch.stack([u, v]), share)
        positives.lerp_(labels.mean(0) / prior, share)
        negatives.lerp_((1 - labels).mean(0) / (1 - prior), share)
        torch.testing.assert_close(loss.state.rates[2:], mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(loss.state.exact_positives, positives, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(loss.state.exact_negatives, negatives, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
def test_tasks_in_turn_are_each_looked_at(monkeypatch, engine):
    """Each batch knows one of two labels, and neither can be met: both are found out."""
    monkeypatch.setenv("AIMFOR_ENGINE", engine)
    monkeypatch.setattr(state_rules, "PATIENCE", 100)
    loss = aimfor.Loss("recall@precision>=0.99", num_labels=2, dual_rate=0.1, threshold_rate=1e-9)
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(64, 2, generator=generator), torch.rand(64, 2, generator=generator) < 0.3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        for number in range(400):
            loss(scores, labels, mask=torch.arange(2).expand(64, 2) == number % 2)
    assert loss.state.steps.tolist() == [200, 200]
    assert not loss.diagnostics().feasible.any()


@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
def test_errors_are_counted_after_more_batches_than_an_int_holds(monkeypatch, engine):
    monkeypatch.setenv("AIMFOR_ENGINE", engine)
    torch.manual_seed(0)
    loss = aimfor.Loss("aucpr; num_anchors=3")
    labels = torch.arange(40) % 3 == 0
    loss(torch.randn(40), labels)
    loss.state.steps.fill_(2**40)
    changed = []
    for _ in range(8):
        before = loss.state.rates[2:].clone()
        loss(10 * torch.randn(40), labels)
        changed.append(not torch.equal(loss.state.rates[2:], before))
    assert changed == [False, False, False, True] * 2


@pytest.mark.parametrize("shares", [(0.9, 0.02), (0.02, 0.9)])
@pytest.mark.parametrize("priors", [None, 0.3])
def test_told_rates_are_those_of_what_came(shares, priors):
    """The share of positives changes: rates are of the negatives and positives there were, not of those expected."""
    loss = aimfor.Loss("tpr@fpr<=0.1", priors=priors, dual_rate=1e-9, threshold_rate=1e-9)
    generator = torch.Generator().manual_seed(0)
    for share, batches in zip(shares, (1000, 600), strict=True):
        for _ in range(batches):
            labels = (torch.rand(512, generator=generator) < share).float()
            loss(labels + torch.randn(512, generator=generator), labels)
    told = loss.diagnostics()
    distance = loss.thresholds - torch.tensor([[1.0, 0.0]])
    recall, fpr = (0.5 - 0.5 * torch.erf(distance / 2**0.5)).flatten().tolist()
    assert told.recall.item() == pytest.approx(recall, abs=0.03)
    assert told.fpr.item() == pytest.approx(fpr, abs=0.03)
    share = shares[1] if priors is None else priors
    precision = share * recall / (share * recall + (1 - share) * fpr)
    assert told.precision.item() == pytest.approx(precision, abs=0.03)


def test_a_user_who_was_told_is_not_told_again_after_a_stop():
    loss = aimfor.Loss("aucpr")
    loss.state.warned = True
    other = aimfor.Loss("aucpr")
    other.load_state_dict(saved(loss))
    assert other.state.warned


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"aim": "precision@recall>=0.95"}, {"aim": "recall@precision>=0.95"}),
        ({"aim": "aucpr"}, {"aim": "aucpr; spacing=geometric"}),
        ({"aim": "aucpr", "num_labels": 3}, {"aim": "aucpr", "num_labels": 3, "multiclass": True}),
        ({"aim": "aucpr", "num_labels": 3}, {"aim": "aucpr", "num_labels": 2}),
    ],
)
def test_a_state_of_another_loss_is_refused_and_changes_nothing(one, other):
    kept, loss = aimfor.Loss(**one), aimfor.Loss(**other)
    kept.state.batches, kept.state.warned = 7, True
    with pytest.raises(ValueError, match=r"state_dict must be of a loss for '.*num_labels=.*', got '.*num_labels="):
        loss.load_state_dict(kept.state_dict())
    assert (loss.state.batches, loss.state.warned) == (0, False)


@pytest.mark.parametrize("nested", [False, True])
def test_a_state_of_another_aim_gives_a_fresh_loss_where_it_is_not_strict(nested):
    old, new = aimfor.Loss("recall@precision>=0.8", num_labels=2), aimfor.Loss("recall@precision>=0.9", num_labels=2)
    scores, labels = torch.randn(64, 2), torch.rand(64, 2) < 0.3
    for loss in (old, new):
        loss(scores, labels)
    fresh = aimfor.Loss("recall@precision>=0.9", num_labels=2)
    module = torch.nn.ModuleDict({"loss": new, "head": torch.nn.Linear(2, 2)}) if nested else new
    state = {f"loss.{key}" if nested else key: value for key, value in old.state_dict().items()}
    if nested:
        state |= {"head.weight": torch.ones(2, 2), "head.bias": torch.zeros(2)}
    match = (
        r"the saved state is of a loss for 'recall@precision>=0.8.*: the loss for 'recall@precision>=0.9.* starts anew"
    )
    with pytest.warns(aimfor.OtherAimWarning, match=match):
        missing, unexpected = module.load_state_dict(state, strict=False)
    assert len(missing) == 1
    assert not unexpected
    assert_same_state(new, fresh)
    torch.testing.assert_close(new(scores, labels), fresh(scores, labels), rtol=0, atol=0)
    if nested:
        assert bool((module["head"].weight == 1).all())
        with pytest.warns(aimfor.OtherAimWarning), pytest.raises(RuntimeError, match="the saved one is for 'recall"):
            module.load_state_dict(state)


def assert_same_state(one: aimfor.Loss, other: aimfor.Loss) -> None:
    for (name, tensor), expected in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=0, atol=0, msg=name)


def test_diagnostics_print_as_a_table():
    loss = aimfor.Loss("aucpr; num_anchors=2", num_labels=3)
    torch.manual_seed(0)
    loss(torch.randn(64, 3), torch.rand(64, 3) < 0.3)
    report = loss.diagnostics()
    header, *lines = str(report).splitlines()
    assert header.split()[:5] == ["label", "anchor", "target", "threshold", "multiplier"]
    assert len(lines) == 6
    assert len({len(line) for line in lines}) == 1
    assert lines[3].split()[:4] == ["1", "1", *(f"{part[1, 1].item():.4g}" for part in report[:2])]
    assert lines[3].split()[-2:] == ["yes", f"{report.priors[1].item():.4g}"]
    many = str(aimfor.Loss("aucpr", num_labels=1000).diagnostics()).splitlines()
    assert len(many) == 52
    assert many[-1] == "... and 9950 more lines"


def test_a_state_that_is_not_finite_is_refused():
    state = aimfor.Loss("aucpr").state_dict()
    state["state.thresholds"] = torch.full_like(state["state.thresholds"], torch.nan)
    with pytest.raises(ValueError, match=r"state\.thresholds must be finite"):
        aimfor.Loss("aucpr").load_state_dict(state)


def test_a_state_in_half_precision_loads_as_float32():
    loss, scores, labels = aimfor.Loss("aucpr"), torch.randn(64), torch.arange(64) % 3 == 0
    loss(scores, labels)
    halved = ("state.thresholds", "state.multipliers", "state.rates")
    state = {name: value.half() if name in halved else value for name, value in saved(loss).items()}
    for assign in (False, True):
        other = aimfor.Loss("aucpr")
        other.load_state_dict(state, assign=assign)
        assert other.thresholds.dtype == torch.float32
        assert bool(other(scores, labels).isfinite())


@pytest.mark.parametrize("aim", ["aucpr", "recall@precision>=0.9", "f1", "tpr@fpr<=0.01"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # the native and the fused engine
@pytest.mark.parametrize("rare", [0, 1])
def test_a_class_rarer_than_float32_can_tell(aim, dtype, rare):
    loss = aimfor.Loss(aim)
    labels = torch.tensor([rare] + [1 - rare] * 7).float()
    weights = torch.where(labels == rare, 1e-12, 1e12)
    for seed in range(5):
        scores = torch.randn(8, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()
        value = loss(scores, labels, weights=weights)
        value.backward()
        assert bool(value.isfinite())
        assert bool(scores.grad.isfinite().all())
    assert finite(loss)


@pytest.mark.parametrize("aim", ["aucpr", "recall@precision>=0.9", "f1", "tpr@fpr<=0.01"])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # the native and the fused engine
def test_the_largest_scores_under_the_largest_weights(aim, surrogate, dtype):
    loss = aimfor.Loss(aim, surrogate=surrogate, warmup=2)
    labels = torch.tensor([1, 0] * 512)
    for seed in range(4):
        scores = torch.randn(1024, generator=torch.Generator().manual_seed(seed), dtype=dtype)
        scores = (1e10 * scores / scores.abs().max()).requires_grad_()
        value = loss(scores, labels, weights=torch.full((1024,), 1e12))
        value.backward()
        assert bool(value.isfinite())
        assert bool(scores.grad.isfinite().all())
    assert finite(loss)


def test_a_loss_scale_saves_small_gradients_of_half_precision():
    torch.manual_seed(0)
    scores, labels = torch.randn(64, 2000), torch.rand(64, 2000) < 0.1
    losses = [aimfor.Loss("aucpr", num_labels=2000) for _ in range(2)]
    exact = scores.half().float().requires_grad_()
    losses[0](exact, labels).backward()
    half = scores.half().requires_grad_()
    (losses[1](half, labels) * 1024.0).backward()
    torch.testing.assert_close(
        half.grad.float() / 1024, exact.grad, rtol=1e-3, atol=1e-3 * float(exact.grad.abs().max())
    )
    assert float((half.grad == 0).float().mean()) <= float((exact.grad == 0).float().mean()) + 0.001


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_large_loss_scale_in_a_compiled_graph():
    labels = torch.arange(64) % 3 == 0
    eager, compiled = (
        torch.randn(64, generator=torch.Generator().manual_seed(0)).half().requires_grad_() for _ in "12"
    )
    (aimfor.Loss("aucpr")(eager, labels) * 65536.0).backward()
    (torch.compile(aimfor.Loss("aucpr"), backend="aot_eager")(compiled, labels) * 65536.0).backward()
    assert bool(compiled.grad.isfinite().all())
    torch.testing.assert_close(compiled.grad, eager.grad)


def test_a_range_that_asks_nothing_is_told():
    scores, labels = torch.randn(200, 2), torch.stack([torch.arange(200) % 10 == 0, torch.arange(200) % 5 < 3], 1)
    loss = aimfor.Loss("aucpr[precision<=0.3]", num_labels=2)
    with pytest.warns(aimfor.VacuousRangeWarning, match=r"asks nothing of 1 of 2 labels \(1\)"):
        loss(scores, labels)
    loss(scores, labels)  # once is enough


@pytest.mark.parametrize("name", ["dual_rate", "threshold_rate"])
@pytest.mark.parametrize("value", [float("nan"), -0.5, 0, "fast"])
def test_a_rate_changed_in_training_is_checked(name, value):
    loss = aimfor.Loss("aucpr")
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        setattr(loss, name, value)
    setattr(loss, name, 0.02)
    assert getattr(loss, name) == 0.02


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [("constraint", "bogus", "exact"), ("warmup", -3, 7), ("log_loss_batches", "x", 3), ("log_loss", 1.5, 0.25)],
)
def test_an_option_changed_in_training_is_checked(name, wrong, right):
    loss = aimfor.Loss("aucpr")
    before = getattr(loss, name)
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        setattr(loss, name, wrong)
    assert getattr(loss, name) == before
    setattr(loss, name, right)
    assert getattr(loss, name) == right
