"""Rows that train, and rows that are held back for all choices."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from aimfor._base import checks
from aimfor._base.splitting import held_back
from aimfor._base.warnings import NoValidationWarning

TRAINED = "the training rows"


class LabelledRows(NamedTuple):
    """Some rows of a table: labels and weights of these rows, which they are (None for all), what they are called."""

    X: Any
    labels: np.ndarray
    weights: np.ndarray | None
    index: np.ndarray | None = None
    source: str = "all rows"

    def taken(self) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """The rows by themselves."""
        return self.X if self.index is None else self.X[self.index], self.labels, self.weights

    def some(self, rows: np.ndarray, source: str) -> LabelledRows:
        """Those of the rows with these numbers."""
        weights = None if self.weights is None else self.weights[rows]
        return LabelledRows(
            self.X, self.labels[rows], weights, rows if self.index is None else self.index[rows], source
        )

    def classes(self) -> np.ndarray:
        """The class of each row; one for all where there are several labels, of which a row may have any."""
        return self.labels[:, 0] if self.labels.shape[1] == 1 else np.zeros(len(self.labels), dtype=np.uint8)


def divided(whole: LabelledRows, fraction: float, seed: int) -> tuple[LabelledRows, LabelledRows]:
    """Training and validation rows; the same rows twice where none can be held back.

    Args:
        whole: all rows; each part gets its share of every class.
        fraction: share of them to hold back.
        seed: of the draw.
    """
    trained = whole._replace(source=TRAINED)
    if fraction == 0:
        return trained, trained
    rows, classes = len(whole.labels), whole.classes()
    held = round(fraction * rows)
    kinds, counts = np.unique(classes, return_counts=True)
    few = "1 row of a class" if counts.min() < 2 else f"{rows} rows"
    if counts.min() < 2 or held < len(kinds) or rows - held < len(kinds):
        warnings.warn(
            f"{few} cannot be divided by validation_fraction={fraction:g}: every choice is made on the training rows",
            NoValidationWarning,
            stacklevel=checks.callers_level(),
        )
        return trained, trained
    fitted, held_out = held_back(classes, held, seed)
    return whole.some(fitted, TRAINED), whole.some(held_out, "the validation rows")


def halves(held_out: LabelledRows) -> tuple[LabelledRows, LabelledRows]:
    """One half to choose the model on, another for its threshold: a confidence is about rows that chose nothing before.

    Args:
        held_out: rows that were not trained on, none of them of weight 0; each half gets its share of every class.
    """
    classes = held_out.classes()
    least = np.unique(classes, return_counts=True)[1].min()
    checks.rule(least >= 2, "confidence", "needs 2 held-out rows of each class, for model and threshold", least)
    # Always the same draw, so that those who have the rows know which of them chose the threshold.
    choosing, deciding = held_back(classes, (len(classes) + 1) // 2, seed=0)
    half = f"the half of {held_out.source}"
    return held_out.some(choosing, half), held_out.some(deciding, f"{half} that did not choose the model")


def shared_out(held_out: LabelledRows, classifier: Any) -> tuple[LabelledRows, LabelledRows]:
    """Rows that choose the model and rows that choose its threshold: halves with a confidence, else the same.

    Args:
        held_out: rows that were not trained on, none of them of weight 0.
        classifier: whose parameters decide.
    """
    # The solvers choose nothing on these rows.
    by_halves = classifier.confidence is not None and classifier.solver == "sgd"
    return halves(held_out) if by_halves else (held_out, held_out)
