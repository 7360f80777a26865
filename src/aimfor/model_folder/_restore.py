"""A classifier from checked facts and tensors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from aimfor._base import checks
from aimfor._base.checks import rule
from aimfor._base.json import check_entries
from aimfor.aims import NUMBER
from aimfor.aims import aim as read_aim
from aimfor.estimator import (
    CalibrationCurve,
    Classifier,
    Constant,
    Isotonic,
    Logistic,
    Targets,
    check_parameters,
    set_points,
)
from aimfor.model_folder._schema import (
    CLASS_DTYPES,
    CURVES,
    MOST_AIM_CHARACTERS,
    MOST_CLASS_CHARACTERS,
    NOT_OPTIONS,
    LoadedModel,
    number,
    shapes_of,
    texts,
)
from aimfor.model_kinds import check_tensors, kind_named
from aimfor.operating_points import OperatingPoint


def restore(facts: dict[str, Any], tensors: dict[str, Tensor]) -> LoadedModel:
    """The classifier as it came out of `fit`, and what was kept with it."""
    shapes, architecture = shapes_of(facts), facts["architecture"]
    check_tensors({name: tensors[name] for name in tensors if name in shapes}, shapes)
    num_labels, num_features = architecture["num_labels"], architecture["num_features"]
    classifier = _unfitted(facts)
    classifier.n_features_in_ = num_features
    classes = _classes(facts["classes"], num_labels, architecture["multiclass"])
    classifier.targets_ = Targets(classes, one_label=num_labels == 1, multiclass=architecture["multiclass"])
    if facts["feature_names"] is not None:
        names = texts("feature_names", facts["feature_names"])
        rule(len(names) == num_features, "feature_names", f"must be {num_features}", len(names))
        vars(classifier)["feature_names_in_"] = np.array(names, dtype=object)
    own = {name: tensor for name, tensor in tensors.items() if name not in shapes}
    classifier.model_ = kind_named(architecture["model"]).from_tensors(architecture, own)
    rule(classifier.model_.num_outputs == num_labels, "the model", f"must have {num_labels} outputs", "others")
    _set_points(classifier, facts["operating_points"], tensors["thresholds"].numpy())
    if classifier.calibrate:
        curves = [_curve(entry) for entry in facts["calibration"] or []]
        rule(len(curves) == num_labels, "calibration", f"must have {num_labels} curves", len(curves))
        classifier.calibration_ = curves
    for entry in facts["history"]:
        rule(isinstance(entry, dict), "history", "must hold JSON objects", repr(entry)[:50])
    classifier.history_ = facts["history"]
    texts("versions", list(facts["versions"].values()))
    loss_state = {name: tensors[f"loss.{name}"].float() for name in facts["loss"]}
    return LoadedModel(classifier, _preparation(facts["preparation"], num_features), facts, loss_state)


def _unfitted(facts: Mapping[str, Any]) -> Classifier:
    options, architecture = facts["options"], facts["architecture"]
    known = set(Classifier().get_params()) - set(NOT_OPTIONS)
    for name, value in options.items():
        rule(name in known, "options", f"must be of {', '.join(sorted(known))}", repr(name)[:50])
        scalar = value is None or isinstance(value, (bool, int, float, str))
        rule(scalar or name == "hidden_layer_sizes", name, "must be one number or text", repr(value)[:50])
    sizes = options.get("hidden_layer_sizes", [64])
    right = isinstance(sizes, list) and sizes == (architecture.get("hidden_sizes") or sizes)
    rule(right, "hidden_layer_sizes", "must be those of the architecture", repr(sizes)[:50])
    _check_aim(re.sub(r"\(([^()]*)\)", _first_target, facts["aim"]))
    chosen = {**options, "hidden_layer_sizes": tuple(sizes)}
    classifier = Classifier(facts["aim"], model=architecture["model"], **chosen)
    for count in check_parameters(classifier).label_counts():
        rule(count == architecture["num_labels"], "aim", "must have one target per label", count)
    if classifier.confidence is not None:
        checks.in_range("confidence", classifier.confidence, 0, 1, open_low=True, open_high=True)
    if classifier.random_state is not None:
        checks.whole_number("random_state", classifier.random_state, at_least=0)
    return classifier


def _check_aim(text: Any) -> None:
    if not isinstance(text, str) or len(text) > MOST_AIM_CHARACTERS:
        raise ValueError(f"aim must be a text of at most {MOST_AIM_CHARACTERS} characters, got {repr(text)[:50]}")
    read_aim(text)


def _first_target(targets: re.Match[str]) -> str:
    """The first of several targets, if all of them are numbers; what is right with it is right with the others."""
    entries = [entry.strip() for entry in targets[1].split(",")]
    for entry in entries:
        rule(len(entry) <= 40 and bool(re.fullmatch(NUMBER, entry)), "a target", "must be a number", entry[:50])
    return entries[0]


def _classes(given: dict[str, Any], num_labels: int, multiclass: bool) -> np.ndarray:
    check_entries("classes", given, {"dtype": str, "values": list})
    dtype, values = given["dtype"], given["values"]
    checks.choice("the dtype of classes", dtype, (*CLASS_DTYPES, "text", "object"))
    if dtype in ("text", "object"):
        characters = len(values) * max(map(len, texts("classes", values)), default=0)
        rule(characters <= MOST_CLASS_CHARACTERS, "classes", "must have shorter names", f"{characters} characters")
        classes = np.array(values, dtype=str if dtype == "text" else object)
    else:
        kind = {"b": bool, "f": float}.get(np.dtype(dtype).kind, int)
        for value in values:
            rule(type(value) is kind, "classes", f"must be {dtype}", repr(value)[:50])
        classes = np.array(values, dtype=dtype)
    rule(classes.tolist() == values, "classes", f"must be exact as {dtype}", "others")
    wanted = 2 if num_labels == 1 else num_labels
    rule(len(classes) == wanted, "classes", f"must be {wanted}", len(classes))
    rule(len(set(values)) == wanted, "classes", "must differ", repr(values)[:50])
    counted = multiclass or num_labels == 1 or values == list(range(num_labels))
    rule(counted, "classes", "must be the numbers of the labels", repr(values)[:50])
    return classes


def _set_points(classifier: Classifier, given: list[Any], thresholds: np.ndarray) -> None:
    for entry in given:
        rule(isinstance(entry, dict), "operating_points", "must hold JSON objects", repr(entry)[:50])
        _check_aim(entry.get("aim"))
    points = tuple(OperatingPoint.from_json(entry) for entry in given)
    rule(len(points) == len(thresholds), "operating_points", f"must be {len(thresholds)}", len(points))
    set_points(classifier, points)
    same = np.array_equal(np.array(classifier.threshold_, dtype=np.float64, ndmin=1), thresholds, equal_nan=True)
    rule(same, "tensor thresholds", "must have the thresholds of the operating points", "others")


def _curve(given: Any) -> CalibrationCurve:
    rule(isinstance(given, dict), "calibration", "must hold JSON objects", repr(given)[:50])
    kind = CURVES.get(str(given.get("kind")))
    if kind is None:
        raise ValueError(f"the kind of a calibration must be one of {', '.join(CURVES)}, got {given.get('kind')!r:.50}")
    entries = {name: entry for name, entry in given.items() if name != "kind"}
    names = [field.name for field in dataclasses.fields(kind)]
    check_entries("calibration", entries, dict.fromkeys(names, list if kind is Isotonic else (int, float)))
    if kind is Constant:
        return Constant(checks.in_range("a constant chance", entries["value"], 0, 1))
    if kind is Logistic:
        return Logistic(*(number(name, entries[name]) for name in names))
    x, y = (np.array([number(name, entry) for entry in entries[name]], dtype=np.float64) for name in names)
    rule(len(x) == len(y) > 0, "an isotonic curve", "must have as many y as x", f"{len(x)} and {len(y)}")
    rising = bool((np.diff(x) > 0).all() and (np.diff(y) >= 0).all() and y[0] >= 0 and y[-1] <= 1)
    rule(rising, "an isotonic curve", "must rise within 0 and 1", "one that does not")
    return Isotonic(x, y)


def _preparation(given: dict[str, Any] | None, num_features: int) -> Any:
    if given is None:
        return None
    from aimfor.tables import Preparation

    preparation = Preparation.from_dict(given)
    made = len(preparation.feature_names_out)
    rule(made == num_features, "preparation", f"must make {num_features} features", made)
    return preparation
