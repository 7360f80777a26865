"""Files of numbers become one matrix of features with its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from aimfor._base.errors import DataError
from aimfor.tables._formats import Format
from aimfor.tables._matrix_files import DAMAGED
from aimfor.tables._reading import fingerprint, reading

MOST_FEATURES = 10_000_000  # a model has a weight for each, so a slip in one index must not ask for all memory


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

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.paths[0].name

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over name, size and contents of each file."""
        return fingerprint(self.paths)


def open_matrix(files: Sequence[Path], kind: Format) -> Matrix:
    """Read files that hold matrices into one.

    Raises:
        DataError: where a file is damaged, has no rows, holds numbers that are not finite, or is unlike the others.
    """
    parts = []
    for path in files:
        assert kind.matrix is not None
        with reading(path, kind.name):
            try:
                parts.append(kind.matrix(path))
            except DAMAGED as error:
                raise ValueError(str(error)) from None
            except (MemoryError, OverflowError, TypeError):
                raise ValueError("an array has an impossible size or type") from None
        _check(path, *parts[-1])
    features = _stacked([features for features, _ in parts], files)
    return Matrix(tuple(files), features, *_joined([labels for _, labels in parts], files))


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
