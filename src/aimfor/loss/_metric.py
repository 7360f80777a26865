"""The exact metric of an aim in batches, for validation loops on one process or several."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from aimfor._base import checks
from aimfor._base.warnings import UndefinedMetricWarning
from aimfor.aims import Aim
from aimfor.aims import aim as parse_aim
from aimfor.loss._batch import Positives, every_entry, training_batch, valid_positions, valid_scores, valid_weights
from aimfor.loss._distributed import gather_from_ranks, group_size

# Lightning and torchmetrics' collections accept only what derives from their class.
if TYPE_CHECKING or importlib.util.find_spec("torchmetrics") is None:
    from aimfor.loss._metric_interface import MetricInterface
else:
    from torchmetrics import Metric as MetricInterface

STATES = ("scores", "labels", "weights")


class Metric(MetricInterface):
    """The exact metric of an aim over all rows that `update` was given, on all processes together.

    A metric such as recall at a precision is no mean over batches or processes. Therefore the rows are kept, `compute`
    gathers those of all ranks, and every rank gets the value of the whole. Each row costs 4 bytes per float32 score (2
    per bfloat16 score), 1 byte per label, and 4 more where weights or a mask per label are given.

    The interface is that of torchmetrics: `update`, `compute`, `reset`, calling it for the value of one batch, `sync`,
    `unsync`, `persistent`, `state_dict`. Where torchmetrics is installed, the class derives from its `Metric`.

    Args:
        aim: an aim record or its text, such as "recall@precision>=0.9".
        num_labels: L.
        multiclass: labels are class indices `[B]`; each class is measured on its softmax log-odds.
        per_label: give one value per label, instead of their mean over the labels that have one.
        persistent: whether `state_dict` holds the rows.
        process_group: the processes whose rows count: None for all, a group of them, or False for this one alone.

    Example:
        >>> metric = Metric("recall@precision>=0.75")
        >>> metric.update(torch.tensor([5.0, 2.0]), torch.tensor([1, 1]))
        >>> metric.update(torch.tensor([4.0, 3.0, 1.0]), torch.tensor([1, 0, 0]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    is_differentiable = False
    full_state_update = False
    scores: list[Tensor]
    labels: list[Tensor]
    weights: list[Tensor]

    def __init__(
        self,
        aim: str | Aim,
        *,
        num_labels: int = 1,
        multiclass: bool = False,
        per_label: bool = False,
        persistent: bool = False,
        process_group: Any = None,
    ):
        super().__init__(process_group=process_group, distributed_available_fn=self._among_others)
        self.aim = parse_aim(aim)
        checks.yes_or_no("multiclass", multiclass)
        checks.yes_or_no("per_label", per_label)
        checks.yes_or_no("persistent", persistent)
        self.num_labels = checks.whole_number("num_labels", num_labels, at_least=2 if multiclass else 1)
        for count in self.aim.label_counts():
            checks.rule(count == num_labels, "aim", f"must have one target per label ({num_labels} labels)", count)
        self.multiclass = multiclass
        self.per_label = per_label
        for name in STATES:
            self.add_state(name, default=[], dist_reduce_fx="cat", persistent=persistent)

    @property
    def higher_is_better(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """False for aims such as "fpr@tpr>=0.9"."""
        return self.aim.greater_is_better

    def update(self, scores: Any, labels: Any, *, weights: Any = None, mask: Any = None) -> None:
        """Add rows; tensors or numpy arrays, of the shapes that `Loss` takes.

        Args:
            scores: `[B]` or `[B, L]`, raw scores; nothing is passed through a sigmoid.
            labels: 0/1 of the same shape, dense or sparse; with `multiclass` class indices `[B]`.
            weights: `[B]` or like scores, at least 0. Unlike those of the loss, they count across batches.
            mask: `[B]` or like scores, False where the label is unknown; those entries are ignored.
        """
        weights = None if weights is None else torch.as_tensor(weights)
        mask = None if mask is None else torch.as_tensor(mask)
        scores, labels = torch.as_tensor(scores), torch.as_tensor(labels)
        batch = training_batch(scores, labels, weights, mask, self.num_labels, self.multiclass)
        found = _dense(batch.labels, batch.scores)
        present = None if batch.mask is None else batch.mask.expand_as(batch.scores)
        if batch.weights is not None:
            valid_weights(batch.weights, batch.mask)
            heavy = (batch.weights != 0).expand_as(batch.scores)
            present = heavy if present is None else present & heavy
        self._keep(batch.scores.detach(), found, batch.weights, present)

    def compute(self) -> Tensor:
        """The value: a float64 scalar on the CPU, or `[L]` with `per_label`.

        A label without both of its classes has no value, nan with `per_label`. Where no label has one, the result is
        nan with an `UndefinedMetricWarning`, so that an early validation batch without positives ends no run.
        """
        values = self._values()
        known = values[~np.isnan(values)]
        if known.size == 0:
            warnings.warn(
                f"{str(self.aim)!r} does not exist for these rows: no label has both classes",
                UndefinedMetricWarning,
                stacklevel=checks.callers_level(),
            )
        if self.per_label:
            return torch.from_numpy(values)
        return torch.tensor(known.mean() if known.size else math.nan, dtype=torch.float64)

    def extra_repr(self) -> str:
        return f"{str(self.aim)!r}, num_labels={self.num_labels}, multiclass={self.multiclass}"

    def _keep(self, scores: Tensor, labels: Tensor, weights: Tensor | None, present: Tensor | None) -> None:
        """Check the entries that are present, and keep the rows that have one."""
        kept = scores.new_empty(0, 1, dtype=torch.float32)
        if present is not None:
            rows = present.any(1)
            scores, labels = scores.masked_fill(~present, 0)[rows], labels.masked_fill(~present, 0)[rows]
            if weights is not None or not bool(present[rows].all()):
                kept = (present if weights is None else weights * present)[rows].float()
        if not len(scores):
            return
        valid_scores(scores)
        every_entry("labels", labels, (labels == 0) | (labels == 1))
        for name, tensor in zip(STATES, (scores.clone(), labels.to(torch.uint8), kept), strict=True):
            getattr(self, name).append(tensor)

    def _values(self) -> np.ndarray:
        """`[L]`, nan for labels that have no value."""
        if not self.scores:
            return np.full(self.num_labels, math.nan)
        weights = None
        if any(len(kept) for kept in self.weights):
            pairs = zip(self.scores, self.weights, strict=True)
            weights = torch.cat([_entries(kept, scores) for scores, kept in pairs])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)  # `compute` has one of its own
            measured = self.aim.metric(torch.cat(self.labels), torch.cat(self.scores), sample_weight=weights)
        return np.asarray(measured, dtype=np.float64)

    def _among_others(self) -> bool:
        return group_size(self.process_group) > 1

    def _sync_dist(self, dist_sync_fn: Any = None, process_group: Any = None) -> None:
        # As objects: ranks may hold different numbers of rows, none at all, other dtypes, or weights where others have
        # none.
        parts = gather_from_ranks([getattr(self, name) for name in STATES], process_group or self.process_group)
        for name, tensors in zip(STATES, zip(*parts, strict=True), strict=True):
            setattr(self, name, [tensor for rank in tensors for tensor in rank])

    def _apply(self, fn: Callable[[Tensor], Tensor], *details: Any) -> Any:
        # The rows move, but keep their dtype: half precision would make scores equal that are not.
        return super()._apply(lambda tensor: tensor.to(device=fn(tensor).device), *details)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *details: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *details)
        for name in STATES:
            setattr(self, name, list(getattr(self, name)))  # the lists of the caller stay as they are
        self._update_count, self._computed = len(self.scores), None


def _dense(labels: Tensor | Positives, scores: Tensor) -> Tensor:
    """Labels as `[B, L]`."""
    if isinstance(labels, Tensor):
        return labels
    starts, columns, _ = valid_positions(labels, scores.shape[1])
    rows = torch.arange(len(scores), device=scores.device).repeat_interleave(starts.diff())
    ones = torch.zeros(scores.shape, dtype=torch.uint8, device=scores.device)
    ones[rows, columns] = 1
    return ones


def _entries(weights: Tensor, scores: Tensor) -> Tensor:
    """Kept weights as `[B, L]`; 1 where none were given."""
    return (weights if len(weights) else weights.new_ones(1, 1)).expand(scores.shape)
