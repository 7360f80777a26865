"""Importance by shuffling, split gain and coefficients, for every kind of model."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.inspection import permutation_importance
from sklearn.utils.validation import NotFittedError

import aimfor
from aimfor.estimator import sampled
from aimfor.estimator._importance import with_others

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1200, 4))
y = (X[:, 0] + 0.5 * X[:, 1] + RNG.normal(scale=0.5, size=1200) > 1).astype(int)
QUICK = {"steps": 40, "random_state": 0}
KINDS = ["trees", "linear", "mlp", "auto"]


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    if request.param in ("trees", "auto"):
        pytest.importorskip("lightgbm")
    return aimfor.Classifier("aucpr", model=request.param, **QUICK).fit(X[:800], y[:800])


def test_features_that_matter_come_first_whatever_the_kind(model):
    found = model.permutation_importance(X[800:], y[800:])
    assert found.importances.shape == (4, 5)
    assert list(np.argsort(-found.importances_mean)[:2]) == [0, 1]
    assert found.importances_mean[0] > 0.2
    assert abs(found.importances_mean[2]) < 0.05
    np.testing.assert_allclose(found.importances_std, found.importances.std(axis=1))
    np.testing.assert_array_equal(found.importances, model.permutation_importance(X[800:], y[800:]).importances)


def test_it_is_that_of_scikit_learn(model):
    theirs = permutation_importance(model, X[800:], y[800:], n_repeats=20, random_state=0)
    ours = model.permutation_importance(X[800:], y[800:], n_repeats=20)
    error = np.hypot(theirs.importances_std, ours.importances_std) / np.sqrt(20)
    assert (np.abs(theirs.importances_mean - ours.importances_mean) <= 5 * error + 1e-12).all()


def test_split_gain_of_trees_and_coefficients_of_linear_models(model):
    if model.model in ("trees", "auto"):
        np.testing.assert_allclose(model.feature_importances_.sum(), 1)
        assert np.argmax(model.feature_importances_) == 0
    else:
        assert not hasattr(model, "feature_importances_")
    if model.model == "linear":
        assert np.argmax(np.abs(model.coef_)) == 0


def test_before_fit_there_is_nothing():
    with pytest.raises(NotFittedError):
        aimfor.Classifier().permutation_importance(X, y)


def test_less_is_better_turns_the_sign():
    model = aimfor.Classifier("fpr@tpr>=0.8", model="linear", **QUICK).fit(X[:800], y[:800])
    assert model.permutation_importance(X[800:], y[800:]).importances_mean[0] > 0.05


def test_several_labels_and_classes_and_sparse_rows():
    Y = np.c_[y, X[:, 2] > 0]
    several = aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, Y).permutation_importance(X, Y)
    assert (several.importances_mean[[0, 2]] > 0.1).all()
    classes = np.digitize(X[:, 1], [-0.5, 0.5])
    found = aimfor.Classifier("f1", model="linear", **QUICK).fit(X, classes).permutation_importance(X, classes)
    assert np.argmax(found.importances_mean) == 1
    rows = sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0))
    model = aimfor.Classifier("aucpr", model="linear", **QUICK).fit(rows, y)
    np.testing.assert_allclose(
        model.permutation_importance(rows, y).importances_mean,
        model.permutation_importance(rows.toarray(), y).importances_mean,
        atol=1e-12,
    )


@pytest.mark.parametrize("group", [[1], [0, 2]])
def test_shuffled_rows_keep_all_other_features(group):
    rows = np.where(np.abs(X[:50]) > 0.5, X[:50], 0)
    order = np.random.default_rng(1).permutation(50)
    changed = with_others(rows, np.array(group), order)
    rest = [feature for feature in range(4) if feature not in group]
    np.testing.assert_array_equal(changed[:, rest], rows[:, rest])
    np.testing.assert_array_equal(changed[:, group], rows[order][:, group])
    same = with_others(sparse.csr_matrix(rows), np.array(group), order)
    np.testing.assert_array_equal(same.toarray(), changed)


def test_a_draw_of_rows_stands_for_all():
    rare = (np.arange(10_000) % 50 == 0)[:, None].astype(int)
    rows = sampled(np.arange(10_000.0)[:, None], rare, None, 1000, seed=0)
    assert len(rows.labels) == 1000
    assert rows.labels.sum() == 200  # all of them
    assert set(rows.weights[rows.labels[:, 0] == 1]) == {1.0}
    np.testing.assert_allclose(rows.weights.sum(), 10_000)
    common = sampled(np.arange(10_000.0)[:, None], 1 - rare, np.full(10_000, 2.0), 1000, seed=0)
    np.testing.assert_allclose(common.weights.sum(), 20_000)
    whole = sampled(np.arange(10.0)[:, None], rare[:10], None, 1000, seed=0)
    assert whole.weights is None
    assert len(whole.labels) == 10


@pytest.mark.parametrize(("options", "message"), [({"n_repeats": 0}, "n_repeats"), ({"max_samples": 1}, "max_samples")])
def test_bad_input(options, message):
    model = aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.permutation_importance(X, y, **options)
