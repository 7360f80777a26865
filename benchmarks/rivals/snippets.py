"""What a user writes for each rival, as short as it can be and right; these very lines are counted and timed.

Given are the rows `X` [n, D] and labels `y` [n] as float tensors, a `model` with one output and the size of a batch.
Each function is the rest of a training script, imports included; the bare `yield` after a step, which lets the clock
look, is not counted, nor are definition and comments. The aim is recall at precision 0.9 where the rival can say so,
else what it has that is nearest. No snippet chooses a threshold on held-out rows, which everyone must.

Steps are timed in turns, one of each method, on one thread, in seconds of the processor, which a busy machine does not
stretch; a ratio compares medians. Memory is the peak of the
resident set over one step above what was there before it, in a fresh process and with batches of 4,096 rows, where it
shows.
"""

import inspect
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

ROWS, FEATURES = 20_000, 30
BATCH_SIZE, MEMORY_BATCH_SIZE = 256, 4_096
TURNS, WARMUP = 200, 5
SLOW, SLOW_TURNS = 0.2, 3  # seconds of a step above which a method takes part in the first turns only
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # gives memory back at once

Snippet = Callable[[Tensor, Tensor, nn.Module, int], Iterator[None]]


def bce(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    loss = nn.BCEWithLogitsLoss()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for rows in torch.randperm(len(X)).split(size):
        optimiser.zero_grad()
        loss(model(X[rows]).squeeze(1), y[rows]).backward()
        optimiser.step()
        yield


def balanced_bce(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    loss = nn.BCEWithLogitsLoss(pos_weight=(1 - y).sum() / y.sum())
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for rows in torch.randperm(len(X)).split(size):
        optimiser.zero_grad()
        loss(model(X[rows]).squeeze(1), y[rows]).backward()
        optimiser.step()
        yield


def focal(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    from imbalanced_losses import SigmoidFocalLoss  # pyright: ignore[reportMissingImports]

    loss = SigmoidFocalLoss(alpha=0.25, gamma=2.0, reduction="mean")
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for rows in torch.randperm(len(X)).split(size):
        optimiser.zero_grad()
        loss(model(X[rows]).squeeze(1), y[rows]).backward()
        optimiser.step()
        yield


def ours(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    import aimfor

    loss = aimfor.Loss("recall@precision>=0.9")
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for rows in torch.randperm(len(X)).split(size):
        optimiser.zero_grad()
        loss(model(X[rows]).squeeze(1), y[rows]).backward()
        optimiser.step()
        yield


def libauc_aucm(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    from libauc.losses import AUCMLoss  # pyright: ignore[reportMissingImports]
    from libauc.optimizers import PESG  # pyright: ignore[reportMissingImports]
    from libauc.sampler import DualSampler  # pyright: ignore[reportMissingImports]

    loss = AUCMLoss(version="v2")
    optimiser = PESG(model.parameters(), loss_fn=loss, lr=0.1, verbose=False)
    sampler = DualSampler(None, size, labels=y.numpy(), sampling_rate=0.5)
    for rows in torch.tensor(list(sampler)).split(size):
        optimiser.zero_grad()
        loss(model(X[rows]).sigmoid(), y[rows]).backward()
        optimiser.step()
        yield


def libauc_ap(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    from libauc.losses import APLoss  # pyright: ignore[reportMissingImports]
    from libauc.optimizers import SOAP  # pyright: ignore[reportMissingImports]
    from libauc.sampler import DualSampler  # pyright: ignore[reportMissingImports]

    loss = APLoss(data_len=len(X))
    optimiser = SOAP(model.parameters(), lr=0.01, verbose=False)
    sampler = DualSampler(None, size, labels=y.numpy(), sampling_rate=0.5)
    for rows in torch.tensor(list(sampler)).split(size):
        optimiser.zero_grad()
        loss(model(X[rows]).sigmoid(), y[rows], index=rows).backward()
        optimiser.step()
        yield


def libauc_pauc(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    from libauc.losses import pAUCLoss  # pyright: ignore[reportMissingImports]
    from libauc.optimizers import SOPAs  # pyright: ignore[reportMissingImports]
    from libauc.sampler import DualSampler  # pyright: ignore[reportMissingImports]

    loss = pAUCLoss("1w", data_len=len(X))
    optimiser = SOPAs(model.parameters(), lr=0.01, verbose=False)
    sampler = DualSampler(None, size, labels=y.numpy(), sampling_rate=0.5)
    for rows in torch.tensor(list(sampler)).split(size):
        optimiser.zero_grad()
        loss(model(X[rows]).sigmoid(), y[rows], index=rows).backward()
        optimiser.step()
        yield


def cooper_rates(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    import cooper  # pyright: ignore[reportMissingImports]

    share = y.mean()

    class Problem(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            multiplier = cooper.multipliers.DenseMultiplier(num_constraints=1)
            self.precision = cooper.Constraint(cooper.ConstraintType.INEQUALITY, multiplier=multiplier)

        def violation(self, fn: Tensor, fp: Tensor) -> Tensor:
            return (0.9 * fp * (1 - share) / share - 0.1 * (1 - fn)).reshape(1)

        def compute_cmp_state(self, rows: Tensor) -> Any:
            scores, target = model(X[rows]).squeeze(1), y[rows]
            fn = ((1 - scores).relu() * target).mean() / share
            fp = ((1 + scores).relu() * (1 - target)).mean() / (1 - share)
            exact_fn = ((scores < 0) * target).mean() / share
            exact_fp = ((scores >= 0) * (1 - target)).mean() / (1 - share)
            proxy, exact = self.violation(fn, fp), self.violation(exact_fn, exact_fp)
            state = cooper.ConstraintState(violation=proxy, strict_violation=exact)
            return cooper.CMPState(loss=fn, observed_constraints={self.precision: state})

    problem = Problem()
    primal = torch.optim.Adam(model.parameters(), lr=0.01)
    dual = torch.optim.SGD(problem.dual_parameters(), lr=0.01, maximize=True)
    optimiser = cooper.optim.SimultaneousOptimizer(cmp=problem, primal_optimizers=primal, dual_optimizers=dual)
    for rows in torch.randperm(len(X)).split(size):
        optimiser.roll(compute_cmp_state_kwargs={"rows": rows})
        yield


def imbalanced(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    from imbalanced_losses import LossWarmupWrapper, SmoothAPLoss  # pyright: ignore[reportMissingImports]

    class LogLoss(nn.Module):
        def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
            return nn.functional.binary_cross_entropy_with_logits(scores.squeeze(1), labels.float())

    loss = LossWarmupWrapper(LogLoss(), SmoothAPLoss(num_classes=1), warmup_steps=0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number, rows in enumerate(torch.randperm(len(X)).split(size)):
        loss.on_train_batch_start(number)
        optimiser.zero_grad()
        loss(model(X[rows]), y[rows].long()).backward()
        optimiser.step()
        yield


def ap_perf(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    from ap_perf import MetricLayer, PerformanceMetric  # pyright: ignore[reportMissingImports]

    class F1(PerformanceMetric):
        def define(self, C: Any) -> Any:
            return 2 * C.tp / (C.ap + C.pp)

    metric = F1()
    metric.initialize()
    metric.enforce_special_case_positive()
    loss = MetricLayer(metric)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for rows in torch.randperm(len(X)).split(size):
        optimiser.zero_grad()
        loss(model(X[rows]).squeeze(1), y[rows]).backward()
        optimiser.step()
        yield


def tuned_threshold(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import make_scorer, precision_score, recall_score
    from sklearn.model_selection import TunedThresholdClassifierCV

    def recall_at_precision(labels: Any, predicted: Any) -> float:
        return float(recall_score(labels, predicted)) * (precision_score(labels, predicted) >= 0.9)

    scoring: Any = make_scorer(recall_at_precision)
    TunedThresholdClassifierCV(LogisticRegression(), scoring=scoring).fit(X, y)
    yield


def boosted_trees(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    from lightgbm import LGBMClassifier

    LGBMClassifier(verbose=-1, n_jobs=1).fit(X.numpy(), y.numpy())
    yield


def our_classifier(X: Tensor, y: Tensor, model: nn.Module, size: int) -> Iterator[None]:
    import aimfor

    aimfor.Classifier("recall@precision>=0.9").fit(X.numpy(), y.numpy())
    yield


SNIPPETS: dict[str, Snippet] = {
    "BCE": bce,
    "balanced BCE": balanced_bce,
    "focal": focal,
    "LibAUC AUCM": libauc_aucm,
    "LibAUC AP": libauc_ap,
    "LibAUC pAUC": libauc_pauc,
    "Cooper": cooper_rates,
    "imbalanced-losses": imbalanced,
    "AP-Perf": ap_perf,
    "scikit-learn": tuned_threshold,
    "LightGBM": boosted_trees,
    "aimfor": ours,
    "aimfor.Classifier": our_classifier,
}
PACKAGES: dict[str, str | None] = {
    "BCE": None,
    "balanced BCE": None,
    "focal": "imbalanced-losses",
    "LibAUC AUCM": "libauc",
    "LibAUC AP": "libauc",
    "LibAUC pAUC": "libauc",
    "Cooper": "cooper-optim",
    "imbalanced-losses": "imbalanced-losses",
    "AP-Perf": "ap_perf",
    "scikit-learn": "scikit-learn",
    "LightGBM": "lightgbm",
    "aimfor": "aimfor",
    "aimfor.Classifier": "aimfor",
}
WITHOUT_STEPS = ("scikit-learn", "LightGBM", "aimfor.Classifier")
WITHOUT_MEMORY = (*WITHOUT_STEPS, "AP-Perf")  # whose step at 4,096 rows would take an hour


def measured(methods: tuple[str, ...]) -> dict[str, dict[str, object]]:
    """Lines of each method; of those with steps their time, its ratio to that of log-loss, and their memory."""
    times = step_times([method for method in methods if method not in WITHOUT_STEPS])
    found: dict[str, dict[str, object]] = {}
    for method in methods:
        found[method] = {"lines": lines(SNIPPETS[method])}
        if method in WITHOUT_STEPS:
            next(steps(method))  # what is counted runs
        else:
            found[method] |= compared(times[method], times["BCE"])
        if method not in WITHOUT_MEMORY:
            found[method]["peak_mb"] = float(_peak_of(method)) / 1e6
    return found


def lines(snippet: Snippet) -> int:
    """Lines of the body, without those that are empty, comments, or there for the clock."""
    body = inspect.getsource(snippet).splitlines()[1:]
    return sum(bool(line.strip()) and line.strip() != "yield" and not line.strip().startswith("#") for line in body)


def step_times(methods: list[str]) -> dict[str, list[float]]:
    """Seconds of each step, taken in turns so that a slow minute of the machine meets all methods."""
    running = {method: steps(method) for method in methods}
    times: dict[str, list[float]] = {method: [] for method in methods}
    slow = {method for method in methods if statistics.median(_timed(running[method]) for _ in range(3)) > SLOW}
    for turn in range(WARMUP + TURNS):
        for method in methods:
            if method not in slow or turn < SLOW_TURNS:
                seconds = _timed(running[method])
                if turn >= WARMUP or method in slow:
                    times[method].append(seconds)
    return times


def compared(own: list[float], reference: list[float]) -> dict[str, object]:
    """Median in microseconds, ratio of medians, quartiles of the own times over the reference's median."""
    middle = statistics.median(reference)
    low, _, high = statistics.quantiles(own, n=4)
    return {
        "microseconds": 1e6 * statistics.median(own),
        "time_ratio": statistics.median(own) / middle,
        "time_low": low / middle,
        "time_high": high / middle,
    }


def sampler_without_torchvision() -> None:
    """Make LibAUC's sampler importable: its file wants torchvision, for image folders only.

    That package's wheel often does not fit a torch for the CPU; then an empty module stands in.
    """
    try:
        import torchvision  # pyright: ignore[reportMissingImports] # noqa: F401
    except (ImportError, RuntimeError):
        sys.modules["torchvision"] = ModuleType("torchvision")


def steps(method: str, size: int = BATCH_SIZE) -> Iterator[None]:
    """The steps of a snippet on a linear model, epoch after epoch."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS, FEATURES, generator=generator)
    y = (X[:, 0] + torch.randn(ROWS, generator=generator) > 2.3).float()  # 5 % of the rows
    model = nn.Linear(FEATURES, 1)
    sampler_without_torchvision()
    while True:
        yield from SNIPPETS[method](X, y, model, size)


def _timed(running: Iterator[None]) -> float:
    start = time.process_time()
    next(running)
    return time.process_time() - start


def peak(method: str) -> None:
    """Print the peak of one step above what was there before it, in bytes; run in a process of its own."""
    torch.set_num_threads(1)
    running = steps(method, MEMORY_BATCH_SIZE)
    for _ in range(3):
        next(running)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = _resident("VmRSS")
    next(running)
    print(_resident("VmHWM") - before)


def _resident(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))


def _peak_of(method: str) -> int:
    command = [sys.executable, "-m", "benchmarks.rivals.snippets", "--peak", method]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **ALLOCATOR})
    return int(done.stdout.split()[-1])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--peak"]:
        peak(sys.argv[2])
