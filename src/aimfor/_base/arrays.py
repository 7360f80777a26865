"""Types of arrays, and when two rates count as equal."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Values = ArrayLike | torch.Tensor

# Cumulated weights are rounded: of twelve rows of weight 0.1, nine have the share 0.7499999999999999, which would miss
# the target 0.75. Rates that differ by less than this part of themselves count as equal.
ROUNDING = 1e-12
