"""
Screening: miss almost nobody
=============================

A screening test must find at least 95 % of the cases. How many healthy people are called back for that?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import aimfor

X, y = load_breast_cancer(return_X_y=True)
y = 1 - y  # malignant is the class to find
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)

AIM = "precision@recall>=0.95"
model = aimfor.Classifier(AIM, model="linear", random_state=0).fit(X_train, y_train)
scores = model.raw_scores(X_test)[:, 0]

# %%
# The operating point was chosen on rows that the model did not train on.

print(model.operating_point_)

# %%
# Every threshold, and the one that was chosen.

order = np.argsort(-scores)
found = np.cumsum(y_test[order])
recall, precision = found / y_test.sum(), found / np.arange(1, len(order) + 1)
decisions = model.predict(X_test)
plt.figure(figsize=(6, 4))
plt.plot(recall, precision, color="tab:blue")
plt.axvline(0.95, color="0.6", linestyle=":")
plt.scatter(
    [(decisions * y_test).sum() / y_test.sum()],
    [(decisions * y_test).sum() / decisions.sum()],
    color="black",
    zorder=3,
    label="the chosen threshold on test rows",
)
plt.xlabel("recall: cases found")
plt.ylabel("precision: of those called back")
plt.legend()
plt.show()
