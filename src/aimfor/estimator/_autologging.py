"""MLflow's autologging: an estimator is logged as one model, and those that its fit uses on its way are not."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from aimfor._base import checks

Options = ParamSpec("Options")
Estimator = TypeVar("Estimator", bound=Any)
Fit = Callable[Concatenate[Estimator, Options], Estimator]


def logged_as_one(fit: Fit[Estimator, Options]) -> Fit[Estimator, Options]:
    """Make a `fit` one model to MLflow: where its autologging of scikit-learn is on, this estimator is logged.

    MLflow knows only the estimators of scikit-learn. It would log each one that the fit uses inside, and never the
    estimator itself. Without MLflow, or inside a fit that MLflow logs already, this is the fit alone.
    """

    @functools.wraps(fit)
    def fit_logged(self: Estimator, *args: Options.args, **kwargs: Options.kwargs) -> Estimator:
        autologging: Any = sys.modules.get("mlflow.utils.autologging_utils")
        if autologging is None or autologging._AUTOLOGGING_GLOBALLY_DISABLED:  # the second by an outer fit
            return fit(self, *args, **kwargs)
        wanted = not (autologging.autologging_is_disabled("sklearn") or autologging._has_active_training_session())
        with autologging.disable_autologging():
            fit(self, *args, **kwargs)
            if wanted:
                _log(self, bool(autologging.get_autologging_config("sklearn", "log_models", True)))
        return self

    return fit_logged


def _log(estimator: Any, with_model: bool) -> None:
    """Log to the active run, or to a new one; what goes wrong there must not cost a finished fit."""
    import mlflow  # pyright: ignore[reportMissingImports]

    try:
        if mlflow.active_run() is not None:
            _log_to_active_run(estimator, with_model)
        else:
            with mlflow.start_run():
                _log_to_active_run(estimator, with_model)
    except Exception as error:
        warnings.warn(
            f"the fit is complete, but MLflow could not log it: {error}",
            RuntimeWarning,
            stacklevel=checks.callers_level(),
        )


def _log_to_active_run(estimator: Any, with_model: bool) -> None:
    import mlflow  # pyright: ignore[reportMissingImports]
    from mlflow.sklearn import log_model  # pyright: ignore[reportMissingImports]

    kind = type(estimator)
    mlflow.log_params(estimator.get_params())
    mlflow.set_tags({"estimator_name": kind.__name__, "estimator_class": f"{kind.__module__}.{kind.__qualname__}"})
    if with_model:
        # skops, MLflow's default, knows no tensors.
        log_model(estimator, name="model", serialization_format="cloudpickle")
