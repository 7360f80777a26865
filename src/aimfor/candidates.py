"""Step, last part: which recipes compete, and the choice among them on rows that none of them saw.

No single recipe is best everywhere, log-loss included, so none is bet on: log-loss with several decays comes first,
then the aim and its area with convex and tight surrogates, from the weights of log-loss and from scratch. Where
log-loss is not at its minimum by then it goes on beside them, so that nothing wins by its steps alone. Exact metrics on
validation rows choose, and log-loss is left only for a difference that the noise of those rows does not explain.

At a point the metric of few rows is noise in good part: one negative among the first can take half of a recall at a
precision. Where looks and candidates are compared, the area under the precision-recall curve therefore counts too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from aimfor.aims import AUCPR, Aim, AreaAim, PointAim
from aimfor.full_batch import converge_
from aimfor.heads import Heads, Layers
from aimfor.metrics import UndefinedMetricWarning
from aimfor.objectives import Data, Recipe
from aimfor.supervision import Kept, Supervision, taken_up
from aimfor.training import Budget, Candidate, Judgement, best_of, judged, look, rank, seen_of, train

# Resamples of the validation rows from which the noise of a difference is known.
RESAMPLES = 200
# Log-loss is left for a mean difference of more than so many standard deviations of it. Higher protects against chance,
# and gives away what aims with few deciding rows, such as recall at a precision, have to win.
NOISE = 0.5
# The share of the area in what they are compared by; none where the aim is itself an area.
AREA_SHARE = 1 / 3
# From so many labels on, labels are compared instead of rows: they are as many independent comparisons.
MANY_LABELS = 20
# Several labels or classes tell decays apart that lie nearer than those tried first: two more, these factors from the
# best.
NEARER = 0.3, 3.0
# The stages of a contest.
LOG_LOSS, THE_AIM = "log-loss", "the aim"


def log_loss_recipes(decays: Sequence[float], multiclass: bool) -> list[Recipe]:
    """Log-loss with each decay, for labels also with balanced classes."""
    return [
        Recipe(None, decay=decay, balanced=balanced) for balanced in (False, True)[: 2 - multiclass] for decay in decays
    ]


def aim_recipes(aim: Aim, decay: float, restarts: int) -> list[Recipe]:
    """The aim and its area, with convex and tight surrogates, from log-loss and, `restarts` times, from scratch.

    Convex bounds are loose: at a point they stop far on the safe side of its constraint, so there the exact rates drive
    the multiplier. Over an area they are better left alone.
    """

    def constraint(one: Aim, surrogate: str) -> str:
        return "exact" if surrogate != "sigmoid" and isinstance(one, PointAim) else "surrogate"

    area = AUCPR()
    starts = [("log-loss", 1), *(("scratch", attempt) for attempt in range(1, restarts + 1))]
    aims = [aim] if aim == area else [aim, area]
    return [
        Recipe(one, surrogate, constraint(one, surrogate), start, decay, attempt=attempt)
        for one in aims
        for surrogate in ("hinge", "smooth_hinge", "sigmoid")
        for start, attempt in starts
    ]


def plain(recipe: Recipe) -> bool:
    """Whether it is log-loss as everybody knows it."""
    return recipe.aim is None and not recipe.balanced


class Contest(NamedTuple):
    """All candidates, log-loss first, and which of them was chosen."""

    candidates: list[Candidate]
    chosen: int

    def best(self, wanted: Callable[[Recipe], bool]) -> Candidate | None:
        """The best candidate of a kind of recipe, None where none was trained."""
        found = [one for one in self.candidates if wanted(one.recipe)]
        return best_of(found) if found else None


def choose(candidates: Sequence[Candidate], aim: Aim, labels: np.ndarray, weights: np.ndarray | None, seed: int) -> int:
    """The candidate to keep: the best log-loss, unless another is better by more than the noise of these rows.

    Args:
        candidates: trained heads, log-loss among them.
        aim: what the model is judged by.
        labels: `[n, L]` 0/1 of the validation rows.
        weights: `[n]` or None.
        seed: of the resampling.

    Returns:
        Its index.
    """
    order = sorted(range(len(candidates)), key=lambda index: rank(candidates[index]), reverse=True)
    simple = next(index for index in order if plain(candidates[index].recipe))
    if simple == order[0]:
        return simple
    mean, deviation = paired_difference(candidates[order[0]], candidates[simple], aim, labels, weights, seed)
    return order[0] if mean > NOISE * deviation else simple


def judgement(aim: Aim, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> Judgement:
    """The exact metric, and its mean with the area under the precision-recall curve."""
    value = judged(aim, scores, labels, weights)
    if isinstance(aim, AreaAim):
        return Judgement(value, value)
    return Judgement(value, (1 - AREA_SHARE) * value + AREA_SHARE * judged(AUCPR(), scores, labels, weights))


def paired_difference(
    one: Candidate, other: Candidate, aim: Aim, labels: np.ndarray, weights: np.ndarray | None, seed: int
) -> tuple[float, float]:
    """Mean and standard deviation, over resamples of the rows, of the merit that `one` has more than `other`."""
    generator = np.random.default_rng(seed)
    if labels.shape[1] >= MANY_LABELS:
        merits = [per_label(aim, candidate.scores, labels, weights) for candidate in (one, other)]
        differences = merits[0] - merits[1]
        differences = differences[~np.isnan(differences)]
        return float(differences.mean()), float(differences.std() / math.sqrt(max(1, len(differences))))
    count = len(labels)
    differences = []
    for _ in range(RESAMPLES):
        drawn = generator.multinomial(count, np.full(count, 1 / count)).astype(np.float64)
        drawn = drawn if weights is None else drawn * weights
        merits = [judgement(aim, candidate.scores, labels, drawn).merit for candidate in (one, other)]
        differences.append(merits[0] - merits[1])
    return float(np.mean(differences)), float(np.std(differences))


def per_label(aim: Aim, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The merit of every label, nan where it does not exist."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        values = np.asarray(aim.metric(labels, scores, sample_weight=weights))
        areas = np.asarray(AUCPR().metric(labels, scores, sample_weight=weights))
    values = values if aim.greater_is_better else -values
    return values if isinstance(aim, AreaAim) else (1 - AREA_SHARE) * values + AREA_SHARE * areas


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
    supervision: Supervision,
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
        supervision: what goes on beside.

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
            supervision=supervision,
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

        supervision.begun(LOG_LOSS)
        if (kept := supervision.kept(LOG_LOSS)) is not None:
            with taken_up(LOG_LOSS):
                linear.load_state_dict(kept.tensors)
                generator.bit_generator.state = kept.facts["generator"]
        else:
            converge_(linear, recipes, data, multiclass, generator)
        now = Kept({"generator": generator.bit_generator.state}, linear.state_dict())
        candidates = look_at(linear, recipes)
        if linear.num_labels > 1 and len(decays) > 1:
            leader = best_of(candidates).recipe
            nearer = [replace(leader, decay=leader.decay * factor) for factor in NEARER]
            heads = make_heads(len(nearer), seed)
            assert isinstance(heads, Layers)
            converge_(heads, nearer, data, multiclass, generator)
            candidates += look_at(heads, nearer)
        if kept is None:
            supervision.looked([seen_of(LOG_LOSS, one, 0) for one in candidates], best_of(candidates).value)
            supervision.keep(LOG_LOSS, now)
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


def one_hot(classes: np.ndarray, count: int) -> np.ndarray:
    """Class indices `[n]` or `[n, 1]` as 0/1 `[n, count]`."""
    return (classes.reshape(-1, 1) == np.arange(count)).astype(np.int64)
