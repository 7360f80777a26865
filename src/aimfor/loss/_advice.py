"""What a loss says as a warning, of an aim that cannot be met or asks nothing, and of a state of another aim."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from aimfor._base import checks
from aimfor._base.warnings import InfeasibleConstraintWarning, OtherAimWarning, VacuousRangeWarning
from aimfor.aims import Aim, Anchors, PointAim
from aimfor.loss._state import LOOK_EVERY, State

if TYPE_CHECKING:
    from aimfor.loss._loss import Loss


def at_a_look(state: State) -> bool:
    """Whether this batch is one after which a loss looks for something to say."""
    return state.batches == 1 or state.batches % LOOK_EVERY == 0


def advise(aim: Aim, losses: Sequence["Loss"], tables: Sequence[Anchors]) -> None:
    """Warn once of labels that cannot be met, and once of labels of which nothing is asked.

    Args:
        aim: of all labels.
        losses: of some labels each, in order.
        tables: of the aim, one for each loss.
    """
    _warn_of_infeasible(aim, losses)
    _warn_of_vacuous(aim, losses, tables)


def _warn_of_infeasible(aim: Aim, losses: Sequence["Loss"]) -> None:
    """Warn once of labels whose constraint stays broken at every anchor."""
    if any(loss.state.warned for loss in losses):
        return
    stuck = torch.cat([loss.state.stuck.all(0) for loss in losses])
    if bool(stuck.any()):
        for loss in losses:
            loss.state.warned = True
        loss = losses[0]
        ways = ['constraint="exact"'] if loss.constraint == "surrogate" else []
        ways += ['surrogate="sigmoid" with constraint="exact"'] if loss.surrogate.convex else []
        ways += ["an area such as aucpr"] if isinstance(aim, PointAim) else []
        ways += ["a milder target"]
        kind = "exact" if loss.constraint == "exact" else loss.surrogate.name
        warnings.warn(
            f"the {kind} constraint of {str(aim)!r} looks infeasible for {_named(stuck)}: it stays "
            f"broken with its multiplier at the limit or nothing predicted positive; try {', '.join(ways)}",
            InfeasibleConstraintWarning,
            stacklevel=checks.callers_level(),
        )


def _warn_of_vacuous(aim: Aim, losses: Sequence["Loss"], tables: Sequence[Anchors]) -> None:
    """Warn once of labels of which the range asks nothing."""
    if any(loss.told_of_vacuous for loss in losses):
        return
    vacuous = torch.cat([_vacuous(*pair) for pair in zip(losses, tables, strict=True)])
    if bool(vacuous.any()):
        for loss in losses:
            loss.told_of_vacuous = True
        warnings.warn(
            f"{str(aim)!r} asks nothing of {_named(vacuous)}: their share of positives is above the "
            "range of precision, so every threshold is; they do not train for it",
            VacuousRangeWarning,
            stacklevel=checks.callers_level(),
        )


def _vacuous(loss: "Loss", anchors: Anchors) -> Tensor:
    # Only ranges of precision can be empty; the width of F_beta may vanish for a while.
    return (loss.state.taking_part > 0) & ~(anchors.width > 0).any(0) & (anchors.multiplier is None)


def warn_of_other_aim(saved: str, own: str) -> None:
    """Warn that a saved state is of no use here.

    Args:
        saved: what it is about.
        own: what the loss that loads is about.
    """
    warnings.warn(
        f"the saved state is of a loss for {saved!r}: the loss for {own!r} starts anew",
        OtherAimWarning,
        stacklevel=checks.callers_level(),
    )


def _named(labels: Tensor) -> str:
    """How many of the labels these are, and which, or the first five."""
    numbers = labels.nonzero().flatten().tolist()
    shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
    return f"{len(numbers)} of {len(labels)} labels ({shown})"
