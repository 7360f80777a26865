"""Which recipes compete, and by what."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import aimfor
from aimfor.training._loop import Candidate
from aimfor.training._recipes import Recipe, aim_recipes
from aimfor.training._selection import AREA_SHARE, RESAMPLES, choose, judgement, paired_difference
from ranks_in_threads import in_ranks

LABELS = np.array([1, 0, 1, 0, 0, 1, 0, 0])[:, None]
SCORES = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])[:, None]


@pytest.mark.parametrize("aim", ["recall@precision>=0.6", "precision@recall>=0.9", "f1", "tpr@fpr<=0.2"])
def test_at_a_point_the_area_counts_for_a_part(aim):
    value, merit = judgement(aimfor.aim(aim), SCORES, LABELS, None)
    assert value == pytest.approx(float(aimfor.aim(aim).metric(LABELS[:, 0], SCORES[:, 0])))
    area = average_precision_score(LABELS[:, 0], SCORES[:, 0])
    assert merit == pytest.approx((1 - AREA_SHARE) * value + AREA_SHARE * area)
    assert merit != value


@pytest.mark.parametrize("aim", ["aucpr", "aucpr[precision>=0.5]", "aucroc"])
def test_areas_are_compared_by_themselves(aim):
    value, merit = judgement(aimfor.aim(aim), SCORES, LABELS, None)
    assert merit == value


def test_a_lower_rate_is_more_merit():
    worse = SCORES[::-1].copy()
    value, merit = judgement(aimfor.aim("fpr@tpr>=0.9"), SCORES, LABELS, None)
    worse_value, worse_merit = judgement(aimfor.aim("fpr@tpr>=0.9"), worse, LABELS, None)
    assert value > worse_value
    assert merit > worse_merit


@pytest.mark.parametrize("aim", ["recall@precision>=0.9", "precision@recall>=0.9", "tpr@fpr<=0.01", "f1", "aucroc"])
def test_only_convex_bounds_at_a_point_follow_the_exact_constraint(aim):
    recipes = aim_recipes(aimfor.aim(aim), 1e-4, restarts=2)
    assert len(recipes) == 2 * 3 * 3  # aim and area, three surrogates, from log-loss and twice from scratch
    for recipe in recipes:
        at_a_point = "@" in str(recipe.aim) and recipe.surrogate != "sigmoid"
        assert recipe.constraint == ("exact" if at_a_point else "surrogate")


def test_log_loss_is_left_only_for_more_than_noise():
    """The same scores with one pair of rows turned round are within the noise; a perfect ranking is not."""
    aim = aimfor.aim("f1")
    labels = np.tile(LABELS, (20, 1))
    plain = np.tile(SCORES, (20, 1)) + np.linspace(0, 0.05, 160)[:, None]
    nearly, perfect = plain.copy(), labels + 0.1 * plain
    nearly[[8, 9]] = nearly[[9, 8]]

    def candidate(recipe, scores, better=0.0):
        value, merit = judgement(aim, scores, labels, None)
        return Candidate(recipe, value, merit + better, scores, {}, 0, {})

    log_loss, own = Recipe(None), Recipe(aim, "hinge")
    assert choose([candidate(log_loss, plain), candidate(own, nearly, better=1e-3)], aim, labels, None, seed=0) == 0
    assert choose([candidate(log_loss, plain), candidate(own, perfect)], aim, labels, None, seed=0) == 1


def test_of_equals_the_strongest_decay_is_chosen():
    """Also when all of them rank without an error, where the weakest has the largest weights."""
    aim, labels = aimfor.aim("aucpr"), np.array([[0], [0], [1]])
    recipes = [Recipe(None, decay=1e-7), Recipe(None, decay=1e-1), Recipe(None, decay=1e-3), Recipe(aim, decay=1e-1)]
    equal = [Candidate(recipe, 1.0, 1.0, labels.astype(float), {}, 0, {}) for recipe in recipes]
    assert choose(equal, aim, labels, None, seed=0) == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_ranks_draw_different_resamples_and_find_the_difference_of_one_process(weighted, monkeypatch):
    aim, random = aimfor.aim("recall@precision>=0.6"), np.random.default_rng(0)
    labels = (random.random((300, 1)) < 0.3).astype(np.int64)
    weights = random.random(300) if weighted else None
    scores = [labels + noise * random.normal(size=(300, 1)) for noise in (0.5, 1.0)]
    one, other = (Candidate(Recipe(None), 0.0, 0.0, own, {}, 0, {}) for own in scores)
    drawn, plain = [], np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed: drawn.append(seed) or plain(seed))
    found = [
        in_ranks(lambda ranks: paired_difference(one, other, aim, labels, weights, 7, ranks), size)
        for size in (1, 2, 4)
    ]
    assert len({difference for own in found for difference in own}) == 1
    assert found[0][0][0] > 0
    assert found[0][0][1] > 0
    assert sorted(drawn) == sorted(3 * [(7, resample) for resample in range(RESAMPLES)])
