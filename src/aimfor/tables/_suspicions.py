"""What a careful colleague would notice: columns that give the label away, or that lie after the event."""

from __future__ import annotations

from typing import Any

import numpy as np

from aimfor._base.ranks import RowShare
from aimfor.tables._columns import is_date, moments
from aimfor.tables._features import Categories, ColumnFeatures, Dates, Numbers, Words
from aimfor.tables._labels import Labels
from aimfor.tables._preparation import Preparation
from aimfor.tables._reading import one_line
from aimfor.tables._table import Remark, Table

MOST_ROWS = 20_000  # training rows in which a column is compared with the label
FEWEST_OF_A_CLASS = 10
GIVES_AWAY = 0.99  # area under the ROC curve of a column alone, from which on it is suspicious
SEPARATES = 0.9  # F1 of a column alone at its best threshold, from which on it tells the label nearly perfectly
BINS = 32
MOST_LABELS = 20  # labels that columns are compared with
AFTER = 0.95  # share of the rows in which a date lies after the time of the row


# Columns that give the label away


def suspicious_columns(
    preparation: Preparation, features: Any, labels: np.ndarray, read: Labels, share: RowShare
) -> list[Remark]:
    """Columns that alone tell the label nearly perfectly, on rows that their rule was not made from."""
    count = min(MOST_ROWS, share.total)
    step = max(1, share.total // count)
    rows = share.local(np.arange(0, share.total, step)[:count])
    sample = share.select(rows)
    values, labels = sample.collect(np.asarray(features[rows])), sample.collect(labels[rows])
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
    """The area under the ROC curve of the shares of positives, counted on every other row, on the rows between.

    It is 0 where no threshold on these shares finds most positives with few false alarms: where positives are rare, the
    area alone is near 1 for any column that sets most negatives apart.
    """
    half = np.arange(len(keys)) % 2 == 0
    size = int(keys.max()) + 1
    rows = np.bincount(keys[half], minlength=size)
    positives = np.bincount(keys[half], weights=target[half], minlength=size)
    share = (positives + target.mean()) / (rows + 1)
    scores, other = share[keys[~half]], target[~half]
    if min(other.sum(), (~other).sum()) < FEWEST_OF_A_CLASS or _best_f1(scores, other) < SEPARATES:
        return 0.0
    ranks = _ranks(scores)
    num = other.sum()
    return float((ranks[other].sum() - num * (num + 1) / 2) / (num * (len(other) - num)))


def _best_f1(scores: np.ndarray, target: np.ndarray) -> float:
    _, places, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    found = np.cumsum(np.bincount(places, weights=target))
    return float((2 * found / (np.cumsum(counts) + target.sum())).max())


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
    both, after = ({name: source.ranks.sum(count) for name, count in counts.items()} for counts in (both, after))
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
