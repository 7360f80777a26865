"""The loss under plain SGD reaches the optimum of the paper's relaxed problem, as found by linear programming."""

import numpy as np
import pytest
import torch

import aimfor
from aimfor import metrics
from aimfor.aims import Rates
from cases import written_out
from relaxed import best_line, solve, solve_f_beta

POINT_AND_AREA = ["recall@precision>=0.8", "precision@recall>=0.8", "tpr@fpr<=0.1", "aucpr; num_anchors=5"]


def two_clouds(seed: int, num_rows: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(num_rows) < 0.3).astype(int)
    return rng.normal(size=(num_rows, 2)) + labels[:, None] * np.array([3.5, 1.5]), labels


def table(aim: aimfor.Aim, labels: np.ndarray):
    nothing = torch.zeros(aim.anchor_count, 1, dtype=torch.float64)
    prior = torch.tensor([labels.mean()], dtype=torch.float64)
    return written_out(aim.anchors(prior, Rates(nothing, nothing, torch.ones(1))), aim.anchor_count, 1)


def relaxed_optimum(aim: aimfor.Aim, features: np.ndarray, labels: np.ndarray) -> float:
    anchors = table(aim, labels)
    objective = (anchors.width * anchors.objective_u, anchors.width * anchors.objective_v)
    constraint = (anchors.load_u + anchors.room_recall, anchors.load_v, anchors.room + anchors.room_recall)
    columns = [part[:, 0].numpy() for part in (*objective, *constraint)]
    optimum, _ = solve(features, labels, *columns)
    assert optimum is not None, "the test needs a feasible problem"
    return optimum


def train(aim: aimfor.Aim, features: np.ndarray, labels: np.ndarray, steps: int = 3000):
    """Plain SGD with steps that decay to 0; returns the weights and thresholds averaged over the second half."""
    inputs, targets = torch.tensor(features), torch.tensor(labels)
    dual_rate, threshold_rate = 0.03, 0.1
    loss = aimfor.Loss(aim)
    weights = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([weights], lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    mean_weights, mean_thresholds = torch.zeros(2, dtype=torch.float64), torch.zeros(loss.thresholds.shape)
    for step in range(steps):
        left = 1 - step / steps
        loss.dual_rate, loss.threshold_rate = dual_rate * left, threshold_rate * left**2
        optimiser.zero_grad()
        loss(inputs @ weights, targets).backward()
        optimiser.step()
        schedule.step()
        if step >= steps // 2:
            mean_weights += weights.detach() / (steps - steps // 2)
            mean_thresholds += loss.thresholds / (steps - steps // 2)
    return mean_weights, mean_thresholds[:, 0].double()


def hinge_rates(features, labels, weights, thresholds) -> Rates:
    margins = torch.tensor(features) @ weights - thresholds.unsqueeze(1)
    u = (1 - margins[:, labels == 1]).clamp(min=0).mean(1, keepdim=True)
    v = (1 + margins[:, labels == 0]).clamp(min=0).mean(1, keepdim=True)
    return Rates(u, v, torch.ones(1))


@pytest.mark.parametrize("text", POINT_AND_AREA)
def test_sgd_reaches_the_optimum_of_the_linear_program(text):
    aim = aimfor.aim(text)
    features, labels = two_clouds(seed=0)
    optimum = relaxed_optimum(aim, features, labels)
    rates = hinge_rates(features, labels, *train(aim, features, labels))
    anchors = table(aim, labels)
    objective = (anchors.width * anchors.objective(rates)).sum().item()
    assert anchors.violation(rates).max() < 0.01
    # Within 1 %, from above; below it only by as much as the small violation buys.
    assert objective == pytest.approx(optimum, rel=0.01)


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_sgd_reaches_the_best_surrogate_f_beta(beta):
    features, labels = two_clouds(seed=0)
    u, v, _ = hinge_rates(features, labels, *train(aimfor.FBeta(beta), features, labels))
    kappa = (1 - labels.mean()) / labels.mean()
    reached = ((1 + beta**2) * (1 - u) / (beta**2 + 1 - u + kappa * v)).item()
    best = solve_f_beta(features, labels, beta)
    assert best * 0.99 <= reached <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_relaxed_optimum_never_exceeds_the_true_one(seed):
    features, labels = two_clouds(seed)
    kappa = (1 - labels.mean()) / labels.mean()

    recall = 1 - relaxed_optimum(aimfor.RecallAtPrecision(0.8), features, labels)
    assert recall <= best_line(aimfor.RecallAtPrecision(0.8).metric, features, labels)

    v = relaxed_optimum(aimfor.PrecisionAtRecall(0.8), features, labels)
    assert 0.8 / (0.8 + kappa * v) <= best_line(aimfor.PrecisionAtRecall(0.8).metric, features, labels)

    tpr = 1 - relaxed_optimum(aimfor.TPRAtFPR(0.1), features, labels)
    assert tpr <= best_line(aimfor.TPRAtFPR(0.1).metric, features, labels)

    assert solve_f_beta(features, labels, 1.0) <= best_line(aimfor.FBeta(1).metric, features, labels)

    area_aim = aimfor.AUCPR(num_anchors=5)
    precisions, widths = (part[:, 0].numpy() for part in table(area_aim, labels)[:2])

    def area(y_true, y_score):
        recalls = [metrics.recall_at_precision(y_true, y_score, float(a)).value for a in precisions]
        return np.tensordot(widths, np.array(recalls), axes=1)

    assert 1 - relaxed_optimum(area_aim, features, labels) <= best_line(area, features, labels)
