"""Progress of training: one line per stage with the time left, the validation metric and the violation."""

from __future__ import annotations

import math
from typing import Any

from aimfor.training import Evaluation, Observer


class Progress(Observer):
    """Shows progress on the error stream while it is entered as a context.

    Args:
        name: what is trained for.
    """

    def __init__(self, name: str):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(),
        ]
        self.name, self.tasks = name, {}
        self.bar = Progress(*columns, console=Console(stderr=True))

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def on_stage_begin(self, stage: str) -> None:
        for task in self.tasks.values():  # what came before is over, also where it had no steps
            if self.bar.tasks[task].total is None:
                self.bar.update(task, total=1, completed=1)
        self._task(stage)

    def on_batch_end(self, stage: str, step: int, steps: int) -> None:
        self.bar.update(self._task(stage), completed=step, total=steps)

    def on_evaluation(self, evaluations: list[Evaluation], best: float) -> None:
        violation = max(evaluations, key=lambda one: one.value).violation
        told = f"{self.name} {abs(best):.4f}"
        told += "" if math.isnan(violation) else f", violation {violation:+.3f}"
        self.bar.update(self._task(evaluations[0].stage), told=told)

    def _task(self, stage: str) -> Any:
        if stage not in self.tasks:
            self.tasks[stage] = self.bar.add_task(stage, total=None, told="")
        return self.tasks[stage]
