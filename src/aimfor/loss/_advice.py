"""What a loss says once, as a warning, of an aim that cannot be met or asks nothing."""

import warnings
from typing import TYPE_CHECKING

from torch import Tensor

from aimfor._base import checks
from aimfor._base.warnings import InfeasibleConstraintWarning, VacuousRangeWarning
from aimfor.aims import Anchors, PointAim

if TYPE_CHECKING:
    from aimfor.loss._loss import Loss


def warn_of_infeasible(loss: "Loss") -> None:
    """Warn once of labels whose constraint stays broken at every anchor."""
    if loss.state.warned:
        return
    stuck = loss.state.stuck.all(0)
    if bool(stuck.any()):
        loss.state.warned = True
        ways = ['constraint="exact"'] if loss.constraint == "surrogate" else []
        ways += ['surrogate="sigmoid" with constraint="exact"'] if loss.surrogate.convex else []
        ways += ["an area such as aucpr"] if isinstance(loss.aim, PointAim) else []
        ways += ["a milder target"]
        kind = "exact" if loss.constraint == "exact" else loss.surrogate.name
        warnings.warn(
            f"the {kind} constraint of {str(loss.aim)!r} looks infeasible for {_named(stuck)}: it stays "
            f"broken with its multiplier at the limit or nothing predicted positive; try {', '.join(ways)}",
            InfeasibleConstraintWarning,
            stacklevel=checks.callers_level(),
        )


def warn_of_vacuous(loss: "Loss", anchors: Anchors) -> None:
    """Warn once of labels of which the range asks nothing."""
    if loss.told_of_vacuous:
        return
    # Only ranges of precision can be empty; the width of F_beta may vanish for a while.
    vacuous = (loss.state.taking_part > 0) & ~(anchors.width > 0).any(0) & (anchors.multiplier is None)
    if bool(vacuous.any()):
        loss.told_of_vacuous = True
        warnings.warn(
            f"{str(loss.aim)!r} asks nothing of {_named(vacuous)}: their share of positives is above the "
            "range of precision, so every threshold is; they do not train for it",
            VacuousRangeWarning,
            stacklevel=checks.callers_level(),
        )


def _named(labels: Tensor) -> str:
    """How many of the labels these are, and which, or the first five."""
    numbers = labels.nonzero().flatten().tolist()
    shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
    return f"{len(numbers)} of {len(labels)} labels ({shown})"
