"""
Moderation: many labels, most of them rare
==========================================

One loss serves all labels. Each has its own threshold, multiplier and share of positives.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_multilabel_classification

import aimfor

LABELS = 20
X, Y = make_multilabel_classification(6000, 100, n_classes=LABELS, n_labels=2, random_state=0)
X = torch.tensor(X, dtype=torch.float32)
X, Y = (X - X.mean(0)) / X.std(0), torch.tensor(Y)
train, test = slice(0, 4000), slice(4000, 6000)


def fit(loss, steps=1000):
    torch.manual_seed(0)
    model = torch.nn.Linear(100, LABELS)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        rows = torch.randint(4000, (256,))
        optimiser.zero_grad()
        loss(model(X[train][rows]), Y[train][rows].float()).backward()
        optimiser.step()
    return model(X[test]).detach()


# %%
# Recall at precision 0.7, label by label.

AIM = aimfor.aim("recall@precision>=0.7")
plain = AIM.metric(Y[test], fit(torch.nn.BCEWithLogitsLoss()))
aimed = AIM.metric(Y[test], fit(aimfor.Loss(AIM, num_labels=LABELS)))
shares = Y[train].float().mean(0).numpy()

plt.figure(figsize=(6, 4))
plt.scatter(shares, plain, marker="o", color="0.6", label=f"log-loss, mean {plain.mean():.3f}")
plt.scatter(shares, aimed, marker="x", color="tab:blue", label=f"the aim, mean {aimed.mean():.3f}")
plt.xlabel("share of positives of the label")
plt.ylabel("recall at precision 0.7, test rows")
plt.legend()
plt.show()
