"""Steps of a fit that do not depend on the aim: taken once for all aims of a split, and then repeated exactly.

Forests, the minimum of log-loss of a linear model and the steps of a network by log-loss depend on rows and seed alone.
The aim only judges what comes of them. `python -m benchmarks.trees.default --quick` takes every step anew, and finds
the same numbers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from aimfor.training import Observer, SavedState
from aimfor.training._loop import EVALUATIONS, Training

# Stages of a fit that do not depend on the aim, by their names alone and in the default.
STAGES = {
    **{f"{kind}{stage}": stage for kind in ("", "trees ") for stage in ("forests", "forests on all rows")},
    "linear log-loss": "linear log-loss",
}


class Shared(Observer):
    """Keeps whole stages; all others are trained anew."""

    def __init__(self):
        self.states: dict[str, SavedState] = {}

    def save(self, stage: str, state: SavedState) -> None:
        if stage in STAGES:
            self.states[STAGES[stage]] = state

    def saved(self, stage: str) -> SavedState | None:
        return self.states.get(STAGES.get(stage, ""))


@contextmanager
def replayed_networks() -> Iterator[None]:
    """Inside, networks that train by log-loss alone take their steps once; their rows and seed must stay the same."""
    states: dict[int, SavedState] = {}
    real = Training.advance

    def advance(training: Any, asked: bool) -> bool:
        if any(recipe.aim is not None for recipe in training.recipes):
            return real(training, asked)
        if later := [step for step in states if step > training.step]:
            training.step += 1  # what is between two evaluations is not looked at
            if training.step == min(later):
                _go_on_from(training, states[training.step])
            return asked
        stopping = real(training, asked)
        if training.step * EVALUATIONS % training.budget.steps == 0:
            facts, tensors = training.kept()
            states[training.step] = SavedState(facts, {name: tensor.clone() for name, tensor in tensors.items()})
        return stopping

    with mock.patch.object(Training, "advance", advance):
        yield


def _go_on_from(training: Any, state: SavedState) -> None:
    """The state of heads, optimiser and batches; what was best so far is the aim's own."""
    best, fruitless = training.best, training.fruitless
    training.restore(state, len(best[0].scores))
    training.best, training.fruitless = best, fruitless
