"""Score and evaluate: a model folder applied to rows it has not seen, in their order, however many there are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from aimfor._base.errors import DataError
from aimfor.cli._fit import aims_of
from aimfor.model_folder import LoadedModel, load_model
from aimfor.operating_points import OperatingPoint
from aimfor.report import measure_label
from aimfor.tables import Table, features_of, labels_of, open_table, open_writer, weights_of


class FolderScorer(NamedTuple):
    """A model, the names of its labels, and what is known of its training data."""

    model: LoadedModel
    labels: list[str]
    data: dict[str, Any]

    @property
    def points(self) -> tuple[OperatingPoint, ...]:
        """One operating point per label."""
        points = self.model.classifier.operating_point_
        return points if isinstance(points, tuple) else (points,)

    def scores(self, source: Any) -> Iterator[np.ndarray]:
        """Raw scores `[b, L]` of all rows, part by part."""
        for features in features_of(source, self.model.preparation, self.model.classifier.n_features_in_):
            yield self.model.classifier.raw_scores(features)

    def decisions(self, scores: np.ndarray, label: int) -> pa.Array:
        """The class of each row; null without a threshold."""
        point, classes = self.points[label], self.classes
        if point.threshold is None:
            return pa.nulls(len(scores), pa.array(classes).type)
        return pa.array(classes).take(pa.array(point.predict(scores[:, label])))

    @property
    def classes(self) -> list[Any]:
        """What is said for no and for yes."""
        own = self.model.classifier.classes_
        return own.tolist() if len(self.labels) == 1 else [0, 1]


def open_scorer(folder: Path) -> FolderScorer:
    """The model in a folder."""
    model = load_model(folder)
    count = len(model.classifier.operating_point_) if isinstance(model.classifier.operating_point_, tuple) else 1
    data = model.facts.get("data")
    data = data if isinstance(data, dict) else {}
    labels = _texts(data.get("labels")) or []
    if len(labels) != count:  # a model that was not fitted by the program
        labels = ["label"] if count == 1 else [f"label {index}" for index in range(count)]
    return FolderScorer(model, labels, data)


def _written(value: Any) -> str:
    """A class as files have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _texts(given: Any) -> list[str] | None:
    return given if isinstance(given, list) and all(isinstance(text, str) for text in given) else None


def score(folder: Path, paths: list[str], out: Path) -> int:
    """Write score and decision of every row, in order.

    Args:
        folder: of the model.
        paths: the data.
        out: a .csv, .tsv, .parquet or .feather file; it appears when it is whole.

    Returns:
        The number of rows.
    """
    for path in [folder, *map(Path, paths)]:
        if out.exists() and path.exists() and (out.samefile(path) or out.resolve().is_relative_to(path.resolve())):
            raise DataError(f"out must not replace what is read, got {out}")
    scorer, rows = open_scorer(folder), 0
    names = [""] if len(scorer.labels) == 1 else [f" {name}" for name in scorer.labels]
    with open_writer(out) as write:
        for scores in scorer.scores(open_table(paths)):
            columns = {}
            for label, name in enumerate(names):
                columns[f"score{name}"] = pa.array(scores[:, label].astype(np.float32))
                columns[f"decision{name}"] = scorer.decisions(scores, label)
            write(pa.table(columns))
            rows += len(scores)
    return rows


def evaluate(folder: Path, paths: list[str]) -> list[dict[str, Any]]:
    """Measure the model on labelled rows it has not seen.

    Args:
        folder: of the model.
        paths: the data, with the label columns.

    Returns:
        What `measure_label` gives, one per label.
    """
    scorer = open_scorer(folder)
    source = open_table(paths)
    fitted_on = source.fingerprint == scorer.data.get("fingerprint")
    known = scorer.labels if len(scorer.labels) > 1 else [_written(one) for one in scorer.classes]
    labels = labels_of(source, _texts(scorer.data.get("label_columns")) or scorer.labels, known=known).values
    labels = labels.reshape(len(labels), -1)
    scores = np.concatenate(list(scorer.scores(source)))
    if len(scores) != len(labels):
        raise DataError(f"rows must be as many as labels, got {len(scores)} and {len(labels)}")
    weight, weights = scorer.data.get("weight"), None
    if isinstance(weight, str) and isinstance(source, Table):
        if weight in source.schema.names:
            weights = weights_of(source, weight)
        else:
            warnings.warn(f"every row counts the same, as there is no column {weight!r} of weights", stacklevel=2)
    aims = aims_of(scorer.model.classifier, len(scorer.labels))
    return [
        measure_label(
            name,
            labels=labels[:, index],
            scores=scores[:, index],
            point=scorer.points[index],
            aim=aims[index],
            weights=weights,
            positive=known[1] if len(scorer.labels) == 1 else "1",
            # The same rows may lie in another file.
            on="the rows it was fitted on" if fitted_on else "rows of files it was not fitted on",
        )
        for index, name in enumerate(scorer.labels)
    ]
