"""The label columns of a table become zeros and ones. An error says why they cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aimfor._base.errors import DataError
from aimfor._base.ranks import Ranks
from aimfor.tables._columns import check_name, is_number, is_text, numbers, texts
from aimfor.tables._reading import first_of, one_line
from aimfor.tables._table import BatchSource

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

MOST_CLASSES = 50  # a column with more different values holds no classes, but numbers or names
ABSENT = 255  # in place of a class, where a row has none


class Labels(NamedTuple):
    """Labels of all rows.

    Attributes:
        names: one for each label; of three and more classes, one for each class.
        values: uint8, `[n]` of 0/1 for one label of two classes, `[n]` of class numbers for more classes, else `[n, L]`
            of 0/1.
        classes: texts of the negative and the positive class, or of all classes where they are more than two.
        present: bool `[n]`, the rows that have a label; None where all have.
        choice: which class counts as positive and why, in a sentence; empty where nothing was to choose.
    """

    names: tuple[str, ...]
    values: np.ndarray
    classes: tuple[str, ...]
    present: np.ndarray | None = None
    choice: str = ""

    @property
    def multiclass(self) -> bool:
        """Whether each row has one of several classes."""
        return len(self.classes) > 2


def read_labels(
    table: BatchSource, names: Sequence[str], positive: str | None = None, *, known: Sequence[str] | None = None
) -> Labels:
    """Read one column of classes, several columns of 0/1, or one column of lists of labels.

    Args:
        table: of which only these columns are read.
        names: of the label columns.
        positive: the positive class of a single column, against all others; where it is None, 1 and true are positive,
            and of two other classes the rarer one.
        known: what a model was trained with: the classes of a single column, negative first, which then need not all
            occur; or the labels of a column of lists. Anything else in the column is an error.

    Raises:
        DataError: where a column is not there, holds one class only, or no classes.

    Example:
        >>> from aimfor.tables import MemoryTable
        >>> read_labels(MemoryTable(pa.table({"fraud": ["ok", "fraud", "ok"]})), ["fraud"]).classes
        ('ok', 'fraud')
    """
    if not names:
        raise DataError("no label: name the column to predict with --label")
    for name in names:
        check_name("label", name, table.schema.names)
    if len(set(names)) < len(names):
        raise DataError(f"--label names a column twice: {', '.join(names)}")
    kind = table.schema.field(names[0]).type
    lists = len(names) == 1 and (pa.types.is_list(kind) or pa.types.is_large_list(kind))
    if positive is not None and (lists or len(names) > 1):
        raise DataError(f"--positive is for a single label, and there are several: leave out {positive!r}")
    if lists:
        return _label_lists(table, names[0], known)
    if len(names) > 1:
        return _several(table, names)
    return _one_column(table, names[0], positive, known)


def _one_column(table: BatchSource, name: str, positive: str | None, known: Sequence[str] | None) -> Labels:
    kind = table.schema.field(name).type
    if not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise DataError(
            f"label column {name!r} holds {kind}: texts, numbers, truth values or lists of texts are needed"
        )
    codes: dict[str, int] = {}
    parts = []
    for batch in table.batches([name]):
        found = texts(name, batch.column(name)).dictionary_encode()
        entries = found.dictionary.to_pylist()
        for text in entries:
            codes.setdefault(text, len(codes))
        if len(codes) > MOST_CLASSES:
            examples = ", ".join(repr(text[:20]) for text in list(codes)[:3])
            advice = "--positive names one of them" if positive is None else "is it the right column?"
            raise DataError(f"label column {name!r} has more than {MOST_CLASSES} values ({examples}): {advice}")
        code_of = np.array([codes[text] for text in entries] + [ABSENT], dtype=np.uint8)
        parts.append(code_of[pc.fill_null(found.indices, -1).to_numpy(zero_copy_only=False)])
    values = np.concatenate(parts)
    if table.ranks.size > 1:
        values, codes = _with_all_codes(name, values, codes, table.ranks)
    counts = {text: table.ranks.sum(int((values == code).sum())) for text, code in codes.items()}
    numeric = is_number(kind)
    ordered = dict(sorted(counts.items(), key=lambda item: float(item[0]) if numeric else item[0]))
    return _coded(name, values, codes, *_chosen(name, ordered, positive, known))


def _with_all_codes(
    name: str, values: np.ndarray, codes: dict[str, int], ranks: Ranks
) -> tuple[np.ndarray, dict[str, int]]:
    """Codes that all ranks share."""
    every: dict[str, int] = {}
    for own in ranks.gather(list(codes)):
        for text in own:
            every.setdefault(text, len(every))
    if len(every) > MOST_CLASSES:
        raise DataError(f"label column {name!r} has more than {MOST_CLASSES} values: --positive names one of them")
    code_of = np.full(ABSENT + 1, ABSENT, dtype=np.uint8)
    for text, code in codes.items():
        code_of[code] = every[text]
    return code_of[values], every


def _coded(name: str, values: np.ndarray, codes: dict[str, int], classes: tuple[str, ...], choice: str) -> Labels:
    present = values != ABSENT
    if len(classes) == 2:
        new = (values == codes.get(classes[1], ABSENT - 1)).astype(np.uint8)
        names: tuple[str, ...] = (name,)
    else:
        place = np.zeros(ABSENT + 1, dtype=np.uint8)
        place[[codes[text] for text in classes if text in codes]] = [n for n, t in enumerate(classes) if t in codes]
        new, names = place[values], classes
    return Labels(names, new, classes, None if present.all() else present, choice)


def _chosen(
    name: str, counts: dict[str, int], positive: str | None, known: Sequence[str] | None
) -> tuple[tuple[str, ...], str]:
    """The classes, of two the negative one first, and which counts as positive in a sentence."""
    if known is not None:
        against_rest = len(known) == 2 and known[0] == _rest(known[1])
        _only_known(name, () if against_rest else counts, known)
        return tuple(known), ""
    classes, total = list(counts), sum(counts.values())
    if len(classes) < 2:
        only = f"only {classes[0][:50]!r}" if classes else "no values"
        raise DataError(f"label column {name!r} holds {only}: two classes are needed")
    if positive is not None:
        chosen = _class(name, positive, classes)
        negative = classes[1 - classes.index(chosen)] if len(classes) == 2 else _rest(chosen)
        why = "as asked"
    elif len(classes) > 2:
        listed = ", ".join(f"{one_line(text, 20)} ({count:,})" for text, count in counts.items())
        return tuple(classes), f"{name}: each of {len(classes)} classes against the others: {one_line(listed, 300)}"
    else:
        conventional = classes in (["0", "1"], ["false", "true"])
        chosen = classes[1] if conventional or counts[classes[1]] <= counts[classes[0]] else classes[0]
        negative, why = classes[1 - classes.index(chosen)], "by convention" if conventional else "the rarer one"
    share = f"{counts[chosen]:,} of {total:,} rows"
    return (negative, chosen), f"Positive class: {name} = {one_line(chosen, 50)} ({share}, {why})"


def _rest(chosen: str) -> str:
    return f"not {chosen}"


def _only_known(name: str, found: Iterable[str], known: Sequence[str]) -> None:
    for text in found:
        if text not in known:
            shown = first_of([repr(other) for other in known], 10)
            raise DataError(f"label column {name!r} holds {text[:50]!r}, but the model knows {shown}")


def _class(name: str, positive: str, classes: Sequence[str]) -> str:
    for text in classes:
        if positive == text or (positive.lower() == text and text in ("true", "false")):
            return text
    shown = first_of([repr(text[:30]) for text in classes], 5)
    raise DataError(f"--positive: column {name!r} holds no {positive!r}; its values are {shown}")


def _several(table: BatchSource, names: Sequence[str]) -> Labels:
    columns = []
    for name in names:
        parts = []
        for batch in table.batches([name]):
            values = numbers(name, batch.column(name), strict=True)
            other = values[(values != 0) & (values != 1) & ~np.isnan(values)]
            if len(other):
                raise DataError(f"label column {name!r} holds {other[0]:g}: of several labels, each holds 0 and 1")
            parts.append(np.where(np.isnan(values), ABSENT, values).astype(np.uint8))
        columns.append(np.concatenate(parts))
    values = np.stack(columns, axis=1)
    present = (values != ABSENT).all(axis=1)
    values[~present] = 0
    return Labels(tuple(names), values, ("0", "1"), None if present.all() else present)


def _label_lists(table: BatchSource, name: str, known: Sequence[str] | None) -> Labels:
    codes: dict[str, int] = {}
    rows, columns = [], []
    num_rows, present = 0, []
    for batch in table.batches([name]):
        lists = batch.column(name)
        present.append(lists.is_valid().to_numpy(zero_copy_only=False))
        entries = texts(name, lists.flatten())
        if entries.null_count:
            raise DataError(f"label column {name!r} has lists with {entries.null_count} missing labels: remove those")
        found = entries.dictionary_encode()
        code_of = np.array(
            [codes.setdefault(text, len(codes)) for text in found.dictionary.to_pylist()], dtype=np.int32
        )
        columns.append(code_of[found.indices.to_numpy(zero_copy_only=False)])
        rows.append(num_rows + pc.list_parent_indices(lists).to_numpy(zero_copy_only=False))
        num_rows += batch.num_rows
    for others in table.ranks.gather(list(codes)):
        for text in others:
            codes.setdefault(text, len(codes))
    if known is not None:
        _only_known(name, codes, known)
        for text in known:
            codes.setdefault(text, len(codes))
    if not codes:
        raise DataError(f"label column {name!r} has empty lists only")
    names = sorted(codes) if known is None else list(known)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[[codes[text] for text in names]] = np.arange(len(codes))
    values = np.zeros((num_rows, len(codes)), dtype=np.uint8)
    values[np.concatenate(rows), rank[np.concatenate(columns)]] = 1
    there = np.concatenate(present)
    return Labels(tuple(names), values, ("0", "1"), None if there.all() else there)
