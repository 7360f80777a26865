"""A share of log-loss beside the aim: one value, one gradient, in every engine and every way to train."""

import copy
import warnings
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import aimfor
from aimfor.loss.engines import CountingEngine, Pass
from aimfor.loss.engines import _choice as engines
from aimfor.loss.engines._reference import ReferenceEngine
from by_definition import lagrangian, share_of_aim
from cases import AIMS, NATIVE, SURROGATES

ROWS, LABELS, SHARE = 60, 4, 0.3
ENGINES = ["plain", "fused", NATIVE]


@pytest.fixture(autouse=True)
def _sparse_tensors_are_in_beta():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        yield


def batch(seed: int, rows: int = ROWS, labels: int = LABELS) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(rows, labels, generator=generator)
    return scores, (torch.rand(rows, labels, generator=generator) < 0.3).float()


def differentiated(value_of, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = scores.clone().requires_grad_()
    value = value_of(scores)
    (gradient,) = torch.autograd.grad(value, scores)
    return value.detach().double(), gradient.double()


def learned(aim: str = "aucpr", labels: int = LABELS, batches: int = 3, **options) -> aimfor.Loss:
    loss = aimfor.Loss(aim, num_labels=labels, **options)
    for seed in range(batches):
        loss(*batch(100 + seed, labels=labels))
    return loss


def shared(loss: aimfor.Loss, share: float) -> aimfor.Loss:
    """The same loss, with the same state, and another share of log-loss."""
    other = copy.deepcopy(loss)
    other.log_loss = share
    return other


def entry_log_loss(scores, labels, shares=None):
    """The mean over labels of the weighted mean over rows, by torch."""
    each = F.binary_cross_entropy_with_logits(scores, labels.to(scores), reduction="none")
    shares = torch.ones_like(each) if shares is None else shares.to(each)
    return ((each * shares).sum(0) / shares.sum(0)).mean()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_shares_are_those_of_gradients_of_one_size(engine, aim, surrogate, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = learned(aim, log_loss=0.0, surrogate=surrogate, warmup=2)
    scores, labels = batch(0)
    _, of_aim = differentiated(partial(shared(loss, 0.0).eval(), labels=labels), scores)
    _, of_log_loss = differentiated(lambda scores: entry_log_loss(scores, labels), scores)
    both = shared(loss, SHARE).eval()
    found = differentiated(partial(both, labels=labels), scores)
    expected = torch.lerp(of_log_loss, of_aim, share_of_aim(both, SHARE))
    torch.testing.assert_close(found[1], expected, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(found[0], lagrangian(both, scores.double(), labels), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("prior", [0.5, 0.05, 0.002])
@pytest.mark.parametrize(("surrogate", "slope"), [("hinge", 1), ("smooth_hinge", 2)])
def test_a_rare_label_keeps_its_log_loss(surrogate, slope, engine, prior, monkeypatch):
    """While its multiplier is small, the aim alone gives a positive row the weight 1 / prior. Beside half of log-loss
    it gives at most 2, times the slope of the surrogate at a score of 0. That of log-loss is 0.5."""
    monkeypatch.setenv(engines.SETTING, engine)
    rows = 10_000
    labels = (torch.arange(rows) < prior * rows).float()
    loss = aimfor.Loss("recall@precision>=0.9", surrogate=surrogate, log_loss=0.5)
    loss(torch.zeros(rows), labels)
    loss.state.multipliers.zero_()
    scores = torch.zeros(rows)
    _, gradient = differentiated(partial(loss.eval(), labels=labels), scores)
    assert (-rows * gradient[labels == 1] <= 2 * slope + 0.5 + 1e-4).all()
    assert (rows * gradient[labels == 0] > 0).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_label_whose_range_asks_nothing_keeps_its_log_loss(engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    scores, labels = batch(0)
    loss = aimfor.Loss("aucpr[precision<=0.01]", num_labels=LABELS, log_loss=SHARE)
    with pytest.warns(aimfor.VacuousRangeWarning):
        _, gradient = differentiated(partial(loss, labels=labels), scores)
    _, expected = differentiated(lambda scores: entry_log_loss(scores, labels), scores)
    torch.testing.assert_close(gradient, SHARE * expected, rtol=1e-4, atol=1e-7)


SHAPES = [(1, 1), (7, 3), (129, 65), (4096, 1), (9001, 2), (3, 5000), (33, 130)]


@pytest.mark.parametrize("engine", ["fused", NATIVE])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_engines_give_one_number(engine, shape, weighted, scale, monkeypatch):
    monkeypatch.setenv(engines.SETTING, "plain")
    loss = learned("aucpr; num_anchors=5", labels=shape[1], log_loss=SHARE)
    scores, labels = batch(0, *shape)
    extra = {"weights": torch.rand(shape) + 0.1, "mask": torch.rand(shape) < 0.8} if weighted else {}
    expected = differentiated(partial(copy.deepcopy(loss), labels=labels, **extra), scale * scores.double())
    monkeypatch.setenv(engines.SETTING, engine)
    found = differentiated(partial(copy.deepcopy(loss), labels=labels, **extra), scale * scores)
    torch.testing.assert_close(found[0], expected[0], rtol=2e-6, atol=1e-6)
    largest = float(expected[1].abs().max())
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("known", ["all", "some"])
def test_a_share_of_one_is_torchs_log_loss(engine, form, known, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    scores, labels = batch(0)
    weights = torch.rand(ROWS, LABELS) if known == "some" else None
    mask = torch.rand(ROWS, LABELS) < 0.8 if known == "some" else None
    shares = None if weights is None or mask is None else weights * mask
    given = labels.to_sparse_csr() if form == "sparse" else labels
    by_torch = differentiated(lambda scores: entry_log_loss(scores, labels, shares), scores)
    for share, first in ((1.0, 0), (0.5, 1)):
        loss = aimfor.Loss("aucpr", num_labels=LABELS, log_loss=share, log_loss_batches=first)
        found = differentiated(lambda scores, loss=loss: loss(scores, given, weights=weights, mask=mask), scores)
        torch.testing.assert_close(found, by_torch, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_of_exclusive_classes_it_is_cross_entropy(engine, share, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = aimfor.Loss("aucpr", num_labels=LABELS, multiclass=True, log_loss=0.0)
    scores, classes = batch(0)[0], torch.arange(ROWS) % LABELS
    weights = torch.rand(ROWS) + 0.1
    loss(scores, classes)

    def by_torch(scores):
        aim = shared(loss, 0.0)(scores, classes, weights=weights)
        entropy = (F.cross_entropy(scores, classes, reduction="none") * weights).sum() / weights.sum()
        return (1 - share) * aim + share * entropy

    other = shared(loss, share)
    found = differentiated(lambda scores: other(scores, classes, weights=weights), scores)
    torch.testing.assert_close(found, differentiated(by_torch, scores), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_state_does_not_depend_on_the_share(engine, monkeypatch):
    """Log-loss has no threshold: what is learned at the same scores is the same."""
    monkeypatch.setenv(engines.SETTING, engine)
    for aim in ("aucpr", "recall@precision>=0.8", "f1"):
        states = [learned(aim, log_loss=share).state_dict() for share in (0.0, 0.5, 1.0)]
        for state in states[1:]:
            torch.testing.assert_close(state, states[0], rtol=0, atol=0)


@pytest.mark.parametrize("engine", ["plain", "fused"])
def test_gradcheck(engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    scores, labels = batch(0, 20)
    for multiclass in (False, True):
        loss = aimfor.Loss("aucpr; num_anchors=3", num_labels=LABELS, surrogate="log", log_loss=SHARE)
        targets = labels
        if multiclass:
            loss = aimfor.Loss(loss.aim, num_labels=LABELS, multiclass=True, surrogate="log", log_loss=SHARE)
            targets = torch.arange(20) % LABELS
        loss(scores, targets)
        loss.eval()
        assert torch.autograd.gradcheck(partial(loss, labels=targets), scores.double().requires_grad_())


@pytest.mark.parametrize("engine", ENGINES)
def test_evaluation_has_the_same_share(engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = learned(log_loss=SHARE)
    training, evaluated = copy.deepcopy(loss), loss.eval()
    scores, labels = batch(0)
    before = copy.deepcopy(evaluated.state_dict())
    with torch.no_grad():
        value = evaluated(scores, labels)
    torch.testing.assert_close(evaluated.state_dict(), before, rtol=0, atol=0)
    torch.testing.assert_close(value, lagrangian(loss, scores.double(), labels).float(), rtol=1e-5, atol=1e-6)
    assert training(scores, labels).isfinite()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("engine", ENGINES)
def test_half_precision(engine, dtype, monkeypatch):
    monkeypatch.setenv(engines.SETTING, "plain")
    loss = learned(log_loss=SHARE)
    scores, labels = batch(0)
    scores = scores.to(dtype)
    expected = differentiated(partial(copy.deepcopy(loss), labels=labels), scores.double())
    monkeypatch.setenv(engines.SETTING, engine)
    found = differentiated(partial(copy.deepcopy(loss), labels=labels), scores)
    assert found[0] == pytest.approx(float(expected[0]), rel=1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_label_of_one_class_adds_nothing(engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = aimfor.Loss("aucpr", num_labels=LABELS, log_loss=SHARE)
    scores, labels = batch(0)
    labels[:, 1] = 0
    _, gradient = differentiated(partial(loss, labels=labels), scores)
    assert (gradient[:, 1] == 0).all()
    assert (gradient[:, 0] != 0).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_absent_entries_have_no_gradient(engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = aimfor.Loss("aucpr", num_labels=LABELS, log_loss=SHARE)
    scores, labels = batch(0)
    mask = torch.rand(ROWS, LABELS) < 0.7
    _, gradient = differentiated(partial(loss, labels=labels, mask=mask), scores)
    assert (gradient[~mask] == 0).all()
    assert (gradient[mask] != 0).all()


def test_compiled():
    loss = learned(log_loss=SHARE)
    scores, labels = batch(0)
    expected = differentiated(partial(copy.deepcopy(loss), labels=labels), scores)
    compiled = torch.compile(copy.deepcopy(loss), backend="aot_eager")
    found = differentiated(lambda scores: compiled(scores, labels), scores)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_a_linear_head_in_chunks():
    torch.manual_seed(0)
    head = aimfor.LinearLoss("aucpr", 5, LABELS, chunk=3, log_loss=SHARE)
    loss = aimfor.Loss("aucpr", num_labels=LABELS, log_loss=SHARE)
    features, labels = torch.randn(ROWS, 5), batch(0)[1]
    for _ in range(2):
        found = differentiated(lambda features: head(features, labels), features)
        expected = differentiated(lambda features: loss(head.scores(features), labels), features)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)


def test_label_shards_sum_to_the_whole():
    scores, labels = batch(0)
    whole = aimfor.Loss("aucpr", num_labels=LABELS, log_loss=SHARE)(scores, labels)
    parts = [
        aimfor.Loss("aucpr", num_labels=len(part), total_labels=LABELS, log_loss=SHARE)(
            scores[:, part], labels[:, part]
        )
        for part in ([0], [1, 2, 3])
    ]
    torch.testing.assert_close(sum(parts), whole, rtol=1e-5, atol=1e-7)


class AimOnly(ReferenceEngine):
    """An engine that counts the aim and knows nothing of log-loss."""

    name = "aim only"

    def begin(self, batch, state, rules):
        reference = super().begin(batch, state, rules)

        class AimPass(Pass):
            def count(self, anchors, positive_cost, negative_cost, errors):
                return reference.count(anchors, positive_cost, negative_cost, errors)

        run = AimPass()
        run.state, run.rules, run.census = state, rules, reference.census
        return run


def test_an_engine_without_log_loss_gets_it_in_torch(monkeypatch):
    scores, labels = batch(0)
    loss = learned(log_loss=SHARE)
    values = []
    for engine in (ReferenceEngine(), AimOnly()):
        assert isinstance(engine, CountingEngine)
        monkeypatch.setattr(engines, "ENGINES", {engine.name: engine})
        values.append(differentiated(partial(copy.deepcopy(loss), labels=labels), scores))
    torch.testing.assert_close(values[1], values[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "half", True])
def test_a_share_is_a_number_from_0_to_1(share):
    with pytest.raises((TypeError, ValueError), match="log_loss must be"):
        aimfor.Loss("aucpr", log_loss=share)


@pytest.mark.parametrize("engine", ENGINES)
def test_log_loss_alone_in_the_first_batches(engine, monkeypatch):
    """The state is learned for the aim already; after them the loss is one without such a start."""
    monkeypatch.setenv(engines.SETTING, engine)
    starting, other = (
        aimfor.Loss("aucpr", num_labels=LABELS, log_loss=SHARE, log_loss_batches=count) for count in (3, 0)
    )
    for seed in range(4):
        scores, labels = batch(seed)
        values = [differentiated(partial(loss, labels=labels), scores) for loss in (starting, other)]
        alike = all(torch.equal(*pair) for pair in zip(*values, strict=True))
        assert alike == (seed == 3)
    torch.testing.assert_close(starting.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_evaluation_has_no_first_batches():
    loss, other = (learned(log_loss=SHARE, batches=1, log_loss_batches=count).eval() for count in (5, 0))
    assert torch.equal(loss(*batch(1)), other(*batch(1)))


def test_whole_numbers_without_a_sign():
    scores, labels = batch(0)
    values = [
        aimfor.Loss("aucpr", num_labels=LABELS, log_loss=SHARE)(scores, targets, weights=weights)
        for targets, weights in (
            (labels.to(torch.uint16), torch.ones(ROWS, dtype=torch.uint32)),
            (labels, torch.ones(ROWS)),
        )
    ]
    assert torch.equal(*values)


@pytest.mark.parametrize("options", [{"log_loss_batches": 2_000}, {"log_loss": 1.0}])
def test_no_constraint_is_called_infeasible_before_it_was_tried(options):
    loss = aimfor.Loss("recall@precision>=0.99", **options)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2_000):  # pure noise: tried at once, it would be called infeasible by now
        loss(torch.randn(32, generator=generator), (torch.rand(32, generator=generator) < 0.3).float())
    assert loss.diagnostics().feasible.all()
