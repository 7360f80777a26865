"""The table of the demo, which needs no download: is this digit an 8?"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import csv
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

AIM = "recall@precision>=0.95"


def write_tables(folder: Path, seed: int) -> tuple[Path, Path]:
    """Write scikit-learn's digits as two CSV files.

    Args:
        folder: where they go.
        seed: of the rows that the second file gets.

    Returns:
        The rows to fit on, and a third of all that the fit never sees.
    """
    pixels, digits = load_digits(return_X_y=True)
    columns = {f"pixel {row} {column}": pixels[:, 8 * row + column] for row in range(8) for column in range(8)}
    table = pa.table({**columns, "is_8": digits == 8})
    paths = folder / "digits.csv", folder / "digits_unseen.csv"
    for path, rows in zip(paths, train_test_split(range(len(digits)), test_size=1 / 3, random_state=seed), strict=True):
        csv.write_csv(table.take(rows), path)
    return paths
