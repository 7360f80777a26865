"""Serve: every aim as a scikit-learn scorer."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import make_scorer

from aimfor import checks
from aimfor.aim_parser import aim as parse_aim
from aimfor.aims import Aim
from aimfor.metrics import UndefinedMetricError
from aimfor.training import judged


def scorer(aim: str | Aim) -> Any:
    """A scikit-learn scorer for an aim's exact metric, for `cross_val_score`, `GridSearchCV` and the like.

    Works with any classifier that has `decision_function` or `predict_proba`; several labels and classes give the mean.

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
    methods: Any = ("decision_function", "predict_proba")  # the first that the classifier has
    return make_scorer(_ScoreFunction(parse_aim(aim)), response_method=methods)


class _ScoreFunction:
    """(y_true, y_score) -> exact metric; a class, so that it pickles."""

    def __init__(self, aim: Aim):
        self.aim = aim
        self.__name__ = str(aim)

    def __call__(self, y_true: Any, y_score: Any, sample_weight: Any = None) -> float:
        if isinstance(y_score, list):  # one [n, 2] per label, as scikit-learn's multi-output classifiers give
            y_score = np.stack([columns[:, 1] for columns in y_score], axis=1)
        y_true, y_score = np.asarray(y_true), np.asarray(y_score)
        if y_score.ndim == 2 and y_true.ndim == 1:
            classes = np.unique(y_true)
            checks.rule(
                len(classes) == y_score.shape[1], "y_true", f"must hold all {y_score.shape[1]} classes", classes
            )
            y_true = (y_true[:, None] == classes).astype(np.int64)
        elif not np.isin(y_true, (0, 1)).all():
            classes = np.unique(y_true)
            if len(classes) != 2:
                raise UndefinedMetricError(f"y_true must hold two classes, got {list(classes)}")
            y_true = (y_true == classes[1]).astype(np.int64)
        return exact_metric(self.aim, y_true, y_score, sample_weight)


def exact_metric(aim: Aim, labels: np.ndarray, scores: np.ndarray, weights: Any) -> float:
    """The aim's exact metric, a mean over columns, negated where less is better."""
    columns = labels.shape[1] if labels.ndim == 2 else 1
    if columns == 1:
        value = float(aim.metric(labels.ravel(), scores.ravel(), sample_weight=weights))
        return value if aim.greater_is_better else -value
    return judged(aim, scores, labels, weights)
