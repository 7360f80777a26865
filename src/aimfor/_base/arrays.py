"""Types of arrays, and when two rates count as equal."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Values = ArrayLike | torch.Tensor

# Cumulated weights are rounded. Of twelve rows of weight 0.1, nine have the share 0.7499999999999999, which would miss
# the target 0.75. So two rates count as equal when their relative difference is below this.
ROUNDING = 1e-12
