"""Read, rows on disk: more features than memory holds, taken as they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray


class StoredRows:
    """Rows `[n, D]` of float32 in a file, one after the other; `rows[index]` is an array in memory.

    Every access maps the file and lets go of it, so that what was read does not stay in the memory of the process; the
    system's cache of files keeps what is read often.

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
        if len(self) == 0:  # an empty file cannot be mapped
            return np.empty(self.shape, self.dtype)[rows]
        return np.array(np.memmap(self.path, self.dtype, "r", shape=self.shape)[rows])


class RowWriter:
    """Writes rows to the file of `StoredRows`, as a context; an error inside removes the file.

    Args:
        path: the file; replaced when it exists.
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
        self._file = self.path.open("wb")
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
                self._file.close()  # writes what is left, for which there may be no room
        except OSError:
            self.path.unlink()
            raise
        if error is not None:
            self.path.unlink()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # a full disk does not say of itself for which file
            raise OSError(error.errno, error.strerror, str(self.path)) from error
