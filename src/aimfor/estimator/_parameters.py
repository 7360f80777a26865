"""Serve, options: what the classifier is asked for, and whether that can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import nn

from aimfor._base import checks
from aimfor.aims import Aim
from aimfor.aims import aim as parse_aim
from aimfor.loss import SURROGATES
from aimfor.operating_points import valid_confidence
from aimfor.training import Budget, Recipe

SOLVERS = ("sgd", "lp", "search")


class Options(ClassifierMixin, BaseEstimator):
    """The parameters of `Classifier`, which tells what they mean."""

    def __init__(
        self,
        aim: str | Aim = "aucpr",
        *,
        model: str | nn.Module | Callable[[], nn.Module] = "linear",
        hidden_layer_sizes: tuple[int, ...] = (64,),
        surrogate: str = "auto",
        constraint: str = "surrogate",
        solver: str = "sgd",
        restarts: int = 1,
        validation_fraction: float = 0.2,
        confidence: float | None = None,
        calibrate: bool | str = False,
        steps: int = 2000,
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        weight_decay: float | str = "auto",
        patience: int = 4,
        device: str = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.aim = aim
        self.model = model
        self.hidden_layer_sizes = hidden_layer_sizes
        self.surrogate = surrogate
        self.constraint = constraint
        self.solver = solver
        self.restarts = restarts
        self.validation_fraction = validation_fraction
        self.confidence = confidence
        self.calibrate = calibrate
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def check_options(self) -> Aim:
        """Refuse options that `fit` would refuse, before any row is there; the aim as a record."""
        aim = parse_aim(self.aim)
        valid_confidence(self.confidence, aim)
        checks.choice("solver", self.solver, SOLVERS)
        checks.choice("surrogate", self.surrogate, ("auto", "log_loss", *SURROGATES))
        checks.choice("constraint", self.constraint, ("surrogate", "exact"))
        if isinstance(self.model, str):
            checks.choice("model", self.model, ("linear", "mlp"))
        elif not callable(self.model):
            raise TypeError(f'model must be "linear", "mlp", an nn.Module or a function, got {self.model!r}')
        if self.solver != "sgd":
            relaxable = ("auto", "hinge", "log")[: 2 if self.solver == "lp" else 3]
            checks.choice(f"surrogate for solver {self.solver!r}", self.surrogate, relaxable)
            checks.rule(self.model == "linear", "model", f'must be "linear" for solver {self.solver!r}', self.model)
            relaxed = f'must be "surrogate" for solver {self.solver!r}, which solves the relaxed problem'
            checks.rule(self.constraint == "surrogate", "constraint", relaxed, self.constraint)
            without = "must be 'auto' for solver 'lp', which has no decay"
            checks.rule(self.solver != "lp" or self.weight_decay == "auto", "weight_decay", without, self.weight_decay)
        checks.in_range("validation_fraction", self.validation_fraction, 0, 1, open_high=True)
        for name, least in (("restarts", 0), ("steps", 1), ("batch_size", 1), ("patience", 1)):
            value = getattr(self, name)
            if name != "batch_size" or value != "auto":
                checks.whole_number(name, int(value) if isinstance(value, Integral) else value, at_least=least)
        if not isinstance(self.hidden_layer_sizes, (tuple, list)):
            raise TypeError(f"hidden_layer_sizes must be a tuple of widths, got {self.hidden_layer_sizes!r}")
        for size in self.hidden_layer_sizes:
            checks.whole_number("hidden_layer_sizes", int(size) if isinstance(size, Integral) else size, at_least=1)
        try:
            torch.zeros(1, device=self.device).item()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"device must be one that torch has here, got {self.device!r}: {reason}") from error
        if self.learning_rate != "auto":
            checks.positive_number("learning_rate", self.learning_rate)
        if self.weight_decay != "auto":
            checks.in_range("weight_decay", self.weight_decay, 0, math.inf, open_high=True)
        if not isinstance(self.calibrate, bool):
            checks.choice("calibrate", self.calibrate, ("isotonic", "logistic"))
        return aim

    def _single_recipe(self, aim: Aim) -> Recipe | None:
        if self.surrogate == "auto":
            return None
        decay = 0.0 if self.weight_decay == "auto" else float(self.weight_decay)
        return Recipe(None if self.surrogate == "log_loss" else aim, self.surrogate, self.constraint, "scratch", decay)

    def _budget(self) -> Budget:
        # By trial; benchmarks/README.md says on which rows, and how little is between them.
        rate, size = (0.02, 256) if self.model == "mlp" else (0.01, 512)
        rate = rate if self.learning_rate == "auto" else float(self.learning_rate)
        return Budget(self.steps, rate, size if self.batch_size == "auto" else int(self.batch_size), self.patience)

    def _decays(self, outputs: int) -> tuple[float, ...]:
        if self.weight_decay != "auto":
            return (float(self.weight_decay),)
        if self.model != "linear":
            return 0.0, 0.03, 0.1, 0.3, 1.0
        # A decay that serves several labels is hardly ever the weakest, whose minimum takes the longest to find.
        return ((1e-7,) if outputs == 1 else ()) + (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
