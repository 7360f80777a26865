"""Several losses whose ranks send the numbers of all of them together: fewer messages, and nothing else changes."""

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import aimfor
from aimfor.loss._together import LossCall, values_of
from two_processes import in_two_processes, join_group

STEPS, ROWS, SPLIT = 4, 24, 10
KINDS = [
    ("aucpr; num_anchors=4", 3, {"log_loss": 0.0}),
    ("recall@precision>=0.8", 2, {"surrogate": "sigmoid", "warmup": 2, "constraint": "exact"}),
    ("f1", 1, {"log_loss": 0.3}),
]


def losses() -> list[aimfor.Loss]:
    return [aimfor.Loss(aim, num_labels=labels, **options) for aim, labels, options in KINDS]


def calls(ones: list[aimfor.Loss], step: int, rows: slice) -> list[LossCall]:
    generator = torch.Generator().manual_seed(step)
    found = []
    for loss in ones:
        scores = torch.randn(ROWS, loss.num_labels, generator=generator)
        labels = (scores + torch.randn(scores.shape, generator=generator) > 0.7).float()
        weights = torch.rand(ROWS, generator=generator)
        found.append(LossCall(loss, scores[rows].requires_grad_(), labels[rows], weights[rows]))
    return found


def learned(given: list[LossCall], values: list[torch.Tensor]) -> list[torch.Tensor | None]:
    sum(values[1:], values[0]).backward()
    return [*(value.detach() for value in values), *(call.scores.grad for call in given)]


def one_by_one(given: list[LossCall]) -> list[torch.Tensor]:
    return [loss(scores, labels, weights=weights) for loss, scores, labels, weights in given]


def counted() -> list[int]:
    """How many messages were sent, as the only entry."""
    sent, plain = [0], dist.all_reduce

    def all_reduce(*arguments, **options):
        sent[0] += 1
        return plain(*arguments, **options)

    dist.all_reduce = all_reduce
    return sent


def both_ways(rank: int, folder: str) -> None:
    join_group(rank, folder)
    sent, rows = counted(), slice(SPLIT) if rank == 0 else slice(SPLIT, None)
    together = losses()
    apart = copy.deepcopy(together)
    messages = []
    for step in range(STEPS):
        sent[0] = 0
        found = learned(given := calls(together, step, rows), values_of(given))
        messages.append(sent[0])
        other = learned(given := calls(apart, step, rows), one_by_one(given))
        messages.append(sent[0] - messages[-1])
        assert all(torch.equal(one, two) for one, two in zip(found, other, strict=True))
    for one, two in zip(together, apart, strict=True):
        assert all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())
    states = [copy.deepcopy(loss.state_dict()) for loss in together]
    refused = refusals(rank, together, rows)
    torch.save((messages, found, states, refused), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def refusals(rank: int, ones: list[aimfor.Loss], rows: slice) -> list[str]:
    """What is said where a loss is refused its input on the first rank, and on both ranks different ones are."""
    said = []
    for broken in ([1], [0, 2], [2, 1]):
        given = calls(ones, 9, rows)
        if rank < len(broken):
            given[broken[rank]].labels[0, 0] = 7.0
        with pytest.raises(ValueError, match="must be") as error:
            values_of(given)
        said.append(str(error.value))
    learned(given := calls(ones, 9, rows), values_of(given))  # nobody waits for anybody
    return said


def overflowing(rank: int, folder: str) -> None:
    join_group(rank, folder)
    ones = [aimfor.Loss("f1"), aimfor.Loss("f1")]
    scores = [torch.linspace(-1, 1, 6, dtype=torch.float16, requires_grad=True) for _ in ones]
    if rank == 0:
        with torch.no_grad():
            scores[0][2] = torch.inf
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    found = values_of([LossCall(loss, own, labels) for loss, own in zip(ones, scores, strict=True)])
    torch.save([float(value) for value in found], Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_losses_together_send_two_messages_and_learn_what_each_learns_alone():
    (messages, first, states, said), (others_messages, second, others_states, others_said) = in_two_processes(both_ways)
    assert messages == others_messages == [2, 2 * len(KINDS)] * STEPS
    whole = losses()
    for step in range(STEPS):
        expected = learned(given := calls(whole, step, slice(None)), one_by_one(given))
    count = len(KINDS)
    for found in (first, second):
        torch.testing.assert_close(found[:count], expected[:count], rtol=1e-6, atol=1e-6)
    # Data-parallel training averages over the ranks, so each has twice its part.
    gradients = [torch.cat(pair) / 2 for pair in zip(first[count:], second[count:], strict=True)]
    torch.testing.assert_close(gradients, expected[count:], rtol=1e-6, atol=1e-6)
    for own in (states, others_states):
        for state, loss in zip(own, whole, strict=True):
            torch.testing.assert_close(state, loss.state_dict(), rtol=1e-5, atol=1e-6)
    refused = "scores, labels, weights and mask must be valid on every rank, another rank refused its own"
    own = "labels must be 0 or 1 in every entry, got 7.0"
    assert said == [own, own, refused]
    assert others_said == [refused, refused, own]


def test_scores_that_overflow_on_one_rank_skip_the_step_of_that_loss_on_all():
    for values in in_two_processes(overflowing):
        assert values[0] == float("inf")
        assert abs(values[1]) < float("inf")


def test_one_process_alone_gets_what_each_loss_gives():
    ones = losses()
    others = copy.deepcopy(ones)
    found = learned(given := calls(ones, 0, slice(None)), values_of(given))
    expected = learned(given := calls(others, 0, slice(None)), one_by_one(given))
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
