"""Steps of two processes: shared or repeated, with the weights of one process, and one end for all."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from aimfor._base.ranks import ALONE, RowShare
from aimfor.aims import AUCPR, RecallAtPrecision
from aimfor.cli._ranks import TorchRanks
from aimfor.training import _whole_batches
from aimfor.training._loop import Budget, Judgement, Training, _advance
from aimfor.training._models import Layers, Modules
from aimfor.training._observer import Observer
from aimfor.training._recipes import Recipe, aim_recipes
from aimfor.training._rows import Data, FeatureRows, Scaling
from two_processes import in_two_processes, join_group

STEPS, RUN = 8, 25  # rows come in runs, which the ranks take by turns
BUDGET = Budget(STEPS, 0.05, 40, 9)


def training(ranks=ALONE, weighted=False) -> Training:
    """Heads of two aims and of log-loss on the rows of this rank."""
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 4)).astype(np.float32)
    labels = (X[:, :1] + random.normal(size=(200, 1)) > 0.7).astype(np.float32)
    weights = random.random(200).astype(np.float32) * 2 if weighted else None
    scaling = Scaling(X.mean(0), X.std(0))
    own = np.arange(200).reshape(-1, RUN)[ranks.number :: ranks.size].reshape(-1)
    share = RowShare(np.full(len(own) // RUN, RUN), ranks) if ranks.size > 1 else None
    own_weights = None if weights is None else torch.from_numpy(weights[own])
    data = Data(FeatureRows(X[own], scaling), torch.from_numpy(labels[own]), own_weights, share)
    recipes = [*aim_recipes(RecallAtPrecision(0.6), 0.01, 1), Recipe(None, decay=0.01), Recipe(AUCPR())]
    heads = Layers(len(recipes), 4, 1, (), torch.Generator().manual_seed(0))
    return Training(heads, recipes, data, BUDGET, False, np.random.default_rng(1))


def weights_of(one: Training) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in one.heads.state_dict().items()}


class StopAfter(Observer):
    """Asks to stop after some batches."""

    def __init__(self, batches: float):
        self.batches, self.seen = batches, 0

    def on_batch_end(self, stage, step, steps):
        self.seen += 1

    def should_stop(self):
        return self.seen >= self.batches


def ended_at(one: Training, batches: float) -> int:
    """After which step training ends where this process asks to stop; the last state is evaluated."""
    evaluations = []
    _advance(one, lambda: evaluations.append(one.step), StopAfter(batches), "stage")
    assert evaluations[-1] == one.step
    return one.step


def two_ranks(rank: int, folder: str) -> None:
    join_group(rank, folder)
    _whole_batches.CHEAP = 0  # else steps as cheap as these are repeated
    ranks, messages, plain = TorchRanks(), [], dist.all_reduce

    def all_reduce(*arguments, **options):
        messages[-1] += 1
        return plain(*arguments, **options)

    found = []
    for weighted in (False, True):
        one = training(ranks, weighted)
        assert one.data.total == 200  # of which the ranks tell one another once
        dist.all_reduce = all_reduce
        for _ in range(STEPS):
            messages.append(0)
            assert not one.advance(False)
        dist.all_reduce = plain
        found.append(weights_of(one))
    ended = ended_at(training(ranks), 3 if rank == 1 else np.inf)
    broken = training(ranks)
    if rank == 0:
        broken.data.rows.features[:] = np.inf
    with pytest.raises(ValueError, match="must be") as error:
        broken.advance(False)
    torch.save((messages, found, ended, str(error.value)), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_send_three_messages_a_step_and_learn_what_one_learns():
    expected = [weights_of(training_after(weighted)) for weighted in (False, True)]
    results = in_two_processes(two_ranks)
    for messages, found, ended, _ in results:
        # The censuses of all losses, their sums, and the gradients. Weights need their mean over the batch before.
        assert messages == [3] * STEPS + [4] * STEPS
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert ended == 4, "one step after the second process asked"
    assert results[0][3].startswith("scores must be finite")
    assert results[1][3].endswith("another rank refused its own")


def cheap_steps(rank: int, folder: str) -> None:
    join_group(rank, folder)
    ranks, found = TorchRanks(), []
    _whole_batches.MOST = 3
    for weighted in (False, True):
        one = training(ranks, weighted)
        assert not any(one.advance(False) for _ in range(4))
        one.evaluate(training().data, lambda scores: Judgement(0.0, 0.0))
        again = training(ranks, weighted)
        again.restore(one.kept(), 200)  # saved between two messages
        assert not any(again.advance(False) for _ in range(4, STEPS))
        assert again.batches.kept() == training_after(weighted).batches.kept()
        found.append(weights_of(again))
    ended = ended_at(training(ranks), 2 if rank == 1 else np.inf)
    torch.save((found, ended), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def training_after(weighted: bool) -> Training:
    whole = training(weighted=weighted)
    for _ in range(STEPS):
        assert not whole.advance(False)
    return whole


def test_two_processes_repeat_cheap_steps_exactly_as_one_takes_them():
    expected = [weights_of(training_after(weighted)) for weighted in (False, True)]
    for found, ended in in_two_processes(cheap_steps):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert ended == 4, "the second process asked after two batches, and was heard with the next three"


def test_steps_of_large_heads_and_of_foreign_modules_are_shared():
    heads = training().heads
    assert _whole_batches.cheap(heads, 40, 4)
    assert not _whole_batches.cheap(heads, 10**5, 1)
    assert not _whole_batches.cheap(heads, 40, 10_000)
    assert not _whole_batches.cheap(Modules(1, 1, lambda: torch.nn.Linear(4, 1)), 40, 4)


@pytest.mark.parametrize("batches", [0, 3])
def test_one_process_stops_before_the_next_step(batches):
    assert ended_at(training(), batches) == batches
