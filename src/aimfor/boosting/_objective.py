"""The aim as an objective of boosting: gradient and hessian of every row, with a state that is solved in each round.

For each anchor of the aim one sort of the scores finds the threshold b at which the exact constraint is tight. Missed
positives and passed negatives are then weighed so that b is stationary, that is by the ratio

    r = (sum over positives of sigmoid(b - f)) / (sum over negatives of sigmoid(f - b)),

which is the multiplier of the saddle point in closed form. The weights w+ and w- add up to 2, so that r = 1 is plain
log-loss, and limits on leaves keep their meaning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from aimfor._base.checks import choice, in_range, rule, whole_number
from aimfor.aims import NO_RATES, Aim, Anchors, Cost, FBeta, PointAim
from aimfor.aims import aim as read_aim
from aimfor.metrics import Curve, at_constraint, cumulate, expected_cost, f_beta

# Of the gradient, added to the hessian: without it leaves far from their threshold take steps that are too long.
GRADIENT_SHARE = 0.05
# Share of the aim beside log-loss, by method.
SHARES = {"ratio": 0.5, "focus": 0.8}
ROUNDING = 1e-12


class Solved(NamedTuple):
    """Thresholds and weights of the anchors, `[K]` each.

    Attributes:
        thresholds: where the exact constraint is tight.
        widths: share of each anchor; they add up to 1.
        ratios: weight of passed negatives over that of missed positives.
    """

    thresholds: np.ndarray
    widths: np.ndarray
    ratios: np.ndarray


class Rows(NamedTuple):
    """Scores, labels (0 or 1) and weights of rows, each `[n]`, float64."""

    scores: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


class AimedObjective:
    """An objective for the training calls of LightGBM and XGBoost; made by `objective`.

    Attributes:
        solved: thresholds and weights of the last round; None before the first and in rounds of log-loss.
    """

    def __init__(self, aim: Aim, method: str, share: float, log_loss_rounds: int):
        self.aim, self.method, self.share, self.log_loss_rounds = aim, method, share, log_loss_rounds
        self.solved: Solved | None = None
        self._rounds = 0
        self._held_out: Rows | None = None

    def __call__(self, scores: np.ndarray, data: Any) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and hessian of each row, for `scores` of a LightGBM Dataset or an XGBoost DMatrix."""
        rows = rows_of(scores, data)
        self._rounds += 1
        if self._rounds <= self.log_loss_rounds:
            return log_loss_derivatives(rows)
        self.solved = solve(self.aim, rows if self._held_out is None else self._held_out, rows)
        if self.method == "focus":
            return focus_derivatives(rows, self.solved, self.share)
        return ratio_derivatives(rows, self.solved, self.share)

    def __deepcopy__(self, memo: dict) -> AimedObjective:
        # LightGBM copies its settings, and a copy would not see the rows that a metric feeds.
        return self

    def observe(self, scores: np.ndarray, data: Any) -> None:
        """Take the thresholds of the next round from these rows, which `metric(aim, feeds=...)` calls."""
        self._held_out = rows_of(scores, data)


def objective(
    aim: Aim | str, *, method: str = "ratio", share: float | None = None, log_loss_rounds: int = 0
) -> AimedObjective:
    """Boost for an aim: an objective for `lightgbm.train` and `xgboost.train`.

    It needs labels 0 and 1 and raw scores that start at `starting_score(labels)`. An objective counts its rounds, so
    each training needs one of its own.

    Args:
        aim: a record or its text, such as "tpr@fpr<=0.01"; with one target, as boosting has one label.
        method: "ratio" weighs missed positives against passed negatives. "focus" is log-loss with most weight near the
            aim's threshold, for small forests.
        share: of the aim beside log-loss, in (0, 1]; None means 0.5 for "ratio" and 0.8 for "focus".
        log_loss_rounds: rounds of plain log-loss before the aim counts; a quarter of all rounds suits "focus".

    Example:
        >>> aimed = objective("tpr@fpr<=0.01", method="focus", log_loss_rounds=10)
        >>> # lightgbm.train({"objective": aimed, ...}, data, 40)
    """
    record = _one_label(aim)
    choice("method", method, tuple(SHARES))
    share = SHARES[method] if share is None else in_range("share", share, 0, 1, open_low=True)
    return AimedObjective(record, method, share, whole_number("log_loss_rounds", log_loss_rounds, at_least=0))


class AimedMetric:
    """The exact metric of an aim, for the training calls of LightGBM and XGBoost; made by `metric`."""

    def __init__(self, aim: Aim, feeds: AimedObjective | None):
        self.aim, self.feeds = aim, feeds
        # XGBoost parts its line of results at spaces and colons.
        self.__name__ = str(aim).replace(" ", "").replace(":", "")

    def __call__(self, scores: np.ndarray, data: Any) -> tuple[str, float] | tuple[str, float, bool]:
        """Name and value, and for LightGBM whether higher is better."""
        rows = rows_of(scores, data)
        if self.feeds is not None:
            self.feeds.observe(scores, data)
        value = float(self.aim.metric(rows.labels, rows.scores, sample_weight=rows.weights))
        if type(data).__module__.split(".")[0] == "xgboost":
            return self.__name__, value
        return self.__name__, value, self.aim.greater_is_better


def metric(aim: Aim | str, *, feeds: AimedObjective | None = None) -> AimedMetric:
    """Measure an aim in every round: `feval` of `lightgbm.train`, `custom_metric` of `xgboost.train`.

    Args:
        aim: a record or its text.
        feeds: an objective that takes its thresholds from the rows that are measured here, instead of from the training
            rows. Of several sets of rows it takes the last.
    """
    return AimedMetric(_one_label(aim), feeds)


def starting_score(labels: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The log-odds of the share of positives: where boosting should start.

    XGBoost takes it as `base_score`, and LightGBM as `init_score` of a Dataset, one entry per row. LightGBM starts its
    own objectives there, but others at 0, and its `predict` does not add `init_score`: add it yourself.

    Args:
        labels: 0 or 1, both present.
        weights: of the rows; None means 1.

    Example:
        >>> round(starting_score([0, 0, 0, 1]), 4)
        -1.0986
    """
    prior = float(np.average(np.asarray(labels, np.float64), weights=weights))
    rule(0 < prior < 1, "labels", "must have both classes", f"a share of positives of {prior:g}")
    return float(np.log(prior / (1 - prior)))


def rows_of(scores: np.ndarray, data: Any) -> Rows:
    """Scores with the labels and weights of a Dataset or DMatrix."""
    if not hasattr(data, "get_label"):
        raise TypeError(
            f"objectives and metrics take a Dataset of LightGBM or a DMatrix of XGBoost, got {type(data).__name__}: "
            "call lightgbm.train or xgboost.train, not a scikit-learn wrapper"
        )
    labels, weights = np.asarray(data.get_label(), np.float64), data.get_weight()
    scores = np.asarray(scores, np.float64)
    rule(scores.shape == labels.shape, "scores", f"must be one for each of the {len(labels)} rows", list(scores.shape))
    rule(bool(((labels == 0) | (labels == 1)).all()), "labels", "must be 0 or 1 in every entry", "others")
    # XGBoost gives no weights as an empty array, LightGBM as None.
    no_weights = weights is None or len(weights) == 0
    return Rows(scores, labels, np.ones(len(labels)) if no_weights else np.asarray(weights, np.float64))


def solve(aim: Aim, judged: Rows, trained: Rows) -> Solved:
    """Find the state of a round.

    Args:
        aim: for one label.
        judged: rows whose exact rates give the thresholds.
        trained: rows whose gradients the ratios balance.
    """
    curve = cumulate(judged.labels == 1, judged.scores, judged.weights)
    both = curve.num_positives > 0 and curve.num_negatives > 0
    rule(both, "labels", "must have both classes among rows with weight", "one")
    if isinstance(aim, (FBeta, Cost)) or aim.follows_rates:
        best, limits = _at_its_best(aim, judged)
        # Where nothing should be flagged, the highest: it passes least.
        thresholds, widths = np.array([min(best, curve.thresholds[0])]), np.ones(1)
    else:
        prior = curve.num_positives / (curve.num_positives + curve.num_negatives)
        thresholds, widths, limits = _anchored(aim.anchors(torch.tensor([prior], dtype=torch.float64), NO_RATES), curve)
    missed, passed = _soft_errors(thresholds, trained)
    tiny = np.finfo(np.float64).tiny
    ratios = np.clip(missed / np.maximum(passed, tiny), limits[:, 0], limits[:, 1])
    # Not beyond what float64 can weigh: an error of weight 1e-9 beside the other is none.
    return Solved(thresholds, widths, np.clip(ratios, 1e-9, 1e9))


def _at_its_best(aim: Aim, judged: Rows) -> tuple[float, np.ndarray]:
    """The threshold of an aim that no linear constraint describes, with its least and greatest ratio."""
    rows, any_ratio = (judged.labels, judged.scores), np.array([[0.0, np.inf]])
    if isinstance(aim, FBeta):
        return f_beta(*rows, aim.beta, sample_weight=judged.weights).threshold, any_ratio
    if isinstance(aim, Cost):
        ratio = np.divide(aim.fp, aim.fn)
        return expected_cost(*rows, aim.fp, aim.fn, sample_weight=judged.weights).threshold, np.full((1, 2), ratio)
    assert isinstance(aim, PointAim)
    return at_constraint(aim.tradeoff, *rows, aim.target, sample_weight=judged.weights).threshold, any_ratio


def _anchored(anchors: Anchors, curve: Curve) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Threshold, width and least and greatest ratio of each anchor."""
    entries = torch.broadcast_tensors(
        *(anchors.width, anchors.objective_u, anchors.objective_v, anchors.load_u + anchors.room_recall),
        *(anchors.load_v, anchors.room + anchors.room_recall),
    )
    table = torch.stack(entries)[:, :, 0].numpy().T
    table = table[table[:, 0] > 0]
    rule(len(table) > 0, "the range of the aim", "must reach above the share of positives", "one that does not")
    u, v = 1 - curve.recall, curve.fpr
    thresholds, limits = [], []
    for _, objective_u, objective_v, load_u, load_v, room in table:
        allowed = load_u * u + load_v * v <= room * (1 + ROUNDING)
        costs = np.where(allowed, objective_u * u + objective_v * v, np.inf)
        # Where no threshold is allowed, the highest: it passes least.
        thresholds.append(curve.thresholds[np.argmin(costs) if allowed.any() else 0])
        # Between a multiplier of 0 and an infinite one; per row, as the ratio is one of sums.
        with np.errstate(divide="ignore"):
            ends = np.divide([objective_v, load_v], [objective_u, load_u]) * curve.num_positives / curve.num_negatives
        limits.append(np.sort(ends))
    return np.array(thresholds), table[:, 0] / table[:, 0].sum(), np.array(limits)


def _soft_errors(thresholds: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Sums over positives of sigmoid(b - f) and over negatives of sigmoid(f - b), for each threshold."""
    positive = rows.labels == 1
    missed = [rows.weights[positive] @ sigmoid(b - rows.scores[positive]) for b in thresholds]
    passed = [rows.weights[~positive] @ sigmoid(rows.scores[~positive] - b) for b in thresholds]
    return np.array(missed), np.array(passed)


def ratio_derivatives(rows: Rows, solved: Solved, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Of log-loss and the weighted errors around each threshold."""
    positive = rows.labels == 1
    sign = np.where(positive, -1.0, 1.0)
    error = sigmoid(sign * rows.scores)
    gradient, curvature = (1 - share) * error, (1 - share) * error * (1 - error)
    for threshold, width, ratio in zip(*solved, strict=True):
        error = sigmoid(sign * (rows.scores - threshold))
        weight = np.where(positive, 2 / (1 + ratio), 2 * ratio / (1 + ratio))
        gradient += share * width * weight * error
        curvature += share * width * weight * error * (1 - error)
    return _weighted(rows, sign * gradient, curvature)


def focus_derivatives(rows: Rows, solved: Solved, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Of log-loss whose rows weigh more near the thresholds; the weights are no part of the derivative."""
    near = np.zeros(len(rows.scores))
    for threshold, width in zip(solved.thresholds, solved.widths, strict=True):
        above = sigmoid(rows.scores - threshold)
        near += width * above * (1 - above)
    total = rows.weights @ near
    # A mean of 1, so that limits on leaves keep their meaning; where no row is near, plain log-loss.
    near = near * (rows.weights.sum() / total) if total > 0 else np.ones_like(near)
    sign = np.where(rows.labels == 1, -1.0, 1.0)
    error, weight = sigmoid(sign * rows.scores), 1 - share + share * near
    return _weighted(rows, sign * weight * error, weight * error * (1 - error))


def log_loss_derivatives(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Of plain log-loss, as both libraries have them."""
    chance = sigmoid(rows.scores)
    return rows.weights * (chance - rows.labels), rows.weights * chance * (1 - chance)


def _weighted(rows: Rows, gradient: np.ndarray, curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return rows.weights * gradient, rows.weights * (curvature + GRADIENT_SHARE * np.abs(gradient))


def sigmoid(values: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), which does not overflow."""
    return torch.from_numpy(values).sigmoid().numpy()


def _one_label(aim: Aim | str) -> Aim:
    record = read_aim(aim) if isinstance(aim, str) else aim
    counts = record.label_counts() - {1}
    rule(not counts, "aim", "must have one target, as boosting has one label", f"targets of {counts} labels")
    return record
