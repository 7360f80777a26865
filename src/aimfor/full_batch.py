"""Step, log-loss of linear heads: all rows at once, to the minimum."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from aimfor.heads import Heads, Layers, chunks
from aimfor.objectives import Data, LogLoss, Recipe

# Rows that a full-batch fit of log-loss reads at most; a linear model learns nothing more from others.
FULL_BATCH_ROWS = 200_000
FULL_BATCH_STEPS = 200
# Newton's method takes rows times squared features of work for a step of one head.
MOST_FOR_NEWTON = 2e9
# Without any decay the weights of separable rows grow for ever.
SMALLEST_DECAY = 1e-9


def converge_(
    heads: Layers, recipes: Sequence[Recipe], data: Data, multiclass: bool, generator: np.random.Generator
) -> None:
    """Bring linear heads to the minimum of their penalised log-loss on all rows: by Newton's method, one head after the
    other, where that is quick, else by L-BFGS, all together.
    """
    count = len(data.rows)
    if count > FULL_BATCH_ROWS:
        index = np.sort(generator.choice(count, FULL_BATCH_ROWS, replace=False))
    else:
        index = np.arange(count)
    quick = len(index) * data.rows.num_features**2 <= MOST_FOR_NEWTON
    if quick and heads.num_labels == 1 and not data.rows.sparse:
        newton_(heads, recipes, data, index)
        return
    batches = [data.take(index[part]) for part in chunks(len(index))]
    total = sum(float(len(labels) if weights is None else weights.sum()) for _, labels, weights in batches)
    log_loss = LogLoss(recipes, data, multiclass)
    decays = torch.tensor([recipe.decay for recipe in recipes], device=data.rows.device)
    optimiser = torch.optim.LBFGS(
        heads.parameters(),
        max_iter=FULL_BATCH_STEPS,
        history_size=20,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    def value() -> Tensor:
        optimiser.zero_grad()
        whole = 0.5 * (decays * heads.squares()).sum()
        whole.backward()
        whole = whole.detach()
        for features, labels, weights in batches:
            share = float(len(labels) if weights is None else weights.sum()) / total
            if share > 0:
                part = share * log_loss(heads(features), labels, weights)
                part.backward()
                whole = whole + part.detach()
        return whole

    optimiser.step(value)


def newton_(heads: Heads, recipes: Sequence[Recipe], data: Data, index: np.ndarray) -> None:
    """The minimum of every head by scikit-learn's Newton steps, which features of any shape and correlation suit."""
    from scipy.linalg import LinAlgWarning
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    features = np.empty((len(index), data.rows.num_features))
    for part in chunks(len(index)):
        rows = data.rows.take(index[part])
        assert isinstance(rows, Tensor), "sparse rows have no Newton steps"
        features[part] = rows.cpu().numpy()
    positive = data.labels[index, 0].numpy() == 1
    weights = np.ones(len(index)) if data.weights is None else data.weights[index].double().numpy()
    share = np.average(positive, weights=weights)
    for head, recipe in enumerate(recipes):
        factors = np.where(positive, 0.5 / share, 0.5 / (1 - share)) if recipe.balanced else 1.0
        strength = 1 / (max(recipe.decay, SMALLEST_DECAY) * weights.sum())
        model = LogisticRegression(C=strength, solver="newton-cholesky", max_iter=100, tol=1e-6)
        with warnings.catch_warnings():
            # Separable rows have no minimum to speak of; where the steps end is as good.
            for kind in (ConvergenceWarning, LinAlgWarning):
                warnings.simplefilter("ignore", kind)
            model.fit(features, positive, sample_weight=weights * factors)
        weight = torch.from_numpy(model.coef_.T).float()
        heads.set_head_(head, {"weights.0": weight, "offsets.0": torch.from_numpy(model.intercept_).float()})
