"""Keep, first half: a fitted classifier as plain facts and tensors, and back.

Facts may come from anywhere, so each is checked. What is wrong with them is a ValueError or TypeError of one sentence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aimfor import checks
from aimfor.aim_parser import NUMBER
from aimfor.aim_parser import aim as read_aim
from aimfor.calibration import Constant, Curve, Isotonic, Logistic
from aimfor.checks import rule
from aimfor.estimators import Classifier
from aimfor.heads import Layers, Scaling
from aimfor.points import OperatingPoint
from aimfor.targets import Targets

FORMAT, FORMAT_VERSION = "aimfor model", 1
NONE = type(None)
KINDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    NONE: "null",
}
ENTRIES = {
    "format": str,
    "format_version": int,
    "aim": str,
    "architecture": dict,
    "classes": dict,
    "feature_names": (list, NONE),
    "options": dict,
    "preparation": (dict, NONE),
    "operating_points": list,
    "calibration": (list, NONE),
    "history": list,
    "loss": dict,
    "versions": dict,
    "sha256": str,
    "checksum": str,
}
ARCHITECTURE = {
    "model": str,
    "hidden_sizes": list,
    "num_features": int,
    "num_labels": int,
    "multiclass": bool,
    "centred": bool,
}
CURVES = {"constant": Constant, "logistic": Logistic, "isotonic": Isotonic}
LOSS_STATE = ("multipliers", "thresholds", "priors")
CLASS_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
# Of all classes together, as an array of texts gives each the room of the longest.
MOST_CLASS_CHARACTERS = 2**26
# Of an aim with one target: of a longer text the search for a near spelling would take long to find that it is none.
MOST_AIM_CHARACTERS = 200
# The device belongs to the machine; the rest of these has its own place.
NOT_OPTIONS = ("aim", "model", "device")


class LoadedModel(NamedTuple):
    """What a model folder holds: fitted classifier, its preparation or None, all of model.json, state of the loss."""

    classifier: Classifier
    preparation: Any
    facts: dict[str, Any]
    loss_state: dict[str, Tensor]


# Telling


def tensors_of(classifier: Classifier, loss_state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All numbers of a fitted classifier by name, in double, which holds them exactly."""
    mean, scale = classifier.scaling_
    threshold = classifier.threshold_
    tensors = {
        **{f"network.{name}": tensor for name, tensor in classifier.model_.state_dict().items()},
        **({} if mean is None else {"scaling.mean": torch.from_numpy(mean)}),
        "scaling.scale": torch.from_numpy(scale),
        "thresholds": torch.from_numpy(np.atleast_1d(np.asarray(threshold, dtype=np.float64))),
        **{f"loss.{name}": tensor for name, tensor in loss_state.items()},
    }
    return {name: tensor.detach().cpu().double().contiguous().clone() for name, tensor in tensors.items()}


def facts_of(
    classifier: Classifier,
    preparation: Any,
    extra: Mapping[str, Any],
    loss_state: Mapping[str, Tensor],
    sha256: str,
) -> dict[str, Any]:
    """All else that makes a fitted classifier, as plain data for JSON."""
    for name in extra:
        rule(name not in ENTRIES, "extra", f"must have names beside {', '.join(ENTRIES)}", repr(name))
    options = {name: value for name, value in classifier.get_params().items() if name not in NOT_OPTIONS}
    if not isinstance(options["random_state"], (int, np.integer)):
        options["random_state"] = None  # a generator has moved on since the fit
    points = classifier.operating_point_
    names = getattr(classifier, "feature_names_in_", None)
    libraries = {name: version(name) for name in ("aimfor", "torch", "numpy", "scikit-learn")}
    facts = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "aim": str(read_aim(classifier.aim)),
        "architecture": {
            "model": classifier.model,
            "hidden_sizes": classifier.hidden_layer_sizes if classifier.model == "mlp" else [],
            "num_features": classifier.n_features_in_,
            "num_labels": classifier.model_.num_labels,
            "multiclass": classifier.targets_.multiclass,
            "centred": classifier.scaling_.mean is not None,
        },
        "classes": {
            "dtype": "text" if classifier.classes_.dtype.kind == "U" else str(classifier.classes_.dtype),
            "values": classifier.classes_.tolist(),
        },
        "feature_names": None if names is None else list(names),
        "options": options,
        "preparation": None if preparation is None else preparation.to_dict(),
        "operating_points": [
            json.loads(point.to_json()) for point in (points if isinstance(points, tuple) else (points,))
        ],
        "calibration": [_curve_facts(curve) for curve in classifier.calibration_] if classifier.calibrate else None,
        "history": classifier.history_,
        "loss": {name: list(tensor.shape) for name, tensor in loss_state.items()},
        "versions": {**libraries, "python": platform.python_version()},
        "sha256": sha256,
        **extra,
    }
    return _plain(facts)


def to_text(facts: Mapping[str, Any]) -> bytes:
    """Facts as JSON with a checksum over them.

    Raises:
        TypeError: for what is no plain data.
    """
    facts = json.loads(json.dumps(facts, allow_nan=False))  # keys become texts, as a reader will see them
    text = json.dumps({**facts, "checksum": _checksum(facts)}, indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode()


def _curve_facts(curve: Curve) -> dict[str, Any]:
    (kind,) = (name for name, one in CURVES.items() if isinstance(curve, one))
    return {"kind": kind, **dataclasses.asdict(curve)}


def _checksum(facts: Mapping[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Containers and numbers of numpy as those of Python; null for numbers that are not finite, which JSON lacks."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Reading


def read_facts(text: bytes) -> dict[str, Any]:
    """Facts from what `to_text` wrote, of the right kinds but for the extra ones; `restore` checks what they say."""
    try:
        facts = json.loads(text.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ValueError("the text must be UTF-8, got other bytes") from None
    except RecursionError:
        raise ValueError("the text must be JSON of few levels, got too many") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f'format must be "{FORMAT}", got something else')
    known = facts.get("format_version")
    rule(known == FORMAT_VERSION, "format_version", f"must be {FORMAT_VERSION} for this aimfor", repr(known)[:50])
    _check_kinds("a model", {name: entry for name, entry in facts.items() if name in ENTRIES}, ENTRIES)
    rest = {name: entry for name, entry in facts.items() if name != "checksum"}
    rule(_checksum(rest) == facts["checksum"], "checksum", "must be that of the file", "another: it was changed")
    hexadecimal = len(facts["sha256"]) == 64 and set(facts["sha256"]) <= set("0123456789abcdef")
    rule(hexadecimal, "sha256", "must be 64 hexadecimal digits", repr(facts["sha256"])[:80])
    _check_architecture(facts["architecture"])
    _check_loss(facts["loss"], facts["architecture"]["num_labels"])
    return facts


def shapes_of(facts: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors that belong to these facts, by name."""
    architecture = facts["architecture"]
    num_features, num_labels = architecture["num_features"], architecture["num_labels"]
    shapes: dict[str, tuple[int, ...]] = {}
    sizes = [num_features, *architecture["hidden_sizes"], num_labels]
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        shapes[f"network.weights.{layer}"] = (1, inputs, outputs) if layer else (inputs, 1, outputs)
        shapes[f"network.offsets.{layer}"] = (1, outputs)
    if architecture["centred"]:
        shapes["scaling.mean"] = (num_features,)
    return {
        **shapes,
        "scaling.scale": (num_features,),
        "thresholds": (num_labels,),
        **{f"loss.{name}": tuple(shape) for name, shape in facts["loss"].items()},
    }


def restore(facts: dict[str, Any], tensors: dict[str, Tensor]) -> LoadedModel:
    """The classifier as it came out of `fit`, and what was kept with it."""
    _check_tensors(tensors, shapes_of(facts))
    architecture = facts["architecture"]
    num_labels, num_features = architecture["num_labels"], architecture["num_features"]
    classifier = _unfitted(facts)
    classifier.n_features_in_ = num_features
    classes = _classes(facts["classes"], num_labels, architecture["multiclass"])
    classifier.targets_ = Targets(classes, one_label=num_labels == 1, multiclass=architecture["multiclass"])
    if facts["feature_names"] is not None:
        names = _texts("feature_names", facts["feature_names"])
        rule(len(names) == num_features, "feature_names", f"must be {num_features}", len(names))
        vars(classifier)["feature_names_in_"] = np.array(names, dtype=object)
    mean = tensors["scaling.mean"].numpy() if architecture["centred"] else None
    classifier.scaling_ = Scaling(mean, tensors["scaling.scale"].numpy())
    classifier.model_ = Layers(1, num_features, num_labels, architecture["hidden_sizes"], torch.Generator()).double()
    network = {name.removeprefix("network."): tensor for name, tensor in tensors.items() if name.startswith("network.")}
    classifier.model_.load_state_dict(network)
    _set_points(classifier, facts["operating_points"], tensors["thresholds"].numpy())
    if classifier.calibrate:
        curves = [_curve(entry) for entry in facts["calibration"] or []]
        rule(len(curves) == num_labels, "calibration", f"must have {num_labels} curves", len(curves))
        classifier.calibration_ = curves
    for entry in facts["history"]:
        rule(isinstance(entry, dict), "history", "must hold JSON objects", repr(entry)[:50])
    classifier.history_ = facts["history"]
    _texts("versions", list(facts["versions"].values()))
    loss_state = {name: tensors[f"loss.{name}"].float() for name in facts["loss"]}
    return LoadedModel(classifier, _preparation(facts["preparation"], num_features), facts, loss_state)


def _no_constant(name: str) -> None:
    raise ValueError(f"a number must be finite, got {name}")


def _check_kinds(name: str, value: dict[str, Any], kinds: Mapping[str, Any]) -> None:
    """Whether a JSON object has these entries, all and alone, each of its kind."""
    for key, kind in kinds.items():
        rule(key in value, name, "must be whole", f"nothing for {key!r}")
        # A bool is an int to Python, not to a reader of the file.
        right = isinstance(value[key], kind) and (kind is not int or not isinstance(value[key], bool))
        wanted = " or ".join(KINDS[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
        rule(right, f"{key} of {name}", f"must be {wanted}", repr(value[key])[:50])
    for key in value:
        rule(key in kinds, name, "must have no other entries than it is written with", repr(key)[:50])


def _check_architecture(architecture: dict[str, Any]) -> None:
    _check_kinds("architecture", architecture, ARCHITECTURE)
    checks.choice("model", architecture["model"], ("linear", "mlp"))
    for size in architecture["hidden_sizes"]:
        checks.whole_number("a hidden size", size, at_least=1)
    linear = architecture["model"] == "linear"
    rule(not (linear and architecture["hidden_sizes"]), "hidden_sizes", "must be none for a linear model", "some")
    checks.whole_number("num_features", architecture["num_features"], at_least=1)
    checks.whole_number("num_labels", architecture["num_labels"], at_least=3 if architecture["multiclass"] else 1)


def _check_loss(shapes: dict[str, Any], num_labels: int) -> None:
    _check_kinds("loss", shapes, {name: list for name in shapes if name in LOSS_STATE})
    for name, shape in shapes.items():
        for size in shape:
            checks.whole_number(f"the shape of loss.{name}", size, at_least=0)
        right = len(shape) == (1 if name == "priors" else 2) and shape[-1] == num_labels
        rule(right, f"the shape of loss.{name}", f"must end with {num_labels}, the labels", shape)


def _check_tensors(tensors: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
    same = tensors.keys() == shapes.keys()
    rule(same, "the tensors", f"must be {', '.join(shapes)[:200]}", f"{', '.join(tensors)[:200]!r}")
    for name, shape in shapes.items():
        tensor = tensors[name]
        rule(tensor.dtype == torch.float64, f"tensor {name}", "must be float64", tensor.dtype)
        rule(tuple(tensor.shape) == shape, f"tensor {name}", f"must have shape {shape}", tuple(tensor.shape))
        # A label without a threshold has NaN there, which its operating point explains.
        right = name == "thresholds" or bool(tensor.isfinite().all())
        rule(right, f"tensor {name}", "must be finite", "a number that is not")
    rule(bool((tensors["scaling.scale"] > 0).all()), "tensor scaling.scale", "must be above 0", "a number that is not")


def _unfitted(facts: Mapping[str, Any]) -> Classifier:
    options, architecture = facts["options"], facts["architecture"]
    known = set(Classifier().get_params()) - set(NOT_OPTIONS)
    for name, value in options.items():
        rule(name in known, "options", f"must be of {', '.join(sorted(known))}", repr(name)[:50])
        scalar = value is None or isinstance(value, (bool, int, float, str))
        rule(scalar or name == "hidden_layer_sizes", name, "must be one number or text", repr(value)[:50])
    sizes = options.get("hidden_layer_sizes", [64])
    right = isinstance(sizes, list) and (architecture["model"] == "linear" or sizes == architecture["hidden_sizes"])
    rule(right, "hidden_layer_sizes", "must be those of the architecture", repr(sizes)[:50])
    _check_aim(re.sub(r"\(([^()]*)\)", _first_target, facts["aim"]))
    chosen = {**options, "hidden_layer_sizes": tuple(sizes)}
    classifier = Classifier(facts["aim"], model=architecture["model"], **chosen)
    for count in classifier.check_options().label_counts():
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
    numbers = [number.strip() for number in targets[1].split(",")]
    for number in numbers:
        rule(len(number) <= 40 and bool(re.fullmatch(NUMBER, number)), "a target", "must be a number", number[:50])
    return numbers[0]


def _classes(given: dict[str, Any], num_labels: int, multiclass: bool) -> np.ndarray:
    _check_kinds("classes", given, {"dtype": str, "values": list})
    dtype, values = given["dtype"], given["values"]
    checks.choice("the dtype of classes", dtype, (*CLASS_DTYPES, "text", "object"))
    if dtype in ("text", "object"):
        characters = len(values) * max(map(len, _texts("classes", values)), default=0)
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
    found = np.array([math.nan if point.threshold is None else point.threshold for point in points])
    same = np.array_equal(found, thresholds, equal_nan=True)
    rule(same, "tensor thresholds", "must have the thresholds of the operating points", "others")
    classifier.operating_point_ = points[0] if classifier.targets_.one_label else points
    classifier.threshold_ = points[0].threshold if classifier.targets_.one_label else found


def _curve(given: Any) -> Curve:
    rule(isinstance(given, dict), "calibration", "must hold JSON objects", repr(given)[:50])
    kind = CURVES.get(str(given.get("kind")))
    if kind is None:
        raise ValueError(f"the kind of a calibration must be one of {', '.join(CURVES)}, got {given.get('kind')!r:.50}")
    entries = {name: entry for name, entry in given.items() if name != "kind"}
    names = [field.name for field in dataclasses.fields(kind)]
    _check_kinds("calibration", entries, dict.fromkeys(names, list if kind is Isotonic else (int, float)))
    if kind is Constant:
        return Constant(checks.in_range("a constant chance", entries["value"], 0, 1))
    if kind is Logistic:
        return Logistic(*(_number(name, entries[name]) for name in names))
    x, y = (np.array([_number(name, entry) for entry in entries[name]], dtype=np.float64) for name in names)
    rule(len(x) == len(y) > 0, "an isotonic curve", "must have as many y as x", f"{len(x)} and {len(y)}")
    rising = bool((np.diff(x) > 0).all() and (np.diff(y) >= 0).all() and y[0] >= 0 and y[-1] <= 1)
    rule(rising, "an isotonic curve", "must rise within 0 and 1", "one that does not")
    return Isotonic(x, y)


def _preparation(given: dict[str, Any] | None, num_features: int) -> Any:
    if given is None:
        return None
    from aimfor.program.preparation import Preparation

    preparation = Preparation.from_dict(given)
    made = len(preparation.feature_names_out)
    rule(made == num_features, "preparation", f"must make {num_features} features", made)
    return preparation


def _number(name: str, value: Any) -> float:
    return checks.in_range(name, value, -math.inf, math.inf, open_low=True, open_high=True)


def _texts(name: str, values: list[Any]) -> list[str]:
    for value in values:
        rule(isinstance(value, str), name, "must be texts", repr(value)[:50])
    return values
