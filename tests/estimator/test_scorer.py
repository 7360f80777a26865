"""Scorers: shapes and classes of other people's estimators, and what is refused instead of misread."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import aimfor
from aimfor._base.errors import UndefinedMetricError
from aimfor.metrics._areas import average_precision

SCORE = aimfor.scorer("aucpr")


@pytest.fixture(scope="module")
def three():
    return make_classification(150, 6, n_informative=4, n_classes=3, random_state=0)


@pytest.fixture(scope="module")
def several():
    return make_multilabel_classification(150, n_classes=2, random_state=0)


LABELLERS = {
    "mlp": MLPClassifier((4,), solver="lbfgs", max_iter=20, random_state=0),
    "forest": RandomForestClassifier(5, random_state=0),
    "each": MultiOutputClassifier(LogisticRegression()),
    "rest": OneVsRestClassifier(LogisticRegression()),
}


@pytest.mark.parametrize("name", LABELLERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_two_labels_are_not_two_classes(several, name):
    X, Y = several
    model = LABELLERS[name].fit(X, Y)
    chances = model.predict_proba(X)
    chances = np.stack([one[:, 1] for one in chances], axis=1) if isinstance(chances, list) else chances
    assert SCORE(model, X, Y) == pytest.approx(np.mean(average_precision(Y, chances)))
    assert SCORE(model, X, sparse.csr_matrix(Y)) == SCORE(model, X, Y)


@pytest.mark.parametrize("constant", [0, 1])
def test_a_label_that_was_constant_in_training(several, constant):
    X, Y = several
    model = RandomForestClassifier(5, random_state=0).fit(X, np.c_[Y[:, 0], np.full(len(Y), constant)])
    chances = np.c_[model.predict_proba(X)[0][:, 1], np.full(len(Y), constant)]
    assert SCORE(model, X, Y) == pytest.approx(np.mean(average_precision(Y, chances)))


SVM = SVC(decision_function_shape="ovo")


@pytest.mark.parametrize(
    "model",
    [SVM, make_pipeline(StandardScaler(), SVM), GridSearchCV(SVM, {"C": [1.0]}, cv=2)],
    ids=["itself", "pipeline", "search"],
)
def test_scores_of_pairs_are_refused(three, model):
    X, y = three
    with pytest.raises(ValueError, match=r"^decision_function_shape must be 'ovr', a score for each class, got 'ovo'$"):
        SCORE(model.fit(X, y), X, y)
    some = y < 2
    assert SCORE(model.fit(X[some], y[some]), X[some], y[some]) > 0.8  # of two classes there is one pair


def test_classes_that_the_estimator_has_not_seen_are_refused(three):
    X, y = three
    for classes in (2, 3):
        seen = y < classes
        model = LogisticRegression().fit(X[seen], y[seen])
        with pytest.raises(ValueError, match=r"^y must hold classes seen in fit, .*, got "):
            SCORE(model, X, y if classes == 2 else np.where(y == 2, 7, y))


@pytest.mark.parametrize("labels", [1, 2])
def test_without_any_positive_there_is_no_score(several, labels):
    X, Y = several
    Y = Y[:, 0] if labels == 1 else Y
    model = aimfor.Classifier(model="linear", steps=10, random_state=0).fit(X, Y)
    for score in (lambda: SCORE(model, X, 0 * Y), lambda: model.score(X, 0 * Y)):
        with pytest.raises(UndefinedMetricError, match=r"^y_true must hold "):
            score()


@pytest.mark.parametrize("wrapped", [False, True])
def test_classes_of_our_own_estimator(three, wrapped):
    X, y = three
    model = aimfor.Classifier("aucpr", surrogate="hinge", steps=40, random_state=0)
    model = (make_pipeline(StandardScaler(), model) if wrapped else model).fit(X, y)
    assert SCORE(model, X, y) == pytest.approx(model.score(X, y))
