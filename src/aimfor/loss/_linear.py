"""The last linear layer and the loss in one, chunk by chunk of labels, for more labels than memory holds scores of.

Labels are independent of each other, so a loss of some labels at a time gives exactly the whole. The scores `[B, L]`
never exist: each chunk is scored, weighed and differentiated before the next one.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from aimfor._base import checks
from aimfor.aims import Aim
from aimfor.aims import aim as parse_aim
from aimfor.loss._advice import advise, at_a_look, warn_of_other_aim
from aimfor.loss._autograd import once_only
from aimfor.loss._batch import known_priors, training_batch
from aimfor.loss._chunk_updates import ChunkUpdates
from aimfor.loss._chunks import check_entries, entries_of, label_parts, option_of_all, options_of, targets_of
from aimfor.loss._diagnostics import Diagnostics
from aimfor.loss._loss import Loss, subject_of
from aimfor.loss._saved_chunks import other_subject, regroup_

# Labels of a chunk, by default: enough to keep the cores busy, and with 128 rows 1.2 MB of scores.
CHUNK = 2304


class LinearLoss(nn.Module):
    """A linear head of many labels with its loss: `head(features, labels).backward()`.

    It equals `Loss(aim, num_labels=L)` on the scores `features @ weight.T + bias`, without ever holding `[B, L]`.
    Gradients of weights and features are made in the forward pass; backward hands them over.

    Args:
        aim: an aim record or its text, such as "aucpr".
        in_features: D.
        num_labels: L.
        chunk: labels at a time; None for 2304.
        bias: whether each label has an offset.
        updates: None for gradients, which the optimiser of your choice takes. Or `ChunkSGD(...)` or `ChunkAdam(...)`:
            each chunk of weights is then updated as soon as its gradient is known, which is never kept. The scale of a
            gradient scaler or of accumulation does not reach these weights.
        total_labels: labels of all heads together, where this one has a shard of them.
        options: of `Loss`, such as `surrogate`, `constraint` or `process_group`.

    Example:
        >>> head = LinearLoss("aucpr", in_features=16, num_labels=1000, chunk=256)
        >>> features = torch.randn(8, 16, requires_grad=True)
        >>> head(features, torch.zeros(8, 1000)).backward()
        >>> features.grad.shape, head.weight.grad.shape
        (torch.Size([8, 16]), torch.Size([1000, 16]))
    """

    def __init__(
        self,
        aim: str | Aim,
        in_features: int,
        num_labels: int,
        *,
        chunk: int | None = None,
        bias: bool = True,
        updates: ChunkUpdates | None = None,
        total_labels: int | None = None,
        **options: Any,
    ):
        super().__init__()
        checks.whole_number("in_features", in_features, at_least=1)
        checks.whole_number("num_labels", num_labels, at_least=1)
        chunk = min(num_labels, CHUNK) if chunk is None else chunk
        checks.whole_number("chunk", chunk, at_least=1)
        checks.yes_or_no("bias", bias)
        if updates is not None and not isinstance(updates, ChunkUpdates):
            raise TypeError(f"updates must be None, ChunkSGD(...) or ChunkAdam(...), got {updates!r}")
        self.total_labels = num_labels if total_labels is None else total_labels
        checks.whole_number("total_labels", self.total_labels, at_least=num_labels)
        known_priors(options.get("priors"), num_labels)
        if options.get("multiclass"):
            raise ValueError("multiclass must be False for LinearLoss: exclusive classes need the scores of all others")
        self.aim, self.in_features, self.num_labels, self.chunk = parse_aim(aim), in_features, num_labels, chunk
        for count in self.aim.label_counts():
            checks.rule(count == num_labels, "aim", f"must have one target per label ({num_labels} labels)", count)
        bound = 1 / math.sqrt(in_features)
        trained = updates is None
        self.weight = nn.Parameter(torch.empty(num_labels, in_features).uniform_(-bound, bound), requires_grad=trained)
        self.bias = nn.Parameter(torch.zeros(num_labels), requires_grad=trained) if bias else None
        self.updates = updates
        self.losses = nn.ModuleList(
            Loss(targets_of(self.aim, labels), num_labels=labels.stop - labels.start, **options_of(options, labels))
            for labels in self._chunks()
        )
        for loss in self._losses:
            loss._advised = False  # its numbers of labels are those of a chunk

    surrogate: Any = option_of_all("surrogate")
    log_loss: float = option_of_all("log_loss")
    log_loss_batches: int = option_of_all("log_loss_batches")
    dual_rate: float = option_of_all("dual_rate")
    threshold_rate: float = option_of_all("threshold_rate")
    warmup: int = option_of_all("warmup")
    constraint: str = option_of_all("constraint")

    @property
    def _losses(self) -> list[Loss]:
        return list(self.losses)  # pyright: ignore[reportReturnType]

    @property
    def thresholds(self) -> Tensor:
        """`[K, L]` learned thresholds."""
        return torch.cat([loss.thresholds for loss in self._losses], 1)

    @property
    def multipliers(self) -> Tensor:
        """`[K, L]` learned multipliers."""
        return torch.cat([loss.multipliers for loss in self._losses], 1)

    @property
    def priors(self) -> Tensor:
        """`[L]` share of positives."""
        return torch.cat([loss.priors for loss in self._losses])

    def diagnostics(self) -> Diagnostics:
        """Running numbers of the recent training batches, of all labels; see `Diagnostics`."""
        parts = zip(*(loss.diagnostics() for loss in self._losses), strict=True)
        return Diagnostics(*(torch.cat(part, -1) for part in parts))

    def extra_repr(self) -> str:
        return f"{str(self.aim)!r}, in_features={self.in_features}, num_labels={self.num_labels}, chunk={self.chunk}"

    def scores(self, features: Tensor, labels: slice = slice(None)) -> Tensor:
        """Scores `[B, labels]` of some labels, for evaluation.

        Args:
            features: `[B, D]`.
            labels: which ones; all by default, which takes the memory of `[B, L]`.
        """
        return nn.functional.linear(features, self.weight[labels], None if self.bias is None else self.bias[labels])

    def forward(
        self, features: Tensor, labels: Tensor, *, weights: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The Lagrangian of the aim on this batch, as `Loss` gives it.

        Args:
            features: `[B, D]`, what the layers before give.
            labels: 0/1 `[B, L]`, dense or sparse (CSR, COO, see `sparse_labels`).
            weights: `[B]` or `[B, L]`.
            mask: `[B]` or `[B, L]`.

        Returns:
            A scalar.
        """
        self._check(features, labels)
        wanted = torch.is_grad_enabled()
        # A view of one number has the shape of the scores, and no memory.
        shape = self.weight.detach().new_zeros(()).expand(labels.shape)
        training_batch(shape, labels, weights, mask, self.num_labels)
        parts = [
            (columns, entries_of(weights, part), entries_of(mask, part))
            for part, columns in zip(self._chunks(), label_parts(labels, self._chunks()), strict=True)
        ]
        for one in parts:  # before any chunk learns
            check_entries(*one)
        run = _HeadRun(self, features, wanted)
        for number, (part, one) in enumerate(zip(self._chunks(), parts, strict=True)):
            run.add(number, part, *one)
        if not wanted:
            return run.value
        if self.training:
            self._advise()
        if self.updates is not None and not features.requires_grad:
            return run.value.requires_grad_()  # backward has nothing left to do
        return _HandedOver.apply(run, features, self.weight, self.bias)  # pyright: ignore[reportReturnType]

    def _advise(self) -> None:
        losses = self._losses
        if at_a_look(losses[0].state):
            advise(self.aim, losses, [loss._table(loss.state, loss.priors) for loss in losses])

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors) -> None:
        saved = other_subject(state_dict, prefix, self.num_labels, self._subject)
        if saved is None:
            regroup_(state_dict, prefix, self._chunks(), self._subject)
        else:
            own = subject_of(self.aim, self.num_labels)
            # Refused where the load is strict, as missing keys are; else the head starts anew.
            missing.append(f"{prefix}state for {own!r}, the saved one is for {saved!r}")
            warn_of_other_aim(saved, own)
            for loss in self._losses:
                loss.state.reset_()
            for key in [key for key in state_dict if key.startswith(f"{prefix}losses.")]:
                del state_dict[key]
            state_dict.update(self.losses.state_dict(prefix=f"{prefix}losses."))
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)

    def _subject(self, labels: slice) -> str:
        return subject_of(targets_of(self.aim, labels), labels.stop - labels.start)

    def _chunks(self) -> list[slice]:
        starts = range(0, self.num_labels, self.chunk)
        return [slice(start, min(start + self.chunk, self.num_labels)) for start in starts]

    def _check(self, features: Tensor, labels: Tensor) -> None:
        if not isinstance(features, Tensor) or not features.is_floating_point():
            raise TypeError(
                f"features must be a floating-point tensor, got {getattr(features, 'dtype', type(features))}"
            )
        if features.ndim != 2 or features.shape[1] != self.in_features:
            raise ValueError(f"features must have shape [B, {self.in_features}], got {tuple(features.shape)}")
        if features.device != self.weight.device:
            raise ValueError(
                f"features must be on the device of the head, {self.weight.device}, got {features.device}: "
                f"move one of them with .to(...)"
            )
        shape = (len(features), self.num_labels)
        if not isinstance(labels, Tensor) or tuple(labels.shape) != shape:
            found = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
            raise ValueError(f"labels must have shape {shape}, got {found}")


class _HeadRun:
    """One forward pass: the value so far and the gradients that backward hands over."""

    def __init__(self, head: LinearLoss, features: Tensor, wanted: bool):
        self.head, self.features, self.wanted = head, features.detach().to(head.weight.dtype), wanted
        self.value = torch.zeros((), dtype=torch.float32, device=features.device)
        self.of_features = torch.zeros_like(self.features) if wanted and features.requires_grad else None
        kept = wanted and head.updates is None
        self.of_weight = torch.empty_like(head.weight) if kept else None
        self.of_bias = torch.empty_like(head.bias) if kept and head.bias is not None else None

    def add(self, number: int, part: slice, labels: Tensor, weights: Tensor | None, mask: Tensor | None) -> None:
        """Score, weigh and differentiate a chunk of labels."""
        head = self.head
        loss, share = head.losses[number], (part.stop - part.start) / head.total_labels
        with torch.no_grad():
            # Under autocast a layer gives scores of half precision. Their gradient is made here, before a gradient
            # scaler has scaled it, so it stays in the type of the weights.
            scores = head.scores(self.features, part).to(head.weight.dtype)
        if not self.wanted:
            self.value += share * loss(scores, labels, weights=weights, mask=mask)
            return
        scores.requires_grad_()
        value = share * loss(scores, labels, weights=weights, mask=mask)
        (slopes,) = torch.autograd.grad(value, scores)
        self.value += value.detach()
        with torch.no_grad(), torch.autocast(slopes.device.type, enabled=False):
            if self.of_features is not None:
                self.of_features.addmm_(slopes, head.weight[part])
            if head.updates is not None and head.training:
                if not bool(value.isfinite()):  # an overflow, from which nothing is learned
                    return
                head.updates.update_(number, head.weight[part], slopes.T @ self.features)
                if head.bias is not None:
                    head.updates.update_(-1 - number, head.bias[part], slopes.sum(0))
            elif self.of_weight is not None:
                torch.mm(slopes.T, self.features, out=self.of_weight[part])
                if self.of_bias is not None:
                    torch.sum(slopes, 0, out=self.of_bias[part])


class _HandedOver(torch.autograd.Function):
    """The value of a run with the gradients that it made."""

    @staticmethod
    def forward(ctx, run: _HeadRun, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.gradients = run.of_features, run.of_weight, run.of_bias
        ctx.dtype = features.dtype
        return run.value.clone()

    @staticmethod
    def backward(ctx, factor: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        if ctx.gradients is None:
            raise RuntimeError("backward through the head a second time: say retain_graph=True the first time")
        of_features, of_weight, of_bias = ctx.gradients
        if torch._C._autograd._get_current_graph_task_keep_graph():  # pyright: ignore[reportAttributeAccessIssue]
            scaled = [None if part is None else part * factor for part in (of_features, of_weight, of_bias)]
        else:
            # The graph is used up after this: gradients as large as the weights are handed over, not copied.
            ctx.gradients = None
            scaled = [None if part is None else part.mul_(factor) for part in (of_features, of_weight, of_bias)]
        if scaled[0] is not None:
            scaled[0] = scaled[0].to(ctx.dtype)
        return None, *(None if part is None else once_only(part) for part in scaled)
