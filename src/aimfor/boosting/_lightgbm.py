"""Forests from LightGBM: the text of a booster, read as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aimfor.boosting._forest import DTYPES, LEAF, Forest
from aimfor.boosting._walk import CATEGORICAL, MISSING_LEFT, ZERO_IS_MISSING

if TYPE_CHECKING:
    import lightgbm

# Bits of LightGBM's decision_type: categorical, default left, and from the third on the kind of missing values.
_IS_CATEGORICAL, _DEFAULT_LEFT = 1, 2
_ZERO, _NAN = 1, 2


def from_lightgbm(booster: lightgbm.Booster, *, num_iteration: int | None = None) -> Forest:
    """Copy the trees of a LightGBM booster; the raw scores are those of `booster.predict(..., raw_score=True)`.

    Where the booster was trained on a pandas table, its categories are the codes of the columns, which LightGBM's own
    `predict` looks up; a forest gets the codes.

    Args:
        booster: trained, with one score per row and without linear trees.
        num_iteration: how many rounds to take; None means up to the best round, or all where none is known.

    Raises:
        ValueError: where the booster has several scores per row, linear trees or no trees.
    """
    header, *trees = booster.model_to_string(num_iteration=num_iteration).split("\nTree=")
    facts = _entries(header)
    scores_per_row = int(facts["num_tree_per_iteration"])
    if scores_per_row != 1:
        raise ValueError(f"booster must have one score per row, got {scores_per_row}")
    if not trees:
        raise ValueError("booster must have at least one tree, got none")
    num_features = int(facts["max_feature_idx"]) + 1
    parts = [_tree(_entries(tree.split("\n\n")[0]), num_features) for tree in trees]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    sizes = np.array([len(part["feature"]) for part in parts])
    starts = np.append(0, np.cumsum(sizes))
    arrays["child"] += np.where(arrays["feature"] == LEAF, 0, np.repeat(starts[:-1], sizes))
    set_starts = np.append(0, np.cumsum(arrays.pop("set_sizes")))
    gain = np.sum([part["gain"] for part in parts], axis=0)
    arrays |= {"tree_starts": starts, "set_starts": set_starts, "gain": gain}
    forest = Forest(**{name: np.ascontiguousarray(arrays[name], dtype) for name, dtype in DTYPES.items()})
    forest.check()
    return forest


def _entries(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _tree(entries: dict[str, str], num_features: int) -> dict[str, np.ndarray]:
    """The nodes of one tree, numbered from 0; `set_sizes` has the number of set bytes of each node."""
    if entries.get("is_linear", "0") != "0":
        raise ValueError("booster must have no linear trees: train it with linear_tree=False")
    leaf_value = _numbers(entries, "leaf_value", np.float64)
    split_feature = _numbers(entries, "split_feature", np.int32)
    splits = np.arange(len(split_feature))
    # The children of LightGBM's split i are put at 2i + 1 and 2i + 2. A child that is a split comes later in
    # LightGBM's order than its parent, so it lies behind its parent here too.
    sides = [_numbers(entries, name, np.int64)[: len(splits)] for name in ("left_child", "right_child")]
    place_of_split, place_of_leaf = np.zeros(len(splits), np.int64), np.zeros(len(leaf_value), np.int64)
    for offset, side in zip((1, 2), sides, strict=True):
        is_split = side >= 0
        place_of_split[side[is_split]] = 2 * splits[is_split] + offset
        place_of_leaf[~side[~is_split]] = 2 * splits[~is_split] + offset
    num_nodes = 2 * len(splits) + 1
    nodes = {
        "feature": np.full(num_nodes, LEAF, np.int32),
        "threshold": np.zeros(num_nodes),
        "child": np.full(num_nodes, LEAF, np.int64),
        "decision": np.zeros(num_nodes, np.uint8),
        "value": np.zeros(num_nodes),
        "set_sizes": np.zeros(num_nodes, np.int64),
    }
    nodes["value"][place_of_leaf] = leaf_value
    nodes["feature"][place_of_split] = split_feature
    nodes["child"][place_of_split] = 2 * splits + 1
    threshold, kind = _numbers(entries, "threshold", np.float64), _numbers(entries, "decision_type", np.int64)
    categorical = (kind & _IS_CATEGORICAL) != 0
    nodes["threshold"][place_of_split] = np.where(categorical, 0.0, threshold)
    nodes["decision"][place_of_split] = np.where(categorical, CATEGORICAL, _missing(kind, threshold))
    set_bytes = _sets(entries, threshold[categorical].astype(np.int64), place_of_split[categorical], nodes["set_sizes"])
    gain = np.bincount(split_feature, np.maximum(_numbers(entries, "split_gain", np.float64), 0), num_features)
    return {**nodes, "set_bytes": set_bytes, "gain": gain}


def _missing(kind: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """Where a missing value goes; where training saw none, LightGBM takes it for 0."""
    missing_kind, default_left = (kind >> 2) & 3, (kind & _DEFAULT_LEFT) != 0
    known = (missing_kind == _ZERO) | (missing_kind == _NAN)
    left = np.where(known, default_left, threshold >= 0)
    return np.where(left, MISSING_LEFT, 0) | np.where(missing_kind == _ZERO, ZERO_IS_MISSING, 0)


def _sets(entries: dict[str, str], set_of_split: np.ndarray, places: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The sets of the categorical splits in the order of their nodes; their sizes are written to `sizes`."""
    if not len(places):
        return np.zeros(0, np.uint8)
    words = _numbers(entries, "cat_threshold", np.uint32).astype("<u4")
    bounds = _numbers(entries, "cat_boundaries", np.int64)
    order = np.argsort(places)
    sets = [words[bounds[index] : bounds[index + 1]].view(np.uint8) for index in set_of_split[order]]
    sizes[places[order]] = [len(part) for part in sets]
    return np.concatenate(sets)


def _numbers(entries: dict[str, str], name: str, dtype: type) -> np.ndarray:
    return np.array(entries[name].split(), dtype=np.float64 if dtype is np.float64 else np.int64).astype(dtype)
