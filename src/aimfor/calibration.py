"""Serve: from scores to chances, as curves fitted on validation rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

# From so many rows on an isotonic curve has enough steps; below, a logistic one is steadier.
ISOTONIC_ROWS = 1000


def calibration(kind: bool | str, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> Any:
    """Scores -> chance of being positive."""
    if len(np.unique(labels)) < 2:
        return Constant(float(labels[0]))
    if kind == "isotonic" or (kind is True and len(labels) >= ISOTONIC_ROWS):
        return IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, labels, weights).predict
    return Logistic(LogisticRegression().fit(scores[:, None], labels, weights))


class Constant:
    """The same chance for every score."""

    def __init__(self, value: float):
        self.value = value

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        return np.full(len(scores), self.value)


class Logistic:
    """A logistic curve."""

    def __init__(self, model: LogisticRegression):
        self.model = model

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(scores[:, None])[:, 1]
