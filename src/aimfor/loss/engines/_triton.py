"""The Triton engine for CUDA: a census, and one pass that reads every score once and writes its gradient once.

Triton's interpreter (`TRITON_INTERPRET=1`) runs it on the CPU too. The tests do so, and compare its numbers with those
of the reference. Its speed has not been measured.
"""

import importlib.util
import os
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aimfor.aims import Anchors
from aimfor.loss._autograd import gradient_type
from aimfor.loss._batch import LARGEST_SCORE, Batch, valid_weights
from aimfor.loss._state import SMALLEST_DEVIATION, State
from aimfor.loss._step import LogLossCosts, LossRules, PassCounts, Sums
from aimfor.loss._surrogates import HINGE, LOG, RAMP, SIGMOID, SMOOTH_HINGE, Surrogate
from aimfor.loss.engines._entries import entries
from aimfor.loss.engines._fused import listed
from aimfor.loss.engines._protocol import SETTING, CountingEngine, Pass
from aimfor.loss.engines._reference import mean_between

CODES = {HINGE: 0, LOG: 1, SMOOTH_HINGE: 2, RAMP: 3, SIGMOID: 4}
SCORE_TYPES = (torch.float32, torch.bfloat16, torch.float16)
# Rows of a program at most: so many are added up in float32, and the programs of a label in float64.
ROWS = 256
# Labels of a program at most, which are the bits of a word, and numbers of a tile: rows x anchors x labels.
LABELS = 32
TILE = 8192


class TritonEngine(CountingEngine):
    """Scores of 16 or 32 bits on CUDA, or on the CPU by Triton's interpreter."""

    name = "triton"
    surrogates = CODES.keys()

    def problem(self) -> str | None:
        return _problem()

    def description(self) -> str:
        return "Triton kernels, their speed is not measured"

    def scores_problem(self, scores: Tensor) -> str | None:
        takes = "scores of float32, bfloat16 or float16 on CUDA, or on the CPU with TRITON_INTERPRET=1"
        there = scores.is_cuda or (scores.is_cpu and _interpreted())  # the interpreter only on request: it is slow
        return None if there and scores.dtype in SCORE_TYPES else f"{takes}, got {scores.dtype} on {scores.device}"

    @torch.no_grad()
    def begin(self, batch: Batch, state: State, rules: LossRules) -> "TritonPass":
        return TritonPass(batch, state, rules)


def _interpreted() -> bool:
    return os.environ.get(SETTING) == TritonEngine.name and os.environ.get("TRITON_INTERPRET") == "1"


@lru_cache(maxsize=1)
def _problem() -> str | None:
    return None if importlib.util.find_spec("triton") else "Triton is not installed"


class Inputs(NamedTuple):
    """A batch as the kernels read it.

    Attributes:
        tensors: scores, weights, mask; the scores again for what there is not.
        strides: along rows and labels, of each.
        switches: which of them there are.
    """

    tensors: tuple[Tensor, Tensor, Tensor]
    strides: tuple[int, ...]
    switches: dict[str, bool]


class TritonPass(Pass):
    """A batch on its way through the two kernels."""

    def __init__(self, batch: Batch, state: State, rules: LossRules):
        self.batch, self.state, self.rules = batch, state, rules
        if batch.weights is not None:
            valid_weights(batch.weights, batch.mask)
        self._inputs = _inputs(batch)
        labels = batch.labels if isinstance(batch.labels, Tensor) else None
        self._bits = _bits(batch) if labels is None else _room_for_bits(batch.scores)
        self.census = self._take_census(labels)

    def _take_census(self, truth: Tensor | None) -> Tensor:
        rows, labels = self.batch.scores.shape
        found = self._empty(_chunks(rows), 6, labels)
        readable = self._bits if truth is None else _readable(truth)
        given = readable, _strides(readable), found, rows, labels, LARGEST_SCORE
        self._launch("census_kernel", *given, anchors=1, SPARSE=truth is None)
        if bool(found[:, 5].any()):
            entries(self.batch)  # which says what is wrong
        negatives, positives, total = found[:, :3].sum(0, dtype=torch.float64)
        mean = mean_between(total, negatives + positives, found[:, 3].amin(0).double(), found[:, 4].amax(0).double())
        return torch.stack([negatives, positives, mean]).float()

    def count(self, anchors: Anchors, positive_cost: Tensor, negative_cost: Tensor, errors: bool) -> PassCounts:
        return self.count_with_log_loss(anchors, positive_cost, negative_cost, errors, None)

    def count_with_log_loss(
        self,
        anchors: Anchors,
        positive_cost: Tensor,
        negative_cost: Tensor,
        errors: bool,
        log_costs: LogLossCosts | None,
    ) -> PassCounts:
        scores, thresholds = self.batch.scores, self.state.thresholds
        (rows, labels), count = scores.shape, len(thresholds)
        surrogate, warming, sharpness = self._rung()
        gradient = torch.empty(rows, labels, dtype=gradient_type(scores), device=scores.device)
        sums = self._empty(_chunks(rows), 6 if errors else 4, count, labels)
        extras = self._empty(_chunks(rows), 1 if log_costs is None else 2, labels)
        tables = tuple(table.float().contiguous() for table in (thresholds, positive_cost, negative_cost))
        costs = (None, None) if log_costs is None else log_costs
        given = self.state.score_mean, sharpness, warming, *costs
        per_label = tuple(thresholds if part is None else part.float().contiguous() for part in given)
        self._launch(
            "count_kernel",
            *(tables, per_label, gradient, sums, extras, rows, labels, count),
            anchors=count,
            SURROGATE=CODES[surrogate],
            TIGHT=sharpness is not None,
            MIXED=warming is not None,
            ERRORS=errors,
            LOG_LOSS=log_costs is not None,
            NEGATIVE_LOG_LOSS=costs[1] is not None,
        )
        total, (squares, *log_loss) = _added(sums), _added(extras)
        not_counted = [] if errors else 2 * [squares.new_zeros(()).expand_as(thresholds)]
        return PassCounts(Sums(*total, *not_counted), squares, gradient, *log_loss)

    def _rung(self) -> tuple[Surrogate, Tensor | None, Tensor | None]:
        """The surrogate, which labels are still on the hinge, None for none, and the sharpness of the others."""
        state, surrogate = self.state, self.rules.surrogate
        if surrogate.sharpness is None:
            return surrogate, None, None
        # What is counted of labels that take no part yet is multiplied by 0.
        taking_part = state.taking_part
        warming = (taking_part > 0) & (state.steps < self.rules.warmup)
        if bool(warming.any()) and torch.equal(warming, taking_part > 0):
            return HINGE, None, None
        sharpness = taking_part * surrogate.sharpness / state.score_variance.sqrt().clamp(min=SMALLEST_DEVIATION)
        return surrogate, warming if bool(warming.any()) else None, sharpness

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=self.batch.scores.device)

    def _launch(self, name: str, *arguments: Any, anchors: int, **switches: Any) -> None:
        """Run a kernel over all rows and labels."""
        from aimfor.loss.engines import _triton_kernels as kernels

        rows, labels = self.batch.scores.shape
        width, depth = min(LABELS, _power_of_two(labels)), _power_of_two(anchors)
        height = max(1, min(ROWS, _power_of_two(rows), TILE // (width * depth)))
        chunk = min(ROWS, _power_of_two(rows))
        sizes = {"ROWS": chunk, "BLOCK_ROWS": height, "BLOCK_LABELS": width}
        if name == "count_kernel":
            sizes["BLOCK_ANCHORS"] = depth
        inputs = self._inputs
        grid = -(-labels // width), _chunks(rows)
        with torch.cuda.device_of(self.batch.scores):
            getattr(kernels, name)[grid](
                inputs.tensors, inputs.strides, self._bits, *arguments, **sizes, **inputs.switches, **switches
            )


def _inputs(batch: Batch) -> Inputs:
    scores = _readable(batch.scores)
    weights, mask = (scores if part is None else _readable(part) for part in (batch.weights, batch.mask))
    tensors = scores, weights, mask
    strides = [stride for tensor in tensors for stride in _strides(tensor)]
    return Inputs(tensors, tuple(strides), {"WEIGHTED": batch.weights is not None, "MASKED": batch.mask is not None})


def _readable(tensor: Tensor) -> Tensor:
    """As the kernels see it, which is memory: a sign that torch has still to turn is turned, and bools are bytes."""
    tensor = tensor.detach().resolve_neg()
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _strides(tensor: Tensor) -> tuple[int, int]:
    """Along rows and labels of a matrix, or of a column that stands for all labels."""
    return tensor.stride(0), tensor.stride(1) if tensor.shape[1] > 1 else 0


def _room_for_bits(scores: Tensor) -> Tensor:
    rows, columns = scores.shape
    return torch.empty(rows, -(-columns // LABELS), dtype=torch.int32, device=scores.device)


def _bits(batch: Batch) -> Tensor:
    """`[B, L / 32]`, a bit for every label that is 1: sparse labels without the dense matrix."""
    ones, (rows, columns) = listed(batch).ones, batch.scores.shape
    words = -(-columns // LABELS)
    row, column = ones.div(columns, rounding_mode="floor"), ones % columns
    bits = torch.zeros(rows * words, dtype=torch.int64, device=ones.device)
    # No bit is there twice, so that a sum of them is what they are together.
    place = row * words + column.div(LABELS, rounding_mode="floor")
    bits.index_add_(0, place, torch.ones_like(ones) << (column % LABELS))
    return bits.to(torch.int32).view(rows, words)  # the last bit becomes the sign


def _added(parts: Tensor) -> Tensor:
    """The sums of all programs of a label; what one program alone has found is not copied."""
    return parts[0] if len(parts) == 1 else parts.sum(0, dtype=torch.float64).float()


def _chunks(rows: int) -> int:
    return -(-rows // min(ROWS, _power_of_two(rows)))


def _power_of_two(number: int) -> int:
    """The next one that is not smaller."""
    return 1 << (number - 1).bit_length()
