"""The mean of some numbers and how far they spread."""

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from scipy import stats


class Spread(NamedTuple):
    """Mean of some numbers, their standard deviation, standard error of the mean, and how many they are."""

    mean: float
    deviation: float
    error: float
    count: int

    @property
    def sign(self) -> int:
        """1 or -1 where the mean is clear of 0 by Student's t, level 0.05: of three numbers by 4.3 standard errors, of
        two by 12.7. One number has no error and is clear of nothing."""
        limit = float(stats.t.ppf(0.975, self.count - 1)) * self.error
        return int(self.mean > limit) - int(self.mean < -limit)

    def times(self, factor: float) -> "Spread":
        """The same in other units."""
        return Spread(factor * self.mean, factor * self.deviation, factor * self.error, self.count)


def spread(values: Iterable[float]) -> Spread:
    """Mean, standard deviation and standard error; nan for the last two when there is one value only."""
    values = list(values)
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    return Spread(statistics.fmean(values), deviation, deviation / math.sqrt(len(values)), len(values))
