"""The search: log-loss forests that depend on their own seed only, each kept at its best round."""

import time

import numpy as np
import pytest
from scipy import sparse

lightgbm = pytest.importorskip("lightgbm")

from aimfor.boosting import FoundForest, Sample, retrain, search  # noqa: E402
from aimfor.boosting._search import RATES_AND_ROUNDS, settings_of  # noqa: E402


def table(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 5))
    features[:, 4] = rng.integers(0, 12, rows)
    chance = 1 / (1 + np.exp(-(2 * features[:, 0] + (features[:, 4] % 3 == 1) * 3 - 2)))
    features[rng.random(features.shape) < 0.1] = np.nan
    return Sample(features, (rng.random(rows) < chance).astype(np.int64), None)


TRAINING, VALIDATION = table(), table(300, seed=1)


def found(training=TRAINING, validation=VALIDATION, **options) -> list[FoundForest]:
    return list(search(training, validation, **{"categories": [4], "seed": 3, "forests": 3, **options}))


@pytest.fixture(scope="module")
def three():
    return found()


def same(one: FoundForest, other: FoundForest) -> bool:
    tensors, others = one.forest.to_tensors(), other.forest.to_tensors()
    return all(tensor.equal(others[name]) for name, tensor in tensors.items())


def test_forests_learn_and_say_what_they_give_on_the_validation_rows(three):
    assert [forest.place for forest in three] == [0, 1, 2]
    base = VALIDATION.labels.mean()
    constant = -(base * np.log(base) + (1 - base) * np.log(1 - base))
    for forest in three:
        np.testing.assert_array_equal(forest.forest.scores(VALIDATION.features), forest.scores)
        expected = np.logaddexp(0, np.where(VALIDATION.labels == 1, -forest.scores, forest.scores)).mean()
        assert forest.log_loss == pytest.approx(expected)
        assert forest.log_loss < constant


def test_categories_are_sets(three):
    assert any((forest.forest.decision == 4).any() for forest in three)
    assert not any((forest.forest.decision == 4).any() for forest in found(categories=()))


def test_each_forest_is_kept_at_its_best_round(three):
    """A booster that is trained by hand with the same settings has no better round."""
    for forest in three:
        settings = dict(forest.settings)
        rounds = settings.pop("rounds")
        common = {"feature_pre_filter": False, "verbose": -1}
        data = lightgbm.Dataset(*TRAINING[:2], categorical_feature=[4], params=common)
        booster = lightgbm.train({**settings, **common}, data, rounds)
        losses = []
        for count in range(1, booster.num_trees() + 1):
            scores = booster.predict(VALIDATION.features, raw_score=True, num_iteration=count)
            losses.append(np.logaddexp(0, np.where(VALIDATION.labels == 1, -scores, scores)).mean())
        # Training ends when a quarter of the rounds brought nothing, so a later and lower one may exist.
        best = forest.forest.num_trees
        assert losses[best - 1] == pytest.approx(forest.log_loss)
        assert min(losses[: best + rounds // 4]) == pytest.approx(forest.log_loss)


def test_a_seed_gives_the_same_forests_whatever_their_number_and_threads(three, monkeypatch):
    again = found(forests=2)
    assert all(same(*pair) for pair in zip(again, three, strict=False))
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert all(same(*pair) for pair in zip(found(forests=2), three, strict=False))
    assert not same(found(seed=4, forests=1)[0], three[0])


def test_a_search_that_was_stopped_goes_on_to_the_same_forests(three, monkeypatch):
    stored = {}
    for forest in search(TRAINING, VALIDATION, categories=[4], seed=3, forests=3):
        stored[forest.place] = type(forest.forest).from_tensors(forest.forest.to_tensors())
        if len(stored) == 2:
            break
    trained = []
    monkeypatch.setattr("aimfor.boosting._search._train", counted("aimfor.boosting._search", trained))
    resumed = found(stored=stored)
    assert len(trained) == 1
    for one, other in zip(resumed, three, strict=True):
        assert same(one, other)
        assert (one.place, one.settings, one.log_loss) == (other.place, other.settings, other.log_loss)
        np.testing.assert_array_equal(one.scores, other.scores)


def counted(module, calls):
    original = __import__(module, fromlist=["_train"])._train

    def train(*arguments):
        calls.append(1)
        return original(*arguments)

    return train


def test_a_weight_of_two_everywhere_changes_nothing_and_of_zero_removes_a_row(three):
    doubled = TRAINING._replace(weights=np.full(len(TRAINING.labels), 2.0))
    assert same(found(doubled, forests=1)[0], three[0])
    weights = np.where(np.arange(len(TRAINING.labels)) < 400, 3.0, 0.0)
    part = Sample(TRAINING.features[:400], TRAINING.labels[:400], None)
    validation = VALIDATION._replace(weights=np.where(np.arange(300) < 200, 2.0, 0.0))
    short = Sample(VALIDATION.features[:200], VALIDATION.labels[:200], None)
    one, other = found(TRAINING._replace(weights=weights), validation, forests=1)[0], found(part, short, forests=1)[0]
    assert same(one, other)
    assert one.log_loss == pytest.approx(other.log_loss)


def test_sparse_rows_give_the_forests_of_dense_ones():
    dense = [rows._replace(features=np.nan_to_num(rows.features)) for rows in (TRAINING, VALIDATION)]
    thin = [rows._replace(features=sparse.csr_matrix(rows.features)) for rows in dense]
    one, other = found(*thin, forests=1)[0], found(*dense, forests=1)[0]
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-12)


def test_a_deadline_ends_the_search_but_gives_one_forest(three):
    past = found(deadline=time.monotonic() - 1)
    assert len(past) == 1
    assert past[0].forest.num_trees == 1
    stored = {0: three[0].forest}
    assert len(found(deadline=time.monotonic() - 1, stored=stored)) == 1
    assert len(found(deadline=time.monotonic() + 600)) == 3


def test_forests_are_trained_again_with_their_settings_and_rounds(three):
    """On the same rows they are the same, on more rows they have as many trees."""
    wanted = {one.place: one.forest for one in (three[2], three[0])}
    same_rows = retrain(TRAINING, wanted, categories=[4], seed=3)
    for (place, forest), one in zip(same_rows, (three[2], three[0]), strict=True):
        assert place == one.place
        assert same(one._replace(forest=forest), one)
    parts = [np.concatenate(pair) for pair in zip(TRAINING[:2], VALIDATION[:2], strict=True)]
    more = dict(retrain(Sample(*parts), wanted, categories=[4], seed=3))
    assert [forest.num_trees for forest in more.values()] == [forest.num_trees for forest in wanted.values()]
    assert not any(same(one._replace(forest=more[one.place]), one) for one in three if one.place in more)
    assert not list(retrain(TRAINING, wanted, categories=[4], seed=3, deadline=time.monotonic() - 1))
    with pytest.raises(ValueError, match="labels must have both classes"):
        retrain(TRAINING._replace(labels=np.zeros(600)), wanted)


def test_the_settings_are_those_of_the_recipe():
    drawn = [settings_of(0, place) for place in range(300)]
    assert {entry["num_leaves"] for entry in drawn} == {4, 8, 15, 31}
    assert {entry["min_data_in_leaf"] for entry in drawn} == {5, 10, 20, 50}
    assert {(entry["learning_rate"], entry["rounds"]) for entry in drawn} == set(RATES_AND_ROUNDS)
    assert set(RATES_AND_ROUNDS) == {(0.05, 200), (0.1, 120), (0.2, 60)}
    assert {entry["feature_fraction"] for entry in drawn} == {0.5, 0.75, 1.0}
    assert {entry["lambda_l2"] for entry in drawn} == {0.0, 1.0, 10.0}
    assert {entry["bagging_fraction"] for entry in drawn} == {0.7, 1.0}
    assert {entry["max_cat_to_onehot"] for entry in drawn} == {4, 2**16}


def test_rows_that_cannot_be_split_give_a_constant():
    few = Sample(TRAINING.features[:6], np.array([0, 1, 0, 1, 1, 1]), None)
    forest = found(few, forests=1)[0]
    assert np.ptp(forest.scores) == 0
    np.testing.assert_allclose(forest.scores[0], np.log(2))


def test_three_numbers_of_lightgbm_itself_are_reached():
    """The bare library with the settings of the first forest gives the very same scores."""
    forest = found(forests=1)[0]
    settings = dict(forest.settings)
    settings.pop("rounds")
    data = lightgbm.Dataset(*TRAINING[:2], categorical_feature=[4], params={"feature_pre_filter": False, "verbose": -1})
    booster = lightgbm.train({**settings, "verbose": -1}, data, forest.forest.num_trees)
    np.testing.assert_array_equal(booster.predict(VALIDATION.features, raw_score=True), forest.scores)


@pytest.mark.parametrize(
    ("training", "options", "message"),
    [
        (TRAINING._replace(labels=np.zeros(600)), {}, "labels must have both classes"),
        (TRAINING._replace(labels=np.full(600, 2)), {}, "labels must be 0 or 1 in every entry, got 2"),
        (TRAINING._replace(labels=np.zeros(5)), {}, "labels must have one entry for each of the 600 rows, got 5"),
        (TRAINING._replace(weights=np.full(600, -1.0)), {}, "weights must be finite and >= 0"),
        (TRAINING._replace(weights=np.zeros(600)), {}, "labels must have both classes"),
        (TRAINING._replace(features=TRAINING.features[:, :4]), {}, r"must be a column of the features, got 4"),
        (TRAINING, {"categories": [0]}, "column 0 must hold whole numbers of at least 0, or NaN"),
        (TRAINING, {"forests": 0}, "forests must be at least 1"),
    ],
)
def test_bad_input(training, options, message):
    with pytest.raises(ValueError, match=message):
        found(training, **options)


def test_without_lightgbm_the_extra_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'aimfor\[boosting\]'"):
        found()
