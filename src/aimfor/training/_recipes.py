"""Recipes: how a candidate is trained, and which candidates compete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from aimfor.aims import AUCPR, Aim, PointAim


@dataclass(frozen=True)
class Recipe:
    """One way to train a head.

    Attributes:
        aim: what the loss is made for; None for log-loss.
        surrogate, constraint: options of `Loss`.
        start: "scratch", or "log-loss" for the weights of the best log-loss head.
        decay: for a linear head, the factor of half the squared weights in the loss; for others, the share by which a
            step shrinks the weights, divided by the rate.
        balanced: whether log-loss gives both classes of a label the same total weight.
        attempt: which of several starts from scratch.
    """

    aim: Aim | None
    surrogate: str = "log"
    constraint: str = "surrogate"
    start: str = "scratch"
    decay: float = 0.0
    balanced: bool = False
    attempt: int = 1
    averaged: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Its name in the history."""
        if self.aim is None:
            gone_on = ", from log-loss" if self.start == "log-loss" else ""
            return f"{'balanced ' if self.balanced else ''}log-loss, decay {self.decay:g}{gone_on}"
        exact = ", exact constraint" if self.constraint == "exact" else ""
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        return f"{self.aim}, {self.surrogate}{exact}, from {self.start}{again}"


def log_loss_recipes(decays: Sequence[float], multiclass: bool) -> list[Recipe]:
    """Log-loss with each decay, for labels also with balanced classes."""
    return [
        Recipe(None, decay=decay, balanced=balanced) for balanced in (False, True)[: 2 - multiclass] for decay in decays
    ]


def aim_recipes(aim: Aim, decay: float, restarts: int) -> list[Recipe]:
    """The aim and its area, with convex and tight surrogates, from log-loss and, `restarts` times, from scratch.

    Convex bounds are loose. At a point they stop far on the safe side of the constraint, so the exact rates drive the
    multiplier there. Over an area the surrogate rates do better.
    """

    def constraint(one: Aim, surrogate: str) -> str:
        return "exact" if surrogate != "sigmoid" and isinstance(one, PointAim) else "surrogate"

    area = AUCPR()
    starts = [("log-loss", 1), *(("scratch", attempt) for attempt in range(1, restarts + 1))]
    aims = [aim] if aim == area else [aim, area]
    return [
        Recipe(one, surrogate, constraint(one, surrogate), start, decay, attempt=attempt)
        for one in aims
        for surrogate in ("hinge", "smooth_hinge", "sigmoid")
        for start, attempt in starts
    ]


def plain(recipe: Recipe) -> bool:
    """Whether it is log-loss without balancing or averaging."""
    return recipe.aim is None and not recipe.balanced and not recipe.averaged
