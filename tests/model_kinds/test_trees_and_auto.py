"""Boosted trees and the default as kinds of models: trained, averaged, stored, exported, stopped and resumed."""

import re
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification

pytest.importorskip("lightgbm")

import aimfor
from aimfor._base.stored_rows import RowWriter, StoredRows
from aimfor.boosting import retrain
from aimfor.estimator import Extras, fit_classifier
from aimfor.estimator._holdout import LabelledRows, with_choosing
from aimfor.model_folder import export_onnx
from aimfor.model_kinds import _auto, _forest_choice
from aimfor.model_kinds._average import Average
from aimfor.model_kinds._forest_choice import chosen_forests
from aimfor.model_kinds._forest_search import thinned
from aimfor.training import JudgedRows, Observer, SavedState

X, y = make_classification(900, 8, n_informative=5, weights=[0.8], class_sep=0.8, random_state=0)
MISSING = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
CLASSES = make_classification(900, 8, n_informative=5, n_classes=3, random_state=1)
QUICK = {"steps": 40, "random_state": 0}


def test_trees_average_the_best_of_the_forests():
    model = aimfor.Classifier("aucpr", model="trees", **QUICK).fit(X[:600], y[:600])
    assert [entry["name"] for entry in model.history_[:-1]] == [f"forest {place}" for place in range(1, 13)]
    average = model.model_.averages[0]
    assert model.history_[-1]["name"] == f"average of the best {len(average.forests)} of 12 forests"
    assert model.history_[-1]["chosen"]
    assert 0 < len(average.forests) <= 6
    assert model.score(X[600:], y[600:]) > 0.8
    again = clone(model).fit(X[:600], y[:600])
    np.testing.assert_array_equal(again.raw_scores(X), model.raw_scores(X))


@pytest.mark.parametrize("weights", [None, np.where(np.arange(900) < 450, 1.0, 3.0)])
def test_the_best_half_by_the_aim_is_averaged_without_forests_of_a_log_loss_behind(weights):
    rng = np.random.default_rng(0)
    truth = 3 * rng.normal(size=900)
    labels = (rng.random(900) < 1 / (1 + np.exp(-truth))).astype(np.uint8)[:, None]
    judged = JudgedRows(aimfor.aim("aucpr"), labels, weights)
    good = [truth + 0.1 * rng.normal(size=900) for _ in range(4)]
    weak = [truth + 4 * rng.normal(size=900) for _ in range(4)]
    assert chosen_forests(judged, [*weak, *good]) == [4, 5, 6, 7]
    assert set(chosen_forests(judged, [*weak, *good[:2]])) == {4, 5}
    alike = [truth + 0.01 * rng.normal(size=900) for _ in range(8)]
    assert len(chosen_forests(judged, alike)) == 4
    merits = [judged.judge(own[:, None]).merit for own in alike]
    assert chosen_forests(judged, alike) == sorted(np.argsort(merits)[4:])
    blind = JudgedRows(aimfor.aim("aucpr"), np.zeros_like(labels), weights)
    assert len(chosen_forests(blind, alike)) == 4


APART = make_classification(3000, 8, n_informative=5, class_sep=0.8, random_state=2)


@pytest.mark.parametrize("model", ["trees", "auto"])
def test_forests_are_trained_on_all_rows_but_those_of_the_threshold(model, monkeypatch):
    seen = []

    def noted(rows, forests, **options):
        seen.append((rows, forests))
        return retrain(rows, forests, **options)

    monkeypatch.setattr(_forest_choice, "retrain", noted)
    rows, labels = APART
    held_out = rows[2400:], labels[2400:]
    fitted = aimfor.Classifier("f1", model=model, **QUICK).fit(rows[:2400], labels[:2400], validation_data=held_out)
    ((everything, before),) = seen
    np.testing.assert_array_equal(everything.features, rows[:2400])
    np.testing.assert_array_equal(everything.labels, labels[:2400])
    trees = fitted.model_ if model == "trees" else fitted.model_.members[0].model
    after = trees.averages[0].forests
    assert [one.num_trees for one in after] == [one.num_trees for one in before.values()]
    for one, own in zip(after, before.values(), strict=True):
        assert not np.array_equal(one.scores(rows), own.scores(rows))
    seen.clear()
    # Rows that choose the threshold too stay out of training.
    aimfor.Classifier("f1", model=model, **QUICK).fit(rows[:700], labels[:700], validation_data=held_out)
    assert not seen


def test_training_on_all_rows_resumes_to_the_same_forests():
    rows, labels = APART
    whole = aimfor.Classifier("f1", model="trees", **QUICK).fit(rows, labels)
    pages = {}
    for last in (13, 14):  # of the search all are kept
        model = aimfor.Classifier("f1", model="trees", **QUICK)
        with pytest.raises(Killed):
            fit_classifier(model, rows, labels, None, None, Notebook(pages, last))
    assert len({name.split(".")[1] for name in pages["forests on all rows"].tensors}) == 3
    resumed = aimfor.Classifier("f1", model="trees", **QUICK)
    fit_classifier(resumed, rows, labels, None, None, Notebook(pages))
    np.testing.assert_array_equal(resumed.raw_scores(rows), whole.raw_scores(rows))


@pytest.mark.parametrize("model", ["trees", "auto"])
@pytest.mark.parametrize("target", ["one", "missing", "several", "classes"])
def test_what_is_stored_and_exported_decides_alike(model, target, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    rows, labels = {
        "one": (X, y),
        "missing": (MISSING, y),
        "several": (X, np.c_[y, X[:, 0] > 1, np.zeros_like(y)]),
        "classes": CLASSES,
    }[target]
    fitted = aimfor.Classifier("f1", model=model, **QUICK).fit(rows, labels)
    aimfor.save(tmp_path / "run", fitted)
    loaded = aimfor.load(tmp_path / "run")
    assert loaded.model == model
    np.testing.assert_array_equal(loaded.raw_scores(rows), fitted.raw_scores(rows))
    np.testing.assert_array_equal(loaded.predict(rows), fitted.predict(rows))
    export_onnx(loaded, None, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    score, decision = session.run(["score", "decision"], {"features": rows})
    np.testing.assert_allclose(score, fitted.raw_scores(rows), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(decision.reshape(len(rows), -1), fitted.predict(rows).reshape(len(rows), -1))


def test_weights_count_as_copies_and_rows_of_weight_0_as_absent():
    weights = np.where(np.arange(len(X)) % 3 == 0, 0.0, 1.0)
    present = weights > 0
    one = aimfor.Classifier("aucpr", model="trees", **QUICK).fit(X, y, weights)
    other = aimfor.Classifier("aucpr", model="trees", **QUICK).fit(X[present], y[present])
    np.testing.assert_array_equal(one.raw_scores(X), other.raw_scores(X))


@pytest.mark.parametrize("model", ["trees", "linear"])
def test_the_threshold_is_chosen_on_rows_that_chose_nothing_where_there_are_enough(model):
    rows, labels = make_classification(4000, 4, weights=[0.8], random_state=0)
    fitted, held_out = (LabelledRows(rows[part], labels[part, None], None) for part in (slice(3200), slice(3200, None)))
    classifier = aimfor.Classifier("f1", model=model)
    training, choosing = with_choosing(fitted, held_out, classifier)
    if model == "linear":
        assert (training, choosing) == (fitted, held_out)
    else:
        assert len(choosing.labels) == 400
        assert len(training.labels) == 2800
    few = fitted.some(np.arange(300), "some rows")
    assert with_choosing(few, held_out, classifier) == (few, held_out)


def test_auto_is_the_best_kind_or_an_average():
    model = aimfor.Classifier("aucpr", **QUICK).fit(X, y)
    assert model.get_params()["model"] == "auto"
    assert {entry["kind"] for entry in model.history_} == {"trees", "linear", "mlp", "auto"}
    (chosen,) = [entry for entry in model.history_ if entry["chosen"]]
    average = next(entry for entry in model.history_ if entry["kind"] == "auto")
    assert chosen is average or chosen["merit"] > average["merit"]


@pytest.mark.parametrize("curved", [False, True])
def test_auto_trains_a_linear_model_for_the_aim_only_while_it_may_win(curved):
    rows = np.random.default_rng(0).normal(size=(3000, 6))
    labels = (rows[:, 0] * rows[:, 1] if curved else rows[:, 0] + rows[:, 1]) > 0.8
    model = aimfor.Classifier("aucpr", **QUICK).fit(rows, labels)
    aimed = [entry for entry in model.history_ if entry["kind"] == "linear" and "log-loss, decay" not in entry["name"]]
    assert bool(aimed) is not curved
    assert not any(entry["kind"] == "mlp" and entry["name"].startswith("aucpr") for entry in model.history_)


def test_an_average_is_stored_in_double_whatever_its_members_score_in():
    model = aimfor.Classifier("f1", model="linear", **QUICK).fit(X, y).model_
    scores = model.scores(X).astype(np.float32)
    average = Average.of([model, model], [1, 3], [scores, scores], None, multiclass=False)
    assert {tensor.dtype for tensor in average.to_tensors().values()} == {torch.float64}
    np.testing.assert_allclose(average.scores(X).mean(), 0, atol=1e-6)
    np.testing.assert_allclose(average.scores(X).std(), 1, atol=1e-6)


def test_auto_means_a_linear_model_for_a_solver_or_a_single_surrogate():
    assert aimfor.Classifier("f1", surrogate="hinge", **QUICK).fit(X, y).coef_.shape == (1, 8)
    assert aimfor.Classifier("precision@recall>=0.8", solver="search", **QUICK).fit(X, y).coef_.shape == (1, 8)
    assert hasattr(aimfor.Classifier(surrogate="hinge"), "partial_fit")
    assert not hasattr(aimfor.Classifier(), "partial_fit")


def test_without_the_extra_auto_says_what_it_would_add(monkeypatch):
    monkeypatch.setattr(_auto, "trees_available", lambda: False)
    with pytest.warns(aimfor.MissingTreesWarning, match=r"pip install 'aimfor\[boosting\]'"):
        model = aimfor.Classifier("aucpr", **QUICK).fit(X, y)
    assert {entry["kind"] for entry in model.history_} == {"linear", "mlp"}


def test_a_lightgbm_that_cannot_be_imported_counts_as_missing_with_its_reason(monkeypatch, tmp_path):
    (tmp_path / "lightgbm.py").write_text("raise OSError('libgomp.so.1: cannot open shared object file')")
    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    reason = "installed but cannot be imported: libgomp.so.1: cannot open shared object file"
    with pytest.warns(aimfor.MissingTreesWarning, match=f"{reason}; the other kinds"):
        model = aimfor.Classifier("aucpr", **QUICK).fit(X, y)
    assert {entry["kind"] for entry in model.history_} == {"linear", "mlp"}
    with pytest.raises(ImportError, match=reason):
        aimfor.Classifier("aucpr", model="trees", **QUICK).fit(X, y)


@pytest.mark.parametrize("model", ["auto", "trees", "linear", "mlp"])
def test_a_budget_of_no_time_still_gives_a_model(model):
    fitted = aimfor.Classifier("f1", model=model, steps=10**6, budget=1e-6, random_state=0).fit(X, y)
    assert set(fitted.predict(X)) <= {0, 1}
    if model in ("auto", "trees"):
        assert {entry["kind"] for entry in fitted.history_} == {"trees"}
        assert len(fitted.history_) < 14


class Killed(Exception):
    pass


class Notebook(Observer):
    """Keeps states; killed after so many forests."""

    def __init__(self, pages, last=10**9):
        self.pages, self.left = pages, last

    def on_batch_end(self, stage, step, steps):
        self.left -= 1
        if self.left < 0:
            raise Killed

    def save(self, stage, state):
        self.pages[stage] = SavedState(dict(state.facts), dict(state.tensors))

    def saved(self, stage):
        return self.pages.get(stage)


@pytest.mark.parametrize("labels", [y, np.c_[y, X[:, 0] > 1]], ids=["one", "several"])
def test_a_killed_search_resumes_to_the_same_forests(labels):
    whole = aimfor.Classifier("f1", model="trees", **QUICK).fit(X, labels)
    pages = {}
    for last in (0, 3, 5):
        with pytest.raises(Killed):
            fit_classifier(
                aimfor.Classifier("f1", model="trees", **QUICK), X, labels, None, None, Notebook(pages, last)
            )
    resumed = aimfor.Classifier("f1", model="trees", **QUICK)
    fit_classifier(resumed, X, labels, None, None, Notebook(pages))
    assert resumed.history_ == whole.history_
    np.testing.assert_array_equal(resumed.raw_scores(X), whole.raw_scores(X))


@pytest.mark.parametrize("count", [10**12, 1, -1, 2.5, "2", None])
def test_a_state_with_another_number_of_forests_is_refused(count):
    pages = {}
    with pytest.raises(Killed):
        fit_classifier(aimfor.Classifier("f1", model="trees", **QUICK), X, y, None, None, Notebook(pages, 2))
    pages["forests"].facts["forests"] = count
    with pytest.raises(ValueError, match="the forests must be the first"):
        fit_classifier(aimfor.Classifier("f1", model="trees", **QUICK), X, y, None, None, Notebook(pages))


def test_rows_beyond_memory_keep_the_positives_and_say_so(tmp_path):
    with RowWriter(tmp_path / "rows", 8) as writer:
        writer.append(X.astype(np.float32))
    stored = StoredRows(writer.path, 8)
    model = aimfor.Classifier("aucpr", model="trees", validation_fraction=0.2, **QUICK)
    with_all = clone(model).fit(stored, y)
    np.testing.assert_array_equal(
        with_all.raw_scores(stored), clone(model).fit(X.astype(np.float32), y).raw_scores(stored)
    )
    part = clone(model)
    with pytest.warns(aimfor.ThinnedRowsWarning) as told:
        fit_classifier(part, stored, y, None, None, Observer(), Extras(memory=400 * 8 * 4))
    assert re.match(r"trees train on 400 of 720 rows, as the memory .*: all \d+ with a label", str(told[0].message))
    assert re.match(r"trees choose their rounds on 100 of 180 rows", str(told[1].message))
    assert part.score(stored, y) > 0.8


def test_weights_undo_the_draw_of_the_rows_that_are_left_out():
    kept = np.arange(1000) % 20 == 0
    index, weights = thinned(kept, 250, seed=0)
    assert len(index) == len(np.unique(index)) == 250
    assert kept[index].sum() == 50
    assert set(weights[kept[index]]) == {1.0}
    np.testing.assert_allclose(weights[~kept[index]].sum(), 950)


def test_a_label_without_a_class_gets_a_constant_score():
    Y = np.c_[y, np.zeros_like(y)]
    model = aimfor.Classifier("f1", model="trees", **QUICK).fit(X, Y)
    assert np.ptp(model.raw_scores(X)[:, 1]) == 0
    assert not model.predict(X)[:, 1].any()
