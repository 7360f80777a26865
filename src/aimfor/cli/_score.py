"""Apply a model folder to new rows, in their order, however many there are."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import pyarrow as pa

from aimfor._base.errors import DataError
from aimfor._base.files import OtherPath
from aimfor.aims import aim as read_aim
from aimfor.cli._drift import Drift
from aimfor.cli._segments import segments_of
from aimfor.cli._source import open_source
from aimfor.model_folder import LoadedModel, load_model
from aimfor.operating_points import OperatingPoint, one_per_label
from aimfor.report import measure_label
from aimfor.tables import (
    FittedRows,
    Matrix,
    ReadOptions,
    Table,
    as_path,
    check_name,
    features_of,
    fitted_share,
    hashed,
    is_database,
    labels_of,
    open_writer,
    weights_of,
)

FITTED_SHARE = 0.3  # of the training rows that a model keeps hashes of, from which on new rows are called known


@dataclass(frozen=True)
class RowSource:
    """Where the rows of a command come from.

    Attributes:
        paths: files and folders, or the address of a database.
        sql: a query to the database.
        options: how files are read.
    """

    paths: Sequence[str | Path]
    sql: str | None = None
    options: ReadOptions = field(default_factory=ReadOptions)

    def reading(self, missing: Sequence[str]) -> ReadOptions:
        """How they are read: with the marks of missing values that the model was fitted with, if none were named."""
        return ReadOptions(self.options.separator, self.options.encoding, self.options.missing or tuple(missing))

    def opened(self, folder: Path, missing: Sequence[str]) -> Table | Matrix:
        """The rows, read so."""
        return open_source(self.paths, self.reading(missing), self.sql, folder)


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

    def thresholds(self, given: float | None) -> list[float | None]:
        """The threshold of each label: the given one, or that of its operating point."""
        return [point.threshold if given is None else given for point in self.points]

    def pieces(self, source: Table | Matrix, drift: Drift, more: Sequence[str] = ()) -> Iterator[tuple[Any, Any]]:
        """Features of some rows at a time, and the batch they came from, with `more` columns; None for a matrix."""
        preparation = self.model.preparation
        if preparation is None or isinstance(source, Matrix):
            for features in features_of(source, preparation, self.model.classifier.n_features_in_):
                yield features, None
            return
        for batch in preparation.batches(source, more):
            drift.add_(batch)
            yield preparation.apply(batch), batch

    @property
    def missing(self) -> list[str]:
        """Texts that meant a missing value when the model was fitted."""
        return _texts(self.data.get("missing")) or []

    @property
    def label_columns(self) -> list[str]:
        """The columns that hold the labels."""
        return _texts(self.data.get("label_columns")) or self.labels

    @property
    def multiclass(self) -> bool:
        """Whether each row has one of three or more classes."""
        return bool(self.model.classifier.targets_.multiclass)

    @property
    def classes(self) -> list[Any]:
        """The names of no and of yes, or of all classes where they are more than two."""
        own = self.model.classifier.classes_
        return own.tolist() if len(self.labels) == 1 or self.multiclass else [0, 1]


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


class Scored(NamedTuple):
    """What `score` wrote: the number of rows, what each column is, and what is remarkable about the rows."""

    rows: int
    columns: dict[str, str]
    remarks: list[dict[str, Any]]


def score(
    folder: Path, rows: RowSource, out: Path, *, ids: Sequence[str] = (), threshold: float | None = None
) -> Scored:
    """Write score and decision of every row, in order.

    Args:
        folder: of the model.
        rows: the data.
        out: the file; it appears when it is whole.
        ids: names of columns to write beside the scores.
        threshold: to decide by instead of that of the model.
    """
    refuse_to_replace([folder, *(as_path(path) for path in rows.paths if not is_database(path))], out)
    return score_rows(open_scorer(folder), rows, out, ids=ids, threshold=threshold)


def score_rows(
    scorer: FolderScorer, rows: RowSource, out: Path, *, ids: Sequence[str] = (), threshold: float | None = None
) -> Scored:
    """As `score`, with a model that was opened already; nothing is said about the place of the output."""
    if threshold is not None and not np.isfinite(threshold):
        raise ValueError(f"--threshold must be a finite number, got {threshold}")
    count = 0
    drift = Drift(scorer.model.preparation, scorer.data)
    columns = _column_texts(scorer, ids, threshold)
    with tempfile.TemporaryDirectory(prefix="aimfor-") as place, open_writer(out) as write:
        source = rows.opened(Path(place), scorer.missing)
        for name in ids:
            check_name("id", name, [] if isinstance(source, Matrix) else source.schema.names)
        for features, batch in scorer.pieces(source, drift, ids):
            write(_output(scorer, features, batch, ids, threshold, drift))
            count += features.shape[0]
    remarks = _remarks(source)
    return Scored(count, columns, remarks + drift.remarks(scorer.labels))


def refuse_to_replace(read: Sequence[Path], out: Path) -> None:
    """Raise if the output would be one of the files that are read, or lie among them."""
    for path in read:
        if isinstance(out, OtherPath) or isinstance(path, OtherPath):
            inside = str(out) == str(path) or str(out).startswith(f"{path}/")
        else:
            known = out.exists() and path.exists()
            inside = known and (out.samefile(path) or out.resolve().is_relative_to(path.resolve()))
        if inside:
            raise DataError(f"--out {out} would replace what is read: give another name")


def _output(
    scorer: FolderScorer, features: Any, batch: Any, ids: Sequence[str], threshold: float | None, drift: Drift
) -> pa.Table:
    scores = scorer.model.classifier.raw_scores(features)
    columns = {name: batch.column(name) for name in ids}
    classes, thresholds = scorer.classes, scorer.thresholds(threshold)
    for label, name in enumerate(_suffixes(scorer)):
        columns[f"score{name}"] = pa.array(scores[:, label].astype(np.float32))
        limit = thresholds[label]
        if limit is not None:
            drift.add_alarms_(label, int((scores[:, label] >= limit).sum()))
        if not scorer.multiclass:
            columns[f"decision{name}"] = _decisions(scores[:, label], limit, classes)
    if scorer.multiclass:
        columns["decision"] = pa.array(scorer.model.classifier.predict(features))
    if scorer.model.classifier.calibrate:
        chances = np.asarray(scorer.model.classifier.predict_proba(features), dtype=np.float64)
        chances = chances[:, 1:] if len(scorer.labels) == 1 else chances
        for label, name in enumerate(_suffixes(scorer)):
            columns[f"probability{name}"] = pa.array(chances[:, label].astype(np.float32))
    return pa.table(columns)


def _suffixes(scorer: FolderScorer) -> list[str]:
    return [""] if len(scorer.labels) == 1 else [f" {name}" for name in scorer.labels]


def _decisions(scores: np.ndarray, threshold: float | None, classes: list[Any]) -> pa.Array:
    """The class of each row; null without a threshold."""
    if threshold is None:
        return pa.nulls(len(scores), pa.array(classes).type)
    return pa.array(classes).take(pa.array((scores >= threshold).astype(np.int64)))


def _column_texts(scorer: FolderScorer, ids: Sequence[str], threshold: float | None) -> dict[str, str]:
    """What each column of the output is."""
    texts = dict.fromkeys(ids, "as in the data")
    for label, name in enumerate(_suffixes(scorer)):
        limit = scorer.thresholds(threshold)[label]
        texts[f"score{name}"] = "raw score; the higher, the more likely positive"
        if not scorer.multiclass:
            yes = scorer.classes[1]
            rule = (
                "empty: the model has no threshold"
                if limit is None
                else f"{yes} where the score is at least {limit:.6g}"
            )
            texts[f"decision{name}"] = rule
    if scorer.multiclass:
        texts["decision"] = "the class of the highest score, whatever the thresholds"
    if scorer.model.classifier.calibrate:
        texts |= {f"probability{name}": "calibrated chance of the positive class" for name in _suffixes(scorer)}
    return texts


def evaluate(
    folder: Path, rows: RowSource, *, by: str | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measure the model on labelled rows it has not seen.

    Args:
        folder: of the model.
        rows: the data, with the label columns.
        by: the name of a column; each of its values is measured by itself as well.

    Returns:
        What `measure_label` gives, one per label, with `segments` where they were asked for; and remarks on the rows.
    """
    scorer = open_scorer(folder)
    with tempfile.TemporaryDirectory(prefix="aimfor-") as place:
        source = rows.opened(Path(place), scorer.missing)
        return _evaluated(scorer, source, by)


def _evaluated(
    scorer: FolderScorer, source: Table | Matrix, by: str | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    labels, labelled = read_known_labels(scorer, source)
    if by is not None:
        check_name("by", by, [] if isinstance(source, Matrix) else source.schema.names)
    drift = Drift(scorer.model.preparation, scorer.data)
    scores, segments, hashes = [], [], []
    for features, batch in scorer.pieces(source, drift, [] if by is None else [by]):
        scores.append(scorer.model.classifier.raw_scores(features))
        segments += [batch.column(by)] if by is not None else []
        hashes += [hashed(batch, scorer.model.preparation)] if batch is not None else []
    found = np.concatenate(scores)
    if len(found) != len(labels):
        raise DataError(f"the data have {len(found)} rows but {len(labels)} labels")
    present = slice(None) if labelled is None else np.flatnonzero(labelled)
    weights = _weights(scorer, source)
    for label, limit in enumerate(scorer.thresholds(None)):
        if limit is not None:
            drift.add_alarms_(label, int((found[:, label] >= limit).sum()))
    remarks = _remarks(source)
    remarks += drift.remarks(scorer.labels)
    if labelled is not None:
        text = f"{int((~labelled).sum()):,} rows without a label were left out"
        remarks.append({"kind": "no label", "column": None, "text": text})
    on, remark = _which_rows(scorer, source, hashes)
    remarks += [remark] if remark else []
    aims = one_per_label(read_aim(scorer.model.classifier.aim), len(scorer.labels))
    cut = [segment.take(pa.array(np.arange(len(labels))[present])) for segment in _joined(segments)]
    measured = []
    for index, name in enumerate(scorer.labels):
        own = {
            "labels": labels[present, index],
            "scores": found[present, index],
            "weights": None if weights is None else weights[present],
        }
        positive = name if scorer.multiclass else _written(scorer.classes[1]) if len(scorer.labels) == 1 else "1"
        asked = {"point": scorer.points[index], "aim": aims[index], "dependent": bool(scorer.data.get("group"))}
        entry = measure_label(name, **own, **asked, positive=positive, on=on)
        if cut:
            entry["segments"] = segments_of(cut[0], **own, point=scorer.points[index], level=entry["level"])
        measured.append(entry)
    return measured, remarks


def _remarks(source: Table | Matrix) -> list[dict[str, Any]]:
    """What is remarkable about the files. The kind of a column is no question any more: the model knows it."""
    if isinstance(source, Matrix):
        return []
    return [remark._asdict() for remark in source.remarks if remark.kind != "nearly numeric"]


def read_known_labels(scorer: FolderScorer, source: Table | Matrix) -> tuple[np.ndarray, np.ndarray | None]:
    """The labels `[n, L]` of all rows as the model knows them, and which rows have some; None where all have."""
    several = len(scorer.labels) > 1 and not scorer.multiclass
    known = scorer.labels if several else [_written(one) for one in scorer.classes]
    read = labels_of(source, scorer.label_columns, known=known)
    labels = read.values[:, None] == np.arange(len(known)) if scorer.multiclass else read.values
    return labels.reshape(len(labels), -1), read.present


def _joined(segments: list[pa.Array]) -> list[pa.Array]:
    return [pa.chunked_array(segments).combine_chunks()] if segments else []


def _weights(scorer: FolderScorer, source: Table | Matrix) -> np.ndarray | None:
    weight = scorer.data.get("weight")
    if not isinstance(weight, str) or isinstance(source, Matrix):
        return None
    if weight in source.schema.names:
        return weights_of(source, weight)
    warnings.warn(f"every row counts the same, as there is no column {weight!r} of weights", stacklevel=2)
    return None


def _which_rows(
    scorer: FolderScorer, source: Table | Matrix, hashes: list[np.ndarray]
) -> tuple[str, dict[str, Any] | None]:
    """Which rows were measured, in words, and a remark where the model was fitted on some of them."""
    if source.fingerprint == scorer.data.get("fingerprint"):
        return "the rows it was fitted on", None
    text = _fitted_text(scorer.data, np.concatenate(hashes)) if hashes else None
    if text is None:
        return "rows of files it was not fitted on", None
    return "rows that it was partly fitted on", {"kind": "fitted on", "column": None, "text": text}


def _fitted_text(data: dict[str, Any], hashes: np.ndarray) -> str | None:
    """How many of some rows the model was fitted on, in words; None where there are none to speak of."""
    sample = tuple(code for code in _texts(data.get("row_hashes")) or [] if _is_hash(code))
    if not sample:
        return None
    limit, chance = data.get("row_hash_limit"), data.get("row_chance")
    share = None
    if _is_hash(limit) and isinstance(chance, (int, float)) and 0 <= chance <= 1:
        share = FittedRows(sample, limit, chance).share_among(hashes)
    if share is not None:
        return f"the model was fitted on about {share:.0%} of these rows: the numbers flatter it"
    share = fitted_share(hashes, sample)  # folders of earlier versions have no limit
    if share < FITTED_SHARE:
        return None
    return f"about {share:.0%} of the rows that the model was fitted on are among these: the numbers flatter it"


def _is_hash(code: Any) -> TypeGuard[str]:
    return isinstance(code, str) and len(code) == 16 and set(code) <= set("0123456789abcdef")
