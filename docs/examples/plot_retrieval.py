"""
Retrieval heads: thousands of labels, sparse targets
====================================================

Labels are given as lists of positives. The dense target of all rows and labels never exists.
"""

import time

import matplotlib.pyplot as plt
import torch

import aimfor

torch.manual_seed(0)
ROWS, LABELS = 128, 20_000
scores = torch.randn(ROWS, LABELS, requires_grad=True)
positives = [torch.randint(LABELS, (5,)).unique().tolist() for _ in range(ROWS)]
sparse = aimfor.sparse_labels(positives, LABELS)
dense = sparse.to_dense().float()


def seconds(loss, labels):
    loss(scores, labels).backward()  # the first call prepares
    started = time.perf_counter()
    for _ in range(5):
        loss(scores, labels).backward()
    return (time.perf_counter() - started) / 5


# %%
# One pass over the scores gives value and gradient for ten anchors of the precision-recall curve.

times = {
    "log-loss, dense": seconds(torch.nn.BCEWithLogitsLoss(), dense),
    "aucpr, dense": seconds(aimfor.Loss("aucpr", num_labels=LABELS), dense),
    "aucpr, sparse": seconds(aimfor.Loss("aucpr", num_labels=LABELS), sparse),
}
plt.figure(figsize=(6, 3))
plt.barh(list(times), [1000 * value for value in times.values()], color=["0.6", "tab:blue", "tab:blue"])
plt.xlabel(f"milliseconds for forward and backward, {ROWS} x {LABELS:,} scores, engine: {aimfor.engine().name}")
plt.tight_layout()
plt.show()
