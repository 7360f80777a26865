"""The hinge problem of an aim for linear scores as a linear program, for F_beta a linear-fractional one."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aimfor.aims import Anchors
from aimfor.solvers._interior_point import Hinges, interior_point
from aimfor.solvers._problem import TOLERANCE, Array, Point, Problem

# Two values whose difference, relative to their size or 1, is below this count as equal.
SAME = 1e-8
# The most features for which the interior-point method builds a dense matrix of their products.
MAX_FEATURES = 2000
# How a program writes the hinge of a row at an anchor: as 0, as 1 - margin, or as the larger of both.
ZERO, LINEAR, OPEN = 0, 1, 2


class Program(NamedTuple):
    """min cost_u u + cost_v v + price t  subject to  load_u u + load_v v <= room + t, t >= 0; each `[K]`.

    With a `ratio`, and one anchor, it is min (ratio + cost_u u + cost_v v) / (room - load_u u - load_v v).
    """

    cost_u: Array
    cost_v: Array
    load_u: Array
    load_v: Array
    room: Array
    price: Array
    ratio: float | None = None

    @classmethod
    def of_table(cls, anchors: Anchors, limit: float) -> "Program":
        """The problem of an aim, in which no multiplier goes above the limit."""
        return cls._from(
            anchors.width * anchors.objective_u,
            anchors.width * anchors.objective_v,
            anchors.load_u + anchors.room_recall,
            anchors.load_v,
            anchors.room + anchors.room_recall,
            limit * anchors.width,
        )

    @classmethod
    def svm(cls, cost_u: float, cost_v: float) -> "Program":
        """A weighted SVM: costs, and a constraint that always holds."""
        return cls._from(cost_u, cost_v, 0, 0, 1, 1)

    @classmethod
    def f_beta(cls, beta: float, kappa: float) -> "Program":
        """(beta^2 + kappa v) / (1 - u), which is (1 + beta^2) / F - 1."""
        return cls._from(0, kappa, 1, 0, 1, math.inf)._replace(ratio=beta**2)

    @classmethod
    def _from(cls, *parts: Any) -> "Program":
        """From columns `[K, 1]` or numbers."""
        cost_u, cost_v, load_u, load_v, room, price = (np.asarray(part, dtype=np.float64).reshape(-1) for part in parts)
        return cls(cost_u, cost_v, load_u, load_v, room, price)

    def value(self, u: Array, v: Array) -> float:
        """The value to minimise, at these rates."""
        cost, room = self.cost_u * u + self.cost_v * v, self.room - self.load_u * u - self.load_v * v
        if self.ratio is not None:
            return ((self.ratio + cost) / room).item() if room > 0 else math.inf
        if np.isinf(self.price).any():
            return float(cost.sum()) if room.min() >= -TOLERANCE else math.inf
        return float((cost + self.price * np.maximum(-room, 0)).sum())


def solve(problem: Problem, program: Program, start: Point | None) -> Point | None:
    """The optimum, as exact as HiGHS is; None when there is no feasible point.

    A hinge is never below 0 and never below 1 - margin. With only one of these in its place the program is smaller,
    and its value is a bound from below. Hinges near their corner at the start keep both. Each round adds the hinges
    that turned out to be on the other side of their corner, until the bound is reached.
    """
    pieces = np.full((len(program.room), len(problem.signs)), OPEN)
    if start is not None:
        if program.value(*problem.rates(start)) <= SAME:  # nothing is below 0
            return start
        margins = problem.margins(start)
        distances = np.abs(margins - 1)
        pieces = np.where(margins < 1, LINEAR, ZERO)
        count = min(distances.size, 3 * (problem.num_features + len(pieces)))
        pieces[distances <= max(1e-3, np.partition(distances, count - 1, axis=None)[count - 1])] = OPEN
    while True:
        answer = _highs(problem, program, pieces)
        if answer is None:
            return None
        bound, point = answer
        for candidate in (point, start):
            if candidate is not None:
                value = program.value(*problem.rates(candidate))
                if value <= bound + SAME * max(1.0, abs(bound)):
                    return candidate._replace(multipliers=point.multipliers)
        margins = problem.margins(point)
        passed = np.where(pieces == ZERO, margins < 1, (pieces == LINEAR) & (margins > 1))
        if not passed.any():
            return point
        pieces[passed] = OPEN


def near_optimum(problem: Problem, program: Program, decay: float = 1e-9) -> Point | None:
    """The optimum with decay / 2 |w|^2 added, by the interior-point method; None with too many features."""
    if problem.num_features > MAX_FEATURES:
        return None
    if program.ratio is not None:
        return _best_ratio(problem, program, decay)
    cost = problem.per_row(program.cost_u, program.cost_v)
    load = problem.per_row(program.load_u, program.load_v)
    hinges = Hinges(problem.features, problem.signs, cost, load, program.room, program.price, decay)
    return Point(*interior_point(hinges))


def _best_ratio(problem: Problem, program: Program, decay: float) -> Point | None:
    """The best fraction by Dinkelbach's steps. Each is a weighted SVM whose cost of u is the best fraction so far."""
    ratio = program.value(np.zeros(1), np.full(1, 2.0))  # all predicted positive: u = 0, v = 2
    while True:
        point = near_optimum(problem, Program.svm(ratio, program.cost_v.item()), decay)
        last, ratio = ratio, program.value(*problem.rates(point)) if point else math.inf
        if not ratio < last * (1 - SAME):
            return point


def _highs(problem: Problem, program: Program, pieces: NDArray[np.int_]) -> tuple[float, Point] | None:
    """Optimal value and point of the linear program with these pieces; None when it has no feasible point."""
    from scipy.optimize import linprog

    assembled = _Assembly(problem, program, pieces)
    anchor_count = len(pieces)
    for method in ("highs-ipm", "highs-ds"):
        answer = linprog(**assembled.arguments(), method=method)
        if answer.status == 2:
            return None
        if answer.status == 0:
            weight, thresholds, epsilon, _ = np.split(answer.x, np.cumsum([problem.num_features, anchor_count, 1]))
            multipliers = -answer.ineqlin.marginals[-anchor_count:]
            return answer.fun, Point(weight / epsilon, thresholds / epsilon, multipliers)
    raise RuntimeError(f"HiGHS did not solve the linear program of the aim: {answer.message}")


class _Assembly:
    """The matrices of a linear program, for SciPy.

    The variables are w, b, epsilon, t, u, v, the scores of rows with an open hinge, and the open hinges. As in the
    paper's program for F_beta, all are multiplied by epsilon, which is 1 unless a fraction is minimised.
    """

    def __init__(self, problem: Problem, program: Program, pieces: NDArray[np.int_]):
        self.problem, self.program, self.pieces = problem, program, pieces
        self.anchor_count, self.fraction = len(pieces), program.ratio is not None
        self.anchor, self.row = np.nonzero(pieces == OPEN)
        self.rows, self.score = np.unique(self.row, return_inverse=True)
        self.variables = self._variables()

    def _variables(self) -> dict[str, tuple[int, Any, Any, Any]]:
        """How many of each kind, their lowest and highest value, and their cost."""
        program, count, inf = self.program, self.anchor_count, math.inf
        soft = np.isfinite(program.price)
        return {
            "weight": (self.problem.num_features, -inf, inf, 0.0),
            "threshold": (count, -inf, inf, 0.0),
            "epsilon": (1, 0.0 if self.fraction else 1.0, inf if self.fraction else 1.0, program.ratio or 0.0),
            "over": (count, 0.0, np.where(soft, inf, 0.0), np.where(soft, program.price, 0.0)),
            "u": (count, 0.0, inf, program.cost_u),
            "v": (count, 0.0, inf, program.cost_v),
            "score": (len(self.rows), -inf, inf, 0.0),
            "hinge": (len(self.row), 0.0, inf, 0.0),
        }

    def arguments(self) -> dict[str, Any]:
        """The arguments of `scipy.optimize.linprog`."""
        from scipy.sparse import identity, vstack

        positive = self.problem.signs > 0
        sums = [self._sum_of_pieces("u", positive), self._sum_of_pieces("v", ~positive)]
        right = np.zeros(len(self.row) + 3 * self.anchor_count)
        right[-self.anchor_count :] = -1.0 if self.fraction else 0.0  # epsilon (1 - u) >= 1
        count = len(self.rows)
        scores = self._row_block(count, weight=self.problem.features[self.rows], score=-identity(count))
        low, high, cost = (
            np.concatenate([np.broadcast_to(entry[place], entry[0]) for entry in self.variables.values()])
            for place in (1, 2, 3)
        )
        return {
            "c": cost,
            "A_ub": vstack([self._corners(), *sums, self._loads()], format="csc"),
            "b_ub": right,
            "A_eq": scores.tocsc(),
            "b_eq": np.zeros(count),
            "bounds": np.stack([low, high], axis=1),
        }

    def _row_block(self, height: int, **parts: Any) -> Any:
        """Rows of the matrix, 0 in the columns of the variables that are not named."""
        from scipy.sparse import csr_matrix, hstack

        return hstack([csr_matrix(parts.get(name, (height, size))) for name, (size, *_) in self.variables.items()])

    def _corners(self) -> Any:
        """Each open hinge is at least 1 - margin."""
        from scipy.sparse import coo_matrix, identity

        height, each, signs = len(self.row), np.arange(len(self.row)), self.problem.signs[self.row]
        return self._row_block(
            height,
            threshold=coo_matrix((signs, (each, self.anchor)), (height, self.anchor_count)),
            epsilon=np.ones((height, 1)),
            score=coo_matrix((-signs, (each, self.score)), (height, len(self.rows))),
            hinge=-identity(height),
        )

    def _sum_of_pieces(self, name: str, of_class: NDArray[np.bool_]) -> Any:
        """The pieces of a class sum to at most u or v."""
        from scipy.sparse import coo_matrix, diags, identity

        shares = np.where(of_class, self.problem.shares, 0.0)
        linear, each = (self.pieces == LINEAR) * shares, np.arange(len(self.row))
        signed = linear * self.problem.signs
        return self._row_block(
            self.anchor_count,
            weight=-signed @ self.problem.features,
            threshold=diags(signed.sum(1)),
            epsilon=linear.sum(1, keepdims=True),
            hinge=coo_matrix((shares[self.row], (self.anchor, each)), (self.anchor_count, len(self.row))),
            **{name: -identity(self.anchor_count)},
        )

    def _loads(self) -> Any:
        """The constraint of each anchor, which `over` may exceed at a price."""
        from scipy.sparse import diags, identity

        program = self.program
        return self._row_block(
            self.anchor_count,
            epsilon=-program.room[:, None],
            over=-identity(self.anchor_count),
            u=diags(program.load_u),
            v=diags(program.load_v),
        )
