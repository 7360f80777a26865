"""skorch: `AimNet` is its binary classifier with a new `aimfor.Loss` in every fit, and predicts at its threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from skorch import NeuralNetBinaryClassifier

from aimfor.loss import Loss


class AimNet(NeuralNetBinaryClassifier):
    """skorch's `NeuralNetBinaryClassifier`, trained for an aim: `AimNet(module, criterion__aim="f1")`.

    Options of the loss are `criterion__...`, so that grid searches reach them and every fit starts with a new loss. For
    an aim with one anchor `predict` uses the threshold that the loss learned. An area has no threshold of its own:
    there `predict` uses score 0, and `aimfor.operating_point` chooses a threshold on held-out rows.

    `predict_proba` is a sigmoid of the scores, shifted so that 0.5 lies at that threshold. It ranks as the scores do,
    but it is no calibrated probability.

    Args:
        module: a module, or its class, that gives one score per row.
        criterion: the class `aimfor.Loss`, or one derived from it; an instance would carry its state from fit to fit.
        **options: those of `NeuralNetBinaryClassifier`.

    Example:
        >>> net = AimNet(torch.nn.Linear(2, 1), criterion__aim="recall@precision>=0.9", max_epochs=2, verbose=0)
        >>> rows = torch.randn(40, 2)
        >>> net.fit(rows, (rows[:, 0] > 0).long()).predict(rows).shape
        (40,)
    """

    def __init__(self, module: Any, *, criterion: type[Loss] = Loss, **options: Any):
        super().__init__(module, criterion=criterion, **options)  # pyright: ignore[reportArgumentType]

    def initialize_criterion(self) -> AimNet:
        """Make the loss; refuses an instance."""
        if not isinstance(self.criterion, type):
            raise TypeError(
                "criterion must be the class aimfor.Loss, with its options as criterion__aim=... and the like. An "
                f"instance would carry its state from fit to fit, got {self.criterion}"
            )
        return super().initialize_criterion()

    def predict_proba(self, X: Any) -> np.ndarray:
        """`[n, 2]`, 0.5 in the second column where a score is at the threshold."""
        if self.predict_nonlinearity != "auto":
            return super().predict_proba(X)
        batches: Any = self.forward_iter(X)
        scores = torch.cat([batch.double().cpu() for batch in batches])
        share = (scores - self._threshold()).sigmoid().numpy()
        return np.stack([1 - share, share], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """1 where the score is at or above the threshold."""
        return (self.predict_proba(X)[:, 1] >= self.threshold).astype("uint8")

    def _threshold(self) -> float:
        thresholds: torch.Tensor = self.criterion_.thresholds  # pyright: ignore[reportAssignmentType]
        return thresholds.item() if thresholds.numel() == 1 else 0.0
