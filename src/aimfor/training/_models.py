"""Many small models as heads of one.

Candidates of one architecture are trained together. One product of the batch with all first layers serves all of them,
and no head sees the gradient of another.
"""

from __future__ import annotations

import copy
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aimfor._base.ranks import ALONE, Ranks
from aimfor._base.splitting import chunks
from aimfor.training._rows import Bags, FeatureRows


def project(rows: Tensor | Bags, weight: Tensor) -> Tensor:
    """Rows `[B, D]` times weight `[D, M]`."""
    if isinstance(rows, Tensor):
        return rows @ weight
    return F.embedding_bag(rows.columns, weight, rows.starts, mode="sum", per_sample_weights=rows.values)


class Heads(nn.Module, ABC):
    """G models with the same inputs: rows -> scores `[B, G, L]`.

    Args:
        num_heads: G.
        num_labels: L.
    """

    def __init__(self, num_heads: int, num_labels: int):
        super().__init__()
        self.num_heads, self.num_labels = num_heads, num_labels

    @abstractmethod
    def head(self, index: int) -> dict[str, Tensor]:
        """A copy of all tensors of one head."""

    @abstractmethod
    def set_head_(self, index: int, tensors: dict[str, Tensor]) -> None:
        """Replace a head by a copy of tensors that `head` gave."""

    @abstractmethod
    def shrink_(self, factors: Tensor) -> None:
        """Multiply the weights of each head, but not its offsets, by its factor, `[G]`."""

    @torch.no_grad()
    def scores(self, rows: FeatureRows, ranks: Ranks = ALONE) -> Tensor:
        """Scores of all rows `[n, G, L]`, in evaluation mode and on the CPU. Ranks share rows that all have."""
        training = self.training
        if training:  # a fitted model is in evaluation mode already, so several threads may score with it
            self.eval()
        # One tensor for all chunks, because many small ones would fragment the memory.
        found = torch.empty(len(rows), self.num_heads, self.num_labels, dtype=rows.dtype)
        parts = list(chunks(len(rows)))
        for part in parts[ranks.number :: ranks.size]:
            found[part] = self(rows.take(part))
        if ranks.size > 1:
            given = ranks.gather([found[part].numpy() for part in parts[ranks.number :: ranks.size]])
            for number, part in enumerate(parts):
                found[part] = torch.from_numpy(given[number % ranks.size][number // ranks.size])
        if training:
            self.train()
        return found


class Layers(Heads):
    """Linear layers with ReLU between them; without hidden sizes, a linear model.

    Args:
        num_heads: G.
        num_features: D.
        num_labels: L.
        hidden_sizes: widths of the layers between.
        generator: for the starting weights, uniform as in `nn.Linear`.
    """

    def __init__(
        self,
        num_heads: int,
        num_features: int,
        num_labels: int,
        hidden_sizes: Sequence[int],
        generator: torch.Generator,
    ):
        super().__init__(num_heads, num_labels)
        sizes = [num_features, *hidden_sizes, num_labels]
        self.weights, self.offsets = nn.ParameterList(), nn.ParameterList()
        for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
            bound = 1 / math.sqrt(inputs)
            # The first layer is one matrix for all heads, [D, G * outputs]; the others are applied head by head.
            shape = (inputs, num_heads, outputs) if layer == 0 else (num_heads, inputs, outputs)
            weight = torch.empty(num_heads, inputs, outputs, dtype=torch.float32)
            weight.uniform_(-bound, bound, generator=generator)
            self.weights.append((weight.transpose(0, 1) if layer == 0 else weight).reshape(shape).contiguous())
            offset = torch.empty(num_heads, outputs, dtype=torch.float32)
            self.offsets.append(offset.uniform_(-bound, bound, generator=generator))

    def forward(self, rows: Tensor | Bags) -> Tensor:
        hidden = project(rows, self.weights[0].flatten(1)).unflatten(1, self.offsets[0].shape) + self.offsets[0]
        for weight, offset in zip(list(self.weights)[1:], list(self.offsets)[1:], strict=True):
            hidden = self._next(hidden.relu(), weight) + offset
        return hidden

    @staticmethod
    def _next(hidden: Tensor, weight: Tensor) -> Tensor:
        """A layer of each head, `[B, G, inputs]` -> `[B, G, outputs]`."""
        if weight.shape[2] == 1:  # a matrix product this thin takes several times as long
            return (hidden * weight[:, :, 0]).sum(2, keepdim=True)
        return torch.einsum("bgi,gio->bgo", hidden, weight)

    def head(self, index: int) -> dict[str, Tensor]:
        return {name: self._part(name, index).detach().clone() for name, _ in self.named_parameters()}

    @torch.no_grad()
    def set_head_(self, index: int, tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            self._part(name, index).copy_(tensor)

    def _part(self, name: str, index: int) -> Tensor:
        return self.get_parameter(name).select(1 if name == "weights.0" else 0, index)

    @property
    def linear(self) -> bool:
        """Whether there is nothing between features and scores."""
        return len(self.weights) == 1

    def squares(self) -> Tensor:
        """`[G]`, the sum of squared weights of each linear head, without offsets."""
        return self.weights[0].square().sum((0, 2))

    @torch.no_grad()
    def shrink_(self, factors: Tensor) -> None:
        for layer, weight in enumerate(self.weights):
            weight.mul_(factors[:, None] if layer == 0 else factors[:, None, None])


class Modules(Heads):
    """Copies of a user's own module, each a head, in single precision like the rows.

    Args:
        num_heads: G.
        num_labels: L.
        make: gives a new module for `[B, D]` dense rows, with outputs `[B, L]`, or `[B]` for one label.
    """

    def __init__(self, num_heads: int, num_labels: int, make: Callable[[], nn.Module]):
        super().__init__(num_heads, num_labels)
        self.modules_ = nn.ModuleList(make().float() for _ in range(num_heads))
        if not any(parameter.requires_grad for parameter in self.parameters()):
            raise ValueError("model must have a parameter that can be trained, got none")

    def forward(self, rows: Tensor | Bags) -> Tensor:
        dense = rows if isinstance(rows, Tensor) else rows.to_dense()
        return torch.stack([self._outputs(module, dense) for module in self.modules_], dim=1)

    def _outputs(self, module: nn.Module, dense: Tensor) -> Tensor:
        try:
            outputs = module(dense)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"model must take rows of shape {tuple(dense.shape)}, got the error: {reason}") from error
        if not isinstance(outputs, Tensor):
            raise TypeError(f"model must give a tensor, got {type(outputs).__name__}")
        if outputs.shape == dense.shape[:1] and self.num_labels == 1:
            return outputs.unsqueeze(1)
        expected = (len(dense), self.num_labels)
        if outputs.shape != expected:
            raise ValueError(f"model must give outputs of shape {expected}, got {tuple(outputs.shape)}")
        return outputs

    def head(self, index: int) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.modules_[index].state_dict().items()}

    def set_head_(self, index: int, tensors: dict[str, Tensor]) -> None:
        self.modules_[index].load_state_dict(tensors)

    @torch.no_grad()
    def shrink_(self, factors: Tensor) -> None:
        for module, factor in zip(self.modules_, factors, strict=True):
            for parameter in module.parameters():
                if parameter.ndim > 1 and parameter.requires_grad:  # frozen parameters stay as they are
                    parameter.mul_(factor)


def module_maker(model: nn.Module | Callable[[], Any]) -> Callable[[], nn.Module]:
    """A function that gives copies of a module, or of the module that a factory makes."""
    if isinstance(model, nn.Module):
        return lambda: copy.deepcopy(model)

    def made() -> nn.Module:
        module = model()
        if not isinstance(module, nn.Module):
            raise TypeError(f"model must make an nn.Module, got {type(module).__name__}")
        return copy.deepcopy(module)

    return made
