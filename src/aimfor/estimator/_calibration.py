"""From scores to probabilities, by curves fitted on validation rows. A curve is data that a file can hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

# From so many rows on an isotonic curve has enough steps; below, a logistic one is steadier.
ISOTONIC_ROWS = 1000


@dataclass(frozen=True)
class Constant:
    """The same chance for every score."""

    value: float

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        return np.full(len(scores), self.value)


@dataclass(frozen=True)
class Logistic:
    """A logistic curve: the chance is expit(slope * score + offset)."""

    slope: float
    offset: float

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        return expit(self.slope * scores + self.offset)


@dataclass(frozen=True, eq=False)
class Isotonic:
    """A rising curve of straight pieces through the points (x, y), level outside of them."""

    x: np.ndarray
    y: np.ndarray

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        return np.interp(scores, self.x, self.y)


CalibrationCurve = Constant | Logistic | Isotonic


def calibration(
    kind: bool | str, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
) -> CalibrationCurve:
    """Scores -> chance of being positive.

    Args:
        kind: "isotonic", "logistic", or True for the one that suits the number of rows.
        scores: `[n]`.
        labels: `[n]` of 0 or 1.
        weights: `[n]`, or None for 1.
    """
    if len(np.unique(labels)) < 2:
        return Constant(float(labels[0]))
    # Here, because a model that is only loaded does not need them, and they take long to import.
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression

    if kind == "isotonic" or (kind is True and len(labels) >= ISOTONIC_ROWS):
        rising = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, labels, weights)
        return Isotonic(rising.X_thresholds_.astype(np.float64), rising.y_thresholds_.astype(np.float64))
    # In units of their spread, so that scores of any size are shrunk alike, and so are weights; the shrinking keeps
    # separable rows finite.
    middle, spread = scores.mean(), scores.std() or 1.0
    weights = None if weights is None else weights / weights.mean()
    model = LogisticRegression().fit((scores[:, None] - middle) / spread, labels, weights)
    slope = float(model.coef_[0, 0] / spread)
    return Logistic(slope, float(model.intercept_[0]) - slope * float(middle))
