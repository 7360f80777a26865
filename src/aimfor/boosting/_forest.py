"""A forest of decision trees as plain arrays, checked, stored and scored without the library that trained it.

All trees lie one after the other in one list of nodes. The two children of a split lie side by side behind their
parent, so one number names both. A row starts at the first node of a tree. At a split it goes left where its value is
at most the threshold, or where its category is in the set; at a leaf it gets the value of the leaf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aimfor._base.errors import ModelFileError
from aimfor.boosting._walk import CATEGORICAL, LEAF, MISSING_LEFT, ZERO_IS_MISSING, Walk, feature_matrix, walk_scores

# What is larger is refused: the arrays are indexed by 32 bits, and the walker keeps a feature in 24.
MOST_NODES, MOST_FEATURES = 2**28, 2**24
# Sums of values of this size stay finite for any number of trees.
LARGEST_VALUE = 1e100
DTYPES = {
    "tree_starts": np.int64,
    "feature": np.int32,
    "threshold": np.float64,
    "child": np.int32,
    "decision": np.uint8,
    "value": np.float64,
    "set_starts": np.int64,
    "set_bytes": np.uint8,
    "gain": np.float64,
}


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees whose values add up to a score.

    Attributes:
        tree_starts: `[trees + 1]`, first node of each tree, and at the end the number of nodes.
        feature: `[nodes]`, which feature a split reads; -1 at a leaf.
        threshold: `[nodes]`, of a split by number: at most this goes left.
        child: `[nodes]`, left child of a split, the right one is the node after it; -1 at a leaf.
        decision: `[nodes]`, sum of 1 where a missing value goes left, 2 where 0 counts as missing, 4 where the feature
            is categorical.
        value: `[nodes]`, of a leaf.
        set_starts: `[nodes + 1]`, where the categories of a node start in `set_bytes`.
        set_bytes: bits of the categories that go left, eight in a byte, the lowest category in the lowest bit.
        gain: `[features]`, how much the splits by each feature improved the objective in training.

    Missing values are NaN. Categories are whole numbers; a row without one goes right, and so does a category that no
    training row had. Numbers within 1e-35 of 0 count as 0, as in LightGBM.
    """

    tree_starts: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    decision: np.ndarray
    value: np.ndarray
    set_starts: np.ndarray
    set_bytes: np.ndarray
    gain: np.ndarray

    @property
    def num_trees(self) -> int:
        """Number of trees."""
        return len(self.tree_starts) - 1

    @property
    def num_features(self) -> int:
        """Number of features that a row must have."""
        return len(self.gain)

    def scores(self, features: Any) -> np.ndarray:
        """Add up the trees for each row.

        Args:
            features: `[n, num_features]`, floats, NaN where missing; or SciPy's sparse rows, whose absent entries
                are 0.

        Returns:
            Raw scores, float64 `[n]`.
        """
        return walk_scores(self._walk, feature_matrix(features, self.num_features))

    @cached_property
    def _walk(self) -> Walk:
        return Walk.of(self)

    def to_tensors(self) -> dict[str, Tensor]:
        """The arrays by name, for a safetensors file."""
        return {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in DTYPES}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Forest:
        """The forest that `to_tensors` described; nothing in it is taken on trust.

        Raises:
            ModelFileError: where these are not the arrays of a forest, in one sentence.
        """
        _rule(set(tensors) == set(DTYPES), "tensors", f"must be {', '.join(DTYPES)}", ", ".join(sorted(tensors)))
        arrays = {}
        for name, dtype in DTYPES.items():
            array = tensors[name].numpy()
            _rule(array.ndim == 1, name, "must have one dimension", array.ndim)
            _rule(array.dtype == dtype, name, f"must be {np.dtype(dtype)}", array.dtype)
            arrays[name] = array
        forest = cls(**arrays)
        forest.check()
        return forest

    def check(self) -> None:
        """Refuse arrays that are no forest.

        Every node but the first of a tree must be the child of exactly one earlier node of its tree. So there is no
        cycle, and every walk ends.

        Raises:
            ModelFileError: in one sentence.
        """
        num_nodes = len(self.feature)
        _rule(0 < num_nodes <= MOST_NODES, "nodes", f"must be between 1 and {MOST_NODES}", num_nodes)
        _rule(0 < self.num_features <= MOST_FEATURES, "features", f"must be 1 to {MOST_FEATURES}", self.num_features)
        sizes = dict.fromkeys(("threshold", "child", "decision", "value"), num_nodes) | {"set_starts": num_nodes + 1}
        for name, size in sizes.items():
            found = len(getattr(self, name))
            _rule(found == size, name, f"must have {size} entries for {num_nodes} nodes", found)
        _check_starts("tree_starts", self.tree_starts, num_nodes, least=1)
        _check_starts("set_starts", self.set_starts, len(self.set_bytes), least=0)
        self._check_splits()
        self._check_numbers()

    def _check_splits(self) -> None:
        num_nodes = len(self.feature)
        inside = (self.feature >= LEAF) & (self.feature < self.num_features)
        _every("feature", self.feature, inside, f"must be between -1 and {self.num_features - 1}")
        leaf = self.feature == LEAF
        _every("child", self.child[leaf], self.child[leaf] == LEAF, "must be -1 at a leaf")
        splits = np.flatnonzero(~leaf)
        ends = np.repeat(self.tree_starts[1:], np.diff(self.tree_starts))
        children = self.child[splits].astype(np.int64)
        behind = (children > splits) & (children + 1 < ends[splits])
        _every("child", children, behind, "must be a later node of the same tree")
        apart = np.diff(np.sort(children)) >= 2
        _rule(bool(apart.all()), "child", "must name every node at most once", "one that is named twice")
        reached, others = 2 * len(splits), num_nodes - self.num_trees
        _rule(reached == others, "child", f"must reach the {others} nodes that start no tree", reached)

    def _check_numbers(self) -> None:
        leaf, sizes = self.feature == LEAF, np.diff(self.set_starts)
        categorical = (self.decision & CATEGORICAL) != 0
        allowed = np.where(leaf, 0, np.where(categorical, CATEGORICAL, MISSING_LEFT | ZERO_IS_MISSING))
        _every("decision", self.decision, (self.decision & ~allowed) == 0, "must fit its node")
        _every("set_starts", sizes, categorical | (sizes == 0), "must give categories to categorical splits only")
        # Infinity is a threshold: LightGBM parts missing values from all others with it.
        _every("threshold", self.threshold, ~np.isnan(self.threshold), "must be a number")
        # Written so that NaN, which compares false with everything, is refused.
        _every("value", self.value, np.abs(self.value) <= LARGEST_VALUE, f"must be at most {LARGEST_VALUE:g} in size")
        _every("gain", self.gain, (self.gain >= 0) & np.isfinite(self.gain), "must be finite and at least 0")


def _check_starts(name: str, starts: np.ndarray, end: int, *, least: int) -> None:
    _rule(len(starts) >= 2 and starts[0] == 0 and starts[-1] == end, name, f"must run from 0 to {end}", _ends(starts))
    # Compared, not subtracted: differences of large numbers wrap around.
    rising = starts[1:] > starts[:-1] if least else starts[1:] >= starts[:-1]
    _every(name, starts[1:], rising, "must rise")


def _ends(starts: np.ndarray) -> str:
    return f"{starts[0]} to {starts[-1]}" if len(starts) else "no entries"


def _every(name: str, values: np.ndarray, valid: np.ndarray, must: str) -> None:
    if not valid.all():
        _rule(False, name, f"{must} in every entry", values[~valid][0])


def _rule(holds: bool, name: str, must: str, value: object) -> None:
    if not holds:
        raise ModelFileError(f"forest: {name} {must}, got {value}")


assert [field.name for field in fields(Forest)] == list(DTYPES)
