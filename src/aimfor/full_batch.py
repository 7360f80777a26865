"""Step, log-loss of linear heads: all rows at once, to the minimum."""

from __future__ import annotations

import math
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
# Newton's method takes rows times squared features of work for a step of one label.
MOST_FOR_NEWTON = 2e9
# Without any decay the weights of separable rows grow for ever.
SMALLEST_DECAY = 1e-9


def converge_(
    heads: Layers, recipes: Sequence[Recipe], data: Data, multiclass: bool, generator: np.random.Generator
) -> None:
    """Bring linear heads to the minimum of their penalised log-loss on all rows: one head and label after the other
    where that is quick, else, and for exclusive classes, all together by L-BFGS.
    """
    count = len(data.rows)
    if count > FULL_BATCH_ROWS:
        index = np.sort(generator.choice(count, FULL_BATCH_ROWS, replace=False))
    else:
        index = np.arange(count)
    quick = heads.num_labels * len(index) * data.rows.num_features**2 <= MOST_FOR_NEWTON
    if not multiclass and (quick or data.rows.sparse):
        each_(heads, recipes, data, index)
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


def each_(heads: Heads, recipes: Sequence[Recipe], data: Data, index: np.ndarray) -> None:
    """The minimum of every head and label by itself, by scikit-learn: Newton's steps for dense rows, which features of
    any correlation suit; L-BFGS for sparse ones, from the minimum at the next stronger decay."""
    from scipy.linalg import LinAlgWarning
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    sparse = data.rows.sparse
    if sparse:
        features = data.rows.scaled(index)
    else:
        features = np.empty((len(index), data.rows.num_features))
        for part in chunks(len(index)):
            features[part] = data.rows.scaled(index[part])
    solver = {"solver": "lbfgs", "tol": 1e-5} if sparse else {"solver": "newton-cholesky", "tol": 1e-6}
    row_weights = np.ones(len(index)) if data.weights is None else data.weights[index].double().numpy()
    weights = np.zeros((len(recipes), features.shape[1], heads.num_labels), dtype=np.float32)
    offsets = np.zeros((len(recipes), heads.num_labels), dtype=np.float32)
    by_strength = sorted(range(len(recipes)), key=lambda head: (recipes[head].balanced, -recipes[head].decay))
    for label in range(heads.num_labels):
        positive = data.labels[index, label].numpy() == 1
        share = np.average(positive, weights=row_weights)
        if share in (0, 1):  # a label that these rows tell nothing of
            offsets[:, label] = (1 if share else -1) * math.log(2 * len(index) + 1)
            continue
        model = LogisticRegression(max_iter=1000 if sparse else 100, warm_start=sparse, **solver)
        for head in by_strength:
            recipe = recipes[head]
            factors = np.where(positive, 0.5 / share, 0.5 / (1 - share)) if recipe.balanced else 1.0
            strength = 1 / (max(recipe.decay, SMALLEST_DECAY) * row_weights.sum())
            with warnings.catch_warnings():
                # Separable rows have no minimum to speak of; where the steps end is as good.
                for kind in (ConvergenceWarning, LinAlgWarning):
                    warnings.simplefilter("ignore", kind)
                model.set_params(C=strength).fit(features, positive, sample_weight=row_weights * factors)
            weights[head, :, label], offsets[head, label] = model.coef_[0], np.asarray(model.intercept_)[0]
    for head in range(len(recipes)):
        tensors = {"weights.0": torch.from_numpy(weights[head]), "offsets.0": torch.from_numpy(offsets[head])}
        heads.set_head_(head, tensors)
