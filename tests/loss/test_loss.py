"""The contract of the loss, over every aim and surrogate."""

import copy
import io
import pickle
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import aimfor
from aimfor.loss.engines import _choice as engines
from by_definition import lagrangian
from cases import AIMS, CONVEX, NATIVE, PAPER, SURROGATES

LABELS = 3


def batch(seed: int, rows: int = 40, labels: int = LABELS, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, labels, generator=generator, dtype=torch.float64).to(dtype)
    return scores, (torch.rand(rows, labels, generator=generator) < 0.3).float()


def trained(aim="aucpr; num_anchors=4", batches: int = 3, **options) -> aimfor.Loss:
    """A loss that has seen a few batches."""
    loss = aimfor.Loss(aim, num_labels=LABELS, **options)
    for seed in range(batches):
        loss(*batch(seed))
    return loss


def gradient(loss: aimfor.Loss, scores: torch.Tensor, labels: torch.Tensor, **options) -> torch.Tensor:
    scores = scores.clone().requires_grad_()
    loss(scores, labels, **options).backward()
    assert scores.grad is not None
    return scores.grad


def assert_same_state(one: aimfor.Loss, other: aimfor.Loss, **tolerance) -> None:
    states = (loss.state.state_dict().items() for loss in (one, other))
    for (name, left), (_, right) in zip(*states, strict=True):
        torch.testing.assert_close(left, right, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


@pytest.mark.parametrize("warmup", [1, 500])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("aim", AIMS)
def test_value_and_gradient_are_those_of_the_lagrangian(aim, surrogate, warmup):
    loss = trained(aim, surrogate=surrogate, warmup=warmup).eval()
    scores, labels = batch(9, dtype=torch.float64)
    scores.requires_grad_()
    expected = lagrangian(loss, scores, labels)
    value = loss(scores, labels)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        *(torch.autograd.grad(one, scores)[0] for one in (value, expected)), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("surrogate", ["log", "smooth_hinge"])
@pytest.mark.parametrize("multiclass", [False, True])
def test_gradcheck(surrogate, multiclass):
    loss = aimfor.Loss("aucpr; num_anchors=3", num_labels=LABELS, surrogate=surrogate, multiclass=multiclass)
    labels = torch.arange(12) % LABELS if multiclass else batch(0, rows=12)[1]
    loss(batch(0, rows=12)[0], labels)
    loss.eval()
    scores = batch(1, rows=12, dtype=torch.float64)[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: loss(scores, labels), [scores])


class Drawn(NamedTuple):
    """One batch of `[B, L]` each."""

    scores: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor


# Few values, so that scores tie, and with few bits, so that their sums are exact in any order: a score that stands on a
# kink of its surrogate then stands there however the batch is written.
ENTRY = st.tuples(
    st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0]), st.booleans(), st.sampled_from([0.5, 1.0, 2.0])
)
OPTIONS = st.fixed_dictionaries(
    {
        "aim": st.sampled_from(AIMS),
        "surrogate": st.sampled_from(SURROGATES),
        "constraint": st.sampled_from(["surrogate", "exact"]),
        "warmup": st.sampled_from([1, 2]),
        "log_loss": st.sampled_from([0.0, 0.5]),
    }
)


@st.composite
def batches(draw, num_batches: int = 2) -> list[Drawn]:
    """Batches of one number of labels, that a loss sees one after the other."""
    num_labels = draw(st.integers(1, 3))
    drawn = []
    for _ in range(num_batches):
        size = draw(st.integers(1, 10)) * num_labels
        entries = draw(st.lists(ENTRY, min_size=size, max_size=size))
        drawn.append(Drawn(*(torch.tensor(part).float().view(-1, num_labels) for part in zip(*entries, strict=True))))
    return drawn


def build(options: dict, drawn: list[Drawn], num_labels: int | None = None) -> aimfor.Loss:
    return aimfor.Loss(**options, num_labels=num_labels or drawn[0].scores.shape[1])


CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@given(options=OPTIONS, drawn=batches(), factor=st.sampled_from([0.25, 2.0, 64.0]))
def test_only_proportions_of_weights_matter(options, drawn, factor):
    plain, scaled, ones, twos = (build(options, drawn) for _ in range(4))
    for scores, labels, weights in drawn:
        before = weights.clone()
        expected = gradient(plain, scores, labels, weights=weights)
        torch.testing.assert_close(gradient(scaled, scores, labels, weights=factor * weights), expected, **CLOSE)
        assert torch.equal(weights, before)
        unweighted = gradient(ones, scores, labels)
        torch.testing.assert_close(
            gradient(twos, scores, labels, weights=torch.full((len(scores),), 2.0)), unweighted, **CLOSE
        )
    scaled.state.class_weight /= factor  # the count of the classes is in the units of the weights
    twos.state.class_weight /= 2
    assert_same_state(scaled, plain, **CLOSE)
    assert_same_state(twos, ones, **CLOSE)


@given(options=OPTIONS, drawn=batches(), keep=st.lists(st.booleans(), min_size=10, max_size=10).filter(any))
def test_weight_0_is_a_mask_is_a_row_absent(options, drawn, keep):
    absent, masked, weightless = (build(options, drawn) for _ in range(3))
    for scores, labels, weights in drawn:
        kept = torch.tensor(keep)[: len(scores)]
        kept[0] |= not kept.any()  # a batch of no rows is an error, not a property
        spoiled = torch.where(kept.unsqueeze(1), scores, torch.nan)
        spoiled_labels = torch.where(kept.unsqueeze(1), labels, -1.0)
        expected = torch.zeros_like(scores)
        expected[kept] = gradient(absent, scores[kept], labels[kept], weights=weights[kept])
        for loss, extra in (
            (masked, {"weights": weights, "mask": kept}),
            (weightless, {"weights": weights * kept.unsqueeze(1)}),
        ):
            torch.testing.assert_close(gradient(loss, spoiled, spoiled_labels, **extra), expected, **CLOSE)
    assert_same_state(masked, absent, **CLOSE)
    assert_same_state(weightless, absent, **CLOSE)


@given(options=OPTIONS, drawn=batches(), data=st.data())
def test_an_entry_of_weight_0_is_an_entry_masked(options, drawn, data):
    masked, weightless = (build(options, drawn) for _ in range(2))
    for scores, labels, weights in drawn:
        flags = data.draw(st.lists(st.booleans(), min_size=scores.numel(), max_size=scores.numel()))
        known = torch.tensor(flags).view_as(scores)
        spoiled, spoiled_labels = scores.masked_fill(~known, torch.nan), labels.masked_fill(~known, -1.0)
        expected = gradient(masked, spoiled, spoiled_labels, weights=weights, mask=known)
        assert (expected[~known] == 0).all()
        torch.testing.assert_close(
            gradient(weightless, spoiled, spoiled_labels, weights=weights * known), expected, **CLOSE
        )
    assert_same_state(masked, weightless, **CLOSE)


def test_a_whole_weight_is_a_repeated_row():
    scores, labels = batch(1)
    counts = torch.arange(len(scores)) % 3
    weighted, repeated = trained(), trained()
    weighted(scores, labels, weights=counts.float())
    repeated(scores.repeat_interleave(counts, 0), labels.repeat_interleave(counts, 0))
    assert_same_state(weighted, repeated, rtol=1e-5, atol=1e-6)


@given(options=OPTIONS, drawn=batches(), data=st.data())
def test_order_of_rows_does_not_matter(options, drawn, data):
    one, other = (build(options, drawn) for _ in range(2))
    for scores, labels, weights in drawn:
        order = data.draw(st.permutations(range(len(scores))))
        expected = gradient(one, scores, labels, weights=weights)[order]
        torch.testing.assert_close(
            gradient(other, scores[order], labels[order], weights=weights[order]), expected, **CLOSE
        )
    assert_same_state(one, other, **CLOSE)


@given(options=OPTIONS, drawn=batches())
def test_label_columns_are_independent(options, drawn):
    together = build(options, drawn)
    alone = [build(options, drawn, num_labels=1) for _ in range(together.num_labels)]
    for scores, labels, weights in drawn:
        joint = gradient(together, scores, labels, weights=weights)
        single = [gradient(loss, scores[:, i], labels[:, i], weights=weights[:, i]) for i, loss in enumerate(alone)]
        torch.testing.assert_close(joint, torch.stack(single, dim=1) / together.num_labels, **CLOSE)
    together.state.slope_square *= together.num_labels**2  # slopes are those of the mean over labels
    for name, tensor in together.named_buffers():
        torch.testing.assert_close(tensor, torch.cat([loss.get_buffer(name) for loss in alone], dim=-1), **CLOSE)


@given(options=OPTIONS, drawn=batches(), shift=st.sampled_from([-8.0, -0.5, 4.0, 16.0]))
def test_shifting_all_scores_shifts_the_thresholds_and_nothing_else(options, drawn, shift):
    """Of the aim; log-loss is about the scores themselves."""
    one, other = (build({**options, "log_loss": 0.0}, drawn) for _ in range(2))
    for scores, labels, weights in drawn:
        expected = gradient(one, scores, labels, weights=weights)
        torch.testing.assert_close(
            gradient(other, scores + shift, labels, weights=weights), expected, rtol=1e-3, atol=1e-4
        )
    for shifted in (one.state.thresholds, one.state.score_mean):
        shifted += shift * (one.state.steps > 0)
    assert_same_state(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("how", ["eval", "no_grad", "inference_mode"])
def test_state_is_frozen_outside_training(how):
    loss = trained()
    before = copy.deepcopy(loss)
    if how == "eval":
        loss.eval()
        loss(*batch(7))
    else:
        with getattr(torch, how)():
            loss(*batch(7))
    assert_same_state(loss, before, rtol=0, atol=0)


def test_learns_also_when_the_scores_need_no_gradient():
    loss = trained()
    before = loss.thresholds.clone()
    loss(batch(7)[0].detach(), batch(7)[1])
    assert not torch.equal(loss.thresholds, before)


def test_no_parameters_and_a_finite_state():
    loss = trained("f1", surrogate="sigmoid")
    assert list(loss.parameters()) == []
    for state in (loss.state_dict(), aimfor.Loss("aucpr").state_dict()):
        assert all(torch.isfinite(tensor).all() for tensor in state.values())
    assert loss.thresholds.shape == loss.multipliers.shape == (1, LABELS)
    assert loss.priors.shape == (LABELS,)


def test_priors_are_counted_in_training_only():
    loss = aimfor.Loss("aucpr")
    scores = torch.linspace(-1, 1, 10)
    loss(scores, torch.tensor([1] + [0] * 9))
    loss(scores, torch.tensor([0] * 10))
    loss.eval()
    loss(scores, torch.tensor([1] * 10))
    assert loss.priors.item() == pytest.approx(1 / 20)


def test_given_priors_are_kept_and_used():
    loss = aimfor.Loss("aucpr", num_labels=2, priors=(0.01, 0.2))
    scores, labels = batch(0, labels=2)
    loss(scores, labels)
    assert loss.priors.tolist() == pytest.approx([0.01, 0.2])
    assert (loss.diagnostics().targets[:, 1] > 0.2).all()
    assert torch.equal(aimfor.Loss("aucpr", num_labels=2, priors=0.3).priors, torch.full((2,), 0.3))


@pytest.mark.parametrize("aim", AIMS)
def test_given_priors_equal_weights_that_make_them(aim):
    """Half of the rows are positive, the aim is about 10 %: said by priors or by weights, the training is the same.
    Log-loss beside it is that of the rows as they come, by their weights."""
    by_priors, by_weights = aimfor.Loss(aim, priors=0.1, log_loss=0), aimfor.Loss(aim, log_loss=0)
    labels = torch.tensor([1, 0] * 20)
    weights = torch.where(labels == 1, 0.2, 1.8)
    for seed in range(5):
        scores = batch(seed, labels=1)[0][:, 0] + labels
        one, other = gradient(by_priors, scores, labels), gradient(by_weights, scores, labels, weights=weights)
        if seed == 0:  # weights change the mean score, from which thresholds start: start both at the same
            by_priors.load_state_dict(by_weights.state_dict() | {"state.class_weight": by_priors.state.class_weight})
        else:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        for name in ("thresholds", "score_mean", "score_variance"):  # steps are in units of the weighted spread
            getattr(by_priors.state, name).copy_(getattr(by_weights.state, name))
    torch.testing.assert_close(by_priors.multipliers, by_weights.multipliers, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(by_priors.diagnostics().precision, by_weights.diagnostics().precision)


def test_given_priors_are_an_option_not_a_state():
    counted, given = trained(), trained(priors=0.01)
    given.load_state_dict(counted.state_dict())
    assert given.priors.tolist() == pytest.approx([0.01] * LABELS)


def test_the_share_of_a_long_count_is_kept():
    loss = aimfor.Loss("aucpr")
    loss.state.class_weight.copy_(torch.tensor([[2.0**24], [2.0**28]]))
    for _ in range(3):
        loss(torch.randn(16), torch.tensor([1] + [0] * 15))
    assert loss.state.class_weight.sum() < 2.0**28
    assert loss.priors.item() == pytest.approx(1 / 17, rel=1e-4)


def test_over_sampled_batches_with_weights_that_undo_it():
    """Half of the batch is positive, the weights say 10 %: the prior is 10 %."""
    loss = aimfor.Loss("recall@precision>=0.9")
    labels = torch.tensor([1, 0] * 20)
    loss(torch.randn(40), labels, weights=torch.where(labels == 1, 0.1, 0.9))
    assert loss.priors.item() == pytest.approx(0.1)


@pytest.mark.parametrize("aim", AIMS)
def test_batches_without_positives_are_ordinary(aim):
    loss = trained(aim)
    before = loss.state.steps.clone()
    scores, labels = batch(5)
    result = gradient(loss, scores, torch.zeros_like(labels))
    assert result.isfinite().all()
    assert torch.equal(loss.state.steps, before + 1)
    assert all(torch.isfinite(tensor).all() for tensor in loss.state_dict().values())


@pytest.mark.parametrize("constant", [0.0, 1.0])
@pytest.mark.parametrize("aim", AIMS)
def test_a_label_of_one_class_adds_nothing_until_the_other_is_seen(aim, constant):
    loss = aimfor.Loss(aim, num_labels=LABELS)
    scores, labels = batch(0)
    labels[:, 1] = constant
    first = gradient(loss, scores, labels)
    assert (first[:, 1] == 0).all()
    assert (first[:, 0] != 0).any()
    assert loss.state.steps.tolist() == [1, 0, 1]
    assert all(torch.isfinite(tensor).all() for tensor in loss.state_dict().values())
    assert loss.diagnostics().recall[:, 1].isnan().all()  # nothing is known of it yet
    assert loss.diagnostics().recall[:, [0, 2]].isfinite().all()
    labels[0, 1] = 1 - constant
    assert (gradient(loss, scores, labels)[:, 1] != 0).any()


def test_before_any_training_the_value_is_zero():
    loss = aimfor.Loss("aucpr").eval()
    scores = torch.randn(5, requires_grad=True)
    value = loss(scores, torch.tensor([1, 0, 0, 1, 0]))
    value.backward()
    assert value.item() == 0
    assert (scores.grad == 0).all()


@pytest.mark.parametrize("scale", [0.0, 1e4, 1e9])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("aim", AIMS)
def test_extreme_scores_stay_finite(aim, surrogate, scale):
    loss = aimfor.Loss(aim, num_labels=LABELS, surrogate=surrogate, warmup=2)
    for seed in range(4):
        scores, labels = batch(seed)
        assert gradient(loss, scale * scores, labels).isfinite().all()
    assert gradient(loss, scores, labels).isfinite().all()
    assert all(torch.isfinite(tensor).all() for tensor in loss.state_dict().values())


@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int64, torch.float64, torch.bfloat16],
)
def test_labels_of_any_dtype(dtype, engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    scores, labels = batch(1)
    torch.testing.assert_close(gradient(trained(), scores, labels.to(dtype)), gradient(trained(), scores, labels))


def test_one_label_as_vector_and_as_column():
    scores, labels = batch(1)
    vector, column = aimfor.Loss("aucpr"), aimfor.Loss("aucpr")
    flat = gradient(vector, scores[:, 0], labels[:, 0])
    torch.testing.assert_close(gradient(column, scores[:, :1], labels[:, :1]).squeeze(1), flat)


def test_non_contiguous_input():
    scores, labels = batch(1)
    wide = torch.zeros(len(scores), 2 * LABELS)
    wide[:, ::2] = scores
    torch.testing.assert_close(
        gradient(trained(), wide[:, ::2], labels.t().contiguous().t()), gradient(trained(), scores, labels)
    )


def test_batches_of_one_row_learn_thresholds():
    loss = aimfor.Loss("tpr@fpr<=0.1")
    generator = torch.Generator().manual_seed(0)
    for _ in range(3000):
        label = (torch.rand(1, generator=generator) < 0.3).long()
        loss(2 * label + torch.randn(1, generator=generator), label)
    assert loss.state.score_variance.item() == pytest.approx(1 + 4 * 0.3 * 0.7, rel=0.4)
    assert 0 < loss.thresholds.item() < 4


@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
def test_one_score_gone_astray_does_not_throw_the_thresholds(engine, monkeypatch):
    if engine == "native" and aimfor.engine().name != "native":
        pytest.skip("the native engine was not built")
    monkeypatch.setenv("AIMFOR_ENGINE", engine)
    loss = aimfor.Loss("aucpr; num_anchors=3")
    generator = torch.Generator().manual_seed(0)

    def learn(astray: float = 0.0) -> None:
        labels = (torch.rand(128, generator=generator) < 0.2).long()
        scores = labels + torch.randn(128, generator=generator)
        scores[0] += astray
        loss(scores, labels)

    for _ in range(300):
        learn()
    before = loss.thresholds.clone()
    learn(astray=1e6)
    for _ in range(10):
        learn()
    assert (loss.thresholds - before).abs().max() < 1.5
    assert loss.state.score_variance.item() < 3


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_the_default_dtype_does_not_matter(default):
    scores, labels = batch(1)
    expected = trained()
    batches = [batch(seed) for seed in range(3)]
    try:
        torch.set_default_dtype(default)
        loss = aimfor.Loss("aucpr; num_anchors=4", num_labels=LABELS)
        for one in batches:
            loss(*one)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(gradient(loss, scores, labels), gradient(expected, scores, labels), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("unknown", ["mask", "weights"])
def test_multiclass_an_unknown_entry_still_stands_among_the_others(unknown):
    """The log-odds of the other classes do not change when the label of one is unknown."""
    scores = batch(1)[0] + torch.tensor([5.0, 0.0, 0.0])
    classes = torch.arange(len(scores)) % LABELS
    known = torch.ones(len(scores), LABELS, dtype=torch.bool)
    known[:, 0] = False
    extra = {"mask": known} if unknown == "mask" else {"weights": known.float()}
    loss, all_known = (aimfor.Loss("f1", num_labels=LABELS, multiclass=True) for _ in range(2))
    loss(scores, classes, **extra)
    all_known(scores, classes)
    torch.testing.assert_close(loss.thresholds[:, 1:], all_known.thresholds[:, 1:])
    known[0] = False  # a row of which nothing is known may hold anything
    scores[0], classes[0] = torch.nan, -1
    loss(scores, classes, **({"mask": known} if unknown == "mask" else {"weights": known.float()}))


@pytest.mark.parametrize("masked", [False, True])
def test_multiclass_is_the_log_odds_of_one_class_against_the_rest(masked):
    scores, _ = batch(1)
    classes = torch.arange(len(scores)) % LABELS
    extra = {"mask": torch.arange(len(scores)) % 4 > 0} if masked else {}
    multiclass = aimfor.Loss("aucpr", num_labels=LABELS, multiclass=True, log_loss=0)
    one_vs_rest = aimfor.Loss("aucpr", num_labels=LABELS, log_loss=0)
    for _ in range(3):
        leaf = scores.clone().requires_grad_()
        one_vs_rest(aimfor.log_odds(leaf), torch.nn.functional.one_hot(classes), **extra).backward()
        torch.testing.assert_close(gradient(multiclass, scores, classes, **extra), leaf.grad, rtol=1e-4, atol=1e-6)
    assert_same_state(multiclass, one_vs_rest)


def test_multiclass_at_large_scores():
    scores = 1e4 * batch(1)[0]
    loss = aimfor.Loss("aucpr", num_labels=LABELS, multiclass=True)
    assert gradient(loss, scores, torch.arange(len(scores)) % LABELS).isfinite().all()


def run(loss: aimfor.Loss, make_optimiser, steps: int, model=None, first: int = 0):
    torch.manual_seed(0)
    model = model or torch.nn.Linear(4, LABELS)
    optimiser = make_optimiser(model.parameters())
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(32, 4, generator=generator)
        labels = (inputs[:, :LABELS] + 0.4 * torch.randn(32, LABELS, generator=generator) > 1).float()
        optimiser.zero_grad()
        loss(model(inputs), labels).backward()
        optimiser.step()
    return model


@pytest.mark.parametrize(
    "make_optimiser",
    [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p, lr=0.03, weight_decay=1e-3)],
    ids=["SGD", "Adam"],
)
@pytest.mark.parametrize("aim", AIMS)
def test_any_optimiser_improves_the_exact_metric(aim, make_optimiser):
    loss = aimfor.Loss(aim, num_labels=LABELS)
    inputs = torch.randn(2000, 4, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(2000, LABELS, generator=torch.Generator().manual_seed(98))
    labels = (inputs[:, :LABELS] + 0.4 * noise > 1).float()
    torch.manual_seed(0)
    untrained = torch.nn.Linear(4, LABELS)
    model = run(loss, make_optimiser, 300)
    best = loss.aim.metric(labels, inputs[:, :LABELS]).mean()  # the ranking that made the labels
    start, end = (loss.aim.metric(labels, one(inputs)).mean() for one in (untrained, model))
    assert abs(end - best) < 0.25 * abs(start - best)


def test_gradient_accumulation_learns_at_every_micro_batch():
    loss = aimfor.Loss("aucpr", num_labels=LABELS)
    scores, labels = batch(0)
    scores.requires_grad_()
    for rows in torch.arange(len(scores)).chunk(4):
        (loss(scores[rows], labels[rows]) / 4).backward()
    assert loss.state.steps.tolist() == [4] * LABELS
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_autocast_bfloat16():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, LABELS)
    inputs, labels = torch.randn(64, 8), (torch.rand(64, LABELS) < 0.3).float()
    exact, mixed = aimfor.Loss("aucpr", num_labels=LABELS), aimfor.Loss("aucpr", num_labels=LABELS)
    exact(model(inputs), labels).backward()
    assert model.weight.grad is not None
    expected = model.weight.grad.clone()
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(inputs)
        value = mixed(scores, labels)
    assert scores.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    value.backward()
    torch.testing.assert_close(model.weight.grad, expected, rtol=0.05, atol=0.02 * expected.abs().max().item())
    assert mixed.thresholds.dtype == torch.float32


def test_half_precision_models_leave_the_state_alone():
    loss = trained()
    before = copy.deepcopy(loss)
    torch.nn.ModuleList([loss, torch.nn.Linear(1, 1)]).to(torch.bfloat16)
    assert_same_state(loss, before, rtol=0, atol=0)
    assert loss.double().thresholds.dtype == torch.float32


def test_to_device():
    loss = trained().to("meta")
    assert {tensor.device.type for tensor in loss.buffers()} == {"meta"}


@pytest.mark.parametrize("surrogate", ["hinge", "sigmoid"])
def test_copies_and_pickles_train_alike(surrogate):
    loss = trained(surrogate=surrogate)
    twins = [copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))]
    expected = gradient(loss, *batch(5))
    for twin in twins:
        assert torch.equal(gradient(twin, *batch(5)), expected)
        assert_same_state(twin, loss, rtol=0, atol=0)


@pytest.mark.parametrize("log_loss_batches", [0, 7])
@pytest.mark.parametrize("surrogate", ["hinge", "ramp"])
@pytest.mark.parametrize("aim", AIMS)
def test_resumed_training_equals_training_that_never_stopped(aim, surrogate, log_loss_batches):
    def make():
        return aimfor.Loss(aim, num_labels=LABELS, surrogate=surrogate, warmup=6, log_loss_batches=log_loss_batches)

    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    whole = make()
    expected = run(whole, sgd, 12)
    first = make()
    model = run(first, sgd, 5)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = make()
    second.load_state_dict(torch.load(file, weights_only=True))
    run(second, sgd, 7, model=model, first=5)
    assert torch.equal(model.weight, expected.weight)
    assert_same_state(second, whole, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, from inside its compiler
def test_sparse_labels_in_a_compiled_model():
    labels = aimfor.sparse_labels([[0], [1], [2], []], 3)
    scores = torch.randn(4, 3, requires_grad=True)
    inside, beside = aimfor.Loss("aucpr", num_labels=3), aimfor.Loss("aucpr", num_labels=3)
    compiled = torch.compile(lambda: inside(2 * scores, labels), backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(), beside(2 * scores, labels))
    torch.testing.assert_close(inside.state_dict(), beside.state_dict())


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, from inside its compiler
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_model_and_loss(backend):
    inputs, labels = torch.randn(16, 4), (torch.rand(16, LABELS) < 0.4).float()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, LABELS))
    eager, inside = trained(log_loss_batches=4), trained(log_loss_batches=4)

    def step(loss):
        model.zero_grad()
        value = loss(model(inputs), labels)
        value.backward()
        return value.detach(), [
            parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
        ]

    expected = [step(eager) for _ in range(3)]
    compiled = torch.compile(lambda: inside(model(inputs), labels), backend=backend, fullgraph=True)
    for value, gradients in expected:
        model.zero_grad()
        result = compiled()
        result.backward()
        torch.testing.assert_close(result.detach(), value)
        torch.testing.assert_close([parameter.grad for parameter in model.parameters()], gradients)
    assert_same_state(inside, eager)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_losses_of_one_kind_share_a_graph():
    torch.compiler.reset()
    scores, labels = batch(0)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    for loss in (trained(), trained(), copy.deepcopy(trained()), pickle.loads(pickle.dumps(trained()))):
        compiled = torch.compile(loss, backend=counter, fullgraph=True)
        assert torch.equal(compiled(scores, labels), trained()(scores, labels))
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [[1, 0, 0]]}, "labels must be a torch.Tensor, got list"),
        ({"labels": None}, "labels must be a torch.Tensor, got NoneType"),
    ],
)
def test_a_compiled_loss_says_what_is_wrong_with_labels(change, message):
    torch.compiler.reset()
    compiled = torch.compile(trained(), backend="aot_eager")
    with pytest.raises(TypeError, match=f"^{message}$"):
        compiled(**{"scores": torch.zeros(3, LABELS), "labels": torch.eye(LABELS), **change})


@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
def test_a_loss_built_in_inference_mode_learns(engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    with torch.inference_mode():
        loss = aimfor.Loss("f1", num_labels=LABELS, priors=0.3)
    expected = aimfor.Loss("f1", num_labels=LABELS, priors=0.3)
    for seed in range(2):
        assert torch.equal(gradient(loss, *batch(seed)), gradient(expected, *batch(seed)))
    assert_same_state(loss, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_compiled_value_has_the_digits_of_the_eager_one(dtype):
    scores, labels = torch.randn(16, LABELS, dtype=dtype), (torch.rand(16, LABELS) < 0.4).float()
    eager, compiled = (trained()(scores, labels), torch.compile(trained(), backend="aot_eager")(scores, labels))
    torch.testing.assert_close(compiled, eager, rtol=0, atol=0)


def test_ladder_climbs_label_by_label():
    """A label that starts late still spends its own warm-up on the hinge."""
    loss = aimfor.Loss("recall@precision>=0.8", num_labels=2, surrogate="ramp", warmup=3)
    scores, labels = batch(0, labels=2)
    labels[:, 1] = 0
    for _ in range(4):
        loss(scores, labels)
    late = batch(0, labels=2)[1]
    hinge = aimfor.Loss("recall@precision>=0.8", num_labels=2, surrogate="hinge")
    hinge.load_state_dict(loss.state_dict())
    mixed, convex = gradient(loss, scores, late), gradient(hinge, scores, late)
    torch.testing.assert_close(mixed[:, 1], convex[:, 1])
    assert not torch.allclose(mixed[:, 0], convex[:, 0])


@pytest.mark.parametrize("constraint", ["surrogate", "exact"])
def test_the_multiplier_follows_its_constraint(constraint):
    """Surrogate precision is below exact precision: one drives the multiplier up where the other lets it go."""
    loss = aimfor.Loss("recall@precision>=0.6", constraint=constraint)
    scores = torch.cat([torch.full((8,), 0.2), torch.full((2,), 0.15), torch.full((30,), -0.2)])
    labels = torch.cat([torch.ones(8), torch.zeros(32)])
    start = loss.multipliers.item()
    loss(scores, labels)  # starts the threshold at the mean score, -0.1: exact precision 0.8, hinge sees far less
    assert (loss.multipliers.item() > start) == (constraint == "surrogate")


def test_diagnostics_are_the_numbers_of_the_constraint():
    """With a frozen state the running numbers of one batch are that batch's."""
    loss = aimfor.Loss("recall@precision>=0.6", threshold_rate=1e-9, **PAPER)
    scores = torch.cat([torch.full((8,), 0.2), torch.full((2,), 0.15), torch.full((30,), -0.2)])
    labels = torch.cat([torch.ones(8), torch.zeros(32)])
    loss(scores, labels)
    told = loss.diagnostics()
    threshold = loss.thresholds.item()
    hinge_positive, hinge_near, hinge_far = 1 - (0.2 - threshold), 1 + (0.15 - threshold), 1 + (-0.2 - threshold)
    surrogate_v = (2 * hinge_near + 30 * hinge_far) / 32
    assert told.recall.item() == 1
    assert told.precision.item() == pytest.approx(0.8)
    assert told.fpr.item() == pytest.approx(2 / 32)
    assert told.surrogate_recall.item() == pytest.approx(1 - hinge_positive)
    assert told.surrogate_fpr.item() == pytest.approx(surrogate_v)
    assert told.surrogate_precision.item() == pytest.approx(
        8 * (1 - hinge_positive) / (8 * (1 - hinge_positive) + 32 * surrogate_v)
    )
    assert told.violation.item() == pytest.approx(4 * 1.5 * surrogate_v - (1 - hinge_positive), rel=1e-4)
    exact = aimfor.Loss("recall@precision>=0.6", threshold_rate=1e-9)
    exact(scores, labels)
    assert exact.diagnostics().violation.item() == pytest.approx(4 * 1.5 * 2 / 32 - 1, rel=1e-4)
    assert told.priors.item() == pytest.approx(0.2)
    assert bool(told.feasible.all())


@pytest.mark.parametrize("surrogate", CONVEX)
def test_repr_names_the_aim(surrogate):
    assert "'aucpr', num_labels=1" in repr(aimfor.Loss("aucpr", surrogate=surrogate))


@pytest.mark.parametrize("constraint", ["surrogate", "exact"])
@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
def test_f1_weighs_errors_by_the_rates_of_its_constraint(engine, constraint, monkeypatch):
    monkeypatch.setenv("AIMFOR_ENGINE", engine)
    generator = torch.Generator().manual_seed(0)
    loss = aimfor.Loss("f1", **{**PAPER, "constraint": constraint})
    for _ in range(100):
        labels = torch.rand(64, generator=generator) < 0.3
        loss(torch.randn(64, generator=generator) + labels, labels)
    state = loss.eval().state
    assert state.exact_rates.recall.item() > 1.2 * state.surrogate_rates.recall.item()  # one can be told from the other
    rates = state.exact_rates if constraint == "exact" else state.surrogate_rates
    # Where F = 2 TP / (P + TP + FP) is highest, a false positive costs TP / (P + FP) of a false negative.
    prior = loss.priors.item()
    ratio = max(0.01, rates.recall.item()) / (1 + (1 - prior) / prior * rates.v.item())
    scores = loss.thresholds.flatten().repeat(2).requires_grad_()
    loss(scores, torch.tensor([0, 1])).backward()
    assert scores.grad[0].item() / -scores.grad[1].item() == pytest.approx(ratio, rel=1e-5)


@pytest.mark.parametrize("aim", AIMS)
def test_the_default_constraint_follows_the_aim(aim):
    """Exact rates at a point and for F_beta; over an area those of the surrogate."""
    loss = aimfor.Loss(aim)
    assert loss.constraint == ("surrogate" if aim.startswith("auc") else "exact")
