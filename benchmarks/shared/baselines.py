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
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.shared.heads import AdamW
from benchmarks.shared.sets import Features

C_GRID = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3)
TOLERANCE = 1e-6  # largest entry of the gradient of the mean loss
MAX_ITERATIONS = 20_000
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
    """Logistic regression at every C, strongest regularisation first; each label by itself, at the same C for all."""
    X_fit, X_validation, X_test = scaled(X_fit, X_validation, X_test)
    scores = [np.zeros((len(C_GRID), X.shape[0], Y_fit.shape[1])) for X in (X_validation, X_test)]
    converged = np.ones(len(C_GRID), dtype=bool)
    for label in np.flatnonzero(Y_fit.any(0)):  # one without a positive has no optimum and keeps the score 0
        model = LogisticRegression(
            solver="newton-cholesky" if X_fit.shape[1] <= NEWTON_FEATURES else "lbfgs",
            class_weight="balanced" if balanced else None,
            max_iter=MAX_ITERATIONS,
            tol=TOLERANCE,
            warm_start=True,
        )
        for place, C in enumerate(C_GRID):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.set_params(C=C).fit(X_fit, Y_fit[:, label])
            unfinished = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
            converged[place] &= not unfinished and int(model.n_iter_.max()) < MAX_ITERATIONS
            for X, found in zip((X_validation, X_test), scores, strict=True):
                found[place, :, label] = model.decision_function(X)
    return [Candidate(f"C={C:g}", bool(converged[i]), *(found[i] for found in scores)) for i, C in enumerate(C_GRID)]


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
