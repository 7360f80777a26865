"""The promise over time: whether an operating point still keeps its word on the rows that come."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from aimfor._base import checks, schema
from aimfor._base.arrays import Array, Values
from aimfor.aims import PointAim, rate_of, show_target
from aimfor.aims import aim as read_aim
from aimfor.operating_points._evidence import POWERS, SHIFTS, Evidence, failure_factors, rank_factors
from aimfor.operating_points._record import OperatingPoint

BINS = 20
FORMAT = "aimfor watch"
# Which rows of a confusion each count is made of.
MEMBERS = {"tp": {"tp"}, "fp": {"fp"}, "positives": {"tp", "fn"}, "negatives": {"fp", "tn"}}


class WatchStatus(NamedTuple):
    """What a watch has found so far.

    Attributes:
        alarm: whether a promise no longer holds, or the rows no longer resemble those that chose the threshold.
        reasons: one sentence for each alarm.
        evidence: for each question how many times as likely an alarm has become; it raises one at its limit.
        limits: for each question where that limit is.
        rows, labels: how many rows and labels were counted.

    Example:
        >>> print(WatchStatus(alarm=False, reasons=(), evidence={}, limits={}, rows=1200, labels=300))
        No alarm after 1,200 rows and 300 labels.
    """

    alarm: bool
    reasons: tuple[str, ...]
    evidence: dict[str, float]
    limits: dict[str, float]
    rows: int
    labels: int

    def __str__(self) -> str:
        counted = f"{self.rows:,} rows and {self.labels:,} labels"
        return " ".join(self.reasons) if self.alarm else f"No alarm after {counted}."


class Watch:
    """Watch whether an operating point keeps its promise on the rows that come.

    The test may be read after every batch, for ever: at most `level` of all streams on which the promise holds raise a
    false alarm, whatever their length. Half of the level is for promises, half for what needs no labels: the share of
    alerts and, with `reference_scores`, the distribution of the scores.

    Args:
        point: an operating point with a threshold.
        promises: targets by rate, such as {"precision": 0.9}; by default the constraint of the aim.
        reference_scores: scores of rows that resemble those to come, such as those that chose the threshold.
        level: the most that false alarms may amount to, in (0, 1).
        random_state: seed of the draws that break ties between ranks.

    Example:
        >>> from aimfor import operating_point
        >>> point = operating_point([0] * 50 + [1] * 50, range(100), "precision@recall>=0.9", confidence=0.9)
        >>> watch = Watch(point)
        >>> watch.update([70.0, 20.0, 90.0], [1, 0, 1]).alarm
        False
    """

    def __init__(
        self,
        point: OperatingPoint,
        *,
        promises: Mapping[str, float] | None = None,
        reference_scores: Values | None = None,
        level: float = 0.05,
        random_state: int = 0,
    ):
        if not isinstance(point, OperatingPoint):
            raise TypeError(f"point must be an OperatingPoint, got {type(point).__name__}")
        if point.threshold is None:
            raise ValueError(f"a watch needs a threshold, got none for {point.aim!r}: {point.reason}")
        self.point, self.random_state = point, checks.whole_number("random_state", random_state, at_least=0)
        self.level = checks.in_range("level", level, 0, 1, open_low=True, open_high=True)
        self.promises = _promised(point) if promises is None else _checked(promises)
        self.rows = self.labels = 0
        flagged = point.counts.tp + point.counts.fp
        # Not flagged, flagged; unknown where rows had weights or came in groups.
        counts = (point.num_rows - flagged, flagged) if point.intervals is not None else (0.0, 0.0)
        self._alerts = np.array(counts, dtype=np.float64)
        self._edges, self._scores = _reference(reference_scores)
        self._evidence = {rate: Evidence.of_bets(len(SHIFTS)) for rate in self.promises}
        self._evidence["share of alerts"] = Evidence.of_bets(2 * len(POWERS))
        if self._edges is not None:
            self._evidence["scores"] = Evidence.of_bets(2 * len(POWERS))

    def update(
        self,
        y_score: Values | None = None,
        y_true: Values | None = None,
        *,
        decisions: Values | None = None,
        seen_before: bool = False,
    ) -> WatchStatus:
        """Count a batch of rows, in their order.

        Labels may be late and partial: call with scores alone, and again with `seen_before=True` when labels arrive.
        Which labels arrive must not depend on the labels themselves.

        Args:
            y_score: finite scores of the rows, shape [n].
            y_true: 0 or 1, nan where a label is not known yet; None for no labels.
            decisions: 0 or 1 in place of scores; scores are then not watched.
            seen_before: whether the rows were counted already, so that only their labels are new.
        """
        flagged, scores = self._decided(y_score, decisions)
        labels = _labels(y_true, flagged.size)
        known = ~np.isnan(labels)
        if not seen_before:
            rng = np.random.default_rng([self.random_state, self.rows])
            self._watch_alerts(flagged, rng)
            if scores is not None and self._edges is not None:
                cells = np.searchsorted(self._edges, scores, side="right")
                self._evidence["scores"].add(rank_factors(_ranks(self._scores, cells, rng)))
            self.rows += flagged.size
        for rate in self.promises:
            self._watch_promise(rate, flagged, labels, known, seen_before)
        self.labels += int(known.sum())
        return self.status()

    def status(self) -> WatchStatus:
        """What was found so far."""
        limits = self._limits()
        evidence = {name: math.exp(min(self._evidence[name].highest, 700.0)) for name in limits}
        broken = [name for name in limits if self._evidence[name].highest >= math.log(limits[name])]
        reasons = tuple(self._sentence(name) for name in broken)
        return WatchStatus(bool(broken), reasons, evidence, limits, self.rows, self.labels)

    def to_json(self) -> str:
        """The watch as JSON text, to go on with later."""
        evidence = {
            name: {
                "stakes": [None if math.isinf(stake) else stake for stake in one.stakes.tolist()],
                "rows": one.rows,
                "highest": one.highest,
            }
            for name, one in self._evidence.items()
        }
        facts = {
            "format": FORMAT,
            "point": json.loads(self.point.to_json()),
            "promises": {rate: [sense, target] for rate, (sense, target) in self.promises.items()},
            "level": self.level,
            "random_state": self.random_state,
            "rows": self.rows,
            "labels": self.labels,
            "alerts": self._alerts.tolist(),
            "edges": None if self._edges is None else self._edges.tolist(),
            "scores": self._scores.tolist(),
            "evidence": evidence,
        }
        return json.dumps(facts, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Watch:
        """Read what `to_json` wrote.

        Raises:
            ValueError: for anything else, in one sentence.
        """
        try:
            facts = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise ValueError("a watch must be JSON text, got something else") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise ValueError(f"a watch must be a JSON object with the format {FORMAT!r}, got another")
        try:
            return cls._restored(facts)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a watch must have all of its entries, got a fault: {error!r}") from None

    @classmethod
    def _restored(cls, facts: dict[str, Any]) -> Watch:
        promises = {rate: schema.number(rate, target) for rate, (_, target) in facts["promises"].items()}
        point = OperatingPoint.from_json(facts["point"])
        watch = cls(point, promises=promises or None, level=facts["level"], random_state=facts["random_state"])
        watch.promises = {rate: (_sense(rate, sense), promises[rate]) for rate, (sense, _) in facts["promises"].items()}
        watch.rows, watch.labels = schema.whole("rows", facts["rows"]), schema.whole("labels", facts["labels"])
        watch._alerts = _numbers("alerts", facts["alerts"], 2)
        if facts["edges"] is not None:
            watch._edges = _numbers("edges", facts["edges"], len(facts["edges"]))
            watch._scores = _numbers("scores", facts["scores"], len(watch._edges) + 1)
            watch._evidence["scores"] = Evidence.of_bets(2 * len(POWERS))
        for name, one in watch._evidence.items():
            entry = facts["evidence"][name]
            stakes = [-math.inf if stake is None else schema.number("stakes", stake) for stake in entry["stakes"]]
            checks.rule(len(stakes) == len(one.stakes), "stakes", f"must be {len(one.stakes)} numbers", len(stakes))
            one.stakes, one.rows = np.array(stakes), schema.whole("rows", entry["rows"])
            one.highest = schema.number("highest", entry["highest"])
        return watch

    def _decided(self, y_score: Values | None, decisions: Values | None) -> tuple[np.ndarray, Array | None]:
        if (y_score is None) == (decisions is None):
            raise ValueError("update needs either y_score or decisions, got both or neither")
        name, values = ("y_score", y_score) if decisions is None else ("decisions", decisions)
        numbers = checks.to_numpy(name, values)  # pyright: ignore[reportArgumentType]
        if numbers.ndim != 1:
            raise ValueError(f"{name} must have shape [n], got {numbers.shape}")
        if decisions is not None:
            checks.all_entries(name, numbers, (numbers == 0) | (numbers == 1), "0 or 1")
            return numbers == 1, None
        checks.all_entries(name, numbers, np.isfinite(numbers), "finite")
        assert self.point.threshold is not None
        return numbers >= self.point.threshold, numbers

    def _watch_alerts(self, flagged: np.ndarray, rng: np.random.Generator) -> None:
        if self._alerts.sum() > 0:
            ranks = _ranks(self._alerts, flagged.astype(np.int64), rng)
            self._evidence["share of alerts"].add(rank_factors(ranks))

    def _watch_promise(
        self, rate: str, flagged: np.ndarray, labels: Array, known: np.ndarray, seen_before: bool
    ) -> None:
        share, (sense, target) = rate_of(rate).share, self.promises[rate]
        whole, part = (set().union(*(MEMBERS[name] for name in names)) for names in (share.whole, share.part))
        if whole == {"tp", "fp", "fn", "tn"} and part == {"tp", "fp"}:  # a share of all rows needs no labels
            if seen_before:
                return
            counts, hits = np.ones(flagged.size, dtype=bool), flagged
        else:
            kinds = np.where(flagged, np.where(labels == 1, "tp", "fp"), np.where(labels == 1, "fn", "tn"))
            counts, hits = known & np.isin(kinds, [*whole]), np.isin(kinds, [*part])
        failed = ~hits[counts] if sense == ">=" else hits[counts]
        self._evidence[rate].add(failure_factors(failed, 1 - target if sense == ">=" else target))

    def _limits(self) -> dict[str, float]:
        """The evidence at which each question raises an alarm."""
        free = [name for name in self._evidence if name not in self.promises]
        for_promises = self.level / 2 if self.promises else 0.0
        return {
            **{rate: len(self.promises) / for_promises for rate in self.promises},
            **{name: len(free) / (self.level - for_promises) for name in free},
        }

    def _sentence(self, name: str) -> str:
        if name in self.promises:
            sense, target = self.promises[name]
            return f"The promise {name} {sense} {show_target(target)} no longer holds."
        if name == "scores":
            return "The scores are no longer distributed as the reference scores are."
        return "The share of alerts is no longer that of the rows that chose the threshold."


def _promised(point: OperatingPoint) -> dict[str, tuple[str, float]]:
    aim = read_aim(point.aim)
    if not isinstance(aim, PointAim):
        return {}
    assert not isinstance(aim.target, tuple)
    return {rate_of(aim.constrained).name: (aim.sense, float(aim.target))}


def _checked(promises: Mapping[str, float]) -> dict[str, tuple[str, float]]:
    checked = {}
    for name, target in promises.items():
        rate = rate_of(name)
        number = checks.in_range(f"the promised {name}", target, 0, 1, open_low=True, open_high=True)
        checked[rate.name] = (">=" if rate.greater_is_better else "<=", number)
    checks.rule(len(checked) > 0, "promises", "must name a rate, or be None", dict(promises))
    return checked


def _sense(rate: str, sense: Any) -> str:
    checks.choice(f"the sense of {rate}", sense, (">=", "<="))
    return sense


def _reference(scores: Values | None) -> tuple[Array | None, Array]:
    """Edges from every second reference score, and how many of the others lie between them.

    Scores that make edges may not be counted too: then the others and the rows to come are alike, if nothing changes.
    """
    if scores is None:
        return None, np.zeros(0)
    values = checks.to_numpy("reference_scores", scores)
    checks.rule(values.ndim == 1, "reference_scores", "must have shape [n]", values.shape)
    checks.rule(values.size >= 2 * BINS, "reference_scores", f"must be at least {2 * BINS} numbers", values.size)
    checks.all_entries("reference_scores", values, np.isfinite(values), "finite")
    edges = np.unique(np.quantile(values[::2], np.arange(1, BINS) / BINS))
    cells = np.searchsorted(edges, values[1::2], side="right")
    return edges, np.bincount(cells, minlength=edges.size + 1).astype(np.float64)


def _ranks(counts: Array, cells: np.ndarray, rng: np.random.Generator) -> Array:
    """The rank of each row from above among all rows before it and itself, ties broken by chance; counts it then.

    Args:
        counts: how many rows lie in each cell so far, from low to high.
        cells: those of the new rows.
        rng: breaks the ties.
    """
    # One column per cell: how many rows lie there after each new row.
    after = counts + np.cumsum(cells[:, None] == np.arange(counts.size), axis=0)
    above = after[:, ::-1].cumsum(1)[:, ::-1]
    rows = np.arange(cells.size)
    ranks = (above[rows, cells] - after[rows, cells] * (1 - rng.random(cells.size))) / above[:, 0]
    if cells.size:
        counts[:] = after[-1]
    return ranks


def _labels(y_true: Values | None, rows: int) -> Array:
    if y_true is None:
        return np.full(rows, np.nan)
    labels = checks.to_numpy("y_true", y_true)
    if labels.shape != (rows,):
        raise ValueError(f"y_true must have one entry for each of the {rows} rows, got shape {labels.shape}")
    checks.all_entries("y_true", labels, (labels == 0) | (labels == 1) | np.isnan(labels), "0, 1 or nan")
    return labels


def _numbers(name: str, values: Any, count: int) -> Array:
    numbers = np.array([schema.number(name, value) for value in values])
    checks.rule(numbers.size == count, name, f"must be {count} numbers", numbers.size)
    return numbers
