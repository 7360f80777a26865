"""Single steps of the multipliers, where whole trainings would hide what each rule does."""

import pytest
import torch

import aimfor
from aimfor.aims._table import Rates
from aimfor.loss._state import MAX_MULTIPLIER, PATIENCE, State, Step


def step(state: State, u: float, v: float, aim: str = "recall@precision>=0.9", dual_rate: float = 0.1) -> None:
    """One step at these rates, surrogate and exact alike."""
    rates = Rates(torch.tensor([[u]]), torch.tensor([[v]]), torch.ones(1))
    anchors = aimfor.aim(aim).anchors(torch.tensor([0.1]), state.surrogate_rates)
    one = torch.ones(1)
    state.learn_(Step(one, anchors, rates, rates, one, one, one.bool(), one.view(1, 1), one), dual_rate, 0.1)


def test_projection_keeps_the_multiplier_between_zero_and_its_limit():
    state = State(1, 1, None)
    for _ in range(50):
        step(state, 0.1, 0.0)
    assert state.multipliers.item() == 0
    step(state, 0.1, 0.5)
    assert state.multipliers.item() > 0  # acts at once: nothing was wound up below 0
    for _ in range(500):
        step(state, 0.5, 0.5)
    assert state.multipliers.item() == MAX_MULTIPLIER


def test_one_batch_with_many_errors_does_not_throw_the_multiplier():
    state = State(1, 1, None)
    for _ in range(200):
        step(state, 0.5, 0.001, aim="tpr@fpr<=0.001")
    before = state.multipliers.item()
    step(state, 0.5, 0.1, aim="tpr@fpr<=0.001")  # a hundred times the limit, by chance of one batch
    # At most one over the square root of the forgetting, 10 rates, where the raw violation would have been 99.
    assert 0 < state.multipliers.item() - before <= 0.1 * 10.01


def test_rare_spikes_balance_to_the_limit():
    """Spikes that meet a false-positive rate in the mean leave the multiplier where it is, in the mean."""
    state = State(1, 1, None)
    state.multipliers.fill_(1.0)
    for number in range(2000):
        step(state, 0.5, 0.02 if number % 20 == 0 else 0.0, aim="tpr@fpr<=0.001", dual_rate=0.001)
    assert state.multipliers.item() == pytest.approx(1.0, abs=0.1)


def test_a_multiplier_gives_way_where_nothing_is_predicted_positive():
    state = State(1, 1, None)
    state.multipliers.fill_(1.5)
    for _ in range(5):
        step(state, 1.0, 0.0)
    assert state.multipliers.item() == pytest.approx(1.5 - 5 * 0.1)


def test_a_relative_violation_is_felt_at_small_recall():
    """Precision 0.5 where 0.9 is asked, at recall 1 %: in absolute terms next to nothing."""
    state = State(1, 1, None)
    before = state.multipliers.item()
    step(state, 0.99, 0.01 / 9)
    assert state.multipliers.item() - before > 0.05


def test_a_constraint_that_gets_better_is_not_given_up():
    state = State(1, 1, None)
    state.multipliers.fill_(MAX_MULTIPLIER)
    violation = 5.0
    for _ in range(2 * PATIENCE):
        violation *= 0.998
        step(state, 0.5, (0.5 + violation) / 81)
    assert not state.stuck.any()
    for _ in range(PATIENCE + 300):
        step(state, 0.5, (0.5 + violation) / 81)
    assert state.stuck.all()
