"""
Watch whether the promise still holds
=====================================

A threshold was promised precision 0.9. One day the data change. The watch raises its alarm soon after, and hardly ever
before.
"""

import matplotlib.pyplot as plt
import numpy as np

import aimfor

generator = np.random.default_rng(0)


def day(precision, count=400):
    """Scores of a day, and the labels, with this precision among the alarms."""
    flagged = generator.random(count) < 0.1
    labels = np.where(flagged, generator.random(count) < precision, generator.random(count) < 0.01)
    return np.where(flagged, 1.0, 0.0) + 0.1 * generator.random(count), labels.astype(int)


scores, labels = map(np.concatenate, zip(*(day(0.95) for _ in range(30)), strict=True))
point = aimfor.operating_point(labels, scores, "recall@precision>=0.9", confidence=0.95)

# %%
# Forty quiet days, then the precision falls to 0.75.

watch = aimfor.Watch(point)
evidence, alarm = [], None
for number in range(80):
    scores, labels = day(0.95 if number < 40 else 0.75)
    status = watch.update(scores, labels)
    evidence.append(max(status.evidence[name] / status.limits[name] for name in status.evidence))
    if status.alarm and alarm is None:
        alarm = number
        print(f"day {number}: {status}")

plt.figure(figsize=(6, 3.5))
plt.semilogy(evidence, color="tab:blue", label="evidence, as a share of what raises the alarm")
plt.axhline(1, color="black", linestyle=":")
plt.axvline(40, color="0.6", linestyle="--", label="the data change")
plt.xlabel("days")
plt.legend()
plt.show()
