"""What a loss has learned, in numbers that show how training goes."""

from typing import NamedTuple

import torch
from torch import Tensor

from aimfor.aims import Anchors, Rates
from aimfor.loss._state import State

# Lines of a printed table.
SHOWN_LINES = 50


class Diagnostics(NamedTuple):
    """How training for the aim goes: running numbers of recent batches, each `[K, L]` (priors `[L]`).

    Attributes:
        targets: precision, recall or rate asked for at the anchor; nan for F_beta.
        thresholds: learned threshold; positive means score >= threshold.
        multipliers: learned weight of the constraint.
        surrogate_recall, surrogate_precision, surrogate_fpr: as the loss sees them; bounds on the exact ones
            (recall and precision from below, fpr from above) of the same batches, with every surrogate but sigmoid.
        recall, precision, fpr: exact, at the learned thresholds; of every fourth batch of a label, and of every one
            where they drive the multipliers.
        violation: of the constraint that drives the multipliers, as the table of the aim writes it (docs/aims.md); at
            or below 0 where it holds, nan where the aim asks nothing. It says nothing for F_beta, which has a rule
            instead of a constraint to learn.
        feasible: False where the constraint stays broken, for the exact rates too, without getting better, with its
            multiplier at its limit or nothing predicted positive.
        priors: share of positives that the aim is about.

    Rates are nan for a label that has not taken part yet. Printed, it is a table of the exact numbers.

    Example:
        >>> import aimfor
        >>> loss = aimfor.Loss("recall@precision>=0.9")
        >>> value = loss(torch.tensor([2.0, -1.0, 0.5, -2.0]), torch.tensor([1, 0, 1, 0]))
        >>> loss.diagnostics().recall.shape
        torch.Size([1, 1])
    """

    targets: Tensor
    thresholds: Tensor
    multipliers: Tensor
    surrogate_recall: Tensor
    surrogate_precision: Tensor
    surrogate_fpr: Tensor
    recall: Tensor
    precision: Tensor
    fpr: Tensor
    violation: Tensor
    feasible: Tensor
    priors: Tensor

    def __str__(self) -> str:
        """A table with a line for each label and anchor, at most `SHOWN_LINES` of them."""
        anchors, labels = self.thresholds.shape
        shown = [(anchor, label) for label in range(labels) for anchor in range(anchors)][:SHOWN_LINES]
        columns = {name: [_shown(part[place]) for place in shown] for name, part in self._shown_columns().items()}
        places = {"label": [str(label) for _, label in shown], "anchor": [str(anchor) for anchor, _ in shown]}
        table = [[name, *cells] for name, cells in (places | columns).items()]
        widths = [max(map(len, column)) for column in table]
        lines = ["  ".join(map(str.rjust, line, widths)) for line in zip(*table, strict=True)]
        more = anchors * labels - len(shown)
        return "\n".join([*lines, f"... and {more} more lines"] if more else lines)

    def _shown_columns(self) -> dict[str, Tensor]:
        """The columns of the table after label and anchor; the surrogate rates are left to the attributes."""
        columns = {
            "target": self.targets,
            "threshold": self.thresholds,
            "multiplier": self.multipliers,
            "recall": self.recall,
            "precision": self.precision,
            "fpr": self.fpr,
            "violation": self.violation,
            "feasible": self.feasible,
            "prior": self.priors.expand_as(self.thresholds),
        }
        return {name: part.cpu() for name, part in columns.items()}


def _shown(number: Tensor) -> str:
    value = number.item()
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:.4g}"


def diagnose(state: State, anchors: Anchors, exact_drives: bool | Tensor) -> Diagnostics:
    """The diagnostics of a state; exact rates drive the multipliers where `exact_drives` says so."""
    seen = state.steps > 0
    bounded, exact = (
        [torch.where(seen, measure, torch.nan) for measure in _measures(state, *rates)]
        for rates in ((state.surrogate_rates, state.negatives), (state.exact_rates, state.exact_negatives))
    )
    violation, asked = anchors.violation(state.driving_rates(exact_drives)), anchors.width > 0
    return Diagnostics(
        targets=anchors.target.expand_as(state.thresholds).clone(),
        thresholds=state.thresholds.clone(),
        multipliers=state.multipliers.clone(),
        surrogate_recall=bounded[0],
        surrogate_precision=bounded[1],
        surrogate_fpr=bounded[2],
        recall=exact[0],
        precision=exact[1],
        fpr=exact[2],
        violation=torch.where(seen & (asked | (anchors.multiplier is not None)), violation, torch.nan),
        feasible=~state.stuck,
        priors=state.priors.clone(),
    )


def _measures(state: State, rates: Rates, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Recall, precision and false-positive rate; precision 0 where nothing is found."""
    tiny = torch.finfo(rates.u.dtype).tiny
    found = rates.recall.clamp(min=0)
    # Of what came, which is not what was to be expected when the share of positives in the batches changes.
    recall, fpr = found / rates.p.clamp(min=tiny), rates.v / negatives.clamp(min=tiny)
    # A given share is that of the precision, whatever came; otherwise it is that of the batches.
    right, wrong = (found, rates.v) if state.given_priors is None else (recall, fpr)
    wrong = wrong * (1 - state.priors) / state.priors
    return recall, right / (right + wrong).clamp(min=tiny), fpr
