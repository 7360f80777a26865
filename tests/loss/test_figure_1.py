"""The paper's Figure 1: the line trained for precision at recall 0.95 against the most accurate one."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import aimfor
from aimfor.cli._demo import best_precision, figure_1


@pytest.mark.parametrize("seed", [0, 1])
def test_the_trained_line_is_nearly_the_best_there_is(seed):
    rows = figure_1(2000, seed)
    aim = aimfor.PrecisionAtRecall(0.95)
    best = best_precision(rows)
    logistic = LogisticRegression(C=1e6).fit(rows.features, rows.labels)
    assert logistic.score(rows.features, rows.labels) > 0.85  # an accurate line
    assert aim.metric(rows.labels, logistic.decision_function(rows.features)) < 0.75 * best

    features, labels = torch.tensor(rows.features), torch.tensor(rows.labels)
    torch.manual_seed(seed)
    model, loss = torch.nn.Linear(2, 1), aimfor.Loss(aim)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 1000)
    for _ in range(1000):
        batch = torch.randint(len(features), (256,))
        optimiser.zero_grad()
        loss(model(features[batch]).squeeze(1), labels[batch]).backward()
        optimiser.step()
        schedule.step()
    scores = model(features).squeeze(1).detach()
    assert aim.metric(labels, scores) >= 0.99 * best
    # The learned threshold is an operating point, not only a by-product: its recall is at least the one asked for.
    assert aimfor.metrics.recall(labels, scores, loss.thresholds.item()) >= 0.95
    assert np.isfinite(loss.thresholds.item())
