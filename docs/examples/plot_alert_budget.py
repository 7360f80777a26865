"""
Fraud with an alert budget
==========================

The team can look at one transaction in a hundred. Which ones should it see?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import aimfor

X, y = make_classification(
    20_000, 15, n_informative=5, n_clusters_per_class=3, weights=[0.985], flip_y=0.002, random_state=1
)
train, held_out, new = slice(0, 8000), slice(8000, 14_000), slice(14_000, 20_000)
model = LogisticRegression(max_iter=1000).fit(X[train], y[train])
scores = model.decision_function(X)

# %%
# A budget of alerts needs no constraint on labels: the threshold is where 1 % of the rows lie above it.

point = aimfor.operating_point(y[held_out], scores[held_out], "recall@alerts<=0.01")
print(point)

# %%
# The recall of every budget on new rows, and what was chosen.

order = np.argsort(-scores[new])
share = np.arange(1, len(order) + 1) / len(order)
recall = np.cumsum(y[new][order]) / y[new].sum()
alarms = scores[new] >= point.threshold
plt.figure(figsize=(6, 4))
plt.plot(share, recall, color="tab:blue")
plt.axvline(0.01, color="0.6", linestyle=":")
plt.scatter([alarms.mean()], [y[new][alarms].sum() / y[new].sum()], color="black", zorder=3, label="chosen threshold")
plt.xlim(0, 0.05)
plt.xlabel("share of rows that raise an alert")
plt.ylabel("fraud found, new rows")
plt.legend()
plt.show()
