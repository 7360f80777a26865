"""The rows that a classifier is given, checked as scikit-learn does and turned into numbers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from aimfor._base import checks
from aimfor._base.stored_rows import StoredRows
from aimfor._base.warnings import PositiveClassWarning
from aimfor.estimator._holdout import LabelledRows
from aimfor.estimator._parameters import kind_for
from aimfor.estimator._targets import targets_of
from aimfor.loss import LARGEST_WEIGHT
from aimfor.operating_points import NEEDS_EQUAL_WEIGHTS, group_codes

# A class that more rows than this have is hardly the one that is looked for.
COMMON_CLASS = 0.8


def check_rows(
    classifier: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    groups: Any = None,
    classes: ArrayLike | None = None,
    first: bool = True,
) -> LabelledRows:
    """Check rows to train on; the first ones tell the classifier its features and classes.

    Args:
        classifier: gets `n_features_in_`, `feature_names_in_` and `targets_` from the first rows.
        X: features.
        y: labels.
        sample_weight: of the rows, or None.
        groups: of dependent rows, or None.
        classes: all classes that will ever come; None for those of y.
        first: whether these are the first rows.

    Returns:
        The rows without those of weight 0; labels are `[n, L]`, classes `[n, 1]` of indices.
    """
    if isinstance(X, StoredRows):
        y = np.asarray(y)
        checks.rule(len(y) == len(X), "y", f"must have {len(X)} rows", len(y))
        classifier.n_features_in_ = X.shape[1]
    else:
        X, y = validate_data(classifier, X, y, multi_output=True, reset=first, **_accepted(classifier, X))
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    codes = None if groups is None else group_codes(groups, len(y))
    X, y, weights, codes = _present(X, y, sample_weight, codes)
    if first:
        classifier.targets_ = targets_of(y, y if classes is None else np.asarray(classes))
        if classifier.targets_.multiclass and classifier.solver != "sgd":
            kind = "The type of the target is multiclass."
            raise ValueError(f"Only binary classification is supported with solver {classifier.solver!r}. {kind}")
    elif classes is not None and not classifier.targets_.several:
        own, given = classifier.classes_.tolist(), np.unique(np.asarray(classes)).tolist()
        checks.rule(own == given, "classes", f"must be those of the first call, {own}", given)
    labels = classifier.targets_.encode(y)
    if first and classifier.targets_.one_label and classifier.classes_.dtype.kind in "OUS":
        _warn_of_positive_class(classifier.classes_, labels)
    return LabelledRows(X, labels, weights, groups=codes)


def check_features(classifier: Any, X: Any) -> Any:
    """Features `[n, D]` of other rows, checked like those of `fit`."""
    if isinstance(X, StoredRows):
        known = classifier.n_features_in_
        checks.rule(X.shape[1] == known, "X", f"must have {known} features", X.shape[1])
        return X
    return validate_data(classifier, X, reset=False, **_accepted(classifier, X))


def check_validation(classifier: Any, given: Any, source: str) -> LabelledRows:
    """Validation rows that the caller held out: `(X, y)`, `(X, y, sample_weight)` or these and groups.

    Args:
        classifier: whose features and targets these have.
        given: the rows.
        source: what to call them.
    """
    if not isinstance(given, (tuple, list)) or len(given) not in (2, 3, 4):
        raise TypeError("validation_data must be (X, y), with sample_weight and groups if needed, got something else")
    X, y, sample_weight, groups = (*given, None, None)[:4]
    X = check_features(classifier, X)
    labels = classifier.targets_.encode(y)
    checks.rule(len(labels) == X.shape[0], "validation_data", f"must have {X.shape[0]} labels", len(labels))
    codes = None if groups is None else group_codes(groups, X.shape[0])
    X, labels, weights, codes = _present(X, labels, sample_weight, codes)
    rows = LabelledRows(X, labels, weights, source=source, groups=codes)
    varied = bool((rows.labels.min(0) < rows.labels.max(0)).any())
    checks.rule(varied, "validation_data", "must hold rows of both classes of a label", "one class only")
    return rows


def check_confidence(confidence: float | None, held_out: LabelledRows, trained_on: bool) -> None:
    """Refuse a confidence that the rows which choose the threshold cannot give, before anything is trained."""
    if confidence is None:
        return
    if trained_on:
        raise ValueError("confidence needs rows that were not trained on, got none: hold some back, or let it be None")
    if held_out.weights is not None and np.ptp(held_out.weights) > 0:
        raise ValueError(NEEDS_EQUAL_WEIGHTS)


def _accepted(classifier: Any, X: Any) -> dict[str, Any]:
    """What `validate_data` lets through."""
    _refuse_texts(X)
    finite = "allow-nan" if kind_for(classifier).takes_missing and not sparse.issparse(X) else True
    return {"accept_sparse": "csr", "dtype": (np.float64, np.float32), "ensure_all_finite": finite}


def _refuse_texts(X: Any) -> None:
    """Say what to do with a pandas table that has columns of texts."""
    kinds: Any = getattr(X, "dtypes", None)
    for name, kind in kinds.items() if hasattr(kinds, "items") else ():
        # Categories may be numbers, and so may be the entries of a column of objects.
        entries = getattr(kind, "categories", None)
        texts = entries is not None and entries.dtype.kind not in "biuf"
        if texts or (getattr(kind, "kind", "") in "OSUT" and any(isinstance(cell, str) for cell in X[name][:100])):
            raise ValueError(
                f"X must hold numbers, but column {str(name)!r} holds texts or categories: turn them into numbers, for "
                "example with scikit-learn's OneHotEncoder; the command `aimfor fit` reads such tables as they are"
            )


def _present(
    X: Any, y: np.ndarray, sample_weight: Any, groups: np.ndarray | None
) -> tuple[Any, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Rows without those of weight 0, their weights and groups."""
    if sample_weight is None:
        return X, y, None, groups
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    kept = np.flatnonzero(weights)
    checks.rule(len(kept) > 0, "sample_weight", "must have an entry above 0", "none")
    least, most = weights[kept].min(), weights.max()
    near = f"must be 0 or within a factor of {LARGEST_WEIGHT:g} of one another"
    checks.rule(least >= most / LARGEST_WEIGHT, "sample_weight", near, f"{least:g} and {most:g}")
    if len(kept) == len(weights):
        return X, y, weights, groups
    return X[kept], y[kept], weights[kept], None if groups is None else groups[kept]


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
