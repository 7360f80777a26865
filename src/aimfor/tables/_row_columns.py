"""Columns that are no features: weights, groups and times of the rows, and ids that are carried along."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from aimfor._base.errors import DataError
from aimfor.tables._columns import is_date, is_number, is_text, moments, numbers, texts
from aimfor.tables._table import Table


def weights_of(source: Table, name: str) -> np.ndarray:
    """The weights in a column, finite and at least 0."""
    parts = [numbers(name, batch.column(name), strict=True, option="weight") for batch in source.batches([name])]
    weights = np.concatenate(parts)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise DataError(f"--weight: column {name!r} holds {weights[wrong][0]}; finite numbers >= 0 are needed")
    return weights


def groups_of(source: Table, name: str) -> np.ndarray:
    """A number for each row that is the same where the text of the group is: its hash, so that no texts are kept."""
    parts = []
    for batch in source.batches([name], texts=[name]):
        found = texts(name, batch.column(name)).dictionary_encode()
        _all_there("group", name, found)
        hashes = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in found.dictionary.to_pylist()]
        codes = np.frombuffer(b"".join(hashes), dtype="<u8")
        parts.append(codes[found.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)


def times_of(source: Table, name: str) -> np.ndarray:
    """The moment of each row: seconds since 1970 for dates, else the number itself."""
    kind = source.schema.field(name).type
    if not (is_date(kind) or is_number(kind)):
        held = "texts that are no dates" if is_text(kind) else kind
        raise DataError(f"--time: column {name!r} holds {held}; dates, times or numbers are needed")
    parts = []
    for batch in source.batches([name]):
        column = batch.column(name)
        if pa.types.is_timestamp(kind):  # whole numbers, as float64 would not tell nanoseconds apart
            _all_there("time", name, column)
            parts.append(column.cast(pa.int64()).to_numpy(zero_copy_only=False))
        else:
            parts.append(moments(name, column) if is_date(kind) else numbers(name, column, strict=True))
            _all_there("time", name, pa.array(parts[-1], from_pandas=True))
    return np.concatenate(parts)


def _all_there(what: str, name: str, column: pa.Array) -> None:
    if column.null_count:
        raise DataError(f"--{what}: column {name!r} has {column.null_count:,} missing values; every row needs one")
