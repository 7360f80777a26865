"""Step, beside training: what is told of it, what is kept of it, and whether it is asked to stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor


class Look(NamedTuple):
    """One candidate at one look at the validation rows; nan where a number does not exist.

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


class Kept(NamedTuple):
    """Training as it was: facts that JSON can hold, and tensors."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


class Supervision:
    """Lets training run: nothing is shown, kept or stopped. Others override what they need."""

    def begun(self, stage: str) -> None:
        """Told when a stage begins, one that has no steps above all."""

    def stepped(self, stage: str, step: int, steps: int) -> None:
        """Told after every batch."""

    def looked(self, looks: list[Look], best: float) -> None:
        """Told at every look at the validation rows, with the best value of this stage so far."""

    def stopping(self) -> bool:
        """Whether to stop now, with the best so far."""
        return False

    def due(self) -> bool:
        """Whether the state should be kept now; it is kept at the end of every stage besides."""
        return False

    def keep(self, stage: str, kept: Kept) -> None:
        """Given the state of a stage."""

    def kept(self, stage: str) -> Kept | None:
        """The state from which a stage goes on, None for its beginning."""
        return None


@contextmanager
def taken_up(stage: str) -> Iterator[None]:
    """Inside, what was kept of a stage is put back; where it does not fit, that is told in one sentence."""
    try:
        yield
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"what was kept of the stage {stage!r} does not fit this training: {error}") from error
