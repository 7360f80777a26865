"""Tell, while training: one line with the time left, the exact validation metric and the violation."""

from __future__ import annotations

import math
from typing import Any


class Progress:
    """A progress bar as a context; inside, a function to be told of every look, or None when nothing is shown.

    Args:
        shown: whether to show anything.
        name: what is trained for.
    """

    def __init__(self, shown: bool, name: str):
        self.shown, self.name, self.bar, self.tasks = shown, name, None, {}

    def __enter__(self) -> Any:
        if not self.shown:
            return None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(),
        ]
        self.bar = Progress(*columns, console=Console(stderr=True))
        self.bar.start()
        return self._look

    def _look(self, stage: str, step: int, steps: int, value: float, violation: float) -> None:
        assert self.bar is not None
        if stage not in self.tasks:
            self.tasks[stage] = self.bar.add_task(stage, total=steps, told="")
        told = f"{self.name} {abs(value):.4f}"
        told += "" if math.isnan(violation) else f", violation {violation:+.3f}"
        self.bar.update(self.tasks[stage], completed=step, told=told)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()
