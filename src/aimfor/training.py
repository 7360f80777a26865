"""Step, second half: heads trained side by side, each by its own recipe and kept at its best look at other rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aimfor.aims import Aim
from aimfor.heads import Heads, Rows, chunks, epochs
from aimfor.log_odds import log_odds
from aimfor.losses import InfeasibleConstraintWarning, Loss
from aimfor.metrics import UndefinedMetricError, UndefinedMetricWarning

# How often the validation rows are looked at in one stage. More looks find better snapshots of noise.
LOOKS = 8
# Batches on the hinge before a tight surrogate: shorter than the default of `Loss`, as training is.
WARMUP = 200
# Rows that a full-batch fit of log-loss reads at most; a linear model learns nothing more from others.
FULL_BATCH_ROWS = 200_000
FULL_BATCH_STEPS = 200
# Newton's method takes rows times squared features of work for a step of one head.
MOST_FOR_NEWTON = 2e9
# Without any decay the weights of separable rows grow for ever.
SMALLEST_DECAY = 1e-9


class Data(NamedTuple):
    """Rows with what is known of them.

    Attributes:
        rows: features.
        labels: `[n, L]` 0/1, or classes `[n]`.
        weights: `[n]` or None.
    """

    rows: Rows
    labels: Tensor
    weights: Tensor | None

    def take(self, rows: np.ndarray | slice) -> tuple[Any, Tensor, Tensor | None]:
        """A batch: features, labels, weights."""
        index = rows if isinstance(rows, slice) else torch.from_numpy(rows)
        labels = self.labels[index].to(self.rows.device)
        weights = None if self.weights is None else self.weights[index].to(self.rows.device)
        return self.rows.take(rows), labels, weights


@dataclass(frozen=True)
class Recipe:
    """One way to train a head.

    Attributes:
        aim: what the loss is made for; None for log-loss.
        surrogate, constraint: options of `Loss`.
        start: "scratch", or "log-loss" for the weights of the best log-loss head.
        decay: weight of half the squared weights in the loss.
        balanced: whether log-loss gives both classes of a label the same total weight.
    """

    aim: Aim | None
    surrogate: str = "log"
    constraint: str = "surrogate"
    start: str = "scratch"
    decay: float = 0.0
    balanced: bool = False

    @property
    def name(self) -> str:
        """What a reader of the history sees."""
        if self.aim is None:
            return f"{'balanced ' if self.balanced else ''}log-loss, decay {self.decay:g}"
        exact = ", exact constraint" if self.constraint == "exact" else ""
        return f"{self.aim}, {self.surrogate}{exact}, from {self.start}"


class Budget(NamedTuple):
    """How long and how fast candidates are trained.

    Attributes:
        steps: batches.
        rate: of Adam; it falls to 0 along a half cosine.
        batch_size: rows of a batch.
        patience: looks without any head getting better, after which training stops.
    """

    steps: int
    rate: float
    batch_size: int
    patience: int


class Candidate(NamedTuple):
    """A trained head at its best look.

    Attributes:
        recipe: how it was trained.
        value: exact metric on the validation rows.
        scores: its scores there, `[n, L]`.
        tensors: its weights.
        step: batches trained when it was best.
    """

    recipe: Recipe
    value: float
    scores: np.ndarray
    tensors: dict[str, Tensor]
    step: int


Judge = Callable[[np.ndarray], float]
"""Scores `[n, L]` of the validation rows -> how good they are; higher is better."""

Watch = Callable[[str, int, int, float, float], None]
"""Told at every look: stage, step, steps, best value so far, violation."""


def judged(aim: Aim, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> float:
    """The exact metric, a mean over labels, signed so that higher is better; the worst value where it is undefined."""
    worst = 0.0 if aim.greater_is_better else -1.0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            values = aim.metric(labels, scores, sample_weight=weights)
    except UndefinedMetricError:
        return worst
    known = np.asarray(values)[~np.isnan(values)]
    if known.size == 0:
        return worst
    return float(known.mean()) if aim.greater_is_better else -float(known.mean())


class LogLoss:
    """Log-loss of many heads, some of them balanced.

    Args:
        recipes: one per head.
        data: the training rows, whose share of positives balances.
        multiclass: whether labels are classes.
    """

    def __init__(self, recipes: Sequence[Recipe], data: Data, multiclass: bool):
        self.multiclass = multiclass
        self.factors = None
        if not multiclass and any(recipe.balanced for recipe in recipes):
            priors = np.average(data.labels.numpy(), axis=0, weights=data.weights)
            shares = torch.from_numpy(np.stack([1 - priors, priors]).clip(1e-9)).float().to(data.rows.device)
            balanced = torch.tensor([recipe.balanced for recipe in recipes], device=data.rows.device)
            # [2, G, L]: what a negative and a positive count in each head.
            self.factors = torch.where(balanced[:, None], 0.5 / shares[:, None], 1.0)

    def __call__(self, scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        """The sum over heads and labels, scores `[B, G, L]`, of the mean over rows."""
        if self.multiclass:
            targets = labels[:, None].expand(-1, scores.shape[1])
            losses = F.cross_entropy(scores.transpose(1, 2), targets, reduction="none")
        else:
            targets = labels[:, None].to(scores.dtype).expand_as(scores)
            losses = F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
            if self.factors is not None:
                losses = losses * torch.lerp(self.factors[0], self.factors[1], targets)
            losses = losses.sum(2)
        if weights is None:
            return losses.mean(0).sum()
        return (losses * weights[:, None]).sum() / weights.sum().clamp(min=1e-30)


class Objectives:
    """The losses of many heads as one: heads of the same recipe share a `Loss`, as its columns.

    Args:
        recipes: one per head.
        num_labels: L.
        data: the training rows.
        multiclass: whether labels are classes; the aim is then trained on the log-odds.
    """

    def __init__(self, recipes: Sequence[Recipe], num_labels: int, data: Data, multiclass: bool):
        self.num_labels, self.multiclass = num_labels, multiclass
        self.groups: list[tuple[Loss | LogLoss, list[int]]] = []
        kinds = [(one.aim, one.surrogate, one.constraint) if one.aim else None for one in recipes]
        for kind in dict.fromkeys(kinds):
            heads = [index for index, own in enumerate(kinds) if own == kind]
            if kind is None:
                self.groups.append((LogLoss([recipes[head] for head in heads], data, multiclass), heads))
                continue
            aim, surrogate, constraint = kind
            options: dict[str, Any] = {"surrogate": surrogate, "constraint": constraint, "warmup": WARMUP}
            loss = Loss(repeated(aim, len(heads)), num_labels=len(heads) * num_labels, **options)
            self.groups.append((loss.to(data.rows.device), heads))

    def __call__(self, scores: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        """The sum of all heads' losses on a batch, scores `[B, G, L]`."""
        total = scores.new_zeros(())
        odds, targets = scores, labels
        if any(isinstance(loss, Loss) for loss, _ in self.groups):
            if self.multiclass:
                odds = log_odds(scores.flatten(0, 1)).view_as(scores)
                targets = F.one_hot(labels, self.num_labels)
            targets = targets.to(scores.dtype)
        for loss, heads in self.groups:
            own = slice(None) if len(heads) == scores.shape[1] else heads
            if isinstance(loss, LogLoss):
                total = total + loss(scores[:, own], labels, weights)
            else:
                columns = odds[:, own].flatten(1)
                # A sum over labels, as log-loss is, so that a decay means the same for both.
                total = total + columns.shape[1] * loss(columns, targets.repeat(1, len(heads)), weights=weights)
        return total

    def violation(self) -> float:
        """The largest violation of any constraint now, nan where there is none."""
        found = [loss.diagnostics().violation for loss, _ in self.groups if isinstance(loss, Loss)]
        known = [one[~one.isnan()] for one in found]
        return max((float(one.max()) for one in known if len(one)), default=math.nan)


def repeated(aim: Aim, times: int) -> Aim:
    """The aim for `times` copies of its labels: targets per label are repeated."""
    tuples = {field.name: getattr(aim, field.name) for field in fields(aim)}  # pyright: ignore[reportArgumentType]
    longer = {name: value * times for name, value in tuples.items() if isinstance(value, tuple)}
    return replace(aim, **longer) if longer else aim  # pyright: ignore[reportArgumentType]


def train(
    heads: Heads,
    recipes: Sequence[Recipe],
    data: Data,
    validation: Rows,
    judge: Judge,
    *,
    budget: Budget,
    multiclass: bool,
    generator: np.random.Generator,
    watch: Watch | None = None,
    stage: str = "",
) -> list[Candidate]:
    """Train heads on the same batches and keep each at its best look, the start being one.

    Args:
        heads: G models.
        recipes: G recipes.
        data: rows to train on.
        validation: rows to look at.
        judge: how good scores of the validation rows are.
        budget: how long and how fast.
        multiclass: whether labels are classes.
        generator: for the order of the rows.
        watch: told at every look.
        stage: its name for `watch`.

    Returns:
        One candidate per head.
    """
    device = data.rows.device
    objectives = Objectives(recipes, heads.num_labels, data, multiclass)
    decays = torch.tensor([recipe.decay for recipe in recipes], device=device)
    optimiser = torch.optim.Adam(heads.parameters(), lr=budget.rate)
    best = look(heads, recipes, validation, judge, 0, multiclass)
    looks = {math.ceil(budget.steps * part / LOOKS) for part in range(1, LOOKS + 1)}
    fruitless = 0
    heads.train()
    batches = epochs(len(data.rows), budget.batch_size, generator)
    for step, index in zip(range(1, budget.steps + 1), batches, strict=False):
        step_(heads, objectives, optimiser, decays, data.take(index))
        for group in optimiser.param_groups:
            group["lr"] = 0.5 * budget.rate * (1 + math.cos(math.pi * step / budget.steps))
        if step in looks:
            found = look(heads, recipes, validation, judge, step, multiclass)
            better = [new.value > old.value for new, old in zip(found, best, strict=True)]
            best = [new if is_better else old for new, old, is_better in zip(found, best, better, strict=True)]
            fruitless = 0 if any(better) else fruitless + 1
            if watch is not None:
                watch(stage, step, budget.steps, max(one.value for one in best), objectives.violation())
            if fruitless >= budget.patience:
                break
    return best


def look(
    heads: Heads, recipes: Sequence[Recipe], validation: Rows, judge: Judge, step: int, multiclass: bool
) -> list[Candidate]:
    """All heads as candidates, as they are now."""
    scores = ranked(heads.scores(validation), multiclass).numpy()
    found = []
    for index, recipe in enumerate(recipes):
        own = scores[:, index]
        value = judge(own) if np.isfinite(own).all() else -math.inf
        found.append(Candidate(recipe, value, own, heads.head(index), step))
    return found


def ranked(scores: Tensor, multiclass: bool) -> Tensor:
    """Scores `[n, G, L]` by which examples are ranked: those of classes as log-odds."""
    return log_odds(scores.flatten(0, 1)).view_as(scores) if multiclass else scores


def converge_(
    heads: Heads, recipes: Sequence[Recipe], data: Data, multiclass: bool, generator: np.random.Generator
) -> None:
    """Bring linear heads to the minimum of their penalised log-loss on all rows: by Newton's method, one head after the
    other, where that is quick, else by L-BFGS, all together.
    """
    count = len(data.rows)
    index = np.arange(count, dtype=np.int32)
    if count > FULL_BATCH_ROWS:
        index = np.sort(generator.choice(index, FULL_BATCH_ROWS, replace=False))
    batches = [data.take(index[part]) for part in chunks(len(index))]
    first = batches[0][0]
    if isinstance(first, Tensor) and heads.num_labels == 1 and len(index) * first.shape[1] ** 2 <= MOST_FOR_NEWTON:
        newton_(heads, recipes, batches)
        return
    total = sum(float(len(labels) if weights is None else weights.sum()) for _, labels, weights in batches)
    log_loss = LogLoss(recipes, data, multiclass)
    decays = torch.tensor([recipe.decay for recipe in recipes], device=data.rows.device)
    optimiser = torch.optim.LBFGS(
        heads.parameters(),
        max_iter=FULL_BATCH_STEPS,
        history_size=20,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    def value() -> Tensor:
        optimiser.zero_grad()
        whole = 0.5 * (decays * heads.squares()).sum()
        whole.backward()
        whole = whole.detach()
        for features, labels, weights in batches:
            share = float(len(labels) if weights is None else weights.sum()) / total
            if share > 0:
                part = share * log_loss(heads(features), labels, weights)
                part.backward()
                whole = whole + part.detach()
        return whole

    optimiser.step(value)


def newton_(heads: Heads, recipes: Sequence[Recipe], batches: Sequence[tuple[Any, Tensor, Tensor | None]]) -> None:
    """The minimum of every head by scikit-learn's Newton steps, which features of any shape and correlation suit."""
    from scipy.linalg import LinAlgWarning
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    features = torch.cat([batch[0] for batch in batches]).cpu().numpy()
    labels = torch.cat([batch[1] for batch in batches]).cpu().numpy()
    own = [np.ones(len(batch[1])) if batch[2] is None else batch[2].cpu().double().numpy() for batch in batches]
    weights, positive = np.concatenate(own), labels[:, 0] == 1
    share = np.average(positive, weights=weights)
    for head, recipe in enumerate(recipes):
        factors = np.where(positive, 0.5 / share, 0.5 / (1 - share)) if recipe.balanced else 1.0
        strength = 1 / (max(recipe.decay, SMALLEST_DECAY) * weights.sum())
        model = LogisticRegression(C=strength, solver="newton-cholesky", max_iter=100, tol=1e-6)
        with warnings.catch_warnings():
            # Separable rows have no minimum to speak of; where the steps end is as good.
            for kind in (ConvergenceWarning, LinAlgWarning):
                warnings.simplefilter("ignore", kind)
            model.fit(features.astype(np.float64), positive, sample_weight=weights * factors)
        weight = torch.from_numpy(model.coef_.T).float()
        heads.set_head_(head, {"weights.0": weight, "offsets.0": torch.from_numpy(model.intercept_).float()})


def step_(
    heads: Heads,
    objectives: Objectives,
    optimiser: torch.optim.Optimizer,
    decays: Tensor,
    batch: tuple[Any, Tensor, Tensor | None],
) -> None:
    """One step of all heads on a batch."""
    features, labels, weights = batch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleConstraintWarning)  # the candidates that have it are not chosen
        loss = objectives(heads(features), labels, weights) + 0.5 * (decays * heads.squares()).sum()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def train_one(
    heads: Heads,
    recipe: Recipe,
    objectives: Objectives,
    optimiser: torch.optim.Optimizer,
    data: Data,
    batch_size: int,
    seed: int,
) -> None:
    """One pass over the rows with a single head whose loss and optimiser go on from call to call."""
    order = np.random.default_rng(seed).permutation(len(data.rows))
    heads.train()
    for part in chunks(len(order), batch_size):
        step_(
            heads, objectives, optimiser, torch.tensor([recipe.decay], device=data.rows.device), data.take(order[part])
        )
