"""A fitted classifier as plain facts and tensors, and the check of facts that are read.

Facts may come from anyone, so each is checked. A wrong one raises a ValueError or TypeError of one sentence.
"""

from __future__ import annotations

import dataclasses
import hashlib
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
from aimfor._base.json import NONE, check_entries, json_ready
from aimfor.aims import aim as read_aim
from aimfor.estimator import CalibrationCurve, Classifier, Constant, Isotonic, Logistic
from aimfor.model_kinds import kind_named

FORMAT, FORMAT_VERSION = "aimfor model", 1
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
# Entries in the description of every kind of model. A kind adds its own.
COMMON = ("model", "num_features", "num_labels", "multiclass")
CURVES = {"constant": Constant, "logistic": Logistic, "isotonic": Isotonic}
LOSS_STATE = ("multipliers", "thresholds", "priors")
CLASS_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
# The most characters of all classes, because an array of texts stores each with the length of the longest.
MOST_CLASS_CHARACTERS = 2**26
# The longest text of an aim with one target. In a longer text the search for a near spelling would take long.
MOST_AIM_CHARACTERS = 200
# The device belongs to the machine. The other two have entries of their own.
NOT_OPTIONS = ("aim", "model", "device")


class LoadedModel(NamedTuple):
    """The content of a model folder: classifier, preparation or None, all of model.json, and state of the loss."""

    classifier: Classifier
    preparation: Any
    facts: dict[str, Any]
    loss_state: dict[str, Tensor]


# Telling


def tensors_of(classifier: Classifier, loss_state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All numbers of a fitted classifier by name."""
    thresholds = np.atleast_1d(np.asarray(classifier.threshold_, dtype=np.float64))
    tensors = {"thresholds": torch.from_numpy(thresholds), **{f"loss.{name}": one for name, one in loss_state.items()}}
    # Double precision holds them exactly.
    shared = {name: tensor.detach().cpu().double().contiguous().clone() for name, tensor in tensors.items()}
    return {**classifier.model_.to_tensors(), **shared}


def facts_of(
    classifier: Classifier,
    preparation: Any,
    extra: Mapping[str, Any],
    loss_state: Mapping[str, Tensor],
    sha256: str,
) -> dict[str, Any]:
    """All of a fitted classifier but its tensors, as plain data for JSON."""
    for name in extra:
        rule(name not in ENTRIES, "extra", f"must have names beside {', '.join(ENTRIES)}", repr(name))
    options = {name: value for name, value in classifier.get_params().items() if name not in NOT_OPTIONS}
    if not isinstance(options["random_state"], (int, np.integer)):
        options["random_state"] = None  # the state of a generator has changed since the fit
    points = classifier.operating_point_
    names = getattr(classifier, "feature_names_in_", None)
    libraries = {name: version(name) for name in ("aimfor", "torch", "numpy", "scikit-learn")}
    facts = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "aim": str(read_aim(classifier.aim)),
        "architecture": classifier.model_.describe(),
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
    return json_ready(facts)


def to_text(facts: Mapping[str, Any]) -> bytes:
    """Facts as JSON with a checksum over them.

    Raises:
        TypeError: if a fact is not plain data.
    """
    facts = json.loads(json.dumps(facts, allow_nan=False))  # keys become texts, as for a reader
    text = json.dumps({**facts, "checksum": _checksum(facts)}, indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode()


def _curve_facts(curve: CalibrationCurve) -> dict[str, Any]:
    (kind,) = (name for name, one in CURVES.items() if isinstance(curve, one))
    return {"kind": kind, **dataclasses.asdict(curve)}


def _checksum(facts: Mapping[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# Reading


def read_facts(text: bytes) -> dict[str, Any]:
    """Read the facts that `to_text` wrote and check their types, except extra ones. `restore` checks their values."""
    try:
        facts = json.loads(text.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError("it has too many levels of JSON") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f'format must be "{FORMAT}", got something else')
    known = facts.get("format_version")
    rule(known == FORMAT_VERSION, "format_version", f"must be {FORMAT_VERSION} for this aimfor", repr(known)[:50])
    check_entries("a model", {name: entry for name, entry in facts.items() if name in ENTRIES}, ENTRIES)
    rest = {name: entry for name, entry in facts.items() if name != "checksum"}
    if _checksum(rest) != facts["checksum"]:
        raise ValueError("it was modified: its checksum does not match")
    hexadecimal = len(facts["sha256"]) == 64 and set(facts["sha256"]) <= set("0123456789abcdef")
    rule(hexadecimal, "sha256", "must be 64 hexadecimal digits", repr(facts["sha256"])[:80])
    _check_architecture(facts["architecture"])
    _check_loss(facts["loss"], facts["architecture"]["num_labels"])
    return facts


def tensor_bytes(facts: Mapping[str, Any]) -> int:
    """The most bytes of the tensors that belong to these facts."""
    kind = kind_named(facts["architecture"]["model"])
    return kind.tensor_bytes(facts["architecture"]) + 8 * sum(map(math.prod, shapes_of(facts).values()))


def shapes_of(facts: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors that are not part of the model itself, by name."""
    state = {f"loss.{name}": tuple(shape) for name, shape in facts["loss"].items()}
    return {"thresholds": (facts["architecture"]["num_labels"],), **state}


def _no_constant(name: str) -> None:
    raise ValueError(f"a number must be finite, got {name}")


def _check_architecture(architecture: dict[str, Any]) -> None:
    for name, types in zip(COMMON, (str, int, int, bool), strict=True):
        check_entries("architecture", {name: architecture[name]} if name in architecture else {}, {name: types})
    checks.whole_number("num_features", architecture["num_features"], at_least=1)
    checks.whole_number("num_labels", architecture["num_labels"], at_least=3 if architecture["multiclass"] else 1)
    kind_named(architecture["model"]).tensor_bytes(architecture)  # raises if the description does not fit its kind


def _check_loss(shapes: dict[str, Any], num_labels: int) -> None:
    check_entries("loss", shapes, {name: list for name in shapes if name in LOSS_STATE})
    for name, shape in shapes.items():
        for size in shape:
            checks.whole_number(f"the shape of loss.{name}", size, at_least=0)
        right = len(shape) == (1 if name == "priors" else 2) and shape[-1] == num_labels
        rule(right, f"the shape of loss.{name}", f"must end with {num_labels}, the labels", shape)


def number(name: str, value: Any) -> float:
    return checks.in_range(name, value, -math.inf, math.inf, open_low=True, open_high=True)


def texts(name: str, values: list[Any]) -> list[str]:
    for value in values:
        rule(isinstance(value, str), name, "must be texts", repr(value)[:50])
    return values
