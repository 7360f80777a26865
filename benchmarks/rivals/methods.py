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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV
from torch import Tensor
from torch.nn import functional as F

import aimfor
from benchmarks.rivals.libraries import cooper_rates, imbalanced, libauc_ap, libauc_aucm, libauc_pauc
from benchmarks.rivals.training import (
    AREA_AIMS,
    C_GRID,
    CONSTRAINED,
    DECAYS,
    GAMMAS_FOCAL,
    LEAVES,
    RATES,
    STEPS,
    TREES,
    Method,
    Models,
    Run,
    Task,
    candidates,
    shuffled,
    trained,
)
from benchmarks.shared.baselines import MAX_ITERATIONS, NEWTON_FEATURES, TOLERANCE, Candidate, scaled
from benchmarks.shared.forms import BOUNDING
from benchmarks.shared.grids import Entrant, StepLoss, train
from benchmarks.shared.heads import Setting
from benchmarks.suite import suite

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


def ours(task: Task, aims: tuple[str, ...], **options: Any) -> dict[str, list[Candidate]]:
    """The bare loss for each aim; one label per model, each with its own thresholds and multipliers.

    Its settings are those of log-loss, so that the two differ in the loss alone. The aims are trained side by side from
    the same start on the same batches, which is faster than one by one.
    """
    grid = [Setting(rate, decay) for decay, rate in product(DECAYS[task.model], RATES[task.model])]
    entrants = [Entrant(grid, _bare(aim, len(grid), options)) for aim in aims]
    start = Models(task.X.shape[1], task.model, len(grid) * len(aims), task.seed).stacked()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", aimfor.InfeasibleConstraintWarning)
        warnings.simplefilter("ignore", aimfor.VacuousRangeWarning)
        stack = train(task.X, task.y[:, None], entrants, start, shuffled(task), STEPS)
    names = [f"rate={rate:g} decay={decay:g}" for rate, decay in grid]
    parts = [stack.scores(X).squeeze(2).split(len(grid), 1) for X in (task.X_validation, task.X_test)]
    return {aim: candidates(names, *found) for aim, *found in zip(aims, *parts, strict=True)}


def _bare(aim: str, models: int, options: dict[str, Any]) -> StepLoss:
    """The loss of all models of an aim."""
    loss = aimfor.Loss(aim, num_labels=models, **options)

    def summed(scores: Tensor, y: Tensor, step: int) -> Tensor:
        return models * loss(scores.squeeze(2), y.expand(-1, models))

    return summed


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


def _alike(train: Callable[[Task, str], list[Candidate]]) -> Callable[..., dict[str, list[Candidate]]]:
    """One training serves all aims of a group."""
    return lambda task, aims: dict.fromkeys(aims, train(task, aims[0]))


METHODS = {
    "BCE": Method(_alike(log_loss), None, _for_all()),
    "balanced BCE": Method(_alike(balanced_log_loss), None, _for_all()),
    "focal": Method(_alike(focal), "imbalanced-losses", _for_all()),
    "LibAUC AUCM": Method(_alike(libauc_aucm), "libauc", _for_all()),
    "LibAUC AP": Method(_alike(libauc_ap), "libauc", _for_all()),
    "LibAUC pAUC": Method(_alike(libauc_pauc), "libauc", _for_all()),
    "Cooper": Method(_alike(cooper_rates), "cooper-optim", _for_each(CONSTRAINED)),
    "imbalanced-losses": Method(_alike(imbalanced), "imbalanced-losses", (AREA_AIMS, ("tpr@fpr<=0.01",))),
    "scikit-learn": Method(_alike(logistic_regression), "scikit-learn", _for_all(), ("linear",), tuned_threshold),
    "LightGBM": Method(_alike(boosted_trees), "lightgbm", _for_all(), ("linear",)),
    "aimfor": Method(ours, "aimfor", _for_all()),
    "aimfor without log-loss": Method(partial(ours, log_loss=0.0), "aimfor", _for_all()),
    "aimfor bounding form": Method(partial(ours, **BOUNDING), "aimfor", _for_all()),
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
