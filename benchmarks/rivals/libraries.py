"""The rivals that are libraries with losses of their own: LibAUC, imbalanced-losses, Cooper."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.rivals.snippets import sampler_without_torchvision
from benchmarks.rivals.training import (
    AREA_AIMS,
    BATCH_SIZE,
    DUAL_RATES,
    EPOCH_DECAYS,
    GAMMAS_AP,
    LAMBDAS,
    PESG_RATES,
    RARE,
    RATES,
    STEPS,
    TEMPERATURES,
    Models,
    Run,
    Task,
    shuffled,
    trained,
)
from benchmarks.shared.baselines import Candidate

# Losses with a state for one model: as many of them as models.


def libauc(task: Task, start_one: Callable[[nn.Module, float, float], tuple[Any, Any]], grid: list, second: str):
    """Candidates of a LibAUC loss; `start_one` gives loss and optimiser for a model and its two settings."""

    def start(models: Models) -> Run:
        pairs = [start_one(model, *settings) for model, settings in zip(models.each, grid, strict=True)]
        optimisers = [optimiser for _, optimiser in pairs]

        def step(rows: Tensor, number: int) -> None:
            for optimiser in optimisers:
                optimiser.zero_grad()
            probabilities = models.scores(task.X[rows]).sigmoid()
            target = task.y[rows]
            values = [loss(probabilities[:, place], target, index=rows) for place, (loss, _) in enumerate(pairs)]
            torch.stack([value.squeeze() for value in values]).sum().backward()
            for optimiser in optimisers:
                optimiser.step()
                if number in (STEPS // 2, 3 * STEPS // 4) and optimiser.param_groups[0]["epoch_decay"] > 0:
                    optimiser.update_regularizer()

        return Run(step, optimisers, dual_batches(task))

    return trained(task, [f"rate={rate:g} {second}={other:g}" for rate, other in grid], start)


def dual_batches(task: Task) -> Iterator[Tensor]:
    """Batches of LibAUC's sampler: half of each are positives."""
    sampler_without_torchvision()
    from libauc.sampler import DualSampler  # pyright: ignore[reportMissingImports]

    sampler = DualSampler(None, BATCH_SIZE, labels=task.y.numpy(), sampling_rate=0.5, random_seed=task.seed)
    while True:
        yield from torch.from_numpy(np.array(list(sampler))).split(BATCH_SIZE)


def _libauc_losses() -> Any:
    from libauc.losses import auc  # pyright: ignore[reportMissingImports]

    # They count positives by Python's sum over a tensor, row by row, which takes most of a step. Torch's gives the same
    # number; the table of costs has them as they come.
    auc.sum = torch.sum
    return auc


def libauc_aucm(task: Task, aim: str) -> list[Candidate]:
    from libauc.optimizers import PESG  # pyright: ignore[reportMissingImports]

    def start(model: nn.Module, rate: float, epoch_decay: float):
        loss = _libauc_losses().AUCMLoss(version="v2")
        return loss, PESG(model.parameters(), loss_fn=loss, lr=rate, epoch_decay=epoch_decay, verbose=False)

    return libauc(task, start, list(product(PESG_RATES, EPOCH_DECAYS)), "epoch_decay")


def libauc_ap(task: Task, aim: str) -> list[Candidate]:
    from libauc.optimizers import SOAP  # pyright: ignore[reportMissingImports]

    def start(model: nn.Module, rate: float, gamma: float):
        loss = _libauc_losses().APLoss(len(task.X), gamma=gamma)
        return loss, SOAP(model.parameters(), lr=rate, mode="adam", verbose=False)

    return libauc(task, start, list(product(RATES[task.model], GAMMAS_AP)), "gamma")


def libauc_pauc(task: Task, aim: str) -> list[Candidate]:
    from libauc.optimizers import SOPAs  # pyright: ignore[reportMissingImports]

    def start(model: nn.Module, rate: float, weight: float):
        loss = _libauc_losses().pAUCLoss("1w", data_len=len(task.X), Lambda=weight)
        return loss, SOPAs(model.parameters(), lr=rate, mode="adam", verbose=False)

    return libauc(task, start, list(product(RATES[task.model], LAMBDAS)), "lambda")


class Flat(nn.Module):
    """Log-loss of scores [n, 1] and whole-number labels [n], as the wrapper of imbalanced-losses hands them over."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(scores[:, 0], labels.float())


def imbalanced(task: Task, aim: str) -> list[Candidate]:
    from imbalanced_losses import (  # pyright: ignore[reportMissingImports]
        LossWarmupWrapper,
        PAUCAtBudgetLoss,
        SmoothAPLoss,
    )

    grid = list(product(TEMPERATURES, RATES[task.model]))
    names = [f"rate={rate:g} temperature={temperatures[0]:g}" for temperatures, rate in grid]

    def make(temperatures: tuple[float, float]) -> Any:
        queue = 1024 if task.share < RARE else 0
        area = aim in AREA_AIMS
        main = SmoothAPLoss(1, queue_size=queue) if area else PAUCAtBudgetLoss(1, beta=0.01, queue_size=1024)
        warmup, blend = STEPS // 4, STEPS // 8
        schedule = {"warmup_steps": warmup, "blend_steps": blend, "temp_decay_steps": STEPS - warmup}
        return LossWarmupWrapper(Flat(), main, temp_start=temperatures[0], temp_end=temperatures[1], **schedule)

    def start(models: Models) -> Run:
        losses = [make(temperatures) for temperatures, _ in grid]
        groups = [
            {"params": list(model.parameters()), "lr": rate, "weight_decay": 0.0}
            for model, (_, rate) in zip(models.each, grid, strict=True)
        ]
        optimiser = torch.optim.AdamW(groups, fused=True)

        def step(rows: Tensor, number: int) -> None:
            optimiser.zero_grad()
            scores, labels = models.scores(task.X[rows]), task.y[rows].long()
            values = []
            for place, loss in enumerate(losses):
                loss.on_train_batch_start(number)
                values.append(loss(scores[:, [place]], labels))
            torch.stack(values).sum().backward()
            optimiser.step()

        return Run(step, [optimiser], shuffled(task))

    return trained(task, names, start)


# Cooper: an optimiser for constraints, which the user writes.


def cooper_rates(task: Task, aim: str) -> list[Candidate]:
    import cooper  # pyright: ignore[reportMissingImports]

    grid = list(product(DUAL_RATES, RATES[task.model]))
    share = task.share

    def start(models: Models) -> Run:
        constraints = [
            cooper.Constraint(
                cooper.ConstraintType.INEQUALITY,
                multiplier=cooper.multipliers.DenseMultiplier(num_constraints=len(RATES[task.model])),
            )
            for _ in DUAL_RATES
        ]

        class Problem(cooper.ConstrainedMinimizationProblem):
            """Errors of every model at score 0; models of one dual rate share a constraint of several entries."""

            def __init__(self) -> None:
                super().__init__()
                self.slow, self.fast = constraints

            def compute_cmp_state(self, rows: Tensor) -> Any:
                scores, y = models.scores(task.X[rows]), task.y[rows, None]
                bounds = _errors((1 - scores).relu(), (1 + scores).relu(), y, share)
                exact = _errors((scores < 0).float(), (scores >= 0).float(), y, share)
                objective, proxy = _objective_and_violation(aim, *bounds, share)
                violation = _objective_and_violation(aim, *exact, share)[1]
                states = {
                    constraint: cooper.ConstraintState(violation=a, strict_violation=b)
                    for constraint, a, b in zip(constraints, proxy.chunk(2), violation.chunk(2), strict=True)
                }
                return cooper.CMPState(loss=objective.sum(), observed_constraints=states)

        groups = [{"params": list(m.parameters()), "lr": rate} for m, (_, rate) in zip(models.each, grid, strict=True)]
        primal = torch.optim.Adam(groups, fused=True)
        duals = [
            torch.optim.SGD(constraint.multiplier.parameters(), lr=rate, maximize=True)
            for constraint, rate in zip(constraints, DUAL_RATES, strict=True)
        ]
        optimiser = cooper.optim.SimultaneousOptimizer(cmp=Problem(), primal_optimizers=primal, dual_optimizers=duals)

        def step(rows: Tensor, number: int) -> None:
            optimiser.roll(compute_cmp_state_kwargs={"rows": rows})

        return Run(step, [primal], shuffled(task))

    return trained(task, [f"rate={rate:g} dual={dual:g}" for dual, rate in grid], start)


def _errors(missed: Tensor, alarmed: Tensor, y: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Rates of missed positives and of alarmed negatives; by the share of all rows, as a batch may lack a class."""
    return (missed * y).mean(0) / share, (alarmed * (1 - y)).mean(0) / (1 - share)


def _objective_and_violation(aim: str, fn: Tensor, fp: Tensor, share: float) -> tuple[Tensor, Tensor]:
    if aim == "recall@precision>=0.9":
        return fn, 0.9 * fp * (1 - share) / share - 0.1 * (1 - fn)
    if aim == "precision@recall>=0.9":
        return fp, fn - 0.1
    return fn, fp - 0.01
