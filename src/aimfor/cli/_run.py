"""Run: training that survives a kill, stops when asked, and remembers its story."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aimfor._base.errors import ModelFileError
from aimfor.cli._checkpoint import Checkpoint
from aimfor.training import Evaluation, Observer, SavedState, resuming

fcntl: Any = None
with contextlib.suppress(ModuleNotFoundError):  # Windows has none
    import fcntl

# Between two checkpoints: what a kill can cost. Writing one takes some hundredths of a second.
SECONDS_BETWEEN = 5.0
LOCK = "lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Inside, no other run works in the folder; where one does, that is an error."""
    if fcntl is None:
        yield
        return
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ModelFileError(f"{folder.parent} must not be in use, got another run that writes to it") from None
        yield


class Run(Observer):
    """Keeps the state of every stage in a folder, and all looks at the validation rows.

    Args:
        folder: of the checkpoints.
        shown: who shows progress.
    """

    def __init__(self, folder: Path, shown: Observer):
        self.folder, self.shown = folder, shown
        self.stopped, self.done = False, False
        self._looks: dict[str, list[Evaluation]] = {}
        self._last = time.monotonic()

    @property
    def begun_stages(self) -> bool:
        """Whether anything was kept that could be taken up again."""
        return any(self.folder.glob("*.safetensors"))

    @property
    def looks(self) -> list[Evaluation]:
        """Of all stages, in their order."""
        return [look for own in self._looks.values() for look in own]

    def on_stage_begin(self, stage: str) -> None:
        self.shown.on_stage_begin(stage)

    def on_batch_end(self, stage: str, step: int, steps: int) -> None:
        self.shown.on_batch_end(stage, step, steps)

    def on_evaluation(self, evaluations: list[Evaluation], best: float) -> None:
        self._looks.setdefault(evaluations[0].stage, []).extend(evaluations)
        self.shown.on_evaluation(evaluations, best)

    def should_stop(self) -> bool:
        return self.stopped

    def should_save(self) -> bool:
        return time.monotonic() - self._last > SECONDS_BETWEEN

    def save(self, stage: str, state: SavedState) -> None:
        looks = [_plain(look) for look in self._looks.get(stage, [])]
        self._checkpoint(stage).save({"training": dict(state.facts), "looks": looks}, dict(state.tensors))
        self._last = time.monotonic()

    def saved(self, stage: str) -> SavedState | None:
        found = self._checkpoint(stage).load()
        if found is None:
            return None
        facts, tensors = found
        with resuming(stage):
            self._looks[stage] = [_look(entries) for entries in facts["looks"]]
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


def _plain(look: Evaluation) -> list[Any]:
    """A look as JSON has it, which knows no nan."""
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in look]


def _look(entries: list[Any]) -> Evaluation:
    numbers: list[Any] = [math.nan if value is None else value for value in entries]
    return Evaluation(*numbers)
