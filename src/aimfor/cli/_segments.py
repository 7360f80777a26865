"""Rates for each value of a column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from aimfor.operating_points import OperatingPoint
from aimfor.report import rates_at
from aimfor.tables import one_line, texts

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

MOST_SEGMENTS = 50  # the largest; the others are one


def segments_of(
    column: pa.Array,
    *,
    labels: np.ndarray,
    scores: np.ndarray,
    weights: np.ndarray | None,
    point: OperatingPoint,
    level: float,
) -> list[dict[str, Any]]:
    """Counts and rates at the threshold, with their intervals, for each value of a column; the largest first.

    Args:
        column: the value of each row.
        labels: 0 or 1 of the rows.
        scores: of the rows.
        weights: of the rows, or None.
        point: whose threshold decides.
        level: of the intervals.
    """
    encoded = pc.fill_null(texts("segment", column), "(missing)").dictionary_encode()
    codes, names = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()
    order = np.argsort(-np.bincount(codes, minlength=len(names)), kind="stable")
    groups = [(one_line(names[code], 60), codes == code) for code in order[:MOST_SEGMENTS]]
    if len(names) > MOST_SEGMENTS:
        groups.append(("(all others)", np.isin(codes, order[MOST_SEGMENTS:])))
    return [
        {
            "segment": name,
            "rows": int(rows.sum()),
            "positives": int(labels[rows].sum()),
            **rates_at(point.threshold, labels[rows], scores[rows], None if weights is None else weights[rows], level),
        }
        for name, rows in groups
    ]
