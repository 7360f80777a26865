"""The first batches of a loss, where log-loss trains the scores and the state is learned for the aim already."""

import warnings
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import aimfor
from aimfor.loss.engines import _choice as engines
from cases import NATIVE

ROWS, LABELS = 60, 4


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(ROWS, LABELS, generator=generator)
    return scores, (torch.rand(ROWS, LABELS, generator=generator) < 0.3).float()


def differentiated(value_of, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = scores.clone().requires_grad_()
    value = value_of(scores)
    (gradient,) = torch.autograd.grad(value, scores)
    return value.detach(), gradient


@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("known", ["all", "some"])
def test_it_is_torchs_log_loss(engine, form, known, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = aimfor.Loss("aucpr", num_labels=LABELS, log_loss_batches=1)
    scores, labels = batch(0)
    weights = torch.rand(ROWS, LABELS) if known == "some" else None
    mask = torch.rand(ROWS, LABELS) < 0.8 if known == "some" else None
    shares = torch.ones(ROWS, LABELS) if weights is None or mask is None else weights * mask

    def by_torch(scores):
        each = F.binary_cross_entropy_with_logits(scores, labels, reduction="none")
        return ((each * shares).sum(0) / shares.sum(0)).mean()

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        given = labels.to_sparse_csr() if form == "sparse" else labels
    found = differentiated(lambda scores: loss(scores, given, weights=weights, mask=mask), scores)
    torch.testing.assert_close(found, differentiated(by_torch, scores), rtol=1e-5, atol=1e-7)


def test_of_exclusive_classes_it_is_cross_entropy():
    loss = aimfor.Loss("aucpr", num_labels=LABELS, multiclass=True, log_loss_batches=1)
    scores, classes = batch(0)[0], torch.arange(ROWS) % LABELS
    found = differentiated(lambda scores: loss(scores, classes), scores)
    by_torch = differentiated(lambda scores: F.cross_entropy(scores, classes), scores)
    torch.testing.assert_close(found, by_torch, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
def test_the_state_is_that_of_a_loss_without_such_a_start(engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    starting, other = (aimfor.Loss("aucpr", num_labels=LABELS, log_loss_batches=count) for count in (3, 0))
    for seed in range(4):
        scores, labels = batch(seed)
        values = [differentiated(partial(loss, labels=labels), scores) for loss in (starting, other)]
        alike = all(torch.equal(*pair) for pair in zip(*values, strict=True))
        assert alike == (seed == 3)
    torch.testing.assert_close(starting.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_whole_numbers_without_a_sign():
    loss = aimfor.Loss("aucpr", num_labels=LABELS, log_loss_batches=1)
    scores, labels = batch(0)
    weights = torch.ones(ROWS, dtype=torch.uint32)
    other = aimfor.Loss("aucpr", num_labels=LABELS, log_loss_batches=1)
    assert torch.equal(loss(scores, labels.to(torch.uint16), weights=weights), other(scores, labels))


def test_a_label_of_one_class_adds_nothing():
    loss = aimfor.Loss("aucpr", num_labels=LABELS, log_loss_batches=1)
    scores, labels = batch(0)
    labels[:, 1] = 0
    _, gradient = differentiated(lambda scores: loss(scores, labels), scores)
    assert (gradient[:, 1] == 0).all()
    assert (gradient[:, 0] != 0).all()


def test_no_constraint_is_called_infeasible_before_it_was_tried():
    loss = aimfor.Loss("recall@precision>=0.99", log_loss_batches=2_000)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2_000):  # pure noise: tried at once, it would be called infeasible by now
        loss(torch.randn(32, generator=generator), (torch.rand(32, generator=generator) < 0.3).float())
    assert loss.diagnostics().feasible.all()


def test_evaluation_is_of_the_aim():
    loss = aimfor.Loss("aucpr", num_labels=LABELS, log_loss_batches=5)
    loss(*batch(0))
    other = aimfor.Loss("aucpr", num_labels=LABELS)
    other(*batch(0))
    assert torch.equal(loss.eval()(*batch(1)), other.eval()(*batch(1)))
