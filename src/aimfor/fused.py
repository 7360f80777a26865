"""Count, in tuned torch: the numbers of `bounds`, on any device, by few operations on pieces that stay in cache.

Negatives are counted on a copy of the scores in which positives and absent entries stand so far on the right side of
every threshold that nothing is felt of them. Positives are gathered and counted apart, so that sparse labels cost
nothing extra and the dense target is never built. Nothing is found by subtracting one side from the whole: that would
lose the digits of rare classes.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from aimfor.batches import LARGEST, Batch, Positives
from aimfor.bounds import Counts, Sums, every_entry, valid_weights
from aimfor.surrogates import LEAK, Surrogate

# Entries of a piece: on a CPU the few tensors of its size fit the second-level cache; elsewhere fewer calls count more.
CPU_PIECE = 2**16
OTHER_PIECE = 2**23
# Rows of a piece are at least so long, for the sake of vectors.
NARROWEST = 64
# The score of an entry that is not there.
ABSENT = -1e37
# Above it log(1 + e^z) is z to all digits of float32; four factors of 1 + e^20 stay within float32.
LARGEST_LOG = 20.0
# Thresholds so far from their middle are still good for e^(f - middle) e^(middle - b) = e^(f - b).
WIDEST = 25.0


class Piece(NamedTuple):
    """Some rows and labels of a batch, and what stands there.

    Attributes:
        rows, labels: where it stands.
        scores: `[rows, labels]`, ABSENT where the entry has no weight.
        weights: `[rows, labels]` or `[rows, 1]`; None for 1.
        positive_rows, positive_labels: positions of its positives, from its corner.
    """

    rows: slice
    labels: slice
    scores: Tensor
    weights: Tensor | None
    positive_rows: Tensor
    positive_labels: Tensor

    def positive_weights(self) -> Tensor:
        """The weight of each positive."""
        if self.weights is None:
            return self.scores.new_ones(len(self.positive_rows))
        return self.weights.expand_as(self.scores)[self.positive_rows, self.positive_labels]


def census(batch: Batch) -> Tensor:
    """Check every value of a batch and count it: `[3, L]`, weight, weight of positives, weighted sum of scores."""
    sums = _zeros(batch, 3, batch.scores.shape[1])
    if batch.weights is not None:
        valid_weights(batch.weights, batch.mask)
    for piece in _pieces(batch, checking=True):
        scores, weights = piece.scores, piece.weights
        if weights is None:
            sums[0, piece.labels] += len(scores)
            sums[2, piece.labels] += scores.sum(0)
        else:
            sums[0, piece.labels] += weights.expand_as(scores).sum(0)
            sums[2, piece.labels] += (scores * weights).sum(0)  # ABSENT times 0 is 0
        sums[1, piece.labels].index_add_(0, piece.positive_labels, piece.positive_weights())
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
    """The pass over a checked batch; see `bounds.count`."""
    labels = batch.scores.shape[1]
    sums = Sums(*_zeros(batch, len(Sums._fields), *thresholds.shape))
    squares, gradient = _zeros(batch, labels), _zeros(batch, *batch.scores.shape)
    kind = gradient.dtype
    parts = [thresholds.to(kind), positive_cost.to(kind), negative_cost.to(kind)]
    mean, sharpness = score_mean.to(kind), None if sharpness is None else sharpness.to(kind)
    for piece in _pieces(batch, checking=False):
        distance = (piece.scores - mean[piece.labels]).clamp_(-1e16, 1e16).square_()
        squares[piece.labels] += (distance if piece.weights is None else distance.mul_(piece.weights)).sum(0)
        b, u_cost, v_cost = (part[:, piece.labels] for part in parts)
        sharp = None if sharpness is None else sharpness[piece.labels]
        some = Sums(*(part[:, piece.labels] for part in sums))
        found = gradient[piece.rows, piece.labels]
        positive_gradient = _count_positives(piece, b, u_cost, surrogate, sharp, some)
        piece.scores[piece.positive_rows, piece.positive_labels] = ABSENT
        _count_negatives(piece, b, v_cost, surrogate, sharp, some, found)
        found[piece.positive_rows, piece.positive_labels] = positive_gradient
    return Counts(sums, squares, gradient)


def _count_positives(
    piece: Piece, thresholds: Tensor, cost: Tensor, surrogate: Surrogate, sharpness: Tensor | None, sums: Sums
) -> Tensor:
    """Add the positives of a piece to the sums, and give their gradient."""
    at, weights = piece.positive_labels, piece.positive_weights().unsqueeze(1)
    margin = piece.scores[piece.positive_rows, at].unsqueeze(1) - thresholds.t()[at]  # [positives, K]
    wrong = margin < 0
    if sharpness is not None:
        margin = margin * sharpness[at].unsqueeze(1)
    loss, slope = surrogate.loss(margin), surrogate.slope(margin)
    if sharpness is not None:
        slope = slope * sharpness[at].unsqueeze(1)
    terms = torch.cat([loss, slope, wrong.to(loss.dtype)], dim=1) * weights
    anchors, width = thresholds.shape
    added = terms.new_zeros(width, 3 * anchors).index_add_(0, at, terms).t().unflatten(0, (3, anchors))
    for total, part in zip((sums.positive_loss, sums.positive_slope, sums.false_negatives), added, strict=True):
        total += part
    return (terms[:, anchors : 2 * anchors] * cost.t()[at]).sum(1)


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
    weights, z = piece.weights, curve.z
    for anchor, threshold in enumerate(thresholds):
        torch.sub(piece.scores, threshold, out=z)
        wrong = torch.ge(z, 0.0, out=curve.loss)  # compared into floats: no mask has to be made and turned into numbers
        sums.false_positives[anchor] += (wrong if weights is None else wrong.mul_(weights)).sum(0)
        if sharpness is not None:
            z.mul_(sharpness)
        sums.negative_loss[anchor] += curve.bend(anchor)
        slope = curve.slope if weights is None else curve.slope.mul_(weights)
        factor = curve.slope_unit if sharpness is None else curve.slope_unit * sharpness
        sums.negative_slope[anchor] -= slope.sum(0) * factor
        gradient.addcmul_(slope, cost[anchor] * factor)


class Curve:
    """A surrogate as a function of z = -margin on one piece, in buffers that are filled again for every anchor.

    `bend` turns `z` into the slope in z, up to `slope_unit`, and returns the weighted sum of the loss over rows.
    """

    slope_unit = 1.0

    def __init__(self, piece: Piece, thresholds: Tensor, sharpness: Tensor | None):
        self.weights = piece.weights
        self.z, self.slope, self.loss = (torch.empty_like(piece.scores) for _ in range(3))

    def bend(self, anchor: int) -> Tensor:
        raise NotImplementedError

    def sum(self, loss: Tensor) -> Tensor:
        return (loss if self.weights is None else loss.mul_(self.weights)).sum(0)


class Hinge(Curve):
    """max(0, 1 + z)."""

    def bend(self, anchor: int) -> Tensor:
        over = self.z.add_(1.0)
        torch.gt(over, 0.0, out=self.slope)
        return self.sum(over.clamp_(min=0.0))


class SmoothHinge(Curve):
    """(1 + z)^2 between -1 and 0, then 1 + 2 z."""

    slope_unit = 2.0

    def bend(self, anchor: int) -> Tensor:
        inside = torch.add(self.z, 1.0, out=self.slope).clamp_(0.0, 1.0)
        loss = torch.mul(inside, inside, out=self.loss).add_(self.z.clamp_(min=0.0), alpha=2.0)
        return self.sum(loss)


class Ramp(Curve):
    """1 + z between -1 and 0, then 1, and the leak."""

    def bend(self, anchor: int) -> Tensor:
        inside = torch.add(self.z, 1.0, out=self.loss).clamp_(0.0, 1.0)
        torch.addcmul(inside, inside, inside, value=-1.0, out=self.slope)  # positive strictly between 0 and 1
        torch.gt(self.slope, 0.0, out=self.slope)
        wrong = self.z.clamp_(min=0.0)
        loss = inside.add_(wrong, alpha=LEAK)
        self.slope.add_(torch.gt(wrong, 0.0, out=wrong), alpha=LEAK)
        return self.sum(loss)


class Sigmoid(Curve):
    """sigmoid(z) and the leak."""

    def bend(self, anchor: int) -> Tensor:
        value = torch.sigmoid(self.z, out=self.loss)
        torch.addcmul(value, value, value, value=-1.0, out=self.slope)
        wrong = self.z.clamp_(min=0.0)
        loss = value.add_(wrong, alpha=LEAK)
        self.slope.add_(torch.gt(wrong, 0.0, out=wrong), alpha=LEAK)
        return self.sum(loss)


class Log(Curve):
    """In bits. While thresholds are close together one exponential serves all of them."""

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

    def bend(self, anchor: int) -> Tensor:
        beyond = 0.0
        if self.far:
            beyond = self.sum(torch.sub(self.z, LARGEST_LOG, out=self.slope).clamp_(min=0.0))
        if self.exponentials is None:
            x = self.z.clamp_(max=LARGEST_LOG).exp_()
        else:
            x = torch.mul(self.exponentials, self.factors[anchor], out=self.z)
            if self.far:
                x.clamp_(max=math.exp(LARGEST_LOG))
        torch.add(x, 1.0, out=self.loss)
        torch.div(x, self.loss, out=self.slope)
        unweighted = self.weights is None
        logs = _sum_of_logs(self.loss, x) if unweighted else self.sum(torch.log1p(x, out=self.loss))
        return (logs + beyond) * self.slope_unit


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


def _pieces(batch: Batch, *, checking: bool) -> Iterator[Piece]:
    """Cut a batch into pieces, all rows of some labels first where they fit."""
    scores = batch.scores.detach()
    rows, labels = scores.shape
    kind = torch.promote_types(scores.dtype, torch.float32)
    size = CPU_PIECE if scores.device.type == "cpu" else OTHER_PIECE
    width = min(labels, max(NARROWEST, size // rows))
    height = min(rows, max(1, size // width))
    positions = _by_label(batch.labels) if isinstance(batch.labels, Positives) else None
    for label in range(0, labels, width):
        for row in range(0, rows, height):
            here = slice(row, min(rows, row + height)), slice(label, min(labels, label + width))
            # Always a copy: the pass writes into it.
            values = torch.empty_like(scores[here], dtype=kind, memory_format=torch.contiguous_format)
            values.copy_(scores[here])
            weights = _piece_weights(batch, here, values)
            if weights is not None:
                values.masked_fill_(weights == 0, ABSENT)
            if checking:
                _check(values, weights)
            if positions is None:
                assert isinstance(batch.labels, Tensor)
                where = _ones(batch.labels[here], weights, checking)
            else:
                where = positions.inside(*here)
                if weights is not None:
                    kept = weights.expand_as(values)[where] != 0
                    where = where[0][kept], where[1][kept]
            yield Piece(*here, values, weights, *where)


def _piece_weights(batch: Batch, here: tuple[slice, slice], scores: Tensor) -> Tensor | None:
    """Weights of a piece, 0 where it is masked."""
    weights, mask = (
        None if part is None else part[here[0], here[1] if part.shape[1] > 1 else slice(None)]
        for part in (batch.weights, batch.mask)
    )
    if weights is None:
        return None if mask is None else mask.to(scores.dtype)
    weights = weights.to(scores.dtype)
    return weights if mask is None else torch.where(mask, weights, 0.0)


def _check(scores: Tensor, weights: Tensor | None) -> None:
    low, high = scores.aminmax()
    if bool((low >= -LARGEST) & (high <= LARGEST)):  # false where one is nan
        return
    valid = scores.abs() <= LARGEST
    valid = valid if weights is None else valid | (weights == 0)
    every_entry("scores", scores, valid, f"finite and at most {LARGEST:g} in size")


def _ones(labels: Tensor, weights: Tensor | None, checking: bool) -> tuple[Tensor, Tensor]:
    """Positions of the ones of dense labels."""
    if weights is not None:
        labels = labels.masked_fill((weights == 0).expand_as(labels), 0)
    # A number that is its own square is 0, 1 or infinite.
    if checking and labels.dtype != torch.bool and not bool(((labels * labels == labels) & (labels <= 1)).all()):
        every_entry("labels", labels, (labels == 0) | (labels == 1), "0 or 1")
    rows, columns = labels.nonzero(as_tuple=True)
    return rows, columns


class _ByLabel(NamedTuple):
    """Sparse labels in the order of their labels."""

    rows: Tensor
    labels: Tensor

    def inside(self, rows: slice, labels: slice) -> tuple[Tensor, Tensor]:
        """Positions in a piece, from its corner."""
        ends = self.labels.new_tensor([labels.start, labels.stop])
        first, last = torch.searchsorted(self.labels, ends).tolist()
        at_rows, at_labels = self.rows[first:last], self.labels[first:last] - labels.start
        kept = (at_rows >= rows.start) & (at_rows < rows.stop)
        return at_rows[kept] - rows.start, at_labels[kept]


def _by_label(positives: Positives) -> _ByLabel:
    rows = torch.repeat_interleave(positives.starts.diff())
    labels, order = positives.columns.sort(stable=True)
    rows = rows[order]
    repeated = (labels[1:] == labels[:-1]) & (rows[1:] == rows[:-1])
    if bool(repeated.any()):
        raise ValueError("labels must be 0 or 1 in every entry, got 2.0")
    return _ByLabel(rows, labels)


def _zeros(batch: Batch, *shape: int) -> Tensor:
    kind = torch.promote_types(batch.scores.dtype, torch.float32)
    return torch.zeros(*shape, dtype=kind, device=batch.scores.device)
