"""Aim: what is asked for, as a table of numbers in the two error rates u and v.

For one label, with threshold b and a surrogate at or above the 0-1 loss,

    u(b) = L+ / |Y+| >= 1 - recall        v(b) = L- / |Y-| >= false-positive rate

An aim is a list of anchors. Each anchor is a small problem, "minimise a linear function of u and v while another one
stays at or below its bound"; the widths of the anchors add up to 1. kappa = (1 - prior) / prior turns v into false
positives per positive. Constraints are divided through so that their room is at most 1: then multipliers are of order 1
whether the target is precision 0.5 or a false-positive rate of 0.0001.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from aimfor import checks, metrics
from aimfor.aim_texts import Target, show_options, show_range, show_target


class Rates(NamedTuple):
    """Error rates, or bounds on them, per anchor and label, `[K, L]`.

    Attributes:
        u: weight of positives missed (or their loss), over the weight of positives to be expected; 1 - recall.
        v: weight of negatives passed (or their loss), over the weight of negatives to be expected; false-positive rate.
        p: `[L]`, weight of positives that came, over the weight to be expected: 1 in the mean, not in every batch.
    """

    u: Tensor
    v: Tensor
    p: Tensor

    @property
    def recall(self) -> Tensor:
        """Weight of positives found over the weight to be expected: from what was found, not from 1 - u, which in a
        batch with few positives would be recall that nobody had."""
        return self.p - self.u


class Anchors(NamedTuple):
    """The table of an aim: minimise the objective while load <= room.

    Each entry is `[K, L]`, or of length 1 along an axis on which it does not change.

    Attributes:
        slack: 1 - precision, 1 - recall or the rate asked for at the anchor (nan where there is none).
        width: share of the anchor in the aim.
        objective_u, objective_v: objective = objective_u u + objective_v v.
        load_u, load_v: load = load_u u + load_v v.
        room, room_recall: room = room + room_recall recall.
        multiplier: the multiplier where the aim has a rule for it; None where it is learned by ascent.
        strict_at_one: whether the target is 1 - slack.
    """

    slack: Tensor
    width: Tensor
    objective_u: Tensor
    objective_v: Tensor
    load_u: Tensor
    load_v: Tensor
    room: Tensor
    room_recall: Tensor
    multiplier: Tensor | None = None
    strict_at_one: bool = True

    @property
    def target(self) -> Tensor:
        """The precision, recall or rate asked for at the anchor."""
        return 1 - self.slack if self.strict_at_one else self.slack

    def objective(self, rates: Rates) -> Tensor:
        """The objective at these rates."""
        return torch.addcmul(self.objective_u * rates.u, self.objective_v, rates.v)

    def violation(self, rates: Rates) -> Tensor:
        """By how much the constraint is broken at these rates; negative where there is room."""
        load = torch.addcmul((self.load_u + self.room_recall) * rates.u, self.load_v, rates.v)
        return load.sub_(self.largest_room(rates.p))

    def size(self, rates: Rates) -> Tensor:
        """The larger of load and room at these rates: what a violation is small or large against."""
        room = torch.addcmul(self.largest_room(rates.p), self.room_recall, rates.u, value=-1)
        load = torch.addcmul(self.load_u * rates.u, self.load_v, rates.v)
        return torch.maximum(load, room.abs_(), out=load)

    def costs(self, multipliers: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients of u and v in the Lagrangian."""
        u_cost = torch.addcmul(self.objective_u, multipliers, self.load_u + self.room_recall)
        return u_cost.mul_(self.width), torch.addcmul(self.objective_v, multipliers, self.load_v).mul_(self.width)

    def largest_room(self, p: Tensor) -> Tensor:
        """The room where no positive is missed; u takes room_recall of it, as if it were load."""
        return self.room + self.room_recall * p


# For the tables of aims that do not look at rates.
NO_RATES = Rates(*(torch.zeros(()) for _ in Rates._fields))


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


@lru_cache(maxsize=64)
def constant(value: Target, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number, or one per label, as a row that broadcasts against `[K, L]`."""
    return torch.tensor(value, dtype=dtype, device=device).view(1, -1)


def as_row(value: Target, like: Tensor) -> Tensor:
    """A target as `[1, 1]` or `[1, L]`."""
    return constant(value, like.dtype, like.device)


# The tables below take the slack of each anchor: 1 - precision, 1 - recall, or the false-positive rate. Entries that do
# not change along an axis have length 1 there.


def recall_at_precision_table(slack: Tensor, width: Tensor, priors: Tensor, rest: Tensor | None = None) -> Anchors:
    """min u subject to kappa a / (1 - a) v <= recall: the paper's eq. (minp@r), divided by 1 - a; `rest` is 1 - priors
    where that is known."""
    one, zero = as_row(1.0, priors), as_row(0.0, priors)
    # A tensor from a number would take longer than the rest of a small table.
    kappa = (one - priors if rest is None else rest) / priors
    return Anchors(slack, width, one, zero, zero, (kappa / slack).sub_(kappa), zero, one)


def v_at_recall_table(slack: Tensor, width: Tensor, priors: Tensor) -> Anchors:
    """min v subject to u / (1 - r) <= 1: precision at recall, and false-positive rate at recall, have one minimiser."""
    one, zero = as_row(1.0, priors), as_row(0.0, priors)
    return Anchors(slack, width, zero, one, slack.reciprocal(), zero, one, zero)


def u_at_fpr_table(slack: Tensor, width: Tensor, priors: Tensor) -> Anchors:
    """min u subject to v / q <= 1: true-positive rate at a false-positive rate."""
    one, zero = as_row(1.0, priors), as_row(0.0, priors)
    return Anchors(slack, width, one, zero, zero, slack.reciprocal(), one, zero, strict_at_one=False)


@lru_cache(maxsize=64)
def middles(count: int, downwards: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The middles of equal cells of [0, 1], `[K, 1]`."""
    upwards = (torch.arange(count, dtype=dtype, device=device).unsqueeze(1) + 0.5) / count
    return upwards.flip(0) if downwards else upwards


def cells(
    low: Tensor | None, high: Tensor, count: int, spacing: str, *, downwards: bool = False
) -> tuple[Tensor, Tensor]:
    """Cut ranges into cells and give their middles and widths, `[K, L]`, the widths of a range adding up to 1.

    The range is that of the slack (1 - precision, 1 - recall, or the false-positive rate), so that small means strict.
    Geometric cells shrink towards the strict end by equal factors; where the range reaches down to 0, by halves, or
    less with so many anchors that halves would end below a ten-thousandth of it.
    An empty range (low >= high) gets width 0; `low` may be None for 0. Downwards, the lax end comes first.
    """
    if spacing == "uniform":
        parts = middles(count, downwards, high.dtype, high.device)
        if low is None:
            return high * parts, as_row(1 / count, high)
        length = (high - low).clamp(min=0)
        return low + length * parts, (length > 0).to(low.dtype) / count
    if downwards:
        middle, width = cells(low, high, count, spacing)
        return middle.flip(0), width.flip(0)
    low = torch.zeros_like(high) if low is None else low
    high = torch.maximum(low, high)
    steps = torch.arange(count + 1, dtype=low.dtype, device=low.device).unsqueeze(1)
    tiny = torch.finfo(low.dtype).tiny
    by_factor = low * (high.clamp(min=tiny) / low.clamp(min=tiny)) ** (steps / count)
    shrink = max(0.5, 1e-4 ** (1 / max(1, count - 1)))
    by_halves = high * shrink ** (count - steps) * (steps > 0)
    edges = torch.where(low > 0, by_factor, by_halves)
    widths = edges.diff(dim=0)
    total = widths.sum(0)
    return (edges[1:] + edges[:-1]) / 2, torch.where(total > 0, widths / total.clamp(min=1e-30), 0.0)


class PointAim(Aim):
    """An aim at one target, its first field, optionally trained on a band of anchors around it."""

    band: float | None
    num_anchors: int | None
    text: ClassVar[str]
    exact: ClassVar[Callable[..., metrics.AtThreshold]]
    table: ClassVar[Callable[[Tensor, Tensor, Tensor], Anchors]]
    strict_at_one: ClassVar[bool] = True

    @property
    def target(self) -> Target:
        """The number asked for."""
        return getattr(self, target_field(self))

    @property
    def anchor_count(self) -> int:
        return 1 if self.band is None else self.num_anchors or 5

    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        target = as_row(self.target, priors)
        slack = 1 - target if self.strict_at_one else target
        if self.band is not None:
            exponents = torch.linspace(1, -1, self.anchor_count, dtype=priors.dtype, device=priors.device)
            slack = slack * (self.band**exponents).unsqueeze(1)
        return type(self).table(slack, as_row(1 / self.anchor_count, priors), priors)

    def metric(self, y_true, y_score, *, sample_weight=None):
        return type(self).exact(y_true, y_score, self.target, sample_weight=sample_weight).value

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
                slack = 1 - value if self.strict_at_one else value
                checks.rule(slack * self.band < 1, "band", f"must keep all anchors around {value} in (0, 1)", self.band)

    def __str__(self) -> str:
        return self.text + show_target(self.target) + show_options(self)


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

    text: ClassVar[str] = "recall@precision>="
    exact: ClassVar = staticmethod(metrics.recall_at_precision)
    table: ClassVar = staticmethod(recall_at_precision_table)


@dataclass(frozen=True)
class PrecisionAtRecall(PointAim):
    """Most precision while recall stays at or above a minimum; "precision@recall>=0.95". See RecallAtPrecision."""

    min_recall: Target
    band: float | None = None
    num_anchors: int | None = None

    text: ClassVar[str] = "precision@recall>="
    exact: ClassVar = staticmethod(metrics.precision_at_recall)
    table: ClassVar = staticmethod(v_at_recall_table)


@dataclass(frozen=True)
class TPRAtFPR(PointAim):
    """Highest true-positive rate at or below a false-positive rate; "tpr@fpr<=0.01". See RecallAtPrecision."""

    max_fpr: Target
    band: float | None = None
    num_anchors: int | None = None

    text: ClassVar[str] = "tpr@fpr<="
    exact: ClassVar = staticmethod(metrics.tpr_at_fpr)
    table: ClassVar = staticmethod(u_at_fpr_table)
    strict_at_one: ClassVar[bool] = False


@dataclass(frozen=True)
class FPRAtTPR(PointAim):
    """Lowest false-positive rate at or above a true-positive rate; "fpr@tpr>=0.9". See RecallAtPrecision."""

    min_tpr: Target
    band: float | None = None
    num_anchors: int | None = None

    text: ClassVar[str] = "fpr@tpr>="
    exact: ClassVar = staticmethod(metrics.fpr_at_tpr)
    table: ClassVar = staticmethod(v_at_recall_table)
    greater_is_better: ClassVar[bool] = False


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
            return v_at_recall_table(slack, width, priors)
        strict = None if self.max_precision is None else 1 - as_row(self.max_precision, priors)
        least = priors if self.min_precision is None else torch.maximum(as_row(self.min_precision, priors), priors)
        lax = as_row(1.0, priors) - least
        slack, width = cells(strict, lax, self.num_anchors, self.spacing, downwards=True)
        return recall_at_precision_table(slack, width, priors, lax if least is priors else None)

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
        return u_at_fpr_table(fpr, width, priors)

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


def ends(low: Target | None, high: Target | None, like: Tensor) -> tuple[Tensor, Tensor]:
    """The range as two rows; an end not given is the end of [0, 1]."""
    low, high = plain_ends(low, high)
    return as_row(low, like), as_row(high, like)


def plain_ends(low: Target | None, high: Target | None) -> tuple[Target, Target]:
    """The range with its open ends filled in."""
    return 0.0 if low is None else low, 1.0 if high is None else high
