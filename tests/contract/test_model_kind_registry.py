"""A model kind that is registered in one place works everywhere, or is refused in one clear sentence."""

import json

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.pipeline import Pipeline

import aimfor
from aimfor._base.json import check_entries
from aimfor.model_folder import export_onnx
from aimfor.model_kinds import KINDS, Fit, Model, ModelKind, check_tensors, kind_of
from aimfor.training import Candidate, Contest, JudgedRows, Recipe

X, y = make_classification(400, 5, weights=[0.7], class_sep=1.5, random_state=0)


class OneFeature(Model):
    """The score of a row is one of its features, up to a sign."""

    kind = "one feature"
    num_outputs = 1

    def __init__(self, num_features, feature, sign):
        self.num_features, self.feature, self.sign = num_features, feature, sign

    def scores(self, features, index=None):
        rows = features if index is None else features[index]
        return self.sign * rows[:, [self.feature]].astype(np.float32).astype(np.float64)

    def describe(self):
        return {"model": self.kind, "num_features": self.num_features, "num_labels": 1, "multiclass": False}

    def to_tensors(self):
        return {"choice": torch.tensor([self.feature, self.sign], dtype=torch.float64)}


class Exported(OneFeature):
    def to_onnx(self, graph, features):
        chosen = graph("Gather", features, graph.constant([self.feature], np.int64), axis=1)
        return graph("Mul", chosen, graph.constant(float(self.sign)))


class OneFeatureKind(ModelKind):
    name = "one feature"

    def __init__(self, model=OneFeature):
        self.model = model

    def fit(self, task, observer):
        observer.on_stage_begin("one feature")
        num_features = task.problem.num_features
        judged = JudgedRows.of(task.aim, task.validation, None)
        rows = task.validation.rows
        candidates = []
        for feature in range(num_features):
            for sign in (-1, 1):
                scores = self.model(num_features, feature, sign).scores(rows.features, rows.index)
                tensors = {"choice": torch.tensor([feature, sign])}
                recipe = Recipe(None, decay=feature)
                candidates.append(Candidate(recipe, *judged.judge(scores), scores, tensors, 0, {}, self.name))
        chosen = int(np.argmax([one.merit for one in candidates]))
        return Fit(
            Contest(candidates, chosen), lambda one: self.model(num_features, *one.tensors["choice"].int().tolist())
        )

    def tensor_bytes(self, description):
        check_entries(
            "architecture", description, {"model": str, "num_features": int, "num_labels": int, "multiclass": bool}
        )
        return 16

    def from_tensors(self, description, tensors):
        check_tensors(tensors, {"choice": (2,)})
        return self.model(description["num_features"], *map(int, tensors["choice"].tolist()))


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(KINDS, "one feature", OneFeatureKind())


def test_a_registered_kind_fits_scores_and_is_stored(registered, tmp_path):
    model = clone(aimfor.Classifier("f1", model="one feature", calibrate=True, random_state=0)).fit(X, y)
    assert model.score(X, y) > 0.8
    assert {entry["kind"] for entry in model.history_} == {"one feature"}
    assert len(model.history_) == 10
    aimfor.save(tmp_path / "run", model)
    again = aimfor.load(tmp_path / "run")
    assert again.model == "one feature"
    for method in ("decision_function", "predict", "predict_proba"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(model, method)(X))


def test_what_a_kind_cannot_do_is_one_sentence(registered, tmp_path):
    model = aimfor.Classifier("f1", model="one feature", random_state=0).fit(X, y)
    with pytest.raises(aimfor.ModelFileError, match="a model of kind 'one feature' has no ONNX form"):
        export_onnx(model, None, tmp_path / "model.onnx")
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match="coef_ and intercept_ exist for model"):
        _ = model.coef_
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.where(X > 2, np.nan, X))
    with pytest.raises(ValueError, match='model must be "linear" for solver'):
        aimfor.Classifier("f1", model="one feature", solver="search").fit(X, y)


def test_a_kind_with_an_onnx_form_is_exported(monkeypatch, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setitem(KINDS, "one feature", OneFeatureKind(Exported))
    model = aimfor.Classifier("f1", model="one feature", random_state=0).fit(X, y)
    export_onnx(model, None, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    decisions = session.run(["decision"], {"features": X})[0]
    np.testing.assert_array_equal(decisions[:, 0], model.predict(X))


def test_a_damaged_folder_of_a_kind_is_refused(registered, tmp_path):
    aimfor.save(tmp_path, aimfor.Classifier("f1", model="one feature", random_state=0).fit(X, y))
    KINDS.pop("one feature")  # the fixture puts it back to what was there before
    with pytest.raises(
        aimfor.ModelFileError, match=r"model must be one of 'auto', 'trees', 'linear', 'mlp', got 'one feature'"
    ):
        aimfor.load(tmp_path)
    facts = json.loads((tmp_path / "model.json").read_text())
    assert facts["architecture"]["model"] == "one feature"


def test_the_program_fits_and_scores_with_a_registered_kind(registered, tmp_path):
    pandas = pytest.importorskip("pandas")
    from aimfor.cli._fit import fit
    from aimfor.cli._job import Job
    from aimfor.training import Observer

    table = pandas.DataFrame(X, columns=[f"feature {index}" for index in range(5)]).assign(label=y)
    table.to_csv(tmp_path / "rows.csv", index=False)
    job = Job((str(tmp_path / "rows.csv"),), ("label",), "f1", options={"model": "one feature"})
    facts = fit(job, tmp_path / "run", command="", resume=False, shown=Observer())
    assert facts["labels"][0]["metric"]["ours"] > 0.8
    loaded = aimfor.load(tmp_path / "run")
    assert isinstance(loaded, Pipeline)
    assert set(loaded.predict(table.drop(columns="label"))) == {0, 1}


@pytest.mark.parametrize("model", ["tree", "", "one feature"])
def test_a_kind_that_is_not_registered_is_refused(model):
    with pytest.raises(ValueError, match=f"model must be one of 'auto', 'trees', 'linear', 'mlp', got {model!r}"):
        aimfor.Classifier("f1", model=model).fit(X, y)
    with pytest.raises(TypeError, match=r"an nn\.Module or a function, got 3"):
        kind_of(3)
