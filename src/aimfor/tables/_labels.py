"""Label: the label columns of a table become zeros and ones, or one sentence that says why they cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aimfor._base.errors import DataError
from aimfor.tables._columns import check_name, is_number, is_text, numbers, texts
from aimfor.tables._table import BatchSource

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

MOST_CLASSES = 1000  # that are told apart before the count is given up


class Labels(NamedTuple):
    """Labels of all rows.

    Attributes:
        names: one for each label.
        values: uint8 0/1, `[n]` for one label column, else `[n, L]`.
        classes: texts of the negative and the positive class.
    """

    names: tuple[str, ...]
    values: np.ndarray
    classes: tuple[str, str]


def read_labels(
    table: BatchSource, names: Sequence[str], positive: str | None = None, *, known: Sequence[str] | None = None
) -> Labels:
    """Read one column of two classes, several columns of 0/1, or one column of lists of labels.

    Args:
        table: of which only these columns are read.
        names: of the label columns.
        positive: the positive class of a single column; the second in sorted order where it is None.
        known: what a model was trained with: the classes of a single column, negative first, which then need not both
            occur; or the labels of a column of lists. Anything else in the column is an error.

    Raises:
        DataError: where a column is not there, lacks values, or does not have two classes.

    Example:
        >>> from aimfor.tables import MemoryTable
        >>> read_labels(MemoryTable(pa.table({"fraud": ["no", "yes", "no"]})), ["fraud"])
        Labels(names=('fraud',), values=array([0, 1, 0], dtype=uint8), classes=('no', 'yes'))
    """
    if not names:
        raise DataError("label must name a column of the data, got none")
    for name in names:
        check_name("label", name, table.schema.names)
    if len(set(names)) < len(names):
        raise DataError(f"label must name every column once, got {', '.join(names)}")
    kind = table.schema.field(names[0]).type
    lists = len(names) == 1 and (pa.types.is_list(kind) or pa.types.is_large_list(kind))
    if positive is not None and (lists or len(names) > 1):
        raise DataError(f"positive must be left out with several labels, got {positive!r}")
    if lists:
        return _label_lists(table, names[0], known)
    if len(names) > 1:
        return Labels(tuple(names), np.stack([_zeros_and_ones(table, name) for name in names], axis=1), ("0", "1"))
    return _two_classes(table, names[0], positive, known)


def _two_classes(table: BatchSource, name: str, positive: str | None, known: Sequence[str] | None) -> Labels:
    kind = table.schema.field(name).type
    if not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise DataError(f"label column {name!r} must hold texts, numbers, booleans or lists of texts, got {kind}")
    codes: dict[str, int] = {}
    parts, num_missing = [], 0
    for batch in table.batches([name]):
        column = texts(name, batch.column(name))
        num_missing += column.null_count
        found = column.dictionary_encode()
        if len(codes) < MOST_CLASSES:
            for text in found.dictionary.to_pylist():
                codes.setdefault(text, len(codes))
            # Two classes are all that is kept; with more, only their number counts.
            code_of = np.array([min(codes[text], 2) for text in found.dictionary.to_pylist()] + [2], dtype=np.uint8)
            parts.append(code_of[pc.fill_null(found.indices, -1).to_numpy(zero_copy_only=False)])
    _no_missing(name, num_missing)
    if known is not None:
        _only_known(name, codes, known)
        negative, chosen = known
    else:
        negative, chosen = _ordered(name, sorted(codes, key=float if is_number(kind) else str), positive)
    values = (np.concatenate(parts) == codes.get(chosen)).astype(np.uint8)
    return Labels((name,), values, (negative, chosen))


def _ordered(name: str, classes: Sequence[str], positive: str | None) -> tuple[str, str]:
    """The negative and the positive one of two classes."""
    if len(classes) != 2:
        count = f"at least {MOST_CLASSES}" if len(classes) >= MOST_CLASSES else len(classes)
        examples = ", ".join(repr(text[:50]) for text in classes[:5])
        raise DataError(f"label column {name!r} must have two classes, got {count}: {examples}")
    chosen = classes[1] if positive is None else _class(name, positive, classes)
    return classes[1 - classes.index(chosen)], chosen


def _only_known(name: str, found: Iterable[str], known: Sequence[str]) -> None:
    for text in found:
        if text not in known:
            shown = ", ".join(map(repr, known[:10]))
            raise DataError(f"label column {name!r} must hold what the model knows, {shown}, got {text[:50]!r}")


def _class(name: str, positive: str, classes: Sequence[str]) -> str:
    for text in classes:
        if positive == text or (positive.lower() == text and text in ("true", "false")):
            return text
    raise DataError(f"positive must be a class of {name!r}, {classes[0]!r} or {classes[1]!r}, got {positive!r}")


def _zeros_and_ones(table: BatchSource, name: str) -> np.ndarray:
    parts, num_missing = [], 0
    for batch in table.batches([name]):
        values = numbers(name, batch.column(name), strict=True)
        absent = np.isnan(values)
        num_missing += int(absent.sum())
        other = values[(values != 0) & (values != 1) & ~absent]
        if len(other):
            raise DataError(f"label column {name!r} must hold 0 and 1 where there are several, got {other[0]:g}")
        parts.append(values == 1)
    _no_missing(name, num_missing)
    return np.concatenate(parts).astype(np.uint8)


def _label_lists(table: BatchSource, name: str, known: Sequence[str] | None) -> Labels:
    codes: dict[str, int] = {}
    rows, columns = [], []
    num_rows = num_missing = 0
    for batch in table.batches([name]):
        lists = batch.column(name)
        num_missing += lists.null_count
        entries = texts(name, lists.flatten())
        if entries.null_count:
            raise DataError(f"label column {name!r} must have no missing labels in its lists, got {entries.null_count}")
        found = entries.dictionary_encode()
        code_of = np.array(
            [codes.setdefault(text, len(codes)) for text in found.dictionary.to_pylist()], dtype=np.int32
        )
        columns.append(code_of[found.indices.to_numpy(zero_copy_only=False)])
        rows.append(num_rows + pc.list_parent_indices(lists).to_numpy(zero_copy_only=False))
        num_rows += batch.num_rows
    _no_missing(name, num_missing)
    if known is not None:
        _only_known(name, codes, known)
        for text in known:
            codes.setdefault(text, len(codes))
    if not codes:
        raise DataError(f"label column {name!r} must have at least one label in its lists, got none")
    names = sorted(codes) if known is None else list(known)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[[codes[text] for text in names]] = np.arange(len(codes))
    values = np.zeros((num_rows, len(codes)), dtype=np.uint8)
    values[np.concatenate(rows), rank[np.concatenate(columns)]] = 1
    return Labels(tuple(names), values, ("0", "1"))


def _no_missing(name: str, num_missing: int) -> None:
    if num_missing:
        raise DataError(f"label column {name!r} must have a value in every row, got {num_missing:,} missing")
