"""Why a model decides as it does, as plain numbers for `metrics.json` and the page.

For any kind of model: how much the aim's exact metric falls on rows the model never saw when a column is shuffled. For
trees also the gain of their splits, for linear models their coefficients. For the strongest columns the mean score at
some of their values. Only columns that the model reads appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from scipy import sparse

from aimfor._base.errors import UndefinedMetricError
from aimfor.aims import aim as read_aim
from aimfor.estimator import Classifier, JudgedSample, drops, metric_of, sampled
from aimfor.tables import Grid, Preparation, grid_of
from aimfor.training import Observer

STAGE = "importance"
REPEATS = 5  # shuffles of a column
MOST_COLUMNS = 40  # that are shuffled; of more, those that the model itself weighs most
MOST_ROWS, LEAST_ROWS = 2000, 200
MOST_SCORES = 400_000  # of all shuffles together: more columns or labels get fewer rows
MOST_COEFFICIENTS = 5  # of a column
STRONGEST, ROWS_ASKED = 5, 500  # columns whose values are asked about, and rows that are asked
MOST_LABELS = 20  # whose mean scores are written


@dataclass(frozen=True)
class ReportColumn:
    """A column that the model reads.

    Attributes:
        name: of the column.
        features: numbers of its features.
        part: how it became features; None where it is a feature itself.
    """

    name: str
    features: np.ndarray
    part: Any = None


def explain(
    classifier: Classifier,
    features: Any,
    labels: np.ndarray,
    weights: np.ndarray | None,
    preparation: Preparation | None,
    observer: Observer,
) -> dict[str, Any] | None:
    """Measure what the model's columns are worth, and what the strongest do.

    Args:
        classifier: fitted.
        features: `[n, D]` of rows it was not trained on: an array, SciPy CSR or `StoredRows`.
        labels: `[n, L]` of 0/1; classes as one column each.
        weights: `[n]`, or None.
        preparation: that made the features from columns, or None.
        observer: follows the work and may stop it after the first shuffle of every column.

    Returns:
        A dict of finite numbers, texts, lists and None; None where the metric does not exist on these rows.
    """
    observer.on_stage_begin(STAGE)
    columns = _columns(classifier, preparation)
    shuffled = min(len(columns), MOST_COLUMNS)
    most = int(np.clip(MOST_SCORES // (REPEATS * shuffled * labels.shape[1]), LEAST_ROWS, MOST_ROWS))
    rows = sampled(features, labels, weights, most, seed=0)
    try:
        value = metric_of(classifier, rows, rows.features)
    except UndefinedMetricError:
        return None
    strengths = _strengths(classifier, rows, columns)
    chosen = [columns[place] for place in np.argsort(-strengths, kind="stable")[:shuffled]]
    found = _shuffled(classifier, rows, chosen, observer)
    order = np.argsort(-found.mean(axis=0), kind="stable")
    aim = read_aim(classifier.aim)
    return {
        "metric": str(aim),
        "value": value if aim.greater_is_better else -value,
        "rows": len(rows.labels),
        "of_rows": len(labels),
        "repeats": len(found),
        "columns": [_column(classifier, chosen[place], found[:, place], preparation) for place in order],
        "not_shuffled": len(columns) - shuffled,
        "dependence": _dependence(classifier, rows, [chosen[place] for place in order]),
    }


def _columns(classifier: Classifier, preparation: Preparation | None) -> list[ReportColumn]:
    if preparation is not None:
        return [
            ReportColumn(name, np.arange(start, end), part)
            for (name, start, end), part in zip(preparation.spans, preparation.parts_, strict=True)
        ]
    return [ReportColumn(f"feature {number}", np.array([number])) for number in range(classifier.n_features_in_)]


def _strengths(classifier: Classifier, rows: JudgedSample, columns: Sequence[ReportColumn]) -> np.ndarray:
    """What the model itself makes of each column, to choose among many; of networks, how it goes with the labels."""
    model = classifier.model_
    if model.gain is not None:
        own = model.gain
    else:
        dense = not sparse.issparse(rows.features)
        centred = rows.features - np.nanmean(rows.features, axis=0) if dense else rows.features
        squares = np.nanmean(centred**2, axis=0) if dense else np.asarray(centred.multiply(centred).mean(axis=0))[0]
        spread = np.sqrt(squares)
        if model.coefficients is not None:
            own = np.abs(model.coefficients[0]).mean(axis=0) * spread
        else:
            apart = rows.labels - rows.labels.mean(axis=0)
            together = (np.nan_to_num(centred) if dense else centred).T @ apart
            own = np.abs(together).mean(axis=1) / np.where(spread > 0, spread, np.inf)
    return np.array([own[column.features].sum() for column in columns])


def _shuffled(
    classifier: Classifier, rows: JudgedSample, columns: Sequence[ReportColumn], observer: Observer
) -> np.ndarray:
    """The fall of the metric, `[shuffles, columns]`."""
    found = []
    for drop in islice(drops(classifier, rows, [column.features for column in columns], seed=0), REPEATS):
        found.append(drop)
        observer.on_batch_end(STAGE, len(found), REPEATS)
        if observer.should_stop():
            break
    return np.stack(found)


def _column(
    classifier: Classifier, column: ReportColumn, found: np.ndarray, preparation: Preparation | None
) -> dict[str, Any]:
    gain, linear = classifier.model_.gain, classifier.model_.coefficients
    coefficients = None
    if linear is not None:
        names = [column.name] if preparation is None else column.part.feature_names()
        weights = linear[0][:, column.features].T
        first = np.argsort(-np.abs(weights).max(axis=1), kind="stable")[:MOST_COEFFICIENTS]
        coefficients = [{"feature": names[place], "weights": weights[place].tolist()} for place in first]
    return {
        "name": column.name,
        "drop": float(found.mean()),
        "spread": float(found.std(ddof=1)) if len(found) > 1 else None,
        "gain": None if gain is None else float(gain[column.features].sum()),
        "coefficients": coefficients,
    }


def _dependence(classifier: Classifier, rows: JudgedSample, columns: Sequence[ReportColumn]) -> list[dict[str, Any]]:
    """The mean score at some values of the strongest columns that have values to ask about."""
    few = sampled(rows.features, rows.labels, rows.weights, ROWS_ASKED, seed=0)
    found = []
    for column in columns:
        own = rows.features[:, column.features]
        own = own.toarray() if sparse.issparse(own) else own
        grid = _plain_grid(own) if column.part is None else grid_of(column.part, own)
        if grid is None or not len(grid.values):
            continue
        scores = [_mean_scores(classifier, few, column, block) for block in grid.features]
        missing = None if grid.missing is None else _mean_scores(classifier, few, column, grid.missing)
        found.append({"name": column.name, "values": grid.values, "scores": scores, "missing": missing})
        if len(found) == STRONGEST:
            break
    return found


def _plain_grid(own: np.ndarray) -> Grid | None:
    """Values of a feature that no column became."""
    known = np.unique(own[~np.isnan(own)])
    if not len(known):
        return None
    places = np.unique(np.linspace(0, len(known) - 1, 11).round().astype(int))
    missing = np.full(1, np.nan) if np.isnan(own).any() else None
    return Grid([float(f"{value:.6g}") for value in known[places]], known[places][:, None], missing)


def _mean_scores(classifier: Classifier, rows: JudgedSample, column: ReportColumn, block: np.ndarray) -> list[float]:
    features: Any = rows.features
    if sparse.issparse(features):
        features = features.tolil()
        features[:, column.features] = np.tile(block, (len(rows.labels), 1))
        features = features.tocsr()
    else:
        features = features.copy()
        features[:, column.features] = block
    scores = classifier.model_.scores(features)
    return np.average(scores, axis=0, weights=rows.weights)[:MOST_LABELS].tolist()
