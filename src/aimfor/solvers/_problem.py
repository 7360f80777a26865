"""Weighted rows become a problem, and a point of the problem becomes a solution in the units of the rows.

Features are standardised. Equal rows become one row with the sum of their weights, in an order that depends on the rows
alone. So a weight of 2 and a row given twice are the same problem, to the last bit if weights add up exactly.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from aimfor._base import checks
from aimfor._base.arrays import Array
from aimfor.aims import NO_RATES, Aim, Anchors, FBeta, Rates
from aimfor.loss import SURROGATES, Surrogate

# A constraint counts as met when its violation is at most this, which is the accuracy of the solvers.
TOLERANCE = 1e-5


class Solution(NamedTuple):
    """A linear model at a relaxed optimum: the score is features @ weight.

    Attributes:
        weight: `[D]`, for the features before standardisation.
        thresholds: `[K]`, one per anchor of the aim, to compare the score with.
        objective: the relaxed objective, to be minimised: the sum over anchors of width times u or v; for F_beta 1 - F.
            It contains no penalty on the weight.
        violation: of the relaxed constraint, the largest over the anchors, in the units of the table of the aim.
        multipliers: `[K]`, how much one more unit of room at an anchor lowers its objective.
    """

    weight: Array
    thresholds: Array
    objective: float
    violation: float
    multipliers: Array

    @property
    def feasible(self) -> bool:
        """Whether the relaxed constraint is met. If not, no linear model meets it."""
        return self.violation <= TOLERANCE


class Point(NamedTuple):
    """A model in the units of the standardised features: `[D]`, `[K]`, and the multipliers that led to it, `[K]`."""

    weight: Array
    thresholds: Array
    multipliers: Array


class Problem(NamedTuple):
    """Distinct rows, standardised.

    Attributes:
        features: `[n, D]`, (original features - centre) * inverse; a CSR matrix if they were sparse.
        signs: y, `[n]`, +1 or -1.
        shares: `[n]`, weight over the weight of the class.
        prior: share of positives that the aim is about.
        centre, inverse: `[D]`, see features; inverse is 0 for a constant one.
    """

    features: Any
    signs: Array
    shares: Array
    prior: float
    centre: Array
    inverse: Array

    @property
    def num_features(self) -> int:
        """Number of features, D."""
        return self.features.shape[1]

    @property
    def kappa(self) -> float:
        """Negatives per positive."""
        return (1 - self.prior) / self.prior

    def margins(self, point: Point) -> Array:
        """y (w x - b_k), `[K, n]`."""
        return self.signs * (self.features @ point.weight - point.thresholds[:, None])

    def rates(self, point: Point, surrogate: Surrogate = SURROGATES["hinge"]) -> tuple[Array, Array]:
        """u and v, `[K]`."""
        losses = surrogate.loss(torch.from_numpy(self.margins(point))).numpy() * self.shares
        return losses[:, self.signs > 0].sum(1), losses[:, self.signs < 0].sum(1)

    def per_row(self, positive: Array, negative: Array) -> Array:
        """Coefficients of u and v, each `[K]`, as those of the losses of the rows, `[K, n]`."""
        return np.where(self.signs > 0, positive[:, None], negative[:, None]) * self.shares

    def solution(self, aim: Aim, point: Point, surrogate: Surrogate = SURROGATES["hinge"]) -> Solution:
        """The point in the units of the original features, with its objective and violation."""
        u, v = (torch.from_numpy(rate).unsqueeze(1) for rate in self.rates(point, surrogate))
        rates = Rates(u, v, torch.ones(1, dtype=torch.float64))
        anchors = table(aim, self.prior, rates)
        objective, multipliers = anchors.width * anchors.objective(rates), point.multipliers
        if isinstance(aim, FBeta) and anchors.multiplier is not None:
            beta2 = float(aim.beta) ** 2  # pyright: ignore[reportArgumentType]
            objective = 1 - (1 + beta2) * (1 - u) / (beta2 + 1 - u + self.kappa * v)
            multipliers = anchors.multiplier.numpy()[:, 0]
        violation = anchors.violation(rates).max().item()
        weight = point.weight * self.inverse
        return Solution(weight, point.thresholds + self.centre @ weight, objective.sum().item(), violation, multipliers)


def table(aim: Aim, prior: float, rates: Rates = NO_RATES) -> Anchors:
    """The table of the aim with every entry `[K, 1]`."""
    anchors = aim.anchors(torch.tensor([prior], dtype=torch.float64), rates)
    parts = {name: part for name, part in anchors._asdict().items() if isinstance(part, torch.Tensor)}
    return anchors._replace(**{name: part.expand(aim.anchor_count, 1) for name, part in parts.items()})


def make_problem(features: Any, labels: ArrayLike, weights: ArrayLike | None, prior: float | None) -> Problem:
    """Check the rows, merge equal ones, and standardise.

    Example:
        >>> problem = make_problem([[1.0], [3.0], [1.0]], [0, 1, 0], None, None)
        >>> problem.features.round(3).tolist(), problem.signs.tolist(), problem.shares.tolist()
        ([[-0.707], [1.414]], [-1.0, 1.0], [1.0, 1.0])
    """
    features = _checked_features(features)
    labels = checks.to_numpy("labels", labels)
    weights = np.ones(features.shape[0]) if weights is None else checks.to_numpy("weights", weights)
    for name, values in (("labels", labels), ("weights", weights)):
        checks.rule(values.shape == features.shape[:1], name, f"must have shape {features.shape[:1]}", values.shape)
    checks.all_entries("labels", labels, (labels == 0) | (labels == 1), "0 or 1")
    checks.all_entries("weights", weights, np.isfinite(weights) & (weights >= 0), "finite and >= 0")

    first, weights = _distinct(features, labels, weights)
    features, positive = features[first], labels[first] == 1
    totals = weights[positive].sum(), weights[~positive].sum()
    checks.rule(min(totals) > 0, "labels", "must have weight in both classes", f"{totals[0]:g} and {totals[1]:g}")
    if prior is None:
        prior = float(totals[0] / sum(totals))
    prior = checks.in_range("prior", prior, 0, 1, open_low=True, open_high=True)
    features, centre, inverse = _standardised(features, weights / weights.sum())
    return Problem(
        features, np.where(positive, 1.0, -1.0), weights / np.where(positive, *totals), prior, centre, inverse
    )


def _checked_features(features: Any) -> Any:
    """A float64 array, or a CSR matrix with sorted entries, no duplicates and no stored zeros."""
    from scipy import sparse

    if sparse.issparse(features):
        features = sparse.csr_matrix(features, dtype=np.float64, copy=True)
        features.sum_duplicates()
        features.eliminate_zeros()
        entries = features.data
    else:
        entries = features = checks.to_numpy("features", features) + 0.0  # -0.0 and 0.0 are one number
    checks.rule(features.ndim == 2 and min(features.shape) > 0, "features", "must have shape [n, D]", features.shape)
    checks.all_entries("features", entries, np.isfinite(entries), "finite")
    return features


def _distinct(features: Any, labels: Array, weights: Array) -> tuple[NDArray[np.intp], Array]:
    """One row of each kind, sorted by label and content, and the total weight of its kind."""
    (rows,) = np.nonzero(weights)
    if isinstance(features, np.ndarray):
        contents = [features[row].tobytes() for row in rows]
    else:
        spans = [slice(*features.indptr[row : row + 2]) for row in rows]
        indices = features.indices.astype(np.int64)
        contents = [indices[span].tobytes() + features.data[span].tobytes() for span in spans]
    kinds = list(zip(labels[rows].tolist(), contents, strict=True))
    example = dict(zip(kinds, rows, strict=True))
    place = {kind: number for number, kind in enumerate(sorted(example))}
    totals = np.bincount([place[kind] for kind in kinds], weights[rows], minlength=len(place))
    return np.array([example[kind] for kind in place], dtype=np.intp), totals.astype(np.float64)


def _standardised(features: Any, shares: Array) -> tuple[Any, Array, Array]:
    """Features of deviation 1, dense ones also of mean 0, with the shift and the factors that were applied.

    The thresholds absorb any shift, so the problem is the same with and without it.
    """
    mean = shares @ features
    if isinstance(features, np.ndarray):
        centre, variance, largest = mean, shares @ np.square(features - mean), np.abs(features).max(0)
    else:
        squares, held = features.copy(), features.copy()
        squares.data = np.square(features.data - mean[features.indices])
        held.data = np.ones_like(features.data)
        centre, variance = np.zeros_like(mean), shares @ squares + (1 - shares @ held) * np.square(mean)
        largest = np.abs(features).max(0).toarray()[0]
    # A constant feature carries no information, and the rounding error in its deviation must not be magnified.
    constant = variance <= np.square(1e-10 * largest)
    inverse = np.where(constant, 0.0, 1 / np.sqrt(np.where(constant, 1.0, variance)))
    if isinstance(features, np.ndarray):
        return (features - centre) * inverse, centre, inverse
    return features.multiply(inverse).tocsr(), centre, inverse
