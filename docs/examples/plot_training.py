"""
What the loss learns while it trains
====================================

The threshold and the multiplier find their place by themselves. The multiplier rises while the constraint is broken.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_classification

import aimfor

torch.manual_seed(0)
X, y = make_classification(8000, 20, n_informative=6, weights=[0.9], flip_y=0.05, random_state=0)
X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y)

model = torch.nn.Linear(20, 1)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
loss = aimfor.Loss("recall@precision>=0.9")
history = []
for _ in range(1500):
    rows = torch.randint(len(y), (256,))
    optimiser.zero_grad()
    loss(model(X[rows]).squeeze(1), y[rows]).backward()
    optimiser.step()
    now = loss.diagnostics()
    history.append([float(part) for part in (now.precision, now.recall, now.multipliers, now.thresholds)])

# %%
# `diagnostics()` is the progress signal, not the value of the loss.

precision, recall, multiplier, threshold = zip(*history, strict=True)
figure, (rates, state) = plt.subplots(2, 1, sharex=True, figsize=(6, 5))
rates.plot(precision, label="precision")
rates.plot(recall, label="recall")
rates.axhline(0.9, color="0.6", linestyle=":")
rates.legend()
state.plot(multiplier, label="multiplier")
state.plot(threshold, label="threshold")
state.set_xlabel("batches")
state.legend()
plt.show()
