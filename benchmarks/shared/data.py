"""Step one of every benchmark: real data from a folder, or a clear line on what is missing.

The folder comes from `--data`, else the environment variable `AIMFOR_DATA`, else it is `../shared/data`.
How to get each set yourself:

- mammography/mammography.csv.gz: OpenML data set 310, written as CSV without header, label last ('-1' or '1').
- adbench/*.npz: https://github.com/Minqi824/ADBench, folder adbench/datasets/Classical (arrays X and y).
- cifar10/: https://www.cs.toronto.edu/~kriz/cifar.html; a module `cifar10_packed.py` with a `load()` lies beside the
  images and returns (train images, train labels, test images, test labels), uint8, images [n, 3, 32, 32].
"""

import importlib.util
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

DEFAULT_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"
ADBENCH = {"annthyroid": "2_annthyroid", "campaign": "5_campaign", "PageBlocks": "27_PageBlocks"}


class Table(NamedTuple):
    """Rows of numbers with one binary label."""

    X: np.ndarray
    y: np.ndarray


class Images(NamedTuple):
    """CIFAR-10: uint8 images [n, 3, 32, 32] and class indices [n]."""

    train: np.ndarray
    train_classes: np.ndarray
    test: np.ndarray
    test_classes: np.ndarray


def data_folder(argument: str | None = None) -> Path:
    """The folder of the data sets: the argument, else `AIMFOR_DATA`, else the default."""
    return Path(argument or os.environ.get("AIMFOR_DATA") or DEFAULT_FOLDER)


def load_table(name: str, folder: Path) -> Table | None:
    """Mammography or a set of ADBench; None, after a printed line, when its file is absent."""
    if name == "mammography":
        path = folder / "mammography" / "mammography.csv.gz"
    else:
        path = folder / "adbench" / f"{ADBENCH[name]}.npz"
    if not _present(path, name):
        return None
    if name == "mammography":
        cells = np.loadtxt(path, delimiter=",", dtype=str)
        return Table(cells[:, :-1].astype(np.float64), (cells[:, -1] == "'1'").astype(np.int64))
    with np.load(path) as arrays:
        return Table(arrays["X"].astype(np.float64), arrays["y"].astype(np.int64))


def load_cifar10(folder: Path) -> Images | None:
    """CIFAR-10 through the loader that lies beside the images; None, after a printed line, when it is absent."""
    path = folder / "cifar10" / "cifar10_packed.py"
    if not _present(path, "cifar10"):
        return None
    spec = importlib.util.spec_from_file_location("cifar10_packed", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Images(*module.load())


def _present(path: Path, name: str) -> bool:
    if not path.is_file():
        print(
            f"skipped {name}: {path.name} is not in {path.parent} "
            "(set --data or AIMFOR_DATA; see benchmarks/shared/data.py)"
        )
        return False
    return True
