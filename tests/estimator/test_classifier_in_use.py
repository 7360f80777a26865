"""The classifier as it is used: by several threads, on streams of rows, with weights and features of any size."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV
from torch import nn

import aimfor

X, y = make_classification(600, 10, n_informative=5, weights=[0.8], flip_y=0.05, random_state=0)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))


def test_scoring_leaves_the_mode_of_a_module_alone():
    model = aimfor.Classifier("f1", model=network, surrogate="hinge", steps=20, random_state=0).fit(X, y)
    modes = []
    for part in model.model_.heads.modules():
        part.train = lambda mode=True: modes.append(mode)  # a switch would be seen by other threads
    expected = model.raw_scores(X)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: model.raw_scores(X), range(8)))
    assert not model.model_.heads.training
    assert modes == []
    assert all(np.array_equal(one, expected) for one in found)


def test_partial_fit_ends_in_evaluation():
    model = aimfor.Classifier("f1", model=network, surrogate="hinge", random_state=0).partial_fit(X, y)
    assert not any(part.training for part in model.model_.heads.modules())


def test_rows_scored_one_by_one_are_decided_as_together():
    """At the threshold is a row, whose score in single precision depends on those beside it."""
    for seed in range(4):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        model = aimfor.Classifier("precision@recall>=0.8", model=net, surrogate="hinge", steps=40, random_state=0)
        model.fit(X[:400], y[:400], validation_data=(X[400:], y[400:]))
        together = model.predict(X[400:])
        assert together[y[400:] == 1].mean() == pytest.approx(model.operating_point_.recall)
        assert np.array_equal([model.predict(row[None])[0] for row in X[400:]], together)


@pytest.mark.parametrize("kind", ["logistic", "isotonic"])
def test_weights_of_any_size_give_the_same_chances(kind):
    def chances(weights):
        model = aimfor.Classifier("f1", surrogate="log_loss", calibrate=kind, steps=50, random_state=0)
        return model.fit(X, y, weights).predict_proba(X)

    expected = chances(None)
    for size in (1 / len(y), 1000.0):
        np.testing.assert_allclose(chances(np.full(len(y), size)), expected, rtol=1e-6)


@pytest.mark.parametrize("solver", ["lp", "search"])
def test_solvers_score_shifted_features_alike(solver):
    def scores(shift):
        model = aimfor.Classifier("precision@recall>=0.8", solver=solver, random_state=0).fit(X[:200] + shift, y[:200])
        return model.raw_scores(X + shift)[:, 0]

    expected, shifted = scores(0.0), scores(1e7)
    # Some rows of the optimum lie at the edge of the hinge, which is one score.
    assert len(np.unique(shifted)) > 0.95 * len(X)
    np.testing.assert_allclose(shifted, expected, atol=1e-4 * np.ptp(expected))


def test_a_stream_that_begins_with_one_row_is_learned():
    model = aimfor.Classifier("aucpr", model="linear", learning_rate=0.05, random_state=0)
    model.partial_fit(X[:1], y[:1], classes=[0, 1])
    for _ in range(30):
        model.partial_fit(X, y)
    assert np.all(model.coef_ != 0)
    assert model.score(X, y) > 0.5


def test_a_sparse_column_may_first_appear_in_a_later_call():
    rows = sparse.csr_matrix(np.eye(2)[y])  # the second column says it all
    model = aimfor.Classifier("aucpr", model="linear", learning_rate=0.05, random_state=0)
    model.partial_fit(rows[y == 0], y[y == 0], classes=[0, 1])
    for _ in range(30):
        model.partial_fit(rows, y)
    assert model.score(rows, y) == pytest.approx(1.0)


def test_weights_of_one_partial_fit_count_beside_those_of_others():
    def score(right, wrong):
        model = aimfor.Classifier("aucpr", model="linear", batch_size=64, learning_rate=0.02, random_state=0)
        for _ in range(20):
            model.partial_fit(X, y, sample_weight=np.full(len(y), right))
            model.partial_fit(X, 1 - y, sample_weight=np.full(len(y), wrong))
        return model.score(X, y)

    assert score(100.0, 0.01) > 0.6
    assert score(0.01, 100.0) < 0.2


@pytest.mark.parametrize("surrogate", ["log_loss", "hinge"])
def test_few_heavy_rows_count_in_batches_that_lack_them(surrogate):
    """A batch divided by its own weight would take as long a step without them as with them."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(20_000, 4))
    labels = (rows[:, 0] + generator.normal(size=20_000) > 1.2).astype(int)
    heavy = generator.choice(20_000, 20, replace=False)
    labels[heavy] = rows[heavy, 1] > 0
    weights = np.ones(20_000)
    weights[heavy] = 10_000.0
    model = aimfor.Classifier("aucpr", surrogate=surrogate, steps=1500, validation_fraction=0, random_state=0)
    exact = LogisticRegression(C=1e6).fit(rows, labels, weights / weights.mean())
    reached = aimfor.aim("aucpr").metric(labels, exact.decision_function(rows), sample_weight=weights)
    assert model.fit(rows, labels, weights).score(rows, labels, weights) > reached - 0.01


def test_a_new_learning_rate_is_taken_by_the_next_partial_fit():
    model = aimfor.Classifier("aucpr", model="linear", random_state=0).partial_fit(X, y)
    before = model.coef_.copy()
    model.set_params(learning_rate=1e-9).partial_fit(X, y)
    np.testing.assert_allclose(model.coef_, before, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"solver": "lp", "weight_decay": 1.0},
            "weight_decay must be 'auto' for solver 'lp', which has no decay, got 1",
        ),
        ({"solver": "search", "constraint": "exact"}, "constraint must be \"surrogate\" for solver 'search'"),
        (
            {"model": nn.Linear(10, 1).requires_grad_(False)},
            "model must have a parameter that can be trained, got none",
        ),
        ({"model": nn.Linear(9, 1)}, r"model must take rows of shape \(\d+, 10\), got the error: mat1 and mat2"),
    ],
)
def test_what_would_be_ignored_or_cannot_be_trained_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        aimfor.Classifier("precision@recall>=0.8", **{"model": "linear", "steps": 5, **options}).fit(X, y)


def test_a_module_must_give_a_tensor():
    class Tuple(nn.Linear):
        def forward(self, input):
            return (super().forward(input),)

    with pytest.raises(TypeError, match="model must give a tensor, got tuple"):
        aimfor.Classifier("f1", model=Tuple(10, 1), steps=5).fit(X, y)


def test_a_factory_that_gives_one_module_again_and_again():
    module = nn.Linear(10, 1)
    before = module.weight.detach().clone()
    model = aimfor.Classifier("f1", model=lambda: module, steps=50, random_state=0).fit(X, y)
    assert torch.equal(module.weight, before)
    assert len({entry["value"] for entry in model.history_}) > 1


def test_a_scorer_says_what_it_cannot_be_used_for():
    with pytest.raises(
        AttributeError, match=r"aimfor.scorer\('f1'\) judges a ranking, which TunedThresholdClassifierCV"
    ):
        TunedThresholdClassifierCV(LogisticRegression(), scoring=aimfor.scorer("f1")).fit(X, y)
    assert aimfor.scorer("f1").get_metadata_routing().score.owner == "aimfor.scorer('f1')"


@pytest.mark.parametrize("kind", ["category", "string", object])
def test_columns_of_texts_are_refused_with_what_to_do(kind):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": np.arange(20.0), "town": pandas.Series(["Bonn", "Rome"] * 10, dtype=kind)})
    with pytest.raises(ValueError, match="column 'town' holds texts or categories: turn them into numbers"):
        aimfor.Classifier("f1").fit(table, np.arange(20) % 2)


def test_categories_that_are_numbers_are_numbers():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": np.arange(40.0), "grade": pandas.Series([1, 2] * 20, dtype="category")})
    labels = (np.arange(40) > 25).astype(int)
    model = aimfor.Classifier("f1", model="linear", steps=10, random_state=0).fit(table, labels)
    np.testing.assert_array_equal(
        model.raw_scores(table), clone(model).fit(table.astype(float), labels).raw_scores(table.astype(float))
    )
