"""The labels that `y` holds, and the same as numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import type_of_target

from aimfor._base import checks


@dataclass(frozen=True)
class Targets:
    """What the labels of a table are.

    Attributes:
        classes: in sorted order; of two, the second is the positive one. For several labels, 0..L-1.
        one_label: two classes.
        multiclass: more than two, of which each row has one.
    """

    classes: np.ndarray
    one_label: bool
    multiclass: bool

    @property
    def several(self) -> bool:
        """Whether a row may have any number of labels."""
        return not self.one_label and not self.multiclass

    @property
    def num_outputs(self) -> int:
        """Scores of a row."""
        return 1 if self.one_label else len(self.classes)

    def encode(self, y: Any) -> np.ndarray:
        """Labels `[n, L]` of 0/1; classes as `[n, 1]` of their indices."""
        y = y.toarray() if sparse.issparse(y) else np.asarray(y)
        if self.several:
            right = y.ndim == 2 and y.shape[1] == len(self.classes)
            checks.rule(right, "y", f"must have shape [n, {len(self.classes)}]", y.shape)
            other = y[(y != 0) & (y != 1)]
            if other.size:
                raise ValueError(f"y must hold 0 and 1 for several labels, got {other[0]!r}")
            return y.astype(np.uint8)
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        checks.rule(y.ndim == 1, "y", "must have shape [n]", y.shape)
        # Small numbers, as the rows may be many: one byte a row for two classes.
        index = np.zeros(len(y), dtype=np.uint8 if self.one_label else np.int64)
        known = np.zeros(len(y), dtype=bool)
        for number, name in enumerate(self.classes):
            same = y == name
            known |= same
            index[same] = number
        if not known.all():
            raise ValueError(f"y must hold classes seen in fit, {self.classes.tolist()}, got {y[~known].tolist()[0]!r}")
        return index[:, None]


def targets_of(y: np.ndarray, classes: np.ndarray) -> Targets:
    """What `y` holds; `classes` are all that will ever come, in any order."""
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind == "multilabel-indicator":
        return Targets(np.arange(y.shape[1]), one_label=False, multiclass=False)
    if y.ndim != 1 or kind not in ("binary", "multiclass"):
        raise ValueError(f"Unknown label type: y must hold classes [n] or 0/1 [n, L], got {kind}")
    known = np.unique(classes)
    if len(known) < 2:
        raise ValueError(f"Classifier needs rows of at least 2 classes, got one class only: {known[:1].tolist()[0]!r}")
    return Targets(known, one_label=len(known) == 2, multiclass=len(known) > 2)
