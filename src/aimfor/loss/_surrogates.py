"""Surrogates: from a margin to an elementwise loss, scaled to bound the 0-1 loss.

The margin is y (f(x) - b): positive when the example is on its right side of the threshold. A surrogate is a record of
its loss, its slope and what may be said of it. The tight ones (ramp, sigmoid) measure the margin in standard deviations
of the scores, so that their sharpness follows the model as its scores grow.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


def hinge(margin: Tensor) -> Tensor:
    """Hinge bound on the 0-1 loss: max(0, 1 - margin).

    Args:
        margin: y (f(x) - b), positive when the example is on its right side.

    Returns:
        One value per element, never below the 0-1 loss.

    Example:
        >>> hinge(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([2., 1., 0.])
    """
    return (1 - margin).clamp_(min=0)


def hinge_slope(margin: Tensor) -> Tensor:
    """Derivative of the hinge; 0 at the kink, where any value in [-1, 0] is a subgradient."""
    # Compared into floats: a mask of bools takes several times as long.
    return torch.lt(margin, 1.0, out=torch.empty_like(margin)).neg_()


def log(margin: Tensor) -> Tensor:
    """Logistic loss in bits, log2(1 + exp(-margin)): without the division by log 2 it would bound nothing.

    Example:
        >>> log(torch.tensor([0.0]))
        tensor([1.])
    """
    return F.softplus(-margin) / math.log(2)


def log_slope(margin: Tensor) -> Tensor:
    """Derivative of `log`."""
    return -torch.sigmoid(-margin) / math.log(2)


def smooth_hinge(margin: Tensor) -> Tensor:
    """Rennie's smooth hinge, doubled because his is 1/2 at margin 0: (1 - margin)^2 between 0 and 1, linear below.

    Example:
        >>> smooth_hinge(torch.tensor([-1.0, 0.0, 0.5, 2.0]))
        tensor([3.0000, 1.0000, 0.2500, 0.0000])
    """
    inside = margin.clamp(0, 1)
    return (1 - inside).square() - 2 * margin.clamp(max=0)


def smooth_hinge_slope(margin: Tensor) -> Tensor:
    """Derivative of `smooth_hinge`."""
    return -2 * (1 - margin.clamp(0, 1))


# Far on the wrong side a tight surrogate is flat, and nothing there would ever be felt again: not an example by the
# model, not all scores by a threshold that has passed them. A hinge this weak is, and hardly moves the solution.
LEAK = 0.01


def leak(margin: Tensor) -> Tensor:
    """The weak hinge under a tight surrogate."""
    return LEAK * (-margin).clamp(min=0)


def leak_slope(margin: Tensor) -> Tensor:
    """Derivative of `leak`."""
    return -LEAK * (margin < 0).to(margin.dtype)


def ramp(margin: Tensor) -> Tensor:
    """Hinge that levels off below margin 0: beyond one error, an example counts for little more (see LEAK).

    Example:
        >>> ramp(torch.tensor([-1.0, 0.25, 2.0]))
        tensor([1.0100, 0.7500, 0.0000])
    """
    return (1 - margin).clamp(0, 1) + leak(margin)


def ramp_slope(margin: Tensor) -> Tensor:
    """Derivative of `ramp`, at its kinks one of the two: at 0 that of the leak, or scores that are all at their
    threshold would feel nothing."""
    return -LEAK * (margin <= 0).to(margin.dtype) - ((margin > 0) & (margin < 1)).to(margin.dtype)


def sigmoid(margin: Tensor) -> Tensor:
    """sigmoid(-margin): close to the 0-1 loss on both sides of it, a bound on neither (see LEAK).

    Example:
        >>> sigmoid(torch.tensor([0.0]))
        tensor([0.5000])
    """
    return torch.sigmoid(-margin) + leak(margin)


def sigmoid_slope(margin: Tensor) -> Tensor:
    """Derivative of `sigmoid`, from the right at 0."""
    value = torch.sigmoid(-margin)
    return leak_slope(margin) - value * (1 - value)


@dataclass(frozen=True)
class Surrogate:
    """A stand-in for the 0-1 loss.

    Attributes:
        name: how `Loss(surrogate=...)` calls it.
        loss: margin -> loss, elementwise.
        slope: margin -> derivative of the loss, never positive.
        bounds: whether the loss is never below the 0-1 loss.
        convex: whether training may start with it from anywhere.
        sharpness: for tight surrogates, how many units of margin one standard deviation of the scores is;
            None for convex ones, whose margin is the score itself.
    """

    name: str
    loss: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    bounds: bool
    convex: bool
    sharpness: float | None = None

    def __hash__(self) -> int:
        return hash(self.name)  # engines find it in their tables in every batch, and a hash of all fields takes longer


HINGE = Surrogate("hinge", hinge, hinge_slope, bounds=True, convex=True)
LOG = Surrogate("log", log, log_slope, bounds=True, convex=True)
SMOOTH_HINGE = Surrogate("smooth_hinge", smooth_hinge, smooth_hinge_slope, bounds=True, convex=True)
RAMP = Surrogate("ramp", ramp, ramp_slope, bounds=True, convex=False, sharpness=1.0)
SIGMOID = Surrogate("sigmoid", sigmoid, sigmoid_slope, bounds=False, convex=False, sharpness=3.0)

# Every surrogate by its name. The reference counts any of them by its loss and slope; `fused` and `native` count those
# for which they have a curve of their own, and leave the others to the reference.
SURROGATES = {surrogate.name: surrogate for surrogate in (HINGE, LOG, SMOOTH_HINGE, RAMP, SIGMOID)}
