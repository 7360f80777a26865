"""The scikit-learn classifier: trained for an aim, it decides at an operating point chosen on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import nn

from aimfor.aims import Aim, exact_metric, one_hot
from aimfor.aims import aim as parse_aim
from aimfor.estimator._autologging import logged_as_one
from aimfor.estimator._calibration import CalibrationCurve
from aimfor.estimator._continued import continue_training
from aimfor.estimator._decisions import against, chances, decided, points_of_classifier
from aimfor.estimator._fitting import Extras, fit_classifier
from aimfor.estimator._importance import PermutationImportance, permutation_importance
from aimfor.estimator._inputs import check_features
from aimfor.estimator._parameters import kind_for
from aimfor.estimator._progress import Progress
from aimfor.estimator._targets import Targets
from aimfor.model_kinds import Model
from aimfor.training import Observer


def _can_go_on(classifier: Any) -> bool:
    return classifier.solver == "sgd" and kind_for(classifier).incremental


class Classifier(ClassifierMixin, BaseEstimator):
    """A classifier trained for the number it is judged by, with the threshold that goes with it.

    By default it never bets on one recipe: log-loss, the aim and its area are trained as candidates. The exact metric
    and the area on held-out rows choose among them, and log-loss stays the choice unless another candidate beats it by
    more than the noise of those rows. The threshold must pass an exact test, so that its constraint holds on new rows
    more often than not. With a confidence, some training rows choose among the candidates, so that the rows of the
    threshold chose nothing before.

    Args:
        aim: an aim record or its text, such as "recall@precision>=0.9".
        model: "auto" for the best of trees, a linear model and a network, alone or averaged; with an exact solver or a
            single surrogate it means "linear". "trees" for boosted trees, which need the extra `boosting`; "linear";
            "mlp"; an `nn.Module` for `[B, D]` float32 rows with one output per label (it is copied), or a function
            without arguments that makes one. "auto" and "trees" take missing features (NaN).
        hidden_layer_sizes: widths of the hidden layers of "mlp".
        surrogate: "auto" for the choice among candidates; "hinge", "log", "smooth_hinge", "ramp" or "sigmoid" for that
            single recipe of the aim, started from scratch; "log_loss" for log-loss alone.
        constraint: "surrogate" or "exact", for a single recipe; see `Loss`.
        solver: "sgd"; "lp" for the exact optimum of the relaxed problem by linear programming; "search" for binary
            search on the multiplier, each step a weighted SVM (surrogate "hinge") or logistic fit ("log"). The last two
            are for linear models of one label; small data for "lp".
        restarts: candidates started from scratch, for each recipe.
        validation_fraction: share of the rows held back for all choices; 0 makes them on the training rows.
        confidence: of the operating point; the constraint then holds on the population with at least this probability.
            An eighth of the training rows then chooses among candidates, and all rows held back choose the threshold.
            More than `validation_fraction` is held back where the test needs more, up to a half of the rows. Needs an
            aim with a constraint, and rows held back.
        calibrate: fit probabilities on the validation rows, for `predict_proba`: True, "isotonic" or "logistic".
        steps: batches that each stage trains for.
        batch_size: rows of a batch; "auto" for 256 with "mlp", else 512.
        learning_rate: of Adam at the start, from where it falls to 0 along a half cosine; "auto" for 0.02 with "mlp",
            else 0.01.
        weight_decay: of a linear model the weight of half the squared weights in the loss, of others that of AdamW;
            "auto" tries several with log-loss.
        patience: stop a stage after this many evaluations on the validation rows without improvement; a stage has
            eight of them.
        device: where training runs.
        random_state: seed, or numpy `RandomState`, of split, start, order and what a module draws; an int gives
            identical results.
        on_no_threshold: what `predict` does where no threshold qualifies: "negative" predicts nothing positive and
            warns (`NoThresholdWarning`), "raise" raises a ValueError.
        budget: seconds after which training stops with the best so far; None for no limit.
        verbose: show progress with the exact validation metric and the violation.

    Attributes:
        classes_: labels in sorted order; of two, the second is the positive one. For multi-label y, 0..L-1.
        operating_point_: `OperatingPoint`, or a tuple with one per label or class.
        threshold_: its threshold on the raw score, None where none qualifies; an array (nan for None) for many.
        history_: one dict per candidate: name, kind of model, value of the exact metric on the validation rows, merit
            by which it was compared, step, whether it was chosen. Of an exact solver: name, objective, violation,
            feasible, chosen; of `partial_fit` one more per call: name, rows.
        n_features_in_, feature_names_in_: of the rows given to `fit`.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(400, weights=[0.9], random_state=0)
        >>> model = Classifier("recall@precision>=0.8", steps=200, random_state=0).fit(X, y)
        >>> model.predict(X[:3]).shape
        (3,)
    """

    n_features_in_: int
    targets_: Targets
    model_: Model
    operating_point_: Any
    threshold_: Any
    history_: list[dict[str, Any]]
    calibration_: list[CalibrationCurve]

    def __init__(
        self,
        aim: str | Aim = "aucpr",
        *,
        model: str | nn.Module | Callable[[], nn.Module] = "auto",
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
        on_no_threshold: str = "negative",
        budget: float | None = None,
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
        self.on_no_threshold = on_no_threshold
        self.budget = budget
        self.verbose = verbose

    @property
    def classes_(self) -> np.ndarray:
        """Labels in sorted order."""
        return self.targets_.classes

    @logged_as_one
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        validation_data: tuple[Any, ...] | None = None,
        groups: ArrayLike | None = None,
    ) -> Classifier:
        """Train the candidates, keep one, and choose its operating point.

        Args:
            X: `[n, D]`, dense or SciPy sparse (never made dense), finite.
            y: `[n]` of two or more classes, or `[n, L]` of 0/1 for several labels.
            sample_weight: `[n]`, at least 0; a row of weight 0 is as good as absent.
            validation_data: `(X, y)`, `(X, y, sample_weight)` or `(X, y, sample_weight, groups)` held out by the
                caller, instead of a part of the rows; both classes of a label must be there. A `Pipeline` hands it over
                as it is: its X must have gone through the steps before.
            groups: `[n]`; rows of one group may depend on one another, such as those of a customer. They stay on one
                side of every split, and a confidence is about a row of a new group. See `operating_point`.

        Returns:
            Itself.
        """
        if self.verbose:
            with Progress(str(self.aim)) as progress:
                fit_classifier(self, X, y, sample_weight, validation_data, progress, Extras(groups=groups))
        else:
            fit_classifier(self, X, y, sample_weight, validation_data, Observer(), Extras(groups=groups))
        return self

    @available_if(_can_go_on)
    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Classifier:
        """One pass over these rows with a single recipe ("auto" means the hinge), going on from the last call or `fit`.

        Features are scaled as in the first call, those without a spread there not at all, and the rate does not fall.
        Weights count beside those of all calls so far. The operating point, also that of an
        earlier `fit`, gives way to one chosen on the rows of the last call, after training on them, so it has no
        confidence; where a label lacks a class in these rows, its last point stays.

        Args:
            X: as in `fit`.
            y: as in `fit`.
            classes: all classes that will ever come; needed in the first call unless y has them all.
            sample_weight: as in `fit`.

        Returns:
            Itself.
        """
        continue_training(self, X, y, classes, sample_weight)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Raw scores minus the operating threshold, so that 0 is the decision; raw scores where there is no threshold.

        Args:
            X: `[n, D]`.

        Returns:
            `[n]` for one label, `[n, L]` for several; for classes their log-odds `[n, C]`.
        """
        raw = self.raw_scores(X)
        if self.targets_.multiclass:
            return raw
        found = against(raw, np.asarray(self.threshold_, dtype=np.float64))
        return found[:, 0] if self.targets_.one_label else found

    def raw_scores(self, X: Any) -> np.ndarray:
        """Scores as `threshold_` and the operating point know them, `[n, L]`; for classes their log-odds `[n, C]`.

        Args:
            X: `[n, D]`.
        """
        check_is_fitted(self, "model_")
        return self.model_.scores(check_features(self, X))

    def predict(self, X: Any) -> np.ndarray:
        """Decisions at the operating point; the class of the highest score where there are more than two.

        Args:
            X: `[n, D]`.

        Returns:
            `[n]` of `classes_`, or `[n, L]` of 0/1.

        Warns:
            NoThresholdWarning: where no threshold qualified, so that nothing is predicted positive.

        Raises:
            ValueError: where no threshold qualified, with `on_no_threshold="raise"`.
        """
        raw = self.raw_scores(X)
        if self.targets_.multiclass:
            return self.classes_[raw.argmax(1)]
        found = decided(points_of_classifier(self), raw, self.on_no_threshold)
        return self.classes_[found[:, 0]] if self.targets_.one_label else found

    @available_if(lambda self: bool(self.calibrate))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities calibrated on the validation rows; only with `calibrate`.

        Args:
            X: `[n, D]`.

        Returns:
            `[n, 2]`, `[n, C]`, or `[n, L]` for several labels.
        """
        raw = self.raw_scores(X)
        check_is_fitted(self, "calibration_", msg="predict_proba needs a fit with calibrate, got one without")
        found = chances(self.calibration_, raw, self.targets_.multiclass)
        return np.hstack([1 - found, found]) if self.targets_.one_label else found

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The aim's exact metric, a mean over labels or classes; negated where less is better (fpr@tpr).

        Args:
            X: `[n, D]`.
            y: as in `fit`.
            sample_weight: `[n]`.
        """
        raw = self.raw_scores(X)
        labels = self.targets_.encode(y)
        labels = one_hot(labels, len(self.classes_)) if self.targets_.multiclass else labels
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, raw)
        return exact_metric(parse_aim(self.aim), labels, raw, weights)

    def permutation_importance(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        n_repeats: int = 5,
        max_samples: int = 10_000,
    ) -> PermutationImportance:
        """How much `score` falls where the values of one feature are shuffled among the rows, for any kind of model.

        Args:
            X: `[n, D]`, rows that the model was not trained on.
            y: as in `fit`.
            sample_weight: `[n]`.
            n_repeats: shuffles of each feature.
            max_samples: of more rows, a weighted draw; rows with a label are drawn first.

        Returns:
            `importances_mean` and `importances_std` `[D]`, and `importances` `[D, n_repeats]`.
        """
        check_is_fitted(self, "model_")
        X = check_features(self, X)
        labels = self.targets_.encode(y)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        return permutation_importance(self, X, labels, weights, n_repeats, max_samples)

    @property
    def feature_importances_(self) -> np.ndarray:
        """Share of each feature in the gain of all splits of the trees, `[D]`; only with trees in the model."""
        check_is_fitted(self, "model_")
        if self.model_.gain is None:
            raise AttributeError("feature_importances_ needs trees in the model; permutation_importance needs none")
        return self.model_.gain

    @property
    def coef_(self) -> np.ndarray:
        """Weights of a linear model on the features as they came, `[L, D]`."""
        return self._coefficients()[0]

    @property
    def intercept_(self) -> np.ndarray:
        """Offsets of a linear model, `[L]`; the operating threshold is apart."""
        return self._coefficients()[1]

    def _coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        fitted = vars(self).get("model_")
        if fitted is None and kind_for(self).name == "linear":
            check_is_fitted(self, "model_")
        found = None if fitted is None else fitted.coefficients
        if found is None:
            raise AttributeError(f'coef_ and intercept_ exist for model "linear" only, got {self.model!r}')
        return found

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = kind_for(self).takes_missing
        tags.classifier_tags.multi_label = self.solver == "sgd"
        tags.classifier_tags.multi_class = self.solver == "sgd"
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = self.solver == "sgd"
        return tags
