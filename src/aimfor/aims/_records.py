"""Aims as records. Each gives a table of numbers in the two error rates u and v.

For one label, with threshold b and a surrogate at or above the 0-1 loss,

    u(b) = L+ / |Y+| >= 1 - recall        v(b) = L- / |Y-| >= false-positive rate

An aim is a list of anchors. Each anchor is a small problem: minimise a linear function of u and v while another one
stays at or below its bound. The widths of the anchors add up to 1. kappa = (1 - prior) / prior turns v into false
positives per positive. Constraints are scaled so that their room is at most 1. Then multipliers are of order 1, whether
the target is precision 0.5 or a false-positive rate of 0.0001.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from aimfor import metrics
from aimfor._base import checks
from aimfor.aims._format import Target, show_options, show_target
from aimfor.aims._rates import Question, rate_of
from aimfor.aims._table import Anchors, Rates, as_row


class Aim(ABC):
    """What to train for. Make a record by its class, or from its text by `aim`.

    Example:
        >>> import aimfor
        >>> isinstance(aimfor.aim("f1"), Aim)
        True
    """

    greater_is_better: ClassVar[bool] = True
    follows_rates: ClassVar[bool] = False  # whether the table depends on the running rates
    default_constraint: ClassVar[str] = "exact"  # of the loss, if none is asked for
    default_log_loss: ClassVar[float] = 0.5  # its share, likewise
    default_surrogate: ClassVar[str] = "smooth_hinge"

    @property
    @abstractmethod
    def anchor_count(self) -> int:
        """Number of anchors, K."""

    @abstractmethod
    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        """The table of the aim.

        Args:
            priors: `[L]`, share of positives per label, strictly between 0 and 1.
            rates: running rates, `[K, L]`, of the surrogate or, with an exact constraint, exact; only F_beta and
                alerts look at them.
        """

    @property
    def counts_by_rates(self) -> bool:
        """Whether anchors count by the exact running rates, as `counted` says."""
        return False

    def counted(self, anchors: Anchors, priors: Tensor, rates: Rates) -> Anchors:
        """The table with widths by which its anchors count in training.

        Args:
            anchors: the table of the aim.
            priors: `[L]`, share of positives per label.
            rates: exact running rates, `[K, L]`.
        """
        return anchors

    @abstractmethod
    def metric(self, y_true, y_score, *, sample_weight=None) -> Any:
        """The exact metric that judges this aim: a float, or an array with one value per column."""

    @abstractmethod
    def label_counts(self) -> set[int]:
        """The numbers of labels that its targets are written for; empty if it fits any number."""


def per_label(*values) -> set[int]:
    """Lengths of those values that are tuples."""
    return {len(value) for value in values if isinstance(value, tuple)}


class PointAim(Aim):
    """An aim at one target, its first field, optionally trained on a band of anchors around it.

    A subclass names its two rates and the sense of its constraint, and the registry of rates has the rest. Once it is
    defined, `aim` can read its text.
    """

    band: float | None
    num_anchors: int | None
    objective: ClassVar[str]
    constrained: ClassVar[str]
    sense: ClassVar[str]
    text: ClassVar[str]

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        for name in ("objective", "constrained", "sense"):
            if not isinstance(getattr(cls, name, None), str):
                raise TypeError(f"{cls.__name__} must have `{name}` as a text, as RecallAtPrecision has")
        question = Question(cls.objective, cls.constrained, cls.sense)
        question.check()
        cls.greater_is_better = rate_of(cls.objective).greater_is_better
        cls.follows_rates = rate_of(cls.constrained).follows_rates
        cls.text = f"{cls.objective}@{cls.constrained}{cls.sense}"
        POINT_AIMS[cls.text] = cls

    def __new__(cls, *values, **named):
        check_record(cls)
        return super().__new__(cls)

    @property
    def question(self) -> Question:
        """The two rates and the sense."""
        return _question(self.objective, self.constrained, self.sense)

    @property
    def tradeoff(self) -> metrics.Tradeoff:
        """The question with the counts of its two rates."""
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
        slack = _slacks(self, priors.dtype, priors.device)
        return self.question.table(slack, as_row(1 / self.anchor_count, priors), priors, rates)

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


def check_record(kind: type[PointAim]) -> None:
    """Refuse a class that is no record with a target; a class becomes a dataclass only after it has been made."""
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # pyright: ignore[reportAttributeAccessIssue]
    if not frozen or not {"band", "num_anchors"} <= set(names[1:]):
        raise TypeError(
            f"{kind.__name__} must be a dataclass with frozen=True, its target as the first field, and the fields "
            "band and num_anchors after it"
        )


POINT_AIMS: dict[str, type[PointAim]] = {}
"""All aims at one target by the text before it, such as "recall@precision>=". """


# The loss asks for its table at every batch, where a small tensor takes as long as the counting of a small batch.
@lru_cache(maxsize=256)
def _slacks(aim: PointAim, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The slack of each anchor, `[K, 1]` or `[K, L]`."""
    slack = aim._slack(torch.tensor(aim.target, dtype=dtype, device=device).view(1, -1))
    if aim.band is None:
        return slack
    exponents = torch.linspace(1, -1, aim.anchor_count, dtype=dtype, device=device)
    return slack * (aim.band**exponents).unsqueeze(1)


@lru_cache(maxsize=256)
def _question(objective: str, constrained: str, sense: str) -> Question:
    return Question(objective, constrained, sense)


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
    """Most precision while recall stays at or above a minimum; "precision@recall>=0.95". See RecallAtPrecision.

    Example:
        >>> str(PrecisionAtRecall(0.95))
        'precision@recall>=0.95'
    """

    min_recall: Target
    band: float | None = None
    num_anchors: int | None = None

    objective: ClassVar[str] = "precision"
    constrained: ClassVar[str] = "recall"
    sense: ClassVar[str] = ">="


@dataclass(frozen=True)
class TPRAtFPR(PointAim):
    """Highest true-positive rate at or below a false-positive rate; "tpr@fpr<=0.01". See RecallAtPrecision.

    Example:
        >>> str(TPRAtFPR(0.01))
        'tpr@fpr<=0.01'
    """

    max_fpr: Target
    band: float | None = None
    num_anchors: int | None = None

    objective: ClassVar[str] = "tpr"
    constrained: ClassVar[str] = "fpr"
    sense: ClassVar[str] = "<="


@dataclass(frozen=True)
class FPRAtTPR(PointAim):
    """Lowest false-positive rate at or above a true-positive rate; "fpr@tpr>=0.9". See RecallAtPrecision.

    Example:
        >>> str(FPRAtTPR(0.9))
        'fpr@tpr>=0.9'
    """

    min_tpr: Target
    band: float | None = None
    num_anchors: int | None = None

    objective: ClassVar[str] = "fpr"
    constrained: ClassVar[str] = "tpr"
    sense: ClassVar[str] = ">="


@dataclass(frozen=True)
class RecallAtAlerts(PointAim):
    """Most recall while at most this share of the rows is flagged; "recall@alerts<=0.01". See RecallAtPrecision.

    A budget of alerts includes the true ones, so no surrogate bounds it: exact rates must drive the multiplier.

    Example:
        >>> RecallAtAlerts(0.5).metric([1, 0, 1, 0], [4, 3, 2, 1])
        0.5
    """

    max_alerts: Target
    band: float | None = None
    num_anchors: int | None = None

    objective: ClassVar[str] = "recall"
    constrained: ClassVar[str] = "alerts"
    sense: ClassVar[str] = "<="


@dataclass(frozen=True)
class PrecisionAtAlerts(PointAim):
    """Most precision while at least this share is flagged; "precision@alerts>=0.001". See RecallAtAlerts.

    Example:
        >>> round(PrecisionAtAlerts(0.5).metric([1, 0, 1, 0], [4, 3, 2, 1]), 3)
        0.667
    """

    min_alerts: Target
    band: float | None = None
    num_anchors: int | None = None

    objective: ClassVar[str] = "precision"
    constrained: ClassVar[str] = "alerts"
    sense: ClassVar[str] = ">="
