"""Linear models at the optimum of the relaxed problem, by linear programming or by search for the multiplier.

For a linear score w x with thresholds b_k, the loss minimises a convex problem by many small steps. Solved here:

    min  sum_k width_k objective_k(u_k, v_k)   subject to   load_k(u_k, v_k) <= room_k

with the rates u and v of `aimfor.aims`. For F_beta the objective is a fraction.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from aimfor._base import checks
from aimfor._base.warnings import InfeasibleConstraintWarning
from aimfor.aims import Aim, AreaAim, FBeta, PointAim
from aimfor.aims import aim as parse_aim
from aimfor.loss import MAX_MULTIPLIER, SURROGATES
from aimfor.solvers._linear_program import MAX_FEATURES, Program, near_optimum, solve
from aimfor.solvers._problem import TOLERANCE, Point, Problem, Solution, make_problem, table

# The most rows times anchors of a linear program, which then needs about 10 GB.
MAX_SLACKS = 10_000_000
# The ends of the search for a multiplier, and the relative gap in the objective at which it stops.
LEAST_MULTIPLIER, MOST_MULTIPLIER, SEARCH_GAP = 1e-5, 1e5, 1e-4


def solve_by_lp(
    features: Any, labels: ArrayLike, weights: ArrayLike | None, aim: str | Aim, *, prior: float | None = None
) -> Solution:
    """Solve the hinge problem of any aim as a linear program; that of F_beta is the paper's, eq. (f1equiv).

    With the hinge an aim may have no feasible point, most often one with a precision. Then a broken constraint costs
    the largest multiplier of the loss, so both tend to the same model, and `feasible` is False.

    Args:
        features: `[n, D]`, an array or a SciPy sparse matrix, which is never made dense.
        labels: `[n]`, 0 or 1.
        weights: `[n]`, at least 0; None means 1.
        aim: an aim or its text.
        prior: share of positives that the aim is about; that of the rows when None.

    Returns:
        The solution; its scores have the units of the hinge, whose margin is 1.

    Example:
        >>> solution = solve_by_lp([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], None, "precision@recall>=0.75")
        >>> round(solution.objective, 3), solution.feasible
        (1.5, True)
    """
    aim = _one_label(aim)
    problem = make_problem(features, labels, weights, prior)
    slacks = len(problem.signs) * aim.anchor_count
    checks.rule(slacks <= MAX_SLACKS, "features", f"must have at most {MAX_SLACKS} rows times anchors", slacks)
    if isinstance(aim, FBeta):
        program = Program.f_beta(float(aim.beta), problem.kappa)  # pyright: ignore[reportArgumentType]
        found = solve(problem, program, near_optimum(problem, program))
        assert found is not None, "all predicted positive is a feasible point"
        return problem.solution(aim, found)
    anchors = table(aim, problem.prior)
    widths = anchors.width[:, 0].numpy()
    if not widths.any():  # the empty range of an area asks for nothing
        return problem.solution(
            aim, Point(np.zeros(problem.num_features), np.zeros_like(widths), np.zeros_like(widths))
        )
    program = Program.of_table(anchors, MAX_MULTIPLIER)
    found = solve(problem, program, near_optimum(problem, program))
    assert found is not None, "a constraint that may be broken at a price is never infeasible"
    if not problem.solution(aim, found).feasible:
        # A multiplier above the limit may meet it.
        found = solve(problem, Program.of_table(anchors, math.inf), found) or found
    return problem.solution(aim, found._replace(multipliers=found.multipliers / widths))


def solve_by_search(
    features: Any,
    labels: ArrayLike,
    weights: ArrayLike | None,
    aim: str | Aim,
    *,
    surrogate: str = "hinge",
    decay: float = 1e-4,
    prior: float | None = None,
) -> Solution:
    """Solve an aim with one constraint by binary search for its multiplier, each step a weighted SVM or logistic fit.

    A larger multiplier gives a smaller violation. With the hinge, solutions jump from one corner to another where the
    constraint becomes met; there the best convex combination of both sides is taken. If no multiplier meets the
    constraint, the solution is that of the largest multiplier of the loss, as with `solve_by_lp`.

    Args:
        features: `[n, D]`, an array or a SciPy sparse matrix, which is never made dense.
        labels: `[n]`, 0 or 1.
        weights: `[n]`, at least 0; None means 1.
        aim: recall@precision, precision@recall, tpr@fpr or fpr@tpr without a band, or its text.
        surrogate: "hinge" or "log".
        decay: half of it times the squared weight of the standardised features is added to the objective; may be 0 for
            the hinge.
        prior: share of positives that the aim is about; that of the rows when None.

    Example:
        >>> rows, labels = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1]
        >>> solution = solve_by_search(rows, labels, None, "precision@recall>=0.75", decay=0)
        >>> round(solution.objective, 3), solution.feasible
        (1.5, True)
    """
    aim = _one_label(aim)
    if not isinstance(aim, PointAim) or aim.band is not None:
        raise ValueError(
            "aim must be recall@precision, precision@recall, tpr@fpr or fpr@tpr without a band for a search, "
            f"got {str(aim)!r}"
        )
    checks.choice("surrogate", surrogate, ("hinge", "log"))
    checks.in_range("decay", decay, 0, math.inf, open_low=surrogate == "log", open_high=True)
    problem = make_problem(features, labels, weights, prior)
    checks.rule(
        decay > 0 or problem.num_features <= MAX_FEATURES,
        "decay",
        f"must be above 0 with more than {MAX_FEATURES} features",
        decay,
    )
    return problem.solution(aim, _search(problem, aim, surrogate, decay), SURROGATES[surrogate])


def warn_of_infeasible(aim: Aim, solution: Solution) -> None:
    """Warn if no linear model meets the relaxed constraint."""
    if solution.feasible:
        return
    area = isinstance(aim, AreaAim)
    what = "the relaxed constraints at all anchors" if area else "the relaxed constraint"
    ways = "a range that asks for less" if area else "an area such as aucpr, a milder target"
    warnings.warn(
        f"no linear model meets {what} of {str(aim)!r}; the smallest violation is {solution.violation:.3g}. Try "
        f'solver="sgd", {ways}',
        InfeasibleConstraintWarning,
        stacklevel=checks.callers_level(),
    )


def _one_label(aim: str | Aim) -> Aim:
    aim = parse_aim(aim)
    checks.rule(not aim.label_counts(), "aim", "must have one target, for one label", repr(str(aim)))
    linear = isinstance(aim, FBeta) or not aim.follows_rates
    checks.rule(linear, "aim", 'must have a linear constraint for a solver; use solver="sgd"', repr(str(aim)))
    return aim


def _search(problem: Problem, aim: Aim, surrogate: str, decay: float) -> Point:
    """Halve the range of the multiplier, on a log scale, until its two ends agree."""
    anchors = table(aim, problem.prior)
    program = Program.of_table(anchors, math.inf)
    fit = _svm if surrogate == "hinge" else _logistic

    def side(multiplier: float) -> _Side:
        cost_u, cost_v = (cost.item() for cost in anchors.costs(torch.tensor([[multiplier]], dtype=torch.float64)))
        point = fit(problem, cost_u, cost_v, decay)._replace(multipliers=np.array([multiplier]))
        return _Side(point, *worth(point))

    def worth(point: Point) -> tuple[float, float]:
        """Objective with its penalty, and violation."""
        u, v = problem.rates(point, SURROGATES[surrogate])
        objective = program.cost_u * u + program.cost_v * v + decay / 2 * np.square(point.weight).sum()
        return objective.item(), (program.load_u * u + program.load_v * v - program.room).item()

    strict = at_limit = side(MAX_MULTIPLIER)
    while strict.violation > TOLERANCE:
        if strict.multiplier > MOST_MULTIPLIER:
            return at_limit.point
        strict = side(8 * strict.multiplier)
    lax = side(LEAST_MULTIPLIER)
    while True:
        met = _between(lax.point, strict.point, lambda point: worth(point)[1])
        # The Lagrangian at its minimiser is a bound from below.
        bound = max(end.objective + end.multiplier * end.violation for end in (lax, strict))
        narrow = strict.multiplier < lax.multiplier * (1 + 1e-9)
        if narrow or worth(met)[0] <= bound + SEARCH_GAP * max(abs(bound), SEARCH_GAP):
            return met
        middle = side(math.sqrt(lax.multiplier * strict.multiplier))
        lax, strict = (middle, strict) if middle.violation > 0 else (lax, middle)


class _Side(NamedTuple):
    """The minimiser of a Lagrangian, its objective and its violation."""

    point: Point
    objective: float
    violation: float

    @property
    def multiplier(self) -> float:
        return self.point.multipliers.item()


def _between(lax: Point, strict: Point, violation: Callable[[Point], float]) -> Point:
    """The point nearest to the lax one that meets the constraint: by convexity no worse than the mean of the two."""

    def mixed(share: float) -> Point:
        return Point(*(share * a + (1 - share) * b for a, b in zip(lax, strict, strict=True)))

    if violation(lax) <= 0:
        return lax
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if violation(mixed(middle)) > 0 else (middle, high)
    return mixed(low)


def _svm(problem: Problem, cost_u: float, cost_v: float, decay: float) -> Point:
    """The weighted SVM without a penalty on its threshold, which LinearSVC would shrink."""
    point = near_optimum(problem, Program.svm(cost_u, cost_v), decay)
    if point is not None:
        return point
    from sklearn.svm import SVC

    return _fitted(SVC(kernel="linear", tol=1e-6), problem, cost_u, cost_v, decay)


def _logistic(problem: Problem, cost_u: float, cost_v: float, decay: float) -> Point:
    """The weighted logistic fit, in bits."""
    from sklearn.linear_model import LogisticRegression

    # Newton's method needs few steps and is exact, but builds a dense matrix of products.
    few = problem.num_features <= MAX_FEATURES
    solver = {"solver": "newton-cholesky", "tol": 1e-10} if few else {"solver": "lbfgs", "tol": 1e-6}
    model = LogisticRegression(max_iter=10_000, **solver)
    return _fitted(model, problem, cost_u / math.log(2), cost_v / math.log(2), decay)


def _fitted(model: Any, problem: Problem, cost_u: float, cost_v: float, decay: float) -> Point:
    """A classifier of scikit-learn, which adds |w|^2 / 2 to its loss, fitted with these costs."""
    costs = np.where(problem.signs > 0, cost_u, cost_v) * problem.shares
    model.fit(problem.features, problem.signs, sample_weight=costs / decay)
    weight = model.coef_ if isinstance(model.coef_, np.ndarray) else model.coef_.toarray()
    return Point(weight[0], -model.intercept_, np.zeros(1))
