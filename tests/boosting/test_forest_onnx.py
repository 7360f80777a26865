"""Forests in ONNX: the scores of numpy to the last digits, and the same decisions."""

import numpy as np
import pytest
from random_forests import random_case

pytest.importorskip("lightgbm")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from aimfor.boosting import ForestAverage, add_forests, from_lightgbm  # noqa: E402
from aimfor.boosting._onnx import ML_OPSET, _with_splits  # noqa: E402


class Graph:
    """The least graph that `add_forests` can fill."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def __call__(self, kind, *inputs, name=None, **attributes):
        name = name or f"{len(self.nodes)} {kind}"
        domain = "ai.onnx.ml" if kind == "TreeEnsemble" else ""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def constant(self, values, dtype=np.float64):
        name = f"constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, dtype=dtype), name))
        return name


def in_onnx(average, features):
    graph = Graph()
    score = add_forests(graph, average, "features")
    inputs = [helper.make_tensor_value_info("features", TensorProto.DOUBLE, ["n", average.num_features])]
    outputs = [helper.make_tensor_value_info(score, TensorProto.DOUBLE, ["n", 1])]
    whole = helper.make_graph(graph.nodes, "forests", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    model = helper.make_model(whole, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (scores,) = session.run(None, {"features": features})
    return scores[:, 0]


def averaged(seed):
    booster, _, features = random_case(seed)
    rounds = sorted({1, max(1, booster.current_iteration() // 2), booster.current_iteration()})
    forests = [from_lightgbm(booster, num_iteration=count) for count in rounds]
    return ForestAverage.standardised(forests, [forest.scores(features) for forest in forests]), features


def compare(seeds):
    for seed in seeds:
        average, features = averaged(seed)
        expected, found = average.scores(features), in_onnx(average, features)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, err_msg=str(seed))
        # As classifiers do, scores are rounded to float before a threshold of one of them decides.
        expected, found = expected.astype(np.float32), found.astype(np.float32)
        threshold = np.sort(expected)[-len(expected) // 5]
        np.testing.assert_array_equal(found >= threshold, expected >= threshold, err_msg=str(seed))


def test_scores_and_decisions_are_those_of_the_forests():
    compare(range(25))


@pytest.mark.slow
def test_scores_and_decisions_of_many_forests():
    compare(range(200))


def test_single_leaves_become_splits_that_change_nothing():
    seen = 0
    for seed in range(60):
        average, features = averaged(seed)
        for forest in average.forests:
            split = _with_splits(forest)
            split.check()
            assert (np.diff(split.tree_starts) > 1).all()
            np.testing.assert_array_equal(split.scores(features), forest.scores(features))
            seen += (np.diff(forest.tree_starts) == 1).any()
    assert seen


def test_single_leaves_between_trees():
    """A booster that runs out of splits has them at its end only; here they come before, between and after."""
    booster, _, features = random_case(8)
    tree = from_lightgbm(booster, num_iteration=1)
    leaf = next(forest for forest in copies() if len(forest.feature) == 1)
    parts = [leaf, tree, leaf, leaf, tree, leaf]
    starts = np.append(0, np.cumsum([len(part.feature) for part in parts]))
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("feature", "threshold", "decision", "value", "set_bytes")
    }
    child = np.concatenate([np.where(p.child < 0, -1, p.child + s) for p, s in zip(parts, starts, strict=False)])
    sets = np.append(0, np.cumsum(np.concatenate([np.diff(part.set_starts) for part in parts])))
    forest = type(tree)(tree_starts=starts, child=child.astype(np.int32), set_starts=sets, gain=tree.gain, **joined)
    forest.check()
    split = _with_splits(forest)
    split.check()
    np.testing.assert_array_equal(split.scores(features), forest.scores(features))
    average = ForestAverage.standardised([forest], [forest.scores(features)])
    np.testing.assert_allclose(in_onnx(average, features), average.scores(features), rtol=0, atol=1e-12)


def copies():
    for seed in range(1000):
        yield from_lightgbm(random_case(seed).booster)
