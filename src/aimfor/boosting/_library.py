"""The walker in C++: the library of `csrc`, called through ctypes; the structs are those of its source."""

from __future__ import annotations

import ctypes
import hashlib
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_void_p
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from aimfor.boosting._walk import Walk

LIBRARY = Path(__file__).parent / "libforest.so"
SOURCES = Path(__file__).parent / "csrc"
ROWS_FOR_A_THREAD = 8192  # fewer are scored before a thread has started
ARRAYS = ("nodes", "value", "tree_starts", "depths", "by_number", "set_starts", "set_bytes")


class _Forest(Structure):
    _fields_ = (*((name, c_void_p) for name in ARRAYS), ("num_trees", c_int64), ("num_features", c_int64))


class _Rows(Structure):
    _fields_ = (
        ("first", c_void_p),
        *((name, c_int64) for name in ("num_rows", "row_stride", "column_stride")),
        ("is_double", c_int32),
    )


def problem() -> str | None:
    """Why the library cannot be used here; None where it can."""
    loaded = _loaded()
    return loaded if isinstance(loaded, str) else None


def walk_scores(walk: Walk, features: np.ndarray) -> np.ndarray:
    """The scores of `Forest.scores`, for features that were checked, by as many threads as torch uses."""
    # The library reads entries in their place, so strides must be whole entries.
    if any(stride % features.itemsize for stride in features.strides) or not features.flags.aligned:
        features = np.ascontiguousarray(features)
    scores = np.empty(len(features))
    threads = min(torch.get_num_threads(), len(features) // ROWS_FOR_A_THREAD)
    if threads < 2:
        _score_rows(walk, features, scores)
        return scores
    bounds = np.linspace(0, len(features), threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        parts = [slice(start, end) for start, end in pairwise(bounds)]
        for _ in pool.map(lambda part: _score_rows(walk, features[part], scores[part]), parts):
            pass
    return scores


def _score_rows(walk: Walk, features: np.ndarray, scores: np.ndarray) -> None:
    library = _loaded()
    if isinstance(library, str):
        raise OSError(library)
    row_stride, column_stride = (stride // features.itemsize for stride in features.strides)
    pointers = [getattr(walk, name).ctypes.data for name in ARRAYS]
    forest = _Forest(*pointers, len(walk.depths), features.shape[1])
    rows = _Rows(features.ctypes.data, len(features), row_stride, column_stride, features.dtype == np.float64)
    if library.aimfor_forest_scores(byref(forest), byref(rows), scores.ctypes.data):
        raise MemoryError(f"no memory for a block of rows of {features.shape[1]} features")


@lru_cache(maxsize=1)
def _loaded() -> ctypes.CDLL | str:
    """The library, or why it cannot be used."""
    if not LIBRARY.is_file():
        return "it was not built when the package was installed: no C++ compiler that could was found"
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return str(error)
    library.aimfor_forest_sources.restype = c_char_p
    if library.aimfor_forest_sources().decode() != _sources():
        return "it was built from other sources than those beside it: install the package again"
    library.aimfor_forest_scores.argtypes = (POINTER(_Forest), POINTER(_Rows), c_void_p)
    return library


def _sources() -> str:
    """What the sources are, as setup.py says it: a library of another layout would read where it must not."""
    digest = hashlib.sha256()
    for file in sorted(SOURCES.glob("*.[ch]*")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
