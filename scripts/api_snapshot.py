"""Write the public names and signatures to tests/contract/public_api.json: `python scripts/api_snapshot.py`.

A test compares the snapshot with the code. When you change the public face on purpose, run this script and commit the
new snapshot; its diff shows reviewers what users will notice.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import aimfor

SNAPSHOT = Path(__file__).parents[1] / "tests" / "contract" / "public_api.json"


def snapshot() -> dict[str, Any]:
    """Every public name of `aimfor`, `aimfor.boosting` and `aimfor.metrics`, described as plain data."""
    own = [name for name in dir(aimfor) if name in aimfor.__all__ or _is_public(name)]
    return {
        "aimfor": {
            "__all__": sorted(aimfor.__all__),
            **{name: describe(getattr(aimfor, name)) for name in sorted(own)},
        },
        "aimfor.boosting": {name: describe(getattr(aimfor.boosting, name)) for name in sorted(aimfor.boosting.__all__)},
        "aimfor.metrics": {name: describe(getattr(aimfor.metrics, name)) for name in sorted(aimfor.metrics.__all__)},
        "attributes": attributes(),
    }


def text_of(facts: dict[str, Any]) -> str:
    """The snapshot as it is stored: sorted, one fact per line."""
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"


def describe(value: Any) -> dict[str, Any]:
    """Kind, signature and members of what a public name stands for."""
    if isinstance(value, ModuleType):
        return {"kind": "module"}
    if not isinstance(value, type):
        if not callable(value):
            return {"kind": "value", "value": str(value)}
        return {"kind": "function", "signature": signature_of(value)}
    found: dict[str, Any] = {"kind": "class", "bases": _outer_bases(value)}
    if not issubclass(value, BaseException):
        found["signature"] = signature_of(value)
    if dataclasses.is_dataclass(value):
        found["fields"] = [field.name for field in dataclasses.fields(value)]
    elif (fields := getattr(value, "_fields", None)) is not None:
        found["fields"] = list(fields)
    members = {name: _member(value, name) for name in sorted(_own_members(value) - set(found.get("fields", ())))}
    return {**found, "members": members} if members else found


def signature_of(value: Any) -> str:
    """The parameters with their defaults, without annotations."""
    plain = inspect.signature(value)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in plain.parameters.values()]
    return str(plain.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def attributes() -> dict[str, list[str]]:
    """Public attributes that instances have beyond what their class defines."""
    model = aimfor.Classifier("f1", steps=2, calibrate=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", aimfor.NoValidationWarning)  # the rows are too few to hold some back
        model.fit([[float(row)] for row in range(40)], [row % 2 for row in range(40)])
    loss = aimfor.Loss("f1")
    own = {*vars(loss), *dict(loss.named_children())} - set(vars(torch.nn.Module()))
    return {
        "Classifier, fitted": sorted(name for name in vars(model) if not name.startswith("_")),
        "Loss": sorted(name for name in own if not name.startswith("_")),
    }


def _is_public(name: str) -> bool:
    """Whether the name is ours: modules and what `aimfor` itself imports are not."""
    value = getattr(aimfor, name)
    ours = str(getattr(value, "__module__", "")).split(".")[0] == "aimfor"
    return ours and not name.startswith("_") and not isinstance(value, ModuleType)


def _ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "aimfor"


def _outer_bases(kind: type) -> list[str]:
    """The classes of others that it is built on; our own may be rearranged freely."""
    bases = {base.__name__ for ours in kind.__mro__ if _ours(ours) for base in ours.__bases__ if not _ours(base)}
    return sorted(bases - {"ABC", "object"})


def _own_members(kind: type) -> set[str]:
    """Public names that it has from itself or from a class of ours, without those that scikit-learn adds."""
    names = {name for ours in kind.__mro__ if _ours(ours) for name in vars(ours)}
    return {name for name in names if not re.match(r"_|set_\w+_request$", name)}


def _member(kind: type, name: str) -> str:
    value = inspect.getattr_static(kind, name)
    if isinstance(value, property):
        return "property, can be set" if value.fset else "property"
    bound = getattr(kind, name)
    if not callable(bound):
        return f"value {value!r}"
    prefix = {classmethod: "class method ", staticmethod: "static method "}.get(type(value), "")
    return prefix + signature_of(bound)


if __name__ == "__main__":
    SNAPSHOT.write_text(text_of(snapshot()))
    print(f"{SNAPSHOT}: written")
