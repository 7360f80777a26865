"""Observers between a kind and its caller: one names the stages of a kind, one stops at a deadline."""

from __future__ import annotations

import time

from aimfor.training import Evaluation, Observer, SavedState


class KindObserver(Observer):
    """Passes everything on, with the name of the kind before that of the stage.

    Args:
        observer: who follows training.
        prefix: put before the name of a stage.
    """

    def __init__(self, observer: Observer, prefix: str = ""):
        self.observer, self.prefix = observer, prefix

    def on_stage_begin(self, stage: str) -> None:
        self.observer.on_stage_begin(self.prefix + stage)

    def on_batch_end(self, stage: str, step: int, steps: int) -> None:
        self.observer.on_batch_end(self.prefix + stage, step, steps)

    def on_evaluation(self, evaluations: list[Evaluation], best: float) -> None:
        named = [one._replace(stage=self.prefix + one.stage) for one in evaluations]
        self.observer.on_evaluation(named, best)

    def should_stop(self) -> bool:
        return self.observer.should_stop()

    def should_save(self) -> bool:
        return self.observer.should_save()

    def save(self, stage: str, state: SavedState) -> None:
        self.observer.save(self.prefix + stage, state)

    def saved(self, stage: str) -> SavedState | None:
        return self.observer.saved(self.prefix + stage)


class DeadlineObserver(KindObserver):
    """Passes everything on, and stops training at a deadline.

    Args:
        observer: who follows training.
        deadline: in seconds of `time.monotonic()`; None for none.
    """

    def __init__(self, observer: Observer, deadline: float | None):
        super().__init__(observer)
        self.deadline = deadline

    def should_stop(self) -> bool:
        late = self.deadline is not None and time.monotonic() > self.deadline
        return late or super().should_stop()
