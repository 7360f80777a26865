"""Count, in tuned torch: the numbers of `bounds`, on any device, by few operations on pieces that stay in cache.

Negatives are counted on a copy of the scores in which positives and absent entries stand so far on the right side of
every threshold that nothing is felt of them. Positives are gathered and counted apart, so that sparse labels cost
nothing extra and the dense target is read once. Nothing is found by subtracting one side from the whole: that would
lose the digits of rare classes.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aimfor.batches import Batch, Positives, every_entry, valid_positions, valid_scores, valid_weights
from aimfor.bounds import Counts, Sums
from aimfor.surrogates import LEAK, Surrogate

# Entries of a piece: on a CPU the few tensors of its size stay in cache, and calls still cost less than what they do;
# elsewhere fewer calls count more.
CPU_PIECE = 2**18
OTHER_PIECE = 2**23
# Positives whose anchors are worked on together.
POSITIVES_AT_ONCE = 2**11
# Rows of a piece are about so long at least, for the sake of vectors.
NARROWEST = 64
# The score of an entry that is not there: below every threshold, and within float32 even when it is made sharp.
ABSENT = -1e30
# As far as this e^(f - b) is e^(f - middle) e^(middle - b), all of them within float32: scores above the lowest
# threshold, thresholds from their middle.
FARTHEST = 60.0
WIDEST = 25.0
# Factors 1 + e^z whose product is taken before its log: at most so many, and with a log of at most so much.
FACTORS = 16
LARGEST_LOG = 88.0


class Ones(NamedTuple):
    """Some positives of a batch, `[P]` each; the weights are None for 1."""

    rows: Tensor
    labels: Tensor
    scores: Tensor
    weights: Tensor | None


class Piece(NamedTuple):
    """Some rows and labels of a batch, each tensor `[rows, labels]`.

    Attributes:
        rows, labels: where it stands.
        scores: ABSENT where there is nothing to look at; the pass writes into it.
        weights: may be `[rows, 1]`; None for 1.
        absent: where there is nothing to look at; None for nowhere.
        ones: rows and labels of its positives, counted from its corner.
        slope: room for the terms of one anchor.
    """

    rows: slice
    labels: slice
    scores: Tensor
    weights: Tensor | None
    absent: Tensor | None
    ones: tuple[Tensor, Tensor]
    slope: Tensor


def listed(batch: Batch) -> Batch:
    """The batch with its labels checked and listed: positions of the ones, without those that are absent."""
    labels, shape = batch.labels, batch.scores.shape
    if batch.weights is not None:
        valid_weights(batch.weights, batch.mask)
    if isinstance(labels, Tensor):
        rows, columns = _not_zero(labels)
    else:
        starts, columns, _ = valid_positions(labels, shape[1])
        rows = torch.repeat_interleave(starts.diff())
    for part in (batch.weights, batch.mask):
        if part is not None:
            present = part.expand(shape)[rows, columns] != 0
            rows, columns = rows[present], columns[present]
    if isinstance(labels, Tensor):
        values = labels[rows, columns]
        every_entry("labels", values, values == 1)
    else:
        times = (rows * shape[1] + columns).unique(return_counts=True)[1]
        every_entry("labels", times, times == 1)
    starts = torch.cat([rows.new_zeros(1), torch.bincount(rows, minlength=shape[0])]).cumsum(0)
    return batch._replace(labels=Positives(starts, columns))


def census(batch: Batch) -> Tensor:
    """Check every score of a listed batch and count: `[3, L]`, weight, weight of positives, weighted sum of scores."""
    scores = batch.scores.detach()
    weight, positive_weight, score_sum = sums = _zeros(batch, 3, scores.shape[1])
    if batch.weights is None and batch.mask is None:
        valid_scores(scores)
        weight += len(scores)
        torch.sum(scores, 0, dtype=sums.dtype, out=score_sum)
    else:
        for rows, labels in _blocks(batch):
            values = scores[rows, labels].to(sums.dtype, copy=True)
            weights, absent = _weights(batch, rows, labels, sums.dtype)
            assert absent is not None
            valid_scores(values.masked_fill_(absent, 0.0))
            weights = (~absent).to(values) if weights is None else weights
            weight[labels] += weights.expand_as(values).sum(0)
            score_sum[labels] += values.mul_(weights).sum(0)
    assert isinstance(batch.labels, Positives)
    columns = batch.labels.columns
    if batch.weights is None:
        positive_weight += torch.bincount(columns, minlength=len(weight))
    else:
        rows = torch.repeat_interleave(batch.labels.starts.diff())
        positive_weight.index_add_(0, columns, batch.weights.expand_as(scores)[rows, columns].to(sums))
    return sums.float()


def count(
    batch: Batch,
    thresholds: Tensor,
    positive_cost: Tensor,
    negative_cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None,
    score_mean: Tensor,
    *,
    errors: bool = True,
) -> Counts:
    """The pass over a listed batch that has been through the census; see `bounds.count`."""
    sums = _zeros(batch, 3, 2, *thresholds.shape)  # loss, slope, error; of positives and negatives
    squares = _zeros(batch, len(score_mean))
    gradient = squares.new_empty(batch.scores.shape)  # written by the first anchor
    at = _by_label(batch)
    for piece in _pieces(batch, at):
        here = piece.labels
        b, v_cost = (part[:, here].to(squares) for part in (thresholds, negative_cost))
        sharp = None if sharpness is None else sharpness[here].to(squares)
        squares[here] += _squares(piece, score_mean[here].to(squares))
        piece.scores[piece.ones] = ABSENT
        negative = sums[:, 1, :, here]
        if errors:
            negative[2].add_(_false_positives(piece, b))
        _add_negatives(piece, b, v_cost, surrogate, sharp, negative, gradient[piece.rows, here])
    for some in at.split(POSITIVES_AT_ONCE) if len(at) else ():
        found = sums[: 3 if errors else 2, 0]
        _add_positives(_ones(batch, some), thresholds, positive_cost, surrogate, sharpness, found, gradient)
    return Counts(Sums(*sums.flatten(0, 1)), squares, gradient)


def _squares(piece: Piece, mean: Tensor) -> Tensor:
    """Weighted squares of distances from the mean."""
    distance = torch.sub(piece.scores, mean, out=piece.slope)
    if piece.absent is not None:
        distance.masked_fill_(piece.absent, 0.0)
    distance.mul_(distance)
    return (distance if piece.weights is None else distance.mul_(piece.weights)).sum(0)


def _add_positives(
    ones: Ones,
    thresholds: Tensor,
    cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None,
    sums: Tensor,
    gradient: Tensor,
) -> None:
    """Add loss, slope and, where the sums have room for them, errors of some positives to the sums, `[2 or 3, K, L]`;
    write their gradient."""

    def of_ones(tensor: Tensor) -> Tensor:
        return tensor.index_select(-1, ones.labels).to(sums.dtype)

    margin = of_ones(thresholds)  # [K, P]
    torch.sub(ones.scores, margin, out=margin)
    terms = margin.new_empty(len(sums), *margin.shape)
    if len(sums) > 2:
        torch.lt(margin, 0.0, out=terms[2])  # into floats: a mask of bools would take several times as long
    sharp = None if sharpness is None else of_ones(sharpness)
    margin = margin if sharp is None else margin.mul_(sharp)
    terms[0], terms[1] = surrogate.loss(margin), surrogate.slope(margin)
    if sharp is not None:
        terms[1] *= sharp
    if ones.weights is not None:
        terms *= ones.weights
    sums.index_add_(2, ones.labels, terms)
    gradient[ones.rows, ones.labels] = terms[1].mul_(of_ones(cost)).sum(0)


def _false_positives(piece: Piece, thresholds: Tensor) -> Tensor:
    """Weight of the negatives at or above each threshold. Scores are as they came here: nothing has been rounded."""
    found = torch.empty_like(thresholds)
    for threshold, total in zip(thresholds, found, strict=True):
        wrong = torch.ge(piece.scores, threshold, out=piece.slope)
        torch.sum(wrong if piece.weights is None else wrong.mul_(piece.weights), 0, out=total)
    return found


def _add_negatives(
    piece: Piece,
    thresholds: Tensor,
    cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None,
    sums: Tensor,
    gradient: Tensor,
) -> None:
    """Add loss and slope of the negatives of a piece to the sums, and write their gradient; leaves nothing of the
    scores."""
    # Scores and thresholds from the middle of the thresholds: what is found as a difference keeps its digits there.
    middle = thresholds.mean(0)
    thresholds = thresholds - middle
    piece.scores.sub_(middle)
    if sharpness is not None:
        thresholds.mul_(sharpness)
        piece.scores.mul_(sharpness)
    curve = CURVES[surrogate.name](piece, thresholds)
    unit = curve.slope_unit if sharpness is None else curve.slope_unit * sharpness
    cost = cost * unit
    losses, slopes = torch.empty_like(thresholds), torch.empty_like(thresholds)
    for anchor, (loss_sum, slope_sum, anchor_cost) in enumerate(zip(losses, slopes, cost, strict=True)):
        slope = curve.slope(anchor)
        if piece.weights is not None:
            slope.mul_(piece.weights)
        torch.sum(slope, 0, out=slope_sum)
        if anchor == 0:
            torch.mul(slope, anchor_cost, out=gradient)
        else:
            gradient.addcmul_(slope, anchor_cost)
        torch.sum(curve.loss(), 0, out=loss_sum)
    sums[0].add_(curve.finished(losses, slopes))
    sums[1].sub_(slopes.mul_(unit))


class Curve:
    """A surrogate as a function of z = score - threshold on the negatives of one piece.

    For one anchor after the other `slope` is asked for the slope, in units of `slope_unit`, and then `loss`, when that
    has been weighted and may be written over, for what `finished` makes the loss of when it has been summed over rows.
    """

    slope_unit: float | Tensor = 1.0

    def __init__(self, piece: Piece, thresholds: Tensor):
        self.piece, self.thresholds = piece, thresholds.unbind()

    def slope(self, anchor: int) -> Tensor:
        raise NotImplementedError

    def loss(self) -> Tensor:
        raise NotImplementedError

    def finished(self, losses: Tensor, slopes: Tensor) -> Tensor:
        """Loss, `[K, labels]`, from what was summed over rows."""
        return losses


class Hinge(Curve):
    """max(0, 1 + z): of the scores above threshold - 1, their sum and that of their thresholds."""

    def __init__(self, piece: Piece, thresholds: Tensor):
        self.starts = thresholds - 1
        super().__init__(piece, self.starts)

    def slope(self, anchor: int) -> Tensor:
        return torch.gt(self.piece.scores, self.thresholds[anchor], out=self.piece.slope)

    def loss(self) -> Tensor:
        return self.piece.slope.mul_(self.piece.scores)

    def finished(self, losses: Tensor, slopes: Tensor) -> Tensor:
        return losses.addcmul_(slopes, self.starts, value=-1.0)


class SmoothHinge(Curve):
    """(1 + z)^2 between -1 and 0, then 1 + 2 z: with h = max(0, 1 + z) and i = min(h, 1) it is 2 (h - i / 2) i."""

    slope_unit = 2.0

    def __init__(self, piece: Piece, thresholds: Tensor):
        super().__init__(piece, thresholds - 1)
        self.above = torch.empty_like(piece.scores)

    def slope(self, anchor: int) -> Tensor:
        above = torch.sub(self.piece.scores, self.thresholds[anchor], out=self.above).clamp_(min=0.0)
        inside = torch.clamp(above, max=1.0, out=self.piece.slope)
        above.sub_(inside, alpha=0.5)
        return inside

    def loss(self) -> Tensor:
        return self.above.mul_(self.piece.slope)

    def finished(self, losses: Tensor, slopes: Tensor) -> Tensor:
        return losses.mul_(2.0)


class Ramp(Curve):
    """1 + z between -1 and 0, then 1, and the leak."""

    def __init__(self, piece: Piece, thresholds: Tensor):
        super().__init__(piece, thresholds)
        self.z, self.losses = torch.empty_like(piece.scores), torch.empty_like(piece.scores)

    def slope(self, anchor: int) -> Tensor:
        z = torch.sub(self.piece.scores, self.thresholds[anchor], out=self.z)
        self._bounded(z)
        # The leak.
        self.losses.add_(z.clamp_(min=0.0), alpha=LEAK)
        return self.piece.slope.add_(torch.gt(z, 0.0, out=z), alpha=LEAK)

    def loss(self) -> Tensor:
        return self.losses if self.piece.weights is None else self.losses.mul_(self.piece.weights)

    def _bounded(self, z: Tensor) -> None:
        inside = torch.add(z, 1.0, out=self.losses).clamp_(0.0, 1.0)
        slope = torch.addcmul(inside, inside, inside, value=-1.0, out=self.piece.slope)
        torch.gt(slope, 0.0, out=slope)  # strictly between 0 and 1


class Sigmoid(Ramp):
    """sigmoid(z) and the leak."""

    def _bounded(self, z: Tensor) -> None:
        value = torch.sigmoid(z, out=self.losses)
        torch.addcmul(value, value, value, value=-1.0, out=self.piece.slope)


class Log(Curve):
    """log2(1 + e^z). While nothing is far apart, one exponential of a score serves all thresholds, and the sum of logs
    over rows is the log of their product."""

    slope_unit = 1 / math.log(2)

    def __init__(self, piece: Piece, thresholds: Tensor):
        super().__init__(piece, thresholds)
        highest, widest = torch.stack([piece.scores.max() - thresholds.min(), thresholds.abs().max()]).tolist()
        self.exponentials = None
        rows = whole = len(piece.scores)
        if highest <= FARTHEST and widest <= WIDEST:
            piece.scores.exp_()
            exponentials = (-thresholds).exp_()
            self.slope_unit = exponentials * Log.slope_unit
            self.exponentials, self.one = exponentials.unbind(), thresholds.new_ones(())
            together = self._together(rows, highest) if piece.weights is None else 1
            products, rest = divmod(rows, together)
            rows, whole = products + rest, products * together
            self.grouped = piece.slope[:whole].unflatten(0, (together, products))
        self.logs = torch.empty_like(piece.scores[:rows])
        # Parts of the factors and of their logs: products of some, and the rest one by one.
        self.rest = piece.slope[whole:]
        self.products, self.rest_logs = self.logs.split([rows - len(self.rest), len(self.rest)])

    @staticmethod
    def _together(rows: int, highest: float) -> int:
        """How many rows share a log: as many as leave the fewest logs and a product within float32."""
        limit = int(LARGEST_LOG / (math.log(2) + max(0.0, highest)))  # log(1 + e^z) <= log(2) + max(0, z)
        return min(range(1, 1 + min(FACTORS, limit)), key=lambda together: sum(divmod(rows, together)))

    def slope(self, anchor: int) -> Tensor:
        if self.exponentials is None:
            z = torch.sub(self.piece.scores, self.thresholds[anchor], out=self.piece.slope)
            # log(1 + e^z) = max(0, z) + log(1 + e^-|z|), which does not overflow
            torch.abs(z, out=self.logs).neg_().exp_().log1p_().add_(z.clamp(min=0.0))
            return z.sigmoid_()
        # What 1 + x loses of a small x is below the last digit of the loss of one example at its threshold.
        factors = torch.addcmul(self.one, self.piece.scores, self.exponentials[anchor], out=self.piece.slope)
        torch.prod(self.grouped, 0, out=self.products)
        if len(self.rest) > 0:
            self.rest_logs.copy_(self.rest)
        self.logs.log_()
        return torch.div(self.piece.scores, factors, out=factors)

    def loss(self) -> Tensor:
        return self.logs if self.piece.weights is None else self.logs.mul_(self.piece.weights)

    def finished(self, losses: Tensor, slopes: Tensor) -> Tensor:
        return losses.div_(math.log(2))


CURVES: dict[str, type[Curve]] = {
    "hinge": Hinge,
    "log": Log,
    "smooth_hinge": SmoothHinge,
    "ramp": Ramp,
    "sigmoid": Sigmoid,
}


def _pieces(batch: Batch, at: Tensor) -> Iterator[Piece]:
    """Cut a batch with ones at these positions into pieces. Their tensors are the same memory, filled again for every
    piece."""
    scores, kind = batch.scores.detach(), _kind(batch)
    blocks = list(_blocks(batch))
    height, width = (part.stop - part.start for part in blocks[0])
    room = scores.new_empty(2, height * width, dtype=kind)
    edges = [end * len(scores) for _, labels in blocks for end in (labels.start, labels.stop)]
    ends = torch.searchsorted(at, torch.tensor(edges, device=at.device)).tolist()
    for (rows, labels), first, last in zip(blocks, ends[::2], ends[1::2], strict=True):
        shape = rows.stop - rows.start, labels.stop - labels.start
        values, slope = room[:, : math.prod(shape)].view(2, *shape)
        values.copy_(scores[rows, labels])
        weights, absent = _weights(batch, rows, labels, kind)
        if absent is not None:
            values.masked_fill_(absent, ABSENT)
        ones_rows, ones_labels = at[first:last] % len(scores) - rows.start, at[first:last] // len(scores) - labels.start
        if shape[0] < len(scores):
            inside = (ones_rows >= 0) & (ones_rows < shape[0])
            ones_rows, ones_labels = ones_rows[inside], ones_labels[inside]
        yield Piece(rows, labels, values, weights, absent, (ones_rows, ones_labels), slope)


def _blocks(batch: Batch) -> Iterator[tuple[slice, slice]]:
    """Rows and labels of the pieces of a batch: all rows of some labels first, where they fit."""
    rows, labels = batch.scores.shape
    size = CPU_PIECE if batch.scores.device.type == "cpu" else OTHER_PIECE
    # An odd number of cache lines: were rows whole pages apart, their columns would push each other out of the cache.
    width = min(labels, max(NARROWEST, size // rows) // 32 * 32 - 16)
    height = min(rows, max(1, size // width))
    for label in range(0, labels, width):
        for row in range(0, rows, height):
            yield slice(row, min(rows, row + height)), slice(label, min(labels, label + width))


def _weights(batch: Batch, rows: slice, labels: slice, kind: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """Weights of some entries, None for 1, and where they are absent, None for nowhere."""
    weights, mask = (
        None if part is None else part[rows, labels if part.shape[1] > 1 else slice(None)]
        for part in (batch.weights, batch.mask)
    )
    if weights is None:
        return None, None if mask is None else ~mask
    weights = weights.to(kind) if mask is None else torch.where(mask, weights, 0.0).to(kind)
    return weights, weights == 0


def _by_label(batch: Batch) -> Tensor:
    """Positions of the ones of a listed batch, counted down the columns, in order."""
    assert isinstance(batch.labels, Positives)
    rows = torch.repeat_interleave(batch.labels.starts.diff())
    at = batch.labels.columns * len(batch.scores) + rows
    # numpy sorts, and below finds, the few ones several times as fast as torch does.
    return torch.from_numpy(np.sort(at.numpy())) if at.device.type == "cpu" else at.sort().values


def _ones(batch: Batch, at: Tensor) -> Ones:
    """What stands at these positions, counted down the columns."""
    rows, labels, kind = at % len(batch.scores), at // len(batch.scores), _kind(batch)
    weights = None if batch.weights is None else batch.weights.expand_as(batch.scores)[rows, labels].to(kind)
    return Ones(rows, labels, batch.scores.detach()[rows, labels].to(kind), weights)


def _not_zero(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of what is not 0."""
    if labels.device.type == "cpu" and labels.dtype != torch.bfloat16:
        at = torch.from_numpy(np.flatnonzero(labels.resolve_neg().numpy() != 0))
        return at // labels.shape[1], at % labels.shape[1]
    rows, columns = labels.nonzero(as_tuple=True)
    return rows, columns


def _kind(batch: Batch) -> torch.dtype:
    return torch.promote_types(batch.scores.dtype, torch.float32)


def _zeros(batch: Batch, *shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=_kind(batch), device=batch.scores.device)
