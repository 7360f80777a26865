"""The registry of rates: everything the package knows about precision, recall, the false-positive rate and others.

An aim names two rates. Its exact metric, its row in the loss, its threshold and the sentence of the report all read
this registry. So a rate that is registered here works everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from aimfor.aims._table import Anchors, Rates, as_row, one_and_zero
from aimfor.metrics import ALERTS, FPR, PRECISION, RECALL, Share

# How an exact test goes through the thresholds. A fixed sequence is for a rate that never rises with the threshold. A
# walk from the top is for a share of the rows above the threshold.
FIXED_SEQUENCE, WALK = "fixed sequence", "walk"

ROUND_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
ROUND_SMALL_SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


class Constraint(NamedTuple):
    """load_u u + load_v v <= room + room_recall recall, see `Anchors`."""

    load_u: Tensor
    load_v: Tensor
    room: Tensor
    room_recall: Tensor


Constrain = Callable[[Tensor, Tensor, Tensor | None, Rates], Constraint]
"""From slack, priors, 1 - priors where that is known, and running rates, to the constraint of the loss."""


@dataclass(frozen=True)
class Rate:
    """A rate that aims can name.

    Attributes:
        name: as results store it.
        share: which counts it is the share of.
        title: its name in a sentence.
        deed: what a model with this rate does, with {} for the share.
        greater_is_better: whether a higher value is better when it is the objective.
        cost: "u" or "v", the error that the loss minimises when the rate is the objective; None if it cannot be one.
        constrain: its constraint in the loss for each possible sense, ">=" or "<=".
        slack_from_one: whether the slack of a target is 1 - target; otherwise it is the target.
        follows_rates: whether the constraint reads the running rates.
        test: `FIXED_SEQUENCE` or `WALK`; None if no exact test is known, which refuses a confidence.
        round_targets: the targets for which the report makes a statement.
    """

    name: str
    share: Share
    title: str
    deed: str
    greater_is_better: bool = True
    cost: str | None = None
    constrain: Mapping[str, Constrain] = field(default_factory=dict)
    slack_from_one: bool = True
    follows_rates: bool = False
    test: str | None = None
    round_targets: tuple[float, ...] = ROUND_SHARES

    def __post_init__(self):
        """Raise if a field has a value that no reader of the registry could use."""
        if self.cost not in (None, "u", "v"):
            raise ValueError(f"cost of the rate {self.name!r} must be 'u', 'v' or None, got {self.cost!r}")
        for sense in self.constrain:
            if sense not in (">=", "<="):
                raise ValueError(f"a sense of the rate {self.name!r} must be '>=' or '<=', got {sense!r}")
        if self.test not in (None, FIXED_SEQUENCE, WALK):
            raise ValueError(f"test of the rate {self.name!r} must be in the list of tests, got {self.test!r}")
        if self.test == FIXED_SEQUENCE and not self.share.falls:
            raise ValueError(f"the rate {self.name!r} may rise with the threshold, so it needs another test")
        if self.test == WALK and self.share[1:] != PRECISION[1:]:
            raise ValueError(f"the rate {self.name!r} must be the share of positives above the threshold for a walk")


def _precision_at_least(slack: Tensor, priors: Tensor, rest: Tensor | None, rates: Rates) -> Constraint:
    """kappa a / (1 - a) v <= recall: the paper's eq. (minp@r), divided by 1 - a."""
    one, zero = one_and_zero(priors)
    # A new tensor from a number would take longer than the rest of a small table.
    kappa = (one - priors if rest is None else rest) / priors
    return Constraint(zero, (kappa / slack).sub_(kappa), zero, one)


def _recall_at_least(slack: Tensor, priors: Tensor, rest: Tensor | None, rates: Rates) -> Constraint:
    """u / (1 - r) <= 1."""
    one, zero = one_and_zero(priors)
    return Constraint(slack.reciprocal(), zero, one, zero)


def _fpr_at_most(slack: Tensor, priors: Tensor, rest: Tensor | None, rates: Rates) -> Constraint:
    """v / q <= 1."""
    one, zero = one_and_zero(priors)
    return Constraint(zero, slack.reciprocal(), one, zero)


# The share of alerts grows with recall and with the false-positive rate. To let the loss lower recall for the sake of a
# budget would reward missed positives, without a bound. So the budget that true alarms take is read from the running
# rates, and the constraint is on the other error alone. Where it is met with equality, that has the same minimisers.


def _alerts_at_most(slack: Tensor, priors: Tensor, rest: Tensor | None, rates: Rates) -> Constraint:
    """(1 - prior) v / q <= 1 - prior recall / q, with the running recall."""
    zero = as_row(0.0, priors)
    load = (1 - priors if rest is None else rest) / slack
    return Constraint(zero, load, 1 - priors / slack * rates.recall.clamp(0, 1), zero)


def _alerts_at_least(slack: Tensor, priors: Tensor, rest: Tensor | None, rates: Rates) -> Constraint:
    """1 <= prior recall / q + (1 - prior) v / q, with the running v."""
    zero = as_row(0.0, priors)
    false_alarms = (1 - priors if rest is None else rest) / slack * rates.v.clamp(0, 1)
    return Constraint(zero, zero, false_alarms - 1, priors / slack)


RATES: dict[str, Rate] = {}
"""Rates by the names that aims use for them; two names may mean one rate."""


def register_rate(rate: Rate, *other_names: str) -> None:
    """Register a rate under its name and other names.

    Raises:
        ValueError: for a name that is taken or that cannot be part of the text of an aim.
    """
    for name in (rate.name, *other_names):
        if not (name.isascii() and name.isalpha() and name.islower()):
            raise ValueError(f"the name of a rate must be of lower-case letters, got {name!r}")
        if name in RATES:
            raise ValueError(f"the name of a rate must be new, got {name!r}")
    RATES.update(dict.fromkeys((rate.name, *other_names), rate))


def rate_of(name: str) -> Rate:
    """The rate of this name.

    Raises:
        ValueError: for a name that is not in the registry.

    Example:
        >>> rate_of("tpr").name
        'recall'
    """
    if name not in RATES:
        raise ValueError(f"a rate must be one of {', '.join(map(repr, RATES))}, got {name!r}")
    return RATES[name]


register_rate(
    Rate(
        "precision",
        PRECISION,
        title="precision",
        deed="is right in {} of its alarms",
        cost="v",  # at a given recall, fewest false positives
        constrain={">=": _precision_at_least},
        test=WALK,
    )
)
register_rate(
    Rate(
        "recall",
        RECALL,
        title="recall",
        deed="finds {} of the positives",
        cost="u",
        constrain={">=": _recall_at_least},
        test=FIXED_SEQUENCE,
    ),
    "tpr",
)
register_rate(
    Rate(
        "fpr",
        FPR,
        title="false-positive rate",
        deed="gives an alarm for {} of the negatives",
        greater_is_better=False,
        cost="v",
        constrain={"<=": _fpr_at_most},
        slack_from_one=False,
        test=FIXED_SEQUENCE,
        round_targets=ROUND_SMALL_SHARES,
    )
)
register_rate(
    Rate(
        "alerts",
        ALERTS,
        title="share of alerts",
        deed="gives an alarm for {} of the rows",
        greater_is_better=False,
        constrain={"<=": _alerts_at_most, ">=": _alerts_at_least},
        slack_from_one=False,
        follows_rates=True,
        test=FIXED_SEQUENCE,
        round_targets=ROUND_SMALL_SHARES,
    )
)


class Question(NamedTuple):
    """Two rates and a sense, such as "most recall with precision >= ...": an aim without its numbers."""

    objective: str
    constrained: str
    sense: str

    def check(self) -> None:
        """Raise if a rate is not registered, or not for this use."""
        if rate_of(self.objective).cost is None:
            raise ValueError(f"the rate {self.objective!r} has no cost in the loss, so it cannot be an objective")
        senses = rate_of(self.constrained).constrain
        if self.sense not in senses:
            known = ", ".join(f"'{self.constrained}{sense}'" for sense in senses) or "no constraint"
            raise ValueError(f"the registry has {known}, got '{self.constrained}{self.sense}'")

    def table(
        self, slack: Tensor, width: Tensor, priors: Tensor, rates: Rates, *, rest: Tensor | None = None
    ) -> Anchors:
        """Anchors with these slacks. `rest` is 1 - priors if that is known.

        Entries that do not change along an axis have length 1 there.
        """
        one, zero = one_and_zero(priors)
        rate = RATES[self.constrained]
        constraint = rate.constrain[self.sense](slack, priors, rest, rates)
        objective = (one, zero) if RATES[self.objective].cost == "u" else (zero, one)
        return Anchors(slack, width, *objective, *constraint, strict_at_one=rate.slack_from_one)
