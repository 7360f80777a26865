"""The parameters of the classifier: their checks, and what they mean for training."""

from __future__ import annotations

import math
from dataclasses import fields
from numbers import Integral
from typing import Any

import torch

from aimfor._base import checks
from aimfor.aims import Aim
from aimfor.aims import aim as parse_aim
from aimfor.loss import SURROGATES
from aimfor.model_kinds import ModelKind, Settings, kind_of
from aimfor.operating_points import valid_confidence

SOLVERS = ("sgd", "lp", "search")


def kind_for(classifier: Any) -> ModelKind:
    """The kind of model that a classifier asks for."""
    single = classifier.solver != "sgd" or classifier.surrogate != "auto"
    # A solver or a single surrogate is a way to train a linear model.
    linear = isinstance(classifier.model, str) and classifier.model == "auto" and single
    return kind_of("linear" if linear else classifier.model)


def settings_of(classifier: Any) -> Settings:
    """The parameters that concern training."""
    return Settings(**{field.name: getattr(classifier, field.name) for field in fields(Settings)})


def check_parameters(classifier: Any) -> Aim:
    """Refuse parameters that `fit` would refuse, before any row is there.

    Args:
        classifier: a `Classifier`, fitted or not.

    Returns:
        The aim as a record.
    """
    aim = parse_aim(classifier.aim)
    valid_confidence(classifier.confidence, aim)
    checks.choice("solver", classifier.solver, SOLVERS)
    checks.choice("surrogate", classifier.surrogate, ("auto", "log_loss", *SURROGATES))
    checks.choice("constraint", classifier.constraint, ("surrogate", "exact"))
    checks.choice("on_no_threshold", classifier.on_no_threshold, ("negative", "raise"))
    kind = kind_for(classifier)
    if classifier.solver != "sgd":
        _check_solver(classifier, kind.name)
    if kind.log_loss_alone:
        _check_no_recipe(classifier, kind.name)
    checks.in_range("validation_fraction", classifier.validation_fraction, 0, 1, open_high=True)
    _check_sizes(classifier)
    _check_device(classifier.device)
    if classifier.budget is not None:
        checks.positive_number("budget", classifier.budget)
    if classifier.learning_rate != "auto":
        checks.positive_number("learning_rate", classifier.learning_rate)
    if classifier.weight_decay != "auto":
        checks.in_range("weight_decay", classifier.weight_decay, 0, math.inf, open_high=True)
    if not isinstance(classifier.calibrate, bool):
        checks.choice("calibrate", classifier.calibrate, ("isotonic", "logistic"))
    return aim


def _check_solver(classifier: Any, kind: str) -> None:
    solver = classifier.solver
    relaxable = ("auto", "hinge", "log")[: 2 if solver == "lp" else 3]
    checks.choice(f"surrogate for solver {solver!r}", classifier.surrogate, relaxable)
    checks.rule(kind == "linear", "model", f'must be "linear" for solver {solver!r}', classifier.model)
    relaxed = f'must be "surrogate" for solver {solver!r}, which solves the relaxed problem'
    checks.rule(classifier.constraint == "surrogate", "constraint", relaxed, classifier.constraint)
    without = "must be 'auto' for solver 'lp', which has no decay"
    decay = classifier.weight_decay
    checks.rule(solver != "lp" or decay == "auto", "weight_decay", without, decay)


def _check_no_recipe(classifier: Any, kind: str) -> None:
    for name, only in (("surrogate", "auto"), ("constraint", "surrogate")):
        value = getattr(classifier, name)
        checks.rule(value == only, name, f"must be {only!r} for model {kind!r}", value)


def _check_sizes(classifier: Any) -> None:
    for name, least in (("restarts", 0), ("steps", 1), ("batch_size", 1), ("patience", 1)):
        value = getattr(classifier, name)
        if name != "batch_size" or value != "auto":
            checks.whole_number(name, int(value) if isinstance(value, Integral) else value, at_least=least)
    if not isinstance(classifier.hidden_layer_sizes, (tuple, list)):
        raise TypeError(f"hidden_layer_sizes must be a tuple of widths, got {classifier.hidden_layer_sizes!r}")
    for size in classifier.hidden_layer_sizes:
        checks.whole_number("hidden_layer_sizes", int(size) if isinstance(size, Integral) else size, at_least=1)


def _check_device(device: Any) -> None:
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device must be one that torch has here, got {device!r}: {reason}") from error
