"""The loss inside `torch.compile`: one operation of a compiled graph, or a call between two graphs.

`Loss.forward` imports this module once torch's compiler is in use, and not before: the compiler takes longer to import
than torch itself.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from aimfor.loss._autograd import attach_gradient, gradient_type, once_only, value_type
from aimfor.loss._numbered import numbered_loss

if TYPE_CHECKING:
    from aimfor.loss._loss import Loss


def in_graph(
    loss: "Loss", scores: Tensor, labels: Tensor, weights: Tensor | None, mask: Tensor | None, learning: bool
) -> Tensor:
    """The loss as operations of the graph that is being compiled."""
    buffers = [buffer for buffer in loss.state._buffers.values() if buffer is not None]
    inputs = scores.detach(), labels, weights, mask, buffers, loss._number, learning
    value, gradient = torch.ops.aimfor.loss(*inputs)
    return torch.ops.aimfor.attach_gradient(value, scores, gradient)


@torch.compiler.disable
def between_graphs(
    loss: "Loss", scores: Tensor, labels: Tensor, weights: Tensor | None, mask: Tensor | None, learning: bool
) -> Tensor:
    """The loss as it is without a compiler."""
    return attach_gradient(*loss._evaluate(scores, labels, weights, mask, learning))


@torch.library.custom_op("aimfor::loss", mutates_args={"state"})
def _loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    mask: Tensor | None,
    state: list[Tensor],
    number: Tensor,
    learning: bool,
) -> tuple[Tensor, Tensor]:
    """Value, and gradient in the scores."""
    loss = numbered_loss(int(number))
    own = loss.state._buffers
    kept = dict(own)
    # A graph may hand over copies of the buffers, which it writes back.
    own.update(zip((name for name, buffer in kept.items() if buffer is not None), state, strict=True))
    try:
        value, _, gradient = loss._evaluate(scores, labels, weights, mask, learning)
    finally:
        own.update(kept)
    return value.to(value_type(scores)), gradient


@_loss.register_fake
def _(scores, labels, weights, mask, state, number, learning):
    gradient = torch.empty_like(scores, dtype=gradient_type(scores), memory_format=torch.contiguous_format)
    return scores.new_empty((), dtype=value_type(scores)), gradient


# Torch differentiates no operation that changes its arguments: a second one attaches the gradient.
@torch.library.custom_op("aimfor::attach_gradient", mutates_args=())
def _attach(value: Tensor, scores: Tensor, gradient: Tensor) -> Tensor:
    return value.clone()


@_attach.register_fake
def _(value, scores, gradient):
    return torch.empty_like(value)


def _keep_gradient(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[2])
    ctx.dtype = inputs[1].dtype


_attach.register_autograd(
    lambda ctx, factor: (None, once_only((ctx.saved_tensors[0] * factor).to(ctx.dtype)), None),
    setup_context=_keep_gradient,
)
