"""Surrogates bound the 0-1 loss, and their slopes are their derivatives."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aimfor.loss._surrogates import SURROGATES as RECORDS
from cases import BOUNDING, CONVEX, SURROGATES

MARGINS = st.floats(-1e4, 1e4, allow_nan=False, width=32)


def test_the_list_of_the_suite_is_complete():
    assert set(SURROGATES) == set(RECORDS)
    assert set(BOUNDING) == {name for name, record in RECORDS.items() if record.bounds}
    assert set(CONVEX) == {name for name, record in RECORDS.items() if record.convex}


@pytest.mark.parametrize("name", BOUNDING)
@given(margin=MARGINS)
def test_bound_on_the_zero_one_loss(name, margin):
    # At margin 0 a negative is a false positive: the loss must reach 1 there.
    value = RECORDS[name].loss(torch.tensor([margin], dtype=torch.float64)).item()
    assert value >= (1.0 if margin <= 0 else 0.0)


@pytest.mark.parametrize("name", SURROGATES)
def test_slope_is_the_derivative(name):
    # Away from the kinks at 0 and 1.
    margins = torch.tensor([-300.0, -2.5, -0.7, 0.3, 0.6, 1.4, 300.0], dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(RECORDS[name].loss(margins).sum(), margins)
    torch.testing.assert_close(RECORDS[name].slope(margins.detach()), derivative)


@pytest.mark.parametrize("name", SURROGATES)
@given(margin=MARGINS)
def test_slope_is_finite_and_never_positive(name, margin):
    slope = RECORDS[name].slope(torch.tensor([margin])).item()
    assert -3 < slope <= 0


@pytest.mark.parametrize("name", CONVEX)
@given(a=MARGINS, b=MARGINS)
def test_convex(name, a, b):
    loss = RECORDS[name].loss
    left, right, middle = (loss(torch.tensor(x, dtype=torch.float64)).item() for x in (a, b, (a + b) / 2))
    assert middle <= (left + right) / 2 + 1e-9 * max(1.0, abs(left) + abs(right))
