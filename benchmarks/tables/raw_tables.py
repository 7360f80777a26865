"""The public suite as tables that people would have: texts stay texts, categories stay names."""

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy import sparse

from benchmarks.shared import sets

LABEL = "label"
# The molecules of hiv are one column of texts that are all different, of which the program makes no features.
# Sets whose features were words; as tables they are texts, or thousands of columns that nobody has.
MULTILABEL = ("delicious", "corel5k", "enron", "yeast", "tmc2007_500", "imdb_f")


def load(name: str, folder: Path) -> tuple[pa.Table, list[str]] | None:
    """A set as a table and the names of its label columns; None, after a printed line, when a file of it is absent."""
    try:
        return TABLES[name](folder)
    except FileNotFoundError as error:
        print(f"skipped {name}: no {error.filename} (set --data or AIMFOR_DATA; see benchmarks/shared/sets.py)")
        return None


def _numbers_and_categories(name: str, folder: Path) -> tuple[pa.Table, list[str]]:
    rows = (sets.BINARY | sets.MULTILABEL)[name](folder)
    numbers = rows.numbers.toarray() if isinstance(rows.numbers, sparse.csr_matrix) else rows.numbers
    columns = {f"number {index}": _narrow(column) for index, column in enumerate(numbers.T)}
    columns |= {f"category {index}": pa.array(column.tolist()) for index, column in enumerate(rows.categories.T)}
    labels = [LABEL] if rows.labels.shape[1] == 1 else [f"{LABEL} {index}" for index in range(rows.labels.shape[1])]
    columns |= {label: pa.array(column) for label, column in zip(labels, rows.labels.T, strict=True)}
    return pa.table(columns), labels


def _narrow(values: np.ndarray) -> pa.Array:
    """Whole numbers as such, as a file of them would be read, and missing ones as missing."""
    known = values[~np.isnan(values)]
    kind = pa.int64() if len(known) and (known == np.round(known)).all() and np.abs(known).max() < 2**53 else None
    return pa.array(values, mask=np.isnan(values)).cast(kind or pa.float64())


def _sms_spam(folder: Path) -> tuple[pa.Table, list[str]]:
    with gzip.open(folder / "sms_spam" / "SMSSpamCollection.gz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return pa.table({"text": [line[1] for line in lines], LABEL: [line[0] for line in lines]}), [LABEL]


def _goemotions(folder: Path) -> tuple[pa.Table, list[str]]:
    with gzip.open(folder / "goemotions" / "train.tsv.gz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file][:20_000]
    table: dict[str, list[object]] = {"text": [line[0] for line in lines]}
    labels = [f"{LABEL} {number}" for number in range(28)]
    for number, label in enumerate(labels):
        table[label] = [int(str(number) in line[1].split(",")) for line in lines]
    return pa.table(table), labels


TABLES: dict[str, Callable[[Path], tuple[pa.Table, list[str]]]] = {
    **{name: partial(_numbers_and_categories, name) for name in (*sets.BINARY, *MULTILABEL) if name != "hiv"},
    "sms_spam": _sms_spam,
    "goemotions": _goemotions,
}
