"""Step, last part: which recipes compete, and the choice among them on rows that none of them saw.

No single recipe is best everywhere, log-loss included, so none is bet on: log-loss with several decays comes first,
then the aim and its area with convex and tight surrogates, from the weights of log-loss and from scratch. Where
log-loss is not at its minimum by then it goes on beside them, so that nothing wins by its steps alone. Exact metrics on
validation rows choose, and log-loss is left only for a difference that the noise of those rows does not explain.

At a point the metric of few rows is noise in good part: one negative among the first can take half of a recall at a
precision. Where looks and candidates are compared, the area under the precision-recall curve therefore counts too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from aimfor.aims import Aim, one_hot
from aimfor.training._log_loss_fit import converge_
from aimfor.training._loop import Budget, Candidate, Judgement, best_of, look, seen_of, train
from aimfor.training._models import Heads, Layers
from aimfor.training._observer import Observer, SavedState, resuming
from aimfor.training._recipes import Recipe, aim_recipes, log_loss_recipes
from aimfor.training._rows import Data
from aimfor.training._selection import choose, judgement

# Several labels or classes tell decays apart that lie nearer than those tried first: two more, these factors from the
# best.
NEARER = 0.3, 3.0
# The stages of a contest.
LOG_LOSS, THE_AIM = "log-loss", "the aim"


class Contest(NamedTuple):
    """All candidates, log-loss first, and which of them was chosen."""

    candidates: list[Candidate]
    chosen: int

    def best(self, wanted: Callable[[Recipe], bool]) -> Candidate | None:
        """The best candidate of a kind of recipe, None where none was trained."""
        found = [one for one in self.candidates if wanted(one.recipe)]
        return best_of(found) if found else None


def compete(
    make_heads: Callable[[int, int], Heads],
    aim: Aim,
    data: Data,
    validation: Data,
    *,
    multiclass: bool,
    single: Recipe | None,
    restarts: int,
    decays: Sequence[float],
    budget: Budget,
    seed: int,
    observer: Observer,
) -> Contest:
    """Train candidates and choose among them on the validation rows.

    Args:
        make_heads: gives new heads from their number and a seed.
        aim: what the model is judged by.
        data: rows to train on.
        validation: rows to choose on.
        multiclass: whether labels are classes.
        single: the only recipe to train; None for all of them.
        restarts: candidates from scratch for each recipe.
        decays: tried with log-loss.
        budget: how long and how fast.
        seed: of starts, order and resampling.
        observer: what goes on beside.

    Returns:
        All candidates and which of them to keep.
    """
    generator = np.random.default_rng(seed)
    labels, weights = validation.labels.numpy(), None if validation.weights is None else validation.weights.numpy()
    if multiclass:
        labels = one_hot(labels, make_heads(1, seed).num_labels)
    blind = bool((labels.min(0) == labels.max(0)).all())

    def judge(scores: np.ndarray) -> Judgement:
        return judgement(aim, scores, labels, weights)

    def trained(heads: Heads, recipes: list[Recipe], stage: str) -> list[Candidate]:
        return train(
            heads,
            recipes,
            data,
            validation.rows,
            judge,
            budget=budget,
            multiclass=multiclass,
            generator=generator,
            observer=observer,
            stage=stage,
            blind=blind,
        )

    if single is not None:
        return Contest(trained(make_heads(1, seed), [single], LOG_LOSS if single.aim is None else THE_AIM), 0)
    recipes = log_loss_recipes(decays, multiclass)
    heads = make_heads(len(recipes), seed)
    linear = heads if isinstance(heads, Layers) and heads.linear else None
    if linear is None:
        candidates = trained(heads, recipes, LOG_LOSS)
    else:  # log-loss has one minimum, which is then found exactly

        def look_at(heads: Layers, recipes: list[Recipe]) -> list[Candidate]:
            return look(heads, recipes, validation.rows, judge, 0, multiclass)

        observer.on_stage_begin(LOG_LOSS)
        if (kept := observer.saved(LOG_LOSS)) is not None:
            with resuming(LOG_LOSS):
                linear.load_state_dict(kept.tensors)
                generator.bit_generator.state = kept.facts["generator"]
        else:
            converge_(linear, recipes, data, multiclass, generator)
        now = SavedState({"generator": generator.bit_generator.state}, linear.state_dict())
        candidates = look_at(linear, recipes)
        if linear.num_labels > 1 and len(decays) > 1:
            leader = best_of(candidates).recipe
            nearer = [replace(leader, decay=leader.decay * factor) for factor in NEARER]
            heads = make_heads(len(nearer), seed)
            assert isinstance(heads, Layers)
            converge_(heads, nearer, data, multiclass, generator)
            candidates += look_at(heads, nearer)
        if kept is None:
            observer.on_evaluation([seen_of(LOG_LOSS, one, 0) for one in candidates], best_of(candidates).value)
            observer.save(LOG_LOSS, now)
    # Of equal ones the plain with the strongest decay.
    best = max(candidates, key=lambda one: (one.merit, not one.recipe.balanced, one.recipe.decay))
    recipes = aim_recipes(aim, best.recipe.decay, restarts)
    if linear is None:
        recipes.append(replace(best.recipe, start="log-loss"))
    heads = make_heads(len(recipes), seed + 1)
    for index, recipe in enumerate(recipes):
        if recipe.start == "log-loss":
            heads.set_head_(index, best.tensors)
    candidates += trained(heads, recipes, THE_AIM)
    return Contest(candidates, choose(candidates, aim, labels, weights, seed))
