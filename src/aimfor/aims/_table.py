"""The table of an aim: coefficients of the two error rates u and v per anchor and label."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from aimfor.aims._format import Target


class Rates(NamedTuple):
    """Error rates, or bounds on them, per anchor and label, `[K, L]`.

    Attributes:
        u: weight of missed positives (or their loss), over the expected weight of positives; 1 - recall.
        v: weight of false positives (or their loss), over the expected weight of negatives; false-positive rate.
        p: `[L]`, weight of positives in the batch over the expected weight; 1 on average, not in every batch.
    """

    u: Tensor
    v: Tensor
    p: Tensor

    @property
    def recall(self) -> Tensor:
        """Weight of found positives over the expected weight.

        It is not 1 - u, which in a batch with few positives would count positives that are not there.
        """
        return self.p - self.u


class Anchors(NamedTuple):
    """The table of an aim: minimise the objective while load <= room.

    Each entry is `[K, L]`. It has length 1 along an axis on which it does not change.

    Attributes:
        slack: 1 - precision, 1 - recall or the rate asked for at the anchor (nan where there is none).
        width: share of the anchor in the aim.
        objective_u, objective_v: objective = objective_u u + objective_v v.
        load_u, load_v: load = load_u u + load_v v.
        room, room_recall: room = room + room_recall recall.
        multiplier: the multiplier where the aim has a rule for it; None where it is learned by ascent.
        strict_at_one: whether the target is 1 - slack.
    """

    slack: Tensor
    width: Tensor
    objective_u: Tensor
    objective_v: Tensor
    load_u: Tensor
    load_v: Tensor
    room: Tensor
    room_recall: Tensor
    multiplier: Tensor | None = None
    strict_at_one: bool = True

    @property
    def target(self) -> Tensor:
        """The precision, recall or rate asked for at the anchor."""
        return 1 - self.slack if self.strict_at_one else self.slack

    def objective(self, rates: Rates) -> Tensor:
        """The objective at these rates."""
        return torch.addcmul(self.objective_u * rates.u, self.objective_v, rates.v)

    def violation(self, rates: Rates) -> Tensor:
        """By how much the constraint is broken at these rates; negative if there is room."""
        load = torch.addcmul((self.load_u + self.room_recall) * rates.u, self.load_v, rates.v)
        return load.sub_(self.largest_room(rates.p))

    def size(self, rates: Rates) -> Tensor:
        """The larger of load and room at these rates, which a violation is compared with."""
        room = torch.addcmul(self.largest_room(rates.p), self.room_recall, rates.u, value=-1)
        load = torch.addcmul(self.load_u * rates.u, self.load_v, rates.v)
        return torch.maximum(load, room.abs_(), out=load)

    def costs(self, multipliers: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients of u and v in the Lagrangian."""
        u_cost = torch.addcmul(self.objective_u, multipliers, self.load_u + self.room_recall)
        return u_cost.mul_(self.width), torch.addcmul(self.objective_v, multipliers, self.load_v).mul_(self.width)

    def largest_room(self, p: Tensor) -> Tensor:
        """The room if no positive is missed. Each unit of u uses up room_recall of it."""
        return self.room + self.room_recall * p


# For the tables of aims that do not depend on rates.
NO_RATES = Rates(*(torch.zeros(()) for _ in Rates._fields))


@lru_cache(maxsize=64)
def constant(value: Target, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number, or one per label, as a row that broadcasts against `[K, L]`."""
    return torch.tensor(value, dtype=dtype, device=device).view(1, -1)


def as_row(value: Target, like: Tensor) -> Tensor:
    """A target as `[1, 1]` or `[1, L]`."""
    return constant(value, like.dtype, like.device)


@lru_cache(maxsize=64)
def _one_and_zero(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    return constant(1.0, dtype, device), constant(0.0, dtype, device)


def one_and_zero(like: Tensor) -> tuple[Tensor, Tensor]:
    """1 and 0 as rows; asked for at every batch, where each call takes a noticeable part of a small one."""
    return _one_and_zero(like.dtype, like.device)


@lru_cache(maxsize=64)
def equal_cells(count: int, downwards: bool, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The middles of equal cells of [0, 1], `[K, 1]`, and their width, `[1, 1]`."""
    upwards = (torch.arange(count, dtype=dtype, device=device).unsqueeze(1) + 0.5) / count
    return upwards.flip(0) if downwards else upwards, constant(1 / count, dtype, device)


def cells(
    low: Tensor | None, high: Tensor, count: int, spacing: str, *, downwards: bool = False
) -> tuple[Tensor, Tensor]:
    """Cut ranges into cells. Return their middles and widths, `[K, L]`; the widths of a range add up to 1.

    The range is that of the slack (1 - precision, 1 - recall, or the false-positive rate), so small means strict.
    Geometric cells shrink towards the strict end by equal factors. If the range reaches down to 0, they shrink by
    halves, or by less if many halves would end below a ten-thousandth of it.
    An empty range (low >= high) has width 0. `low` may be None for 0. With `downwards` the lax end comes first.
    """
    if spacing == "uniform":
        parts, width = equal_cells(count, downwards, high.dtype, high.device)
        if low is None:
            return high * parts, width
        length = (high - low).clamp(min=0)
        return low + length * parts, (length > 0).to(low.dtype) / count
    if downwards:
        middle, width = cells(low, high, count, spacing)
        return middle.flip(0), width.flip(0)
    low = torch.zeros_like(high) if low is None else low
    high = torch.maximum(low, high)
    steps = torch.arange(count + 1, dtype=low.dtype, device=low.device).unsqueeze(1)
    tiny = torch.finfo(low.dtype).tiny
    by_factor = low * (high.clamp(min=tiny) / low.clamp(min=tiny)) ** (steps / count)
    shrink = max(0.5, 1e-4 ** (1 / max(1, count - 1)))
    by_halves = high * shrink ** (count - steps) * (steps > 0)
    edges = torch.where(low > 0, by_factor, by_halves)
    widths = edges.diff(dim=0)
    total = widths.sum(0)
    return (edges[1:] + edges[:-1]) / 2, torch.where(total > 0, widths / total.clamp(min=1e-30), 0.0)


def ends(low: Target | None, high: Target | None, like: Tensor) -> tuple[Tensor, Tensor]:
    """The range as two rows. A missing end is the end of [0, 1]."""
    low, high = plain_ends(low, high)
    return as_row(low, like), as_row(high, like)


def plain_ends(low: Target | None, high: Target | None) -> tuple[Target, Target]:
    """The range with its missing ends filled in."""
    return 0.0 if low is None else low, 1.0 if high is None else high
