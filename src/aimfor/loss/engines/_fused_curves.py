"""The surrogates of the fused engine: each on the negatives of a piece of a batch, for all thresholds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from aimfor.loss._surrogates import HINGE, LEAK, LOG, RAMP, SIGMOID, SMOOTH_HINGE, Surrogate

# As far as this e^(f - b) is e^(f - middle) e^(middle - b), all of them within float32: scores above the lowest
# threshold, thresholds from their middle.
FARTHEST = 60.0
WIDEST = 25.0
# At most so many factors 1 + e^z whose product is taken before its log, as long as that stays finite.
FACTORS = 32, 8, 2, 1
BITS = 1 / math.log(2)  # of a natural logarithm


class Piece(NamedTuple):
    """Some rows and labels of the negatives of a batch.

    Attributes:
        entries: `[rows, labels]`, the scores as they came, far below where there is no negative; then their gradient.
        weights: of the same shape or `[rows, 1]`; None for 1.
        scores: room for the scores as the curve takes them.
        room: what else the pass works in, `[.., rows, labels]` for one anchor after the other, `[.., K, rows, labels]`
            for all together.
    """

    entries: Tensor
    weights: Tensor | None
    scores: Tensor
    room: Tensor

    def steps(self, parts: Tensor) -> Sequence[Tensor]:
        """What is `[K, labels]` for the anchor of each step, or for all together, to be seen beside the room."""
        return parts.unbind() if self.room.ndim == 3 else (parts.unsqueeze(1),)

    def sums(self, sums: Tensor) -> Sequence[Tensor]:
        """Where the sums over rows of each step go in `[K, labels]`."""
        return sums.unbind() if self.room.ndim == 3 else (sums,)


class SurrogateCurve:
    """A surrogate as a function of z = score - threshold on the negatives of one piece.

    A step is one anchor, or all of them together. Call order per step: 1. `slope(step)` returns the slope in units of
    `unit`; the caller may weight it in place. 2. `loss()` returns terms to be summed over rows, and may overwrite what
    `slope` returned. After the last step: 3. `finish_` turns the sums of these terms into losses.
    """

    rooms: int = 1  # how many tensors it works in beside the scores
    unit: float | Tensor | None = None  # None for 1

    def __init__(self, piece: Piece, thresholds: Tensor):
        _, self.weights, self.scores, self.room = piece
        self.terms, self.thresholds = self.room[0], thresholds

    def slope(self, step: int) -> Tensor:
        raise NotImplementedError

    def loss(self) -> Tensor:
        raise NotImplementedError

    def finish_(self, losses: Tensor, slopes: Tensor) -> None:
        """Make the loss, `[K, labels]`, of what was summed over rows."""

    def exponentials(self, out: Tensor) -> Tensor | None:
        """While nothing is far apart one exponential of a score serves all thresholds: writes it, and gives those of
        the thresholds turned round; else None."""
        farthest = torch.stack([self.scores.amax() - self.thresholds.amin(), self.thresholds.abs().amax()])
        highest, widest = farthest.tolist()
        if highest > FARTHEST or widest > WIDEST:
            return None
        torch.mul(self.scores, BITS, out=out).exp2_()  # several times as fast as exp
        return (-self.thresholds).exp_()


class Hinge(SurrogateCurve):
    """max(0, 1 + z): of the scores above threshold - 1, their sum and that of their thresholds."""

    def __init__(self, piece: Piece, thresholds: Tensor):
        super().__init__(piece, thresholds - 1)
        self.starts = piece.steps(self.thresholds)

    def slope(self, step: int) -> Tensor:
        return torch.gt(self.scores, self.starts[step], out=self.terms)

    def loss(self) -> Tensor:
        return self.terms.mul_(self.scores)

    def finish_(self, losses: Tensor, slopes: Tensor) -> None:
        losses.addcmul_(slopes, self.thresholds, value=-1.0)


class SmoothHinge(SurrogateCurve):
    """(1 + z)^2 between -1 and 0, then 1 + 2 z: with i = 1 + z cut to [0, 1] it is 2 (1 + z - i / 2) i."""

    rooms, unit = 2, 2.0

    def __init__(self, piece: Piece, thresholds: Tensor):
        super().__init__(piece, thresholds)
        self.starts = piece.steps(thresholds - 1)

    def slope(self, step: int) -> Tensor:
        above = torch.sub(self.scores, self.starts[step], out=self.room[1])
        inside = torch.clamp(above, 0.0, 1.0, out=self.terms)
        above.sub_(inside, alpha=0.5)
        return inside

    def loss(self) -> Tensor:
        return self.terms.mul_(self.room[1])

    def finish_(self, losses: Tensor, slopes: Tensor) -> None:
        losses.mul_(2.0)


class Ramp(SurrogateCurve):
    """1 + z between -1 and 0, then 1, and the leak: a hinge, less nearly as much of another from 0 on. At 0 its slope
    is that of the leak."""

    rooms = 2

    def __init__(self, piece: Piece, thresholds: Tensor):
        super().__init__(piece, thresholds - 1)
        self.beyond = torch.empty_like(thresholds)
        self.starts, self.ends = map(piece.steps, (self.thresholds, thresholds))
        self.totals = piece.sums(self.beyond)

    def slope(self, step: int) -> Tensor:
        slope = torch.gt(self.scores, self.starts[step], out=self.terms)
        beyond = torch.ge(self.scores, self.ends[step], out=self.room[1])
        slope.sub_(beyond, alpha=1 - LEAK)
        torch.sum(weighted(beyond, self.weights), -2, out=self.totals[step])
        return slope

    def loss(self) -> Tensor:
        return self.terms.mul_(self.scores)

    def finish_(self, losses: Tensor, slopes: Tensor) -> None:
        losses.addcmul_(slopes, self.thresholds, value=-1.0).add_(self.beyond, alpha=1 - LEAK)


class Sigmoid(SurrogateCurve):
    """sigmoid(z) = x / (1 + x) with x = e^z, its slope x / (1 + x)^2, and the leak, a weak hinge from 0 on."""

    rooms = 3

    def __init__(self, piece: Piece, thresholds: Tensor):
        super().__init__(piece, thresholds)
        self.bounded, self.beyond = torch.empty_like(thresholds), torch.empty_like(thresholds)
        self.powers = self.room[2] if self.room.ndim == 3 else self.room[2, 0]
        factors = self.exponentials(self.powers)
        self.factors, self.one = None if factors is None else piece.steps(factors), thresholds.new_ones(())
        self.unit, self.scale = factors, torch.ones_like(thresholds) if factors is None else factors
        self.ends, self.leaks = piece.steps(thresholds), piece.steps(LEAK / self.scale)
        self.totals = piece.sums(self.bounded), piece.sums(self.beyond)

    def slope(self, step: int) -> Tensor:
        slope, values = self.terms, self.room[1]
        if self.factors is None:
            torch.sub(self.scores, self.ends[step], out=values).sigmoid_()
            torch.addcmul(values, values, values, value=-1.0, out=slope)
        else:
            torch.addcmul(self.one, self.powers, self.factors[step], out=slope)
            torch.div(self.powers, slope, out=values)
            torch.div(values, slope, out=slope)
        torch.sum(weighted(values, self.weights), -2, out=self.totals[0][step])
        beyond = torch.gt(self.scores, self.ends[step], out=values)
        slope.addcmul_(beyond, self.leaks[step])
        torch.sum(weighted(beyond, self.weights), -2, out=self.totals[1][step])
        return slope

    def loss(self) -> Tensor:
        return self.room[1].mul_(self.scores)

    def finish_(self, losses: Tensor, slopes: Tensor) -> None:
        losses.addcmul_(self.beyond, self.thresholds, value=-1.0).mul_(LEAK).addcmul_(self.bounded, self.scale)


class Log(SurrogateCurve):
    """log2(1 + e^z). While nothing is far apart the sum of logs over rows is the log of their product."""

    unit = BITS

    def __init__(self, piece: Piece, thresholds: Tensor):
        super().__init__(piece, thresholds)
        self.ends, self.factors, self.one = piece.steps(thresholds), None, thresholds.new_ones(())
        rows = whole = len(self.scores)
        factors = self.exponentials(self.scores)
        if factors is not None:
            self.factors, self.unit = piece.steps(factors), factors * BITS
            together = 1 if piece.weights is not None else self._together(factors)
            products, rest = divmod(rows, together)
            rows, whole = products + rest, products * together
            self.grouped = self.terms[..., :whole, :].unflatten(-2, (together, products))
        self.logs = thresholds.new_empty(*self.terms.shape[:-2], rows, thresholds.shape[1])
        # Parts of the factors and of their logs: products of some, and the rest one by one.
        self.rest = self.terms[..., whole:, :]
        self.products, self.rest_logs = self.logs.split([rows - self.rest.shape[-2], self.rest.shape[-2]], -2)

    def _together(self, factors: Tensor) -> int:
        """How many rows share a log: as many as leave the fewest logs and finite products at every threshold."""
        rows = len(self.scores)
        room = self.terms if self.terms.ndim == 2 else self.terms[0]
        largest = torch.addcmul(self.one, self.scores, factors.amax(0), out=room)
        for most in FACTORS:
            together = min(range(1, 1 + most), key=lambda some: sum(divmod(rows, some)))
            grouped = largest[: rows // together * together].unflatten(0, (together, -1))
            if bool(grouped.prod(0).amax() < torch.inf):
                break
        return together

    def slope(self, step: int) -> Tensor:
        if self.factors is None:
            z = torch.sub(self.scores, self.ends[step], out=self.terms)
            # log(1 + e^z) = max(0, z) + log(1 + e^-|z|), which does not overflow
            torch.abs(z, out=self.logs).neg_().exp_().log1p_().add_(z.clamp(min=0.0)).mul_(BITS)
            return z.sigmoid_()
        # What 1 + x loses of a small x is below the last digit of the loss of one example at its threshold.
        factors = torch.addcmul(self.one, self.scores, self.factors[step], out=self.terms)
        torch.prod(self.grouped, -3, out=self.products)
        if self.rest.shape[-2] > 0:
            self.rest_logs.copy_(self.rest)
        self.logs.log2_()
        return torch.div(self.scores, factors, out=factors)

    def loss(self) -> Tensor:
        return weighted(self.logs, self.weights)


# The surrogates that the fused pass counts.
CURVES: dict[Surrogate, type[SurrogateCurve]] = {
    HINGE: Hinge,
    LOG: Log,
    SMOOTH_HINGE: SmoothHinge,
    RAMP: Ramp,
    SIGMOID: Sigmoid,
}


def weighted(terms: Tensor, weights: Tensor | None) -> Tensor:
    """The terms times their weights; writes over them."""
    return terms if weights is None else terms.mul_(weights)


def log_loss_of_piece(piece: Piece, cost: Tensor, total: Tensor) -> Tensor:
    """Add the log-loss of the negatives of a piece, times its cost, to the total of their labels; gives its gradient.

    It is the log surrogate at threshold 0, times log 2, by which that is divided to be a bound. Writes over the room
    and the scores of the piece.
    """
    one_anchor = piece._replace(room=piece.room if piece.room.ndim == 3 else piece.room[:, 0])
    piece.scores.copy_(piece.entries)
    cost = cost.to(piece.scores)
    curve = Log(one_anchor, torch.zeros_like(cost).unsqueeze(0))
    gradient = weighted(curve.slope(0), piece.weights) * cost
    total.addcmul_(curve.loss().sum(-2), cost, value=math.log(2))
    return gradient
