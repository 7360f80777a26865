"""The pairwise AUCROC surrogate equals its definition over all pairs, without a tensor of all pairs."""

import pytest
import torch

import aimfor
from aimfor.loss._surrogates import SURROGATES
from cases import CONVEX


def by_pairs(scores, labels, weights, surrogate):
    total = torch.zeros((), dtype=scores.dtype)
    for label in range(scores.shape[1]):
        positive, negative = labels[:, label] == 1, labels[:, label] == 0
        pairs = SURROGATES[surrogate].loss(scores[positive, label].unsqueeze(1) - scores[negative, label])
        pair_weights = weights[positive, label].unsqueeze(1) * weights[negative, label]
        if pair_weights.sum() > 0:
            total = total + (pair_weights * pairs).sum() / pair_weights.sum()
    return total / scores.shape[1]


@pytest.mark.parametrize("surrogate", CONVEX)
def test_equals_the_sum_over_pairs(surrogate):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(30, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    labels = (torch.rand(30, 3, generator=generator) < 0.3).double()
    labels[:, 2] = 0  # no pair: adds nothing
    weights = torch.rand(30, 3, dtype=torch.float64, generator=generator)
    value = aimfor.pairwise_auc_loss(scores, labels, surrogate=surrogate, weights=weights)
    expected = by_pairs(scores, labels, weights, surrogate)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one, scores)[0] for one in (value, expected)))
    if surrogate != "hinge":
        assert torch.autograd.gradcheck(
            lambda scores: aimfor.pairwise_auc_loss(scores, labels, surrogate=surrogate, weights=weights), [scores]
        )


@pytest.mark.parametrize("size", [1e-12, 1e-9, 1e-3, 1e9, 1e12])
@pytest.mark.parametrize("of", ["both", "positives", "negatives"])
def test_the_size_of_weights_changes_nothing(size, of):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(30, 2, generator=generator, requires_grad=True)
    labels = torch.rand(30, 2, generator=generator) < 0.3
    sized = {"both": torch.ones_like(labels), "positives": labels, "negatives": ~labels}[of]
    value, expected = (
        aimfor.pairwise_auc_loss(scores, labels, weights=torch.where(sized, one, 1.0)) for one in (size, 1.0)
    )
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one, scores)[0] for one in (value, expected)))


def test_mask_is_absence():
    scores, labels = torch.randn(12), torch.tensor([1, 0, 0] * 4)
    kept = torch.arange(12) > 3
    torch.testing.assert_close(
        aimfor.pairwise_auc_loss(scores, labels, mask=kept), aimfor.pairwise_auc_loss(scores[kept], labels[kept])
    )


def test_bounds_one_minus_the_area():
    scores, labels = torch.randn(50), torch.arange(50) % 3 == 0
    area = aimfor.metrics.roc_auc(labels, scores)
    assert aimfor.pairwise_auc_loss(scores, labels).item() >= 1 - area


def test_no_tensor_of_all_pairs_and_labels(monkeypatch):
    sizes = []
    record = SURROGATES["hinge"]
    watched = type(record)("hinge", lambda m: sizes.append(m.numel()) or record.loss(m), record.slope, True, True)
    monkeypatch.setitem(SURROGATES, "hinge", watched)
    aimfor.pairwise_auc_loss(torch.randn(20, 4), torch.arange(80).view(20, 4) % 3 == 0)
    assert max(sizes) == 20 * 4


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.zeros(3), torch.zeros(3, 1)), ValueError, "labels must have the shape of scores"),
        ((torch.tensor([float("nan")]), torch.zeros(1)), ValueError, "scores must be finite"),
        (([0.0], torch.zeros(1)), TypeError, "scores must be a torch.Tensor"),
        ((torch.zeros(4, 0), torch.zeros(4, 0)), ValueError, r"scores must have at least one column, got \(4, 0\)"),
        (
            (torch.zeros(2), torch.tensor([0, 1]), torch.tensor([1.0, float("inf")]).half()),
            ValueError,
            "weights must be 0 or between 1e-12 and 1e\\+12 in every entry, got inf",
        ),
    ],
)
def test_bad_input(arguments, error, message):
    scores, labels, *weights = arguments
    with pytest.raises(error, match=message):
        aimfor.pairwise_auc_loss(scores, labels, weights=weights[0] if weights else None)


def test_a_tight_surrogate_is_refused():
    with pytest.raises(ValueError, match="surrogate must be one of 'hinge', 'log', 'smooth_hinge', got 'ramp'"):
        aimfor.pairwise_auc_loss(torch.zeros(2), torch.tensor([0, 1]), surrogate="ramp")
