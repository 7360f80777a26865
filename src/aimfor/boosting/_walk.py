"""Walk rows through the trees of a forest: in C++ where the library is built, in numpy elsewhere, same sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aimfor.boosting import _library

if TYPE_CHECKING:
    from aimfor.boosting._forest import Forest

LEAF = -1
MISSING_LEFT, ZERO_IS_MISSING, CATEGORICAL = 1, 2, 4
# LightGBM's kZeroThreshold, a float.
TINY = float(np.float32(1e-35))
NODE = np.dtype([("threshold", np.float64), ("feature_and_decision", np.uint32), ("child", np.int32)])
ROWS_AT_ONCE = 4096


class Walk(NamedTuple):
    """A forest as the walkers read it.

    A leaf is a split that leads every row to itself, so that all rows of a group can take the same number of steps.
    """

    nodes: np.ndarray
    value: np.ndarray
    tree_starts: np.ndarray
    depths: np.ndarray
    by_number: np.ndarray
    set_starts: np.ndarray
    set_bytes: np.ndarray

    @classmethod
    def of(cls, forest: Forest) -> Walk:
        """Prepare a checked forest."""
        num_nodes = len(forest.feature)
        leaf = forest.feature == LEAF
        nodes = np.zeros(num_nodes, NODE)
        nodes["threshold"] = np.where(leaf, np.inf, forest.threshold)
        feature = np.where(leaf, 0, forest.feature).astype(np.uint32)
        decision = np.where(leaf, MISSING_LEFT, forest.decision).astype(np.uint32)
        nodes["feature_and_decision"] = feature << np.uint32(8) | decision
        nodes["child"] = np.where(leaf, np.arange(num_nodes), forest.child)
        special = np.append(0, np.cumsum((forest.decision & (ZERO_IS_MISSING | CATEGORICAL)) != 0))
        starts = forest.tree_starts
        by_number = (special[starts[1:]] == special[starts[:-1]]).astype(np.uint8)
        set_bytes = np.append(forest.set_bytes, np.uint8(0))  # so that there is a byte to read where no set has any
        return cls(nodes, forest.value, starts, _depths(forest), by_number, forest.set_starts, set_bytes)


def walk_scores(walk: Walk, features: Any) -> np.ndarray:
    """Sums of the trees' values, float64 `[n]`; see `Forest.scores`."""
    if hasattr(features, "tocsr"):
        blocks = (features[start : start + ROWS_AT_ONCE] for start in range(0, features.shape[0], ROWS_AT_ONCE))
        return np.concatenate([np.zeros(0), *(walk_scores(walk, block.toarray()) for block in blocks)])
    if _library.problem() is None:
        return _library.walk_scores(walk, features)
    return numpy_scores(walk, features)


def feature_matrix(features: Any, num_features: int) -> Any:
    """Check the features of rows; floats stay as wide as they are, and SciPy's sparse rows become CSR."""
    features = features.tocsr() if hasattr(features, "tocsr") else np.asarray(features)
    if features.ndim != 2 or features.shape[1] != num_features:
        raise ValueError(f"features must have shape [n, {num_features}], got {list(features.shape)}")
    if features.dtype.kind not in "biuf":
        raise TypeError(f"features must hold real numbers, got dtype {features.dtype}")
    return features if features.dtype in (np.float32, np.float64) else features.astype(np.float64)


def numpy_scores(walk: Walk, features: np.ndarray) -> np.ndarray:
    """The same in numpy, a block of rows and all trees at a time."""
    scores = np.zeros(len(features))
    for start in range(0, len(features), ROWS_AT_ONCE):
        rows = features[start : start + ROWS_AT_ONCE].astype(np.float64)
        rows[np.abs(rows) <= TINY] = 0.0
        block = scores[start : start + len(rows)]
        for tree, depth in enumerate(walk.depths):
            place = np.full(len(rows), walk.tree_starts[tree])
            for _ in range(depth):
                place = _step(walk, place, rows)
            block += walk.value[place]
    return scores


def _step(walk: Walk, place: np.ndarray, rows: np.ndarray) -> np.ndarray:
    nodes = walk.nodes[place]
    decision = nodes["feature_and_decision"] & np.uint32(0xFF)
    numbers = rows[np.arange(len(rows)), nodes["feature_and_decision"] >> np.uint32(8)]
    missing = np.isnan(numbers) | ((decision & ZERO_IS_MISSING != 0) & (numbers == 0))
    left = np.where(missing, decision & MISSING_LEFT != 0, numbers <= nodes["threshold"])
    categorical = np.flatnonzero(decision & CATEGORICAL)
    if len(categorical):
        left[categorical] = _in_set(walk, place[categorical], numbers[categorical])
    return nodes["child"] + ~left


def _in_set(walk: Walk, place: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    # Rounded towards 0, as LightGBM does; what is no category, NaN included, is in no set.
    starts, ends = walk.set_starts[place], walk.set_starts[place + 1]
    within = (numbers > -1) & (numbers < 8.0 * (ends - starts))
    category = np.where(within, numbers, 0).astype(np.int64)
    byte = walk.set_bytes[np.where(within, starts + (category >> 3), 0)]
    return within & ((byte >> (category & 7).astype(np.uint8)) & 1 != 0)


def _depths(forest: Forest) -> np.ndarray:
    """The most steps from the first node of each tree to a leaf, as children lie behind their parents."""
    level = np.zeros(len(forest.feature), np.int32)
    places, depth = forest.tree_starts[:-1], 0
    while len(places):
        level[places] = depth
        splits = places[forest.feature[places] != LEAF]
        places, depth = (forest.child[splits][:, None] + np.arange(2)).ravel(), depth + 1
    return np.maximum.reduceat(level, forest.tree_starts[:-1])
