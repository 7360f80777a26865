"""Log-loss, converged and tuned, plain or with balanced class weights: what the estimator is measured against.

linear: logistic regression at seven values of C, each to convergence, on standardised features (sparse ones are divided
by their largest magnitude). mlp: one hidden layer, a grid of rate, decay and number of steps; the settings are heads of
one network and see the same batches. Each head keeps its snapshot of lowest validation loss (its own, balanced or not).
Which setting serves an aim is chosen later, by the aim's exact metric on the validation rows.
"""

import math
import warnings
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from common import AdamW
from suite_data import Features

C_GRID = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3)
C_GRID_MULTILABEL = C_GRID[1:-1]
TOLERANCE = 1e-6  # largest entry of the gradient of the mean loss
MAX_ITERATIONS, MAX_NEWTON_STEPS = 20_000, 200
NEWTON_FEATURES = 600  # up to here a step of Newton's method costs less than the many steps of L-BFGS it saves

HIDDEN = 64
RATES, DECAYS, STEPS = (3e-3, 1e-2, 3e-2), (0.0, 0.1, 1.0), (1_000, 5_000)
BATCH_SIZE = 256
LOOKS = 20  # how often in a run the validation loss is looked at
PATIENCE = 8  # looks without a better snapshot in any head, after which a run ends
DENSE_FEATURES = 1_000  # sparse features up to here are made dense for the network: faster, and still small


class Candidate(NamedTuple):
    """One setting: its name, whether its training converged, scores [n, L] of the validation and the test rows."""

    name: str
    converged: bool
    validation: np.ndarray
    test: np.ndarray


def scaled(X_fit: Features, *others: Features) -> list[Features]:
    """Features scaled by the statistics of the first; sparse ones stay sparse."""
    scaler = MaxAbsScaler() if sparse.issparse(X_fit) else StandardScaler()
    return [scaler.fit(X_fit).transform(X) for X in (X_fit, *others)]


def logistic_regressions(
    X_fit: Features, Y_fit: np.ndarray, X_validation: Features, X_test: Features, *, balanced: bool
) -> list[Candidate]:
    """Logistic regression of one label at every C, strongest regularisation first."""
    X_fit, X_validation, X_test = scaled(X_fit, X_validation, X_test)
    model = LogisticRegression(
        solver="newton-cholesky" if X_fit.shape[1] <= NEWTON_FEATURES else "lbfgs",
        class_weight="balanced" if balanced else None,
        max_iter=MAX_ITERATIONS,
        tol=TOLERANCE,
        warm_start=True,
    )
    found = []
    for C in C_GRID:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.set_params(C=C).fit(X_fit, Y_fit[:, 0])
        unfinished = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
        converged = not unfinished and int(model.n_iter_.max()) < MAX_ITERATIONS
        scores = [model.decision_function(X)[:, None] for X in (X_validation, X_test)]
        found.append(Candidate(f"C={C:g}", converged, *scores))
    return found


def one_against_rest(X_fit: Features, Y_fit: np.ndarray, X_validation: Features, X_test: Features) -> list[Candidate]:
    """Logistic regression of each label at every C, all labels side by side: scikit-learn's would take hours."""
    X_fit, X_validation, X_test = (_with_ones(X) for X in scaled(X_fit, X_validation, X_test))
    weight = np.zeros((X_fit.shape[1], Y_fit.shape[1]))
    found = []
    for C in C_GRID_MULTILABEL:
        penalty = np.full((len(weight), 1), 1 / (C * len(Y_fit)))
        penalty[-1] = 0  # the intercept
        weight, converged = _newton(X_fit, Y_fit, penalty, weight)
        found.append(Candidate(f"C={C:g}", converged, X_validation @ weight, X_test @ weight))
    return found


def _with_ones(X: Features) -> Features:
    ones = np.ones((X.shape[0], 1))
    return sparse.hstack([X, ones], format="csr") if sparse.issparse(X) else np.hstack([X, ones])


def _newton(X: Features, Y: np.ndarray, penalty: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, bool]:
    """Newton's method with conjugate gradients inside, every column of Y by itself; and whether all converged.

    A label without a positive has no optimum in its intercept; it keeps the weights it came with, which start at 0.
    """
    weight, squares = weight.copy(), X.multiply(X).tocsr() if sparse.issparse(X) else X * X
    solvable = Y.any(0)
    for _ in range(MAX_NEWTON_STEPS):
        scores = X @ weight
        probability = expit(scores)
        gradient = X.T @ (probability - Y) / len(Y) + penalty * weight
        left = np.flatnonzero((np.abs(gradient).max(0) > TOLERANCE) & solvable)
        if not left.size:
            return weight, True
        curvature = probability[:, left] * (1 - probability[:, left]) / len(Y)
        step = _conjugate_gradients(X, curvature, penalty, squares.T @ curvature + penalty, gradient[:, left])
        moved, slope = X @ step, (gradient[:, left] * step).sum(0)
        now = _objective(scores[:, left], Y[:, left], penalty, weight[:, left])
        size = np.ones(left.size)
        for _ in range(30):  # halve until the objective falls enough (Armijo), within rounding
            then = _objective(scores[:, left] + size * moved, Y[:, left], penalty, weight[:, left] + size * step)
            short = then > now + 1e-4 * size * slope + 1e-12 * now
            if not short.any():
                break
            size[short] /= 2
        weight[:, left] += size * step
    return weight, False


def _objective(scores: np.ndarray, Y: np.ndarray, penalty: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return (np.logaddexp(0, scores) - Y * scores).mean(0) + (penalty * weight**2).sum(0) / 2


def _conjugate_gradients(
    X: Features, curvature: np.ndarray, penalty: np.ndarray, diagonal: np.ndarray, gradient: np.ndarray
) -> np.ndarray:
    """About -gradient / Hessian per column, preconditioned by the Hessian's diagonal."""
    step, residual = np.zeros_like(gradient), -gradient
    scaled_residual = residual / diagonal
    direction, product = scaled_residual, (residual * scaled_residual).sum(0)
    norm = np.linalg.norm(gradient, axis=0)
    for _ in range(250):
        image = X.T @ (curvature * (X @ direction)) + penalty * direction
        length = product / np.maximum((direction * image).sum(0), np.finfo(float).tiny)
        step += length * direction
        residual = residual - length * image
        # Loose far from the optimum, strict near it, where Newton's method doubles its digits.
        if (np.linalg.norm(residual, axis=0) <= norm * np.minimum(0.1, np.sqrt(norm))).all():
            break
        scaled_residual = residual / diagonal
        before, product = product, (residual * scaled_residual).sum(0)
        direction = scaled_residual + product / np.maximum(before, np.finfo(float).tiny) * direction
    return step


class Setting(NamedTuple):
    """One head: rate at the start (it falls to 0 along a half cosine), decoupled decay, balanced class weights."""

    rate: float
    decay: float
    balanced: bool


def networks(
    X_fit: Features,
    Y_fit: np.ndarray,
    X_validation: Features,
    Y_validation: np.ndarray,
    X_test: Features,
    *,
    balanced: Sequence[bool],
    seed: int,
) -> dict[bool, list[Candidate]]:
    """The grid of networks, per class weighting that is asked for; several labels share the hidden layer."""
    fit, validation, test = (_Rows(X) for X in scaled(X_fit, X_validation, X_test))
    settings = [Setting(*values) for values in product(RATES, DECAYS, balanced)]
    found: dict[bool, list[Candidate]] = {choice: [] for choice in balanced}
    for steps in STEPS:
        labels = [torch.from_numpy(Y).float() for Y in (Y_fit, Y_validation)]
        best = _train(fit, validation, *labels, settings, steps=steps, seed=seed)
        scores = [best.scores(rows.all()).double().numpy() for rows in (validation, test)]
        for place, setting in enumerate(settings):
            name = f"rate={setting.rate:g} decay={setting.decay:g} steps={steps}"
            own = [part[:, place] for part in scores]
            found[setting.balanced].append(Candidate(name, bool(np.isfinite(own[0]).all()), *own))
    return found


class _Network(NamedTuple):
    """G networks of one hidden layer: [D, G, H], [G, H], [H, G, L], [G, L]."""

    weight: Tensor
    bias: Tensor
    out_weight: Tensor
    out_bias: Tensor

    def scores(self, X: Tensor) -> Tensor:
        """Rows [n, D], dense or sparse -> scores [n, G, L]."""
        multiply = torch.sparse.addmm if X.is_sparse else torch.addmm
        bias = self.bias.flatten().expand(len(X), -1)
        hidden = multiply(bias, X, self.weight.flatten(1)).relu_().unflatten(1, self.bias.shape)
        out = torch.bmm(hidden.transpose(0, 1), self.out_weight.transpose(0, 1))  # [G, n, L]
        return out.transpose(0, 1) + self.out_bias


class _Rows:
    """Rows as tensors; sparse ones are cut while they are scipy's, which is faster."""

    def __init__(self, X: Features):
        dense = not sparse.issparse(X) or X.shape[1] <= DENSE_FEATURES
        array = X.toarray() if dense and sparse.issparse(X) else X
        self.X = torch.from_numpy(array).float() if dense else array.astype(np.float32)

    def take(self, index: Tensor) -> Tensor:
        if isinstance(self.X, Tensor):
            return self.X[index]
        return _coo(self.X[index.numpy()])

    def all(self) -> Tensor:
        return self.X if isinstance(self.X, Tensor) else _coo(self.X)


def _coo(X: sparse.csr_matrix) -> Tensor:
    coo = X.tocoo()
    indices = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    return torch.sparse_coo_tensor(
        indices, torch.from_numpy(coo.data), coo.shape, is_coalesced=True, check_invariants=False
    )


def _train(
    fit: _Rows,
    validation: _Rows,
    y_fit: Tensor,
    y_validation: Tensor,
    settings: list[Setting],
    *,
    steps: int,
    seed: int,
) -> _Network:
    """Each head's snapshot of lowest validation loss."""
    generator = torch.Generator().manual_seed(seed)
    network = _started(fit.X.shape[1], y_fit.shape[1], len(settings), generator)
    rates = torch.tensor([[setting.rate] for setting in settings])
    decays = rates * torch.tensor([[setting.decay] for setting in settings])
    none = torch.zeros_like(rates)
    optimiser = AdamW(list(network), [decays, none, decays, none], rates)
    weights = torch.stack([_class_weights(y_fit, setting.balanced) for setting in settings], 1)  # [2, G, L]

    def losses(X: Tensor, y: Tensor) -> Tensor:
        target = y[:, None].expand(-1, len(settings), -1)
        weight = torch.where(target > 0, weights[1], weights[0])
        return binary_cross_entropy_with_logits(network.scores(X), target, weight, reduction="none").mean((0, 2))

    best = _Network(*(parameter.detach().clone() for parameter in network))
    lowest, age = torch.full((len(settings),), math.inf), 0
    order = torch.empty(0, dtype=torch.int64)
    for step in range(1, steps + 1):
        if len(order) < BATCH_SIZE:
            order = torch.cat([order, torch.randperm(len(y_fit), generator=generator)])
        rows, order = order[:BATCH_SIZE], order[BATCH_SIZE:]
        losses(fit.take(rows), y_fit[rows]).sum().backward()
        optimiser.step_(0.5 * (1 + math.cos(math.pi * step / steps)))
        if step % (steps // LOOKS) == 0:
            with torch.no_grad():
                now = losses(validation.all(), y_validation)
                better = now < lowest
                lowest = torch.where(better, now, lowest)
                for kept, parameter in zip(best, network, strict=True):
                    kept.copy_(torch.where(better[:, None], parameter, kept))
            age = 0 if better.any() else age + 1
            if age == PATIENCE:
                break
    return best


def _started(features: int, labels: int, heads: int, generator: torch.Generator) -> _Network:
    """All heads from one start, drawn as torch.nn.Linear draws it."""
    shapes = ((features, 1, HIDDEN), (1, HIDDEN), (HIDDEN, 1, labels), (1, labels))
    bounds = (features**-0.5,) * 2 + (HIDDEN**-0.5,) * 2
    draws = (torch.empty(s).uniform_(-b, b, generator=generator) for s, b in zip(shapes, bounds, strict=True))
    return _Network(*(draw.repeat_interleave(heads, dim=draw.ndim - 2).contiguous().requires_grad_() for draw in draws))


def _class_weights(y: Tensor, balanced: bool) -> Tensor:
    """[2, L], of the negatives and the positives of each label."""
    counts = torch.stack([(y == 0).sum(0), (y == 1).sum(0)])
    return len(y) / (2 * counts) if balanced else torch.ones(counts.shape)
