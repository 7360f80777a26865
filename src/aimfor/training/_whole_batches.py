"""Ranks give one another whole batches, where each of them repeats a step in less time than its messages take."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch

from aimfor.training._models import Heads, Layers
from aimfor.training._rows import Batch, BatchOrder, Data

# Rows times parameters of a step below which each rank takes it on the whole batch. Such a step takes about as long as
# the three messages of a shared one.
CHEAP = 2**20
# The most features of a batch that is sent whole, half a megabyte.
LIGHT = 2**17
# Parameters for each score up to which a rank computes it itself.
QUICK = 256
# The most batches in one message. A rank that is asked to stop is heard at the next one.
MOST = 32


def cheap(heads: Heads, batch_size: int, num_features: int) -> bool:
    """Whether ranks repeat steps of these heads. A user's own module may draw, so that no step would be the same."""
    if not isinstance(heads, Layers) or batch_size * num_features > LIGHT:
        return False
    return batch_size * sum(one.numel() for one in heads.parameters()) <= CHEAP


def quickly_scored(heads: Heads) -> bool:
    """Whether each rank scores rows itself in less time than it gets their scores from others."""
    scores = heads.num_heads * heads.num_labels
    return isinstance(heads, Layers) and sum(one.numel() for one in heads.parameters()) <= QUICK * scores


class WholeBatches:
    """The batches of an order with the rows of all ranks, many of them in a message.

    Args:
        data: rows that ranks share.
        order: of the batches.
    """

    def __init__(self, data: Data, order: BatchOrder):
        self.data, self.order = data, order
        self._waiting: deque[Batch] = deque()
        self._stopping = False

    def take(self, most: int, asked: bool) -> tuple[Batch, bool]:
        """The next batch.

        Args:
            most: batches that are still wanted.
            asked: whether this process asks to stop.

        Returns:
            The batch, and whether any process has asked to stop before the last message.
        """
        if not self._waiting:
            self._fill(self.order.coming(min(most, MOST)), asked)
        next(self.order)
        return self._waiting.popleft(), self._stopping

    def _fill(self, batches: list[np.ndarray], asked: bool) -> None:
        assert self.data.share is not None
        places, local = self.data.share.found(np.concatenate(batches))
        own = [one.cpu().numpy() for one in self.data.take(local) if one is not None]
        given = self.data.ranks.gather((places, own, asked))
        self._stopping = any(stopping for *_, stopping in given)
        order = np.argsort(np.concatenate([places for places, *_ in given]))
        every = zip(*(rows for _, rows, _ in given), strict=True)
        tensors = [torch.from_numpy(np.concatenate(parts)[order]).to(self.data.rows.device) for parts in every]
        for columns in zip(*(one.split(self.order.batch_size) for one in tensors), strict=True):
            features, labels, *weights = columns
            self._waiting.append(Batch(features, labels, weights[0] if weights else None))
