"""The sums bound the true counts, and are what a plain triple loop gives."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aimfor.loss._autograd import attach_gradient
from aimfor.loss._surrogates import SURROGATES as RECORDS
from aimfor.loss.engines._reference import Entries, Sums, sums_and_gradient
from cases import BOUNDING, SURROGATES

# Few distinct values, so that scores tie with each other and with thresholds.
TIED = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
EXAMPLES = st.lists(st.tuples(TIED, st.booleans(), st.sampled_from([0.0, 0.5, 1.0, 2.0])), min_size=1, max_size=12)


def columns(examples):
    scores, labels, weights = (
        torch.tensor(column, dtype=torch.float64).unsqueeze(1) for column in zip(*examples, strict=True)
    )
    return Entries(scores, weights * labels, weights * (1 - labels))


def at(threshold, examples, name, sharpness=None) -> Sums:
    one = torch.ones(1, 1, dtype=torch.float64)
    return sums_and_gradient(columns(examples), threshold * one, one, one, RECORDS[name], sharpness)[0]


@pytest.mark.parametrize("name", BOUNDING)
@given(examples=EXAMPLES, threshold=TIED, sharpness=st.sampled_from([None, 0.1, 5.0]))
def test_bounds_on_counts_precision_and_f_beta(name, examples, threshold, sharpness):
    scores, positive_weights, negative_weights = columns(examples)
    predicted = scores >= threshold
    positives = positive_weights.sum().item()
    tp, fp = (positive_weights * predicted).sum().item(), (negative_weights * predicted).sum().item()
    sums = at(threshold, examples, name, None if sharpness is None else torch.tensor([sharpness], dtype=torch.float64))
    tp_lower, fp_upper = positives - sums.positive_loss.item(), sums.negative_loss.item()
    assert tp_lower <= tp + 1e-12
    assert fp_upper >= fp - 1e-12
    assert sums.false_negatives.item() == pytest.approx(positives - tp)
    assert sums.false_positives.item() == pytest.approx(fp)
    if tp_lower > 0:
        assert tp_lower / (tp_lower + fp_upper) <= tp / (tp + fp) + 1e-12
        for beta2 in (0.25, 1.0, 4.0):
            surrogate = (1 + beta2) * tp_lower / (beta2 * positives + tp_lower + fp_upper)
            assert surrogate <= (1 + beta2) * tp / (beta2 * positives + tp + fp) + 1e-12


def by_loops(scores, positive_weights, negative_weights, thresholds, record, sharpness):
    """positive_loss, negative_loss, false_negatives, false_positives, one entry at a time."""
    sums = torch.zeros(4, *thresholds.shape, dtype=torch.float64)
    for k in range(thresholds.shape[0]):
        for row in range(scores.shape[0]):
            for label in range(scores.shape[1]):
                distance = scores[row, label] - thresholds[k, label]
                margin = distance * sharpness[label]
                sums[0, k, label] += positive_weights[row, label] * record.loss(margin)
                sums[1, k, label] += negative_weights[row, label] * record.loss(-margin)
                sums[2, k, label] += positive_weights[row, label] * (distance < 0)
                sums[3, k, label] += negative_weights[row, label] * (distance >= 0)
    return sums


def random_problem(seed: int, rows: int, labels: int, anchors: int):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, labels, dtype=torch.float64, generator=generator)
    positive = torch.rand(rows, labels, generator=generator) < 0.4
    weights = torch.rand(rows, labels, dtype=torch.float64, generator=generator)
    thresholds = torch.randn(anchors, labels, dtype=torch.float64, generator=generator)
    costs = torch.rand(2, anchors, labels, dtype=torch.float64, generator=generator)
    return Entries(scores, weights * positive, weights * ~positive), thresholds, *costs


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 2), (13, 5, 4)])
def test_sums_equal_loops_and_gradients_equal_autograd(name, shape):
    checked, thresholds, positive_cost, negative_cost = random_problem(0, *shape)
    scores, positive_weights, negative_weights = checked
    sharpness = torch.linspace(0.5, 2.0, scores.shape[1], dtype=torch.float64)
    record = RECORDS[name]
    sums, gradient = sums_and_gradient(checked, thresholds, positive_cost, negative_cost, record, sharpness)
    scores.requires_grad_()
    thresholds.requires_grad_()
    expected = by_loops(scores, positive_weights, negative_weights, thresholds, record, sharpness)
    torch.testing.assert_close(torch.stack([sums[0], sums[1], sums[4], sums[5]]), expected.detach())
    total = (positive_cost * expected[0] + negative_cost * expected[1]).sum()
    score_gradient, threshold_gradient = torch.autograd.grad(total, [scores, thresholds])
    torch.testing.assert_close(gradient, score_gradient)
    slope = negative_cost * sums.negative_slope - positive_cost * sums.positive_slope
    torch.testing.assert_close(slope, threshold_gradient)


@pytest.mark.parametrize("name", SURROGATES)
@given(examples=EXAMPLES, threshold=TIED, shift=st.sampled_from([-16.0, -0.25, 3.0, 1024.0]), sharpness=st.booleans())
def test_scores_and_thresholds_shifted_together_change_nothing(name, examples, threshold, shift, sharpness):
    """Exactly: all of these numbers have few bits."""
    one = torch.ones(1, 1, dtype=torch.float64)
    sharp = torch.tensor([3.0], dtype=torch.float64) if sharpness else None
    entries = columns(examples)
    moved = entries._replace(scores=entries.scores + shift)
    expected, gradient = sums_and_gradient(entries, threshold * one, one, one, RECORDS[name], sharp)
    sums, moved_gradient = sums_and_gradient(moved, (threshold + shift) * one, one, one, RECORDS[name], sharp)
    assert torch.equal(moved_gradient, gradient)
    for part, told in zip(sums, expected, strict=True):
        assert torch.equal(part, told)


def test_no_tensor_of_all_rows_labels_and_anchors_exists():
    """The largest tensor of the pass is [B, L], whatever the number of anchors."""
    largest = 0
    loss = RECORDS["hinge"].loss

    def watched(margin):
        nonlocal largest
        largest = max(largest, margin.numel())
        return loss(margin)

    record = type(RECORDS["hinge"])("hinge", watched, RECORDS["hinge"].slope, bounds=True, convex=True)
    problem = random_problem(2, 40, 30, 25)
    sums_and_gradient(*problem, record)
    assert largest == 40 * 30


def test_attached_gradient_scales_and_serves_a_second_backward():
    scores = torch.randn(4, 2, requires_grad=True)
    gradient = torch.randn(4, 2)
    value = 3 * attach_gradient(torch.tensor(5.0), scores, gradient.clone())
    assert value.item() == 15
    value.backward(retain_graph=True)
    value.backward()
    torch.testing.assert_close(scores.grad, 6 * gradient)
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


def test_the_gradient_is_handed_over_not_copied():
    scores, gradient = torch.randn(4, 2, requires_grad=True), torch.randn(4, 2)
    address = gradient.data_ptr()
    value = attach_gradient(torch.tensor(5.0), scores, gradient)
    del gradient
    value.backward()
    assert scores.grad is not None
    assert scores.grad.data_ptr() == address
