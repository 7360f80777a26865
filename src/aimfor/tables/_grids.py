"""Some values of a column, each with the features that code it, to ask a model about."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aimfor.tables._features import Categories, ColumnFeatures, Dates, Numbers

# Values of a column that are asked about, and the quantiles that the outermost numbers are.
MOST_VALUES = 11
OUTERMOST = 0.02
SECONDS_OF_A_DAY = 86400


class Grid(NamedTuple):
    """Values of a column.

    Attributes:
        values: numbers, texts of categories, or dates; in order, the most frequent categories first.
        features: `[values, features of the column]`.
        missing: the features of a missing value; None where training rows lacked none.
    """

    values: list[Any]
    features: np.ndarray
    missing: np.ndarray | None


def grid_of(part: ColumnFeatures, features: np.ndarray) -> Grid | None:
    """Values of a column as some rows have them; None for texts, which have no order.

    Args:
        part: how the column becomes features.
        features: `[n, features of the column]` of the rows.
    """
    if isinstance(part, Categories):
        count = min(MOST_VALUES, len(part.categories))
        blocks = np.eye(features.shape[1], dtype=features.dtype)
        missing = blocks[len(part.categories)] if part.missing else None
        return Grid(list(part.categories[:count]), blocks[:count], missing)
    if not isinstance(part, (Numbers, Dates)):
        return None
    present = features[features[:, -1] == 0] if part.missing else features
    # The last number of a date counts the days, which all its other numbers follow from.
    place = 0 if isinstance(part, Numbers) else int(np.count_nonzero(part.scales)) - 1
    rows = _spread(present[:, place])
    values = [_value(part, float(present[row, place])) for row in rows]
    return Grid(values, present[rows], _missing(part, features))


def _spread(numbers: np.ndarray) -> np.ndarray:
    """Rows with numbers spread over their range: all different ones where they are few, else some quantiles."""
    different, rows = np.unique(numbers, return_index=True)
    if len(different) <= MOST_VALUES:
        return rows
    order = np.argsort(numbers, kind="stable")
    places = np.linspace(OUTERMOST, 1 - OUTERMOST, MOST_VALUES) * (len(numbers) - 1)
    chosen = order[places.round().astype(int)]
    _, first = np.unique(numbers[chosen], return_index=True)
    return chosen[first]


def _value(part: Numbers | Dates, number: float) -> Any:
    if isinstance(part, Numbers):
        value = number * part.scale + part.mean if part.kind == "numeric" else number
        return float(f"{value:.6g}")
    seconds = part.first + (number * part.scales[-1] + part.means[-1]) * SECONDS_OF_A_DAY
    return str(np.datetime64(round(seconds), "s").astype("datetime64[D]"))


def _missing(part: Numbers | Dates, features: np.ndarray) -> np.ndarray | None:
    if not part.missing:
        return None
    found = np.zeros(features.shape[1], features.dtype)
    found[-1] = 1
    if isinstance(part, Numbers) and part.kind == "boolean":
        found[0] = part.mean
    return found
