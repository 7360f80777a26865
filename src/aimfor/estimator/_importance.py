"""Importance by shuffling: how much the exact metric falls where the values of a feature are dealt out anew."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from aimfor._base import checks
from aimfor._base.warnings import UndefinedMetricWarning
from aimfor.aims import aim as parse_aim
from aimfor.aims import exact_metric, one_hot


class JudgedSample(NamedTuple):
    """Rows that importance is measured on.

    Attributes:
        features: `[n, D]`, an array or SciPy CSR.
        labels: `[n, L]` of 0/1; classes as one column each.
        weights: `[n]`, or None for 1.
    """

    features: Any
    labels: np.ndarray
    weights: np.ndarray | None


def sampled(features: Any, labels: np.ndarray, weights: np.ndarray | None, most: int, seed: int) -> JudgedSample:
    """At most so many of the rows: those with a label first, and a draw of the others, weighted to stand for all.

    Args:
        features: `[n, D]`, an array, SciPy CSR or `StoredRows`.
        labels: `[n, L]` of 0/1.
        weights: `[n]`, or None.
        most: number of rows to give.
        seed: of the draw.
    """
    count = len(labels)
    if count <= most:
        return JudgedSample(features[np.arange(count)], labels, weights)
    generator = np.random.default_rng(seed)
    positive = labels.any(axis=1)
    # Rows with a label are kept as far as they take half of the room.
    groups = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    first = min(len(groups[0]), max(most // 2, most - len(groups[1])))
    drawn = [generator.permutation(group)[:size] for group, size in zip(groups, (first, most - first), strict=True)]
    factors = [np.full(len(own), len(group) / max(1, len(own))) for group, own in zip(groups, drawn, strict=True)]
    index, factor = np.concatenate(drawn), np.concatenate(factors)
    order = np.argsort(index)
    index, factor = index[order], factor[order]
    weights = factor if weights is None else weights[index] * factor
    return JudgedSample(features[index], labels[index], None if np.ptp(weights) == 0 else weights)


def drops(classifier: Any, rows: JudgedSample, groups: Sequence[np.ndarray], seed: int) -> Iterator[np.ndarray]:
    """How much the metric of a fitted classifier falls when each group of features is shuffled, again and again.

    Args:
        classifier: a fitted `Classifier`.
        rows: that it was not trained on.
        groups: numbers of features that are shuffled together.
        seed: of the shuffles.

    Yields:
        One number for each group, above 0 where the group helps; the next draw each time, without end.
    """
    whole = metric_of(classifier, rows, rows.features)
    generator = np.random.default_rng(seed)
    while True:
        order = generator.permutation(len(rows.labels))
        shuffled = (with_others(rows.features, group, order) for group in groups)
        yield np.array([whole - metric_of(classifier, rows, features) for features in shuffled])


def metric_of(classifier: Any, rows: JudgedSample, features: Any) -> float:
    """The aim's exact metric of the rows with other features, a mean over labels; negated where less is better."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # of labels that lack a class; the others count
        return exact_metric(parse_aim(classifier.aim), rows.labels, classifier.model_.scores(features), rows.weights)


def with_others(features: Any, group: np.ndarray, order: np.ndarray) -> Any:
    """The rows with the features of a group taken from the rows of another order."""
    if not sparse.issparse(features):
        changed = features.copy()
        changed[:, group] = features[order][:, group]
        return changed
    columns: Any = sparse.csc_matrix(features, copy=True)
    place = np.argsort(order)  # where each row's values go
    for feature in group:
        own = slice(columns.indptr[feature], columns.indptr[feature + 1])
        columns.indices[own] = place[columns.indices[own]]
    columns.has_sorted_indices = False
    return columns.tocsr()


class PermutationImportance(NamedTuple):
    """How much the metric falls where a feature is shuffled, as scikit-learn's `permutation_importance` gives it.

    Attributes:
        importances_mean: `[D]`, mean over the shuffles.
        importances_std: `[D]`, standard deviation over the shuffles.
        importances: `[D, n_repeats]`, of each shuffle.
    """

    importances_mean: np.ndarray
    importances_std: np.ndarray
    importances: np.ndarray


def permutation_importance(
    classifier: Any, features: Any, labels: np.ndarray, weights: np.ndarray | None, n_repeats: int, max_samples: int
) -> PermutationImportance:
    """What `Classifier.permutation_importance` gives; it explains the arguments."""
    checks.whole_number("n_repeats", n_repeats, at_least=1)
    checks.whole_number("max_samples", max_samples, at_least=2)
    targets = classifier.targets_
    labels = one_hot(labels, len(targets.classes)) if targets.multiclass else labels
    rows = sampled(features, labels, weights, max_samples, seed=0)
    rounds = drops(classifier, rows, [np.array([feature]) for feature in range(features.shape[1])], seed=0)
    found = np.stack([next(rounds) for _ in range(n_repeats)], axis=1)
    return PermutationImportance(found.mean(axis=1), found.std(axis=1), found)
