"""Evidence that grows with every row and may be read at any time: a bet against "all is as promised".

Each bet multiplies its stake by a factor whose mean is at most 1 as long as all is as promised. The stake is spread
over all rows at which things may have changed, so a long quiet time does not use it up. By Ville's inequality the total
reaches 1 / level, ever, with probability at most the level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aimfor._base.arrays import Array

# Bets on a failure: by how much the log-odds of a failure have risen.
SHIFTS = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.5])
# Bets on ranks: powers of the rank, and of one minus it.
POWERS = np.array([0.3, 0.6, 0.85])


@dataclass
class Evidence:
    """The bets on one question.

    Attributes:
        stakes: logarithm of what each bet has made of its stake, -inf before the first row.
        rows: rows counted.
        highest: the logarithm of the total at its highest, ever.
    """

    stakes: Array
    rows: int = 0
    highest: float = 0.0

    @classmethod
    def of_bets(cls, count: int) -> Evidence:
        """No evidence yet."""
        return cls(np.full(count, -np.inf))

    def add(self, factors: Array) -> None:
        """Count rows in their order.

        Args:
            factors: `[n, bets]`, logarithms of the factors.
        """
        if len(factors) == 0:
            return
        times = self.rows + np.arange(1, len(factors) + 1)
        # The part of the stake that is set aside until row t is 1 / log2(t + 1); it falls slowly enough that a change
        # after a long time is found soon.
        kept_back, new = 1 / np.log2(times + 2), 1 / np.log2(times + 1) - 1 / np.log2(times + 2)
        grown = np.cumsum(factors, axis=0)
        before = np.vstack([np.zeros(factors.shape[1]), grown[:-1]])
        entering = np.vstack([self.stakes, np.log(new)[:, None] - before])
        stakes = grown + np.logaddexp.accumulate(entering, axis=0)[1:]
        total = np.logaddexp(np.logaddexp.reduce(stakes, axis=1) - np.log(factors.shape[1]), np.log(kept_back))
        self.stakes, self.rows = stakes[-1], int(times[-1])
        self.highest = max(self.highest, float(total.max()))


def failure_factors(failed: np.ndarray, most: float) -> Array:
    """Logarithms of the factors for rows that failed or not, where at most the share `most` should fail."""
    odds = most / (1 - most) * np.exp(SHIFTS)
    share = odds / (1 + odds)
    return np.where(failed[:, None], np.log(share / most), np.log((1 - share) / (1 - most)))


def rank_factors(ranks: Array) -> Array:
    """Logarithms of the factors for ranks that should be uniform on (0, 1)."""
    ranks = np.clip(ranks, 1e-12, 1 - 1e-12)
    both = np.stack([ranks, 1 - ranks], axis=1)[:, :, None]
    return (np.log(POWERS) + (POWERS - 1) * np.log(both)).reshape(len(ranks), -1)
