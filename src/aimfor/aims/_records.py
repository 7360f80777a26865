"""Aim: what is asked for, as a table of numbers in the two error rates u and v.

For one label, with threshold b and a surrogate at or above the 0-1 loss,

    u(b) = L+ / |Y+| >= 1 - recall        v(b) = L- / |Y-| >= false-positive rate

An aim is a list of anchors. Each anchor is a small problem, "minimise a linear function of u and v while another one
stays at or below its bound"; the widths of the anchors add up to 1. kappa = (1 - prior) / prior turns v into false
positives per positive. Constraints are divided through so that their room is at most 1: then multipliers are of order 1
whether the target is precision 0.5 or a false-positive rate of 0.0001.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from aimfor import metrics
from aimfor._base import checks
from aimfor.aims._format import Target, show_options, show_range, show_target
from aimfor.aims._rates import Question, rate_of
from aimfor.aims._table import Anchors, Rates, as_row, cells, ends, plain_ends

# The anchors of areas are points of these.
RECALL_AT_PRECISION = Question("recall", "precision", ">=")
PRECISION_AT_RECALL = Question("precision", "recall", ">=")
TPR_AT_FPR = Question("tpr", "fpr", "<=")


class Aim(ABC):
    """What to train for. Records of this kind are made by their class or from their text by `aim`."""

    greater_is_better: ClassVar[bool] = True
    follows_rates: ClassVar[bool] = False  # whether the table depends on the running rates

    @property
    @abstractmethod
    def anchor_count(self) -> int:
        """Number of anchors, K."""

    @abstractmethod
    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        """The table of the aim.

        Args:
            priors: `[L]`, share of positives per label, strictly between 0 and 1.
            rates: running rates, `[K, L]`, of the surrogate or, with an exact constraint, exact; only F_beta looks at
                them.
        """

    @abstractmethod
    def metric(self, y_true, y_score, *, sample_weight=None) -> Any:
        """The exact metric that judges this aim: a float, or an array with one value per column."""

    @abstractmethod
    def label_counts(self) -> set[int]:
        """The numbers of labels its per-label targets are written for; empty when they fit any number."""


def per_label(*values) -> set[int]:
    """Lengths of those values that are tuples."""
    return {len(value) for value in values if isinstance(value, tuple)}


class PointAim(Aim):
    """An aim at one target, its first field, optionally trained on a band of anchors around it.

    A subclass names its two rates and the sense of its constraint; the registry of rates knows the rest. It is known
    to `aim` by its text as soon as it is defined.
    """

    band: float | None
    num_anchors: int | None
    objective: ClassVar[str]
    constrained: ClassVar[str]
    sense: ClassVar[str]
    text: ClassVar[str]

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        question = Question(cls.objective, cls.constrained, cls.sense)
        question.check()
        cls.greater_is_better = rate_of(cls.objective).greater_is_better
        cls.text = f"{cls.objective}@{cls.constrained}{cls.sense}"
        POINT_AIMS[cls.text] = cls

    @property
    def question(self) -> Question:
        """The two rates and the sense."""
        return Question(self.objective, self.constrained, self.sense)

    @property
    def tradeoff(self) -> metrics.Tradeoff:
        """The same, with the counts that the rates are shares of."""
        objective, constrained = (
            rate_of(name).share._replace(name=name) for name in (self.objective, self.constrained)
        )
        return metrics.Tradeoff(objective, self.greater_is_better, constrained, self.sense == ">=")

    @property
    def target(self) -> Target:
        """The number asked for."""
        return getattr(self, target_field(self))

    @property
    def anchor_count(self) -> int:
        return 1 if self.band is None else self.num_anchors or 5

    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        slack = self._slack(as_row(self.target, priors))
        if self.band is not None:
            exponents = torch.linspace(1, -1, self.anchor_count, dtype=priors.dtype, device=priors.device)
            slack = slack * (self.band**exponents).unsqueeze(1)
        return self.question.table(slack, as_row(1 / self.anchor_count, priors), priors)

    def _slack(self, target):
        return 1 - target if rate_of(self.constrained).slack_from_one else target

    def metric(self, y_true, y_score, *, sample_weight=None):
        return metrics.at_constraint(self.tradeoff, y_true, y_score, self.target, sample_weight=sample_weight).value

    def label_counts(self) -> set[int]:
        return per_label(self.target)

    def __post_init__(self):
        name = target_field(self)
        checks.targets(name, self.target)
        if self.num_anchors is not None:
            checks.rule(self.band is not None, "num_anchors", "must be left out without a band", self.num_anchors)
            checks.whole_number("num_anchors", self.num_anchors, at_least=2)
        if self.band is not None:
            checks.positive_number("band", self.band, above=1)
            for value in checks.as_tuple(name, self.target):
                all_inside = self._slack(value) * self.band < 1
                checks.rule(all_inside, "band", f"must keep all anchors around {value} in (0, 1)", self.band)

    def __str__(self) -> str:
        return self.text + show_target(self.target) + show_options(self)


POINT_AIMS: dict[str, type[PointAim]] = {}
"""All aims at one target by the text before it, such as "recall@precision>=". """


def target_field(record) -> str:
    """Name of the field that holds the target."""
    return fields(record)[0].name


@dataclass(frozen=True)
class RecallAtPrecision(PointAim):
    """Most recall while precision stays at or above a minimum; "recall@precision>=0.9".

    Args:
        min_precision: in (0, 1); a tuple gives one per label.
        band: train on `num_anchors` precisions around it, whose slack (1 - precision) runs from `band` times to
            1/`band` of the target's: `band=2` around 0.9 is 0.8 to 0.95. None trains at the target alone.
        num_anchors: number of anchors in the band, 5 if None; only with a band.

    Example:
        >>> str(RecallAtPrecision(0.9, band=2))
        'recall@precision>=0.9; band=2'
    """

    min_precision: Target
    band: float | None = None
    num_anchors: int | None = None

    objective: ClassVar[str] = "recall"
    constrained: ClassVar[str] = "precision"
    sense: ClassVar[str] = ">="


@dataclass(frozen=True)
class PrecisionAtRecall(PointAim):
    """Most precision while recall stays at or above a minimum; "precision@recall>=0.95". See RecallAtPrecision."""

    min_recall: Target
    band: float | None = None
    num_anchors: int | None = None

    objective: ClassVar[str] = "precision"
    constrained: ClassVar[str] = "recall"
    sense: ClassVar[str] = ">="


@dataclass(frozen=True)
class TPRAtFPR(PointAim):
    """Highest true-positive rate at or below a false-positive rate; "tpr@fpr<=0.01". See RecallAtPrecision."""

    max_fpr: Target
    band: float | None = None
    num_anchors: int | None = None

    objective: ClassVar[str] = "tpr"
    constrained: ClassVar[str] = "fpr"
    sense: ClassVar[str] = "<="


@dataclass(frozen=True)
class FPRAtTPR(PointAim):
    """Lowest false-positive rate at or above a true-positive rate; "fpr@tpr>=0.9". See RecallAtPrecision."""

    min_tpr: Target
    band: float | None = None
    num_anchors: int | None = None

    objective: ClassVar[str] = "fpr"
    constrained: ClassVar[str] = "tpr"
    sense: ClassVar[str] = ">="


class AreaAim(Aim):
    """The area under a curve over a range, as the mean over anchors inside it."""

    num_anchors: int
    spacing: str

    @property
    def anchor_count(self) -> int:
        return self.num_anchors

    def check_area(self, *ranges: tuple[str, Target | None, Target | None]) -> None:
        for axis, low, high in ranges:
            checks.target_range(axis, low, high)
        checks.whole_number("num_anchors", self.num_anchors, at_least=1)
        checks.choice("spacing", self.spacing, ("uniform", "geometric"))


@dataclass(frozen=True)
class AUCPR(AreaAim):
    """Area under the precision-recall curve, "aucpr", whole or over a range of precision or of recall.

    Args:
        min_precision, max_precision: mean recall over these precisions; "aucpr[precision>=0.8]",
            "aucpr[0.6<=precision<=0.9]". Anchors lie inside (max(prior, min_precision), max_precision) of each label.
        min_recall, max_recall: mean precision over these recalls; "aucpr[recall>=0.5]".
        num_anchors: number of anchors.
        spacing: "uniform", or "geometric" for anchors that crowd towards precision (recall) 1.
    """

    min_precision: Target | None = None
    max_precision: Target | None = None
    min_recall: Target | None = None
    max_recall: Target | None = None
    num_anchors: int = 10
    spacing: str = "uniform"

    def __post_init__(self):
        self.check_area(
            ("precision", self.min_precision, self.max_precision), ("recall", self.min_recall, self.max_recall)
        )
        names = ("min_precision", "max_precision", "min_recall", "max_recall")
        given = [name for name in names if getattr(self, name) is not None]
        one_axis = len({name[4:] for name in given}) < 2
        checks.rule(one_axis, "AUCPR", "must have a range of precision or a range of recall", " and ".join(given))

    @property
    def _over_recall(self) -> bool:
        return self.min_recall is not None or self.max_recall is not None

    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        if self._over_recall:
            low, high = ends(self.min_recall, self.max_recall, priors)
            slack, width = cells(1 - high, 1 - low, self.num_anchors, self.spacing, downwards=True)
            return PRECISION_AT_RECALL.table(slack, width, priors)
        strict = None if self.max_precision is None else 1 - as_row(self.max_precision, priors)
        least = priors if self.min_precision is None else torch.maximum(as_row(self.min_precision, priors), priors)
        lax = as_row(1.0, priors) - least
        slack, width = cells(strict, lax, self.num_anchors, self.spacing, downwards=True)
        return RECALL_AT_PRECISION.table(slack, width, priors, lax if least is priors else None)

    def metric(self, y_true, y_score, *, sample_weight=None):
        if self._over_recall:
            low, high = plain_ends(self.min_recall, self.max_recall)
            return metrics.mean_precision_over_recall(y_true, y_score, low, high, sample_weight=sample_weight)
        if self.min_precision is None and self.max_precision is None:
            return metrics.average_precision(y_true, y_score, sample_weight=sample_weight)
        low, high = plain_ends(self.min_precision, self.max_precision)
        return metrics.mean_recall_over_precision(y_true, y_score, low, high, sample_weight=sample_weight)

    def label_counts(self) -> set[int]:
        return per_label(self.min_precision, self.max_precision, self.min_recall, self.max_recall)

    def __str__(self) -> str:
        if self._over_recall:
            return "aucpr" + show_range(self.min_recall, "recall", self.max_recall) + show_options(self)
        return "aucpr" + show_range(self.min_precision, "precision", self.max_precision) + show_options(self)


@dataclass(frozen=True)
class AUCROC(AreaAim):
    """Area under the ROC curve, "aucroc", whole or over a range of the false-positive rate; "aucroc[fpr<=0.1]".

    Args:
        min_fpr, max_fpr: mean true-positive rate over these false-positive rates; "aucroc[0.01<=fpr<=0.1]".
        num_anchors: number of anchors.
        spacing: "uniform", or "geometric" for anchors that crowd towards 0.
    """

    min_fpr: Target | None = None
    max_fpr: Target | None = None
    num_anchors: int = 10
    spacing: str = "uniform"

    def __post_init__(self):
        self.check_area(("fpr", self.min_fpr, self.max_fpr))

    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        fpr, width = cells(*ends(self.min_fpr, self.max_fpr, priors), self.num_anchors, self.spacing)
        return TPR_AT_FPR.table(fpr, width, priors)

    def metric(self, y_true, y_score, *, sample_weight=None):
        low, high = plain_ends(self.min_fpr, self.max_fpr)
        return metrics.mean_tpr_over_fpr(y_true, y_score, low, high, sample_weight=sample_weight)

    def label_counts(self) -> set[int]:
        return per_label(self.min_fpr, self.max_fpr)

    def __str__(self) -> str:
        return "aucroc" + show_range(self.min_fpr, "fpr", self.max_fpr) + show_options(self)


@dataclass(frozen=True)
class FBeta(Aim):
    """F_beta at its best threshold; "f1", "f2", "f0.5".

    The paper's form: minimise (beta^2 + kappa v) / psi subject to psi <= 1 - u, with multiplier lambda. That problem
    is not jointly convex in psi and v, so both follow their fixed point at the running rates instead of descent and
    ascent: psi = max(floor, 1 - u) and lambda = (beta^2 + kappa v) / psi^2. The width scales this to the gradient of
    -F_beta, which changes no minimiser and stays bounded where psi is small. With `constraint="exact"` u and v are the
    exact rates: a loose bound makes F_beta look low, and a low F_beta spares false positives.

    Args:
        beta: how many times as much recall counts as precision; a tuple gives one per label.
    """

    beta: Target = 1.0

    follows_rates: ClassVar[bool] = True
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
