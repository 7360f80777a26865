"""Step, first half: rows of features as batches, and many small models as heads of one.

Candidates of one architecture are trained together: one product of the batch with all first layers serves them all, and
no head sees another's gradient.
"""

from __future__ import annotations

import copy
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Rows that are scored at once.
CHUNK = 8192
# What a constant is divided by: nothing is felt of it then, also where it is another number in later rows, for which
# no training has found a weight.
OF_CONSTANTS = float(np.finfo(np.float32).max)


class Bags(NamedTuple):
    """Sparse rows: the columns and values of all non-zeros, row after row, and where each row starts."""

    columns: Tensor
    values: Tensor
    starts: Tensor
    num_features: int

    def to_dense(self) -> Tensor:
        """The rows as `[B, D]`."""
        lengths = torch.diff(self.starts, append=self.starts.new_tensor([len(self.columns)]))
        dense = self.values.new_zeros(len(self.starts), self.num_features)
        rows = torch.repeat_interleave(torch.arange(len(self.starts), device=lengths.device), lengths)
        return dense.index_put_((rows, self.columns), self.values, accumulate=True)


class Scaling(NamedTuple):
    """What is subtracted from each feature (None with sparse rows, which stay sparse) and what it is divided by."""

    mean: np.ndarray | None
    scale: np.ndarray

    @classmethod
    def of(cls, features: Any, index: np.ndarray | None, weights: np.ndarray | None) -> Scaling:
        """Mean and standard deviation of dense features; the largest size of sparse ones. A constant becomes 0.

        Args:
            features: dense `[n, D]` or SciPy CSR.
            index: the rows to learn from; None for all.
            weights: of these rows; None for 1.
        """
        if hasattr(features, "indptr"):
            scale = np.zeros(features.shape[1])
            for rows in chunks(features.shape[0] if index is None else len(index)):
                chosen = abs(features[rows if index is None else index[rows]])
                np.maximum.at(scale, chosen.indices, chosen.data)
            return cls(None, np.where(scale > 0, scale, OF_CONSTANTS))
        count = len(features) if index is None else len(index)

        def average(of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
            total, weight = np.zeros(features.shape[1]), 0.0
            for rows in chunks(count):
                shares = np.ones(rows.stop - rows.start) if weights is None else weights[rows]
                total += shares @ of(features[rows if index is None else index[rows]].astype(np.float64))
                weight += shares.sum()
            return total / weight

        mean = average(lambda rows: rows)
        scale = np.sqrt(average(lambda rows: np.square(rows - mean)))
        # Rounding leaves a constant a spread of some units in the last place.
        flat = scale <= 1e-12 * np.abs(mean)
        return cls(mean, np.where(flat, OF_CONSTANTS, scale))

    def before_more_rows(self) -> Scaling:
        """The same with constants as they are, where they may turn out not to be any in rows still to come."""
        return self._replace(scale=np.where(self.scale < OF_CONSTANTS, self.scale, 1.0))


class Rows:
    """The rows of a table, given out in batches of scaled tensors; the table itself is neither copied nor changed.

    Args:
        features: dense `[n, D]` or SciPy CSR.
        scaling: as learned on training rows.
        device: where the batches go.
        dtype: their precision.
        index: which rows of the table these are; None for all.
    """

    def __init__(
        self,
        features: Any,
        scaling: Scaling,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        index: np.ndarray | None = None,
    ):
        self.features, self.scaling, self.device, self.dtype, self.index = features, scaling, device, dtype, index

    def __len__(self) -> int:
        return self.features.shape[0] if self.index is None else len(self.index)

    @property
    def num_features(self) -> int:
        """D."""
        return self.features.shape[1]

    @property
    def sparse(self) -> bool:
        """Whether batches are `Bags`."""
        return hasattr(self.features, "indptr") and self.scaling.mean is None

    def scaled(self, rows: np.ndarray | slice) -> Any:
        """These rows as they would be given out, in double precision: an array, or SciPy CSR."""
        chosen, (mean, scale) = self.features[rows if self.index is None else self.index[rows]], self.scaling
        if not isinstance(chosen, np.ndarray) and mean is not None:  # sparse rows for a model of dense ones
            chosen = chosen.toarray()
        if isinstance(chosen, np.ndarray):
            return (chosen - mean) / scale if mean is not None else chosen / scale
        return type(chosen)((chosen.data / scale[chosen.indices], chosen.indices, chosen.indptr), chosen.shape)

    def take(self, rows: np.ndarray | slice) -> Tensor | Bags:
        """These rows, scaled."""
        scaled = self.scaled(rows)
        if isinstance(scaled, np.ndarray):
            return torch.from_numpy(scaled).to(device=self.device, dtype=self.dtype)
        columns = torch.from_numpy(scaled.indices.astype(np.int64))
        values = torch.from_numpy(scaled.data).to(self.dtype)
        starts = torch.from_numpy(scaled.indptr[:-1].astype(np.int64))
        return Bags(columns.to(self.device), values.to(self.device), starts.to(self.device), scaled.shape[1])


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Torch with one thread, where batches are too small for a second one to bring more than it costs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(seed: int, wanted: bool = True) -> Iterator[None]:
    """Torch's own generator from a seed, for modules that draw from it; afterwards it is where the caller left it."""
    if not wanted:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def chunks(count: int, size: int = CHUNK) -> Iterator[slice]:
    """Slices that cover `count` rows."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


class Batches:
    """Batches of row numbers without end, each epoch in a new order; a last part that is short is left to the next.

    Args:
        count: number of rows.
        batch_size: of a batch.
        generator: of the orders.
    """

    def __init__(self, count: int, batch_size: int, generator: np.random.Generator):
        self.count, self.batch_size, self.generator = count, min(batch_size, count), generator
        self._order, self._taken = np.arange(0, dtype=np.int32), 0
        self._before = generator.bit_generator.state  # of the generator, before it made the present order

    def __next__(self) -> np.ndarray:
        start = self._taken * self.batch_size
        if start + self.batch_size > len(self._order):
            self._begin_epoch()
            start = 0
        self._taken += 1
        return self._order[start : start + self.batch_size]

    def kept(self) -> dict[str, Any]:
        """Where it is, in plain numbers and texts."""
        return {"generator": self._before, "taken": self._taken}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on where `kept` was asked."""
        self.generator.bit_generator.state = kept["generator"]
        if kept["taken"]:
            self._begin_epoch()
            self._taken = kept["taken"]

    def _begin_epoch(self) -> None:
        self._before = self.generator.bit_generator.state
        self._order = np.arange(0, dtype=np.int32)  # frees the last order before the next takes its place
        self._order, self._taken = np.arange(self.count, dtype=np.int32), 0
        self.generator.shuffle(self._order)


def held_back(classes: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to train on and `count` to hold back, each class by its share but at least once on either side.

    Args:
        classes: `[n]`, the class of each row; at least two rows of each.
        count: rows to hold back, at least one for each class.
        seed: of the draw.

    Returns:
        Two arrays of row numbers, in order.

    Example:
        >>> kept, held = held_back(np.array([0, 0, 0, 0, 1, 1]), 3, seed=0)
        >>> len(kept), len(held), 4 in held or 5 in held
        (3, 3, True)
    """
    generator = np.random.default_rng(seed)
    kinds, sizes = np.unique(classes, return_counts=True)
    quota = quotas(sizes, count)
    held = np.zeros(len(classes), dtype=bool)
    for kind, taken in zip(kinds, quota, strict=True):
        rows = np.flatnonzero(classes == kind).astype(np.int32)
        held[generator.permutation(rows)[:taken]] = True
    return np.flatnonzero(~held).astype(np.int32), np.flatnonzero(held).astype(np.int32)


def quotas(sizes: np.ndarray, count: int) -> np.ndarray:
    """How many of `count` rows each class gets: its share by largest remainders, but one at least and not all."""
    wanted = sizes * count / sizes.sum()
    quota = np.clip(np.floor(wanted).astype(int), 1, sizes - 1)
    for kind in np.argsort(quota - wanted):
        quota[kind] += int(quota.sum() < count and quota[kind] < sizes[kind] - 1)
    return quota


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
        """Put a copy of tensors that `head` gave in the place of a head."""

    @abstractmethod
    def shrink_(self, factors: Tensor) -> None:
        """Multiply the weights of each head, offsets apart, by its factor, `[G]`."""

    @torch.no_grad()
    def scores(self, rows: Rows) -> Tensor:
        """Scores of all rows `[n, G, L]`, in evaluation mode and on the CPU."""
        training = self.training
        if training:  # a fitted model is not, so that several threads may score with it
            self.eval()
        # Into one tensor: small ones, kept between large ones that go, would keep their memory from being used again.
        found = torch.empty(len(rows), self.num_heads, self.num_labels, dtype=rows.dtype)
        for part in chunks(len(rows)):
            found[part] = self(rows.take(part))
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
        if weight.shape[2] == 1:  # products of matrices this thin take several times as long
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
        """`[G]`, the sum of squared weights of each linear head, offsets apart."""
        return self.weights[0].square().sum((0, 2))

    @torch.no_grad()
    def shrink_(self, factors: Tensor) -> None:
        for layer, weight in enumerate(self.weights):
            weight.mul_(factors[:, None] if layer == 0 else factors[:, None, None])


class Modules(Heads):
    """Copies of a user's own module, each a head, in single precision as the rows are.

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
                if parameter.ndim > 1 and parameter.requires_grad:  # what its owner froze stays as it is
                    parameter.mul_(factor)


def module_maker(model: nn.Module | Callable[[], Any]) -> Callable[[], nn.Module]:
    """A function that gives copies of a module, or of what a factory makes, which may be the same every time."""
    if isinstance(model, nn.Module):
        return lambda: copy.deepcopy(model)

    def made() -> nn.Module:
        module = model()
        if not isinstance(module, nn.Module):
            raise TypeError(f"model must make an nn.Module, got {type(module).__name__}")
        return copy.deepcopy(module)

    return made
