"""The methods of the rivals table: each trains a grid of six settings on the same rows and gives scores to choose from.

Every trained method makes the same number of steps with batches of the same size, from the same start, with a rate that
falls to 0 along half a cosine. A grid is three rates and two values of the setting that matters next for the method:
decay for log-loss, no log-loss at the start or half of the steps for ours, what the authors tell one to tune for the
others. The rates were set while looking at validation rows of one more split of mammography. The models of a grid are
trained side by side, their scores in one product; none sees another's gradient, and each has its own optimiser or group
of one.

- Log-loss, balanced log-loss, focal loss, ours: AdamW.
- LibAUC: its losses on probabilities with its own optimisers, indices, and its DualSampler, which fills half of every
  batch with positives. PESG renews its reference point after half and three quarters of the steps, as its tutorials do.
- Cooper: errors at score 0 as hand-written rates, hinge bounds for the model and true rates for the multipliers.
- imbalanced-losses: its wrapper, which starts with log-loss and blends into the ranking loss while the temperature
  falls: smooth AP, and for a limit on the false-positive rate its partial area. Smooth AP's queue of earlier batches,
  meant for rare positives, is used where they are fewer than a tenth; elsewhere it would mostly be slow.
- Logistic regression, converged, with scikit-learn's TunedThresholdClassifierCV on the rows that choose; LightGBM.

Rivals are imported where they are used; one that is not installed is skipped.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV
from torch import Tensor, nn
from torch.nn import functional as F

import aimfor
from benchmarks.rivals.snippets import sampler_without_torchvision
from benchmarks.shared.baselines import MAX_ITERATIONS, NEWTON_FEATURES, TOLERANCE, Candidate, scaled
from benchmarks.shared.sets import Features
from benchmarks.suite import suite

STEPS, BATCH_SIZE, HIDDEN = 1_000, 256, 64
RATES = {"linear": (0.03, 0.1, 0.3), "mlp": (1e-3, 3e-3, 1e-2)}
DECAYS = {"linear": (0.0, 0.1), "mlp": (0.0, 1.0)}
# PESG steps like SGD on probabilities, whose gradients are small; 0.1 is its authors' rate.
PESG_RATES, EPOCH_DECAYS = (0.03, 0.1, 0.3), (2e-3, 2e-2)
DUAL_RATES = (0.01, 0.1)
LOG_LOSS_BATCHES = (0, STEPS // 2)
RARE = 0.1
TEMPERATURES = ((0.05, 0.005), (0.5, 0.05))
GAMMAS_FOCAL, GAMMAS_AP, LAMBDAS = (1.0, 2.0), (0.1, 0.9), (0.1, 1.0)
C_GRID = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2)
TREES, LEAVES = (100, 300), (7, 15, 31)
CONSTRAINED = ("recall@precision>=0.9", "precision@recall>=0.9", "tpr@fpr<=0.01")
AREA_AIMS = ("aucpr", "recall@precision>=0.9", "precision@recall>=0.9", "f1")


class Task(NamedTuple):
    """One split of a set, scaled by its training rows, as dense tensors and as it came; and the model to train."""

    split: suite.Split
    X: Tensor
    y: Tensor
    X_validation: Tensor
    X_test: Tensor
    model: str
    seed: int

    @property
    def share(self) -> float:
        """Share of positives among the training rows."""
        return float(self.y.mean())


class Run(NamedTuple):
    """Training under way: what a step does with its rows and number, optimisers whose rates fall, and the batches."""

    step: Callable[[Tensor, int], None]
    optimisers: list[torch.optim.Optimizer]
    batches: Iterator[Tensor]


class Method(NamedTuple):
    """How a method gets its candidates for an aim.

    Attributes:
        train: the candidates of its grid.
        package: what it needs, as a distribution; None for torch alone.
        shared: aims that one training serves, group by group; aims in no group are not served.
        models: the kinds of model it trains.
        threshold: its own way to choose one on the rows that choose; None for that of the table.
    """

    train: Callable[[Task, str], list[Candidate]]
    package: str | None
    shared: tuple[tuple[str, ...], ...]
    models: tuple[str, ...] = ("linear", "mlp")
    threshold: Callable[[Task, str, Candidate], float] | None = None


class Models:
    """G models of one shape from one start, and their scores in one product."""

    def __init__(self, features: int, kind: str, count: int, seed: int):
        self.kind = kind
        self.each = [_model(features, kind, seed) for _ in range(count)]
        self.by_place = list(zip(*(model.parameters() for model in self.each), strict=True))

    def scores(self, X: Tensor) -> Tensor:
        """Rows [n, D] -> scores [n, G]."""
        weight, bias, *out = (torch.cat(parameters) for parameters in self.by_place)
        if self.kind == "linear":
            return F.linear(X, weight, bias)
        out_weight, out_bias = out
        hidden = F.linear(X, weight, bias).relu().unflatten(1, out_weight.shape)
        return torch.einsum("ngh,gh->ng", hidden, out_weight) + out_bias


def _model(features: int, kind: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if kind == "linear":
        return nn.Linear(features, 1)
    return nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))


def prepared(split: suite.Split, model: str, seed: int) -> Task:
    """Features scaled by the training rows, dense."""
    parts = scaled(*(part.X for part in split))
    fit, validation, test = (_dense(X) for X in parts)
    return Task(split, fit, torch.from_numpy(split.fit.Y[:, 0]).float(), validation, test, model, seed)


def _dense(X: Features) -> Tensor:
    return torch.from_numpy(sparse.csr_matrix(X).toarray() if sparse.issparse(X) else np.asarray(X)).float()


def trained(task: Task, names: list[str], start: Callable[[Models], Run]) -> list[Candidate]:
    """Train one model per name for all steps; their scores of the rows that choose and measure."""
    models = Models(task.X.shape[1], task.model, len(names), task.seed)
    run = start(models)
    rates = [[group["lr"] for group in optimiser.param_groups] for optimiser in run.optimisers]
    for step, rows in zip(range(STEPS), run.batches, strict=False):
        schedule = 0.5 * (1 + math.cos(math.pi * step / STEPS))
        for optimiser, own in zip(run.optimisers, rates, strict=True):
            for group, rate in zip(optimiser.param_groups, own, strict=True):
                group["lr"] = rate * schedule
        run.step(rows, step)
    with torch.no_grad():
        parts = [models.scores(X).double().numpy() for X in (task.X_validation, task.X_test)]
    found = [Candidate(name, True, *(part[:, [place]] for part in parts)) for place, name in enumerate(names)]
    return [one for one in found if np.isfinite(one.validation).all() and np.isfinite(one.test).all()]


def shuffled(task: Task) -> Iterator[Tensor]:
    """Batches in random order, epoch by epoch."""
    generator = torch.Generator().manual_seed(task.seed)
    size = min(BATCH_SIZE, len(task.X))
    while True:
        order = torch.randperm(len(task.X), generator=generator)
        yield from order[: len(order) - len(order) % size].split(size)


# Losses that see the scores of all models at once, [B, G], and give the sum over models of each one's loss.


def with_adamw(
    task: Task, loss: Callable[[Tensor, Tensor], Tensor], second: str = "decay", values: tuple[float, ...] = ()
) -> list[Candidate]:
    """Candidates of a loss under AdamW; the second setting is the decay, unless the loss has one of its own."""
    # Models of one second setting stand side by side.
    grid = list(product(values or DECAYS[task.model], RATES[task.model]))
    names = [f"rate={rate:g} {second}={other:g}" for other, rate in grid]

    def start(models: Models) -> Run:
        groups = [
            {"params": list(model.parameters()), "lr": rate, "weight_decay": 0.0 if values else other}
            for model, (other, rate) in zip(models.each, grid, strict=True)
        ]
        optimiser = torch.optim.AdamW(groups, fused=True)

        def step(rows: Tensor, number: int) -> None:
            optimiser.zero_grad()
            loss(models.scores(task.X[rows]), task.y[rows]).backward()
            optimiser.step()

        return Run(step, [optimiser], shuffled(task))

    return trained(task, names, start)


def log_loss(task: Task, aim: str) -> list[Candidate]:
    return with_adamw(task, _bce)


def balanced_log_loss(task: Task, aim: str) -> list[Candidate]:
    weight = torch.tensor((1 - task.share) / task.share)
    return with_adamw(task, lambda scores, y: _bce(scores, y, weight))


def _bce(scores: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    target = y[:, None].expand_as(scores)
    return scores.shape[1] * F.binary_cross_entropy_with_logits(scores, target, pos_weight=weight)


def focal(task: Task, aim: str) -> list[Candidate]:
    from imbalanced_losses import SigmoidFocalLoss  # pyright: ignore[reportMissingImports]

    losses = [SigmoidFocalLoss(alpha=0.25, gamma=gamma, reduction="mean") for gamma in GAMMAS_FOCAL]

    def loss(scores: Tensor, y: Tensor) -> Tensor:
        parts = scores.chunk(len(losses), 1)
        each = [one(part, y[:, None].expand_as(part)) for one, part in zip(losses, parts, strict=True)]
        return parts[0].shape[1] * torch.stack(each).sum()

    return with_adamw(task, loss, "gamma", GAMMAS_FOCAL)


def ours(task: Task, aim: str, **options: Any) -> list[Candidate]:
    """The bare loss; one label per model, each with its own thresholds and multipliers."""
    count = len(RATES[task.model])
    losses = [aimfor.Loss(aim, num_labels=count, log_loss_batches=first, **options) for first in LOG_LOSS_BATCHES]

    def summed(scores: Tensor, y: Tensor) -> Tensor:
        parts = scores.chunk(len(losses), 1)
        each = [one(part, y[:, None].expand_as(part)) for one, part in zip(losses, parts, strict=True)]
        return count * torch.stack(each).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        warnings.simplefilter("ignore", aimfor.VacuousRangeWarning)
        return with_adamw(task, summed, "log_loss_batches", LOG_LOSS_BATCHES)


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


# Methods that are not trained by steps.


def logistic_regression(task: Task, aim: str) -> list[Candidate]:
    X, X_validation, X_test = scaled(*(part.X for part in task.split))
    solver = "newton-cholesky" if task.X.shape[1] <= NEWTON_FEATURES else "lbfgs"
    found = []
    for C in C_GRID:
        model = LogisticRegression(C=C, solver=solver, max_iter=MAX_ITERATIONS, tol=TOLERANCE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, task.split.fit.Y[:, 0])
        converged = int(model.n_iter_.max()) < MAX_ITERATIONS
        scores = [model.decision_function(part)[:, None] for part in (X_validation, X_test)]
        found.append(Candidate(f"C={C:g}", converged, *scores))
    return found


class Scores(LogisticRegression):
    """A fitted classifier whose rows are scores already."""

    def __init__(self) -> None:
        super().__init__()
        self.classes_, self.coef_, self.intercept_ = np.array([0, 1]), np.ones((1, 1)), np.zeros(1)
        self.n_features_in_ = 1


def tuned_threshold(task: Task, aim: str, candidate: Candidate) -> float:
    """scikit-learn's choice on the rows that choose, among its 100 thresholds; inf when none meets the constraint."""
    judge = suite.AIMS[aim]

    def worth(y: np.ndarray, predicted: np.ndarray) -> float:
        rates = suite.rates_at(y[:, None], predicted[:, None])
        value = float(rates[judge.objective][0])
        if judge.constraint is None:
            return value
        attained = float(rates[judge.constraint][0])
        return value if (attained <= judge.target if judge.constraint == "fpr" else attained >= judge.target) else -1.0

    tuner = TunedThresholdClassifierCV(
        Scores(),
        scoring=make_scorer(worth),  # pyright: ignore[reportArgumentType]
        cv="prefit",
        refit=False,
        response_method="decision_function",
    )
    tuner.fit(candidate.validation, task.split.validation.Y[:, 0])
    return float(tuner.best_threshold_) if tuner.best_score_ >= 0 else math.inf


def boosted_trees(task: Task, aim: str) -> list[Candidate]:
    from lightgbm import LGBMClassifier

    fit, validation, test = task.split
    found = []
    for trees, leaves in product(TREES, LEAVES):
        model = LGBMClassifier(
            n_estimators=trees, num_leaves=leaves, learning_rate=0.05, n_jobs=1, random_state=task.seed, verbose=-1
        )
        model.fit(fit.X, fit.Y[:, 0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = [np.asarray(model.predict(part.X, raw_score=True)).reshape(-1, 1) for part in (validation, test)]
        found.append(Candidate(f"trees={trees} leaves={leaves}", True, *scores))
    return found


def _for_all(*aims: str) -> tuple[tuple[str, ...], ...]:
    return (aims or tuple(suite.AIMS),)


def _for_each(aims: tuple[str, ...] = tuple(suite.AIMS)) -> tuple[tuple[str, ...], ...]:
    return tuple((aim,) for aim in aims)


METHODS = {
    "BCE": Method(log_loss, None, _for_all()),
    "balanced BCE": Method(balanced_log_loss, None, _for_all()),
    "focal": Method(focal, "imbalanced-losses", _for_all()),
    "LibAUC AUCM": Method(libauc_aucm, "libauc", _for_all()),
    "LibAUC AP": Method(libauc_ap, "libauc", _for_all()),
    "LibAUC pAUC": Method(libauc_pauc, "libauc", _for_all()),
    "Cooper": Method(cooper_rates, "cooper-optim", _for_each(CONSTRAINED)),
    "imbalanced-losses": Method(imbalanced, "imbalanced-losses", (AREA_AIMS, ("tpr@fpr<=0.01",))),
    "scikit-learn": Method(logistic_regression, "scikit-learn", _for_all(), ("linear",), tuned_threshold),
    "LightGBM": Method(boosted_trees, "lightgbm", _for_all(), ("linear",)),
    "aimfor": Method(ours, "aimfor", _for_each()),
    "aimfor exact constraint": Method(
        lambda task, aim: ours(task, aim, constraint="exact"), "aimfor", _for_each((*CONSTRAINED, "f1"))
    ),
    "aimfor smooth hinge": Method(lambda task, aim: ours(task, aim, surrogate="smooth_hinge"), "aimfor", _for_each()),
    "aimfor sigmoid": Method(
        lambda task, aim: ours(task, aim, surrogate="sigmoid", constraint="exact"), "aimfor", _for_each()
    ),
    "aimfor area": Method(lambda task, aim: ours(task, "aucpr"), "aimfor", _for_all()),
}
OURS = "aimfor"
VARIANTS = tuple(name for name in METHODS if name.startswith("aimfor "))
OTHER_MODELS = ("LightGBM",)
RIVALS = tuple(name for name in METHODS if name not in (OURS, *VARIANTS, *OTHER_MODELS))


def installed(package: str | None) -> str:
    """A distribution with its version; empty when it is not there."""
    if package is None:
        return f"torch {version('torch')}"
    with suppress(PackageNotFoundError):
        return f"{package} {version(package)}"
    return f"{package} (source)" if find_spec(package.replace("-", "_")) else ""
