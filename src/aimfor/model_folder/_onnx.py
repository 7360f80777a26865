"""Export preparation, model and threshold as one ONNX graph that gives the same decisions."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper
from sklearn.utils.validation import check_is_fitted

from aimfor._base.errors import ModelFileError
from aimfor._base.files import write_bytes
from aimfor.aims import aim as read_aim
from aimfor.boosting import ML_OPSET
from aimfor.estimator import Classifier, never_positive

# Old enough for common runtimes, new enough for all operators used here.
OPSETS = {"": 17, "ai.onnx.ml": 3}
IR_VERSION = 8
OF_ML = ("OneHotEncoder", "TreeEnsemble")  # operators of the domain ai.onnx.ml
# The limit of protobuf.
MOST_BYTES = 2**31 - 1
SCORE, DECISION = "score", "decision"


def export_onnx(classifier: Classifier, preparation: Any, path: str | os.PathLike[str]) -> None:
    """Write the scorer as one ONNX file.

    With a preparation there is one input `[n, 1]` for each raw column. Numbers and booleans are double, NaN if missing.
    Categories are strings, "" if missing. A column with the name of an output is called "... (input)". Without a
    preparation the input is "features", double `[n, D]`. The output "score" has the raw scores, float `[n, L]`. The
    output "decision" has 0 or 1 for each score; with more than two classes it is `[n, 1]`, the number of the class. A
    label without a threshold is decided as by `predict`. If `predict` would raise, there is no output "decision".

    Args:
        classifier: fitted, with a model whose kind has an ONNX form.
        preparation: the `Preparation` that makes its features, or None.
        path: of the file.

    Raises:
        ModelFileError: if the model has no ONNX form, or the file cannot be written.
    """
    check_is_fitted(classifier, "model_")
    graph = _Graph(set() if preparation is None else set(preparation.inputs))
    if preparation is None:
        features = graph.input("features", TensorProto.DOUBLE, classifier.n_features_in_)
    else:
        features = _prepared(graph, preparation.to_dict()["columns"])
    _score(graph, classifier, features)
    data = graph.model({"aim": str(read_aim(classifier.aim)), "classes": json.dumps(classifier.classes_.tolist())})
    write_bytes(path, data)


class _Graph:
    """A graph under construction. Each node gets a name that no column has."""

    def __init__(self, columns: set[str]):
        self.prefix = "_"
        while any(name.startswith(self.prefix) for name in columns):
            self.prefix += "_"
        self.columns = columns
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []

    def input(self, name: str, kind: int, width: int) -> str:
        if name in (SCORE, DECISION):
            name += " (input)"
            while name in self.columns:
                name += " (input)"
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["n", width]))
        return name

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        name = f"{self.prefix}{len(self.constants)} constant"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, dtype=dtype), name))
        return name

    def __call__(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = name or f"{self.prefix}{len(self.nodes)} {kind}"
        domain = "ai.onnx.ml" if kind in OF_ML else ""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def log_odds(self, scores: str, num_classes: int) -> str:
        """The same as `aimfor.log_odds`. The others of the top class are summed separately, for accuracy."""
        axis = self.constant([1], np.int64)
        top = self("ReduceMax", scores, axes=[1])
        is_top = self("Equal", self("ArgMax", scores, axis=1), self.constant([np.arange(num_classes)], np.int64))
        exps = self("Exp", self("Sub", scores, top))
        others = self("Sub", self("ReduceSum", exps, axis), exps)
        log_others = self("Add", self("Log", self("Where", is_top, self.constant(1.0), others)), top)
        rest = self("Where", is_top, self.constant(-np.inf), scores)
        second = self("ReduceMax", rest, axes=[1])
        sums = self("ReduceSum", self("Exp", self("Sub", rest, second)), axis)
        log_others_of_top = self("Add", self("Log", sums), second)
        return self("Sub", scores, self("Where", is_top, log_others_of_top, log_others))

    def output(self, name: str, kind: int, width: int) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, kind, ["n", width]))

    def model(self, properties: dict[str, str]) -> bytes:
        graph = helper.make_graph(self.nodes, "aimfor", self.inputs, self.outputs, self.constants)
        has_trees = any(node.op_type == "TreeEnsemble" for node in self.nodes)
        versions = OPSETS | ({"ai.onnx.ml": ML_OPSET} if has_trees else {})
        opsets = [helper.make_opsetid(domain, number) for domain, number in versions.items()]
        model: ModelProto = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="aimfor"
        )
        helper.set_model_props(model, properties)
        if model.ByteSize() > MOST_BYTES:
            size = f"{model.ByteSize():,} bytes, and at most {MOST_BYTES:,} are possible"
            raise ModelFileError(f"the model is too large for ONNX: it has {size}")
        try:
            checker.check_model(model)
        except checker.ValidationError as error:
            reason = str(error).splitlines()[0]
            raise ModelFileError(f"the model has no valid ONNX form: {reason}") from error
        return model.SerializeToString()


def _prepared(graph: _Graph, columns: Sequence[dict[str, Any]]) -> str:
    """The features of a preparation, rounded to float as it does, in double."""
    for column in columns:
        if column["kind"] not in ("numeric", "boolean", "categorical") or column.get("buckets"):
            what = {"date": "dates", "text": "texts"}.get(column["kind"], "more than 64 categories")
            advice = f"fit without it, with --drop {column['name']!r}"
            raise ModelFileError(f"column {column['name']!r} holds {what}, which ONNX cannot prepare: {advice}")
    kinds = {column["name"]: TensorProto.STRING if "categories" in column else TensorProto.DOUBLE for column in columns}
    inputs = {name: graph.input(name, kind, 1) for name, kind in kinds.items()}
    blocks: list[str] = []
    # Numbers are handled together, so the features come in another order, which is restored at the end.
    places = {name: np.arange(start, start + width) for name, start, width in _places(columns)}
    order: list[int] = []
    numbers = [column for column in columns if "categories" not in column]
    if numbers:
        numeric = np.array([column["kind"] == "numeric" for column in numbers])
        means = np.array([column["mean"] for column in numbers])
        values = graph("Concat", *(inputs[column["name"]] for column in numbers), axis=1)
        absent = graph("IsNaN", values)
        centred = graph("Sub", values, graph.constant(np.where(numeric, means, 0)))
        scaled = graph("Div", centred, graph.constant([column["scale"] for column in numbers]))
        filled = graph("Where", absent, graph.constant(np.where(numeric, 0, means)), scaled)
        blocks.append(graph("Cast", filled, to=TensorProto.FLOAT))
        order += [places[column["name"]][0] for column in numbers]
        told = [index for index, column in enumerate(numbers) if column["missing"]]
        if told:
            chosen = graph("Gather", absent, graph.constant(told, np.int64), axis=1)
            blocks.append(graph("Cast", chosen, to=TensorProto.FLOAT))
            order += [places[numbers[index]["name"]][1] for index in told]
    for column in columns:
        if len(places[column["name"]]) and "categories" in column:
            blocks.append(_one_hot(graph, column, inputs[column["name"]]))
            order += places[column["name"]].tolist()
    together = graph("Concat", *blocks, axis=1)
    ordered = graph("Gather", together, graph.constant(np.argsort(order), np.int64), axis=1)
    return graph("Cast", ordered, to=TensorProto.DOUBLE)


def _places(columns: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Name, first feature and number of features of each column."""
    widths = [len(column.get("categories", [0])) + column["missing"] for column in columns]
    starts = np.cumsum([0, *widths[:-1]])
    return [(column["name"], int(start), width) for column, start, width in zip(columns, starts, widths, strict=True)]


def _one_hot(graph: _Graph, column: dict[str, Any], name: str) -> str:
    categories = [*column["categories"], ""] if column["missing"] else column["categories"]
    if categories.count("") > 1:
        raise ModelFileError(
            f"column {column['name']!r} must not have both empty texts and missing values to be exported, got both"
        )
    known = graph("OneHotEncoder", name, cats_strings=categories, zeros=1)
    return graph("Squeeze", known, graph.constant([1], np.int64))


def _score(graph: _Graph, classifier: Classifier, features: str) -> None:
    hidden = classifier.model_.to_onnx(graph, features)
    # As the classifier does: in double, then rounded to float.
    score = graph("Cast", hidden, name=SCORE, to=TensorProto.FLOAT)
    graph.output(SCORE, TensorProto.FLOAT, classifier.model_.num_outputs)
    if classifier.targets_.multiclass:
        graph("ArgMax", score, name=DECISION, axis=1, keepdims=1)
        graph.output(DECISION, TensorProto.INT64, 1)
        return
    thresholds = _thresholds(classifier)
    if thresholds is not None:
        exact = graph("Cast", score, to=TensorProto.DOUBLE)
        reached = graph("GreaterOrEqual", exact, graph.constant(thresholds))
        graph("Cast", reached, name=DECISION, to=TensorProto.INT64)
        graph.output(DECISION, TensorProto.INT64, len(thresholds))


def _thresholds(classifier: Classifier) -> list[float] | None:
    """One per label, infinite for a label that is never predicted; None where `predict` would refuse."""
    points: Any = classifier.operating_point_
    thresholds = []
    for point in (points,) if classifier.targets_.one_label else points:
        if point.threshold is None and classifier.on_no_threshold == "raise" and not never_positive(point):
            return None
        thresholds.append(np.inf if point.threshold is None else point.threshold)
    return thresholds
