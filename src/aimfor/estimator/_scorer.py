"""Every aim as a scikit-learn scorer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.special import softmax
from sklearn.metrics import make_scorer
from sklearn.pipeline import Pipeline

from aimfor._base import checks
from aimfor._base.errors import UndefinedMetricError
from aimfor.aims import Aim, exact_metric, one_hot
from aimfor.aims import aim as parse_aim
from aimfor.estimator._targets import Targets
from aimfor.loss import log_odds


def scorer(aim: str | Aim) -> AimScorer:
    """A scikit-learn scorer for an aim's exact metric, for `cross_val_score`, `GridSearchCV` and the like.

    Works with any classifier that has `decision_function` or `predict_proba`; several labels and classes give the mean
    of those that both have and lack a row. Classes that the classifier has not seen, and scores of pairs of classes
    (`decision_function_shape="ovo"`), are refused.

    Args:
        aim: a record or its text.

    Returns:
        A scorer, negated where less is better.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import RidgeClassifier
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> scorer("recall@precision>=0.9")(RidgeClassifier().fit(X, y), X, y) > 0.99
        True
    """
    return AimScorer(parse_aim(aim))


class AimScorer:
    """(estimator, X, y) -> exact metric. Not one of `make_scorer`, which knows neither the classes of the estimator nor
    whether their scores are those of a softmax; that it asks for sample weights, it says as those do."""

    def __init__(self, aim: Aim):
        self.aim = aim
        self._requests = make_scorer(exact_metric)

    def __call__(self, estimator: Any, X: Any, y_true: Any, sample_weight: Any = None) -> float:
        y_true = y_true.toarray() if sparse.issparse(y_true) else np.asarray(y_true)
        if y_true.ndim == 2 and y_true.shape[1] > 1:
            scores = _scores_of_labels(estimator, X)
            labels = Targets(np.arange(y_true.shape[1]), one_label=False, multiclass=False).encode(y_true)
        else:
            scores = _scores(estimator, X)
            labels = _labels(y_true, scores, getattr(estimator, "classes_", None))
        return exact_metric(self.aim, labels, scores, sample_weight)

    def set_score_request(self, **requests: Any) -> AimScorer:
        """As that of scikit-learn's scorers: `sample_weight=True` where metadata routing shall hand them over."""
        self._requests.set_score_request(**requests)
        return self

    def get_metadata_routing(self) -> Any:
        """What it asks for."""
        found = self._requests.get_metadata_routing()
        found.owner = found.score.owner = repr(self)  # whom an error names
        return found

    def __getattr__(self, name: str) -> Any:
        # What scikit-learn looks for where it wants to judge decisions at thresholds of its own.
        if name == "_score_func":
            raise AttributeError(
                f"{self!r} judges a ranking, which TunedThresholdClassifierCV cannot use: aimfor.operating_point "
                "chooses a threshold for an aim"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"aimfor.scorer({str(self.aim)!r})"


def _scores_of_labels(estimator: Any, X: Any) -> np.ndarray:
    """Scores by which rows are ranked for each of several labels, `[n, L]`."""
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(X))
    chances = estimator.predict_proba(X)
    if isinstance(chances, list):  # one [n, classes] per label, as scikit-learn's multi-output classifiers give
        # A label that was constant in training has the column of its one class alone.
        chances = np.stack(
            [columns @ (np.asarray(own) == 1) for columns, own in zip(chances, estimator.classes_, strict=True)], axis=1
        )
    return np.asarray(chances)


def _scores(estimator: Any, X: Any) -> np.ndarray:
    """Scores by which rows are ranked, `[n]`, or `[n, C]` for classes."""
    decided = np.asarray(estimator.decision_function(X)) if hasattr(estimator, "decision_function") else None
    if decided is not None and decided.ndim == 2:
        shape = getattr(_last(estimator), "decision_function_shape", None)
        checks.rule(shape != "ovo", "decision_function_shape", "must be 'ovr', a score for each class", repr(shape))
    if decided is not None and (decided.ndim == 1 or not hasattr(estimator, "predict_proba")):
        return decided
    chances = np.asarray(estimator.predict_proba(X))
    if decided is None:
        return chances[:, 1] if chances.shape[1] == 2 else chances
    # Of a softmax they rank only within a row; its log-odds rank as its probabilities do, and do not round to 1.
    is_softmax = decided.shape == chances.shape and np.allclose(softmax(decided, axis=1), chances, atol=1e-6)
    return log_odds(torch.from_numpy(decided)).numpy() if is_softmax else decided


def _last(estimator: Any) -> Any:
    """The classifier that a pipeline or a search ends in."""
    while hasattr(estimator, "best_estimator_") or isinstance(estimator, Pipeline):
        estimator = estimator[-1] if isinstance(estimator, Pipeline) else estimator.best_estimator_
    return estimator


def _labels(y_true: np.ndarray, scores: np.ndarray, classes: Any) -> np.ndarray:
    """0/1 in the shape of the scores; of two classes the second in sorted order is 1."""
    classes = np.unique(y_true) if classes is None or np.ndim(classes) != 1 else np.asarray(classes)
    columns = scores.shape[1] if scores.ndim == 2 else 1
    if len(classes) != max(columns, 2):
        raise UndefinedMetricError(f"y_true must hold {max(columns, 2)} classes, got {classes.tolist()}")
    index = Targets(classes, one_label=False, multiclass=True).encode(y_true)
    return index if columns == 1 else one_hot(index, columns)
