"""Which recipes compete, and by what."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import aimfor
from aimfor.candidates import AREA_SHARE, aim_recipes, average, judgement, settled, wins
from aimfor.objectives import Recipe
from aimfor.training import Candidate

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
    for scores, better, left in ((nearly, 1e-3, False), (perfect, 0.0, True)):
        contest = settled(
            [candidate(log_loss, plain), candidate(own, scores, better=better)], aim, labels, None, seed=0
        )
        assert contest.chosen == int(left)
        assert contest.shares == [float(not left), float(left)]


def test_of_equals_the_strongest_decay_is_chosen():
    """Also when all of them rank without an error, where the weakest has the largest weights."""
    aim, labels = aimfor.aim("aucpr"), np.array([[0], [0], [1]])
    recipes = [Recipe(None, decay=1e-7), Recipe(None, decay=1e-1), Recipe(None, decay=1e-3), Recipe(aim, decay=1e-1)]
    equal = [Candidate(recipe, 1.0, 1.0, labels.astype(float), {}, 0, {}) for recipe in recipes]
    for linear in (False, True):
        contest = settled(equal, aim, labels, None, seed=0, linear=linear)
        assert (contest.chosen, len(contest.candidates)) == (1, 4)


def contenders(aim, labels, generator, qualities, scales=None):
    """Candidates of two features, the first of which tells the label, with so much of it in their weights."""
    features = generator.normal(size=(len(labels), 2)) + np.array([1.5, 0.0]) * labels
    found = []
    for index, quality in enumerate(qualities):
        weight = np.array([[quality], [1 - quality]]) * (1.0 if scales is None else scales[index])
        recipe = Recipe(None) if index == 0 else Recipe(aim, "hinge", attempt=index)
        scores = features @ weight
        tensors = {"weights.0": torch.from_numpy(weight), "offsets.0": torch.zeros(1, dtype=torch.float64)}
        found.append(Candidate(recipe, *judgement(aim, scores, labels, None), scores, tensors, index, {}))
    return features, found


def test_an_average_holds_candidates_by_how_often_they_are_best():
    """Its scores are those of its weights, its shares add up to one, and who is far behind has none."""
    aim, generator = aimfor.aim("aucpr"), np.random.default_rng(0)
    labels = (generator.random((400, 1)) < 0.1).astype(np.int64)
    features, candidates = contenders(aim, labels, generator, (0.5, 0.9, 1.0, 0.95, -1.0))
    contest = settled(candidates, aim, labels, None, seed=0, linear=True)
    kept = contest.candidates[contest.chosen]
    assert kept.recipe.name.startswith("average of ")
    assert contest.shares[-1] == 1
    assert sum(contest.shares[:-1]) == pytest.approx(1)
    assert contest.shares[4] == 0
    assert sum(share > 0 for share in contest.shares) >= 3
    np.testing.assert_allclose(kept.scores, features @ kept.tensors["weights.0"].numpy(), rtol=1e-12)
    assert kept.value == pytest.approx(float(aim.metric(labels[:, 0], kept.scores[:, 0])))


def test_an_average_does_not_depend_on_the_size_of_its_members_scores():
    """A head of tenfold weights ranks the same rows, so it counts the same."""
    aim, qualities = aimfor.aim("recall@precision>=0.5"), (0.5, 0.8, 1.0)
    labels = (np.random.default_rng(1).random((300, 1)) < 0.2).astype(np.int64)
    shares = np.array([0.2, 0.3, 0.5])
    means = []
    for scales in ((1.0, 1.0, 1.0), (10.0, 1.0, 0.01)):
        _, candidates = contenders(aim, labels, np.random.default_rng(2), qualities, scales)
        means.append(average(candidates, shares, aim, labels, None))
    ratio = means[0].scores / means[1].scores
    np.testing.assert_allclose(ratio, ratio[0, 0])
    assert means[0].value == means[1].value


def test_weights_count_in_who_is_best():
    """The candidate that is right on the rows that weigh wins all resamples."""
    aim = aimfor.aim("aucroc")
    labels = np.tile([[1], [0], [1], [0]], (50, 1))
    right_first = np.tile([[4.0], [1.0], [2.0], [3.0]], (50, 1))
    right_last = np.tile([[2.0], [3.0], [4.0], [1.0]], (50, 1))
    both = [
        Candidate(Recipe(None), *judgement(aim, scores, labels, None), scores, {}, 0, {})
        for scores in (right_first, right_last)
    ]
    for weights, winner in (([1.0, 1.0, 0.01, 0.01], 0), ([0.01, 0.01, 1.0, 1.0], 1)):
        shares = wins(both, [0, 1], aim, labels, np.tile(weights, 50), seed=0)
        assert shares[winner] == 1


def test_heads_that_rank_nothing_are_not_averaged():
    """One whose scores are all equal, and one that is not finite."""
    aim, generator = aimfor.aim("aucpr"), np.random.default_rng(3)
    labels = (generator.random((200, 1)) < 0.2).astype(np.int64)
    _, (first, second) = contenders(aim, labels, generator, (0.9, 1.0))
    flat = first._replace(recipe=Recipe(aim), scores=np.ones_like(first.scores))
    broken = first._replace(recipe=Recipe(aim), scores=np.full_like(first.scores, np.nan), merit=-np.inf, value=-np.inf)
    contest = settled([first, second, flat, broken], aim, labels, None, seed=0, linear=True)
    assert contest.shares[2:4] == [0, 0]
    assert np.isfinite(contest.candidates[contest.chosen].scores).all()
