"""A value computed outside autograd, with its known gradient."""

import torch
from torch import Tensor

# Raised where a gradient of the loss is differentiated: its own gradient was worked out without a graph.
NO_SECOND_DERIVATIVES = (
    "the loss has no second derivatives: a gradient penalty cannot go through it; take the penalty of another loss, or "
    "make the gradient without create_graph=True"
)


def attach_gradient(value: Tensor, scores: Tensor, gradient: Tensor) -> Tensor:
    """Give `value`, computed outside autograd, its already known gradient in the scores; keeps `gradient`.

    The gradient may be of a wider type than the scores: it is rounded only after it is multiplied by what comes from
    above, so that a loss scale can save what half precision would round to 0.
    """
    return _AttachedGradient.apply(scores, (value, gradient))  # pyright: ignore[reportReturnType]


class _AttachedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores: Tensor, found: tuple[Tensor, Tensor]) -> Tensor:
        # As a pair they are nothing to autograd, which would ask for a copy of a value that came as it goes.
        value, ctx.gradient = found
        ctx.dtype = scores.dtype
        return value

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor):
        # Only where a graph of this backward is wanted does it have to be guarded, which takes as long as itself.
        return (_guarded if torch.is_grad_enabled() else _handed_over)(ctx, *grad_outputs)


def _handed_over(ctx, factor: Tensor) -> tuple[Tensor, None]:
    gradient = ctx.gradient
    if gradient is None:
        raise RuntimeError("backward through the loss a second time: say retain_graph=True the first time")
    if torch._C._autograd._get_current_graph_task_keep_graph():  # pyright: ignore[reportAttributeAccessIssue]
        gradient = gradient * factor
    else:
        # The graph is used up after this: the gradient is handed over instead of being copied.
        ctx.gradient = None
        if not factor.is_cpu or factor.item() != 1:  # elsewhere, looking would make the device wait
            gradient.mul_(factor)
    # Asked first: a conversion to the type that it has takes as long as the rest.
    return gradient if gradient.dtype is ctx.dtype else gradient.to(ctx.dtype), None


def _guarded(ctx, factor: Tensor) -> tuple[Tensor, None]:
    return once_only(_handed_over(ctx, factor)[0]), None


def once_only(gradient: Tensor) -> Tensor:
    """A gradient that raises when it is differentiated, where a graph of this backward is wanted.

    Torch's `once_differentiable` does so only where what comes from above needs a gradient. Otherwise a gradient
    penalty would silently miss the part that goes through the loss.
    """
    if not torch.is_grad_enabled():
        return gradient
    fail = torch._C._functions.DelayedError(NO_SECOND_DERIVATIVES.encode(), 1)  # pyright: ignore[reportAttributeAccessIssue]
    return fail(gradient.detach().requires_grad_())


def value_type(scores: Tensor) -> torch.dtype:
    """What the value is given in: that of the scores, but float32 for what has fewer digits."""
    return torch.promote_types(scores.dtype, torch.float32)


def gradient_type(scores: Tensor) -> torch.dtype:
    """What the gradient is kept in: that of the scores, but float32 for float16, whose smallest number is too large."""
    return torch.float32 if scores.dtype == torch.float16 else scores.dtype


def overflowed(scores: Tensor) -> bool:
    """Whether scores of half precision are not finite, as happens while a gradient scaler searches for its scale."""
    if not isinstance(scores, Tensor) or not scores.requires_grad or scores.layout != torch.strided or scores.is_meta:
        return False
    kind = scores.device.type
    half = scores.dtype == torch.float16
    if not half and torch.amp.is_autocast_available(kind):
        half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16
    return half and not bool(scores.detach().isfinite().all())


def overflow_result(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value inf and a gradient of nan, of which a gradient scaler skips the step and halves its scale."""
    value = torch.full((), torch.inf, dtype=value_type(scores), device=scores.device)
    return value, scores, torch.full_like(scores.detach(), torch.nan, dtype=gradient_type(scores))
