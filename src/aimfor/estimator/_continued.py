"""`partial_fit`: training that goes on with more rows, call after call."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from aimfor.estimator._decisions import decide, points_of_classifier
from aimfor.estimator._fitting import data_of, problem_of, unchanged_on_error
from aimfor.estimator._inputs import check_confidence, check_rows
from aimfor.estimator._parameters import check_parameters, kind_for
from aimfor.model_kinds import ContinuedTraining, NetworkKind
from aimfor.training import Scaling


class Continued(NamedTuple):
    """What goes on from call to call: loss and optimiser, and weight and number of all rows so far."""

    training: ContinuedTraining
    weight: float
    rows: int


def continue_training(classifier: Any, X: Any, y: Any, classes: ArrayLike | None, sample_weight: Any) -> None:
    """One pass over more rows; an error leaves the classifier as it was."""
    changing = {name: value for name, value in vars(classifier).items() if name in ("model_", "continued_")}
    with unchanged_on_error(classifier, copy.deepcopy(changing)), torch.inference_mode(False):
        _go_on(classifier, X, y, classes, sample_weight)


def _go_on(classifier: Any, X: Any, y: Any, classes: ArrayLike | None, sample_weight: Any) -> None:
    aim = check_parameters(classifier)
    kind = kind_for(classifier)
    assert isinstance(kind, NetworkKind), "other kinds have no partial_fit"
    first = not hasattr(classifier, "model_")
    rows = check_rows(classifier, X, y, sample_weight, classes=classes, first=first)
    rows = rows._replace(source="the rows of the last partial_fit, trained on")
    X, labels, weights = rows.taken()
    check_confidence(classifier.confidence, rows, trained_on=True)
    seed = int(check_random_state(classifier.random_state).randint(2**31 - 1))
    scaling = Scaling.of(X, None, weights).before_more_rows() if first else classifier.model_.scaling
    problem = problem_of(classifier, scaling)
    if first:
        classifier.model_ = kind.begin(problem, seed)
        classifier.history_ = []
    before: Continued | None = vars(classifier).get("continued_")
    training = ContinuedTraining(kind, problem, aim)
    # Another aim starts its multipliers anew.
    if before is not None and before.training.recipe == training.recipe:
        training = before.training
    weight = (0.0 if before is None else before.weight) + float(len(labels) if weights is None else weights.sum())
    count = (0 if before is None else before.rows) + len(labels)
    data = data_of(rows, problem, weight / count)
    training.pass_over(classifier.model_, data, kind.budget(problem.settings), seed)
    classifier.continued_ = Continued(training, weight, count)
    classifier.history_ = [*classifier.history_, {"name": training.recipe.name, "rows": len(labels)}]
    decide(classifier, aim, rows, rows, () if first else points_of_classifier(classifier))
