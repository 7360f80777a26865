"""
Boosted trees with a promise
============================

Your model stays as it is. `ThresholdClassifier` adds the threshold, and with a confidence the promise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier

import aimfor

AIM = "recall@precision>=0.95"
X, y = make_classification(16_000, 12, n_informative=6, weights=[0.9], flip_y=0.02, random_state=0)
new_X, new_y = X[6000:], y[6000:]
trees = HistGradientBoostingClassifier(max_iter=40, random_state=0)

# %%
# Out-of-fold scores choose the first threshold. The second comes from a third of the rows that the model never saw.

models = {
    "0.5 on the probability": trees.fit(X[:6000], y[:6000]),
    "ThresholdClassifier": aimfor.ThresholdClassifier(trees, AIM, random_state=0).fit(X[:6000], y[:6000]),
    "with confidence 0.95": aimfor.ThresholdClassifier(trees, AIM, confidence=0.95, cv=0.3, random_state=0).fit(
        X[:6000], y[:6000]
    ),
}
names, precisions, recalls = [], [], []
for name, model in models.items():
    decisions = model.predict(new_X)
    names.append(name)
    precisions.append(new_y[decisions == 1].mean())
    recalls.append(decisions[new_y == 1].mean())

places = np.arange(len(names))
plt.figure(figsize=(6, 3.5))
plt.barh(places - 0.2, precisions, 0.4, label="precision", color="tab:blue")
plt.barh(places + 0.2, recalls, 0.4, label="recall", color="0.7")
plt.axvline(0.95, color="black", linestyle=":")
plt.yticks(places, names)
plt.xlim(0.5, 1)
plt.legend(loc="lower left")
plt.tight_layout()
plt.show()
