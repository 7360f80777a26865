"""Serve, rows: what the classifier is given, checked as scikit-learn checks it and turned into numbers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from aimfor._base import checks
from aimfor._base.stored_rows import StoredRows
from aimfor._base.warnings import PositiveClassWarning
from aimfor.estimator._holdout import LabelledRows, halves
from aimfor.estimator._parameters import Options
from aimfor.estimator._targets import Targets, targets_of
from aimfor.loss import LARGEST_WEIGHT
from aimfor.operating_points import NEEDS_EQUAL_WEIGHTS

# A class that more rows than this have is hardly the one that is looked for.
COMMON_CLASS = 0.8


class Intake(Options):
    """The part of `Classifier` that takes rows and labels in."""

    n_features_in_: int
    targets_: Targets

    @property
    def classes_(self) -> np.ndarray:
        """Labels in sorted order."""
        return self.targets_.classes

    def _check_rows(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        classes: ArrayLike | None = None,
        first: bool = True,
    ) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Features, labels `[n, L]` (classes as `[n, 1]` of indices) and weights; rows of weight 0 are dropped."""
        if isinstance(X, StoredRows):
            y = np.asarray(y)
            checks.rule(len(y) == len(X), "y", f"must have {len(X)} rows", len(y))
            self.n_features_in_ = X.shape[1]
        else:
            X, y = validate_data(
                self, X, y, accept_sparse="csr", dtype=(np.float64, np.float32), multi_output=True, reset=first
            )
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        X, y, weights = _present(X, y, sample_weight)
        if first:
            self.targets_ = targets_of(y, y if classes is None else np.asarray(classes))
            if self.targets_.multiclass and self.solver != "sgd":
                kind = "The type of the target is multiclass."
                raise ValueError(f"Only binary classification is supported with solver {self.solver!r}. {kind}")
        elif classes is not None and not self.targets_.several:
            own, given = self.classes_.tolist(), np.unique(np.asarray(classes)).tolist()
            checks.rule(own == given, "classes", f"must be those of the first call, {own}", given)
        labels = self.targets_.encode(y)
        if first and self.targets_.one_label and self.classes_.dtype.kind in "OUS":
            _warn_of_positive_class(self.classes_, labels)
        return X, labels, weights

    def _check_features(self, X: Any) -> Any:
        """Features `[n, D]` of rows to look at, as checked as those of `fit`."""
        if isinstance(X, StoredRows):
            checks.rule(X.shape[1] == self.n_features_in_, "X", f"must have {self.n_features_in_} features", X.shape[1])
            return X
        return validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)

    def _check_validation(self, X: Any, y: Any, sample_weight: Any = None) -> LabelledRows:
        X = self._check_features(X)
        labels = self.targets_.encode(y)
        checks.rule(len(labels) == X.shape[0], "validation_data", f"must have {X.shape[0]} labels", len(labels))
        part = LabelledRows(*_present(X, labels, sample_weight), source="the given validation rows")
        varied = bool((part.labels.min(0) < part.labels.max(0)).any())
        checks.rule(varied, "validation_data", "must hold rows of both classes of a label", "one class only")
        return part

    def share_out(self, held_out: LabelledRows) -> tuple[LabelledRows, LabelledRows]:
        """Rows that choose the model and rows that choose its threshold: halves with a confidence, else the same.

        Args:
            held_out: rows that were not trained on, none of them of weight 0.
        """
        # The solvers choose nothing on these rows.
        return halves(held_out) if self.confidence is not None and self.solver == "sgd" else (held_out, held_out)

    def _check_confidence(self, held_out: LabelledRows, trained_on: bool) -> None:
        """Refuse a confidence that the rows which choose the threshold cannot give, before anything is trained."""
        if self.confidence is None:
            return
        if trained_on:
            raise ValueError(
                "confidence needs rows that were not trained on, got none: hold some back, or let it be None"
            )
        if held_out.weights is not None and np.ptp(held_out.weights) > 0:
            raise ValueError(NEEDS_EQUAL_WEIGHTS)


def _present(X: Any, y: np.ndarray, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Rows without those of weight 0, and their weights."""
    if sample_weight is None:
        return X, y, None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    kept = np.flatnonzero(weights)
    checks.rule(len(kept) > 0, "sample_weight", "must have an entry above 0", "none")
    least, most = weights[kept].min(), weights.max()
    near = f"must be 0 or within a factor of {LARGEST_WEIGHT:g} of one another"
    checks.rule(least >= most / LARGEST_WEIGHT, "sample_weight", near, f"{least:g} and {most:g}")
    return (X, y, weights) if len(kept) == len(weights) else (X[kept], y[kept], weights[kept])


def _warn_of_positive_class(classes: np.ndarray, labels: np.ndarray) -> None:
    """Of names, the order of the alphabet says nothing about which class is looked for; it is hardly the common one."""
    share = labels.mean()
    if share > COMMON_CLASS:
        warnings.warn(
            f"the positive class is {str(classes[1])!r}, the second in sorted order, with {share:.0%} of the rows; to "
            f"train for {str(classes[0])!r} give y == {str(classes[0])!r}",
            PositiveClassWarning,
            stacklevel=checks.callers_level(),
        )
