"""The loss in skorch: a new one in every fit, and predictions at its threshold."""

import numpy as np
import pytest
import torch

import aimfor

pytest.importorskip("skorch", reason="the extra integration is not installed")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from aimfor.integrations.skorch import AimNet


def rows(seed: int = 0, count: int = 300):
    draw = np.random.default_rng(seed)
    labels = (draw.random(count) < 0.3).astype(np.int64)
    return (draw.normal(size=(count, 3)) + labels[:, None]).astype(np.float32), labels


def net(**options) -> AimNet:
    torch.manual_seed(0)
    given = {"criterion__aim": "precision@recall>=0.8", "lr": 0.1, "max_epochs": 5, "verbose": 0, **options}
    return AimNet(torch.nn.Linear, module__in_features=3, module__out_features=1, **given)


def fit(model: AimNet) -> AimNet:
    torch.manual_seed(0)
    return model.fit(*rows())


def test_a_second_fit_equals_the_first():
    model = fit(net())
    first = {name: tensor.clone() for name, tensor in model.criterion_.state_dict().items()}
    scores = model.forward(rows()[0])
    fit(model)
    for name, tensor in model.criterion_.state_dict().items():
        assert torch.equal(tensor, first[name]), name
    assert torch.equal(model.forward(rows()[0]), scores)
    assert torch.equal(fit(clone(model)).forward(rows()[0]), scores)


def test_an_instance_is_refused():
    with pytest.raises(TypeError, match="An instance would carry its state from fit to fit"):
        fit(net(criterion=aimfor.Loss("f1")))


def test_predictions_are_those_of_the_learned_threshold():
    model = fit(net(max_epochs=20))
    inputs, labels = rows()
    scores = model.forward(inputs)
    threshold = model.criterion_.thresholds.item()
    assert abs(threshold) > 0.01
    np.testing.assert_array_equal(model.predict(inputs), (scores >= threshold).numpy())
    assert 0.7 < model.predict(inputs)[labels == 1].mean() < 0.95  # the aim asks for 0.8
    shares = model.predict_proba(inputs)
    np.testing.assert_allclose(shares.sum(1), 1)
    np.testing.assert_array_equal(shares[:, 1].argsort(kind="stable"), scores.numpy().argsort(kind="stable"))


def test_an_area_predicts_at_score_0():
    model = fit(net(criterion__aim="aucpr"))
    inputs, _ = rows()
    np.testing.assert_array_equal(model.predict(inputs), (model.forward(inputs) >= 0).numpy())


def test_a_nonlinearity_of_ones_own_is_used():
    model = fit(net(predict_nonlinearity=lambda scores: torch.stack([-scores, scores], 1)))
    inputs, _ = rows()
    np.testing.assert_array_equal(model.predict_proba(inputs)[:, 1], model.forward(inputs).numpy())


def test_grid_search_over_aims_by_the_metric():
    aims = ["precision@recall>=0.8", "aucpr"]
    scoring = aimfor.scorer("precision@recall>=0.8")
    search = GridSearchCV(net(train_split=None), {"criterion__aim": aims}, cv=2, scoring=scoring, error_score="raise")
    search.fit(*rows())
    assert search.best_params_["criterion__aim"] in aims


def test_saved_parameters_hold_the_loss(tmp_path):
    model = fit(net())
    model.save_params(f_params=tmp_path / "module.pt", f_criterion=tmp_path / "loss.pt")
    other = net().initialize()
    other.load_params(f_params=tmp_path / "module.pt", f_criterion=tmp_path / "loss.pt")
    np.testing.assert_array_equal(other.predict_proba(rows()[0]), model.predict_proba(rows()[0]))
