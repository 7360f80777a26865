"""Rates as shares of counts: part over whole, at every threshold of a curve."""

from __future__ import annotations

from typing import Any, NamedTuple

from aimfor._base.arrays import Array
from aimfor._base.errors import UndefinedMetricError
from aimfor.metrics._curve import Curve

COUNTS = ("tp", "fp", "positives", "negatives")


class Share(NamedTuple):
    """A rate as the share of one sum of counts in another.

    Attributes:
        name: of the rate, such as "precision".
        part, whole: names from `COUNTS`. Each is a sum of these counts; `whole` contains `part`.

    Example:
        >>> PRECISION.count({"tp": 3, "fp": 1, "positives": 5, "negatives": 9})
        (3, 4)
    """

    name: str
    part: tuple[str, ...]
    whole: tuple[str, ...]

    @property
    def falls(self) -> bool:
        """Whether the rate never rises with the threshold: its whole does not depend on the threshold."""
        return not {"tp", "fp"} & {*self.whole}

    def count(self, counts: dict[str, Any]) -> tuple[Any, Any]:
        """Part and whole from the four counts by name, as numbers or arrays."""
        part, whole = (sum((counts[name] for name in names[1:]), counts[names[0]]) for names in (self.part, self.whole))
        return part, whole

    def count_along(self, curve: Curve) -> tuple[Array, Any]:
        """Part and whole at each threshold."""
        return self.count(
            {"tp": curve.tp, "fp": curve.fp, "positives": curve.num_positives, "negatives": curve.num_negatives}
        )

    def along(self, curve: Curve) -> Array:
        """The rate at each threshold."""
        part, whole = self.count_along(curve)
        return part / whole

    def missing_class(self, curve: Curve) -> str | None:
        """The class without which the rate does not exist, "positive" or "negative", where the data lack it."""
        if self.whole == ("positives",) and curve.num_positives == 0:
            return "positive"
        return "negative" if self.whole == ("negatives",) and curve.num_negatives == 0 else None


PRECISION = Share("precision", ("tp",), ("tp", "fp"))
RECALL = Share("recall", ("tp",), ("positives",))
TPR = RECALL._replace(name="tpr")
FPR = Share("fpr", ("fp",), ("negatives",))
ALERTS = Share("alerts", ("tp", "fp"), ("positives", "negatives"))


class Tradeoff(NamedTuple):
    """The highest or lowest value of one rate while another keeps to its target."""

    objective: Share
    most: bool
    constrained: Share
    at_least: bool

    @property
    def name(self) -> str:
        """Name of the metric, such as "recall_at_precision"."""
        return f"{self.objective.name}_at_{self.constrained.name}"

    @property
    def target_name(self) -> str:
        """Name of the target, such as "min_precision"."""
        return f"{'min' if self.at_least else 'max'}_{self.constrained.name}"

    @property
    def lowest_is_safest(self) -> bool:
        """Whether, of two thresholds, the lower one keeps the constraint better."""
        return self.at_least and self.constrained.falls

    def need_classes(self, curve: Curve) -> None:
        """Raise if there are no positives, or if a class that one of the rates needs is missing."""
        missing = "positive" if curve.num_positives == 0 else None
        for share in (self.objective, self.constrained):
            missing = missing or share.missing_class(curve)
        if missing:
            raise UndefinedMetricError(f"y_true must hold a {missing} (of weight > 0) for {self.name}, got none")


RECALL_AT_PRECISION = Tradeoff(RECALL, True, PRECISION, at_least=True)
PRECISION_AT_RECALL = Tradeoff(PRECISION, True, RECALL, at_least=True)
TPR_AT_FPR = Tradeoff(TPR, True, FPR, at_least=False)
FPR_AT_TPR = Tradeoff(FPR, False, TPR, at_least=True)
RECALL_AT_ALERTS = Tradeoff(RECALL, True, ALERTS, at_least=False)
PRECISION_AT_ALERTS = Tradeoff(PRECISION, True, ALERTS, at_least=True)
