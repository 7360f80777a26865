"""Rows that equal each other: whether chance explains them, and a split that keeps copies together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from aimfor._base.ranks import ALONE
from aimfor.tables._columns import moments, numbers, texts
from aimfor.tables._features import ColumnFeatures, Dates, Numbers
from aimfor.tables._preparation import Preparation
from aimfor.tables._split import PARTS
from aimfor.tables._table import BatchSource, Remark, Table

MOST_COMPARED = 2_000_000  # rows that are compared with each other
HASHES = 256  # of training rows, that a model keeps
# Training rows among others, beyond those by chance, from which on they are remarkable: their number, their share, and
# standard deviations of their number by chance.
FEWEST_FITTED, LEAST_FITTED, DEVIATIONS = 3, 0.1, 4.0
# What chance is judged by: sets of columns, rows for which twins are expected, and rows in which they are looked for.
MOST_SINGLE, HALVES, MOST_ASKED, MOST_SEARCHED = 64, 4, 2000, 200_000
DIFFERENT = 0.05  # share of the groups of equal rows with different labels, from which on they are no copies
BEYOND_CHANCE = 20.0  # times as many rows with a twin as chance gives; from here on twins are called copies


def row_hashes(source: Table, preparation: Preparation) -> np.ndarray:
    """A number for each row of all ranks, uint64, that is the same where all columns are that the model uses."""
    hashes = [hashed(batch, preparation) for batch in preparation.batches(source)]
    return source.share.collect(np.concatenate(hashes))


def hashed(batch: pa.RecordBatch, preparation: Preparation) -> np.ndarray:
    """The hashes of some rows."""
    found = np.full(batch.num_rows, 0x9E3779B97F4A7C15, dtype=np.uint64)
    for part in preparation.parts_:
        found = _mixed(found * np.uint64(0x100000001B3) ^ cells(part, batch.column(part.name)))
    return found


def cells(part: ColumnFeatures, array: pa.Array) -> np.ndarray:
    """A number for each cell, uint64, that is the same where the cells are."""
    if isinstance(part, (Numbers, Dates)):
        values = (
            numbers(part.name, array, part.decimal or ".")
            if isinstance(part, Numbers)
            else moments(part.name, array, part.form)
        )
        return _mixed((values + 0.0).astype(np.float64).view(np.uint64))  # 0.0 makes -0 a 0
    encoded = texts(part.name, array).dictionary_encode()
    codes = [_text_code(text) for text in encoded.dictionary.to_pylist()] + [0]
    places = encoded.indices.fill_null(len(codes) - 1).to_numpy(zero_copy_only=False)
    return np.array(codes, dtype=np.uint64)[places]


def _text_code(text: str) -> int:
    code = 0xCBF29CE484222325
    for byte in text.encode()[:200]:
        code = (code ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return code


def _mixed(codes: np.ndarray) -> np.ndarray:
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return codes ^ (codes >> np.uint64(27))


def with_twins_together(
    source: Table,
    preparation: Preparation,
    split: np.ndarray,
    hashes: np.ndarray,
    labels: np.ndarray,
    *,
    fixed: bool,
) -> tuple[np.ndarray, Remark | None]:
    """The split with rows that are copies of each other in one part, and what to say of them.

    Args:
        source: the rows.
        preparation: whose columns are compared.
        split: the part of each row of all ranks.
        hashes: of the rows of all ranks.
        labels: what `label_codes` gives for the rows of all ranks.
        fixed: the split follows groups or times, and stays as it is.
    """
    used = np.flatnonzero(split < len(PARTS))
    _, first, inverse, counts = np.unique(hashes[used], return_index=True, return_inverse=True, return_counts=True)
    home = split[used][first][inverse]
    apart = np.flatnonzero(home != split[used])
    share = float((counts[inverse] > 1).mean()) if len(used) else 0.0
    if not len(apart) or _labels_differ(inverse, labels[used]):
        return split, None
    if share < BEYOND_CHANCE * _on_first_rank(source, preparation, len(split)):
        return split, None
    moved = split.copy()
    if fixed:
        end = "and stay there, as the split follows --group or --time"
    else:
        moved[used[apart]] = home[apart]
        end = "and were put together, as a model could learn them by heart"
    return moved, Remark("duplicates", None, f"{len(apart):,} rows equal a row in another part of the split, {end}")


def _on_first_rank(source: Table, preparation: Preparation, num_rows: int) -> float:
    """The share by chance from the rows of all ranks, of which there are not many."""
    whole = replace(source, runs=None, num_rows=num_rows, ranks=ALONE) if source.ranks.size > 1 else source
    found = share_by_chance(whole, preparation, num_rows) if source.ranks.number == 0 else None
    return source.ranks.first(found)


def label_codes(labels: np.ndarray) -> np.ndarray:
    """A number for each row, uint64 `[n]`, that is the same where all its labels are."""
    columns = labels.reshape(len(labels), -1).astype(np.uint64)
    odd = 2 * np.random.default_rng(0).integers(2**62, size=columns.shape[1], dtype=np.uint64) + np.uint64(1)
    return _mixed(columns @ odd)


def _labels_differ(groups: np.ndarray, labels: np.ndarray) -> bool:
    """Whether rows that are equal often have different labels, as copies of a row have not.

    Args:
        groups: the number of the group of equal rows that each row is in.
        labels: codes of the rows.
    """
    _, first = np.unique(_mixed(labels + _mixed(groups.astype(np.uint64))), return_index=True)
    several = np.bincount(groups) > 1
    return bool((np.bincount(groups[first])[several] > 1).mean() > DIFFERENT)


def share_by_chance(source: BatchSource, preparation: Preparation, num_rows: int) -> float:
    """The share of the rows that have a twin by chance, estimated without any row that is equal in all columns.

    If some columns are cut off, the rows that are equal in them only, and those that are equal in all others only, tell
    how often both meet. This is done for single columns and for halves of them. Each cut takes its two sides as
    independent, so that the estimate is low for columns that belong together; the highest of all cuts counts. A single
    column cannot be cut, and all its twins count as chance.
    """
    parts = preparation.parts_
    if len(parts) == 1:
        return 1.0
    stride = -(-num_rows // MOST_SEARCHED)
    cuts = _cuts(len(parts))
    asked = np.zeros(-(-num_rows // stride), dtype=bool)
    asked[np.random.default_rng(0).permutation(len(asked))[:MOST_ASKED]] = True
    keys, searched = [], 0
    for found in _sums(source, preparation, cuts, stride):
        keys.append(found[:, asked[searched : searched + found.shape[1]]])
        searched += found.shape[1]
    sought = np.hstack(keys)
    counts = np.zeros(sought.shape)
    for found in _sums(source, preparation, cuts, stride):
        for own, wanted, here in zip(counts, sought, found, strict=True):
            own += _num_equal(wanted, here)
    whole, cut, rest = counts[0], counts[1 : len(cuts) + 1], counts[len(cuts) + 1 :]
    expected = ((cut - whole) * (rest - whole)).max(axis=0) * stride / searched
    # Rows of common values, such as all zeros, are equal in many columns at once, so that no cut has others.
    single = cut[: len(cuts) - HALVES] / searched
    expected = np.maximum(expected, np.exp(np.log(single).sum(axis=0)) * num_rows)
    return float(np.minimum(expected, 1.0).mean())


def _cuts(count: int) -> np.ndarray:
    """Which columns are cut off, bool `[cuts, count]`: single ones, or some of them, and random halves."""
    order = np.random.default_rng(0)
    single = np.sort(order.permutation(count)[:MOST_SINGLE])
    halves = [order.permutation(count) < count // 2 for _ in range(HALVES)]
    return np.array([*(np.arange(count) == column for column in single), *halves])


def _sums(source: BatchSource, preparation: Preparation, cuts: np.ndarray, stride: int) -> Iterator[np.ndarray]:
    """Hashes of some rows at a time, uint64 `[1 + 2 * cuts, b]`: of all columns, of those cut off, and of the others.

    They are sums over columns, so that a hash of some columns is that of all less that of the others.
    """
    start = 0
    for batch in preparation.batches(source):
        rows = np.arange(-start % stride, batch.num_rows, stride)
        start += batch.num_rows
        batch = batch.take(pa.array(rows)) if stride > 1 else batch
        whole = np.zeros(batch.num_rows, dtype=np.uint64)
        cut = np.zeros((len(cuts), batch.num_rows), dtype=np.uint64)
        for index, part in enumerate(preparation.parts_):
            code = _mixed(_mixed(cells(part, batch.column(part.name)) + np.uint64(index * 0x9E3779B97F4A7C15 % 2**64)))
            whole += code
            for row in np.flatnonzero(cuts[:, index]):
                cut[row] += code
        yield np.vstack([whole[None], cut, whole - cut])


def _num_equal(sought: np.ndarray, found: np.ndarray) -> np.ndarray:
    """How many entries of `found` equal each of the sought ones."""
    found = np.sort(found)
    return np.searchsorted(found, sought, side="right") - np.searchsorted(found, sought, side="left")


class FittedRows(NamedTuple):
    """What a model keeps of its training rows, to know them again.

    Attributes:
        hashes: the smallest ones of the rows that no held-out row equals, as hexadecimal digits.
        limit: all such hashes up to this one are kept.
        chance: the share of the held-out rows that equal a training row.
    """

    hashes: tuple[str, ...]
    limit: str
    chance: float

    def share_among(self, hashes: np.ndarray) -> float | None:
        """The share of some rows that are training rows; None where chance explains those that are."""
        near = np.unique(hashes)
        near = near[near <= int(self.limit, 16)]
        found = int(np.isin(near, _codes(self.hashes)).sum())
        by_chance = self.chance * len(near)
        needed = max(FEWEST_FITTED, LEAST_FITTED * len(near), DEVIATIONS * np.sqrt(by_chance))
        return found / len(near) if found - by_chance >= needed else None


def hash_sample(hashes: np.ndarray, split: np.ndarray) -> FittedRows | None:
    """What to keep of the training rows; None where many of them equal rows that were not trained on."""
    train, others = np.unique(hashes[split == 0]), np.unique(hashes[(split == 1) | (split == 2)])
    known = np.isin(train, others)
    if len(train) < 20 or known.mean() > 0.1:
        return None
    kept = train[~known]
    limit = kept[HASHES - 1] if len(kept) > HASHES else np.uint64(2**64 - 1)
    chance = float(known.sum() / len(others)) if len(others) else 0.0
    return FittedRows(tuple(f"{code:016x}" for code in kept[:HASHES].tolist()), f"{int(limit):016x}", chance)


def fitted_share(hashes: np.ndarray, sample: Sequence[str]) -> float:
    """The share of some training rows that are among other rows."""
    return float(np.isin(_codes(sample), hashes).mean())


def _codes(texts: Sequence[str]) -> np.ndarray:
    return np.array([int(text, 16) for text in texts], dtype=np.uint64)
