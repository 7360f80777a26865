"""Rows on disk, for features that do not fit into memory. Rows are read when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aimfor._base.files import create


class StoredRows:
    """Rows `[n, D]` of float32 in a file, one after the other. `rows[index]` is an array in memory.

    Rows are read, not mapped, because the pages of a map count as memory of the process. The file cache of the system
    keeps rows that are read often.

    Args:
        path: a raw file of float32 numbers.
        num_features: D.
    """

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, path: str | Path, num_features: int):
        self.path = Path(path)
        count, rest = divmod(self.path.stat().st_size, num_features * self.dtype.itemsize)
        if rest:
            raise ValueError(f"{self.path} must hold whole rows of {num_features} features, got {rest} bytes too many")
        self.shape = (count, num_features)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        numbers = range(len(self))[rows] if isinstance(rows, slice) else self._numbers(rows)
        found = np.empty((len(numbers), self.shape[1]), self.dtype)
        size = self.shape[1] * self.dtype.itemsize
        with self.path.open("rb", buffering=0) as file:
            if isinstance(numbers, range) and numbers.step == 1:
                file.seek(numbers.start * size)
                self._fill(file, found)
            else:
                for row, number in zip(found, numbers, strict=True):
                    file.seek(number * size)
                    self._fill(file, row)
        return found

    def _numbers(self, rows: NDArray[np.integer]) -> list[int]:
        rows = np.asarray(rows)
        rows = np.where(rows < 0, rows + len(self), rows)
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self)):
            raise IndexError(f"rows must be below {len(self)}, got {rows.max() if rows.min() >= 0 else rows.min()}")
        return rows.tolist()

    def _fill(self, file: Any, out: NDArray[np.float32]) -> None:
        left = out.reshape(-1).view(np.uint8).data
        while len(left):
            count = file.readinto(left)
            if not count:
                raise OSError(f"{self.path} became shorter while it was read")
            left = left[count:]


class RowWriter:
    """Context manager that writes rows to the file of `StoredRows`. An error inside it removes the file.

    Args:
        path: the file; an existing one is replaced.
        num_features: D.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with RowWriter(Path(folder) / "rows", 2) as writer:
        ...         writer.append(np.ones((3, 2), dtype=np.float32))
        ...     StoredRows(writer.path, 2)[np.array([0, 2])].shape
        (2, 2)
    """

    def __init__(self, path: str | Path, num_features: int):
        self.path, self.num_features = Path(path), num_features

    def __enter__(self) -> RowWriter:
        self.path.unlink(missing_ok=True)
        self._file = create(self.path)  # follows no link
        return self

    def append(self, rows: NDArray[np.float32]) -> None:
        """Write some rows `[b, D]`."""
        if rows.ndim != 2 or rows.shape[1] != self.num_features:
            raise ValueError(f"rows must have shape [b, {self.num_features}], got {rows.shape}")
        with self._named():
            self._file.write(np.ascontiguousarray(rows, dtype=np.float32).data)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        try:
            with self._named():
                self._file.close()  # writes the last rows, for which the disk may be too full
        except OSError:
            self.path.unlink(missing_ok=True)
            raise
        if error is not None:
            self.path.unlink(missing_ok=True)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # the error of a full disk does not name the file
            raise OSError(error.errno, error.strerror, str(self.path)) from error
