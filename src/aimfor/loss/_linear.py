"""The last linear layer and the loss in one, chunk by chunk of labels, for more labels than memory holds scores of.

Labels are independent of each other, so a loss of some labels at a time gives exactly the whole. The scores `[B, L]`
never exist: each chunk is scored, weighed and differentiated before the next one.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aimfor._base import checks
from aimfor.aims import Aim
from aimfor.aims import aim as parse_aim
from aimfor.loss._autograd import once_only
from aimfor.loss._loss import Loss

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
        updates: "ChunkUpdates | None" = None,
        **options: Any,
    ):
        super().__init__()
        checks.whole_number("in_features", in_features, at_least=1)
        checks.whole_number("num_labels", num_labels, at_least=1)
        chunk = min(num_labels, CHUNK) if chunk is None else chunk
        checks.whole_number("chunk", chunk, at_least=1)
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
            Loss(_targets_of(self.aim, labels), num_labels=labels.stop - labels.start, **_options_of(options, labels))
            for labels in self._chunks()
        )

    @property
    def thresholds(self) -> Tensor:
        """`[K, L]` learned thresholds."""
        return torch.cat([loss.thresholds for loss in self.losses], 1)  # pyright: ignore[reportArgumentType]

    @property
    def multipliers(self) -> Tensor:
        """`[K, L]` learned multipliers."""
        return torch.cat([loss.multipliers for loss in self.losses], 1)  # pyright: ignore[reportArgumentType]

    @property
    def priors(self) -> Tensor:
        """`[L]` share of positives."""
        return torch.cat([loss.priors for loss in self.losses])  # pyright: ignore[reportArgumentType]

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
        run = _HeadRun(self, features.detach(), wanted)
        for number, (part, columns) in enumerate(
            zip(self._chunks(), _label_parts(labels, self._chunks()), strict=True)
        ):
            rows = [
                None if entry is None else entry[:, part] if entry.ndim == 2 else entry for entry in (weights, mask)
            ]
            run.add(number, part, columns, *rows)
        if not wanted:
            return run.value
        return _HandedOver.apply(run, features, self.weight, self.bias)  # pyright: ignore[reportReturnType]

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
        self.head, self.features, self.wanted = head, features, wanted
        self.value = torch.zeros((), dtype=torch.float32, device=features.device)
        self.of_features = torch.zeros_like(features, dtype=head.weight.dtype) if wanted else None
        kept = wanted and head.updates is None
        self.of_weight = torch.empty_like(head.weight) if kept else None
        self.of_bias = torch.empty_like(head.bias) if kept and head.bias is not None else None

    def add(self, number: int, part: slice, labels: Tensor, weights: Tensor | None, mask: Tensor | None) -> None:
        """Score, weigh and differentiate a chunk of labels."""
        head = self.head
        loss, share = head.losses[number], (part.stop - part.start) / head.num_labels
        with torch.no_grad():
            scores = head.scores(self.features.to(head.weight.dtype), part)
        if not self.wanted:
            self.value += share * loss(scores, labels, weights=weights, mask=mask)
            return
        scores.requires_grad_()
        value = share * loss(scores, labels, weights=weights, mask=mask)
        (slopes,) = torch.autograd.grad(value, scores)
        self.value += value.detach()
        with torch.no_grad():
            assert self.of_features is not None
            self.of_features.addmm_(slopes, head.weight[part])
            features = self.features.to(head.weight.dtype)
            if head.updates is not None and head.training:
                head.updates.update_(number, head.weight[part], slopes.T @ features)
                if head.bias is not None:
                    head.updates.update_(-1 - number, head.bias[part], slopes.sum(0))
            elif self.of_weight is not None:
                torch.mm(slopes.T, features, out=self.of_weight[part])
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
        guarded = [None if part is None else once_only(part) for part in (scaled[0].to(ctx.dtype), *scaled[1:])]  # pyright: ignore[reportOptionalMemberAccess]
        return None, *guarded


class ChunkUpdates(nn.Module):
    """How a chunk of weights is updated as soon as its gradient is known; its state is saved with the head."""

    def __init__(self, lr: float):
        super().__init__()
        self.lr = checks.positive_number("lr", lr)

    def update_(self, key: int, weight: Tensor, gradient: Tensor) -> None:
        """Change a chunk of weights in place.

        Args:
            key: of the chunk, the same in every step.
            weight: a view of the weights.
            gradient: of the loss in them; may be overwritten.
        """
        raise NotImplementedError


class ChunkSGD(ChunkUpdates):
    """Plain gradient steps: no state at all.

    Args:
        lr: learning rate; may be changed while training.

    Example:
        >>> head = LinearLoss("aucpr", 16, 1000, updates=ChunkSGD(lr=0.1))
    """

    def update_(self, key: int, weight: Tensor, gradient: Tensor) -> None:
        weight.sub_(gradient, alpha=self.lr)


class ChunkAdam(ChunkUpdates):
    """Adam whose two moments are kept in bfloat16: half the memory of the weights each.

    Args:
        lr: learning rate; may be changed while training.
        betas: decays of the two moments.
        eps: added to the root of the second.

    Example:
        >>> head = LinearLoss("aucpr", 16, 1000, updates=ChunkAdam(lr=1e-3))
    """

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.99), eps: float = 1e-8):
        super().__init__(lr)
        self.betas = tuple(checks.in_range("betas", beta, 0, 1, open_high=True) for beta in betas)
        self.eps = checks.positive_number("eps", eps)

    def update_(self, key: int, weight: Tensor, gradient: Tensor) -> None:
        name = f"offset_{-1 - key}" if key < 0 else f"weight_{key}"
        if f"{name}_mean" not in self._buffers:
            self.register_buffer(f"{name}_mean", torch.zeros_like(weight, dtype=torch.bfloat16))
            self.register_buffer(f"{name}_square", torch.zeros_like(weight, dtype=torch.bfloat16))
            self.register_buffer(f"{name}_steps", torch.zeros((), dtype=torch.int64, device="cpu"))
        mean, square = self.get_buffer(f"{name}_mean"), self.get_buffer(f"{name}_square")
        steps = self.get_buffer(f"{name}_steps").add_(1).item()
        first, second = self.betas
        new_mean = mean.float().lerp_(gradient, 1 - first)
        new_square = square.float().lerp_(gradient.square_(), 1 - second)
        mean.copy_(new_mean)
        square.copy_(new_square)
        root = new_square.div_(1 - second**steps).sqrt_().add_(self.eps)
        weight.addcdiv_(new_mean, root, value=-self.lr / (1 - first**steps))

    def _load_from_state_dict(self, state_dict, prefix, *arguments) -> None:
        # The moments are made in the first step; those of a checkpoint may come before it.
        for name, value in state_dict.items():
            if name.startswith(prefix) and name.removeprefix(prefix) not in self._buffers:
                self.register_buffer(name.removeprefix(prefix), torch.empty_like(value))
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class _Columns(NamedTuple):
    """The ones of sparse labels, ordered by column."""

    rows: Tensor
    columns: Tensor
    values: Tensor


def _label_parts(labels: Tensor, chunks: list[slice]) -> Iterator[Tensor]:
    """The labels of each chunk, sparse where they came sparse."""
    if labels.layout == torch.strided:
        yield from (labels[:, part] for part in chunks)
        return
    whole = labels.detach()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        whole = whole if whole.layout == torch.sparse_coo else whole.to_sparse_coo()
    # Before anything reads them: torch trusts the indices that it is given, and would read beyond the end.
    index, shape = whole._indices(), torch.tensor(labels.shape, device=labels.device).unsqueeze(1)
    if bool(((index < 0) | (index >= shape)).any()):
        raise ValueError(f"labels must have indices within their shape {tuple(labels.shape)}, got one outside of it")
    whole = whole.coalesce()
    order = whole.indices()[1].argsort(stable=True)
    ones = _Columns(whole.indices()[0][order], whole.indices()[1][order], whole.values()[order])
    edges = torch.tensor([part.start for part in chunks] + [labels.shape[1]], device=labels.device)
    bounds = torch.searchsorted(ones.columns, edges).tolist()
    for part, start, end in zip(chunks, bounds, bounds[1:], strict=False):
        index = torch.stack([ones.rows[start:end], ones.columns[start:end] - part.start])
        size = (labels.shape[0], part.stop - part.start)
        yield torch.sparse_coo_tensor(index, ones.values[start:end], size, check_invariants=True)


def _of_labels(entries: Tensor | None, labels: slice) -> Tensor | None:
    """Weights or mask of some labels; what is given per row is the same for all."""
    return entries if entries is None or entries.ndim != 2 else entries[:, labels]


def _targets_of(aim: Aim, labels: slice) -> Aim:
    """The aim of some labels: targets per label are cut out."""
    entries = {field.name: getattr(aim, field.name) for field in fields(aim)}  # pyright: ignore[reportArgumentType]
    cut = {name: value[labels] for name, value in entries.items() if isinstance(value, tuple)}
    return replace(aim, **cut) if cut else aim  # pyright: ignore[reportArgumentType]


def _options_of(options: dict[str, Any], labels: slice) -> dict[str, Any]:
    """The options of the loss of some labels: priors per label are cut out."""
    priors = options.get("priors")
    if isinstance(priors, (list, tuple)) or (isinstance(priors, Tensor) and priors.ndim):
        return {**options, "priors": priors[labels]}
    return options
