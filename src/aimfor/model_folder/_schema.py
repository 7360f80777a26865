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
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aimfor._base import checks
from aimfor._base.checks import rule
from aimfor.aims import aim as read_aim
from aimfor.estimator import CalibrationCurve, Classifier, Constant, Isotonic, Logistic

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


def _curve_facts(curve: CalibrationCurve) -> dict[str, Any]:
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
    check_kinds("a model", {name: entry for name, entry in facts.items() if name in ENTRIES}, ENTRIES)
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


def _no_constant(name: str) -> None:
    raise ValueError(f"a number must be finite, got {name}")


def check_kinds(name: str, value: dict[str, Any], kinds: Mapping[str, Any]) -> None:
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
    check_kinds("architecture", architecture, ARCHITECTURE)
    checks.choice("model", architecture["model"], ("linear", "mlp"))
    for size in architecture["hidden_sizes"]:
        checks.whole_number("a hidden size", size, at_least=1)
    linear = architecture["model"] == "linear"
    rule(not (linear and architecture["hidden_sizes"]), "hidden_sizes", "must be none for a linear model", "some")
    checks.whole_number("num_features", architecture["num_features"], at_least=1)
    checks.whole_number("num_labels", architecture["num_labels"], at_least=3 if architecture["multiclass"] else 1)


def _check_loss(shapes: dict[str, Any], num_labels: int) -> None:
    check_kinds("loss", shapes, {name: list for name in shapes if name in LOSS_STATE})
    for name, shape in shapes.items():
        for size in shape:
            checks.whole_number(f"the shape of loss.{name}", size, at_least=0)
        right = len(shape) == (1 if name == "priors" else 2) and shape[-1] == num_labels
        rule(right, f"the shape of loss.{name}", f"must end with {num_labels}, the labels", shape)


def check_tensors(tensors: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
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


def number(name: str, value: Any) -> float:
    return checks.in_range(name, value, -math.inf, math.inf, open_low=True, open_high=True)


def texts(name: str, values: list[Any]) -> list[str]:
    for value in values:
        rule(isinstance(value, str), name, "must be texts", repr(value)[:50])
    return values
