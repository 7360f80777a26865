"""A table and the names of its labels become prepared rows that train, choose and judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse

from aimfor._base.errors import DataError
from aimfor._base.ranks import ALONE, Ranks, RowShare
from aimfor._base.stored_rows import RowWriter, StoredRows
from aimfor.tables._columns import check_name, named_twice, said
from aimfor.tables._duplicates import (
    MOST_COMPARED,
    FittedRows,
    hash_sample,
    label_codes,
    row_hashes,
    with_twins_together,
)
from aimfor.tables._labels import Labels, read_labels
from aimfor.tables._matrix import Matrix, widened
from aimfor.tables._preparation import Preparation
from aimfor.tables._reading import SIZE
from aimfor.tables._row_columns import groups_of, times_of, weights_of
from aimfor.tables._shared import begin_fingerprint, collected
from aimfor.tables._split import DROPPED, PARTS, check_classes, split_rows
from aimfor.tables._suspicions import later_than, suspicious_columns
from aimfor.tables._table import MemoryTable, Remark, Table

MEMORY = 256 * 2**20  # bytes of features that are held in memory
FLOAT = 4  # bytes of a feature


class SplitPart(NamedTuple):
    """Some rows, in file order.

    Attributes:
        features: float32 `[n, D]`: an array, a CSR matrix or `StoredRows`.
        labels: uint8: 0/1 or numbers of classes `[n]`, or 0/1 `[n, L]`.
        weights: float64 `[n]`, or None for 1.
        groups: `[n]` codes of groups of dependent rows, or None.
    """

    features: Any
    labels: np.ndarray
    weights: np.ndarray | None
    groups: np.ndarray | None = None


@dataclass(frozen=True)
class Dataset:
    """All that a training run needs of the data.

    Attributes:
        train, validation, test: the rows of each part; a part whose share is 0 has none.
        split: uint8 `[n]`, the part of each row of the files: 0 train, 1 validation, 2 test, 3 without a label.
        preparation: how columns became features; None where the files held features.
        label_names: one for each label.
        classes: texts of the negative and the positive class, or of all classes where they are more than two.
        said: what was understood of the columns, in one line.
        summary: rows and positives of each part, and what each column holds in the training rows, as plain data.
        fingerprint: of the files.
        remarks: what the user should know about the data.
        row_hashes: hashes of some training rows, by which `evaluate` notices rows that the model was fitted on.
        share: which of all training rows are in `train`, where several processes share them; the other parts then hold
            the rows of all of them. None for all.
    """

    train: SplitPart
    validation: SplitPart
    test: SplitPart
    split: np.ndarray
    preparation: Preparation | None
    label_names: tuple[str, ...]
    classes: tuple[str, ...]
    said: str
    summary: dict[str, Any]
    fingerprint: str
    remarks: tuple[Remark, ...] = ()
    row_hashes: FittedRows | None = None
    share: RowShare | None = None

    @property
    def multiclass(self) -> bool:
        """Whether each row has one of three or more classes."""
        return len(self.classes) > 2


# long: every option is an argument of its own, with a line of documentation.
def prepare(
    source: Table | Matrix,
    *,
    labels: Sequence[str],
    positive: str | None = None,
    weight: str | None = None,
    group: str | None = None,
    time: str | None = None,
    validation: float = 0.2,
    test: float = 0.2,
    seed: int = 0,
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    folder: Path,
    memory: int = MEMORY,
) -> Dataset:
    """Read labels, split the rows, learn the preparation on the training rows, and apply it to all.

    Args:
        source: what `open_table` gave.
        labels: names of the label columns; of a matrix, the names to call its labels by.
        positive: the positive class; the second in sorted order where it is None.
        weight: name of a column of weights.
        group: name of a column; rows that are equal in it stay in one part.
        time: name of a column; the latest rows are the test, those before them the validation.
        validation: share of the rows.
        test: share of the rows.
        seed: of the split.
        numeric: names of columns to be taken so, whatever their type.
        categorical: likewise.
        drop: names of columns to leave out.
        folder: where features that are more than `memory` are kept.
        memory: bytes of features that may be held in memory.

    Raises:
        DataError: where the data are not what they must be; no file is left behind.
    """
    if isinstance(source, Matrix):
        asked = {"weight": weight, "group": group, "time": time, "numeric": numeric, "categorical": categorical}
        _refuse_names(source, asked | {"drop": drop})
        return _from_matrix(source, labels, positive, validation, test, seed)
    read, fingerprint = labels_of(source, labels, positive), begin_fingerprint(source)
    others = _other_columns(source, labels, {"weight": weight, "group": group, "time": time})
    weights = None if weight is None else weights_of(source, weight)
    groups = None if group is None else groups_of(source, group)
    split = _split(
        read,
        validation=validation,
        test=test,
        seed=seed,
        groups=groups,
        times=None if time is None else times_of(source, time),
        share=source.share,
    )
    wishes: dict[str, Any] = {"others": others, "numeric": numeric, "categorical": categorical, "drop": drop}
    preparation = Preparation.learn(source, split == 0, **wishes)
    remarks, share = list(source.remarks), source.share
    twins = row_hashes(source, preparation) if share.total <= MOST_COMPARED else None
    everyones = split if twins is None else share.collect(split)
    if twins is not None:
        fixed = group is not None or time is not None
        codes = share.collect(label_codes(read.values))
        moved, remark = with_twins_together(source, preparation, everyones, twins, codes, fixed=fixed)
        remarks += [remark] if remark else []
        if (moved != everyones).any():
            everyones, split = moved, share.own(moved)
            parts = [part for part in range(len(PARTS)) if (everyones == part).any()]
            check_classes(read.values, split, parts, share.ranks)
            preparation = Preparation.learn(source, split == 0, **wishes)
    features = _collect(source, preparation, split, folder, memory)
    pa.default_memory_pool().release_unused()  # training needs the room that reading took
    parts = _parts(features, read, weights, split, groups)
    train = share.select(np.flatnonzero(split == 0))
    if share.ranks.size > 1:
        if not min(share.ranks.gather(len(train))):
            raise DataError(f"one of {share.ranks.size} processes has no rows to train on: start fewer")
        parts[1:] = [
            collected(part, share.select(np.flatnonzero(split == number)), folder / f"{PARTS[number]}.rows", memory)
            for number, part in enumerate(parts[1:], start=1)
        ]
    remarks += suspicious_columns(preparation, parts[0].features, parts[0].labels, read, train)
    remarks += later_than(source, preparation, time)
    summary = _summary(read, parts, said(preparation.columns_), preparation.summary_, remarks, share.ranks)
    return Dataset(
        *parts,
        split=split,
        preparation=preparation,
        label_names=read.names,
        classes=read.classes,
        said=said(preparation.columns_),
        summary=summary,
        fingerprint=fingerprint(),
        remarks=tuple(remarks),
        row_hashes=None if twins is None else hash_sample(twins, everyones),
        share=train if share.ranks.size > 1 else None,
    )


def _refuse_names(source: Matrix, asked: dict[str, Any]) -> None:
    """Raise if an option names a column, which a matrix does not have."""
    for name, value in asked.items():
        if value:
            raise DataError(f"--{name} names a column, but {source.name} has no named columns: leave it out")


def _other_columns(source: Table, labels: Sequence[str], named: dict[str, str | None]) -> dict[str, str | None]:
    """The columns that are no features, each with the option that names it, or None for a label."""
    others: dict[str, str | None] = {}
    for option, name in named.items():
        if name is not None:
            check_name(option, name, source.schema.names)
            if name in labels:
                raise named_twice(name, "label", option)
            others[name] = option
    return others | dict.fromkeys(labels)


def _split(read: Labels, **options: Any) -> np.ndarray:
    """The part of each row; rows without a label have none."""
    present, share = read.present, options.pop("share", None)
    if present is None:
        return split_rows(read.values, share=share, **options)
    if not (share.ranks.any(bool(present.any())) if share else present.any()):
        raise DataError("no row has a label: check the column that --label names")
    chosen: dict[str, Any] = {
        name: value[present] if isinstance(value, np.ndarray) else value for name, value in options.items()
    }
    split = np.full(len(present), DROPPED, dtype=np.uint8)
    own = None if share is None else share.select(np.flatnonzero(present))
    split[present] = split_rows(read.values[present], share=own, **chosen)
    return split


def labels_of(
    source: Table | Matrix, names: Sequence[str], positive: str | None = None, *, known: Sequence[str] | None = None
) -> Labels:
    """The labels of all rows, as of `read_labels`; a matrix has its own, which the names are for.

    Args:
        source: what `open_table` gave.
        names: of the label columns.
        positive: the positive class.
        known: what a model was trained with: the classes of a single column, or the labels of a column of lists.

    Raises:
        DataError: where the source does not have such labels.
    """
    if isinstance(source, Table):
        return read_labels(source, names, positive, known=known)
    if source.labels is None:
        raise DataError(f"{source.paths[0]} has no labels (NPZ has them as y)")
    matrix = source.labels.reshape(len(source.labels), -1)
    if len(names) <= 1 and source.labels.ndim == 2:
        names = source.label_names or [str(index) for index in range(matrix.shape[1])]
    names = names or ["label"]
    if len(names) != matrix.shape[1]:
        raise DataError(f"--label must name each of the {matrix.shape[1]} labels of {source.name}, not {len(names)}")
    columns = dict(zip(names, matrix.T, strict=True))
    return read_labels(MemoryTable(pa.table(columns)), names, positive, known=known)


def features_of(
    source: Table | Matrix, preparation: Preparation | None, num_features: int | None = None
) -> Iterator[Any]:
    """The features of all rows in order, some at a time, for scoring.

    Args:
        source: what `open_table` gave.
        preparation: that of the model; None for a model of a matrix.
        num_features: that the model was trained with, where it has no preparation; None for those of the source.

    Yields:
        float32 `[b, D]`, arrays or CSR matrices.

    Raises:
        DataError: where the source does not have what the model needs.
    """
    if isinstance(source, Matrix):
        if preparation is not None:
            raise DataError(f"{source.name} has no named columns, but the model needs those of its training data")
        yield from _matrix_pieces(source, num_features)
        return
    if preparation is None:
        raise DataError(f"{source.name} is {source.format.name}, but the model was trained on SVMlight or NPZ")
    for batch in preparation.batches(source):
        yield preparation.apply(batch)


def _matrix_pieces(source: Matrix, num_features: int | None) -> Iterator[Any]:
    features: Any = source.features
    found = features.shape[1]
    # A sparse file does not tell features that are 0 in all its rows.
    wanted = found if num_features is None else num_features
    if sparse.issparse(features) and found < wanted:
        features = widened(features, wanted)
    elif found != wanted:
        raise DataError(f"{source.name} has {found} features, but the model needs {wanted}")
    for start in range(0, features.shape[0], SIZE):
        yield features[start : start + SIZE]


def _from_matrix(
    source: Matrix, names: Sequence[str], positive: str | None, validation: float, test: float, seed: int
) -> Dataset:
    read = labels_of(source, names, positive)
    split = _split(read, validation=validation, test=test, seed=seed)
    features = [source.features[np.flatnonzero(split == part)] for part in range(len(PARTS))]
    kind = "sparse" if sparse.issparse(source.features) else "dense"
    line = f"{source.features.shape[1]} features ({kind}, taken as they are)"
    parts = _parts(features, read, None, split)
    return Dataset(
        *parts,
        split=split,
        preparation=None,
        label_names=read.names,
        classes=read.classes,
        said=line,
        summary=_summary(read, parts, line, [], []),
        fingerprint=source.fingerprint,
    )


def _collect(source: Table, preparation: Preparation, split: np.ndarray, folder: Path, memory: int) -> list[Any]:
    """The features of each part, in memory or in files."""
    width = len(preparation.feature_names_out)
    counts = [int((split == part).sum()) for part in range(len(PARTS))]
    all_fit = sum(counts) * width * FLOAT <= memory
    # Training reads batches and can do so from a file; the small parts are read whole, again and again.
    stored = [not all_fit and (part == 0 or count * width * FLOAT > memory // 4) for part, count in enumerate(counts)]
    paths = [folder / f"{name}.rows" for name in PARTS]
    arrays = [np.empty((0 if on_disk else n, width), np.float32) for n, on_disk in zip(counts, stored, strict=True)]
    filled, start = [0] * len(PARTS), 0
    if any(stored):
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(RowWriter(path, width)) if on_disk else None
            for path, on_disk in zip(paths, stored, strict=True)
        ]
        for block in features_of(source, preparation):
            part_of = split[start : start + len(block)]
            start += len(block)
            for part, writer in enumerate(writers):
                rows = block[part_of == part]
                if writer is not None:
                    writer.append(rows)
                else:
                    arrays[part][filled[part] : filled[part] + len(rows)] = rows
                filled[part] += len(rows)
    return [
        StoredRows(path, width) if on_disk else array
        for path, array, on_disk in zip(paths, arrays, stored, strict=True)
    ]


def _parts(
    features: Sequence[Any],
    read: Labels,
    weights: np.ndarray | None,
    split: np.ndarray,
    groups: np.ndarray | None = None,
) -> list[SplitPart]:
    return [
        SplitPart(
            rows,
            read.values[split == part],
            *(None if one is None else one[split == part] for one in (weights, groups)),
        )
        for part, rows in enumerate(features)
    ]


def _summary(
    read: Labels,
    parts: Sequence[SplitPart],
    line: str,
    columns: list[dict[str, Any]],
    remarks: Sequence[Remark],
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    rows = [len(part.labels) for part in parts]
    positives = [_positives(part.labels, read) for part in parts]
    # Every rank has all rows of the other parts.
    rows[0], positives[0] = ranks.sum(rows[0]), ranks.sum(np.array(positives[0])).tolist()
    return {
        "said": line,
        "rows": dict(zip(PARTS, rows, strict=True)),
        "positives": {
            name: dict(zip(read.names, own, strict=True)) for name, own in zip(PARTS, positives, strict=True)
        },
        "classes": list(read.classes),
        "columns": columns,
        "choice": read.choice,
        "without_label": ranks.sum(0 if read.present is None else int((~read.present).sum())),
        "warnings": [remark._asdict() for remark in remarks],
    }


def _positives(labels: np.ndarray, read: Labels) -> list[int]:
    if read.multiclass:
        return [int((labels == number).sum()) for number in range(len(read.classes))]
    return labels.sum(axis=0, dtype=np.int64).reshape(-1).tolist()
