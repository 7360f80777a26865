"""What the benchmarks share: linear heads trained side by side, the table of finished cells, numbers with a spread.

A grid of (rate, decay) is trained as heads of one linear model: one matrix product serves all of them, each head has
its own rate and decay, and no head sees another's gradient. Decay is decoupled (AdamW), so that it means the same for
losses of any scale.
"""

import csv
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch
from scipy import stats
from torch import Tensor

import aimfor

RESULTS = Path(__file__).resolve().parent / "results"

HeadsLoss = Callable[[Tensor, Tensor], Tensor]
"""Scores [B, G, L] of G heads and labels [B] -> the sum over heads of each head's own loss."""


class Setting(NamedTuple):
    """Learning rate at the start (it falls to 0 along a half cosine) and decoupled weight decay."""

    rate: float
    decay: float


class Heads(NamedTuple):
    """G linear models: weight [D, G, L], bias [G, L]."""

    weight: Tensor
    bias: Tensor

    def scores(self, features: Tensor) -> Tensor:
        """Features [n, D] -> scores [n, G, L]."""
        flat = torch.addmm(self.bias.flatten(), features, self.weight.flatten(1))
        return flat.unflatten(1, self.bias.shape)


def train_heads(
    features: Tensor,
    labels: Tensor,
    loss: HeadsLoss,
    settings: Sequence[Setting],
    *,
    num_labels: int,
    steps: int,
    seed: int,
    batch_size: int = 128,
) -> Heads:
    """Train one linear head per setting on the same batches from the same start."""
    generator = torch.Generator().manual_seed(seed)
    bound = features.shape[1] ** -0.5
    start = torch.empty(features.shape[1] + 1, 1, num_labels).uniform_(-bound, bound, generator=generator)
    start = start.repeat(1, len(settings), 1)
    weight = start[:-1].clone().requires_grad_()
    bias = start[-1].clone().requires_grad_()
    rates = torch.tensor([setting.rate for setting in settings])[:, None]
    decays = torch.tensor([setting.decay for setting in settings])[:, None]
    optimiser = AdamW([weight, bias], [rates * decays, torch.zeros_like(rates)], rates)
    heads = Heads(weight, bias)
    for step, rows in zip(range(steps), _batches(len(features), batch_size, generator), strict=False):
        loss(heads.scores(features[rows]), labels[rows]).backward()
        optimiser.step_(0.5 * (1 + math.cos(math.pi * step / steps)))
    return Heads(weight.detach(), bias.detach())


class AdamW:
    """AdamW whose rate and decay differ between heads."""

    def __init__(self, parameters: list[Tensor], shrinkage: list[Tensor], rates: Tensor):
        self.parameters, self.shrinkage, self.rates, self.count = parameters, shrinkage, rates, 0
        self.means = [torch.zeros_like(parameter) for parameter in parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step_(self, schedule: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        self.count += 1
        size = schedule / (1 - beta1**self.count)
        root = math.sqrt(1 - beta2**self.count)
        for parameter, shrinkage, mean, square in zip(
            self.parameters, self.shrinkage, self.means, self.squares, strict=True
        ):
            gradient = parameter.grad
            assert gradient is not None
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            parameter.mul_(1 - schedule * shrinkage)
            parameter.sub_((mean / square.sqrt().div_(root).add_(epsilon)).mul_(size * self.rates))
            parameter.grad = None


def _batches(rows: int, batch_size: int, generator: torch.Generator) -> Iterable[Tensor]:
    batch_size = min(batch_size, rows)
    while True:
        order = torch.randperm(rows, generator=generator)
        yield from order[: rows - rows % batch_size].split(batch_size)


class Cells:
    """Finished cells of a benchmark, kept as rows of a CSV file; a run that was stopped goes on where it was.

    Args:
        path: the file; None to keep nothing (short runs).
    """

    def __init__(self, path: Path | None):
        self.path = path
        self.rows: list[dict[str, str]] = []
        if path is not None and path.is_file():
            with path.open(newline="") as file:
                self.rows = list(csv.DictReader(file))

    def find(self, **where: object) -> list[dict[str, str]]:
        """The finished cells whose columns have these values."""
        return [row for row in self.rows if all(row[name] == _text(value) for name, value in where.items())]

    def add(self, **cell: object) -> None:
        """Keep a finished cell, with the command and the versions that made it."""
        row = {name: _text(value) for name, value in (cell | provenance()).items()}
        self._write([row], "a" if self.rows else "w")
        self.rows.append(row)

    def drop(self, **where: object) -> None:
        """Forget cells, so that they are run again."""
        dropped = self.find(**where)
        self.rows = [row for row in self.rows if row not in dropped]
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        self._write(self.rows, "w")

    def _write(self, rows: list[dict[str, str]], mode: str) -> None:
        if self.path is None or not rows:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open(mode, newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@lru_cache(maxsize=1)
def provenance() -> dict[str, object]:
    """The command that runs, the versions it runs with, of aimfor the commit too, and the machine."""
    script = Path(sys.argv[0]).resolve()
    command = shlex.join(["python", f"{script.parent.name}/{script.name}", *sys.argv[1:]])
    return {
        "command": command,
        "python": platform.python_version(),
        **{package: _version(package) for package in ("torch", "numpy", "scikit-learn")},
        "aimfor": f"{_version('aimfor')} {_commit()}".rstrip(),
        "machine": f"{platform.machine()} {os.cpu_count()} cores, {_processor()}",
    }


def _commit() -> str:
    """The last commit of the package that is imported; empty outside git."""
    asked = ["git", "-C", str(Path(aimfor.__file__).parent), "log", "-1", "--abbrev=8", "--format=%h", "--", "."]
    try:
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _processor() -> str:
    """Its name as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "source"


class Spread(NamedTuple):
    """Mean of some numbers, their standard deviation, standard error of the mean, and how many they are."""

    mean: float
    deviation: float
    error: float
    count: int

    @property
    def sign(self) -> int:
        """1 or -1 where the mean is clear of 0 by Student's t, level 0.05: of three numbers by 4.3 standard errors, of
        two by 12.7. One number has no error and is clear of nothing."""
        limit = float(stats.t.ppf(0.975, self.count - 1)) * self.error
        return int(self.mean > limit) - int(self.mean < -limit)

    def times(self, factor: float) -> "Spread":
        """The same in other units."""
        return Spread(factor * self.mean, factor * self.deviation, factor * self.error, self.count)


def spread(values: Iterable[float]) -> Spread:
    """Mean, standard deviation and standard error; nan for the last two when there is one value only."""
    values = list(values)
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    return Spread(statistics.fmean(values), deviation, deviation / math.sqrt(len(values)), len(values))


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table of aligned columns, the first to the left."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    print(f"\n{title}")
    for first, *others in lines:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *cells]))
