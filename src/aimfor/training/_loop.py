"""Train heads side by side in batches, each by its own recipe, and keep each at its best evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aimfor._base.json import json_ready
from aimfor._base.ranks import ALONE, Ranks, in_turns
from aimfor.loss import log_odds
from aimfor.training._adam import Adam
from aimfor.training._models import Heads, Layers
from aimfor.training._objectives import Objectives
from aimfor.training._observer import Evaluation, Observer, SavedState, resuming
from aimfor.training._recipes import Recipe
from aimfor.training._rows import Batch, BatchOrder, Data
from aimfor.training._saved import alike, below, number
from aimfor.training._whole_batches import WholeBatches, cheap, quickly_scored

# Evaluations on the validation rows in one stage. With more of them the best one is more often luck.
EVALUATIONS = 8


class Budget(NamedTuple):
    """How long and how fast candidates are trained.

    Attributes:
        steps: batches.
        rate: of Adam; it falls to 0 along a half cosine.
        batch_size: rows of a batch.
        patience: training stops after this many evaluations without a better head.
    """

    steps: int
    rate: float
    batch_size: int
    patience: int


class Judgement(NamedTuple):
    """How good scores of the validation rows are; higher is better.

    Attributes:
        value: exact metric of the aim.
        merit: the number by which heads and evaluations are compared.
    """

    value: float
    merit: float


class Candidate(NamedTuple):
    """A trained head at its best evaluation.

    Attributes:
        recipe: how it was trained.
        value, merit: see `Judgement`.
        scores: its scores there, `[n, L]`.
        tensors: its weights.
        step: batches trained when it was best.
        loss: multipliers, thresholds and priors of its loss then; empty for log-loss.
        kind: name of its model kind.
    """

    recipe: Recipe
    value: float
    merit: float
    scores: np.ndarray
    tensors: dict[str, Tensor]
    step: int
    loss: dict[str, Tensor]
    kind: str = ""


Judge = Callable[[np.ndarray], Judgement]
"""Scores `[n, L]` of the validation rows -> how good they are."""


class Training:
    """One stage of training, with all that its steps change. It can be saved and resumed.

    Args:
        heads: G models.
        recipes: G recipes.
        data: rows to train on.
        budget: how long and how fast.
        multiclass: whether labels are classes.
        generator: for the order of the rows.
        blind: whether the validation rows cannot judge; the last state of each head is then kept.
    """

    def __init__(
        self,
        heads: Heads,
        recipes: Sequence[Recipe],
        data: Data,
        budget: Budget,
        multiclass: bool,
        generator: np.random.Generator,
        blind: bool = False,
    ):
        self.heads, self.recipes, self.data, self.budget = heads, recipes, data, budget
        self.multiclass, self.blind = multiclass, blind
        alone, whole = data.ranks.size == 1, cheap(heads, budget.batch_size, data.rows.num_features)
        self.objectives = Objectives(recipes, heads.num_labels, data, multiclass, shared=not alone and not whole)
        self.decays = decays_of(recipes, data.rows.device)
        self.optimiser = Adam(heads.parameters(), budget.rate)
        self.batches = BatchOrder(data.total, budget.batch_size, generator)
        self.whole = WholeBatches(data, self.batches) if whole and not alone else None
        self.step, self.fruitless = 0, 0
        self.best: list[Candidate] = []

    def advance(self, asked: bool) -> bool:
        """Train on one batch.

        Args:
            asked: whether this process asks to stop.

        Returns:
            Whether any process does.
        """
        state = self.heads, self.objectives, self.optimiser, self.decays
        if self.whole is None:
            stopping = step_(*state, self.data.batch(next(self.batches)), self.data.ranks, asked)
        else:
            batch, asked = self.whole.take(self.budget.steps - self.step, asked)
            stopping = step_(*state, batch, asked=asked)
        self.step += 1
        self._set_rate()
        return stopping

    def evaluate(self, validation: Data, judge: Judge) -> list[Candidate]:
        """Evaluate all heads as they are now, and keep the best state of each so far."""
        objectives, ranks = self.objectives, self.data.ranks
        if self.whole is not None:  # processors of other ranks may round in another way
            self._set_state(ranks.first(self._state()))
        found = evaluated(self.heads, self.recipes, validation, judge, self.step, self.multiclass, objectives, ranks)
        if not self.best:
            self.best = found
            return found
        # Blind evaluations are all equal, except that a score that is not finite is below them.
        better = [
            new.merit > old.merit or (self.blind and new.merit == old.merit)
            for new, old in zip(found, self.best, strict=True)
        ]
        self.best = [new if is_better else old for new, old, is_better in zip(found, self.best, better, strict=True)]
        self.fruitless = 0 if any(better) else self.fruitless + 1
        return found

    def kept(self) -> SavedState:
        """The whole state, as facts and tensors."""
        tensors = self._state()
        for index, one in enumerate(self.best):
            tensors |= {f"best.{index}.tensors.{name}": tensor for name, tensor in one.tensors.items()}
            tensors |= {f"best.{index}.loss.{name}": tensor for name, tensor in one.loss.items()}
            tensors[f"best.{index}.scores"] = torch.from_numpy(one.scores)
        best = [[json_ready(one.value), json_ready(one.merit), one.step] for one in self.best]
        facts = {"step": self.step, "fruitless": self.fruitless, "batches": self.batches.kept(), "best": best}
        return SavedState(facts, tensors)

    def restore(self, kept: SavedState, num_validation: int) -> None:
        """Resume from a state that `kept` gave for the same rows, recipes and budget; refuse one of another form."""
        facts, tensors = kept
        self._set_state(tensors)
        self.step, self.fruitless = (number(facts[name], int) for name in ("step", "fruitless"))
        self.batches.restore(facts["batches"])
        scores = torch.zeros(num_validation, self.heads.num_labels)
        learned = self.objectives.learned()
        self.best = [
            Candidate(
                recipe,
                -math.inf if value is None else number(value, float),
                -math.inf if merit is None else number(merit, float),
                alike({"scores": scores}, {"scores": tensors[f"best.{index}.scores"]})["scores"].numpy(),
                alike(self.heads.head(index), below(f"best.{index}.tensors", tensors)),
                number(step, int),
                alike(learned[index], below(f"best.{index}.loss", tensors)),
            )
            for index, (recipe, (value, merit, step)) in enumerate(zip(self.recipes, facts["best"], strict=True))
        ]
        self._set_rate()

    def _state(self) -> dict[str, Tensor]:
        """What steps change, by name."""
        tensors = {f"heads.{name}": tensor for name, tensor in self.heads.state_dict().items()}
        for index, entries in self.optimiser.state.items():
            tensors |= {f"optimiser.{index}.{name}": tensor for name, tensor in entries.items()}
        for index, loss in self.objectives.losses():
            tensors |= {f"loss.{index}.{name}": tensor for name, tensor in loss.state_dict().items()}
        return tensors

    def _set_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.heads.load_state_dict(alike(self.heads.state_dict(), below("heads", tensors)))
        for index, parameter in enumerate(self.heads.parameters()):
            if own := below(f"optimiser.{index}", tensors):
                moments = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
                found = alike(moments, own)
                self.optimiser.state[index] = {"step": found["step"]} | {
                    name: found[name].to(parameter.device) for name in ("exp_avg", "exp_avg_sq")
                }
        for index, loss in self.objectives.losses():
            loss.load_state_dict(alike(loss.state_dict(), below(f"loss.{index}", tensors)))

    def _set_rate(self) -> None:
        self.optimiser.rate = 0.5 * self.budget.rate * (1 + math.cos(math.pi * self.step / self.budget.steps))


def train(
    heads: Heads,
    recipes: Sequence[Recipe],
    data: Data,
    validation: Data,
    judge: Judge,
    *,
    budget: Budget,
    multiclass: bool,
    generator: np.random.Generator,
    observer: Observer,
    stage: str,
    blind: bool = False,
) -> list[Candidate]:
    """Train heads on the same batches and keep each at its best evaluation. The first is before any step.

    Args:
        heads: G models.
        recipes: G recipes.
        data: rows to train on.
        validation: rows to evaluate on.
        judge: how good scores of the validation rows are.
        budget: how long and how fast.
        multiclass: whether labels are classes.
        generator: for the order of the rows.
        observer: follows training.
        stage: name of the stage, for the observer.
        blind: whether the validation rows cannot judge; see `Training`.

    Returns:
        One candidate per head.
    """
    training = Training(heads, recipes, data, budget, multiclass, generator, blind)

    def evaluate() -> None:
        found = training.evaluate(validation, judge)
        seen = [seen_of(stage, one, training.step) for one in found]
        observer.on_evaluation(seen, best_of(training.best).value)

    observer.on_stage_begin(stage)
    if (kept := observer.saved(stage)) is not None:
        with resuming(stage):
            training.restore(kept, len(validation.rows))
    else:
        evaluate()
    heads.train()
    _advance(training, evaluate, observer, stage)
    observer.save(stage, training.kept())
    return training.best


def _advance(training: Training, evaluate: Callable[[], None], observer: Observer, stage: str) -> None:
    """Train until the budget is used, nothing gets better, or the observer stops it."""
    budget = training.budget
    evaluations = {math.ceil(budget.steps * part / EVALUATIONS) for part in range(1, EVALUATIONS + 1)}
    alone, stopping = training.data.ranks.size == 1, False
    while training.step < budget.steps and training.fruitless < budget.patience:
        asked = observer.should_stop()
        # Ranks hear of it with the gradients of one step more, which costs no message of its own.
        if stopping or (asked and alone):
            evaluate()
            break
        stopping = training.advance(asked)
        observer.on_batch_end(stage, training.step, budget.steps)
        if training.step in evaluations:
            evaluate()
        if observer.should_save():
            observer.save(stage, training.kept())


def evaluated(
    heads: Heads,
    recipes: Sequence[Recipe],
    validation: Data,
    judge: Judge,
    step: int,
    multiclass: bool,
    objectives: Objectives | None = None,
    ranks: Ranks = ALONE,
) -> list[Candidate]:
    """Evaluate all heads as they are now; each becomes a candidate. Ranks share the work."""
    # Only where each has all of the rows, and their scores take longer than a message.
    scorers = ALONE if validation.share is not None or quickly_scored(heads) else ranks
    scores = ranked(heads.scores(validation.rows, scorers), multiclass).numpy()
    learned = [{}] * len(recipes) if objectives is None else objectives.learned()

    def judgement(own: np.ndarray) -> Judgement:
        return judge(own) if np.isfinite(own).all() else Judgement(-math.inf, -math.inf)

    judged = in_turns(lambda index: judgement(scores[:, index]), len(recipes), ranks)
    return [
        Candidate(recipe, value, merit, scores[:, index], heads.head(index), step, learned[index])
        for index, (recipe, (value, merit)) in enumerate(zip(recipes, judged, strict=True))
    ]


def rank(candidate: Candidate) -> tuple[float, float]:
    """The order of candidates: by merit, then by decay, because equal merit is no reason for larger weights."""
    return candidate.merit, candidate.recipe.decay


def best_of(candidates: Iterable[Candidate]) -> Candidate:
    """The one with the most merit."""
    return max(candidates, key=rank)


def seen_of(stage: str, candidate: Candidate, step: int) -> Evaluation:
    """What the observer gets of a candidate."""

    def mean(name: str) -> float:
        return float(candidate.loss[name].nanmean()) if name in candidate.loss else math.nan

    violation = candidate.loss.get("violation", torch.empty(0))
    violation = violation[~violation.isnan()]
    return Evaluation(
        stage,
        candidate.recipe.name,
        step,
        candidate.value,
        float(violation.max()) if len(violation) else math.nan,
        *(mean(name) for name in ("multipliers", "thresholds", "surrogate_recall", "recall")),
    )


def ranked(scores: Tensor, multiclass: bool) -> Tensor:
    """Scores `[n, G, L]` by which examples are ranked: those of classes as log-odds."""
    return log_odds(scores.flatten(0, 1)).view_as(scores) if multiclass else scores


def decays_of(recipes: Sequence[Recipe], device: torch.device | str) -> Tensor | None:
    """`[G]`; None if no recipe has a decay, so that steps skip it."""
    decays = [recipe.decay for recipe in recipes]
    return torch.tensor(decays, device=device) if any(decays) else None


def step_(
    heads: Heads,
    objectives: Objectives,
    optimiser: Adam,
    decays: Tensor | None,
    batch: Batch,
    ranks: Ranks = ALONE,
    asked: bool = False,
) -> bool:
    """One step of all heads on a batch, which ranks may share; gives whether any rank has asked to stop."""
    loss = objectives(heads(batch.features), batch)
    linear = heads if isinstance(heads, Layers) and heads.linear else None
    if decays is not None and linear is not None:  # part of the loss, as for the exact solvers
        loss = loss + 0.5 * (decays * linear.squares()).sum()
    optimiser.zero_grad()
    loss.backward()
    grads = [parameter.grad for parameter in heads.parameters() if parameter.grad is not None]
    stopping = ranks.average_(grads, asked)
    optimiser.step()
    if decays is not None and linear is None:  # Adam would divide a penalty by the size of gradients
        heads.shrink_(1 - optimiser.rate * decays)
    return stopping


def train_one(
    heads: Heads,
    recipe: Recipe,
    objectives: Objectives,
    optimiser: Adam,
    data: Data,
    batch_size: int,
    seed: int,
) -> None:
    """One pass over the rows with a single head. Its loss and optimiser keep their state between calls."""
    order = np.random.default_rng(seed).permutation(len(data.rows))
    decays = decays_of([recipe], data.rows.device)
    heads.train()
    # Batches of nearly equal size, because a last batch of one row has no spread, which BatchNorm needs.
    for part in np.array_split(order, math.ceil(len(order) / batch_size)):
        step_(heads, objectives, optimiser, decays, Batch(*data.take(part)))
    heads.eval()
