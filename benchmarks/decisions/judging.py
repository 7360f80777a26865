"""What the benchmarks of decisions share: aims, models and the judgement of a threshold on test rows."""

from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import aimfor
from benchmarks.shared.cells import ROOT

AIMS = ("recall@precision>=0.9", "precision@recall>=0.9", "tpr@fpr<=0.01")
PAGE = ROOT / "docs" / "decide.md"
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


def best_of(aim: str, y: np.ndarray, scores: np.ndarray) -> float:
    """The best that a threshold could have on these rows."""
    return float(aimfor.aim(aim).metric(y, scores))


def judge(aim: str, y: np.ndarray, scores: np.ndarray, threshold: float | None) -> dict[str, Any]:
    """What a threshold does to test rows: whether the constraint holds, the objective, and the best that could be had.

    `holds` is empty without a threshold. A threshold that no test row reaches has no precision: that counts as broken.
    """
    best = best_of(aim, y, scores)
    if threshold is None:
        return {"holds": "", "constrained": "", "objective": 0.0, "best": best}
    flagged, positive = scores >= threshold, y == 1
    tp, fp = int((flagged & positive).sum()), int((flagged & ~positive).sum())
    constrained, objective, holds = rates(aim, tp, fp, int(positive.sum()) - tp, int((~positive).sum()) - fp)
    return {"holds": int(holds), "constrained": constrained, "objective": objective, "best": best}


def rates(aim: str, tp: int, fp: int, fn: int, tn: int) -> tuple[float, float, bool]:
    """The constrained rate, the objective, and whether the constraint holds."""
    recall, fpr, precision = tp / (tp + fn), fp / (fp + tn), tp / (tp + fp) if tp + fp else 0.0
    return {
        "recall@precision>=0.9": (precision, recall, precision >= 0.9),
        "precision@recall>=0.9": (recall, precision, recall >= 0.9),
        "tpr@fpr<=0.01": (fpr, recall, fpr <= 0.01),
    }[aim]


def put_between(page: Path, name: str, text: str) -> None:
    """Put a table between its markers on a page."""
    before, after = page.read_text().split(f"<!-- {name} -->")[0], page.read_text().split(f"<!-- end of {name} -->")[1]
    page.write_text(f"{before}{between(name, text)}{after}")


def between(name: str, text: str) -> str:
    """A table with its markers."""
    return f"<!-- {name} -->\n\n{text}\n\n<!-- end of {name} -->"
