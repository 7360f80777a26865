"""The numbers of `_reference` in tuned torch: few operations, on any device, on pieces that stay in cache.

Negatives are counted on a copy of the scores in which positives and absent entries stand so far on the right side of
every threshold that nothing is felt of them. Positives are gathered and counted apart, so that sparse labels cost
nothing extra and the dense target is read once. Nothing is found by subtracting one side from the whole: that would
lose the digits of rare classes.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aimfor.loss._batch import LARGEST_SCORE, Batch, valid_ones, valid_positions, valid_scores, valid_weights
from aimfor.loss._state import State
from aimfor.loss._step import LogLossCosts, LossRules, PassCounts, Sums
from aimfor.loss._surrogates import Surrogate
from aimfor.loss.engines._fused_curves import CURVES, Piece, log_loss_of_piece, weighted
from aimfor.loss.engines._ladder import LadderPass
from aimfor.loss.engines._protocol import CountingEngine
from aimfor.loss.engines._reference import mean_between

# Entries of a piece: on a CPU the few tensors of its size stay in cache, and calls still cost less than what they do;
# elsewhere fewer calls count more.
CPU_PIECE = 7 * 2**15
OTHER_PIECE = 2**23
# Positives are counted in larger pieces: what each costs besides grows with the labels, not with what it holds.
POSITIVE_PIECES = 2
# From so many positives of a label on, on the mean, their sums are in double precision.
MANY_POSITIVES = 64
# Rows of a piece are about so long at least, for the sake of vectors.
NARROWEST = 64
# The score of an entry that is not there: below every threshold, and within float32 even when it is made sharp.
ABSENT = -1e30
# Weights are summed in double precision where the device has it.
WITHOUT_DOUBLE = ("mps",)

Block = tuple[slice, slice]
"""Rows and labels."""


class FusedEngine(CountingEngine):
    """The surrogates that have a curve, on any device."""

    name = "fused"
    surrogates = CURVES.keys()

    def description(self) -> str:
        return "torch alone"

    @torch.no_grad()
    def begin(self, batch: Batch, state: State, rules: LossRules) -> LadderPass:
        some = listed(batch)
        return LadderPass(state, rules, census(some), partial(count, some))


class Listed(NamedTuple):
    """A batch whose labels have been checked.

    Attributes:
        scores, weights, mask: those of the batch, without its graph.
        ones: `[P]`, where in the scores, read row by row, the positives are that are not absent.
        columns: `[P]`, their labels.
    """

    scores: Tensor
    weights: Tensor | None
    mask: Tensor | None
    ones: Tensor
    columns: Tensor


def listed(batch: Batch) -> Listed:
    """Check the labels and weights of a batch, and list its positives."""
    labels, shape = batch.labels, batch.scores.shape
    if batch.weights is not None:
        valid_weights(batch.weights, batch.mask)
    if isinstance(labels, Tensor):
        ones = _not_zero(labels)
    else:
        starts, columns, _ = valid_positions(labels, shape[1])
        ones = torch.repeat_interleave(starts.diff()).mul_(shape[1]).add_(columns)
    for part in (batch.weights, batch.mask):
        if part is not None:
            ones = ones[_at(part.expand(shape), ones) != 0]
    if isinstance(labels, Tensor):
        valid_ones(_at(labels, ones))
    elif not bool((ones.diff() > 0).all()):  # in order, as they mostly are, no two are the same
        valid_ones(ones.unique(return_counts=True)[1])
    return Listed(batch.scores.detach(), batch.weights, batch.mask, ones, ones % shape[1])


def census(batch: Listed) -> Tensor:
    """Check every score and count; see `_reference.census`."""
    entries, positive_weight = _exact_zeros(batch, 2, batch.scores.shape[1])
    score_sum, low, high = _score_range(batch, entries)
    if batch.weights is None:
        positive_weight += torch.bincount(batch.columns, minlength=len(entries))
        negative_weight = entries - positive_weight  # whole numbers: nothing is rounded
    else:
        weights = _at(batch.weights.expand_as(batch.scores), batch.ones)
        positive_weight.index_add_(0, batch.columns, weights.to(positive_weight))
        negative_weight = _negative_weight(batch)
    mean = mean_between(score_sum, (negative_weight + positive_weight).to(score_sum), low, high)
    return torch.stack([negative_weight.float(), positive_weight.float(), mean.float()])


def _score_range(batch: Listed, entries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Check every score; gives their weighted sum, the smallest and the largest, each `[L]`, and adds to `entries` how
    many each label has, where they weigh 1."""
    scores, kind = batch.scores, _kind(batch)
    if batch.weights is None and batch.mask is None:
        entries += len(scores)
        low, high = scores.amin(0).to(kind), scores.amax(0).to(kind)
        if not bool((low >= -LARGEST_SCORE).all() & (high <= LARGEST_SCORE).all()):  # false where one is nan
            valid_scores(scores)
        return torch.sum(scores, 0, dtype=kind), low, high
    score_sum = _zeros(batch, scores.shape[1])
    low, high = torch.full_like(score_sum, torch.inf), torch.full_like(score_sum, -torch.inf)
    for rows, labels in _blocks(batch):
        values = scores[rows, labels].to(kind, copy=True)
        weights, absent = _weights(batch, rows, labels)
        assert absent is not None
        valid_scores(values.masked_fill_(absent, 0.0))
        if weights is None:
            weights = (~absent).to(values)
            entries[labels] += weights.expand_as(values).sum(0, dtype=entries.dtype)
        low[labels] = torch.minimum(low[labels], values.masked_fill(absent, torch.inf).amin(0))
        high[labels] = torch.maximum(high[labels], values.masked_fill(absent, -torch.inf).amax(0))
        score_sum[labels] += values.mul_(weights).sum(0)
    return score_sum, low, high


def count(
    batch: Listed,
    thresholds: Tensor,
    positive_cost: Tensor,
    negative_cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None,
    score_mean: Tensor,
    *,
    errors: bool = True,
    log_costs: LogLossCosts | None = None,
) -> PassCounts:
    """The pass over a batch that has been through the census; see `_reference.count`."""
    shape = 3 if errors else 2, *thresholds.shape  # loss, slope, error
    # One positive after another is added: of many to a label, in single precision, the last would be rounded away.
    many = len(batch.ones) > MANY_POSITIVES * thresholds.shape[1]
    positives = (_exact_zeros if many else _zeros)(batch, *shape)
    # Positives first, while there is no gradient yet: what they need of memory does not come on top of it.
    ones = _add_positives(batch, thresholds, positive_cost, surrogate, sharpness, positives)
    log_loss = None if log_costs is None else _add_positive_log_loss(batch, log_costs.positive, ones)
    squares, gradient = _negatives(batch, score_mean)
    thresholds, cost = thresholds.to(squares), negative_cost.to(squares)
    sharpness = None if sharpness is None else sharpness.to(squares)
    middle = thresholds.mean(0)
    blocks = _blocks(batch)
    negatives = squares.new_empty(len({rows.start for rows, _ in blocks}), *shape)
    for number, ((rows, labels), room) in enumerate(_places(batch, blocks, len(thresholds), CURVES[surrogate].rooms)):
        piece = Piece(gradient[rows, labels], _weights(batch, rows, labels)[0], *room)
        sharp = None if sharpness is None else sharpness[labels]
        sums = negatives[number % len(negatives), :, :, labels]
        beside = None
        if log_costs is not None and log_costs.negative is not None and log_loss is not None:
            beside = log_loss_of_piece(piece, log_costs.negative[labels], log_loss[labels])
        _count_negatives(piece, thresholds[:, labels], middle[labels], cost[:, labels], surrogate, sharp, sums)
        if beside is not None:
            piece.entries.add_(beside)
    gradient.view(-1).scatter_(0, batch.ones, ones)
    positives = positives.to(gradient)
    total = negatives.sum(0) if len(negatives) > 1 else negatives[0]
    total[1].neg_()  # slopes in the margin, which falls as the score rises
    found = zip(positives, total, strict=True)
    not_counted = [] if errors else 2 * [squares.new_zeros(()).expand_as(thresholds)]
    return PassCounts(Sums(*(sums for pair in found for sums in pair), *not_counted), squares, gradient, log_loss)


def _negative_weight(batch: Listed) -> Tensor:
    """`[L]`, the weights of the negatives themselves: what the positives leave of the whole would be rounding where
    negatives weigh next to nothing."""
    labels, bands = batch.scores.shape[1], _bands(batch)
    total = _exact_zeros(batch, labels)
    # The positives are listed row after row: those of a band follow one another.
    band = batch.ones.div(bands[0].stop * labels, rounding_mode="floor")
    positives = batch.ones.split(band.bincount(minlength=len(bands)).tolist())
    for some, ones in zip(bands, positives, strict=True):
        weights, _ = _weights(batch, some, slice(None))
        assert weights is not None
        negatives = weights.expand(-1, labels).clone(memory_format=torch.contiguous_format)
        negatives.view(-1).index_fill_(0, ones - some.start * labels, 0.0)
        total += negatives.sum(0, dtype=total.dtype)
    return total


def _negatives(batch: Listed, mean: Tensor) -> tuple[Tensor, Tensor]:
    """`[L]`, weighted squares of all scores' distances from the mean, and `[B, L]`, the scores of the negatives, ABSENT
    where there is none."""
    squares, negatives = _zeros(batch, len(mean)), _zeros(batch, 0).new_empty(batch.scores.shape)
    bands = _bands(batch)
    room = negatives.new_empty(bands[0].stop, len(mean))
    for rows in bands:
        weights, absent = _weights(batch, rows, slice(None))
        values = negatives[rows].copy_(batch.scores[rows])
        distance = torch.sub(values, mean.to(values), out=room[: len(values)])
        if absent is not None:
            distance.masked_fill_(absent, 0.0)
            values.masked_fill_(absent, ABSENT)
        squares += weighted(distance.mul_(distance), weights).sum(0)
    negatives.view(-1).index_fill_(0, batch.ones, ABSENT)
    return squares, negatives


def _add_positives(
    batch: Listed, thresholds: Tensor, cost: Tensor, surrogate: Surrogate, sharpness: Tensor | None, sums: Tensor
) -> Tensor:
    """Add loss, slope and, where the sums have room for them, errors of the positives to the sums, `[2 or 3, K, L]`;
    gives their gradient, `[P]`."""
    at_once = max(1, POSITIVE_PIECES * _size(batch) // len(thresholds))
    parts = zip(batch.ones.split(at_once), batch.columns.split(at_once), strict=True)
    some = (batch._replace(ones=ones, columns=columns) for ones, columns in parts)
    return torch.cat([_add_some_positives(one, thresholds, cost, surrogate, sharpness, sums) for one in some])


def _add_some_positives(
    batch: Listed, thresholds: Tensor, cost: Tensor, surrogate: Surrogate, sharpness: Tensor | None, sums: Tensor
) -> Tensor:
    kind = _kind(batch)

    def of_ones(tensor: Tensor) -> Tensor:
        return tensor.index_select(-1, batch.columns).to(kind)

    margin = of_ones(thresholds)  # [K, P]
    torch.sub(_at(batch.scores, batch.ones), margin, out=margin)
    weights = None if batch.weights is None else _at(batch.weights.expand_as(batch.scores), batch.ones)

    def add(total: Tensor, terms: Tensor) -> Tensor:
        total.index_add_(1, batch.columns, weighted(terms, weights).to(total.dtype))
        return terms

    for errors in sums[2:]:
        add(errors, torch.lt(margin, 0.0, out=torch.empty_like(margin)))  # into floats, as everywhere
    sharp = None if sharpness is None else of_ones(sharpness)
    margin = margin if sharp is None else margin.mul_(sharp)
    add(sums[0], surrogate.loss(margin))
    slope = surrogate.slope(margin)
    slope = add(sums[1], slope if sharp is None else slope.mul_(sharp))
    return slope.mul_(of_ones(cost)).sum(0)


def _add_positive_log_loss(batch: Listed, cost: Tensor, gradient: Tensor) -> Tensor:
    """Add the gradient of the positives' log-loss to theirs, `[P]`; gives the cost of each label, `[L]`."""
    total = _exact_zeros(batch, len(cost))
    at_once = POSITIVE_PIECES * _size(batch)
    parts = (some.split(at_once) for some in (batch.ones, batch.columns, gradient))
    for ones, columns, own in zip(*parts, strict=True):
        scores, costs = _at(batch.scores, ones).to(gradient), cost.to(gradient).index_select(0, columns)
        if batch.weights is not None:
            costs.mul_(_at(batch.weights.expand_as(batch.scores), ones))
        total.index_add_(0, columns, F.softplus(-scores).mul_(costs).to(total.dtype))
        own.addcmul_(torch.sigmoid(-scores), costs, value=-1.0)
    return total.to(gradient)


def _count_negatives(
    piece: Piece,
    thresholds: Tensor,
    middle: Tensor,
    cost: Tensor,
    surrogate: Surrogate,
    sharpness: Tensor | None,
    sums: Tensor,
) -> None:
    """Write loss, slope and, where the sums have room for them, errors of the negatives of a piece to the sums, `[2 or
    3, K, labels]`, and their gradient over their scores."""
    for errors in sums[2:]:
        for some, total in zip(piece.steps(thresholds), piece.sums(errors), strict=True):
            torch.sum(weighted(torch.ge(piece.entries, some, out=piece.room[0]), piece.weights), -2, out=total)
    # Scores and thresholds from the middle of the thresholds: what is found as a difference keeps its digits there.
    thresholds = thresholds - middle
    torch.sub(piece.entries, middle, out=piece.scores)
    if sharpness is not None:
        thresholds.mul_(sharpness)
        piece.scores.mul_(sharpness)
    curve = CURVES[surrogate](piece, thresholds)
    units = [unit for unit in (curve.unit, sharpness) if unit is not None]
    for unit in units:
        cost = cost * unit
    losses, slopes, *_ = sums
    gradient = piece.entries
    parts = piece.sums(losses), piece.sums(slopes), piece.steps(cost)
    for step, (loss_sum, slope_sum, some_cost) in enumerate(zip(*parts, strict=True)):
        slope = weighted(curve.slope(step), piece.weights)
        torch.sum(slope, -2, out=slope_sum)
        if slope.ndim == 3:
            torch.sum(slope * some_cost, 0, out=gradient)
        elif step == 0:
            torch.mul(slope, some_cost, out=gradient)
        else:
            gradient.addcmul_(slope, some_cost)
        torch.sum(curve.loss(), -2, out=loss_sum)
    curve.finish_(losses, slopes)
    for unit in units:
        slopes.mul_(unit)


def _places(
    batch: Listed, blocks: list[Block], anchors: int, rooms: int
) -> Iterator[tuple[Block, tuple[Tensor, Tensor]]]:
    """Where the pieces of a batch are, with memory for the scores of each and for so many tensors more, for one anchor
    or, where they fit into a piece, for all. It is the same memory for every piece."""
    shapes = [tuple(part.stop - part.start for part in block) for block in blocks]
    size = math.prod(shapes[0])  # no piece is larger than the first
    together = anchors if anchors * size <= _size(batch) else 1
    memory = batch.scores.new_empty(1 + rooms * together, size, dtype=_kind(batch))
    views = {shape: memory[:, : math.prod(shape)].view(-1, *shape) for shape in dict.fromkeys(shapes)}
    places = {
        shape: (view[0], view[1:] if together == 1 else view[1:].unflatten(0, (rooms, together)))
        for shape, view in views.items()
    }
    return ((block, places[shape]) for block, shape in zip(blocks, shapes, strict=True))


def _blocks(batch: Listed) -> list[Block]:
    """Rows and labels of the pieces of a batch: all rows of some labels first, where they fit; else those of the same
    labels follow one another."""
    rows, labels = batch.scores.shape
    size = _size(batch)
    # An odd number of cache lines: were rows whole pages apart, their columns would push each other out of the cache.
    width = min(labels, max(NARROWEST, size // rows) // 32 * 32 - 16)
    height = min(rows, max(1, size // width))
    return [
        (slice(row, min(rows, row + height)), slice(label, min(labels, label + width)))
        for label in range(0, labels, width)
        for row in range(0, rows, height)
    ]


def _bands(batch: Listed) -> list[slice]:
    """Rows of the pieces of a batch that have all labels; none has more than the first."""
    rows, labels = batch.scores.shape
    height = max(1, _size(batch) // labels)
    return [slice(first, min(rows, first + height)) for first in range(0, rows, height)]


def _size(batch: Listed) -> int:
    """How many entries a piece may have."""
    return CPU_PIECE if batch.scores.device.type == "cpu" else OTHER_PIECE


def _weights(batch: Listed, rows: slice, labels: slice) -> tuple[Tensor | None, Tensor | None]:
    """Weights of some entries, None for 1, and where they are absent, None for nowhere."""
    weights, mask = (
        None if part is None else part[rows, labels if part.shape[1] > 1 else slice(None)]
        for part in (batch.weights, batch.mask)
    )
    if weights is None:
        return None, None if mask is None else ~mask
    weights = (weights if mask is None else torch.where(mask, weights, 0.0)).to(_kind(batch))
    return weights, weights == 0


def _at(values: Tensor, at: Tensor) -> Tensor:
    """What stands at these positions, counted row by row."""
    return values.view(-1).index_select(0, at) if values.is_contiguous() else torch.take(values, at)


def _not_zero(labels: Tensor) -> Tensor:
    """Where, read row by row, what is not 0 stands."""
    if labels.device.type == "cpu" and labels.dtype != torch.bfloat16:
        # numpy finds the few ones several times as fast as torch does.
        return torch.from_numpy(np.flatnonzero(labels.resolve_neg().numpy() != 0))
    return labels.flatten().nonzero().squeeze(1)


def _kind(batch: Listed) -> torch.dtype:
    return torch.promote_types(batch.scores.dtype, torch.float32)


def _exact_zeros(batch: Listed, *shape: int) -> Tensor:
    device = batch.scores.device
    exact = torch.float32 if device.type in WITHOUT_DOUBLE else torch.float64
    return torch.zeros(*shape, dtype=exact, device=device)


def _zeros(batch: Listed, *shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=_kind(batch), device=batch.scores.device)
