"""What the benchmarks of decisions share: aims, models and the judgement of a threshold on test rows."""

from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from aimfor import metrics

AIMS = ("recall@precision>=0.9", "precision@recall>=0.9", "tpr@fpr<=0.01")
MODELS = ("lightgbm", "logistic")


def model_of(name: str, X: Any) -> Any:
    """A fresh model, with the scaling that suits the features."""
    if name == "lightgbm":
        return LGBMClassifier(n_estimators=100, n_jobs=1, random_state=0, verbose=-1)
    scaler = MaxAbsScaler() if sparse.issparse(X) else StandardScaler()
    return make_pipeline(scaler, LogisticRegression(max_iter=1000))


def score(model: Any, X: Any) -> np.ndarray:
    """The score of the positive class."""
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict_proba(X)[:, 1]


def judge(aim: str, y: np.ndarray, scores: np.ndarray, threshold: float | None) -> dict[str, Any]:
    """What a threshold does to test rows: whether the constraint holds, the objective, and the best that could be had.

    `holds` is empty without a threshold. A threshold that no test row reaches has no precision: that counts as broken.
    """
    positive = y == 1
    best = BEST[aim](y, scores)
    if threshold is None:
        return {"holds": "", "constrained": "", "objective": 0.0, "best": best}
    flagged = scores >= threshold
    tp, fp = int((flagged & positive).sum()), int((flagged & ~positive).sum())
    recall, fpr = tp / positive.sum(), fp / (~positive).sum()
    precision = tp / (tp + fp) if tp + fp else 0.0
    constrained, objective, holds = {
        "recall@precision>=0.9": (precision, recall, precision >= 0.9),
        "precision@recall>=0.9": (recall, precision, recall >= 0.9),
        "tpr@fpr<=0.01": (fpr, recall, fpr <= 0.01),
    }[aim]
    return {"holds": int(holds), "constrained": float(constrained), "objective": float(objective), "best": best}


BEST = {
    "recall@precision>=0.9": lambda y, s: float(metrics.recall_at_precision(y, s, 0.9).value),
    "precision@recall>=0.9": lambda y, s: float(metrics.precision_at_recall(y, s, 0.9).value),
    "tpr@fpr<=0.01": lambda y, s: float(metrics.tpr_at_fpr(y, s, 0.01).value),
}
