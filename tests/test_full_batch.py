"""Log-loss of linear heads ends at its minimum, whatever rows and labels are."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import expit
from sklearn.datasets import make_multilabel_classification

import aimfor
from aimfor.full_batch import converge_
from aimfor.heads import Layers, Rows, Scaling
from aimfor.objectives import Data, Recipe

DECAYS = 1e-1, 1e-3
RECIPES = [Recipe(None, decay=decay, balanced=balanced) for balanced in (False, True) for decay in DECAYS]


def several_labels():
    X, Y = make_multilabel_classification(300, n_features=12, n_classes=3, random_state=0)
    return X.astype(np.float64), np.column_stack([Y, np.zeros(len(Y), int)]).astype(np.uint8)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_zero(kind, weighted):
    X, Y = several_labels()
    weights = np.random.default_rng(0).uniform(0.5, 2, len(Y)) if weighted else np.ones(len(Y))
    rows = Rows(kind(X), Scaling.of(kind(X), None, None))
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
            assert np.abs(gradient).max() < 2e-5
            assert abs(surplus.sum()) / weights.sum() < 2e-5
        # The last label was never positive: nothing is learned of it, and it is far below 0.
        assert not weight[:, 3].any()
        assert offset[3] < -5


def test_several_labels_try_decays_between():
    X, Y = several_labels()
    model = aimfor.Classifier("aucpr", steps=20, random_state=0).fit(sparse.csr_matrix(X), Y[:, :3])
    decays = {entry["name"].split("decay ")[1] for entry in model.history_ if "log-loss, decay" in entry["name"]}
    assert len(decays) == 7 + 2
    assert np.isfinite([entry["value"] for entry in model.history_]).all()
