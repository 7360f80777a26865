"""Count, chosen: which of the three implementations of the pass is used, and why.

`native` (C++) for CPU tensors where it was built, else `fused` (torch, any device). The environment variable
`AIMFOR_ENGINE` forces one; `plain` is the reference that both are tested against.
"""

import os
from typing import NamedTuple

import torch
from torch import Tensor

from aimfor._base import checks
from aimfor.loss.engines import _native as native

SETTING = "AIMFOR_ENGINE"
NAMES = ("plain", "fused", "native")
NATIVE_TYPES = (torch.float32, torch.bfloat16, torch.float16)


class Engine(NamedTuple):
    """The engine in use and the reason."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def engine() -> Engine:
    """Which engine does the counting for float32 scores on the CPU, and why.

    Example:
        >>> engine().name in ("plain", "fused", "native")
        True
    """
    forced = _forced()
    if forced:
        return Engine(forced, f"the environment variable {SETTING} says so")
    if native.problem():
        return Engine("fused", f"torch alone, because the native engine cannot be used: {native.problem()}")
    return Engine("native", native.description())


def engine_for(scores: Tensor) -> str:
    """Name of the engine for these scores."""
    forced = _forced()
    fits = scores.is_cpu and scores.dtype in NATIVE_TYPES
    if not forced:
        return "native" if fits and native.problem() is None else "fused"
    if forced == "native" and not fits:
        raise ValueError(
            f"{SETTING}=native takes scores of float32, bfloat16 or float16 on the CPU, got {scores.dtype} on "
            f"{scores.device}"
        )
    return forced


def _forced() -> str | None:
    """The engine that the environment asks for."""
    forced = os.environ.get(SETTING)
    if forced:
        checks.choice(SETTING, forced, NAMES)
        if forced == "native" and native.problem():
            raise RuntimeError(f"{SETTING}=native cannot be used: {native.problem()}")
    return forced
