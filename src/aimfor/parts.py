"""Serve, rows: those that train and those that are held back for all choices."""

import warnings
from typing import Any, NamedTuple

import numpy as np

from aimfor import checks
from aimfor.heads import held_back


class NoValidationWarning(UserWarning):
    """The rows are too few to hold some back, so every choice was made on the rows that were trained on."""


class Part(NamedTuple):
    """Some rows of a table: labels and weights of these rows, and which they are (None for all)."""

    X: Any
    labels: np.ndarray
    weights: np.ndarray | None
    index: np.ndarray | None = None

    def taken(self) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """The rows by themselves."""
        return self.X if self.index is None else self.X[self.index], self.labels, self.weights


def divided(whole: Part, fraction: float, by_class: np.ndarray | None, seed: int) -> tuple[Part, Part, str]:
    """Training and validation rows, and what the latter are called; the same rows twice where none can be held back.

    Args:
        whole: all rows.
        fraction: share of them to hold back.
        by_class: the class of each row, of which both parts get their share; None for any rows.
        seed: of the draw.
    """
    if fraction == 0:
        return whole, whole, "the training rows"
    rows = len(whole.labels)
    held = round(fraction * rows)
    enough, few = held >= 1 and rows - held >= 1, f"{rows} rows"
    if by_class is not None:
        kinds, counts = np.unique(by_class, return_counts=True)
        enough = counts.min() >= 2 and held >= len(kinds) and rows - held >= len(kinds)
        few = "1 row of a class" if counts.min() < 2 else few
    if not enough:
        warnings.warn(
            f"{few} cannot be divided by validation_fraction={fraction:g}: every choice is made on the training rows",
            NoValidationWarning,
            stacklevel=checks.callers_level(),
        )
        return whole, whole, "the training rows"
    fitted, held_out = (
        Part(whole.X, whole.labels[index], None if whole.weights is None else whole.weights[index], index)
        for index in held_back(np.zeros(rows) if by_class is None else by_class, held, seed)
    )
    return fitted, held_out, "the validation rows"
