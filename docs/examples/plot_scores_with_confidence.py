"""
A promise for the scores of any model
=====================================

With a confidence, the threshold moves to where the constraint is sure enough. More rows cost less recall.
"""

import matplotlib.pyplot as plt
import numpy as np

import aimfor

generator = np.random.default_rng(0)


def sample(count):
    """Labels with 10 % positives, and scores that tell them apart fairly well."""
    labels = generator.random(count) < 0.1
    return labels.astype(int), generator.normal(size=count) + 2.2 * labels


# %%
# The precision of each threshold in the population, here from a million rows.

labels, scores = sample(1_000_000)
sizes = [500, 1000, 2000, 5000, 10_000, 20_000, 50_000]
plt.figure(figsize=(6, 4))
for confidence, colour in ((None, "0.6"), (0.95, "tab:blue")):
    precisions = []
    for size in sizes:
        point = aimfor.operating_point(*sample(size), "recall@precision>=0.7", confidence=confidence)
        chosen = scores >= np.inf if point.threshold is None else scores >= point.threshold
        precisions.append(labels[chosen].mean() if chosen.any() else np.nan)
    plt.semilogx(sizes, precisions, "o-", color=colour, label=f"confidence {confidence}")
plt.axhline(0.7, color="black", linestyle=":")
plt.xlabel("held-out rows that choose the threshold")
plt.ylabel("precision in the population")
plt.legend()
plt.show()
