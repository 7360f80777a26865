"""ThresholdClassifier: scikit-learn's checks, classifiers of others inside, and what it promises about its rows."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, ShuffleSplit, StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import aimfor
from aimfor import ThresholdClassifier
from aimfor.operating_points import choose_points

NOT_AT_ZERO = "decision_function is that of the classifier inside, as in scikit-learn's TunedThresholdClassifierCV"
AIM = "recall@precision>=0.7"


@parametrize_with_checks(
    [
        ThresholdClassifier(LogisticRegression(), "f1", cv=3),
        ThresholdClassifier(LogisticRegression(), "precision@recall>=0.9", cv=3),
        ThresholdClassifier(LogisticRegression(), "recall@precision>=0.6", cv=0.5),
    ],
    expected_failed_checks=lambda estimator: {"check_classifiers_train": NOT_AT_ZERO},
)
@pytest.mark.filterwarnings("ignore::aimfor.LowConfidenceWarning")
@pytest.mark.filterwarnings("ignore::aimfor.NoThresholdWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def imbalanced(rows=3000, seed=0):
    return make_classification(rows, 8, n_informative=5, weights=[0.8], class_sep=1.5, random_state=seed)


@pytest.fixture(scope="module")
def rows():
    X, y = imbalanced()
    return X[:2000], y[:2000], X[2000:], y[2000:]


def lightgbm():
    return pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=10, n_jobs=1, verbose=-1)


def xgboost():
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=10, n_jobs=1)


def catboost():
    return pytest.importorskip("catboost").CatBoostClassifier(
        iterations=10, verbose=0, thread_count=1, allow_writing_files=False
    )


def skorch():
    module = pytest.importorskip("skorch")
    net = torch.nn.Sequential(torch.nn.Linear(8, 2), torch.nn.Softmax(dim=1))
    return module.NeuralNetClassifier(net, max_epochs=5, lr=0.1, train_split=None, verbose=0, compile=False)


CLASSIFIERS = {
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "catboost": catboost,
    "skorch": skorch,
    "histogram": lambda: HistGradientBoostingClassifier(max_iter=10),
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "decision_function only": RidgeClassifier,
    "predict_proba only": KNeighborsClassifier,
    "aimfor": lambda: aimfor.Classifier(AIM, model="linear", steps=100, random_state=0),
}


@pytest.mark.parametrize("cv", [3, 0.3, "prefit"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_works_with_classifiers_of_others(name, cv, rows):
    X, y, X_test, y_test = (part.astype(np.float32) if part.ndim == 2 else part.astype(np.int64) for part in rows)
    inner = CLASSIFIERS[name]()
    if cv == "prefit":
        inner = inner.fit(X[:1000], y[:1000])
        X, y = X[1000:], y[1000:]
    model = ThresholdClassifier(inner, AIM, cv=cv, random_state=0).fit(X, y)
    decided = model.predict(X_test)
    assert decided.shape == y_test.shape
    assert 0 < decided.sum() < len(decided)
    assert y_test[decided == 1].mean() > 0.6
    for method in ("predict_proba", "decision_function"):
        assert hasattr(model, method) == hasattr(model.estimator_, method)
        if hasattr(model, method):
            np.testing.assert_array_equal(getattr(model, method)(X_test), getattr(model.estimator_, method)(X_test))


def test_out_of_fold_scores_of_all_rows_choose(rows):
    X, y, X_test, _ = rows
    folds = StratifiedKFold(4, shuffle=True, random_state=7)
    inner = LogisticRegression()
    scores = cross_val_predict(inner, X, y, cv=folds, method="decision_function")
    model = ThresholdClassifier(inner, "f1", cv=4, random_state=7).fit(X, y)
    assert model.threshold_ == aimfor.operating_point(y, scores, "f1").threshold
    assert model.threshold_ == ThresholdClassifier(inner, "f1", cv=folds).fit(X, y).threshold_
    assert model.operating_point_.num_rows == len(y)
    np.testing.assert_array_equal(model.curve_.thresholds, np.unique(scores)[::-1])
    all_rows = clone(inner).fit(X, y)
    np.testing.assert_array_equal(model.predict(X_test), all_rows.decision_function(X_test) >= model.threshold_)


def test_a_share_without_refit_keeps_the_model_of_the_others(rows):
    X, y, *_ = rows
    model = ThresholdClassifier(LogisticRegression(), "f1", cv=0.25, refit=False, random_state=0).fit(X, y)
    assert model.operating_point_.num_rows == 500
    again = ThresholdClassifier(LogisticRegression(), "f1", cv=0.25, random_state=0).fit(X, y)
    assert model.threshold_ == again.threshold_
    np.testing.assert_array_equal(again.estimator_.coef_, LogisticRegression().fit(X, y).coef_)
    assert not np.allclose(model.estimator_.coef_, again.estimator_.coef_, atol=1e-6)


class Remembers(ClassifierMixin, BaseEstimator):
    """A classifier that keeps its rows, whose first feature is their number."""

    def fit(self, X, y):
        self.classes_, self.seen_ = np.unique(y), set(X[:, 0])
        return self

    def decision_function(self, X):
        assert not self.seen_ & set(X[:, 0]), "a row that was trained on is scored"
        return X[:, 1]


@pytest.mark.parametrize("cv", [5, 0.25, StratifiedKFold(3), ShuffleSplit(1, test_size=0.5, random_state=0)])
def test_no_row_that_chooses_was_trained_on(cv):
    y = np.tile([0, 1], 200)
    X = np.stack([np.arange(400.0), y + np.linspace(0, 1.5, 400)], axis=1)
    ThresholdClassifier(Remembers(), "f1", cv=cv, random_state=0).fit(X, y)


@pytest.mark.parametrize("cv", [0.25, ShuffleSplit(1, test_size=0.25, random_state=0)])
def test_with_a_confidence_the_final_model_has_not_seen_the_rows_that_choose(cv):
    y = np.tile([0, 1], 200)
    X = np.stack([np.arange(400.0), 2.0 * y + np.linspace(0, 1, 400)], axis=1)
    model = ThresholdClassifier(Remembers(), "precision@recall>=0.8", confidence=0.95, cv=cv, random_state=0).fit(X, y)
    assert len(model.estimator_.seen_) == 300
    assert model.operating_point_.num_rows == 100
    assert model.operating_point_.confidence == 0.95


def test_confidence_is_that_of_operating_point(rows):
    X, y, X_test, y_test = rows
    inner = LogisticRegression().fit(X, y)
    model = ThresholdClassifier(inner, AIM, confidence=0.9, cv="prefit").fit(X_test, y_test)
    same = aimfor.operating_point(y_test, inner.decision_function(X_test), AIM, confidence=0.9)
    assert model.estimator_ is inner
    assert (model.threshold_, model.operating_point_.counts) == (same.threshold, same.counts)


def test_without_a_confidence_the_threshold_can_be_claimed(rows):
    X, y, X_test, y_test = rows
    inner = LogisticRegression().fit(X, y)
    scores = inner.decision_function(X_test)
    for aim in (AIM, "precision@recall>=0.8", "tpr@fpr<=0.05", "fpr@tpr>=0.8"):
        model = ThresholdClassifier(inner, aim, cv="prefit").fit(X_test, y_test)
        point = model.operating_point_
        assert point.claimable >= 0.7
        best, tested = (choose_points(y_test, scores, aim, confidence=level) for level in (None, 0.7))
        assert point.threshold == (best if best.claimable >= 0.7 else tested).threshold
        assert point.confidence is None
        assert aimfor.OperatingPoint.from_json(point.to_json()) == point
        decided = model.predict(X_test)
        assert (decided[y_test == 1].sum(), decided[y_test == 0].sum()) == (point.counts.tp, point.counts.fp)


def test_few_rows_are_warned_of():
    y, scores = np.array([0] * 20 + [1] * 3), np.arange(23.0)
    inner = Fixed().fit(scores[:, None], y)
    with pytest.warns(aimfor.LowConfidenceWarning, match="can be claimed at its threshold with at most"):
        model = ThresholdClassifier(inner, "recall@precision>=0.9", cv="prefit").fit(scores[:, None], y)
    assert model.threshold_ == 20


class Fixed(ClassifierMixin, BaseEstimator):
    """The first feature is the score."""

    def fit(self, X, y, sample_weight=None):
        self.classes_, self.weights_ = np.unique(y), sample_weight
        return self

    def decision_function(self, X):
        return np.asarray(X)[:, 0]


def hopeless():
    X, y = np.arange(40.0)[:, None], np.tile([1, 0], 20)
    return Fixed().fit(X, y), X, y


def test_without_a_threshold_nothing_is_positive():
    inner, X, y = hopeless()
    names = np.array(["no", "yes"])
    model = ThresholdClassifier(inner.fit(X, names[y]), "recall@precision>=0.9", cv="prefit").fit(X, names[y])
    assert model.threshold_ is None
    with pytest.warns(aimfor.NoThresholdWarning, match="no threshold has precision >= 0.9"):
        assert set(model.predict(X)) == {"no"}
    model.set_params(on_no_threshold="raise")
    with pytest.raises(ValueError, match="predict needs a threshold"):
        model.predict(X)


def test_weights_reach_the_classifier_and_the_threshold(rows):
    X, y, *_ = rows
    weights = np.where(np.arange(len(y)) % 2, 1.0, 3.0)
    model = ThresholdClassifier(LogisticRegression(), "f1", cv=3, random_state=0).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(
        model.estimator_.coef_, LogisticRegression().fit(X, y, sample_weight=weights).coef_, rtol=1e-6
    )
    assert sum(model.operating_point_.counts) == pytest.approx(weights.sum())
    with pytest.raises(ValueError, match=r"sample_weight is not taken by Pipeline\.fit"):
        ThresholdClassifier(make_pipeline(LogisticRegression()), "f1").fit(X, y, sample_weight=weights)
    pipeline = ThresholdClassifier(make_pipeline(LogisticRegression()), "f1", cv=3, random_state=0)
    pipeline.fit(X, y, sample_weight=weights, logisticregression__sample_weight=weights)
    assert pipeline.threshold_ == pytest.approx(model.threshold_)


def test_metadata_routing(rows):
    X, y, *_ = rows
    weights, groups = np.where(np.arange(len(y)) % 2, 1.0, 3.0), np.arange(len(y)) // 10
    plain = ThresholdClassifier(LogisticRegression(), "f1", cv=GroupKFold(4))
    plain.fit(X, y, sample_weight=weights, groups=groups)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = LogisticRegression().set_fit_request(sample_weight=True)
        for estimator in (inner, make_pipeline(inner)):
            model = ThresholdClassifier(estimator, "f1", cv=GroupKFold(4))
            model.fit(X, y, sample_weight=weights, groups=groups)
            assert model.threshold_ == pytest.approx(plain.threshold_)
        deaf = ThresholdClassifier(LogisticRegression().set_fit_request(sample_weight=False), "f1", cv=GroupKFold(4))
        deaf.fit(X, y, sample_weight=weights, groups=groups)
        assert deaf.threshold_ != plain.threshold_


def test_rows_of_a_group_stay_together():
    groups = np.repeat(np.arange(40), 10)
    y = (groups % 4 == 0).astype(int)
    X = np.stack([groups.astype(float), y + np.linspace(0, 1.5, 400)], axis=1)
    for cv in (5, 0.25, GroupKFold(3)):
        ThresholdClassifier(Remembers(), "f1", cv=cv, random_state=0).fit(X, y, groups=groups)
    with pytest.raises(AssertionError, match="trained on is scored"):
        ThresholdClassifier(Remembers(), "f1", cv=5, random_state=0).fit(X, y)


def test_a_confidence_with_groups_counts_groups(rows):
    X, y, *_ = rows
    groups = np.arange(len(y)) // 2
    model = ThresholdClassifier(LogisticRegression(), "precision@recall>=0.7", confidence=0.9, cv=0.4, random_state=0)
    point = model.fit(X, y, groups=groups).operating_point_
    assert (point.num_groups, point.num_rows) == (400, 800)
    assert point.threshold is not None
    assert point.claimable >= 0.9


def test_frames_sparse_rows_names_and_search(rows):
    X, y, X_test, _ = rows
    names = np.where(y == 1, "yes", "no")
    frame = pd.DataFrame(X, columns=[f"column {number}" for number in range(X.shape[1])])
    model = ThresholdClassifier(LogisticRegression(), AIM, random_state=0).fit(frame, pd.Series(names))
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.n_features_in_ == 8
    assert list(model.classes_) == ["no", "yes"]
    with joblib.parallel_config("threading"):
        plain = ThresholdClassifier(LogisticRegression(), AIM, random_state=0, n_jobs=2).fit(X, y)
    test_frame = pd.DataFrame(X_test, columns=frame.columns)
    np.testing.assert_array_equal(model.predict(test_frame) == "yes", plain.predict(X_test) == 1)
    thin = ThresholdClassifier(LogisticRegression(), AIM, random_state=0).fit(sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(thin.predict(sparse.csr_matrix(X_test)), plain.predict(X_test))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(plain)).predict(X_test), plain.predict(X_test))
    search = GridSearchCV(ThresholdClassifier(LogisticRegression(), AIM, cv=3), {"estimator__C": [0.01, 1]}, cv=3)
    assert search.fit(X, y).best_score_ == pytest.approx(1, abs=0.5)
    assert plain.score(X, y) == aimfor.scorer(AIM)(plain.estimator_, X, y)


def test_response_method(rows):
    X, y, X_test, _ = rows
    decisions, chances = (
        ThresholdClassifier(LogisticRegression(), AIM, response_method=name, random_state=0).fit(X, y)
        for name in ("decision_function", "predict_proba")
    )
    assert chances.threshold_ == pytest.approx(1 / (1 + np.exp(-decisions.threshold_)))
    np.testing.assert_array_equal(decisions.predict(X_test), chances.predict(X_test))


FITTED = LogisticRegression().fit(*imbalanced(200))
BAD_PARAMETERS = {
    "no scores": ({"estimator": LinearRegression()}, TypeError, "estimator must have fit and decision_function or"),
    "not this score": (
        {"estimator": RidgeClassifier(), "response_method": "predict_proba"},
        TypeError,
        "estimator must have fit and predict_proba",
    ),
    "no estimator": ({"estimator": None}, TypeError, "estimator must have fit"),
    "aim": ({"aim": "recall@precision"}, ValueError, "aim"),
    "aim of labels": ({"aim": "recall@precision>=(0.7,0.8)"}, ValueError, "aim must have one target"),
    "confidence too high": ({"confidence": 1.5, "cv": 0.2}, ValueError, r"confidence must be in \(0, 1\), got 1.5"),
    "confidence of an area": (
        {"confidence": 0.9, "aim": "aucpr", "cv": 0.2},
        ValueError,
        "confidence needs an aim with a constraint",
    ),
    "confidence and folds": (
        {"confidence": 0.9},
        ValueError,
        'has not seen the rows that choose the threshold: set cv to a share such as 0.25, or to "prefit", got cv=5',
    ),
    "confidence and a splitter": (
        {"confidence": 0.9, "cv": StratifiedKFold(3)},
        ValueError,
        'a share such as 0.25, or to "prefit", got 3 splits',
    ),
    "one fold": ({"cv": 1}, ValueError, "cv must be at least 2, got 1"),
    "share": ({"cv": 1.5}, ValueError, r"cv must be in \(0, 1\), got 1.5"),
    "text": ({"cv": "folds"}, ValueError, "cv must be folds, a share"),
    "bool": ({"cv": True}, ValueError, "cv must be folds, a share"),
    "too many folds": ({"cv": 150}, ValueError, "cv=150 needs 150 rows of each class, got"),
    "no final model": ({"refit": False}, ValueError, "refit must be True with folds"),
    "no final model of a splitter": ({"refit": False, "cv": StratifiedKFold(3)}, ValueError, "refit must be True"),
    "refit": ({"refit": 1}, TypeError, "refit must be True or False, got 1"),
    "response_method": ({"response_method": "score"}, ValueError, "response_method must be one of"),
    "on_no_threshold": ({"on_no_threshold": "guess"}, ValueError, "on_no_threshold must be one of"),
    "not fitted": ({"cv": "prefit"}, NotFittedError, "not fitted"),
    "one class in a split": ({"cv": [(np.arange(100, 120), np.arange(100))]}, ValueError, "cv must leave rows of both"),
}


@pytest.mark.parametrize("case", BAD_PARAMETERS)
def test_bad_parameters(case):
    given, error, message = BAD_PARAMETERS[case]
    X, y = imbalanced(200)
    y[100:120] = 0
    with pytest.raises(error, match=message):
        ThresholdClassifier(**{"estimator": LogisticRegression(), "aim": AIM} | given).fit(X, y)


X200, Y200 = imbalanced(200)
BAD_ROWS = {
    "three classes": ({"y": np.arange(200) % 3}, "Only binary classification is supported"),
    "numbers": ({"y": np.linspace(0, 1, 200)}, "Unknown label type|continuous"),
    "several labels": ({"y": np.tile([[0, 1]], (200, 1))}, "should be a 1d array"),
    "one class": ({"y": np.zeros(200)}, "needs rows of 2 classes"),
    "missing": ({"y": np.where(Y200 == 1, np.nan, 0.0)}, "contains NaN"),
    "fewer labels": ({"y": Y200[:-1]}, "inconsistent numbers of samples"),
    "fewer weights": ({"sample_weight": np.ones(100)}, "inconsistent numbers of samples"),
    "negative weights": ({"sample_weight": np.full(200, -1.0)}, "Negative values"),
    "fewer groups": ({"groups": np.arange(100)}, "inconsistent numbers of samples"),
    "missing features": ({"X": np.where(X200 > 0, X200, np.nan)}, "contains NaN"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows(case):
    given, message = BAD_ROWS[case]
    with pytest.raises(ValueError, match=message):
        ThresholdClassifier(LogisticRegression(), AIM).fit(**{"X": X200, "y": Y200} | given)


def test_what_a_confidence_and_prefit_refuse(rows):
    X, y, *_ = rows
    sure = ThresholdClassifier(LogisticRegression(), AIM, confidence=0.9, cv=0.25)
    with pytest.raises(ValueError, match="confidence needs equal sample weights"):
        sure.fit(X, y, sample_weight=1.0 + y)
    fitted = ThresholdClassifier(FITTED, AIM, cv="prefit")
    with pytest.raises(ValueError, match="must have no fit_params"):
        fitted.fit(X, y, early_stopping=True)
    with pytest.raises(ValueError, match=r"y must hold the classes \[0, 1\], got \[2\]"):
        fitted.fit(X, y * 2)
    with pytest.raises(NotFittedError):
        ThresholdClassifier(LogisticRegression(), AIM).predict(X)
