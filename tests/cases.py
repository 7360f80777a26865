"""What every test of the loss runs over: one line per aim, and the surrogates."""

import pytest
from torch import Tensor

from aimfor.aims._table import Anchors
from aimfor.loss.engines import _native_library as native

NATIVE = pytest.param("native", marks=pytest.mark.skipif(native.problem() is not None, reason=str(native.problem())))

AIMS = [
    "recall@precision>=0.9",
    "recall@precision>=0.8; band=2; num_anchors=3",
    "precision@recall>=0.95",
    "tpr@fpr<=0.1",
    "fpr@tpr>=0.9",
    "recall@alerts<=0.2",
    "precision@alerts>=0.2",
    "aucpr; num_anchors=4",
    "aucpr[precision>=0.8]; num_anchors=3",
    "aucpr[recall>=0.5]; num_anchors=3",
    "aucroc; num_anchors=4",
    "aucroc[0.01<=fpr<=0.1]; num_anchors=3; spacing=geometric",
    "f1",
    "f2",
    "cost[fp=1,fn=5]",
]
CONVEX = ["hinge", "log", "smooth_hinge"]
SURROGATES = [*CONVEX, "ramp", "sigmoid"]
BOUNDING = [*CONVEX, "ramp"]
# The options of the paper's problem, whose constraints bound the true ones and which linear programs solve.
PAPER = {"surrogate": "hinge", "constraint": "surrogate", "log_loss": 0.0}


def written_out(anchors: Anchors, anchor_count: int, labels: int) -> Anchors:
    """A table with every entry at its full size."""
    parts = {
        name: part.expand(anchor_count, labels) for name, part in anchors._asdict().items() if isinstance(part, Tensor)
    }
    return anchors._replace(**parts)
