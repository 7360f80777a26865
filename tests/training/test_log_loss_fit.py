"""Log-loss of linear heads ends at its minimum, whatever rows and labels are."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.linear_model import LogisticRegression

import aimfor
from aimfor.training._log_loss_fit import converge_
from aimfor.training._models import Layers
from aimfor.training._recipes import Recipe
from aimfor.training._rows import Data, FeatureRows, Scaling

DECAYS = 1e-1, 1e-3, 1e-5
RECIPES = [Recipe(None, decay=decay, balanced=balanced) for balanced in (False, True) for decay in DECAYS]


def several_labels():
    X, Y = make_multilabel_classification(300, n_features=12, n_classes=3, random_state=0)
    return X.astype(np.float64), np.column_stack([Y, np.zeros(len(Y), int)]).astype(np.uint8)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_zero(kind, weighted):
    X, Y = several_labels()
    weights = np.random.default_rng(0).uniform(0.5, 2, len(Y)) if weighted else np.ones(len(Y))
    rows = FeatureRows(kind(X), Scaling.of(kind(X), None, None))
    data = Data(rows, torch.from_numpy(Y), torch.from_numpy(weights).float() if weighted else None)
    heads = Layers(len(RECIPES), X.shape[1], Y.shape[1], (), torch.Generator().manual_seed(0))
    converge_(heads, RECIPES, data, False, np.random.default_rng(0))
    features = rows.scaled(slice(None))
    for head, recipe in enumerate(RECIPES):
        weight, offset = (heads.head(head)[name].double().numpy() for name in ("weights.0", "offsets.0"))
        for label in range(3):
            share = np.average(Y[:, label], weights=weights)
            balance = np.where(Y[:, label] == 1, 0.5 / share, 0.5 / (1 - share)) if recipe.balanced else 1.0
            surplus = weights * balance * (expit(features @ weight[:, label] + offset[label]) - Y[:, label])
            gradient = features.T @ surplus / weights.sum() + recipe.decay * weight[:, label]
            assert np.abs(gradient).max() < 1.1e-5
            assert abs(surplus.sum()) / weights.sum() < 1.1e-5
        # The last label was never positive: nothing is learned of it, and it is far below 0.
        assert not weight[:, 3].any()
        assert offset[3] < -5


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2)])
def test_classes_at_their_minimum(kind, classes):
    """All classes, and rows that have only some of them."""
    X, y = load_iris(return_X_y=True)
    X, y = X[np.isin(y, classes)], y[np.isin(y, classes)]
    rows = FeatureRows(kind(X), Scaling.of(kind(X), None, None))
    recipes = [Recipe(None, decay=decay) for decay in DECAYS]
    heads = Layers(len(recipes), X.shape[1], 3, (), torch.Generator().manual_seed(0))
    converge_(heads, recipes, Data(rows, torch.from_numpy(y), None), True, np.random.default_rng(0))
    for head, recipe in enumerate(recipes):
        weight, offset = (heads.head(head)[name].double().numpy() for name in ("weights.0", "offsets.0"))
        chances = softmax((rows.scaled(slice(None)) @ weight + offset)[:, list(classes)], axis=1)
        surplus = chances - (y[:, None] == np.array(classes))
        gradient = rows.scaled(slice(None)).T @ surplus / len(y)
        if len(classes) == 3:
            np.testing.assert_allclose(gradient, -recipe.decay * weight, atol=2e-5)
        else:  # the first of two classes keeps weights of 0
            np.testing.assert_allclose(gradient[:, 1], -recipe.decay * weight[:, 2], atol=2e-5)
            assert not weight[:, :2].any()
            assert offset[1] < -5


def test_weak_decay_ends_at_its_minimum():
    """Slopes in rare features are small from the start, and the steps must not take them for the end."""
    generator = np.random.default_rng(0)
    X = sparse.random(4000, 2000, density=0.01, format="csr", random_state=0, data_rvs=lambda n: np.ones(n))
    y = (X @ generator.standard_normal(2000) + generator.standard_normal(4000) > 3).astype(np.uint8)
    data = Data(FeatureRows(X, Scaling.of(X, None, None)), torch.from_numpy(y[:, None]), None)
    recipes = [Recipe(None, decay=decay) for decay in (1e-6, 1e-7)]
    heads = Layers(2, 2000, 1, (), torch.Generator().manual_seed(0))
    converge_(heads, recipes, data, False, np.random.default_rng(0))
    for head, recipe in enumerate(recipes):
        weight, offset = (heads.head(head)[name].double().numpy() for name in ("weights.0", "offsets.0"))
        exact = LogisticRegression(C=1 / (recipe.decay * len(y)), tol=1e-10, max_iter=100_000).fit(X, y)

        def penalised(weight, offset, decay=recipe.decay):
            scores = X @ weight + offset
            return (np.logaddexp(0, scores) - y * scores).mean() + decay / 2 * np.square(weight).sum()

        assert penalised(weight[:, 0], offset[0]) < 1.01 * penalised(exact.coef_[0], exact.intercept_[0])


def test_several_labels_try_nearer_decays():
    X, Y = several_labels()
    model = aimfor.Classifier("aucpr", model="linear", steps=20, random_state=0).fit(sparse.csr_matrix(X), Y[:, :3])
    decays = {entry["name"].split("decay ")[1] for entry in model.history_ if "log-loss, decay" in entry["name"]}
    assert len(decays) == 6 + 2
    assert np.isfinite([entry["value"] for entry in model.history_]).all()
