"""Aims at one number that has no constraint: F_beta and expected cost."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aimfor import metrics
from aimfor._base import checks
from aimfor.aims._format import Target, show_target
from aimfor.aims._records import Aim, per_label
from aimfor.aims._table import Anchors, Rates, as_row


@dataclass(frozen=True)
class FBeta(Aim):
    """F_beta at its best threshold; "f1", "f2", "f0.5".

    The paper's form: minimise (beta^2 + kappa v) / psi subject to psi <= 1 - u, with multiplier lambda. That problem
    is not jointly convex in psi and v, so both follow their fixed point at the running rates instead of descent and
    ascent: psi = max(floor, 1 - u) and lambda = (beta^2 + kappa v) / psi^2. The width scales this to the gradient of
    -F_beta, which changes no minimiser and stays bounded where psi is small. By default u and v are the
    exact rates: a loose bound makes F_beta look low, and a low F_beta spares false positives.

    Args:
        beta: how many times as much recall counts as precision; a tuple gives one per label.

    Example:
        >>> FBeta(1).metric([1, 0, 1], [3, 2, 1])
        0.8
    """

    beta: Target = 1.0

    follows_rates: ClassVar[bool] = True
    default_surrogate: ClassVar[str] = "hinge"
    default_log_loss: ClassVar[float] = 0.8
    # With an unbounded surrogate u starts above 1; psi must stay positive for the weights to make sense.
    floor: ClassVar[float] = 0.01

    def __post_init__(self):
        for value in checks.as_tuple("beta", self.beta):
            checks.in_range("beta", value, 0.001, 1000)

    @property
    def anchor_count(self) -> int:
        return 1

    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        beta2 = as_row(self.beta, priors).square()
        kappa = (1 - priors) / priors
        psi = rates.recall.clamp(min=self.floor)
        cost = beta2 + kappa * rates.v
        width = (1 + beta2) * (psi / (cost + psi)).square()
        one, zero, nothing = (as_row(value, priors) for value in (1.0, 0.0, torch.nan))
        return Anchors(nothing, width, zero, kappa / psi, one, zero, 1 - psi, zero, multiplier=cost / psi.square())

    def metric(self, y_true, y_score, *, sample_weight=None):
        return metrics.f_beta(y_true, y_score, self.beta, sample_weight=sample_weight).value

    def label_counts(self) -> set[int]:
        return per_label(self.beta)

    def __str__(self) -> str:
        return "f" + show_target(self.beta)


@dataclass(frozen=True)
class Cost(Aim):
    """Least expected cost per row at its best threshold; "cost[fp=1,fn=20]".

    Args:
        fp: cost of a false positive; a tuple gives one per label.
        fn: cost of a false negative; a tuple gives one per label.

    Example:
        >>> Cost(fp=1, fn=20).metric([1, 0, 1, 0], [4, 3, 2, 1])
        0.25
    """

    fp: Target
    fn: Target

    greater_is_better: ClassVar[bool] = False

    def __post_init__(self):
        for name in ("fp", "fn"):
            for value in checks.as_tuple(name, getattr(self, name)):
                checks.in_range(name, value, 1e-6, 1e6)
        counts = sorted(self.label_counts())
        checks.rule(len(counts) < 2, "fp and fn", "must have as many entries", counts)

    @property
    def anchor_count(self) -> int:
        return 1

    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        one, zero, nothing = (as_row(value, priors) for value in (1.0, 0.0, torch.nan))
        missed, false = as_row(self.fn, priors) * priors, as_row(self.fp, priors) * (1 - priors)
        # There is no constraint, so its multiplier stays at 0.
        return Anchors(nothing, one, missed, false, zero, zero, one, zero, multiplier=zero.expand_as(missed))

    def metric(self, y_true, y_score, *, sample_weight=None):
        return metrics.expected_cost(y_true, y_score, self.fp, self.fn, sample_weight=sample_weight).value

    def label_counts(self) -> set[int]:
        return per_label(self.fp, self.fn)

    def __str__(self) -> str:
        return f"cost[fp={show_target(self.fp)},fn={show_target(self.fn)}]"
