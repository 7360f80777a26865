"""How weights are updated chunk by chunk, without a gradient of all of them."""

import torch
from torch import Tensor, nn

from aimfor._base import checks
from aimfor.loss._options import option


class ChunkUpdates(nn.Module):
    """How a chunk of weights is updated as soon as its gradient is known; its state is saved with the head."""

    def __init__(self, lr: float):
        super().__init__()
        self.lr = lr

    lr: float = option("lr", checks.positive_number, "Learning rate")

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
        >>> import aimfor
        >>> head = aimfor.LinearLoss("aucpr", 16, 1000, updates=ChunkSGD(lr=0.1))
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
        >>> import aimfor
        >>> head = aimfor.LinearLoss("aucpr", 16, 1000, updates=ChunkAdam(lr=1e-3))
    """

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.99), eps: float = 1e-8):
        super().__init__(lr)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ValueError(f"betas must be two numbers, got {betas!r}")
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
        gradient = gradient.float()
        new_mean = mean.float().lerp_(gradient, 1 - first)
        new_square = square.float().lerp_(gradient.square_(), 1 - second)
        mean.copy_(new_mean)
        square.copy_(new_square)
        root = new_square.div_(1 - second**steps).sqrt_().add_(self.eps)
        weight.sub_(new_mean.div_(root).to(weight.dtype), alpha=self.lr / (1 - first**steps))

    def _load_from_state_dict(self, state_dict, prefix, *arguments) -> None:
        # The moments are made in the first step: a checkpoint may come from before it, or be of more steps than these.
        for name in [name for name in self._buffers if prefix + name not in state_dict]:
            del self._buffers[name]
        for name, value in state_dict.items():
            own = name.removeprefix(prefix)
            if name.startswith(prefix) and "." not in own and own not in self._buffers:
                self.register_buffer(own, torch.empty_like(value))
        super()._load_from_state_dict(state_dict, prefix, *arguments)
