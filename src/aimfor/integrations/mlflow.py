"""MLflow: `fit_logged` fits an estimator and logs it as one model.

MLflow's autologging knows only the estimators of scikit-learn. In a fit of `aimfor.Classifier` it would log each
`LogisticRegression` that the fit uses on its way, and nothing of the classifier itself.
"""

from __future__ import annotations

from typing import Any, TypeVar

Estimator = TypeVar("Estimator", bound=Any)


def fit_logged(estimator: Estimator, X: Any, y: Any, *, name: str = "model", **fit_options: Any) -> Estimator:
    """Fit without autologging, then log parameters, class and model to the active run, or to a new one.

    Args:
        estimator: `aimfor.Classifier`, or any estimator of scikit-learn's interface that uses others in its fit.
        X: as `fit` takes it.
        y: as `fit` takes it.
        name: of the model in the run; `mlflow.sklearn.load_model` loads it.
        **fit_options: for `fit`, such as `sample_weight`.

    Returns:
        The fitted estimator.
    """
    import mlflow  # pyright: ignore[reportMissingImports]
    from mlflow.utils.autologging_utils import disable_autologging  # pyright: ignore[reportMissingImports]

    with disable_autologging():
        estimator.fit(X, y, **fit_options)
        if mlflow.active_run() is not None:
            _log(estimator, name)
        else:
            with mlflow.start_run():
                _log(estimator, name)
    return estimator


def _log(estimator: Any, name: str) -> None:
    import mlflow  # pyright: ignore[reportMissingImports]

    mlflow.log_params(estimator.get_params())
    mlflow.set_tags({"estimator_name": type(estimator).__name__, "estimator_class": _class_name(estimator)})
    # skops, MLflow's default, knows no tensors.
    mlflow.sklearn.log_model(estimator, name=name, serialization_format="cloudpickle")


def _class_name(estimator: Any) -> str:
    return f"{type(estimator).__module__}.{type(estimator).__qualname__}"
