"""Read: SVMlight and NPZ files, whose rows are numbers already, become a matrix of features with its labels."""

from __future__ import annotations

import gzip
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from aimfor._base.errors import DataError
from aimfor.tables._formats import fingerprint, reading

MOST_FEATURES = 10_000_000  # a model has a weight for each, so a slip in one index must not ask for all memory

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


@dataclass(frozen=True)
class Matrix:
    """Rows of numbers in memory.

    Attributes:
        paths: the files, in the order of their rows.
        features: float32 `[n, D]`, an array or a CSR matrix.
        labels: `[n]`, or `[n, L]` of 0/1; None where the files have none.
        label_names: texts of the labels where the files have sets of labels, else None.
    """

    paths: tuple[Path, ...]
    features: Any
    labels: np.ndarray | None
    label_names: tuple[str, ...] | None = None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over name, size and contents of each file."""
        return fingerprint(self.paths)


def open_matrix(files: Sequence[Path], kind: str) -> Matrix:
    """Read SVMlight or NPZ files into one matrix.

    Raises:
        DataError: where a file is damaged, has no rows, holds numbers that are not finite, or is unlike the others.
    """
    parts = []
    for path in files:
        with reading(path, kind):
            try:
                parts.append(_read_svmlight(path) if kind == "SVMlight" else _read_npz(path))
            except DAMAGED as error:
                raise ValueError(str(error)) from None
            except (MemoryError, OverflowError, TypeError):
                raise ValueError("an array has an impossible size or type") from None
        _check(path, *parts[-1])
    features = _stacked([features for features, _ in parts], files)
    return Matrix(tuple(files), features, *_joined([labels for _, labels in parts], files))


def _read_svmlight(path: Path) -> tuple[Any, Any]:
    # Indices count as they are written. To find out whether they start at 0 or 1 from the file itself would put the
    # features of a file that happens to lack the first one under the wrong weights.
    options = {"dtype": np.float32, "zero_based": True}
    with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
        start: Any = file
        try:
            return load_svmlight_file(start, **options)
        except ValueError:
            file.seek(0)
            return load_svmlight_file(start, multilabel=True, **options)


def _read_npz(path: Path) -> tuple[Any, Any]:
    with path.open("rb") as opened:  # by ourselves, as numpy leaves a damaged file open
        file = np.load(opened, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array")
        arrays = {
            name: file[name] for name in ("X", "y", "data", "indices", "indptr", "shape", "format") if name in file
        }
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"its entry {name} is no array")
        labels = arrays.get("y")
        if "X" in arrays:
            return arrays["X"], labels
        parts = ("data", "indices", "indptr", "shape")
        if not all(part in arrays for part in parts):
            raise ValueError(f"it must have X, or {', '.join(parts)}, got {', '.join(file.files) or 'nothing'}")
        if "format" in arrays and arrays["format"].item() not in (b"csr", "csr"):
            raise ValueError(f"its format must be csr, got {arrays['format'].item()!r}")
        data, indices, indptr, shape = (arrays[part] for part in parts)
        matrix = sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
        return matrix, labels


def _check(path: Path, features: Any, labels: Any) -> None:
    if features.ndim != 2 or features.dtype.kind not in "biuf":
        raise DataError(f"{path} must have numbers of shape [n, D], got {features.dtype} of shape {features.shape}")
    if features.shape[0] == 0 or features.shape[1] == 0:
        raise DataError(f"{path} must have at least one row and one feature, got shape {features.shape}")
    if features.shape[1] > MOST_FEATURES:
        raise DataError(f"{path} must have at most {MOST_FEATURES:,} features, got {features.shape[1]:,}")
    values = features.data if sparse.issparse(features) else features
    # As float32, so that numbers beyond it are found as well.
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.asarray(values).astype(np.float32, copy=False))
    if not finite.all():
        raise DataError(f"{path} must have finite float32 features, got {np.asarray(values)[~finite][0]}")
    if isinstance(labels, np.ndarray):
        if labels.ndim not in (1, 2) or len(labels) != features.shape[0]:
            raise DataError(
                f"{path} must have y of shape [n] or [n, L] for {features.shape[0]} rows, got {labels.shape}"
            )
        if labels.dtype.kind not in "biufU":
            raise DataError(f"{path} must have numbers or texts as y, got {labels.dtype}")


def _stacked(parts: list[Any], files: Sequence[Path]) -> Any:
    if any(sparse.issparse(part) for part in parts):
        width = max(part.shape[1] for part in parts)
        return sparse.vstack([widened(part, width) for part in parts], format="csr", dtype=np.float32)
    for part, path in zip(parts, files, strict=True):
        if part.shape[1] != parts[0].shape[1]:
            raise DataError(f"{path} must have {parts[0].shape[1]} features like {files[0].name}, got {part.shape[1]}")
    return np.concatenate([part.astype(np.float32, copy=False) for part in parts])


def widened(features: Any, width: int) -> sparse.csr_matrix:
    """Rows as CSR with `width` columns, of which the last ones may be empty; a copy in any case."""
    matrix: Any = sparse.csr_matrix(features, dtype=np.float32, copy=True)
    matrix.resize(matrix.shape[0], width)
    return matrix


def _joined(parts: list[Any], files: Sequence[Path]) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    if all(part is None for part in parts):
        return None, None
    if all(isinstance(part, np.ndarray) for part in parts) and len({part.shape[1:] for part in parts}) == 1:
        return np.concatenate(parts), None
    if not all(isinstance(part, list) for part in parts):
        raise DataError(f"{', '.join(map(str, files))} must have labels of one form, got several")
    rows = [labels for part in parts for labels in part]
    names = sorted({label for labels in rows for label in labels})
    values = np.zeros((len(rows), len(names)), dtype=np.uint8)
    for row, labels in enumerate(rows):
        values[row, np.searchsorted(names, labels)] = 1
    return values, tuple(f"{name:g}" for name in names)
