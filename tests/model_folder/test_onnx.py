"""The exported scorer: onnxruntime gives the scores and decisions of the classifier."""

import os

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import make_classification

import aimfor

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pa = pytest.importorskip("pyarrow")

from aimfor._base.errors import ModelFileError  # noqa: E402
from aimfor.model_folder._folder import load, load_model, save_model  # noqa: E402
from aimfor.model_folder._onnx import export_onnx  # noqa: E402
from aimfor.tables._preparation import Preparation  # noqa: E402

QUICK = {"steps": 40, "batch_size": 64, "random_state": 0, "surrogate": "hinge"}
X, y = make_classification(1500, 6, weights=[0.7], random_state=0)
several = np.stack([y, X[:, 0] > 0, X[:, 1] > 0.5], axis=1).astype(int)


def run(path, inputs):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, inputs), strict=True))


def check(path, inputs, classifier, features):
    """Same decisions, and scores that are the same but for the last bit of a few."""
    outputs = run(path, inputs)
    raw = classifier.raw_scores(features)
    assert outputs["score"].dtype == np.float32
    assert outputs["score"].shape == raw.shape
    np.testing.assert_allclose(outputs["score"], raw, rtol=1e-6, atol=1e-6)
    assert np.mean(outputs["score"] != raw) < 0.01
    decided = classifier.predict(features)
    if classifier.targets_.one_label or classifier.targets_.multiclass:
        np.testing.assert_array_equal(classifier.classes_[outputs["decision"][:, 0]], decided)
    else:
        np.testing.assert_array_equal(outputs["decision"], decided)
    assert outputs["decision"].dtype == np.int64


TARGETS = {"label": y, "texts": np.array(["no", "yes"])[y], "labels": several, "classes": several.sum(1)}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_features(model, target, tmp_path):
    classifier = aimfor.Classifier("precision@recall>=0.6", model=model, hidden_layer_sizes=(7, 3), **QUICK)
    classifier.fit(X, target)
    export_onnx(classifier, None, tmp_path / "model.onnx")
    check(tmp_path / "model.onnx", {"features": X}, classifier, X)
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_sparse_and_solved(tmp_path):
    rows = sparse.csr_matrix(np.where(abs(X) > 1, X, 0))
    for options in ({}, {"solver": "search"}):
        classifier = aimfor.Classifier("recall@precision>=0.6", **{"model": "linear", **QUICK, **options}).fit(rows, y)
        export_onnx(classifier, None, tmp_path / "model.onnx")
        check(tmp_path / "model.onnx", {"features": rows.toarray()}, classifier, rows)


def test_wide_scores_of_classes(tmp_path):
    """Log-odds far from 0, where a sum over the other classes would cancel."""
    classifier = aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X * 1.0, several.sum(1))
    with torch.no_grad():
        classifier.model_.heads.weights[0].mul_(500)
    export_onnx(classifier, None, tmp_path / "model.onnx")
    check(tmp_path / "model.onnx", {"features": X}, classifier, X)


def test_without_a_threshold(tmp_path):
    path = tmp_path / "model.onnx"
    classifier = aimfor.Classifier("recall@precision>=0.9999", model="linear", confidence=0.999, **QUICK).fit(X, y)
    assert classifier.threshold_ is None
    export_onnx(classifier, None, path)
    assert not run(path, {"features": X})["decision"].any()
    export_onnx(classifier.set_params(on_no_threshold="raise"), None, path)
    assert list(run(path, {"features": X})) == ["score"]
    # One label of several without one.
    classifier = aimfor.Classifier("tpr@fpr<=(0.4, 0.4, 0.0001)", model="linear", confidence=0.9, **QUICK).fit(
        X, several
    )
    assert np.isnan(classifier.threshold_).tolist() == [False, False, True]
    export_onnx(classifier, None, path)
    with pytest.warns(aimfor.NoThresholdWarning, match="label 2"):
        check(path, {"features": X}, classifier, X)
    export_onnx(classifier.set_params(on_no_threshold="raise"), None, path)
    assert list(run(path, {"features": X})) == ["score"]


def test_a_label_that_was_never_positive(tmp_path):
    target = several.copy()
    target[:, 1] = 0
    classifier = aimfor.Classifier("recall@precision>=0.5", model="linear", **QUICK).fit(X, target)
    export_onnx(classifier, None, tmp_path / "model.onnx")
    check(tmp_path / "model.onnx", {"features": X}, classifier, X)
    # Positive in one row, which does not choose the threshold: predict refuses where it is told to.
    target[0, 1] = 1
    options = QUICK | {"on_no_threshold": "raise"}
    classifier = aimfor.Classifier("tpr@fpr<=0.4", model="linear", confidence=0.9, **options).fit(X, target)
    assert classifier.operating_point_[1].num_positives == 0
    export_onnx(classifier, None, tmp_path / "model.onnx")
    assert list(run(tmp_path / "model.onnx", {"features": X})) == ["score"]


def table(seed, count, *, unseen):
    random = np.random.default_rng(seed)
    towns = np.array(["Bonn", "Rome", "São Paulo", "_0 constant", "<b>"] + ["Atlantis"] * unseen)
    absent = random.random(count) < 0.1
    amount = random.lognormal(size=count) * 1e3
    return pa.table(
        {
            "amount": pa.array(amount, mask=absent),
            "score": random.normal(size=count),
            "score (input)": random.integers(0, 9, size=count),
            "member": pa.array(random.random(count) < 0.3, mask=random.random(count) < 0.2),
            "town": pa.array(towns[random.integers(0, len(towns), count)], mask=random.random(count) < 0.1),
            "_decision": pa.array(np.array(["a", "b"])[random.integers(0, 2, count)]),
            "sold": random.random(count) < 0.5,
        }
    )


def inputs_of(rows):
    """Raw columns as the graph takes them."""
    given = {}
    for name in rows.schema.names:
        column = rows[name].combine_chunks()
        if pa.types.is_string(column.type):
            values = np.array(["" if text is None else text for text in column.to_pylist()], dtype=object)
        else:
            values = np.array([np.nan if one is None else float(one) for one in column.to_pylist()])
        given["score (input) (input)" if name == "score" else name] = values[:, None]
    return given


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_raw_columns(model, tmp_path):
    rows, new = table(0, 1000, unseen=False), table(1, 500, unseen=True)
    random = np.random.default_rng(0)
    target = (np.nan_to_num(np.array(rows["score"])) + random.normal(size=1000) > 0.5).astype(int)
    preparation = Preparation()
    features = preparation.fit_transform(rows)
    assert "amount is missing" in preparation.feature_names_out
    assert "town is missing" in preparation.feature_names_out
    classifier = aimfor.Classifier("recall@precision>=0.6", model=model, **QUICK).fit(features, target)
    export_onnx(classifier, preparation, tmp_path / "model.onnx")
    for given in (rows, new):
        check(tmp_path / "model.onnx", inputs_of(given), classifier, preparation.transform(given))
    # The folder brings both back, and the export of what was loaded is the same file.
    save_model(tmp_path / "run", classifier, preparation=preparation)
    pipeline = load(tmp_path / "run")
    np.testing.assert_array_equal(pipeline.predict(new), classifier.predict(preparation.transform(new)))
    np.testing.assert_array_equal(
        pipeline.decision_function(new), classifier.decision_function(preparation.transform(new))
    )
    loaded = load_model(tmp_path / "run")
    export_onnx(loaded.classifier, loaded.preparation, tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()


@pytest.mark.parametrize("names", [["amount"], ["town"], ["member", "_decision"], ["town", "sold", "amount"]], ids=str)
def test_some_columns(names, tmp_path):
    rows = table(2, 600, unseen=False).select(names)
    preparation = Preparation()
    features = preparation.fit_transform(rows)
    target = (np.arange(600) * 7919 % 11 < 4).astype(int)
    classifier = aimfor.Classifier("f1", model="linear", **QUICK).fit(features, target)
    export_onnx(classifier, preparation, tmp_path / "model.onnx")
    new = table(3, 300, unseen=True).select(names)
    check(tmp_path / "model.onnx", inputs_of(new), classifier, preparation.transform(new))


def test_what_cannot_be_exported(tmp_path):
    own = aimfor.Classifier(model=torch.nn.Linear(6, 1), **QUICK).fit(X, y)
    with pytest.raises(ModelFileError, match="kind 'module' has no ONNX form"):
        export_onnx(own, None, tmp_path / "model.onnx")
    column = {"name": "town", "kind": "categorical", "categories": ["", "Bonn"], "missing": True}
    preparation = Preparation.from_dict({"columns": [column]})
    classifier = aimfor.Classifier("f1", model="linear", **QUICK).fit(X[:, :3], y)
    with pytest.raises(ModelFileError, match="both empty texts and missing values"):
        export_onnx(classifier, preparation, tmp_path / "model.onnx")
    dates = {"name": "when", "kind": "date", "form": None, "first": 0.0, "missing": False}
    dates |= {"means": [0.0] * 5, "scales": [0.0] * 4 + [1.0]}
    for column, what in (({"name": "note", "kind": "text", "buckets": 3}, "texts"), (dates, "dates")):
        with pytest.raises(ModelFileError, match=f"holds {what}, which ONNX cannot prepare"):
            export_onnx(classifier, Preparation.from_dict({"columns": [column]}), tmp_path / "model.onnx")
    with pytest.raises(ModelFileError, match="cannot be written"):
        export_onnx(classifier, None, tmp_path / "nowhere" / "model.onnx")
    assert not os.listdir(tmp_path)
