"""Exact solvers: they find the optimum of the relaxed problem, whatever form its rows come in."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from test_infeasible import far_cluster
from test_truth import hinge_rates, relaxed_optimum, train

import aimfor
from aimfor.solvers import _linear_program as programs
from aimfor.solvers import _solve as solvers
from aimfor.solvers._linear_program import Program, solve
from aimfor.solvers._problem import make_problem, table
from aimfor.solvers._solve import solve_by_lp, solve_by_search
from cases import AIMS
from relaxed import solve_f_beta


def two_clouds(seed: int, num_rows: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Clouds far enough apart that the hinge can meet every aim."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(num_rows) < 0.3).astype(int)
    return rng.normal(size=(num_rows, 2)) + labels[:, None] * np.array([3.5, 1.5]), labels


POINTS = ["recall@precision>=0.8", "precision@recall>=0.8", "tpr@fpr<=0.1", "fpr@tpr>=0.9"]


def overlapping(seed: int, num_rows: int, num_features: int, prior: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(num_rows) < prior).astype(int)
    labels[:2] = 0, 1
    centre = 2 * rng.normal(size=num_features) / np.sqrt(num_features)
    return rng.normal(size=(num_rows, num_features)) + labels[:, None] * centre, labels


def relaxed_value(aim, features, labels) -> float:
    """By the linear programs of the tests."""
    return (
        1 - solve_f_beta(features, labels, aim.beta) if hasattr(aim, "beta") else relaxed_optimum(aim, features, labels)
    )


LINEAR = [text for text in AIMS if "alerts" not in text]


@pytest.mark.parametrize("solver", [solve_by_lp, solve_by_search])
@pytest.mark.parametrize("text", ["recall@alerts<=0.2", "precision@alerts>=0.2"])
def test_a_budget_of_alerts_is_refused(solver, text):
    with pytest.raises(ValueError, match='aim must have a linear constraint for a solver; use solver="sgd", got'):
        solver(*two_clouds(0), None, text)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("text", LINEAR)
def test_the_linear_program_reaches_the_optimum(text, seed):
    aim = aimfor.aim(text)
    features, labels = two_clouds(seed)
    solution = solve_by_lp(features, labels, None, aim)
    assert solution.objective == pytest.approx(relaxed_value(aim, features, labels), abs=1e-9)
    assert solution.feasible
    assert solution.weight.shape == (2,)
    assert solution.thresholds.shape == solution.multipliers.shape == (aim.anchor_count,)


@pytest.mark.parametrize("text", ["aucroc; num_anchors=3", "precision@recall>=0.9", "f2"])
@pytest.mark.parametrize(("num_rows", "num_features"), [(40, 3), (12, 20), (300, 5)])
def test_other_shapes(text, num_rows, num_features):
    aim = aimfor.aim(text)
    features, labels = overlapping(0, num_rows, num_features)
    features *= 10.0 ** np.arange(num_features)[::-1].clip(max=3)
    solution = solve_by_lp(features + 100, labels, None, aim)
    assert solution.objective == pytest.approx(relaxed_value(aim, features, labels), abs=1e-7)


def test_what_a_solution_says_is_what_its_scores_have():
    features, labels = two_clouds(seed=0)
    aim, shift = aimfor.aim("aucpr; num_anchors=5"), np.array([50, -3])
    solution = solve_by_lp(features + shift, labels, None, aim)
    margins = np.where(labels == 1, 1, -1) * ((features + shift) @ solution.weight - solution.thresholds[:, None])
    u = np.maximum(0, 1 - margins)[:, labels == 1].mean(1)
    widths = table(aim, labels.mean()).width.numpy()[:, 0]
    assert (widths * u).sum() == pytest.approx(solution.objective)


def test_multipliers_are_the_price_of_room():
    features, labels = two_clouds(seed=0)
    solution = solve_by_lp(features, labels, None, "tpr@fpr<=0.1")
    more = solve_by_lp(features, labels, None, "tpr@fpr<=0.10001")
    assert solution.objective - more.objective == pytest.approx(1e-4 * solution.multipliers.item(), rel=0.01)


@pytest.mark.parametrize("pieces", ["all open", "all guessed wrong"])
def test_the_start_does_not_matter(pieces):
    features, labels = overlapping(1, 60, 4)
    problem = make_problem(features, labels, None, None)
    program = Program.of_table(table(aimfor.aim("aucroc; num_anchors=3"), problem.prior), 20)
    good = programs.near_optimum(problem, program)
    bad = None if pieces == "all open" else good._replace(weight=-9 * good.weight)
    values = [program.value(*problem.rates(solve(problem, program, start))) for start in (good, bad)]
    assert values[0] == pytest.approx(values[1], abs=1e-9)


@pytest.mark.parametrize("text", POINTS)
@pytest.mark.parametrize("decay", [0, 1e-5])
def test_the_search_agrees_with_the_linear_program(text, decay):
    features, labels = two_clouds(seed=0)
    by_lp, by_search = (
        solve_by_lp(features, labels, None, text),
        solve_by_search(features, labels, None, text, decay=decay),
    )
    assert by_search.feasible
    assert by_search.objective == pytest.approx(by_lp.objective, rel=0.005)
    assert by_search.multipliers == pytest.approx(by_lp.multipliers, rel=0.2)


def test_plain_sgd_agrees_with_both():
    aim = aimfor.aim("tpr@fpr<=0.1")
    features, labels = two_clouds(seed=0)
    rates = hinge_rates(features, labels, *train(aim, [(features, labels)], steps=2000)[0])
    reached = table(aim, labels.mean(), rates).objective(rates).item()
    assert solve_by_lp(features, labels, None, aim).objective == pytest.approx(reached, rel=0.01)
    assert solve_by_search(features, labels, None, aim, decay=0).objective == pytest.approx(reached, rel=0.01)


@pytest.mark.parametrize("surrogate", ["hinge", "log"])
@pytest.mark.parametrize("text", ["recall@precision>=0.7", "precision@recall>=0.8"])
def test_the_search_with_decay_agrees_with_a_general_method(text, surrogate):
    features, labels = two_clouds(seed=0)
    features, decay, aim = (features - features.mean(0)) / features.std(0), 0.01, aimfor.aim(text)
    anchors = table(aim, labels.mean())

    def rates(z):
        margins = np.where(labels == 1, 1, -1) * (features @ z[:2] - z[2])
        losses = np.maximum(0, 1 - margins) if surrogate == "hinge" else np.logaddexp(0, -margins) / np.log(2)
        return losses[labels == 1].mean(), losses[labels == 0].mean()

    def objective(z):
        u, v = rates(z)
        return (anchors.objective_u * u + anchors.objective_v * v).item() + decay / 2 * (z[:2] @ z[:2])

    def room(z):
        u, v = rates(z)
        return (anchors.room + anchors.room_recall * (1 - u) - anchors.load_u * u - anchors.load_v * v).item()

    found = solve_by_search(features, labels, None, aim, surrogate=surrogate, decay=decay)
    z = np.concatenate([found.weight, found.thresholds])
    best = min(
        minimize(objective, start, method="SLSQP", constraints={"type": "ineq", "fun": room}).fun
        for start in (z, np.array([1.0, 1.0, 0.0]))
    )
    assert room(z) >= -1e-6
    assert objective(z) <= best + 1e-3 * abs(best)


def forms(features, labels, weights):
    """The same rows with weights, written out, in another order, and both sparse."""
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(labels)), weights))
    yield features, labels, weights
    yield features[order], labels[order], None
    yield sparse.csr_array(features), labels, weights
    yield sparse.csc_matrix(features[order]), labels[order], np.full(len(order), 1.0)


@pytest.mark.parametrize(
    "solver",
    [
        lambda *rows: solve_by_lp(*rows, "aucpr; num_anchors=4"),
        lambda *rows: solve_by_lp(*rows, "f1"),
        lambda *rows: solve_by_search(*rows, "recall@precision>=0.6"),
        lambda *rows: solve_by_search(*rows, "tpr@fpr<=0.1", surrogate="log"),
    ],
)
def test_a_weight_is_a_number_of_rows(solver):
    rng = np.random.default_rng(1)
    features, labels = overlapping(0, 80, 4)
    features[rng.random(features.shape) < 0.5] = 0
    with_weights, repeated, *both_sparse = (
        solver(*form) for form in forms(features, labels, rng.integers(0, 4, size=80))
    )
    assert np.array_equal(with_weights.weight, repeated.weight)
    assert np.array_equal(with_weights.thresholds, repeated.thresholds)
    assert np.array_equal(both_sparse[0].weight, both_sparse[1].weight)
    assert both_sparse[0].objective == pytest.approx(with_weights.objective, abs=1e-6)


def test_a_given_prior_counts():
    features, labels = two_clouds(seed=0)
    rare = np.where(labels == 1, 1.0, 5.0)
    share = rare[labels == 1].sum() / rare.sum()
    by_weights = solve_by_lp(features, labels, rare, "f1")
    by_prior = solve_by_lp(features, labels, None, "f1", prior=share)
    assert by_prior.objective == pytest.approx(by_weights.objective, abs=1e-9)


@pytest.mark.parametrize("text", ["recall@precision>=0.9", "aucpr; num_anchors=3"])
def test_an_infeasible_constraint_has_a_named_outcome(text):
    features, labels = far_cluster(seed=0, num_rows=300)
    solution = solve_by_lp(features, labels, None, text)
    assert not solution.feasible
    assert solution.violation > 0.5
    assert solution.multipliers.max() == pytest.approx(solvers.MAX_MULTIPLIER)
    assert np.isfinite(solution.weight).all()
    assert np.isfinite(solution.thresholds).all()


@pytest.mark.parametrize("surrogate", ["hinge", "log"])
def test_the_search_knows_it_too(surrogate):
    features, labels = far_cluster(seed=0, num_rows=300)
    solution = solve_by_search(features, labels, None, "recall@precision>=0.9", surrogate=surrogate)
    assert not solution.feasible
    assert solution.multipliers == pytest.approx(solvers.MAX_MULTIPLIER)


def hard_data():
    rng = np.random.default_rng(0)
    features, labels = overlapping(0, 30, 3)
    yield "constant feature", np.hstack([features, np.full((30, 1), 7.3)]), labels
    yield "only constant features", np.full((30, 2), 0.1), labels
    yield "equal columns", np.hstack([features, features]), labels
    yield "separable", features + 9 * labels[:, None], labels
    yield "more columns than rows", rng.normal(size=(30, 60)), labels
    yield "one positive", features, np.eye(1, 30, 4, dtype=int)[0]
    yield "one negative", features, 1 - np.eye(1, 30, 4, dtype=int)[0]
    yield "two rows", np.array([[1.0], [2.0]]), np.array([0, 1])
    yield "the same row in both classes", np.ones((2, 1)), np.array([0, 1])
    yield "far apart in size", features * [1e-8, 1.0, 1e8], labels
    yield "sparse", sparse.random(30, 5, 0.3, "csr", random_state=0), labels
    yield "sparse and empty", sparse.csr_matrix((30, 3)), labels


@pytest.mark.parametrize(("features", "labels"), [pytest.param(*case[1:], id=case[0]) for case in hard_data()])
def test_hard_data_is_solved(features, labels):
    for text in ("aucpr; num_anchors=3", "recall@precision>=0.9", "precision@recall>=0.9", "aucroc", "f1"):
        solution = solve_by_lp(features, labels, None, text)
        if text == "recall@precision>=0.9":
            for options in ({}, {"decay": 0}, {"surrogate": "log"}):
                by_search = solve_by_search(features, labels, None, text, **options)
                assert np.isfinite(by_search.weight).all()
                if options == {"decay": 0}:
                    assert by_search.feasible == solution.feasible
        assert np.isfinite(solution.weight).all()
        assert np.isfinite(solution.thresholds).all()


def test_more_features_than_the_quick_method_takes(monkeypatch):
    features, labels = overlapping(0, 60, 5)
    rows = sparse.csr_matrix(features), labels, None, "tpr@fpr<=0.1"
    quick = solve_by_lp(*rows), solve_by_search(*rows), solve_by_search(*rows, surrogate="log")
    monkeypatch.setattr(programs, "MAX_FEATURES", 4)
    monkeypatch.setattr(solvers, "MAX_FEATURES", 4)
    slow = solve_by_lp(*rows), solve_by_search(*rows), solve_by_search(*rows, surrogate="log")
    for one, other in zip(quick, slow, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=1e-3)


def test_thousands_of_rows_take_seconds():
    features, labels = overlapping(0, 2000, 20)
    solution = solve_by_lp(features, labels, None, "aucroc; num_anchors=10")
    assert solution.feasible


ROWS = np.array([[0.0], [1.0]])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"features": [1.0, 2.0]}, ValueError, r"features must have shape \[n, D\], got \(2,\)"),
        ({"features": [[np.nan], [1.0]]}, ValueError, "features must be finite in every entry, got nan"),
        ({"features": sparse.csr_matrix([[np.inf], [1.0]])}, ValueError, "features must be finite in every entry"),
        ({"labels": [0, 2]}, ValueError, "labels must be 0 or 1 in every entry, got 2.0"),
        ({"labels": [0, 1, 1]}, ValueError, r"labels must have shape \(2,\), got \(3,\)"),
        ({"labels": [1, 1]}, ValueError, "labels must have weight in both classes, got 2 and 0"),
        ({"weights": [0, 1]}, ValueError, "labels must have weight in both classes, got 1 and 0"),
        ({"weights": [-1, 1]}, ValueError, "weights must be finite and >= 0 in every entry, got -1.0"),
        ({"weights": [1]}, ValueError, r"weights must have shape \(2,\), got \(1,\)"),
        ({"prior": 1.0}, ValueError, r"prior must be in \(0, 1\), got 1.0"),
        ({"aim": "recall@precision>=(0.9, 0.8)"}, ValueError, "aim must have one target, for one label"),
    ],
)
@pytest.mark.parametrize("solver", [solve_by_lp, solve_by_search])
def test_bad_input(solver, change, error, message):
    arguments = {"features": ROWS, "labels": [0, 1], "weights": None, "aim": "tpr@fpr<=0.1"}
    with pytest.raises(error, match=message):
        solver(**{**arguments, **change})


@pytest.mark.parametrize(
    ("aim", "options", "message"),
    [
        ("aucpr", {}, "aim must be recall@precision, precision@recall, .* for a search, got 'aucpr'"),
        ("f1", {}, "aim must be recall@precision"),
        ("tpr@fpr<=0.1; band=2", {}, "without a band"),
        ("tpr@fpr<=0.1", {"surrogate": "ramp"}, "surrogate must be one of 'hinge', 'log', got 'ramp'"),
        ("tpr@fpr<=0.1", {"decay": -1}, r"decay must be in \[0, inf\), got -1"),
        ("tpr@fpr<=0.1", {"surrogate": "log", "decay": 0}, r"decay must be in \(0, inf\), got 0"),
    ],
)
def test_bad_options_of_the_search(aim, options, message):
    with pytest.raises(ValueError, match=message):
        solve_by_search(ROWS, [0, 1], None, aim, **options)


def test_a_program_beyond_memory_is_refused(monkeypatch):
    monkeypatch.setattr(solvers, "MAX_SLACKS", 10)
    features, labels = overlapping(0, 11, 2)
    with pytest.raises(ValueError, match="features must have at most 10 rows times anchors, got 11"):
        solve_by_lp(features, labels, None, "f1")
