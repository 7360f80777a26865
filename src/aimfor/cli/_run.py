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
from aimfor.training import Kept, Look, Supervision, taken_up

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


class Run(Supervision):
    """Keeps the state of every stage in a folder, and all looks at the validation rows.

    Args:
        folder: of the checkpoints.
        shown: who shows progress.
    """

    def __init__(self, folder: Path, shown: Supervision):
        self.folder, self.shown = folder, shown
        self.stopped, self.done = False, False
        self._looks: dict[str, list[Look]] = {}
        self._last = time.monotonic()

    @property
    def begun_stages(self) -> bool:
        """Whether anything was kept that could be taken up again."""
        return any(self.folder.glob("*.safetensors"))

    @property
    def looks(self) -> list[Look]:
        """Of all stages, in their order."""
        return [look for own in self._looks.values() for look in own]

    def begun(self, stage: str) -> None:
        self.shown.begun(stage)

    def stepped(self, stage: str, step: int, steps: int) -> None:
        self.shown.stepped(stage, step, steps)

    def looked(self, looks: list[Look], best: float) -> None:
        self._looks.setdefault(looks[0].stage, []).extend(looks)
        self.shown.looked(looks, best)

    def stopping(self) -> bool:
        return self.stopped

    def due(self) -> bool:
        return time.monotonic() - self._last > SECONDS_BETWEEN

    def keep(self, stage: str, kept: Kept) -> None:
        looks = [_plain(look) for look in self._looks.get(stage, [])]
        self._checkpoint(stage).save({"training": dict(kept.facts), "looks": looks}, dict(kept.tensors))
        self._last = time.monotonic()

    def kept(self, stage: str) -> Kept | None:
        found = self._checkpoint(stage).load()
        if found is None:
            return None
        facts, tensors = found
        with taken_up(stage):
            self._looks[stage] = [_look(entries) for entries in facts["looks"]]
            return Kept(facts["training"], tensors)

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


def _plain(look: Look) -> list[Any]:
    """A look as JSON has it, which knows no nan."""
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in look]


def _look(entries: list[Any]) -> Look:
    numbers: list[Any] = [math.nan if value is None else value for value in entries]
    return Look(*numbers)
