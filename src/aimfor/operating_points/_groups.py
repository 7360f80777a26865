"""Groups of dependent rows. One row of each group makes a sample of independent rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


def group_codes(groups: Any, num_rows: int) -> Codes:
    """Groups of any kind as whole numbers, one per row.

    Raises:
        ValueError: if the number of rows differs, or a row has no group.
    """
    values = np.asarray(groups)
    if values.ndim != 1 or values.size != num_rows:
        raise ValueError(f"groups must have one entry for each of the {num_rows} rows, got shape {values.shape}")
    missing = np.array([entry is None or entry != entry for entry in values.tolist()])
    if missing.any():
        raise ValueError(f"groups must name a group for every row, got none for row {int(np.flatnonzero(missing)[0])}")
    try:
        return np.unique(values, return_inverse=True)[1].reshape(-1)
    except TypeError:
        raise TypeError("groups must be values of one kind that can be sorted, got several kinds") from None


def one_of_each(codes: Codes) -> NDArray[np.int64]:
    """Indices of one random row of each group. They depend on the groups only, not on labels and scores."""
    order = np.random.default_rng(0).permutation(codes.size)
    return np.sort(order[np.unique(codes[order], return_index=True)[1]])
