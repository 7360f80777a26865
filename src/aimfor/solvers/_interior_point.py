"""Weighted hinges of a linear score, with constraints, solved by an interior-point method.

    min   decay / 2 |w|^2 + sum_ki cost_ki xi_ki + sum_k price_k t_k
    with  xi_ki >= 1 - y_i (w x_i - b_k),   sum_i load_ki xi_ki <= room_k + t_k,   xi, t >= 0

The steps are Mehrotra's predictor and corrector. All variables of rows and anchors are eliminated by hand. That leaves
a system in w and b, so a step costs as much as the matrix of products of the features.
"""

from typing import Any, NamedTuple

import numpy as np

from aimfor._base.arrays import Array

Four = tuple[Array, Array, Array, Array]

MAX_STEPS = 1000
# The relative gap between the values of the problem and of its dual at which the method stops.
GAP = 1e-10


class Hinges(NamedTuple):
    """The problem above.

    Attributes:
        features: `[n, D]`, an array or a SciPy CSR matrix, of order 1.
        signs: y, `[n]`, +1 or -1.
        cost: `[K, n]`, at least 0.
        load: `[K, n]`, at least 0, and above 0 where the cost is 0.
        room: `[K]`.
        price: `[K]`, above 0 and finite.
        decay: at least 0; a small value picks one of many solutions.
    """

    features: Any
    signs: Array
    cost: Array
    load: Array
    room: Array
    price: Array
    decay: float

    def margins(self, z: Array) -> Array:
        """y (w x - b_k), `[K, n]`, of z = (w, b)."""
        columns = self.features.shape[1]
        return self.signs * (self.features @ z[:columns] - z[columns:, None])

    def back(self, duals: Array) -> Array:
        """The derivative of sum_ki duals_ki margin_ki in z."""
        signed = duals * self.signs
        return np.concatenate([signed.sum(0) @ self.features, -signed.sum(1)])

    def back_by_anchor(self, duals: Array) -> Array:
        """The same for each anchor, `[K, D + K]`."""
        signed = duals * self.signs
        return np.hstack([signed @ self.features, -np.diag(signed.sum(1))])

    def products(self, theta: Array) -> Array:
        """The sum of theta_ki times the outer product of the derivative of margin_ki in z."""
        total = theta.sum(0)[:, None]
        if isinstance(self.features, np.ndarray):
            inner = self.features.T @ (self.features * total)
        else:
            inner = (self.features.T @ self.features.multiply(total)).toarray()
        cross = -(theta @ self.features)
        return np.block([[inner, cross.T], [cross, np.diag(theta.sum(1))]])


def interior_point(hinges: Hinges) -> tuple[Array, Array, Array]:
    """Solve the problem.

    Returns:
        w, `[D]`, b, `[K]`, and the multipliers of the constraints, `[K]`.

    Example:
        >>> cost, load, one = np.full((1, 2), 0.5), np.zeros((1, 2)), np.ones(1)
        >>> hinges = Hinges(np.array([[3.0], [1.0]]), np.array([1.0, -1.0]), cost, load, one, one, decay=1e-6)
        >>> w, b, _ = interior_point(hinges)
        >>> w.round(4), b.round(4)
        (array([1.]), array([2.]))
    """
    scale = hinges.cost.sum() + hinges.price.sum()
    cost, price, decay = hinges.cost / scale, hinges.price / scale, hinges.decay / scale
    # Near the solution duals underflow and the system fails. The last point before that is accurate enough.
    with np.errstate(all="ignore"):
        w, b, multipliers = _steps(hinges._replace(cost=cost, price=price, decay=decay))
    return w, b, multipliers * scale


def _steps(hinges: Hinges) -> tuple[Array, Array, Array]:
    columns, anchor_count = hinges.features.shape[1], len(hinges.cost)
    z = np.zeros(columns + anchor_count)
    ridge = np.concatenate([np.full(columns, hinges.decay), np.zeros(anchor_count)])
    primal, dual = _inside(hinges)
    for _ in range(MAX_STEPS):
        gap = _gap(primal, dual)
        residual = ridge * z - hinges.back(dual[0])
        if gap <= GAP * (1 + np.vdot(hinges.cost, primal[1])) and np.abs(residual).max() <= GAP:
            break
        system = _System(hinges, primal, dual, ridge, residual)
        if system.factors is None:
            break
        products = [x * y for x, y in zip(primal, dual, strict=True)]
        _, d_primal, d_dual = system.step(*(-product for product in products))
        size = _longest(primal + dual, d_primal + d_dual)
        ahead = _gap(_moved(primal, d_primal, size), _moved(dual, d_dual, size))
        centre = (ahead / gap) ** 3 * gap / sum(product.size for product in products)
        bends = (dx * dy for dx, dy in zip(d_primal, d_dual, strict=True))
        dz, d_primal, d_dual = system.step(*(centre - p - bend for p, bend in zip(products, bends, strict=True)))
        size = 0.995 * _longest(primal + dual, d_primal + d_dual)
        if not size > 1e-8 or not np.isfinite(dz).all():
            break
        z, primal, dual = z + size * dz, _moved(primal, d_primal, size), _moved(dual, d_dual, size)
    return z[:columns], z[columns:], dual[2]


def _inside(hinges: Hinges) -> tuple[Four, Four]:
    """A start inside all bounds, at z = 0: variables that must stay above 0, and their duals. The products tend to 0.

    s = xi - 1 + margin, xi, left = room + t - load xi, t, with the duals alpha, beta = cost + multiplier load - alpha,
    multiplier, rest = price - multiplier. Steps keep these equations.
    """
    xi, s = np.full(hinges.cost.shape, 2.0), np.ones(hinges.cost.shape)
    loaded = (hinges.load * xi).sum(1)
    t = np.maximum(1.0, loaded - hinges.room + 1)
    multiplier = hinges.price / 2
    alpha = (hinges.cost + multiplier[:, None] * hinges.load) / 2
    return (s, xi, hinges.room + t - loaded, t), (alpha, alpha.copy(), multiplier, hinges.price - multiplier)


class _System:
    """Newton's equations at a point."""

    def __init__(self, hinges: Hinges, primal: Four, dual: Four, ridge: Array, residual: Array):
        from scipy.linalg import lu_factor

        self.hinges, self.primal, self.dual, self.residual = hinges, primal, dual, residual
        s, xi, left, t = primal
        alpha, beta, multiplier, rest = dual
        self.theta = 1 / (s / alpha + xi / beta)
        self.push = xi / beta * hinges.load
        self.pushed = hinges.back_by_anchor(self.theta * self.push)
        self.stiffness = t / rest + left / multiplier + (hinges.load * self.push * self.theta * s / alpha).sum(1)
        matrix = hinges.products(self.theta) + self.pushed.T @ (self.pushed / self.stiffness[:, None])
        # Directions that change nothing, such as between two equal columns, stay as they are.
        matrix[np.diag_indices_from(matrix)] += ridge + 1e-14 * np.trace(matrix)
        # LU instead of Cholesky, because rounding may leave the matrix not positive definite.
        self.factors = lu_factor(matrix, overwrite_a=True, check_finite=False) if np.isfinite(matrix).all() else None

    def step(self, on_s: Array, on_xi: Array, on_left: Array, on_t: Array) -> tuple[Array, Four, Four]:
        """The change that adds these numbers to the products of primal and dual, to first order."""
        from scipy.linalg import lu_solve

        load, (alpha, beta, multiplier, rest) = self.hinges.load, self.dual
        h = on_s / alpha - on_xi / beta
        side = (load * on_xi / beta + self.push * self.theta * h).sum(1) + on_left / multiplier - on_t / rest
        right = self.hinges.back(self.theta * h) - self.residual + self.pushed.T @ (side / self.stiffness)
        dz = lu_solve(self.factors, right, check_finite=False)  # pyright: ignore[reportArgumentType]
        d_multiplier = (side - self.pushed @ dz) / self.stiffness
        d_alpha = self.theta * (h + self.push * d_multiplier[:, None] - self.hinges.margins(dz))
        d_dual = d_alpha, load * d_multiplier[:, None] - d_alpha, d_multiplier, -d_multiplier
        s, xi, left, t = (
            (on - x * d) / y
            for on, x, d, y in zip((on_s, on_xi, on_left, on_t), self.primal, d_dual, self.dual, strict=True)
        )
        return dz, (s, xi, left, t), d_dual


def _gap(primal: Four, dual: Four) -> float:
    return float(sum(np.vdot(x, y) for x, y in zip(primal, dual, strict=True)))


def _moved(values: Four, changes: Four, size: float) -> Four:
    a, b, c, d = (value + size * change for value, change in zip(values, changes, strict=True))
    return a, b, c, d


def _longest(values: tuple[Array, ...], changes: tuple[Array, ...]) -> float:
    """The longest step, at most 1, that leaves all values at 0 or above."""
    worst = max(float(np.max(-change / value)) for value, change in zip(values, changes, strict=True))
    return 1 / max(1.0, worst)
