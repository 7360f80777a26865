"""Fit the log-loss of linear heads to its minimum, with all rows at once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aimfor._base.ranks import ALONE, Ranks
from aimfor._base.splitting import chunks
from aimfor.training._models import Heads, Layers
from aimfor.training._objectives import LogLoss
from aimfor.training._recipes import Recipe
from aimfor.training._rows import Data, FeatureRows

# The most rows that a full-batch fit of log-loss reads. A linear model gains nothing from more.
FULL_BATCH_ROWS = 200_000
FULL_BATCH_STEPS = 200
# The most work for Newton's method, whose step costs rows times squared features for each label.
MOST_FOR_NEWTON = 2e9
# Without a decay the weights of separable rows would grow without bound.
SMALLEST_DECAY = 1e-9


def converge_(
    heads: Layers, recipes: Sequence[Recipe], data: Data, multiclass: bool, generator: np.random.Generator
) -> None:
    """Bring linear heads to the minimum of their penalised log-loss on all rows.

    Heads and labels are fitted one by one where that is quick, else all together by L-BFGS.
    """
    count, whole = data.total, data
    if count > FULL_BATCH_ROWS:
        index = np.sort(generator.choice(count, FULL_BATCH_ROWS, replace=False))
    else:
        index = np.arange(count)
    if data.ranks.size > 1:  # every rank gets the rows, and they share the work
        data, index = data.collected(index), np.arange(len(index))
    quick = heads.num_labels * len(index) * data.rows.num_features**2 <= MOST_FOR_NEWTON
    if quick or data.rows.sparse:
        each_(heads, recipes, data, index, multiclass, whole.ranks)
        return
    batches = [data.take(index[part]) for part in chunks(len(index))]
    total = sum(float(len(labels) if weights is None else weights.sum()) for _, labels, weights in batches)
    log_loss = LogLoss(recipes, whole, multiclass)
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
            part = len(labels) / total * log_loss(heads(features), labels, weights)
            part.backward()
            whole = whole + part.detach()
        return whole

    optimiser.step(value)
    heads.load_state_dict(whole.ranks.first(heads.state_dict()))


def each_(
    heads: Heads, recipes: Sequence[Recipe], data: Data, index: np.ndarray, multiclass: bool, ranks: Ranks = ALONE
) -> None:
    """Fit every head and label by itself with scikit-learn.

    Dense rows of one label use Newton's method, which correlated features do not slow down. Others use L-BFGS, started
    from the minimum at the next stronger decay. Ranks take labels and balances by turns.
    """
    features = _features(data.rows, index)
    newton = not data.rows.sparse and not multiclass
    row_weights = np.ones(len(index)) if data.weights is None else data.weights[index].double().numpy()
    weights = np.zeros((len(recipes), features.shape[1], heads.num_labels), dtype=np.float32)
    # A label or class that these rows do not have counts as rare.
    offsets = np.full((len(recipes), heads.num_labels), -math.log(2 * len(index) + 1), dtype=np.float32)
    by_strength = sorted(range(len(recipes)), key=lambda head: (recipes[head].balanced, -recipes[head].decay))
    turn, fitted = 0, []
    for label in range(1 if multiclass else heads.num_labels):
        target = data.labels[index].numpy() if multiclass else data.labels[index, label].numpy()
        found, which = np.unique(target, return_inverse=True)
        if len(found) < 2:
            if found[0] == 1 and not multiclass:
                offsets[:, label] *= -1
            continue
        # The columns of the coefficients: for two classes scikit-learn gives only the second.
        columns = found[-1:] if multiclass and len(found) == 2 else found if multiclass else [label]
        if multiclass:
            offsets[:, found] = 0.0
        totals = np.bincount(which, weights=row_weights)
        balance = (totals.sum() / (len(found) * totals))[which]
        for balanced, same_weights in groupby(by_strength, lambda head: recipes[head].balanced):
            turn += 1
            if turn % ranks.size != ranks.number:
                continue
            model, total = _logistic_regression(newton), row_weights.sum()
            for head in same_weights:
                decay = max(recipes[head].decay, SMALLEST_DECAY)
                # With a weak decay the last slopes are weak too, so the tolerance follows it.
                model.set_params(C=1 / (decay * total), tol=1e-6 if newton else min(1e-5, decay))
                _fit_quietly(model, features, target, row_weights * balance if balanced else row_weights)
                fitted.append((head, columns, model.coef_.T, np.array(model.intercept_)))
    for own in ranks.gather(fitted):
        for head, columns, coefficients, intercept in own:
            weights[head][:, columns], offsets[head, columns] = coefficients, intercept
    for head in range(len(recipes)):
        tensors = {"weights.0": torch.from_numpy(weights[head]), "offsets.0": torch.from_numpy(offsets[head])}
        heads.set_head_(head, tensors)


def _logistic_regression(newton: bool) -> Any:
    from sklearn.linear_model import LogisticRegression

    steps = 100 if newton else 1000
    return LogisticRegression(solver="newton-cholesky" if newton else "lbfgs", max_iter=steps, warm_start=not newton)


def _fit_quietly(model: Any, features: Any, target: np.ndarray, weights: np.ndarray) -> None:
    """Fit without warnings: separable rows have no finite minimum, and the last step is as good as any."""
    from scipy.linalg import LinAlgWarning
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        for kind in (ConvergenceWarning, LinAlgWarning):
            warnings.simplefilter("ignore", kind)
        model.fit(features, target, sample_weight=weights)


def _features(rows: FeatureRows, index: np.ndarray) -> Any:
    """Scaled rows in double precision, SciPy CSR or an array."""
    if rows.sparse:
        return rows.scaled(index)
    features = np.empty((len(index), rows.num_features))
    for part in chunks(len(index)):  # chunk by chunk, so that only one array of this size exists
        features[part] = rows.scaled(index[part])
    return features
