"""Split rows: hold some of them back, or go through them in chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from aimfor._base.ranks import Ranks, RowShare

# Rows that are scored at once.
CHUNK = 8192
# Draws of groups that are tried, until every class is on both sides.
GROUP_DRAWS = 50


def chunks(count: int, size: int = CHUNK) -> Iterator[slice]:
    """Slices that cover `count` rows."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def held_back(
    classes: np.ndarray, count: int, seed: int, share: RowShare | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to train on, and `count` row numbers to hold back. Each class is on both sides, by its share.

    Args:
        classes: `[n]`, the class of each row; at least two rows of each.
        count: rows to hold back, at least one for each class.
        seed: random seed.
        share: which of all rows these are, where several processes share them; None for all.

    Returns:
        Two arrays of row numbers, in order.

    Example:
        >>> kept, held = held_back(np.array([0, 0, 0, 0, 1, 1]), 3, seed=0)
        >>> len(kept), len(held), 4 in held or 5 in held
        (3, 3, True)
    """
    share = share or RowShare.whole(len(classes))
    generator = np.random.default_rng(seed)
    kinds, sizes = class_counts(classes, share.ranks)
    quota = quotas(sizes, count)
    held = np.zeros(len(classes), dtype=bool)
    for kind, size, taken in zip(kinds, sizes, quota, strict=True):
        rows = np.flatnonzero(classes == kind).astype(np.int32)
        # Which of the rows of the class, in their order, whoever has them.
        chosen = generator.permutation(np.arange(size, dtype=np.int32))[:taken]
        held[rows[share.select(rows).local(np.sort(chosen))]] = True
    return np.flatnonzero(~held).astype(np.int32), np.flatnonzero(held).astype(np.int32)


def groups_held_back(
    classes: np.ndarray, groups: np.ndarray, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """As `held_back`, but rows of one group stay together; None where no draw has every class on both sides.

    Args:
        classes: `[n]`, the class of each row.
        groups: `[n]`, the group of each row.
        count: about how many rows to hold back.
        seed: random seed.

    Example:
        >>> kept, held = groups_held_back(np.array([0, 1] * 6), np.repeat(range(6), 2), 4, seed=0)
        >>> len(kept), len(held), set(kept // 2) & set(held // 2)
        (8, 4, set())
    """
    generator = np.random.default_rng(seed)
    kinds = len(np.unique(classes))
    _, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    for _ in range(GROUP_DRAWS):
        order = generator.permutation(len(sizes))
        # Of the groups in random order, so many that their rows come nearest to the count.
        last = int(np.argmin(np.abs(np.cumsum(sizes[order]) - count)))
        held = np.isin(index.reshape(-1), order[: last + 1])
        if all(len(np.unique(classes[part])) == kinds for part in (held, ~held)):
            return np.flatnonzero(~held).astype(np.int32), np.flatnonzero(held).astype(np.int32)
    return None


def class_counts(classes: np.ndarray, ranks: Ranks) -> tuple[np.ndarray, np.ndarray]:
    """The classes of the rows of all ranks, and how many rows each has."""
    total: Counter[Any] = Counter()
    for kinds, counts in ranks.gather(np.unique(classes, return_counts=True)):
        total.update(dict(zip(kinds.tolist(), counts.tolist(), strict=True)))
    kinds = sorted(total)
    return np.array(kinds, dtype=classes.dtype), np.array([total[kind] for kind in kinds])


def quotas(sizes: np.ndarray, count: int) -> np.ndarray:
    """How many of `count` rows each class gets: its share by largest remainders, at least one, and never all."""
    wanted = sizes * count / sizes.sum()
    quota = np.clip(np.floor(wanted).astype(int), 1, sizes - 1)
    for kind in np.argsort(quota - wanted):
        quota[kind] += int(quota.sum() < count and quota[kind] < sizes[kind] - 1)
    return quota
