"""Count, in tuned torch: the numbers of `bounds`, on any device, by few operations on pieces that stay in cache.

Negatives are counted on a copy of the scores in which positives and absent entries stand so far on the right side of
every threshold that nothing is felt of them. Positives are gathered and counted apart, so that sparse labels cost
nothing extra and the dense target is never built. Nothing is found by subtracting one side from the whole: that would
lose the digits of rare classes.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aimfor.batches import LARGEST, Batch
from aimfor.bounds import Counts, Sums, every_entry, valid_weights
from aimfor.surrogates import LEAK, Surrogate

# Entries of a piece: on a CPU the few tensors of its size fit the second-level cache; elsewhere fewer calls count more.
CPU_PIECE = 2**16
OTHER_PIECE = 2**23
# Positives whose anchors are worked on together.
POSITIVES_AT_ONCE = 2**14
# Rows of a piece are at least so long, for the sake of vectors.
NARROWEST = 64
# The score of an entry that is not there.
ABSENT = -1e37
# Above it log(1 + e^z) is z to all digits of float32; four factors of 1 + e^20 stay within float32.
LARGEST_LOG = 20.0
# Thresholds so far from their middle are still good for e^(f - middle) e^(middle - b) = e^(f - b).
WIDEST = 25.0


class Piece(NamedTuple):
    """Some rows and labels of a batch, and the negatives there.

    Attributes:
        rows, labels: where it stands.
        scores: `[rows, labels]`, far below every threshold where there is no negative.
        weights: `[rows, labels]` or `[rows, 1]`; None for 1.
    """

    rows: slice
    labels: slice
    scores: Tensor
    weights: Tensor | None


class Ones(NamedTuple):
    """The positives of a batch, `[P]` each: where they stand, their scores and weights."""

    rows: Tensor
    labels: Tensor
    scores: Tensor
    weights: Tensor


def census(batch: Batch) -> Tensor:
    """Check every value of a batch and count it: `[3, L]`, weight, weight of positives, weighted sum of scores."""
    if batch.weights is not None:
        valid_weights(batch.weights, batch.mask)
    ones = _ones(batch, checking=True)
    weight, positive_weight, score_sum = sums = _zeros(batch, 3, batch.scores.shape[1])
    for piece in _pieces(batch, None):
        scores, weights = piece.scores, piece.weights
        _check(scores, weights)
        weight[piece.labels] += len(scores) if weights is None else weights.expand_as(scores).sum(0)
        score_sum[piece.labels] += (scores if weights is None else scores * weights).sum(0)  # ABSENT times 0 is 0
    positive_weight.index_add_(0, ones.labels, ones.weights)
    return sums.float()


def count(
    batch: Batch,
    thresholds: Tensor,
    positive_cost: Tensor,
    negative_cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None,
    score_mean: Tensor,
) -> Counts:
    """The pass over a batch that has been through the census; see `bounds.count`."""
    sums = Sums(*_zeros(batch, len(Sums._fields), *thresholds.shape))
    squares, gradient = _zeros(batch, batch.scores.shape[1]), _zeros(batch, *batch.scores.shape)
    kind = gradient.dtype
    thresholds, positive_cost, negative_cost = (part.to(kind) for part in (thresholds, positive_cost, negative_cost))
    mean, sharpness = score_mean.to(kind), None if sharpness is None else sharpness.to(kind)
    ones = _ones(batch, checking=False)
    for piece in _pieces(batch, ones):
        some = Sums(*(part[:, piece.labels] for part in sums))
        sharp = None if sharpness is None else sharpness[piece.labels]
        b, v_cost = thresholds[:, piece.labels], negative_cost[:, piece.labels]
        _count_negatives(piece, b, v_cost, surrogate, sharp, some, gradient[piece.rows, piece.labels])
        distance = (piece.scores - mean[piece.labels]).clamp_(-1e16, 1e16).square_()
        distance.mul_(torch.gt(piece.scores, ABSENT / 2, out=piece.scores))
        squares[piece.labels] += (distance if piece.weights is None else distance.mul_(piece.weights)).sum(0)
    for first in range(0, len(ones.rows), POSITIVES_AT_ONCE):
        part = Ones(*(one[first : first + POSITIVES_AT_ONCE] for one in ones))
        gradient[part.rows, part.labels] = _count_positives(part, thresholds, positive_cost, surrogate, sharpness, sums)
        distance = (part.scores - mean[part.labels]).clamp_(-1e16, 1e16)
        squares.index_add_(0, part.labels, distance.square_() * part.weights)
    return Counts(sums, squares, gradient)


def _count_positives(
    ones: Ones, thresholds: Tensor, cost: Tensor, surrogate: Surrogate, sharpness: Tensor | None, sums: Sums
) -> Tensor:
    """Add positives to the sums, and give their gradient."""
    margin = ones.scores - thresholds[:, ones.labels]  # [K, P]
    wrong = margin < 0
    sharp = 1.0 if sharpness is None else sharpness[ones.labels]
    margin = margin * sharp
    loss, slope = surrogate.loss(margin), surrogate.slope(margin) * sharp
    terms = torch.cat([loss, slope, wrong.to(loss.dtype)]) * ones.weights  # [3 K, P]
    anchors, labels = thresholds.shape
    # Row after row of one label's numbers is what index_add_ is quick at.
    added = terms.new_zeros(labels, 3 * anchors).index_add_(0, ones.labels, terms.t().contiguous()).t()
    for total, part in zip(
        (sums.positive_loss, sums.positive_slope, sums.false_negatives), added.unflatten(0, (3, anchors)), strict=True
    ):
        total += part
    return (terms[anchors : 2 * anchors] * cost[:, ones.labels]).sum(0)


def _count_negatives(
    piece: Piece,
    thresholds: Tensor,
    cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None,
    sums: Sums,
    gradient: Tensor,
) -> None:
    """Add the negatives of a piece, whose positives have been taken out, to the sums and to the gradient."""
    curve = CURVES[surrogate.name](piece, thresholds, sharpness)
    found = curve.terms.new_empty(len(thresholds), *curve.terms.shape[::2])  # [K, 3, labels]
    factor = curve.slope_unit if sharpness is None else curve.slope_unit * sharpness
    cost = cost * factor
    for anchor, threshold in enumerate(thresholds):
        torch.sub(piece.scores, threshold, out=curve.z)
        torch.ge(curve.z, 0.0, out=curve.wrong)  # compared into floats: no mask has to be turned into numbers
        if sharpness is not None:
            curve.z.mul_(sharpness)
        curve.bend(anchor)
        if piece.weights is not None:
            curve.terms.mul_(piece.weights)
        torch.sum(curve.terms, 1, out=found[anchor])
        gradient.addcmul_(curve.slope, cost[anchor])
    loss, slope, wrong = found.unbind(1)
    sums.negative_loss.add_(curve.finished(loss))
    sums.negative_slope.sub_(slope * factor)
    sums.false_positives.add_(wrong)


class Curve:
    """A surrogate as a function of z = -margin on one piece, in buffers that are filled again for every anchor.

    `bend` turns `z` into `loss` and `slope` (in units of `slope_unit`), and may destroy it.
    """

    slope_unit = 1.0

    def __init__(self, piece: Piece, thresholds: Tensor, sharpness: Tensor | None):
        self.z = torch.empty_like(piece.scores)
        self.terms = piece.scores.new_empty(3, *piece.scores.shape)
        self.loss, self.slope, self.wrong = self.terms

    def bend(self, anchor: int) -> None:
        raise NotImplementedError

    def finished(self, loss: Tensor) -> Tensor:
        """Sums of the loss over rows, `[K, labels]`, from the sums of `loss`."""
        return loss


class Hinge(Curve):
    """max(0, 1 + z)."""

    def bend(self, anchor: int) -> None:
        torch.gt(self.z, -1.0, out=self.slope)
        torch.add(self.z, 1.0, out=self.loss).clamp_(min=0.0)


class SmoothHinge(Curve):
    """(1 + z)^2 between -1 and 0, then 1 + 2 z."""

    slope_unit = 2.0

    def bend(self, anchor: int) -> None:
        inside = torch.add(self.z, 1.0, out=self.slope).clamp_(0.0, 1.0)
        torch.mul(inside, inside, out=self.loss).add_(self.z.clamp_(min=0.0), alpha=2.0)


class Ramp(Curve):
    """1 + z between -1 and 0, then 1, and the leak."""

    def bend(self, anchor: int) -> None:
        inside = torch.add(self.z, 1.0, out=self.loss).clamp_(0.0, 1.0)
        torch.addcmul(inside, inside, inside, value=-1.0, out=self.slope)  # positive strictly between 0 and 1
        torch.gt(self.slope, 0.0, out=self.slope)
        _leak(self)


class Sigmoid(Curve):
    """sigmoid(z) and the leak."""

    def bend(self, anchor: int) -> None:
        value = torch.sigmoid(self.z, out=self.loss)
        torch.addcmul(value, value, value, value=-1.0, out=self.slope)
        _leak(self)


def _leak(curve: Curve) -> None:
    wrong = curve.z.clamp_(min=0.0)
    curve.loss.add_(wrong, alpha=LEAK)
    curve.slope.add_(torch.gt(wrong, 0.0, out=wrong), alpha=LEAK)


class Log(Curve):
    """log2(1 + e^z). While thresholds are close together one exponential serves all of them."""

    slope_unit = 1 / math.log(2)

    def __init__(self, piece: Piece, thresholds: Tensor, sharpness: Tensor | None):
        super().__init__(piece, thresholds, sharpness)
        low, high = thresholds.aminmax(dim=0)
        middle = (low + high) / 2
        self.far = bool(piece.scores.max() - low.min() > LARGEST_LOG)
        self.exponentials = None
        if bool((high - middle).max() <= WIDEST):
            self.factors = (middle - thresholds).exp_()
            self.exponentials = (piece.scores - middle).clamp_(-60.0, 60.0).exp_()
        # Sums of logs are logs of products, as far as nothing else stands in the sum.
        self.logs = None if self.far or piece.weights is not None else torch.empty_like(thresholds)

    def bend(self, anchor: int) -> None:
        if self.far:
            torch.sub(self.z, LARGEST_LOG, out=self.loss).clamp_(min=0.0)
        if self.exponentials is None:
            x = self.z.clamp_(max=LARGEST_LOG).exp_()
        else:
            x = torch.mul(self.exponentials, self.factors[anchor], out=self.z)
            if self.far:
                x.clamp_(max=math.exp(LARGEST_LOG))
        factors = torch.add(x, 1.0, out=self.slope if self.logs is None else self.loss)
        torch.div(x, factors, out=self.slope)
        if self.logs is not None:
            self.logs[anchor] = _sum_of_logs(factors, x)
        elif self.far:
            self.loss.add_(x.log1p_())
        else:
            torch.log1p(x, out=self.loss)

    def finished(self, loss: Tensor) -> Tensor:
        return (loss if self.logs is None else self.logs) * self.slope_unit


CURVES: dict[str, type[Curve]] = {
    "hinge": Hinge,
    "log": Log,
    "smooth_hinge": SmoothHinge,
    "ramp": Ramp,
    "sigmoid": Sigmoid,
}


def _sum_of_logs(factors: Tensor, less_one: Tensor) -> Tensor:
    """Sum over rows of log(1 + x), given 1 + x and x: the log of products of four, and of the rest one by one.

    A product is kept as product - 1, so that factors close to 1 keep their digits.
    """
    quarter = len(factors) // 4
    rest = less_one[4 * quarter :].log1p().sum(0)
    if quarter == 0:
        return rest
    product = less_one[:quarter]
    for part in range(1, 4):
        rows = slice(part * quarter, (part + 1) * quarter)
        product.mul_(factors[rows]).add_(less_one[rows])  # (1 + q) (1 + x) - 1
    return product.log1p_().sum(0) + rest


def _pieces(batch: Batch, ones: Ones | None) -> Iterator[Piece]:
    """Cut a batch into pieces, all rows of some labels first where they fit; with `ones`, these are taken out."""
    scores = batch.scores.detach()
    rows, labels = scores.shape
    kind = torch.promote_types(scores.dtype, torch.float32)
    size = CPU_PIECE if scores.device.type == "cpu" else OTHER_PIECE
    width = min(labels, max(NARROWEST, size // rows))
    height = min(rows, max(1, size // width))
    sparse = None if ones is None or isinstance(batch.labels, Tensor) else _ByLabel.of(ones)
    for label in range(0, labels, width):
        for row in range(0, rows, height):
            here = slice(row, min(rows, row + height)), slice(label, min(labels, label + width))
            weights = _piece_weights(batch, here, kind)
            # Always a copy: the pass writes into it.
            if ones is not None and sparse is None:
                assert isinstance(batch.labels, Tensor)
                values = torch.add(scores[here].to(kind), batch.labels[here].to(kind), alpha=ABSENT)
            else:
                values = scores[here].to(kind, copy=True, memory_format=torch.contiguous_format)
            if sparse is not None:
                values[sparse.inside(*here)] = ABSENT
            if weights is not None:
                values.masked_fill_(weights == 0, ABSENT)
            yield Piece(*here, values, weights)


def _piece_weights(batch: Batch, here: tuple[slice, slice], kind: torch.dtype) -> Tensor | None:
    """Weights of a piece, 0 where it is masked."""
    weights, mask = (
        None if part is None else part[here[0], here[1] if part.shape[1] > 1 else slice(None)]
        for part in (batch.weights, batch.mask)
    )
    if weights is None:
        return None if mask is None else mask.to(kind)
    weights = weights.to(kind)
    return weights if mask is None else torch.where(mask, weights, 0.0)


def _check(scores: Tensor, weights: Tensor | None) -> None:
    low, high = scores.aminmax()
    if bool((low >= -LARGEST) & (high <= LARGEST)):  # false where one is nan
        return
    valid = scores.abs() <= LARGEST
    valid = valid if weights is None else valid | (weights == 0)
    every_entry("scores", scores, valid, f"finite and at most {LARGEST:g} in size")


def _ones(batch: Batch, *, checking: bool) -> Ones:
    """The positives of a batch, without those of weight 0."""
    labels, scores = batch.labels, batch.scores.detach()
    if isinstance(labels, Tensor):
        rows, columns = _not_zero(labels)
    else:
        rows, columns = torch.repeat_interleave(labels.starts.diff()), labels.columns
    ones = Ones(rows, columns, scores[rows, columns].to(torch.promote_types(scores.dtype, torch.float32)), rows)
    weights = torch.ones_like(ones.scores)
    for part in (batch.weights, batch.mask):
        if part is not None:
            found = part.expand_as(scores)[rows, columns]
            weights = torch.where(found, weights, 0.0) if part is batch.mask else found.to(weights)
    if batch.weights is not None or batch.mask is not None:
        ones, weights = Ones(*(part[weights != 0] for part in ones)), weights[weights != 0]
    if checking:
        if isinstance(labels, Tensor):
            values = labels[ones.rows, ones.labels]
            every_entry("labels", values, values == 1, "0 or 1")
        elif len((columns + rows * scores.shape[1]).unique()) < len(rows):
            raise ValueError("labels must be 0 or 1 in every entry, got 2.0")
    return ones._replace(weights=weights)


def _not_zero(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of what is not 0."""
    if labels.device.type == "cpu" and labels.dtype != torch.bfloat16:
        # numpy finds the few ones among bools several times as fast as torch does.
        at = torch.from_numpy(np.flatnonzero(labels.numpy() != 0))
        return at // labels.shape[1], at % labels.shape[1]
    rows, columns = labels.nonzero(as_tuple=True)
    return rows, columns


class _ByLabel(NamedTuple):
    """Positions in the order of their labels."""

    rows: Tensor
    labels: Tensor

    @staticmethod
    def of(ones: Ones) -> "_ByLabel":
        labels, order = ones.labels.sort()
        return _ByLabel(ones.rows[order], labels)

    def inside(self, rows: slice, labels: slice) -> tuple[Tensor, Tensor]:
        """Positions in a piece, from its corner."""
        ends = self.labels.new_tensor([labels.start, labels.stop])
        first, last = torch.searchsorted(self.labels, ends).tolist()
        at_rows, at_labels = self.rows[first:last], self.labels[first:last] - labels.start
        kept = (at_rows >= rows.start) & (at_rows < rows.stop)
        return at_rows[kept] - rows.start, at_labels[kept]


def _zeros(batch: Batch, *shape: int) -> Tensor:
    kind = torch.promote_types(batch.scores.dtype, torch.float32)
    return torch.zeros(*shape, dtype=kind, device=batch.scores.device)
