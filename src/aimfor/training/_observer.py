"""Follow training: show it, save its state, stop it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor


class Evaluation(NamedTuple):
    """One candidate at one evaluation on the validation rows; nan where a number does not exist.

    Attributes:
        stage, candidate: names.
        step: batches trained so far.
        value: exact metric on the validation rows.
        violation: of the constraint, the largest over anchors and labels; at most 0 where it holds.
        multiplier, threshold: of the loss, means over anchors and labels.
        surrogate, exact: recall as the loss sees it and as it is, on recent batches, means over anchors and labels.
    """

    stage: str
    candidate: str
    step: int
    value: float
    violation: float
    multiplier: float
    threshold: float
    surrogate: float
    exact: float


class SavedState(NamedTuple):
    """The state of a stage: facts that JSON can hold, and tensors."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


class Observer:
    """Follows training: shows it, saves its state or stops it. This one does nothing; override what you need."""

    def on_stage_begin(self, stage: str) -> None:
        """Called when a stage begins; a stage without batches calls nothing else."""

    def on_batch_end(self, stage: str, step: int, steps: int) -> None:
        """Called after every batch, or after every forest of a search."""

    def on_evaluation(self, evaluations: list[Evaluation], best: float) -> None:
        """Called after every evaluation on the validation rows, with the best value of this stage so far."""

    def should_stop(self) -> bool:
        """Whether to stop now, with the best so far."""
        return False

    def should_save(self) -> bool:
        """Whether to save the state now; the end of a stage saves it in any case."""
        return False

    def save(self, stage: str, state: SavedState) -> None:
        """Receive the state of a stage."""

    def saved(self, stage: str) -> SavedState | None:
        """The state from which a stage resumes; None to start it."""
        return None


@contextmanager
def resuming(stage: str) -> Iterator[None]:
    """Restore the saved state of a stage inside this context. A state that does not fit raises a ValueError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"the saved state of stage {stage!r} does not fit this training: {error}") from error
