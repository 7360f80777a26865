"""What a chunked head refuses changes none of its chunks, and what it is told reaches all of them."""

import pytest
import torch

import aimfor


def batch(rows: int, num_labels: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 5, generator=generator), (torch.rand(rows, num_labels, generator=generator) < 0.4).float()


def test_a_shard_of_all_labels_is_shared_out_once():
    _, labels = batch(8, 7)
    scores = torch.randn(8, 7, requires_grad=True)
    whole = aimfor.Loss("aucpr", num_labels=7, total_labels=14)
    head = aimfor.LinearLoss("aucpr", 7, 7, chunk=3, bias=False, total_labels=14)
    with torch.no_grad():
        head.weight.copy_(torch.eye(7))
    values = whole(scores, labels), head(scores, labels)
    torch.testing.assert_close(*values)
    (expected,), (found,) = (torch.autograd.grad(value, scores) for value in values)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": torch.eye(8, 7) * 2}, "labels must be"),
        ({"labels": (torch.eye(8, 7) * 2).to_sparse()}, "labels must be"),
        ({"weights": torch.cat([torch.ones(8, 6), -torch.ones(8, 1)], 1)}, "weights must be"),
        ({"weights": torch.ones(8, 14)}, r"weights must have shape \(8,\) or \(8, 7\), got \(8, 14\)"),
        ({"mask": torch.ones(8, 9, dtype=torch.bool)}, r"mask must have shape \(8,\) or \(8, 7\), got \(8, 9\)"),
    ],
)
def test_a_refused_batch_changes_no_chunk(change, words):
    features, labels = batch(8, 7)
    head = aimfor.LinearLoss("aucpr", 5, 7, chunk=3, updates=aimfor.ChunkSGD(0.1))
    before = {name: value.clone() for name, value in head.state_dict().items()}
    call = {"labels": labels} | change
    if "labels" in change and change["labels"].layout == torch.strided:
        call["labels"] = call["labels"].flip(1)  # the wrong ones are in the last chunks too
    with pytest.raises(ValueError, match=words):
        head(features, **call)
    for name, value in head.state_dict().items():
        torch.testing.assert_close(value, before[name], msg=name)


def test_entries_that_are_absent_may_be_anything():
    features, labels = batch(8, 7)
    unknown = torch.where(torch.arange(7) == 5, -100.0, labels)
    head = aimfor.LinearLoss("aucpr", 5, 7, chunk=3)
    head(features, unknown, mask=unknown != -100).backward()
    head(features, unknown, weights=(unknown != -100).float()).backward()


@pytest.mark.parametrize("updates", [aimfor.ChunkSGD(0.1), aimfor.ChunkAdam(0.1)])
def test_an_overflow_updates_no_weights(updates):
    features, labels = batch(8, 7)
    head = aimfor.LinearLoss("aucpr", 5, 7, chunk=3, updates=updates)
    before = head.weight.detach().clone()
    with torch.autocast("cpu", dtype=torch.float16):
        head(features * 1e6, labels)
    torch.testing.assert_close(head.weight.detach(), before)


def test_options_of_the_head_are_those_of_all_chunks():
    head = aimfor.LinearLoss("aucpr", 5, 7, chunk=3)
    head.log_loss = 0.1
    assert [loss.log_loss for loss in head.losses] == [0.1, 0.1, 0.1]
    assert head.log_loss == 0.1
    with pytest.raises(ValueError, match="dual_rate must"):
        head.dual_rate = -5
    with pytest.raises(ValueError, match="surrogate must be"):
        head.surrogate = "foo"
    head.surrogate = "log"
    assert [loss.surrogate.name for loss in head.losses] == ["log", "log", "log"]
    updates = aimfor.ChunkSGD(0.1)
    with pytest.raises(ValueError, match="lr must"):
        updates.lr = -1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"updates": "sgd"}, TypeError, "updates must be None, ChunkSGD"),
        ({"updates": aimfor.ChunkSGD}, TypeError, "updates must be None, ChunkSGD"),
        ({"priors": [0.1] * 9}, ValueError, "priors must have one entry for each of the 7 labels, got 9"),
        ({"bias": "no"}, TypeError, "bias must be"),
        ({"total_labels": 3}, ValueError, "total_labels must"),
    ],
)
def test_bad_options_of_the_head(options, error, words):
    with pytest.raises(error, match=words):
        aimfor.LinearLoss("aucpr", 5, 7, chunk=3, **options)


def test_betas_of_adam_are_two():
    with pytest.raises(ValueError, match="betas must be two numbers"):
        aimfor.ChunkAdam(0.1, betas=(0.9,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_adam_takes_weights_of_any_type(dtype):
    features, labels = batch(8, 7)
    head = aimfor.LinearLoss("aucpr", 5, 7, chunk=3, updates=aimfor.ChunkAdam(0.1)).to(dtype)
    before = head.weight.detach().clone()
    head(features.to(dtype), labels)
    assert head.weight.isfinite().all()
    assert not torch.equal(head.weight, before)


def test_adam_goes_back_to_a_state_without_moments():
    features, labels = batch(8, 7)
    head = aimfor.LinearLoss("aucpr", 5, 7, chunk=3, updates=aimfor.ChunkAdam(0.1))
    start = {name: value.clone() for name, value in head.state_dict().items()}
    head(features, labels)
    first = head.weight.detach().clone()
    head.load_state_dict(start)
    head(features, labels)
    torch.testing.assert_close(head.weight.detach(), first)
