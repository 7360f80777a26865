"""What a careful colleague would notice: columns that give the label away, equal rows in several parts of the split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from aimfor.tables._columns import is_date, moments, numbers, texts
from aimfor.tables._features import Categories, ColumnFeatures, Dates, Numbers, Words
from aimfor.tables._labels import Labels
from aimfor.tables._preparation import Preparation
from aimfor.tables._reading import one_line
from aimfor.tables._split import PARTS
from aimfor.tables._table import BatchSource, Remark, Table

MOST_COMPARED = 2_000_000  # rows that are compared with each other
MOST_ROWS = 20_000  # training rows in which a column is compared with the label
FEWEST_OF_A_CLASS = 10
GIVES_AWAY = 0.99  # area under the ROC curve of a column alone, from which on it is suspicious
BINS = 32
MOST_LABELS = 20  # labels that columns are compared with
BY_CHANCE = 1e-3  # twins that a row may be expected to have; with fewer, a twin is a copy
HASHES = 256  # of training rows, that a model keeps
AFTER = 0.95  # share of the rows in which a date lies after the time of the row


# Columns that give the label away


def suspicious_columns(preparation: Preparation, features: Any, labels: np.ndarray, read: Labels) -> list[Remark]:
    """Columns that alone tell the label nearly perfectly, on rows that their rule was not made from."""
    count = min(MOST_ROWS, len(labels))
    step = max(1, len(labels) // count)
    rows = np.arange(0, len(labels), step)[:count]
    values, labels = np.asarray(features[rows]), labels[rows]
    targets = _targets(labels, read)
    remarks, start = [], 0
    for part in preparation.parts_:
        width = len(part.feature_names())
        keys = _keys(part, values[:, start : start + width])
        start += width
        if keys is None:
            continue
        area, name = max(((_area(keys, target), name) for name, target in targets), default=(0.0, ""))
        if area >= GIVES_AWAY:
            remarks.append(_gives_away(part.name, name, area))
    return remarks


def _gives_away(column: str, label: str, area: float) -> Remark:
    shown, label = one_line(column, 60), one_line(label, 60)
    copy = "is a copy of the label" if area > 0.99995 else f"alone tells the label nearly perfectly (AUC {area:.4f})"
    advice = f"if it is known only after the event, leave it out with --drop {shown!r}"
    return Remark("leak", column, f"column {shown!r} {copy} {label!r}: {advice}")


def _targets(labels: np.ndarray, read: Labels) -> list[tuple[str, np.ndarray]]:
    if read.multiclass:
        columns = [labels == number for number in range(len(read.classes))]
    else:
        columns = list(labels.reshape(len(labels), -1).T == 1)
    pairs = list(zip(read.names, columns, strict=True))[:MOST_LABELS]
    return [(name, one) for name, one in pairs if min(one.sum(), (~one).sum()) >= 2 * FEWEST_OF_A_CLASS]


def _keys(part: ColumnFeatures, values: np.ndarray) -> np.ndarray | None:
    """A whole number for each row, equal where the column is (nearly) the same; None for texts."""
    if isinstance(part, Words):
        return None
    if isinstance(part, Categories):
        return np.where(values.any(axis=1), values.argmax(axis=1) + 1, 0)
    if isinstance(part, Dates):
        return _binned(values[:, -1 - part.missing])
    assert isinstance(part, Numbers)
    keys = _binned(values[:, 0])
    return np.where(values[:, 1] == 1, BINS + 1, keys) if part.missing else keys


def _binned(values: np.ndarray) -> np.ndarray:
    edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]))
    return np.searchsorted(edges, values, side="left") if len(np.unique(values[:5000])) > BINS else _coded(values)


def _coded(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1]


def _area(keys: np.ndarray, target: np.ndarray) -> float:
    """The area under the ROC curve of the shares of positives, counted on every other row, on the rows between."""
    half = np.arange(len(keys)) % 2 == 0
    size = int(keys.max()) + 1
    rows = np.bincount(keys[half], minlength=size)
    positives = np.bincount(keys[half], weights=target[half], minlength=size)
    share = (positives + target.mean()) / (rows + 1)
    scores, other = share[keys[~half]], target[~half]
    if min(other.sum(), (~other).sum()) < FEWEST_OF_A_CLASS:
        return 0.0
    ranks = _ranks(scores)
    num = other.sum()
    return float((ranks[other].sum() - num * (num + 1) / 2) / (num * (len(other) - num)))


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]


def later_than(source: Table, preparation: Preparation, time: str | None) -> list[Remark]:
    """Dates that lie after the time of their row: what they say was not known then."""
    if time is None or not is_date(source.schema.field(time).type):
        return []
    dates = [part for part in preparation.parts_ if isinstance(part, Dates)]
    after, both = dict.fromkeys((part.name for part in dates), 0), dict.fromkeys((part.name for part in dates), 0)
    for batch in source.batches([time, *after]) if dates else ():
        moment = moments(time, batch.column(time))
        for part in dates:
            other = moments(part.name, batch.column(part.name))
            both[part.name] += int((~np.isnan(other)).sum())
            after[part.name] += int((other > moment).sum())
    return [
        Remark(
            "after the event",
            name,
            f"column {name!r} lies after {time!r} in {after[name] / both[name]:.0%} of the "
            f"rows, so it may be known only after the event: leave it out with --drop {name!r} then",
        )
        for name in after
        if both[name] >= 20 and after[name] >= AFTER * both[name]
    ]


# Equal rows


def row_hashes(source: BatchSource, preparation: Preparation) -> np.ndarray:
    """A number for each row, uint64, that is the same where all columns are that the model uses."""
    return np.concatenate(
        list(hashed_batches(source.batches(preparation.inputs, texts=preparation.texts), preparation))
    )


def hashed_batches(batches: Iterator[pa.RecordBatch], preparation: Preparation) -> Iterator[np.ndarray]:
    """The hashes of the rows of each batch."""
    return (hashed(batch, preparation) for batch in batches)


def hashed(batch: pa.RecordBatch, preparation: Preparation) -> np.ndarray:
    """The hashes of some rows."""
    found = np.full(batch.num_rows, 0x9E3779B97F4A7C15, dtype=np.uint64)
    for part in preparation.parts_:
        found = _mixed(found * np.uint64(0x100000001B3) ^ _cells(part, batch.column(part.name)))
    return found


def _cells(part: ColumnFeatures, array: pa.Array) -> np.ndarray:
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
    source: BatchSource, preparation: Preparation, split: np.ndarray, hashes: np.ndarray, *, fixed: bool
) -> tuple[np.ndarray, Remark | None]:
    """The split with rows that are copies of each other in one part, and what to say of them.

    Args:
        source: the rows.
        preparation: whose columns are compared.
        split: the part of each row.
        hashes: of the rows.
        fixed: the split follows groups or times, and stays as it is.
    """
    used = np.flatnonzero(split < len(PARTS))
    _, first, inverse = np.unique(hashes[used], return_index=True, return_inverse=True)
    home = split[used][first][inverse]
    apart = np.flatnonzero(home != split[used])
    apart = apart[_are_copies(source, preparation, used[apart], len(split))] if len(apart) else apart
    if not len(apart):
        return split, None
    moved = split.copy()
    if fixed:
        end = "and stay there, as the split follows --group or --time"
    else:
        moved[used[apart]] = home[apart]
        end = "and were put together, as a model could learn them by heart"
    return moved, Remark("duplicates", None, f"{len(apart):,} rows equal a row in another part of the split, {end}")


def _are_copies(source: BatchSource, preparation: Preparation, rows: np.ndarray, total: int) -> np.ndarray:
    """Whether each of these rows, which have a twin, has more than chance gives: its values are too rare together."""
    twins = np.full(len(rows), np.log(total))  # logarithm of the twins that independent columns would give
    for part in preparation.parts_:
        batches = source.batches([part.name], texts=[part.name] if part.from_texts else [])
        codes = np.concatenate([_cells(part, batch.column(0)) for batch in batches])
        _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
        twins += np.log(counts[inverse[rows]] / total)
        if (twins < np.log(BY_CHANCE)).all():
            break
    return twins < np.log(BY_CHANCE)


def hash_sample(hashes: np.ndarray, split: np.ndarray) -> tuple[str, ...] | None:
    """Hashes of some training rows; None where rows that were not trained on have many of them too."""
    train, others = np.unique(hashes[split == 0]), hashes[(split == 1) | (split == 2)]
    sample = train[:: max(1, len(train) // HASHES)][:HASHES]
    if len(sample) < 20 or np.isin(sample, others).mean() > 0.1:
        return None
    return tuple(f"{code:016x}" for code in sample.tolist())


def fitted_share(hashes: np.ndarray, sample: tuple[str, ...]) -> float:
    """The share of the kept training rows that are among some rows."""
    return float(np.isin(np.array([int(code, 16) for code in sample], dtype=np.uint64), hashes).mean())
