"""The registry of engines, which of them is used, and why.

`native` (C++) for CPU tensors where it was built, `triton` for CUDA where Triton is installed, else `fused` (torch, any
device). `plain` is the reference that all are tested against, and takes what they do not. The environment variable
`AIMFOR_ENGINE` forces one.
"""

import os
from typing import NamedTuple

import torch
from torch import Tensor

from aimfor._base import checks
from aimfor.loss._surrogates import Surrogate
from aimfor.loss.engines._fused import FusedEngine
from aimfor.loss.engines._native import NativeEngine
from aimfor.loss.engines._protocol import SETTING, CountingEngine
from aimfor.loss.engines._reference import ReferenceEngine
from aimfor.loss.engines._triton import TritonEngine

# The preferred ones first; the last takes everything.
ENGINES: dict[str, CountingEngine] = {
    one.name: one for one in (NativeEngine(), TritonEngine(), FusedEngine(), ReferenceEngine())
}


class Engine(NamedTuple):
    """The engine in use and the reason.

    Example:
        >>> import aimfor
        >>> aimfor.engine().name in ("native", "fused", "plain")
        True
    """

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
    if forced is not None:
        return Engine(forced.name, f"the environment variable {SETTING} says so")
    scores = torch.empty(0, device="cpu")
    candidates = [one for one in ENGINES.values() if one.scores_problem(scores) is None]
    problems = {one.name: one.problem() for one in candidates}
    chosen = next(one for one in candidates if problems[one.name] is None)
    before = list(problems)[: list(problems).index(chosen.name)]
    reasons = "; ".join(f"the {name} engine cannot be used: {problems[name]}" for name in before)
    return Engine(chosen.name, chosen.description() + (f", because {reasons}" if reasons else ""))


def engine_for(scores: Tensor, surrogate: Surrogate) -> CountingEngine:
    """The first engine that takes these scores and this surrogate, or the one that the environment asks for."""
    forced = _forced()
    for candidate in ENGINES.values() if forced is None else (forced,):
        if candidate.takes(scores, surrogate):
            return candidate
    assert forced is not None, "the reference takes everything"
    problem = forced.scores_problem(scores)
    takes = f"does not know the surrogate {surrogate.name!r}" if problem is None else f"takes {problem}"
    raise ValueError(f"{SETTING}={forced.name} {takes}: unset {SETTING}, and an engine that fits is used")


def _forced() -> CountingEngine | None:
    """The engine that the environment asks for."""
    name = os.environ.get(SETTING)
    if not name:
        return None
    checks.choice(SETTING, name, tuple(ENGINES))
    problem = ENGINES[name].problem()
    if problem is not None:
        raise RuntimeError(f"{SETTING}={name} cannot be used: {problem}")
    return ENGINES[name]
