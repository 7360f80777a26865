"""The estimators: scikit-learn's own checks, and what they promise beyond them."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import aimfor
from aimfor._base.warnings import NoThresholdWarning, NoValidationWarning, PositiveClassWarning
from aimfor.estimator import _decisions as decisions
from aimfor.estimator import fit_classifier
from aimfor.estimator._calibration import calibration
from aimfor.training._contest import LOG_LOSS
from aimfor.training._observer import Observer

QUICK = {"steps": 40, "batch_size": 64, "random_state": 0}
RANDOM_BATCHES = "batches are drawn at random, as in scikit-learn's SGDClassifier"


def expected_failures(estimator):
    if estimator.solver != "sgd":
        return {}
    kinds = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": RANDOM_BATCHES for kind in kinds}


@parametrize_with_checks(
    [
        aimfor.Classifier(model="linear", **QUICK),
        aimfor.Classifier(
            "f1",
            model="mlp",
            hidden_layer_sizes=(8,),
            surrogate="hinge",
            **(QUICK | {"steps": 200, "learning_rate": 0.05}),
        ),
        aimfor.Classifier("f1", solver="lp", validation_fraction=0),
        aimfor.Classifier("precision@recall>=0.5", solver="search", validation_fraction=0),
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore::aimfor.NoValidationWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def imbalanced(rows=600, seed=0, **options):
    return make_classification(rows, 8, weights=[0.85], class_sep=0.8, flip_y=0.02, random_state=seed, **options)


@pytest.fixture(scope="module")
def fitted():
    X, y = imbalanced()
    return aimfor.Classifier("recall@precision>=0.7", model="linear", **QUICK).fit(X, y), X, y


def test_zero_is_the_decision(fitted):
    model, X, y = fitted
    decided = model.decision_function(X)
    assert ((decided > 0) == (model.predict(X) == 1)).all()
    raw = X @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(decided, raw - model.threshold_, atol=1e-4)
    assert model.operating_point_.threshold == model.threshold_
    assert model.score(X, y) == pytest.approx(aimfor.aim("recall@precision>=0.7").metric(y, decided), abs=1e-6)


def test_history_names_every_candidate_and_one_choice(fitted):
    model, *_ = fitted
    assert sum(row["chosen"] for row in model.history_) == 1
    names = [row["name"] for row in model.history_]
    assert any(name.startswith("log-loss") for name in names)
    assert any("sigmoid" in name for name in names)
    assert any(name.startswith("aucpr") for name in names)
    assert all(0 <= row["value"] <= 1 for row in model.history_)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_log_loss_goes_on_beside_the_aims_where_it_has_not_converged(model):
    names = [row["name"] for row in aimfor.Classifier("aucpr", model=model, **QUICK).fit(*imbalanced()).history_]
    gone_on = [name for name in names if "log-loss, decay" in name and name.endswith("from log-loss")]
    assert len(gone_on) == (model == "mlp")
    assert len(set(names)) == len(names)


def test_chosen_is_no_worse_than_log_loss_on_the_validation_rows(fitted):
    model, *_ = fitted
    chosen = next(row for row in model.history_ if row["chosen"])
    assert chosen["value"] >= max(row["value"] for row in model.history_ if row["name"].startswith("log-loss"))


def test_a_target_no_data_can_reach_is_a_result_not_a_crash():
    X, _ = imbalanced()
    y = np.random.default_rng(0).integers(0, 2, len(X))
    model = aimfor.Classifier("recall@precision>=0.999", model="linear", **QUICK).fit(X, y)
    if model.threshold_ is None:
        assert model.operating_point_.reason
        with pytest.warns(NoThresholdWarning, match="no threshold qualifies"):
            assert not model.predict(X).any()
    assert np.isfinite(model.decision_function(X)).all()


def test_identical_with_the_same_seed():
    X, y = imbalanced()
    one, other = (aimfor.Classifier(model="linear", **QUICK).fit(X, y).decision_function(X) for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_sparse_rows_are_never_made_dense(model, monkeypatch):
    X = sparse.random(300, 40, 0.2, format="csr", random_state=0)
    y = (np.asarray(X[:, :3].sum(1)).ravel() > 0.4).astype(int)

    def refuse(*args, **kwargs):
        raise AssertionError("made dense")

    for name in ("toarray", "todense"):
        monkeypatch.setattr(sparse.csr_matrix, name, refuse)
        monkeypatch.setattr(sparse.csr_array, name, refuse, raising=False)
    fitted = aimfor.Classifier(model=model, **QUICK).fit(X, y)
    assert fitted.score(X, y) > 0.5
    monkeypatch.undo()
    dense = fitted.decision_function(X.toarray())
    np.testing.assert_allclose(fitted.decision_function(X), dense, atol=1e-5)


def test_several_labels():
    X, Y = make_multilabel_classification(400, n_classes=4, random_state=0)
    model = aimfor.Classifier("f1", model="linear", **QUICK).fit(X, Y)
    assert model.predict(X).shape == Y.shape
    assert model.decision_function(X).shape == Y.shape
    assert len(model.operating_point_) == 4
    assert model.score(X, Y) > 0.5


def test_labels_that_are_rare_or_never_there_do_not_stop_the_others():
    X, Y = make_multilabel_classification(300, n_classes=3, random_state=0)
    Y[:, 1] = 0
    Y[:, 2] = np.arange(300) == 7
    model = aimfor.Classifier("f1", model="linear", **QUICK).fit(X, Y)
    decided = model.predict(X)
    assert decided[:, 0].any()
    assert not decided[:, 1].any()
    points = model.operating_point_
    assert points[1].threshold is None
    assert points[2].threshold is not None
    assert points[2].num_positives == 1


def test_targets_per_label():
    X, Y = make_multilabel_classification(400, n_classes=2, random_state=0)
    model = aimfor.Classifier(aimfor.RecallAtPrecision((0.6, 0.7)), model="linear", **QUICK).fit(X, Y)
    assert [point.aim for point in model.operating_point_] == ["recall@precision>=0.6", "recall@precision>=0.7"]
    with pytest.raises(ValueError, match="one target per label"):
        aimfor.Classifier(aimfor.RecallAtPrecision((0.6, 0.7, 0.8)), model="linear", **QUICK).fit(X, Y)


def test_classes_as_texts():
    X, y = make_classification(500, 8, n_informative=5, n_classes=3, random_state=0)
    named = np.array(["cat", "dog", "eel"])[y]
    model = aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, named)
    assert list(model.classes_) == ["cat", "dog", "eel"]
    assert np.mean(model.predict(X) == named) > 0.6
    assert model.decision_function(X).shape == (500, 3)


def test_own_module_and_factory():
    X, y = imbalanced()
    module = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0))
    before = [p.clone() for p in module.parameters()]
    model = aimfor.Classifier(model=module, **QUICK).fit(X, y)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert model.predict(X).shape == y.shape
    made = aimfor.Classifier(model=lambda: nn.Linear(8, 1), surrogate="hinge", **QUICK).fit(X, y)
    assert made.predict(X).shape == y.shape
    with pytest.raises(ValueError, match="model must give outputs of shape"):
        aimfor.Classifier(model=nn.Linear(8, 3), **QUICK).fit(X, y)


def test_given_validation_rows_choose():
    X, y = imbalanced()
    other = imbalanced(seed=1)
    model = aimfor.Classifier(model="linear", **QUICK).fit(X, y, validation_data=other)
    assert "given validation rows" in model.operating_point_.source
    assert model.operating_point_.num_rows == len(other[1])


def test_partial_fit_learns_from_call_to_call():
    X, y = imbalanced(2000)
    model = aimfor.Classifier("aucpr", model="linear", learning_rate=0.05, batch_size=100, random_state=0)
    model.partial_fit(X[:100], y[:100], classes=[0, 1])
    first = model.score(X, y)
    for _ in range(5):
        for start in range(0, 2000, 500):
            model.partial_fit(X[start : start + 500], y[start : start + 500])
    assert model.score(X, y) > first
    assert model.predict(X).shape == y.shape


def test_probabilities_only_when_calibrated():
    X, y = imbalanced()
    assert not hasattr(aimfor.Classifier(model="linear"), "predict_proba")
    for kind in (True, "isotonic", "logistic"):
        chances = aimfor.Classifier(model="linear", calibrate=kind, **QUICK).fit(X, y).predict_proba(X)
        np.testing.assert_allclose(chances.sum(1), 1)
        assert np.mean(chances[y == 1, 1]) > np.mean(chances[y == 0, 1])


def test_confidence_leaves_more_room():
    X, y = imbalanced(2000)
    plain, sure = (
        aimfor.Classifier("tpr@fpr<=0.2", surrogate="hinge", confidence=confidence, **QUICK).fit(X, y)
        for confidence in (None, 0.95)
    )
    assert sure.operating_point_.confidence == 0.95
    assert sure.threshold_ > plain.threshold_


def test_weight_zero_is_a_row_absent():
    X, y = imbalanced()
    weights = np.ones(len(y))
    weights[:100] = 0
    one = aimfor.Classifier(model="linear", **QUICK).fit(X, y, weights).decision_function(X)
    other = aimfor.Classifier(model="linear", **QUICK).fit(X[100:], y[100:], weights[100:]).decision_function(X)
    np.testing.assert_array_equal(one, other)


def test_the_ecosystem():
    X, y = imbalanced(300)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(8)])
    piped = make_pipeline(StandardScaler(), aimfor.Classifier(surrogate="hinge", **(QUICK | {"steps": 300})))
    searched = GridSearchCV(piped, {"classifier__aim": ["aucpr", "f1"]}, cv=2, scoring=aimfor.scorer("aucpr"))
    assert searched.fit(frame, y).best_score_ > 0.3
    model = aimfor.Classifier(surrogate="hinge", **QUICK)
    assert len(cross_val_score(model, frame, y, cv=3, scoring=aimfor.scorer("recall@precision>=0.5"))) == 3
    model.fit(frame, y)
    assert list(model.feature_names_in_) == list(frame.columns)
    for copied in (pickle.loads(pickle.dumps(model)), clone(model).fit(frame, y)):
        np.testing.assert_array_equal(copied.decision_function(frame), model.decision_function(frame))
    assert "Classifier" in model._repr_html_()


def test_joblib(tmp_path):
    X, y = imbalanced(300)
    model = aimfor.Classifier(surrogate="hinge", calibrate=True, **QUICK).fit(X, y)
    joblib.dump(model, tmp_path / "model")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model").predict_proba(X), model.predict_proba(X))


def test_weights_are_routed():
    X, y = imbalanced(300)
    with sklearn.config_context(enable_metadata_routing=True):
        model = aimfor.Classifier(surrogate="hinge", **QUICK).set_fit_request(sample_weight=True)
        searched = GridSearchCV(
            model, {"aim": ["aucpr"]}, cv=2, scoring=aimfor.scorer("aucpr").set_score_request(sample_weight=True)
        )
        searched.fit(X, y, sample_weight=np.where(y == 1, 2.0, 1.0))
    assert searched.best_score_ > 0


@pytest.mark.parametrize("text", ["aucpr", "recall@precision>=0.5", "f1", "tpr@fpr<=0.1", "fpr@tpr>=0.5", "aucroc"])
def test_scorer_is_the_exact_metric(text):
    X, y = imbalanced(400)
    model = LogisticRegression().fit(X, y)
    aim = aimfor.aim(text)
    sign = 1 if aim.greater_is_better else -1
    assert aimfor.scorer(text)(model, X, y) == sign * aim.metric(y, model.decision_function(X))
    named = np.array(["no", "yes"])[y]
    assert aimfor.scorer(text)(LogisticRegression().fit(X, named), X, named) == aimfor.scorer(text)(model, X, y)


def test_few_rows_choose_on_themselves():
    X, y = np.arange(6.0)[:, None], np.array([0, 0, 0, 0, 0, 1])
    with pytest.warns(NoValidationWarning, match="1 row of a class cannot be divided"):
        model = aimfor.Classifier(model="linear", **QUICK).fit(X, y)
    assert "training rows" in model.operating_point_.source


def test_constant_features_do_no_harm():
    X, y = imbalanced(300)
    X = np.hstack([X, np.full((300, 1), 1e6), np.zeros((300, 1))])
    assert np.isfinite(aimfor.Classifier(model="linear", **QUICK).fit(X, y).decision_function(X)).all()


BAD = [
    ({"aim": "recal@precision>=0.9"}, ValueError, "recall@precision"),
    ({"model": "forest"}, ValueError, "model must be"),
    ({"model": 3}, TypeError, "model must be"),
    ({"solver": "newton"}, ValueError, "solver must be"),
    ({"surrogate": "hings"}, ValueError, "surrogate must be"),
    ({"model": "trees", "surrogate": "hinge"}, ValueError, "surrogate must be 'auto' for model 'trees', got hinge"),
    ({"model": "trees", "surrogate": "log_loss"}, ValueError, "surrogate must be 'auto' for model 'trees'"),
    ({"model": "trees", "constraint": "exact"}, ValueError, "constraint must be 'surrogate' for model 'trees', got"),
    ({"validation_fraction": 1.0}, ValueError, "validation_fraction must be in"),
    ({"steps": 0}, ValueError, "steps must be"),
    ({"learning_rate": -1}, ValueError, "learning_rate must be"),
    ({"weight_decay": -1}, ValueError, "weight_decay must be"),
    ({"calibrate": "beta"}, ValueError, "calibrate must be"),
    ({"confidence": 2, "aim": "recall@precision>=0.5"}, ValueError, "confidence must be"),
    ({"confidence": 0.9}, ValueError, "confidence needs an aim with a constraint"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_options(options, error, message):
    X, y = imbalanced(60)
    with pytest.raises(error, match=message):
        aimfor.Classifier(**{"model": "linear", **QUICK, **options}).fit(X, y)


def test_bad_rows():
    X, y = imbalanced(60)
    with pytest.raises(ValueError, match="NaN"):
        aimfor.Classifier(model="linear", **QUICK).fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="one class only"):
        aimfor.Classifier(model="linear", **QUICK).fit(X, np.zeros(60, dtype=int))
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        aimfor.Classifier(model="linear", **QUICK).fit(X, y, -np.ones(60))


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({"confidence": 2.0}, None),
        ({"confidence": 0.9}, "unequal"),
        ({}, "too few"),
        ({"aim": "aucpr", "confidence": 0.9}, None),
    ],
)
def test_a_refit_that_is_refused_leaves_the_fitted_model(options, weights):
    X, y = imbalanced()
    model = aimfor.Classifier("recall@precision>=0.7", model="linear", **QUICK).fit(X, y)
    before, raw = dict(vars(model)), model.raw_scores(X)
    model.set_params(**options)
    given = {"unequal": np.arange(1.0, 1 + len(y)), "too few": np.ones(3), None: None}[weights]
    with pytest.raises(ValueError, match=r"confidence|sample_weight"):
        model.fit(-X[:, :-1], 1 - y, sample_weight=given)
    model.set_params(**{name: before[name] for name in options})
    assert vars(model).keys() == before.keys()
    np.testing.assert_array_equal(model.raw_scores(X), raw)


def test_confidence_needs_rows_that_were_not_trained_on():
    X, y = imbalanced()
    with pytest.raises(ValueError, match="not trained on"):
        aimfor.Classifier("recall@precision>=0.7", model="linear", confidence=0.9, validation_fraction=0, **QUICK).fit(
            X, y
        )
    with pytest.raises(ValueError, match="not trained on"):
        aimfor.Classifier("recall@precision>=0.7", model="linear", confidence=0.9, **QUICK).partial_fit(X, y)


@pytest.mark.parametrize("rows", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("options", [{}, {"model": "mlp", "hidden_layer_sizes": (8,)}])
def test_a_feature_that_never_varied_has_no_weight(rows, options):
    X, y = make_classification(200, 4, random_state=0)
    seen, later = np.c_[X, np.zeros(200)], np.c_[X, np.full(200, 100.0)]
    model = aimfor.Classifier("aucpr", surrogate="hinge", **QUICK, **options).fit(rows(seen), y)
    np.testing.assert_array_equal(model.decision_function(rows(later)), model.decision_function(rows(seen)))
    if not options:
        assert model.coef_[0, -1] == 0


@pytest.mark.parametrize("calibrate", [False, True])
def test_rows_of_one_class_leave_the_threshold_of_the_last_call(calibrate):
    X, y = make_classification(300, 5, weights=[0.7], random_state=0)
    model = aimfor.Classifier("f1", surrogate="hinge", calibrate=calibrate, **QUICK).partial_fit(X, y)
    point, curves = model.operating_point_, vars(model).get("calibration_")
    model.partial_fit(X[y == 0], y[y == 0])
    assert model.operating_point_ is point
    assert model.threshold_ == point.threshold
    assert vars(model).get("calibration_") == curves
    model.partial_fit(X, y)
    assert model.operating_point_ is not point


def test_a_class_that_does_not_come_again_keeps_its_threshold():
    X, y = make_classification(300, 6, n_informative=4, n_classes=3, random_state=0)
    model = aimfor.Classifier("f1", surrogate="hinge", **QUICK).partial_fit(X, y)
    before = model.operating_point_
    model.partial_fit(X[y < 2], y[y < 2])
    assert model.operating_point_[2] is before[2]
    assert model.operating_point_[0] is not before[0]


def test_partial_fit_goes_on_from_fit():
    X, y = imbalanced()
    model = aimfor.Classifier("aucpr", model="linear", **QUICK).partial_fit(X, y).fit(X, y)
    score = model.score(X, y)
    fitted = model.raw_scores(X)
    model.partial_fit(X[:50], y[:50])
    assert model.score(X, y) > score - 0.1
    for _ in range(20):
        model.partial_fit(X, 1 - y)
    assert np.corrcoef(model.raw_scores(X)[:, 0], fitted[:, 0])[0, 1] < 0.9  # the optimiser is that of this model
    assert [row["name"] for row in model.history_[-21:]] == 21 * ["aucpr, hinge, from scratch"]


def test_a_partial_fit_that_fails_changes_nothing(monkeypatch):
    X, y = imbalanced()
    model = aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, y).partial_fit(X, y)
    before, history, threshold = model.raw_scores(X), model.history_, model.threshold_

    def fail(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(decisions, "decided_point", fail)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X, 1 - y)
        with pytest.raises(KeyboardInterrupt):
            (new := aimfor.Classifier("aucpr", model="linear", **QUICK)).partial_fit(X, y)
    np.testing.assert_array_equal(model.raw_scores(X), before)
    assert (model.history_, model.threshold_) == (history, threshold)
    again = aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, y).partial_fit(X, y).partial_fit(X, y)
    np.testing.assert_array_equal(model.partial_fit(X, y).raw_scores(X), again.raw_scores(X))
    with pytest.raises(NotFittedError):
        new.predict(X)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_sparse_rows_for_a_model_of_dense_ones(model):
    X, y = imbalanced()
    fitted = aimfor.Classifier("aucpr", model=model, **QUICK).fit(X + 5, y)
    sparse_rows = sparse.csr_matrix(X + 5)
    np.testing.assert_allclose(fitted.decision_function(sparse_rows), fitted.decision_function(X + 5), atol=1e-6)
    other = aimfor.Classifier("aucpr", model=model, **QUICK).fit(X + 5, y, validation_data=(sparse_rows, y))
    same = aimfor.Classifier("aucpr", model=model, **QUICK).fit(X + 5, y, validation_data=(X + 5, y))
    assert other.threshold_ == pytest.approx(same.threshold_, abs=1e-6)


@pytest.mark.parametrize("unit", [1e-20, 1e12])
def test_units_of_the_features_do_not_matter(unit):
    X, y = imbalanced()
    expected = aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, y).score(X, y)
    assert aimfor.Classifier("aucpr", model="linear", **QUICK).fit(unit * X, y).score(unit * X, y) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("far", [1e-30, 1e-300, 1e30])
def test_weights_too_far_apart_are_refused(far):
    X, y = imbalanced()
    with pytest.raises(ValueError, match="sample_weight must be 0 or within a factor of 1e"):
        aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, y, sample_weight=np.where(y == 1, far, 1.0))


def test_evaluations_of_log_loss_are_reported_before_it_is_saved():
    """The saved state holds the evaluations so far: a resumed training would otherwise report none."""
    events = []

    class Recorded(Observer):
        def on_evaluation(self, evaluations, best):
            events.append(("evaluated", evaluations[0].stage))

        def save(self, stage, kept):
            events.append(("kept", stage))

    X, Y = make_multilabel_classification(100, n_classes=3, random_state=0)
    for labels in (Y[:, 0], Y):
        events.clear()
        fit_classifier(aimfor.Classifier("aucpr", model="linear", **QUICK), X, labels, None, None, Recorded())
        assert events[:2] == [("evaluated", LOG_LOSS), ("kept", LOG_LOSS)]


def test_partial_fit_follows_an_aim_that_was_changed():
    X, y = imbalanced()
    model = aimfor.Classifier("aucpr", model="linear", **QUICK).partial_fit(X, y)
    model.set_params(aim="recall@precision>=0.8").partial_fit(X, y)
    assert [entry["name"].split(",")[0] for entry in model.history_] == ["aucpr", "recall@precision>=0.8"]


def test_several_labels_are_0_or_1():
    X, _ = imbalanced()
    y = np.where(np.random.default_rng(0).random((len(X), 2)) < 0.3, 1, -1)
    with pytest.raises(ValueError, match="y must hold 0 and 1"):
        aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, y)


def test_classes_may_have_a_target_each():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 300)
    X = np.eye(3)[y] + 0.5 * generator.normal(size=(300, 3))
    model = aimfor.Classifier(aimfor.RecallAtPrecision((0.5, 0.6, 0.7)), model="linear", **QUICK).fit(X, y)
    assert len(model.operating_point_) == 3
    with pytest.raises(ValueError, match=r"one target per label \(3\)"):
        aimfor.Classifier(aimfor.RecallAtPrecision((0.5, 0.6)), model="linear", **QUICK).fit(X, y)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"hidden_layer_sizes": 5, "model": "mlp"}, {}),
        ({}, {"validation_data": (1,)}),
        ({}, {"validation_data": 3}),
    ],
)
def test_options_of_another_kind_are_named(options, rows):
    with pytest.raises(TypeError, match=r"(hidden_layer_sizes|validation_data) must be"):
        aimfor.Classifier("aucpr", **{"model": "linear", **QUICK, **options}).fit(*imbalanced(), **rows)


@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e4])
def test_a_logistic_calibration_does_not_depend_on_the_size_of_the_scores(factor):
    generator = np.random.default_rng(0)
    scores = generator.normal(size=500)
    labels = (generator.random(500) < 1 / (1 + np.exp(-2 * scores))).astype(int)
    chances = calibration("logistic", factor * scores, labels, None)(factor * scores)
    np.testing.assert_allclose(chances, calibration("logistic", scores, labels, None)(scores), atol=1e-6)
    assert chances.min() < 0.05
    assert chances.max() > 0.95


def test_a_common_positive_class_is_named():
    X, y = imbalanced()
    names = np.where(y == 1, "fraud", "ok")
    with pytest.warns(PositiveClassWarning, match=r"positive class is 'ok'.* give y == 'fraud'"):
        aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, names)
    aimfor.Classifier("aucpr", model="linear", **QUICK).fit(X, np.where(y == 1, "sick", "healthy"))  # says nothing


def test_a_function_that_makes_no_module_is_named():
    with pytest.raises(TypeError, match=r"model must make an nn\.Module, got int"):
        aimfor.Classifier("aucpr", model=lambda: 3, **QUICK).fit(*imbalanced())


def test_scorer_ranks_a_softmax_by_its_probabilities():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 300)
    X = np.eye(3)[y] + generator.normal(size=(300, 3))
    model = LogisticRegression().fit(X, y)
    expected = np.mean(aimfor.metrics.average_precision(np.eye(3)[y], model.predict_proba(X)))
    assert aimfor.scorer("aucpr")(model, X, y) == pytest.approx(expected, abs=1e-12)
    by_logits = np.mean(aimfor.metrics.average_precision(np.eye(3)[y], model.decision_function(X)))
    assert by_logits != pytest.approx(expected, abs=1e-3)
    margins = RidgeClassifier().fit(X, y)
    expected = np.mean(aimfor.metrics.average_precision(np.eye(3)[y], margins.decision_function(X)))
    assert aimfor.scorer("aucpr")(margins, X, y) == expected


def test_scorer_takes_the_classes_of_the_estimator():
    X, y = imbalanced()
    model = LogisticRegression().fit(X, 1 + y)
    negatives = y == 0
    with pytest.raises(aimfor.UndefinedMetricError):
        aimfor.scorer("aucpr")(model, X[negatives], 1 + y[negatives])  # class 1 is not the positive one
    three = LogisticRegression().fit(X, np.arange(len(X)) % 3)
    some = np.arange(len(X)) % 3 < 2
    assert 0 < aimfor.scorer("aucpr")(three, X[some], (np.arange(len(X)) % 3)[some]) < 1  # of those that are there
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    assert aimfor.scorer("aucpr")(forest, X, y) == aimfor.metrics.average_precision(y, forest.predict_proba(X)[:, 1])
    assert pickle.loads(pickle.dumps(aimfor.scorer("aucpr")))(forest, X, y) == aimfor.scorer("aucpr")(forest, X, y)


@pytest.mark.parametrize("method", ["fit", "score"])
def test_labels_of_another_shape_are_named(method):
    X, y = imbalanced()
    model = aimfor.Classifier(model="linear", **QUICK).fit(X, y)
    given = {"X": X, "y": y, "validation_data": (X, np.c_[y, y])} if method == "fit" else {"X": X, "y": np.c_[y, y]}
    with pytest.raises(ValueError, match=r"^y must have shape \[n\], got \(600, 2\)$"):
        getattr(model, method)(**given)


def test_partial_fit_refuses_other_classes_than_at_first():
    X, y = imbalanced()
    model = (
        aimfor.Classifier(model="linear", **QUICK).partial_fit(X, y, classes=[0, 1]).partial_fit(X, y, classes=[1, 0])
    )
    with pytest.raises(ValueError, match=r"^classes must be those of the first call, \[0, 1\], got \[0, 1, 2\]$"):
        model.partial_fit(X, y, classes=[0, 1, 2])


def test_a_class_of_weight_zero_alone_is_none():
    X, y = imbalanced()
    y = np.where(np.arange(len(y)) < 50, 2, y)
    model = aimfor.Classifier(model="linear", **QUICK).fit(X, y, sample_weight=(y < 2).astype(float))
    assert list(model.classes_) == [0, 1]
