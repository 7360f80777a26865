"""Aims at an area under a curve, as the mean over anchors."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from aimfor import metrics
from aimfor._base import checks
from aimfor.aims._format import Target, show_options, show_range
from aimfor.aims._rates import Question
from aimfor.aims._records import Aim, per_label
from aimfor.aims._table import Anchors, Rates, as_row, cells, ends, plain_ends

# The anchors of areas are points of these.
RECALL_AT_PRECISION = Question("recall", "precision", ">=")
PRECISION_AT_RECALL = Question("precision", "recall", ">=")
TPR_AT_FPR = Question("tpr", "fpr", "<=")


# A recall below is one that rounding may have made 0, where precision has no slope.
LEAST_RECALL = 1e-6


def _by_slope_of_precision(anchors: Anchors, priors: Tensor, rates: Rates) -> Anchors:
    """Anchors at a recall count by how fast precision falls there as the false-positive rate rises."""
    true, rest = anchors.target.clamp(min=LEAST_RECALL) * priors, 1 - priors
    flagged = torch.addcmul(true, rest, rates.v.clamp(0, 1))
    width = anchors.width * true * rest / flagged.square_()
    return anchors._replace(width=width / width.sum(0).clamp(min=torch.finfo(width.dtype).tiny))


class AreaAim(Aim):
    """The area under a curve over a range, as the mean over anchors inside it."""

    default_constraint: ClassVar[str] = "surrogate"
    default_log_loss: ClassVar[float] = 0.8
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

    Example:
        >>> str(AUCPR(min_precision=0.8, num_anchors=20))
        'aucpr[precision>=0.8]; num_anchors=20'
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

    @cached_property  # it is asked for at every batch
    def _over_recall(self) -> bool:
        return self.min_recall is not None or self.max_recall is not None

    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        if self._over_recall:
            low, high = ends(self.min_recall, self.max_recall, priors)
            slack, width = cells(1 - high, 1 - low, self.num_anchors, self.spacing, downwards=True)
            return PRECISION_AT_RECALL.table(slack, width, priors, rates)
        strict = None if self.max_precision is None else 1 - as_row(self.max_precision, priors)
        least = priors if self.min_precision is None else torch.maximum(as_row(self.min_precision, priors), priors)
        lax = as_row(1.0, priors) - least
        slack, width = cells(strict, lax, self.num_anchors, self.spacing, downwards=True)
        return RECALL_AT_PRECISION.table(slack, width, priors, rates, rest=lax if least is priors else None)

    @property
    def counts_by_rates(self) -> bool:
        return self._over_recall

    def counted(self, anchors: Anchors, priors: Tensor, rates: Rates) -> Anchors:
        return _by_slope_of_precision(anchors, priors, rates) if self._over_recall else anchors

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

    Example:
        >>> str(AUCROC(max_fpr=0.1))
        'aucroc[fpr<=0.1]'
    """

    min_fpr: Target | None = None
    max_fpr: Target | None = None
    num_anchors: int = 10
    spacing: str = "uniform"

    def __post_init__(self):
        self.check_area(("fpr", self.min_fpr, self.max_fpr))

    def anchors(self, priors: Tensor, rates: Rates) -> Anchors:
        fpr, width = cells(*ends(self.min_fpr, self.max_fpr, priors), self.num_anchors, self.spacing)
        return TPR_AT_FPR.table(fpr, width, priors, rates)

    def metric(self, y_true, y_score, *, sample_weight=None):
        low, high = plain_ends(self.min_fpr, self.max_fpr)
        return metrics.mean_tpr_over_fpr(y_true, y_score, low, high, sample_weight=sample_weight)

    def label_counts(self) -> set[int]:
        return per_label(self.min_fpr, self.max_fpr)

    def __str__(self) -> str:
        return "aucroc" + show_range(self.min_fpr, "fpr", self.max_fpr) + show_options(self)
