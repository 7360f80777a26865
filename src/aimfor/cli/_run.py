"""Training that survives a kill, stops on request, and records its history."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aimfor._base.errors import ModelFileError
from aimfor._base.files import NO_LINK, OtherPath
from aimfor._base.json import json_ready
from aimfor.cli._checkpoint import Checkpoint
from aimfor.cli._work_folder import LOCK
from aimfor.training import Evaluation, Observer, SavedState, resuming

fcntl: Any = None
with contextlib.suppress(ModuleNotFoundError):  # Windows has none
    import fcntl

# Between two checkpoints: what a kill can cost. Writing one takes some hundredths of a second.
SECONDS_BETWEEN = 5.0


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Inside, no other run works in the folder; where one does, that is an error."""
    if fcntl is None or isinstance(folder, OtherPath):  # object storage knows no locks
        yield
        return
    # Neither emptied nor followed: where a link of this name points, someone else's file lies.
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
    except OSError as error:
        raise ModelFileError(f"{folder / LOCK} cannot be opened as a lock: {error.strerror}") from error
    try:
        _lock(handle, folder.parent)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, out: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ModelFileError(f"another run is writing to {out}: wait for it, or choose another folder") from None


class Run(Observer):
    """Keeps the state of every stage in a folder, and all evaluations on the validation rows.

    Args:
        folder: of the checkpoints.
        shown: who shows progress.
    """

    def __init__(self, folder: Path, shown: Observer):
        self.folder, self.shown = folder, shown
        self.stopped, self.done = False, False
        self._evaluations: dict[str, list[Evaluation]] = {}
        self._last = time.monotonic()

    @property
    def begun_stages(self) -> bool:
        """Whether anything was kept that could be taken up again."""
        return any(self.folder.glob("*.safetensors"))

    @property
    def evaluations(self) -> list[Evaluation]:
        """Of all stages, in their order."""
        return [one for stage in self._evaluations.values() for one in stage]

    def on_stage_begin(self, stage: str) -> None:
        self.shown.on_stage_begin(stage)

    def on_batch_end(self, stage: str, step: int, steps: int) -> None:
        self.shown.on_batch_end(stage, step, steps)

    def on_evaluation(self, evaluations: list[Evaluation], best: float) -> None:
        self._evaluations.setdefault(evaluations[0].stage, []).extend(evaluations)
        self.shown.on_evaluation(evaluations, best)

    def should_stop(self) -> bool:
        return self.stopped

    def should_save(self) -> bool:
        return time.monotonic() - self._last > SECONDS_BETWEEN

    def save(self, stage: str, state: SavedState) -> None:
        evaluations = [json_ready(one) for one in self._evaluations.get(stage, [])]
        self._checkpoint(stage).save({"training": dict(state.facts), "evaluations": evaluations}, dict(state.tensors))
        self._last = time.monotonic()

    def saved(self, stage: str) -> SavedState | None:
        found = self._checkpoint(stage).load()
        if found is None:
            return None
        facts, tensors = found
        with resuming(stage):
            self._evaluations[stage] = [_evaluation(entries) for entries in facts["evaluations"]]
            return SavedState(facts["training"], tensors)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside, the first Ctrl-C asks training to stop with the best so far; the second ends the program."""

        def ask(number: int, frame: Any) -> None:
            self.stopped = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = signal.signal(signal.SIGINT, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _checkpoint(self, stage: str) -> Checkpoint:
        return Checkpoint(self.folder / f"{stage.replace(' ', '-')}.safetensors")


def _evaluation(entries: list[Any]) -> Evaluation:
    texts, numbers = entries[:2], [math.nan if value is None else value for value in entries[2:]]
    if not all(isinstance(one, str) for one in texts) or not all(isinstance(one, (int, float)) for one in numbers):
        raise TypeError("an evaluation must be two names and numbers")
    return Evaluation(*texts, *numbers)
