"""The one list of model kinds."""

from __future__ import annotations

from typing import Any

from aimfor._base import checks
from aimfor.model_kinds._auto import AUTO
from aimfor.model_kinds._kind import ModelKind
from aimfor.model_kinds._networks import LINEAR, MLP, MODULE
from aimfor.model_kinds._trees import TREES

KINDS: dict[str, ModelKind] = {kind.name: kind for kind in (AUTO, TREES, LINEAR, MLP)}


def kind_named(name: Any) -> ModelKind:
    """The kind with this name.

    Raises:
        ValueError: where there is none.
    """
    checks.choice("model", name, tuple(KINDS))
    return KINDS[name]


def kind_of(model: Any) -> ModelKind:
    """The kind that the parameter `model` of the classifier asks for: by name, as a module or as its maker."""
    if isinstance(model, str):
        return kind_named(model)
    if not callable(model):
        names = ", ".join(f'"{name}"' for name in KINDS)
        raise TypeError(f"model must be {names}, an nn.Module or a function, got {model!r}")
    return MODULE
