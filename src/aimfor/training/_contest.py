"""The contest: recipes are trained, and one is chosen on rows that none of them saw.

No single recipe is best everywhere, log-loss included. Log-loss with several decays comes first. Then come the aim and
its area with convex and tight surrogates, from the weights of log-loss and from scratch. If log-loss is not at its
minimum by then, it is trained on beside them, so that nothing wins only by more steps. Exact metrics on validation rows
choose. Log-loss stays the choice unless another candidate beats it by more than the noise of the rows.

With few rows the metric at a point is noisy: one negative at the top can halve a recall at a precision. So the area
under the precision-recall curve also counts when evaluations and candidates are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from aimfor.aims import Aim, one_hot
from aimfor.training._log_loss_fit import converge_
from aimfor.training._loop import Budget, Candidate, Judgement, best_of, evaluated, seen_of, train
from aimfor.training._models import Heads, Layers
from aimfor.training._observer import Observer, SavedState, resuming
from aimfor.training._recipes import Recipe, aim_recipes, log_loss_recipes
from aimfor.training._rows import Data
from aimfor.training._selection import choose, judgement

# Several labels or classes can tell closer decays apart, so two more are tried, at these factors of the best.
NEARER = 0.3, 3.0
# The stages of a contest.
LOG_LOSS, THE_AIM = "log-loss", "the aim"


class Contest(NamedTuple):
    """All candidates, log-loss first, and which of them was chosen."""

    candidates: list[Candidate]
    chosen: int

    @property
    def winner(self) -> Candidate:
        """The chosen candidate."""
        return self.candidates[self.chosen]

    def best(self, wanted: Callable[[Recipe], bool]) -> Candidate | None:
        """The best candidate of a kind of recipe, None where none was trained."""
        found = [one for one in self.candidates if wanted(one.recipe)]
        return best_of(found) if found else None


@dataclass(frozen=True)
class JudgedRows:
    """Rows that choose among candidates by an aim.

    Attributes:
        aim: what the model is judged by.
        labels: `[n, L]` of 0/1.
        weights: `[n]`, or None for 1.
    """

    aim: Aim
    labels: np.ndarray
    weights: np.ndarray | None

    @classmethod
    def of(cls, aim: Aim, data: Data, num_classes: int | None) -> JudgedRows:
        """The rows of some data. With `num_classes` its labels are classes."""
        labels, weights = data.labels.numpy(), None if data.weights is None else data.weights.numpy()
        return cls(aim, labels if num_classes is None else one_hot(labels, num_classes), weights)

    @property
    def blind(self) -> bool:
        """Whether they cannot judge, because every label lacks a class."""
        return bool((self.labels.min(0) == self.labels.max(0)).all())

    def judge(self, scores: np.ndarray) -> Judgement:
        """How good scores `[n, L]` of these rows are."""
        return judgement(self.aim, scores, self.labels, self.weights)


@dataclass(frozen=True)
class HeadTraining:
    """What all stages of a contest of heads share.

    Attributes:
        make_heads: gives new heads from their number and a seed.
        aim: what the model is judged by.
        data: rows to train on.
        validation: rows to choose on.
        multiclass: whether labels are classes.
        budget: how long and how fast.
        seed: random seed of starts, orders and resamples.
        observer: follows training.
    """

    make_heads: Callable[[int, int], Heads]
    aim: Aim
    data: Data
    validation: Data
    multiclass: bool
    budget: Budget
    seed: int
    observer: Observer

    @cached_property
    def generator(self) -> np.random.Generator:
        """Random generator of orders and samples of rows, which the stages share."""
        return np.random.default_rng(self.seed)

    @cached_property
    def judged(self) -> JudgedRows:
        """The validation rows, with labels and weights as the judge needs them."""
        num_classes = self.make_heads(1, self.seed).num_labels if self.multiclass else None
        return JudgedRows.of(self.aim, self.validation, num_classes)

    def train(self, heads: Heads, recipes: Sequence[Recipe], stage: str) -> list[Candidate]:
        """Train heads by batches."""
        return train(
            heads,
            recipes,
            self.data,
            self.validation,
            self.judged.judge,
            budget=self.budget,
            multiclass=self.multiclass,
            generator=self.generator,
            observer=self.observer,
            stage=stage,
            blind=self.judged.blind,
        )

    def evaluate(self, heads: Heads, recipes: Sequence[Recipe]) -> list[Candidate]:
        """Evaluate heads as they are."""
        return evaluated(heads, recipes, self.validation, self.judged.judge, 0, self.multiclass, ranks=self.data.ranks)


def compete(
    training: HeadTraining, *, single: Recipe | None, restarts: int, decays: Sequence[float], aimed: bool = True
) -> Contest:
    """Train candidates and choose among them on the validation rows.

    Args:
        training: rows, heads, budget and seed.
        single: the only recipe to train; None for all of them.
        restarts: candidates from scratch for each recipe.
        decays: tried with log-loss.
        aimed: whether heads are trained for the aim after those of log-loss.

    Returns:
        All candidates and which of them to keep.
    """
    seed = training.seed
    if single is not None:
        stage = LOG_LOSS if single.aim is None else THE_AIM
        return Contest(training.train(training.make_heads(1, seed), [single], stage), 0)
    recipes = log_loss_recipes(decays, training.multiclass)
    heads = training.make_heads(len(recipes), seed)
    linear = heads if isinstance(heads, Layers) and heads.linear else None
    candidates = _converged(training, linear, recipes) if linear else training.train(heads, recipes, LOG_LOSS)
    if aimed:
        candidates += _aimed(training, candidates, restarts, bool(linear))
    judged, ranks = training.judged, training.data.ranks
    return Contest(candidates, choose(candidates, training.aim, judged.labels, judged.weights, seed, ranks))


def _aimed(
    training: HeadTraining, candidates: Sequence[Candidate], restarts: int, log_loss_converged: bool
) -> list[Candidate]:
    """Heads trained for the aim, from the best log-loss and from scratch."""
    # Among equal ones, the plain one with the strongest decay.
    best = max(candidates, key=lambda one: (one.merit, not one.recipe.balanced, one.recipe.decay))
    recipes = aim_recipes(training.aim, best.recipe.decay, restarts)
    if not log_loss_converged:
        recipes.append(replace(best.recipe, start="log-loss"))
    heads = training.make_heads(len(recipes), training.seed + 1)
    for index, recipe in enumerate(recipes):
        if recipe.start == "log-loss":
            heads.set_head_(index, best.tensors)
    return training.train(heads, recipes, THE_AIM)


def _converged(training: HeadTraining, heads: Layers, recipes: Sequence[Recipe]) -> list[Candidate]:
    """Linear heads at the exact minimum of their log-loss."""
    generator, observer = training.generator, training.observer
    observer.on_stage_begin(LOG_LOSS)
    if (state := observer.saved(LOG_LOSS)) is not None:
        with resuming(LOG_LOSS):
            heads.load_state_dict(state.tensors)
            generator.bit_generator.state = state.facts["generator"]
    else:
        converge_(heads, recipes, training.data, training.multiclass, generator)
    reached = SavedState({"generator": generator.bit_generator.state}, heads.state_dict())
    candidates = training.evaluate(heads, recipes)
    if heads.num_labels > 1 and len({recipe.decay for recipe in recipes}) > 1:
        leader = best_of(candidates).recipe
        nearer = [replace(leader, decay=leader.decay * factor) for factor in NEARER]
        more = training.make_heads(len(nearer), training.seed)
        assert isinstance(more, Layers)
        converge_(more, nearer, training.data, training.multiclass, generator)
        candidates += training.evaluate(more, nearer)
    if state is None:
        observer.on_evaluation([seen_of(LOG_LOSS, one, 0) for one in candidates], best_of(candidates).value)
        observer.save(LOG_LOSS, reached)
    return candidates
