"""Rows of features: scaled, in batches, in a random order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aimfor._base.ranks import ALONE, Ranks, RowShare
from aimfor._base.splitting import chunks

# The scale of a constant feature. It makes the feature 0 even if later rows have another value, for which no weight was
# trained.
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
    """The mean and the scale of each feature. Sparse rows have no mean, because they must stay sparse."""

    mean: np.ndarray | None
    scale: np.ndarray

    @classmethod
    def of(cls, features: Any, index: np.ndarray | None, weights: np.ndarray | None, ranks: Ranks = ALONE) -> Scaling:
        """Mean and standard deviation of dense features, missing values left out; the largest size of sparse ones.

        A constant becomes 0.

        Args:
            features: dense `[n, D]` or SciPy CSR.
            index: the rows to learn from; None for all.
            weights: of these rows; None for 1.
            ranks: that share the rows, where they are dense.
        """
        if hasattr(features, "indptr"):
            scale = np.zeros(features.shape[1])
            for rows in chunks(features.shape[0] if index is None else len(index)):
                chosen = abs(features[rows if index is None else index[rows]])
                np.maximum.at(scale, chosen.indices, chosen.data)
            return cls(None, np.where(scale > 0, scale, OF_CONSTANTS))
        count = len(features) if index is None else len(index)

        def average(of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
            total, weight = np.zeros(features.shape[1]), np.zeros(features.shape[1])
            for rows in chunks(count):
                shares = np.ones(rows.stop - rows.start) if weights is None else weights[rows]
                values = of(features[rows if index is None else index[rows]].astype(np.float64))
                absent = np.isnan(values)
                if absent.any():
                    total += shares @ np.where(absent, 0.0, values)
                    weight += shares @ ~absent
                else:
                    total += shares @ values
                    weight += shares.sum()
            total, weight = ranks.sum(total), ranks.sum(weight)
            return total / np.where(weight > 0, weight, 1.0)

        mean = average(lambda rows: rows)
        scale = np.sqrt(average(lambda rows: np.square(rows - mean)))
        # Through rounding even a constant has a tiny spread.
        flat = scale <= 1e-12 * np.abs(mean)
        return cls(mean, np.where(flat, OF_CONSTANTS, scale))

    def before_more_rows(self) -> Scaling:
        """The same without scaling constants, which may vary in rows still to come."""
        return self._replace(scale=np.where(self.scale < OF_CONSTANTS, self.scale, 1.0))


class FeatureRows:
    """The rows of a table in batches of scaled tensors. The table itself is neither copied nor changed.

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
        """These rows, scaled, in double precision: an array or SciPy CSR."""
        chosen, (mean, scale) = self.features[rows if self.index is None else self.index[rows]], self.scaling
        if not isinstance(chosen, np.ndarray) and mean is not None:  # the model was trained on dense rows
            chosen = chosen.toarray()
        if isinstance(chosen, np.ndarray):
            scaled = (chosen - mean) / scale if mean is not None else chosen / scale
            # A missing value is taken for the mean; a sum is the cheapest look for one.
            return np.where(np.isnan(scaled), 0.0, scaled) if np.isnan(scaled.sum()) else scaled
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


class BatchOrder:
    """Endless batches of row numbers, each epoch in a new order. An epoch drops its last rows if they are too few.

    Args:
        count: number of rows.
        batch_size: of a batch.
        generator: random generator of the orders.
    """

    def __init__(self, count: int, batch_size: int, generator: np.random.Generator):
        self.count, self.batch_size, self.generator = count, min(batch_size, count), generator
        self._order, self._taken = np.arange(0, dtype=np.int32), 0
        self._before = generator.bit_generator.state  # state of the generator before it made the present order

    def __next__(self) -> np.ndarray:
        (batch,) = self.coming(1)
        self._taken += 1
        return batch

    def coming(self, most: int) -> list[np.ndarray]:
        """The next batches of this epoch, at least one and at most so many, which are not taken yet."""
        if (self._taken + 1) * self.batch_size > len(self._order):
            self._begin_epoch()
        last = min(self._taken + most, len(self._order) // self.batch_size)
        return [self._order[one * self.batch_size :][: self.batch_size] for one in range(self._taken, last)]

    def kept(self) -> dict[str, Any]:
        """Its position, in plain numbers and texts."""
        return {"generator": self._before, "taken": self._taken}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Resume at a position that `kept` gave."""
        self.generator.bit_generator.state = kept["generator"]
        if taken := int(kept["taken"]):
            self._begin_epoch()
            self._taken = min(max(taken, 0), self.count)

    def _begin_epoch(self) -> None:
        self._before = self.generator.bit_generator.state
        self._order = np.arange(0, dtype=np.int32)  # frees the last order before the next is made
        self._order, self._taken = np.arange(self.count, dtype=np.int32), 0
        self.generator.shuffle(self._order)


class Batch(NamedTuple):
    """The rows of a batch that this process has.

    Attributes:
        features, labels: of the rows.
        weights: of the rows, or None for 1.
        portion: the share of the batch that they are, times the number of processes.
        mean_weight: of the whole batch, where several processes share it.
    """

    features: Any
    labels: Tensor
    weights: Tensor | None
    portion: float = 1.0
    mean_weight: Tensor | None = None


class Data(NamedTuple):
    """Rows with their labels and weights.

    Attributes:
        rows: features.
        labels: `[n, L]` 0/1, or classes `[n]`.
        weights: `[n]` with mean 1, or None.
        share: which of the rows of all processes these are; None where this process has them all.
    """

    rows: FeatureRows
    labels: Tensor
    weights: Tensor | None
    share: RowShare | None = None

    @property
    def ranks(self) -> Ranks:
        """The processes that share the rows."""
        return ALONE if self.share is None else self.share.ranks

    @property
    def total(self) -> int:
        """Rows of all processes."""
        return len(self.rows) if self.share is None else self.share.total

    def batch(self, numbers: np.ndarray) -> Batch:
        """The batch of rows with these numbers among those of all processes."""
        if self.share is None:
            return Batch(*self.take(numbers))
        local, size = self.share.local(numbers), self.ranks.size
        features, labels, weights = self.take(local if len(local) else np.zeros(1, dtype=np.int64))
        if not len(local):  # a loss takes at least one row; without weight it counts for nothing
            weights = torch.zeros(1, device=labels.device)
        portion = len(local) * size / len(numbers)
        mean = torch.ones((), device=labels.device)
        if self.weights is not None:
            mean = weights.sum() * size / len(numbers)  # pyright: ignore[reportOptionalMemberAccess]
            self.ranks.average_([mean])
        return Batch(features, labels, weights, portion, mean)

    def collected(self, numbers: np.ndarray) -> Data:
        """Rows with these rising numbers among those of all processes, on each of them."""
        if self.share is None:
            index = numbers if self.rows.index is None else self.rows.index[numbers]
            rows = FeatureRows(self.rows.features, self.rows.scaling, self.rows.device, self.rows.dtype, index)
            return Data(rows, self.labels[numbers], None if self.weights is None else self.weights[numbers])
        local = self.share.local(numbers)
        share = self.share.select(local)
        own = self.rows.features[local if self.rows.index is None else self.rows.index[local]]
        rows = FeatureRows(share.collect(own), self.rows.scaling, self.rows.device, self.rows.dtype)
        labels, weights = (
            None if one is None else torch.from_numpy(share.collect(one[local].numpy()))
            for one in (self.labels, self.weights)
        )
        assert labels is not None
        return Data(rows, labels, weights)

    def mean_labels(self) -> np.ndarray:
        """`[L]`, the share of positives of each label in the rows of all processes."""
        if self.share is None:
            return np.average(self.labels.numpy(), axis=0, weights=self.weights)
        weights = np.ones(len(self.labels)) if self.weights is None else self.weights.double().numpy()
        return self.ranks.sum(weights @ self.labels.double().numpy()) / self.ranks.sum(weights.sum())

    def take(self, rows: np.ndarray | slice) -> tuple[Any, Tensor, Tensor | None]:
        """A batch: features, labels, weights."""
        index = rows if isinstance(rows, slice) else torch.from_numpy(rows)
        labels = self.labels[index].to(self.rows.device)
        weights = None if self.weights is None else self.weights[index].to(self.rows.device)
        return self.rows.take(rows), labels, weights
