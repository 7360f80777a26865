"""Softmax log-odds: equal to their definition, and right where probabilities round to 0 and 1."""

import pytest
import torch

import aimfor


def by_definition(scores: torch.Tensor) -> torch.Tensor:
    columns = range(scores.shape[1])
    others = [torch.logsumexp(scores[:, [j for j in columns if j != c]], dim=1) for c in columns]
    return scores - torch.stack(others, dim=1)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_equals_the_definition(classes, scale):
    scores = scale * torch.randn(50, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores[0] = 3.0  # all tied
    torch.testing.assert_close(aimfor.log_odds(scores), by_definition(scores), rtol=1e-12, atol=1e-12)
    single = aimfor.log_odds(scores.float())
    torch.testing.assert_close(single.double(), by_definition(scores.float().double()), rtol=1e-5, atol=2e-6)


def test_is_the_logit_of_the_softmax_probability():
    scores = torch.randn(20, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(aimfor.log_odds(scores), scores.softmax(1).logit())


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_gradient(scale):
    scores = scale * torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    scores.requires_grad_()
    weights = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    ours = torch.autograd.grad((weights * aimfor.log_odds(scores)).sum(), scores)[0]
    expected = torch.autograd.grad((weights * by_definition(scores)).sum(), scores)[0]
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    assert torch.autograd.gradcheck(aimfor.log_odds, [scores.detach().div(scale).requires_grad_()])


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        (torch.zeros(3), ValueError, r"scores must have shape \[B, C\] with C >= 2, got \(3,\)"),
        (torch.zeros(3, 1), ValueError, r"C >= 2, got \(3, 1\)"),
        (torch.zeros(3, 2, dtype=torch.long), TypeError, "scores must be a floating-point tensor"),
        ([[0.0, 1.0]], TypeError, "scores must be a floating-point tensor, got list"),
    ],
)
def test_bad_input(scores, error, message):
    with pytest.raises(error, match=message):
        aimfor.log_odds(scores)
