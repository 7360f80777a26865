"""
One line cannot serve all thresholds
====================================

Two groups of positives need two different lines. Log-loss compromises between them; the aim takes the line that its
number needs.
"""

import matplotlib.pyplot as plt
import torch

import aimfor

torch.manual_seed(0)


def clouds(count):
    """Negatives around the origin, most positives far to the right, some above."""
    negatives = torch.randn(count, 2)
    right = torch.randn(count // 8, 2) * 0.4 + torch.tensor([3.0, -1.5])
    above = torch.randn(count // 16, 2) * 0.3 + torch.tensor([-0.5, 3.2])
    labels = torch.cat([torch.zeros(count), torch.ones(count // 8 + count // 16)])
    return torch.cat([negatives, right, above]), labels


def train(loss):
    model = torch.nn.Linear(2, 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(800):
        rows = torch.randint(len(labels), (256,))
        optimiser.zero_grad()
        loss(model(points[rows]).squeeze(1), labels[rows]).backward()
        optimiser.step()
    return model


points, labels = clouds(2000)
new_points, new_labels = clouds(2000)
AIM = aimfor.aim("precision@recall>=0.95")

# %%
# The two models differ in their loss alone.

models = {"log-loss": train(torch.nn.BCEWithLogitsLoss()), str(AIM): train(aimfor.Loss(AIM))}

figure, axes = plt.subplots(figsize=(6, 5))
for value, name, colour in ((0, "negative", "0.75"), (1, "positive", "tab:red")):
    axes.scatter(*new_points[new_labels == value].T, s=5, color=colour, label=name)
for (name, model), colour in zip(models.items(), ("black", "tab:blue"), strict=True):
    scores = model(new_points).detach().squeeze(1)
    best = aimfor.metrics.precision_at_recall(new_labels, scores, 0.95)
    (a, b), offset = model.weight[0].detach(), model.bias.item() - best.threshold
    x = torch.linspace(-4, 5, 2)
    axes.plot(x, -(a * x + offset) / b, color=colour, label=f"{name}: precision {best.value:.2f}")
axes.set(xlim=(-4, 5), ylim=(-4, 5), title="Precision at recall 0.95, new points")
axes.legend(loc="lower left")
plt.show()
