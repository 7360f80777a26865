"""From rows to a fitted classifier: hold rows back, train candidates, keep one, choose its threshold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state

from aimfor._base import checks
from aimfor._base.ranks import RowShare
from aimfor._base.splitting import class_counts
from aimfor.aims import Aim
from aimfor.estimator._decisions import decide
from aimfor.estimator._holdout import TRAINED, LabelledRows, divided, held_share, with_choosing
from aimfor.estimator._inputs import check_confidence, check_rows, check_validation
from aimfor.estimator._parameters import check_parameters, kind_for, settings_of
from aimfor.model_kinds import MEMORY, Fit, NetworkKind, Problem, TableColumns, Task, kind_of
from aimfor.operating_points import ALSO_CHOSE
from aimfor.training import Contest, Data, FeatureRows, Observer, Scaling


class Extras(NamedTuple):
    """What a caller may know beyond the rows.

    Attributes:
        columns: the columns of a table that the features came from, as trees read them.
        memory: bytes of rows on disk that a kind which needs its rows in memory may read.
        groups: of dependent rows, as in `Classifier.fit`.
        share: which of the rows of all processes those to train on are; None where this process has them all.
        held_out: the validation data in words.
    """

    columns: TableColumns | None = None
    memory: int = MEMORY
    groups: Any = None
    share: RowShare | None = None
    held_out: str = "the given validation rows"


def fit_classifier(
    classifier: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    validation_data: Any,
    observer: Observer,
    extras: Extras | None = None,
) -> Fit | None:
    """`Classifier.fit` for callers that save its state, stop it or compare its candidates.

    Args:
        classifier: a `Classifier`; it is as before where something goes wrong.
        X: as in `Classifier.fit`.
        y: as in `Classifier.fit`.
        sample_weight: as in `Classifier.fit`.
        validation_data: as in `Classifier.fit`.
        observer: follows training.
        extras: what the caller knows beyond the rows.

    Returns:
        The contest with its models; None with an exact solver, which has no candidates.
    """
    # Whatever the caller is in, training needs gradients.
    with unchanged_on_error(classifier, {}), torch.inference_mode(False):
        return _fit(classifier, X, y, sample_weight, validation_data, observer, extras or Extras())


@contextmanager
def unchanged_on_error(classifier: Any, copies: dict[str, Any]) -> Iterator[None]:
    """Inside, an error or an interruption leaves the classifier as it was.

    Args:
        classifier: whose attributes change inside.
        copies: attributes that are changed in place, as they were.
    """
    before = {**vars(classifier), **copies}
    try:
        yield
    except BaseException:
        vars(classifier).clear()
        vars(classifier).update(before)
        raise


def _fit(
    classifier: Any, X: Any, y: Any, sample_weight: Any, validation_data: Any, observer: Observer, extras: Extras
) -> Fit | None:
    aim = check_parameters(classifier)
    deadline = None if classifier.budget is None else time.monotonic() + classifier.budget
    whole = _checked(classifier, X, y, sample_weight, extras)
    outputs = classifier.targets_.num_outputs
    for count in aim.label_counts():
        checks.rule(count == outputs, "aim", f"must have one target per label ({outputs})", count)
    seed = int(check_random_state(classifier.random_state).randint(2**31 - 1))
    if validation_data is not None:
        held_out = check_validation(classifier, validation_data, extras.held_out)
        fitted = whole = whole._replace(source=TRAINED)
        grouped = [rows.groups is not None for rows in (whole, held_out)]
        checks.rule(grouped[0] == grouped[1], "validation_data", "must have groups if fit has them", "others")
    else:
        fitted, held_out = divided(whole, held_share(aim, classifier, whole), seed)
    trained_on = held_out is fitted
    check_confidence(classifier.confidence, held_out, trained_on)
    everything, (fitted, choosing) = fitted, with_choosing(fitted, held_out, classifier)
    apart = choosing is not held_out
    if not apart and not trained_on and classifier.solver == "sgd":
        held_out = held_out._replace(source=held_out.source + ALSO_CHOSE)
    problem = problem_of(classifier, Scaling.of(whole.X, fitted.index, fitted.weights, fitted.ranks), extras.columns)
    fit = None
    if classifier.solver == "sgd":
        data, validation = (data_of(rows, problem) for rows in (fitted, choosing))
        # The rows held out are for the threshold, so no model may train on them.
        again = data_of(everything, problem) if apart else None
        task = Task(problem, aim, data, validation, seed, deadline, extras.memory, again)
        fit = kind_for(classifier).fit(task, observer)
        classifier.model_ = fit.model
        classifier.history_ = history_of(fit.contest, aim)
    else:
        _solve(classifier, aim, fitted, problem)
    decide(classifier, aim, held_out, whole)
    vars(classifier).pop("continued_", None)  # partial_fit went on with another model
    return fit


def _checked(classifier: Any, X: Any, y: Any, sample_weight: Any, extras: Extras) -> LabelledRows:
    """All rows to train on that this process has."""
    share, groups = extras.share, extras.groups
    if share is None:
        return check_rows(classifier, X, y, sample_weight, groups=groups)
    classes = None if np.ndim(y) > 1 else class_counts(np.asarray(y), share.ranks)[0]
    rows = check_rows(classifier, X, y, sample_weight, classes=classes)
    kept = slice(None)
    if sample_weight is not None:  # rows without weight were left out
        kept = np.flatnonzero(np.asarray(sample_weight))
        share = share.select(kept)
    return rows._replace(share=share, groups=None if groups is None else np.asarray(groups)[kept])


def problem_of(classifier: Any, scaling: Scaling, columns: TableColumns | None = None) -> Problem:
    """What the model of a classifier that has seen rows must fit."""
    targets = classifier.targets_
    settings = settings_of(classifier)
    return Problem(classifier.n_features_in_, targets.num_outputs, targets.multiclass, scaling, settings, columns)


def data_of(rows: LabelledRows, problem: Problem, mean_weight: float | None = None) -> Data:
    """Rows as they are trained on; the weights are divided by their mean, or by the mean of all rows so far."""
    labels = rows.labels[:, 0] if problem.multiclass else rows.labels
    weights = rows.weights
    if weights is None and mean_weight not in (None, 1.0):
        weights = np.ones(len(labels))
    if weights is not None:
        # Only their proportions matter, and single precision must hold them.
        largest = max(rows.ranks.gather(weights.max()))
        weights = weights / largest
        mean = rows.ranks.sum(weights.sum()) / rows.ranks.sum(len(weights))
        weights = weights / (mean if mean_weight is None else mean_weight / largest)
    known = None if weights is None else torch.from_numpy(weights.astype(np.float32))
    features = FeatureRows(rows.X, problem.scaling, problem.settings.device, index=rows.index)
    return Data(features, torch.from_numpy(labels), known, rows.share)


def history_of(contest: Contest, aim: Aim) -> list[dict[str, Any]]:
    """One dict per candidate, for `history_`."""
    sign = 1 if aim.greater_is_better else -1
    return [
        {
            "name": one.recipe.name,
            "kind": one.kind,
            "value": sign * one.value,
            "merit": one.merit,
            "step": one.step,
            "chosen": index == contest.chosen,
        }
        for index, one in enumerate(contest.candidates)
    ]


def _solve(classifier: Any, aim: Aim, fitted: LabelledRows, problem: Problem) -> None:
    """The optimum of the relaxed problem, as a model that scales like the others."""
    from aimfor.solvers import solve_by_lp, solve_by_search, warn_of_infeasible

    X, labels, weights = fitted.taken()
    solver, num_classes = classifier.solver, len(classifier.classes_)
    checks.rule(classifier.targets_.one_label, "y", f"must have one label for solver {solver!r}", num_classes)
    if solver == "lp":
        solution = solve_by_lp(X, labels[:, 0], weights, aim)
    else:
        surrogate = "hinge" if classifier.surrogate == "auto" else classifier.surrogate
        decay = 1e-4 if classifier.weight_decay == "auto" else float(classifier.weight_decay)
        solution = solve_by_search(X, labels[:, 0], weights, aim, surrogate=surrogate, decay=decay)
    warn_of_infeasible(aim, solution)
    kind = kind_of("linear")
    assert isinstance(kind, NetworkKind)
    classifier.model_ = kind.begin(problem, 0)
    # Scores are those of centred features, as of every model: far from 0, rows would be rounded to one score.
    weight = torch.from_numpy(solution.weight * problem.scaling.scale)[:, None]
    classifier.model_.heads.double().set_head_(0, {"weights.0": weight, "offsets.0": torch.zeros(1)})
    found = {"objective": solution.objective, "violation": solution.violation, "feasible": solution.feasible}
    classifier.history_ = [{"name": f"{aim}, solver {solver}", **found, "chosen": True}]
