"""Forests for other machines: nodes of an ONNX graph that walk the same trees in double."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from aimfor.boosting._average import ForestAverage
from aimfor.boosting._forest import Forest
from aimfor.boosting._walk import CATEGORICAL, LEAF, MISSING_LEFT, TINY, ZERO_IS_MISSING

# The first version of ai.onnx.ml whose tree ensembles sum in double and know sets.
ML_OPSET = 5
# ONNX's numbers of the kinds of splits.
_AT_MOST, _MEMBER = 0, 6


class Graph(Protocol):
    """A graph in the making: a call adds a node and gives the name of its output."""

    def __call__(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str: ...

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        """Add a constant and give its name."""
        ...


def add_forests(graph: Graph, average: ForestAverage, features: str) -> str:
    """Add the nodes that score rows with averaged forests.

    Args:
        graph: puts "TreeEnsemble" into the domain ai.onnx.ml, of opset `ML_OPSET` or later.
        average: the forests.
        features: name of the features, double `[n, D]`, NaN where missing.

    Returns:
        Name of the scores, double `[n, 1]`.
    """
    attributes, views = _ensemble(average)
    raw = graph("TreeEnsemble", _columns(graph, features, views), **attributes)
    centred = graph("Sub", raw, graph.constant(average.centres[None]))
    standard = graph("Div", centred, graph.constant(average.scales[None]))
    total = graph("ReduceSum", standard, graph.constant([1], np.int64), keepdims=1)
    return graph("Div", total, graph.constant(float(len(average.forests))))


class _Views(NamedTuple):
    """Which copies of the features the splits read, beside the plain one."""

    without_zeros: bool
    whole: bool


def _columns(graph: Graph, features: str, views: _Views) -> str:
    """The features, and copies in which 0 is missing or numbers are rounded towards 0, side by side."""
    size, zero = graph("Abs", features), graph.constant(0.0)
    plain = graph("Where", graph("LessOrEqual", size, graph.constant(TINY)), zero, features)
    blocks = [plain]
    if views.without_zeros:
        blocks.append(graph("Where", graph("Equal", plain, zero), graph.constant(np.nan), plain))
    if views.whole:
        blocks.append(graph("Mul", graph("Sign", features), graph("Floor", size)))
    return graph("Concat", *blocks, axis=1) if len(blocks) > 1 else plain


def _ensemble(average: ForestAverage) -> tuple[dict[str, Any], _Views]:
    """Attributes of the node, one target for each forest, and the views of the features that it reads."""
    from onnx import numpy_helper

    decisions = np.concatenate([forest.decision for forest in average.forests])
    views = _Views(bool((decisions & ZERO_IS_MISSING).any()), bool((decisions & CATEGORICAL).any()))
    parts: list[dict[str, np.ndarray]] = []
    splits = leaves = 0
    for target, forest in enumerate(average.forests):
        parts.append(_part(_with_splits(forest), target, splits, leaves, views))
        splits, leaves = splits + len(parts[-1]["nodes_modes"]), leaves + len(parts[-1]["leaf_weights"])
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    as_tensors = {"nodes_splits": np.float64, "leaf_weights": np.float64, "nodes_modes": np.uint8}
    if views.whole:
        as_tensors["membership_values"] = np.float64
    attributes = {name: numpy_helper.from_array(joined[name].astype(dtype)) for name, dtype in as_tensors.items()}
    lists = {name: values.tolist() for name, values in joined.items() if name not in (*as_tensors, "membership_values")}
    return {**lists, **attributes, "n_targets": len(average.forests), "aggregate_function": 1}, views


def _part(forest: Forest, target: int, splits: int, leaves: int, views: _Views) -> dict[str, np.ndarray]:
    """The attributes of one forest whose splits and leaves come after so many others."""
    leaf = forest.feature == LEAF
    number = np.where(leaf, leaves + np.cumsum(leaf) - 1, splits + np.cumsum(~leaf) - 1)
    places = np.flatnonzero(~leaf)
    decision, left = forest.decision[places], forest.child[places]
    categorical = (decision & CATEGORICAL) != 0
    view = np.where(categorical, 1 + views.without_zeros, (decision & ZERO_IS_MISSING) != 0)
    sets = [_set(forest, place) for place in places[categorical]]
    return {
        "tree_roots": number[forest.tree_starts[:-1]],
        "nodes_featureids": forest.feature[places] + view * forest.num_features,
        "nodes_splits": np.where(categorical, 0.0, forest.threshold[places]),
        "nodes_modes": np.where(categorical, _MEMBER, _AT_MOST),
        "nodes_missing_value_tracks_true": ((decision & MISSING_LEFT) != 0).astype(np.int64),
        "nodes_truenodeids": number[left],
        "nodes_falsenodeids": number[left + 1],
        "nodes_trueleafs": leaf[left].astype(np.int64),
        "nodes_falseleafs": leaf[left + 1].astype(np.int64),
        "leaf_weights": forest.value[leaf],
        "leaf_targetids": np.full(int(leaf.sum()), target),
        "membership_values": np.concatenate([np.zeros(0), *sets]),
    }


def _set(forest: Forest, place: int) -> np.ndarray:
    """The categories that go left, and the NaN that ends a set; a number that no row has stands for an empty one."""
    bits = forest.set_bytes[forest.set_starts[place] : forest.set_starts[place + 1]]
    members = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.float64)
    return np.append(members if len(members) else -1.0, np.nan)


def _with_splits(forest: Forest) -> Forest:
    """The forest with a split, both of whose leaves are the same, in place of each tree that is a single leaf.

    The roots of ONNX's trees are splits.
    """
    alone = np.flatnonzero(np.diff(forest.tree_starts) == 1)
    if not len(alone):
        return forest
    # Each of them becomes three nodes; those behind it move on by two.
    nodes = forest.tree_starts[alone]
    repeats = np.ones(len(forest.feature), np.int64)
    repeats[nodes] = 3
    moved = np.append(0, np.cumsum(repeats))
    child = np.where(forest.feature == LEAF, LEAF, moved[np.maximum(forest.child, 0)]).astype(np.int32)
    arrays = {name: np.repeat(getattr(forest, name), repeats) for name in ("feature", "threshold", "decision", "value")}
    arrays["child"] = np.repeat(child, repeats)
    arrays["feature"][moved[nodes]], arrays["child"][moved[nodes]] = 0, moved[nodes] + 1
    sizes = np.repeat(np.diff(forest.set_starts), repeats)
    return Forest(
        tree_starts=moved[forest.tree_starts],
        set_starts=np.append(0, np.cumsum(sizes)),
        set_bytes=forest.set_bytes,
        gain=forest.gain,
        **arrays,
    )
