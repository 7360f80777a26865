"""SVMlight and NPZ files, whose rows are numbers already."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from aimfor.tables._reading import blocks_of, check_unpacked, is_gzip, open_bytes

# What zip, gzip and numpy raise over damaged files, besides ValueError and OSError.
DAMAGED = (
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    RuntimeError,  # a password is asked for
    KeyError,
    SyntaxError,
    tokenize.TokenError,
)


def read_svmlight(path: Path) -> tuple[Any, Any]:
    """Features as a CSR matrix; labels as an array, or as a list of tuples where rows have sets of labels."""
    from sklearn.datasets import load_svmlight_file

    if is_gzip(path):
        for _ in blocks_of(path):  # raises where it unpacks without end
            pass
    # Indices count as they are written. To find out whether they start at 0 or 1 from the file itself would put the
    # features of a file that happens to lack the first one under the wrong weights.
    options = {"dtype": np.float32, "zero_based": True}
    with open_bytes(path) as file:
        start: Any = file
        try:
            return load_svmlight_file(start, **options)
        except ValueError:
            file.seek(0)
            return load_svmlight_file(start, multilabel=True, **options)


def read_npz(path: Path) -> tuple[Any, Any]:
    """Features as an array or a CSR matrix; labels as an array, or None."""
    with path.open("rb") as opened:  # by ourselves, as numpy leaves a damaged file open
        if zipfile.is_zipfile(opened):
            with zipfile.ZipFile(opened) as archive:
                check_unpacked(path, path.stat().st_size, sum(entry.file_size for entry in archive.infolist()))
        opened.seek(0)
        file = np.load(opened, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array")
        arrays = {
            name: file[name] for name in ("X", "y", "data", "indices", "indptr", "shape", "format") if name in file
        }
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"its entry {name} is no array")
        return _npz_features(arrays, file.files), arrays.get("y")


def _npz_features(arrays: dict[str, np.ndarray], names: list[str]) -> Any:
    from scipy import sparse

    if "X" in arrays:
        return arrays["X"]
    parts = ("data", "indices", "indptr", "shape")
    if not all(part in arrays for part in parts):
        raise ValueError(f"it must have X, or {', '.join(parts)}, got {', '.join(names) or 'nothing'}")
    if "format" in arrays and arrays["format"].item() not in (b"csr", "csr"):
        raise ValueError(f"its format must be csr, got {arrays['format'].item()!r}")
    data, indices, indptr, shape = (arrays[part] for part in parts)
    matrix = sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
    matrix.check_format(full_check=True)
    return matrix
