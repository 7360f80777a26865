"""The average of several forests, each brought to the same scale first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aimfor._base.errors import ModelFileError
from aimfor.boosting._forest import Forest

MOST_FORESTS = 1000
# Scores divided by it stay finite; a forest of one leaf, which spreads nothing, is divided by 1.
SMALLEST_SCALE = 1e-100


@dataclass(frozen=True, eq=False)
class ForestAverage:
    """Forests whose standardised scores are averaged: the mean of (score - centre) / scale.

    Attributes:
        forests: at least one, all of the same features.
        centres: `[forests]`, mean score of each forest on the rows that it was standardised by.
        scales: `[forests]`, standard deviation there, above 0.
    """

    forests: tuple[Forest, ...]
    centres: np.ndarray
    scales: np.ndarray

    @classmethod
    def standardised(
        cls, forests: Sequence[Forest], scores: Sequence[np.ndarray], weights: np.ndarray | None = None
    ) -> ForestAverage:
        """Average forests by their mean and spread on some rows.

        Args:
            forests: which to average.
            scores: for each forest its scores of the same rows.
            weights: of these rows; None means 1.
        """
        columns = np.stack(list(scores), axis=1)
        centres = np.average(columns, axis=0, weights=weights)
        spread = np.sqrt(np.average((columns - centres) ** 2, axis=0, weights=weights))
        scales = np.where(spread >= SMALLEST_SCALE, spread, 1.0)
        average = cls(tuple(forests), centres, scales)
        average.check()
        return average

    @property
    def num_features(self) -> int:
        """Number of features that a row must have."""
        return self.forests[0].num_features

    @property
    def gain(self) -> np.ndarray:
        """`[features]`, share of each feature in the gain of all splits, averaged over the forests."""
        # A forest of single leaves has no gain to share.
        shares = [forest.gain / (forest.gain.sum() or 1.0) for forest in self.forests]
        return np.mean(shares, axis=0)

    def scores(self, features: Any) -> np.ndarray:
        """Averaged scores of the rows, float64 `[n]`; see `Forest.scores`."""
        return self.combine([forest.scores(features) for forest in self.forests])

    def combine(self, scores: Sequence[np.ndarray]) -> np.ndarray:
        """The average from the forests' own scores, for callers that have them already."""
        total = np.zeros(len(scores[0]))
        for own, centre, scale in zip(scores, self.centres, self.scales, strict=True):
            total += (own - centre) / scale
        return total / len(self.forests)

    def to_tensors(self) -> dict[str, Tensor]:
        """The arrays by name, for a safetensors file."""
        tensors = {"centres": torch.from_numpy(self.centres), "scales": torch.from_numpy(self.scales)}
        for place, forest in enumerate(self.forests):
            tensors |= {f"{place}.{name}": tensor for name, tensor in forest.to_tensors().items()}
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> ForestAverage:
        """The average that `to_tensors` described.

        Raises:
            ModelFileError: where these are not the arrays of forests, in one sentence.
        """
        numbers = []
        for name in ("centres", "scales"):
            tensor = tensors.get(name)
            if tensor is None or tensor.dtype != torch.float64 or tensor.ndim != 1:
                raise ModelFileError(f"forests: tensor {name!r} must be float64 of one dimension, got another or none")
            numbers.append(tensor.numpy())
        count = len(numbers[0])
        if not 0 < count <= MOST_FORESTS:
            raise ModelFileError(f"forests: there must be 1 to {MOST_FORESTS} forests, got {count}")
        of_forest: list[dict[str, Tensor]] = [{} for _ in range(count)]
        places = {str(place): place for place in range(count)}
        for name in set(tensors) - {"centres", "scales"}:
            place, _, own = name.partition(".")
            if place not in places:
                raise ModelFileError(f"forests: tensor {name[:50]!r} must belong to one of the {count} forests")
            of_forest[places[place]][own] = tensors[name]
        average = cls(tuple(map(Forest.from_tensors, of_forest)), *numbers)
        average.check()
        return average

    def check(self) -> None:
        """Refuse forests of different features and scales that are no scales.

        Raises:
            ModelFileError: in one sentence.
        """
        count = len(self.forests)
        if len(self.centres) != count or len(self.scales) != count:
            raise ModelFileError(f"forests: centres and scales must have {count} entries each")
        finite = np.isfinite(self.centres).all() and np.isfinite(self.scales).all()
        if not finite or (self.scales < SMALLEST_SCALE).any():
            raise ModelFileError(f"forests: centres must be finite, and scales finite and at least {SMALLEST_SCALE:g}")
        if len({forest.num_features for forest in self.forests}) != 1:
            raise ModelFileError("forests: all forests must read the same number of features")
