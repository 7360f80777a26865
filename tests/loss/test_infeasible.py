"""Data on which the hinge constraint has no feasible line although a line of the asked precision exists."""

import numpy as np
import pytest
import torch

import aimfor
from cases import PAPER
from relaxed import best_line, solve

MIN_PRECISION = 0.9
RESTARTS = 16


def far_cluster(seed: int, num_rows: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    """Two in five positives are alone far out; the others lie among the negatives, on the other side.

    Every line that cuts off the far cluster leaves the other positives so far on its wrong side that their hinge loss
    alone exceeds the number of positives: no surrogate precision is left.
    """
    rng = np.random.default_rng(seed)
    labels = (rng.random(num_rows) < 0.3).astype(int)
    features = 1.5 * rng.normal(size=(num_rows, 2))
    far = (rng.random(num_rows) < 0.4) & (labels == 1)
    features[far] = 4.2 * np.array([np.cos(2.2), np.sin(2.2)]) + 0.5 * rng.normal(size=(far.sum(), 2))
    features[(labels == 1) & ~far] += [1.5, -1.0]
    return features, labels


def train(features: np.ndarray, labels: np.ndarray, steps: int = 1500, **options) -> tuple[aimfor.Loss, np.ndarray]:
    """Restarts from random lines as label columns of one loss; the scores of all rows."""
    loss = aimfor.Loss(aimfor.RecallAtPrecision(MIN_PRECISION), num_labels=RESTARTS, **options)
    inputs, targets = torch.tensor(features, dtype=torch.float32), torch.tensor(labels).unsqueeze(1)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(2, RESTARTS, generator=generator, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=0.03)
    for _ in range(steps):
        rows = torch.randint(len(inputs), (256,), generator=generator)
        optimiser.zero_grad()
        loss(inputs[rows] @ weights, targets[rows].expand(-1, RESTARTS)).backward()
        optimiser.step()
    return loss, (inputs @ weights).detach().numpy()


@pytest.fixture(scope="module")
def problem():
    features, labels = far_cluster(seed=0)
    best = best_line(aimfor.RecallAtPrecision(MIN_PRECISION).metric, features, labels)
    assert best > 0.3
    return features, labels, best


def test_no_line_is_feasible_for_the_hinge(problem):
    features, labels, _ = problem
    kappa = (1 - labels).sum() / labels.sum()
    for precision in (0.5, MIN_PRECISION):
        optimum, _ = solve(features, labels, [1.0], [0.0], [1.0], [kappa * precision / (1 - precision)], [1.0])
        assert optimum is None


def test_the_warning_appears_once_and_in_the_diagnostics(problem):
    features, labels, _ = problem
    with pytest.warns(
        aimfor.InfeasibleConstraintWarning, match="the hinge constraint of .* looks infeasible"
    ) as caught:
        loss, _ = train(features, labels, steps=4000, **PAPER)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    told = loss.diagnostics()
    assert not told.feasible.any()
    assert (told.violation > 0).all()


def test_the_default_finds_the_best_line(problem):
    """Exact rates drive the multipliers, so a bound that is out of reach does no harm."""
    features, labels, best = problem
    loss, scores = train(features, labels)
    recalls = loss.aim.metric(np.repeat(labels[:, None], RESTARTS, axis=1), scores)
    assert np.mean(recalls >= 0.95 * best) > 0.5
    assert loss.diagnostics().feasible.all()


def test_the_default_warns_where_no_model_can_meet_the_aim():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(2000, 2)), rng.random(2000) < 0.3  # pure noise
    with pytest.warns(aimfor.InfeasibleConstraintWarning, match="the exact constraint of .* looks infeasible"):
        loss, _ = train(features, labels, steps=4000)
    stuck = ~loss.diagnostics().feasible
    assert stuck.any()
    assert (loss.diagnostics().violation[stuck] > 0).all()


@pytest.mark.parametrize("warmup", [1, 300])
def test_exact_constraint_and_ladder_find_the_best_line(problem, warmup):
    features, labels, best = problem
    loss, scores = train(features, labels, surrogate="sigmoid", constraint="exact", warmup=warmup)
    recalls = loss.aim.metric(np.repeat(labels[:, None], RESTARTS, axis=1), scores)
    assert recalls.max() >= 0.95 * best
    # Not by luck of a start: most of them get there, and their learned thresholds hold the precision.
    assert np.mean(recalls >= 0.95 * best) > 0.5
    told = loss.diagnostics()
    assert told.feasible.all()
    assert told.recall[0, recalls.argmax()] >= 0.9 * best
    assert told.precision[0, recalls.argmax()] >= MIN_PRECISION - 0.03


@pytest.mark.parametrize("engine", ["native", "fused"])
def test_an_area_says_nothing_where_only_its_bound_is_out_of_reach(monkeypatch, engine):
    """The scores of log-loss are too small for the bound, although the model is the true one."""
    monkeypatch.setenv("AIMFOR_ENGINE", engine if engine in str(aimfor.engine()) else "fused")
    torch.manual_seed(0)
    X, weights = torch.randn(8000, 8), 0.7 * torch.randn(8, 3)
    Y = (torch.rand(8000, 3) < torch.sigmoid(X @ weights - 4)).long()
    model, loss = torch.nn.Linear(8, 3), aimfor.Loss("aucpr", num_labels=3)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(1500):  # a warning would be an error
        rows = torch.randint(len(X), (256,))
        optimiser.zero_grad()
        loss(model(X[rows]), Y[rows]).backward()
        optimiser.step()
    report = loss.diagnostics()
    assert (report.violation > 0).any()
    assert (report.multipliers == 2).any()
    assert report.feasible.any(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # of the native engine and of the fused one
def test_what_a_range_does_not_ask_is_not_called_infeasible(dtype):
    torch.manual_seed(0)
    loss = aimfor.Loss("aucpr[precision<=0.2]", dual_rate=0.1)

    def train():
        for _ in range(1500):
            loss(torch.randn(64, dtype=dtype), torch.rand(64) < 0.3)

    with pytest.warns(aimfor.VacuousRangeWarning) as caught:
        train()
    assert len(caught) == 1
    assert loss.diagnostics().feasible.all()
    assert loss.diagnostics().violation.isnan().all()
