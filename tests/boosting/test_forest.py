"""Forests as plain data: LightGBM's scores without LightGBM, and nothing damaged is taken for a forest."""

import numpy as np
import pytest
import torch
from random_forests import random_case

pytest.importorskip("lightgbm")

import lightgbm

from aimfor import ModelFileError
from aimfor.boosting import Forest, ForestAverage, _library, from_lightgbm
from aimfor.boosting._walk import numpy_scores

safetensors = pytest.importorskip("safetensors.torch")


def both_walkers(forest, features):
    """Scores by the library where there is one, after they were compared with those of numpy."""
    plain = numpy_scores(forest._walk, features)
    np.testing.assert_array_equal(forest.scores(features), plain)
    return plain


def compare(seeds):
    for seed in seeds:
        booster, _, features = random_case(seed)
        forest = from_lightgbm(booster)
        expected = booster.predict(features, raw_score=True)
        read = Forest.from_tensors(safetensors.load(safetensors.save(forest.to_tensors())))
        found = both_walkers(read, features)
        # Sums in the same order round in the same way, so nothing is allowed between them.
        np.testing.assert_array_equal(found, expected, err_msg=str(seed))


def test_scores_are_those_of_lightgbm():
    compare(range(25))


@pytest.mark.slow
def test_scores_are_those_of_lightgbm_on_many_forests():
    compare(range(200))


def test_the_random_forests_have_everything_that_is_compared():
    forests = [from_lightgbm(random_case(seed).booster) for seed in range(25)]
    decisions = np.unique(np.concatenate([forest.decision for forest in forests]))
    assert set(decisions) == {0, 1, 2, 3, 4}
    assert any(forest.num_trees == len(forest.feature) for forest in forests)  # single leaves


def test_float32_columns_of_a_table_and_whole_numbers_give_the_same_scores():
    booster, _, features = random_case(3)
    forest = from_lightgbm(booster)
    narrow = features.astype(np.float32)
    expected = booster.predict(narrow.astype(np.float64), raw_score=True)
    np.testing.assert_array_equal(both_walkers(forest, narrow), expected)
    np.testing.assert_array_equal(both_walkers(forest, np.asfortranarray(narrow)), expected)
    wide = np.repeat(narrow, 2, axis=1)[::-1, ::2]
    np.testing.assert_array_equal(both_walkers(forest, wide), expected[::-1])
    whole = np.nan_to_num(features, posinf=9, neginf=-9).clip(-50, 50).astype(np.int64)
    np.testing.assert_array_equal(forest.scores(whole), booster.predict(whole, raw_score=True))
    assert forest.scores(features[:0]).shape == (0,)


def test_the_best_round_or_the_rounds_asked_for_are_taken():
    booster, _, features = random_case(8)
    assert booster.current_iteration() > 2
    np.testing.assert_array_equal(
        from_lightgbm(booster, num_iteration=2).scores(features),
        booster.predict(features, raw_score=True, num_iteration=2),
    )
    booster.best_iteration = 1
    assert from_lightgbm(booster).num_trees == 1


def test_gain_is_that_of_lightgbm():
    booster = random_case(8).booster
    np.testing.assert_allclose(from_lightgbm(booster).gain, booster.feature_importance("gain"), rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "labels", "message"),
    [
        ({"objective": "multiclass", "num_class": 3}, 3, "one score per row, got 3"),
        ({"objective": "binary", "linear_tree": True}, 2, "no linear trees"),
    ],
)
def test_what_cannot_be_copied_is_refused(settings, labels, message):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, labels, 200)
    booster = lightgbm.train({**settings, "verbose": -1, "num_threads": 1}, lightgbm.Dataset(X, y), 2)
    with pytest.raises(ValueError, match=message):
        from_lightgbm(booster)


def test_features_of_another_shape_or_kind_are_refused():
    forest = from_lightgbm(random_case(3).booster)
    with pytest.raises(ValueError, match=r"features must have shape \[n, "):
        forest.scores(np.zeros((5, forest.num_features + 1)))
    with pytest.raises(TypeError, match="real numbers"):
        forest.scores(np.full((5, forest.num_features), "a"))


def test_a_split_without_any_category_sends_every_row_right():
    tree = {
        "tree_starts": [0, 3],
        "feature": [0, -1, -1],
        "threshold": [0, 0, 0],
        "child": [1, -1, -1],
        "decision": [4, 0, 0],
        "value": [0, 1, 2],
        "set_starts": [0, 0, 0, 0],
        "set_bytes": [],
        "gain": [1],
    }
    some = from_lightgbm(random_case(3).booster).to_tensors()
    tensors = {name: torch.tensor(values).to(some[name].dtype) for name, values in tree.items()}
    forest = Forest.from_tensors(tensors)
    np.testing.assert_array_equal(both_walkers(forest, np.array([[0.0], [np.nan], [7.0]])), [2, 2, 2])


def test_without_the_library_scores_are_the_same(monkeypatch):
    booster, _, features = random_case(5)
    forest = from_lightgbm(booster)
    expected = forest.scores(features)
    monkeypatch.setattr(_library, "problem", lambda: "it was not built")
    np.testing.assert_array_equal(forest.scores(features), expected)


def test_threads_change_no_score(monkeypatch):
    booster, _, features = random_case(5)
    forest, many = from_lightgbm(booster), np.resize(features, (30_001, features.shape[1]))
    expected = forest.scores(many)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    np.testing.assert_array_equal(forest.scores(many), expected)
    np.testing.assert_array_equal(forest.scores(np.asfortranarray(many)[::-1])[::-1], expected)


# Damage: each function breaks one rule at a random place, on tensors that are copies.


def _put(name, make):
    def damage(tensors, rng):
        tensor = tensors[name]
        if not len(tensor):
            tensors[name] = torch.ones(3, dtype=tensor.dtype)
            return
        tensor[int(rng.integers(len(tensor)))] = make(rng, tensor)

    damage.__name__ = f"{name}_{make.__name__}"
    return damage


def too_large(rng, tensor):
    return 2**31 - 1 - int(rng.integers(1000)) if tensor.dtype != torch.uint8 else 8 + int(rng.integers(248))


def negative(rng, _):
    return -2 - int(rng.integers(2**20))


def not_finite(rng, _):
    return float(rng.choice([np.nan, np.inf, -np.inf]))


def not_a_number(*_):
    return np.nan


def cycle(tensors, rng):
    splits = np.flatnonzero(tensors["feature"].numpy() >= 0)
    split = int(rng.choice(splits))
    tensors["child"][split] = int(rng.integers(0, split + 1))


def shared_child(tensors, rng):
    splits = np.flatnonzero(tensors["feature"].numpy() >= 0)
    first, second = rng.choice(splits, 2, replace=False)
    tensors["child"][int(second)] = tensors["child"][int(first)] + int(rng.integers(-1, 2))


def leaf_with_children(tensors, rng):
    leaves = np.flatnonzero(tensors["feature"].numpy() < 0)
    tensors["feature"][int(rng.choice(leaves))] = 0


def split_without_children(tensors, rng):
    splits = np.flatnonzero(tensors["feature"].numpy() >= 0)
    tensors["feature"][int(rng.choice(splits))] = -1


def shorter(tensors, rng):
    name = str(rng.choice([name for name, tensor in tensors.items() if len(tensor) and name != "gain"]))
    tensors[name] = tensors[name][: int(rng.integers(len(tensors[name])))]


def longer(tensors, rng):
    name = str(rng.choice([name for name in tensors if name != "gain"]))
    tensors[name] = torch.cat([tensors[name], tensors[name].new_ones(1 + int(rng.integers(5)))])


def other_shape(tensors, rng):
    name = str(rng.choice(list(tensors)))
    tensors[name] = tensors[name][None]


def other_dtype(tensors, rng):
    name = str(rng.choice(list(tensors)))
    tensors[name] = tensors[name].to(torch.float32 if rng.random() < 0.5 else torch.int16)


def missing_tensor(tensors, rng):
    del tensors[str(rng.choice(list(tensors)))]


def further_tensor(tensors, rng):
    tensors[str(rng.integers(1000))] = torch.ones(2)


def no_features(tensors, _):
    tensors["gain"] = tensors["gain"][:0]


def empty(tensors, _):
    for name, tensor in tensors.items():
        tensors[name] = tensor[:0]


DAMAGES = [
    *(_put(name, too_large) for name in ("feature", "child", "tree_starts", "set_starts", "decision")),
    *(_put(name, negative) for name in ("feature", "child", "tree_starts", "set_starts", "gain")),
    *(_put(name, not_finite) for name in ("value", "gain")),
    _put("threshold", not_a_number),
    *(cycle, shared_child, leaf_with_children, split_without_children, shorter, longer, other_shape, other_dtype),
    *(missing_tensor, further_tensor, no_features, empty),
]


def splitting_forests(count):
    found = []
    for seed in range(1000):
        forest = from_lightgbm(random_case(seed).booster)
        if (forest.feature >= 0).sum() >= 4:
            found.append(forest)
        if len(found) == count:
            return found


def refuse_damaged(times, count):
    forests, rng = splitting_forests(count), np.random.default_rng(0)
    for time in range(times):
        tensors = {name: tensor.clone() for name, tensor in forests[time % count].to_tensors().items()}
        damage = DAMAGES[time // count % len(DAMAGES)]
        damage(tensors, rng)
        data = safetensors.save({name: tensor.contiguous() for name, tensor in tensors.items()})
        with pytest.raises(ModelFileError, match=r"^forest: [^\n]*, got [^\n]*$") as caught:
            Forest.from_tensors(safetensors.load(data))  # where this fails, `damage` says what was not noticed
        assert len(str(caught.value)) < 300


def test_damaged_forests_are_refused():
    refuse_damaged(525, 5)


@pytest.mark.slow
def test_ten_thousand_damaged_forests_are_refused():
    refuse_damaged(10_000, 20)


def flip_bits(times, count):
    """What happens to be a forest again must still score without a crash; returns how many were refused."""
    forests, rng, refused = splitting_forests(count), np.random.default_rng(1), 0
    for time in range(times):
        tensors = forests[time % count].to_tensors()
        for _ in range(int(rng.integers(1, 4))):
            name = str(rng.choice([name for name, tensor in tensors.items() if len(tensor)]))
            data = bytearray(tensors[name].numpy().tobytes())
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            tensors[name] = torch.frombuffer(data, dtype=tensors[name].dtype)
        try:
            forest = Forest.from_tensors(tensors)
        except ModelFileError:
            refused += 1
            continue
        features = rng.normal(size=(40, forest.num_features)) * 10
        assert np.isfinite(both_walkers(forest, features)).all()
    return refused


def test_flipped_bits_are_refused_or_score_without_a_crash():
    assert 0 < flip_bits(300, 5) < 300


@pytest.mark.slow
def test_many_flipped_bits_are_refused_or_score_without_a_crash():
    assert 0 < flip_bits(10_000, 20) < 10_000


# Averages


@pytest.fixture(scope="module")
def average():
    booster, _, features = random_case(8)
    forests = [from_lightgbm(booster, num_iteration=rounds) for rounds in (1, 3, 5)]
    scores = [forest.scores(features) for forest in forests]
    weights = np.random.default_rng(0).random(len(features))
    return ForestAverage.standardised(forests, scores, weights), features, scores, weights


def test_an_average_has_mean_0_and_equal_spread_of_its_forests(average):
    model, features, scores, weights = average
    standard = [(own - centre) / scale for own, centre, scale in zip(scores, model.centres, model.scales, strict=True)]
    for own in standard:
        mean = np.average(own, weights=weights)
        np.testing.assert_allclose([mean, np.average((own - mean) ** 2, weights=weights)], [0, 1], atol=1e-12)
    np.testing.assert_allclose(model.scores(features), np.mean(standard, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(model.combine(scores), model.scores(features))
    assert model.gain.sum() == pytest.approx(1)


def test_an_average_is_read_as_it_was_written(average):
    model, features, *_ = average
    read = ForestAverage.from_tensors(safetensors.load(safetensors.save(model.to_tensors())))
    np.testing.assert_array_equal(read.scores(features), model.scores(features))


def test_a_forest_that_spreads_nothing_counts_0(average):
    model, features, *_ = average
    forest = model.forests[0]
    flat = ForestAverage.standardised([forest], [np.full(len(features), 2.0)])
    assert (flat.centres, flat.scales) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("scales", torch.zeros(3, dtype=torch.float64)),
        ("scales", torch.ones(2, dtype=torch.float64)),
        ("scales", torch.ones(3)),
        ("centres", torch.full((3,), torch.nan, dtype=torch.float64)),
        ("centres", torch.zeros(0, dtype=torch.float64)),
        ("centres", torch.zeros(2, dtype=torch.float64)),
        ("centres", torch.zeros(5000, dtype=torch.float64)),
        ("centres", None),
        ("3.feature", torch.zeros(3)),
        ("feature", torch.zeros(3)),
        ("0.gain", torch.ones(40, dtype=torch.float64)),
        ("0.gain", None),
    ],
)
def test_a_damaged_average_is_refused(average, name, tensor):
    tensors = average[0].to_tensors()
    tensors.pop(name, None)
    if tensor is not None:
        tensors[name] = tensor
    with pytest.raises(ModelFileError, match=r"^forests?: [^\n]*$"):
        ForestAverage.from_tensors(tensors)
