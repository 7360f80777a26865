"""A threshold for an aim on top of any classifier, chosen on rows that its model did not see."""

from __future__ import annotations

from inspect import signature
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import (
    GroupShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)
from sklearn.utils import _safe_indexing, assert_all_finite, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _check_method_params,
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    indexable,
)

from aimfor._base import checks
from aimfor.aims import Aim, exact_metric
from aimfor.aims import aim as parse_aim
from aimfor.estimator._autologging import logged_as_one
from aimfor.estimator._decisions import decided
from aimfor.metrics import Curve, cumulate
from aimfor.operating_points import OperatingPoint, decided_point, valid_confidence, warn_of_weak_claims

# Which score "auto" takes: the first that the estimator has. `aimfor.scorer` has the same order, since probabilities
# of confident models round to 1 and tie.
RESPONSES = ("decision_function", "predict_proba")
UNSEEN_ROWS = (
    "confidence needs a final model that has not seen the rows that choose the threshold: "
    'set cv to a share such as 0.25, or to "prefit"'
)


class Choosing(NamedTuple):
    """Rows that choose the threshold: their numbers among all rows, their scores, and what they are called."""

    rows: np.ndarray
    scores: np.ndarray
    source: str


def _inner_has(name: str) -> Any:
    return lambda self: hasattr(getattr(self, "estimator_", self.estimator), name)


class ThresholdClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier of yours that decides at the threshold an aim asks for.

    It works with every binary classifier that has `decision_function` or `predict_proba`. The threshold is chosen on
    scores of rows that the scoring model was not trained on, among all distinct scores.

    Args:
        estimator: the classifier; it is cloned, unless `cv` is "prefit".
        aim: an aim record or its text, such as "recall@precision>=0.9".
        confidence: in (0, 1); the constraint then holds on the population with at least this probability, for rows
            or groups drawn independently from it. The final model must not have seen the rows that choose, so `cv`
            must be a share, a splitter of one split, or "prefit". None keeps the constraint more often than not.
        cv: a number of folds or a splitter: out-of-fold scores of all rows choose. A share in (0, 1): one held-out part
            chooses. "prefit": `estimator` is fitted already, and all rows given to `fit` choose.
        refit: fit on all rows once the threshold is chosen. It has no effect with a confidence or "prefit".
        response_method: "decision_function", "predict_proba", or "auto" for the first of these that there is.
        on_no_threshold: what `predict` does where no threshold qualifies: "negative" predicts nothing positive, with
            a `NoThresholdWarning`; "raise" raises a ValueError.
        n_jobs: folds fitted at the same time; None for one.
        random_state: seed of folds and of the held-out part.

    Attributes:
        estimator_: the fitted classifier that scores.
        operating_point_: the `OperatingPoint`, with rates on the rows that chose.
        threshold_: its threshold; None where none qualifies. Positive means score >= threshold.
        curve_: what every threshold gives on the rows that chose: `thresholds`, `precision`, `recall`, `fpr`.
        classes_: the two classes in sorted order; the second is the positive one.
        n_features_in_, feature_names_in_: those of `estimator_`, where it has them.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = make_classification(2000, weights=[0.9], random_state=0)
        >>> model = ThresholdClassifier(LogisticRegression(), "precision@recall>=0.8", random_state=0).fit(X, y)
        >>> model.operating_point_.recall >= 0.8
        True
    """

    estimator_: Any
    operating_point_: OperatingPoint
    curve_: Curve

    def __init__(  # noqa: PLR0913  scikit-learn wants every parameter here
        self,
        estimator: Any,
        aim: str | Aim,
        *,
        confidence: float | None = None,
        cv: Any = 5,
        refit: bool = True,
        response_method: str = "auto",
        on_no_threshold: str = "negative",
        n_jobs: int | None = None,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.aim = aim
        self.confidence = confidence
        self.cv = cv
        self.refit = refit
        self.response_method = response_method
        self.on_no_threshold = on_no_threshold
        self.n_jobs = n_jobs
        self.random_state = random_state

    @logged_as_one
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> ThresholdClassifier:
        """Score rows that the models did not see, choose the threshold on them, and fit the final model.

        Args:
            X: rows as the classifier takes them.
            y: `[n]` of two classes.
            sample_weight: `[n]`, at least 0; for the classifier and for the choice of the threshold.
            groups: `[n]`; rows of one group stay on one side of every split, and a confidence is about a row of a new
                group. See `operating_point`.
            fit_params: for `fit` of the classifier; those with one entry per row are split as the rows are.

        Returns:
            Itself.
        """
        aim = self._check_options()
        X, given, sample_weight, groups = indexable(X, y, sample_weight, groups)
        labels = column_or_1d(given, warn=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        if self.cv == "prefit":
            checks.rule(not fit_params, "fit", 'must have no fit_params with cv="prefit"', sorted(fit_params))
            choosing = self._of_fitted(X, labels)
        else:
            choosing = self._of_splits(X, labels, weights, groups, fit_params)
        self._decide(aim, labels, weights, groups, choosing)
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The classes of rows at the operating point.

        Args:
            X: rows as the classifier takes them.

        Returns:
            `[n]` of `classes_`.
        """
        check_is_fitted(self, "operating_point_")
        scores = self._scores(self.estimator_, X)
        return self.classes_[decided([self.operating_point_], scores[:, None], self.on_no_threshold)[:, 0]]

    @available_if(_inner_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities as the classifier gives them; the threshold does not change them.

        Args:
            X: rows as the classifier takes them.
        """
        check_is_fitted(self, "operating_point_")
        return self.estimator_.predict_proba(X)

    @available_if(_inner_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of probabilities as the classifier gives them.

        Args:
            X: rows as the classifier takes them.
        """
        check_is_fitted(self, "operating_point_")
        return self.estimator_.predict_log_proba(X)

    @available_if(_inner_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores as the classifier gives them; the decision is at `threshold_` where these scores chose it.

        Args:
            X: rows as the classifier takes them.
        """
        check_is_fitted(self, "operating_point_")
        return self.estimator_.decision_function(X)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The aim's exact metric of the scores, as of `aimfor.Classifier`; negated where less is better.

        Args:
            X: rows as the classifier takes them.
            y: `[n]` of the two classes.
            sample_weight: `[n]`.
        """
        check_is_fitted(self, "operating_point_")
        labels = self._positive(column_or_1d(y)).astype(np.int64)
        return exact_metric(parse_aim(self.aim), labels, self._scores(self.estimator_, X), sample_weight)

    @property
    def threshold_(self) -> float | None:
        """The threshold of the operating point."""
        return self.operating_point_.threshold

    def get_metadata_routing(self) -> MetadataRouter:
        """Which metadata `fit` takes itself and hands to the classifier and to the splitter."""
        to_fit, to_split = (MethodMapping().add(caller="fit", callee=callee) for callee in ("fit", "split"))
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=to_fit).add(
            splitter=self.cv, method_mapping=to_split
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        inner = get_tags(self.estimator).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags

    # What comes in.

    def _check_options(self) -> Aim:
        aim = parse_aim(self.aim)
        checks.rule(not aim.label_counts(), "aim", "must have one target", repr(str(aim)))
        valid_confidence(self.confidence, aim)
        checks.choice("response_method", self.response_method, ("auto", *RESPONSES))
        checks.choice("on_no_threshold", self.on_no_threshold, ("negative", "raise"))
        checks.yes_or_no("refit", self.refit)
        needed = RESPONSES if self.response_method == "auto" else (self.response_method,)
        if not hasattr(self.estimator, "fit") or not any(hasattr(self.estimator, name) for name in needed):
            raise TypeError(f"estimator must have fit and {' or '.join(needed)}, got {self.estimator!r}")
        if isinstance(self.cv, (bool, str)) and self.cv != "prefit":
            raise ValueError(f'cv must be folds, a share in (0, 1), a splitter or "prefit", got {self.cv!r}')
        if isinstance(self.cv, Integral):
            checks.whole_number("cv", int(self.cv), at_least=2)
            checks.rule(self.refit, "refit", "must be True with folds, which leave no final model", self.refit)
            if self.confidence is not None:
                raise ValueError(f"{UNSEEN_ROWS}, got cv={self.cv}")
        elif isinstance(self.cv, Real):
            checks.in_range("cv", float(self.cv), 0, 1, open_low=True, open_high=True)
        return aim

    def _positive(self, y: np.ndarray) -> np.ndarray:
        """Which labels are of the positive class."""
        unknown = y[~np.isin(y, self.classes_)]
        checks.rule(unknown.size == 0, "y", f"must hold the classes {self.classes_.tolist()}", unknown[:1].tolist())
        return y == self.classes_[1]

    # Scores of rows that the model did not see.

    def _of_fitted(self, X: Any, y: np.ndarray) -> Choosing:
        """All rows, scored by the classifier that is fitted already."""
        check_is_fitted(self.estimator)
        self.estimator_ = self.estimator
        self.classes_ = np.asarray(self.estimator.classes_)
        checks.rule(self.classes_.shape == (2,), "estimator", "must know two classes", self.classes_.tolist())
        return Choosing(np.arange(len(y)), self._scores(self.estimator_, X), "the rows given to fit")

    def _of_splits(self, X: Any, y: np.ndarray, weights: Any, groups: Any, fit_params: dict[str, Any]) -> Choosing:
        """Held-out rows of every split, scored by the model of that split; fits the final model too."""
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"fit needs rows of 2 classes, got one class only: {self.classes_.tolist()}")
        to_fit, to_split = self._routed(weights, groups, fit_params)
        splits = self._splits(X, y, groups, to_split)
        models: Any = Parallel(n_jobs=self.n_jobs)(
            delayed(_fitted)(clone(self.estimator), X, y, to_fit, training) for training, _ in splits
        )
        rows = np.concatenate([held for _, held in splits])
        scores = [self._scores(model, _safe_indexing(X, held)) for model, (_, held) in zip(models, splits, strict=True)]
        again = self.refit and self.confidence is None
        self.estimator_ = _fitted(clone(self.estimator), X, y, to_fit, None) if again else models[0]
        source = "held-out rows" if len(splits) == 1 else f"out-of-fold scores of {len(splits)} folds"
        return Choosing(rows, np.concatenate(scores), source)

    def _splits(self, X: Any, y: np.ndarray, groups: Any, to_split: dict[str, Any]) -> list[tuple[Any, Any]]:
        """Rows that train and rows that are scored, for every split."""
        state = self.random_state
        if isinstance(self.cv, Integral):
            folds, least = int(self.cv), int(np.unique(y, return_counts=True)[1].min())
            checks.rule(least >= folds, f"cv={folds}", f"needs {folds} rows of each class", least)
            kind = StratifiedKFold if groups is None else StratifiedGroupKFold
            splits = list(kind(folds, shuffle=True, random_state=state).split(X, y, groups))
        elif isinstance(self.cv, Real):
            kind = StratifiedShuffleSplit if groups is None else GroupShuffleSplit
            splits = list(kind(1, test_size=float(self.cv), random_state=state).split(X, y, groups))
        else:
            splitter: Any = check_cv(self.cv, y, classifier=True)
            splits = list(splitter.split(X, y, **to_split))
        if len(splits) > 1:
            checks.rule(self.refit, "refit", "must be True with folds, which leave no final model", self.refit)
            if self.confidence is not None:
                raise ValueError(f"{UNSEEN_ROWS}, got {len(splits)} splits")
        for training, _ in splits:
            held_classes = np.unique(_safe_indexing(y, training)).tolist()
            both = "must leave rows of both classes to train on in every split"
            checks.rule(len(held_classes) == 2, "cv", both, f"only {held_classes}")
        return splits

    def _routed(self, weights: Any, groups: Any, fit_params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What goes to `fit` of the classifier and to `split` of the splitter."""
        if get_config()["enable_metadata_routing"]:
            given = {"sample_weight": weights, "groups": groups, **fit_params}
            routed = process_routing(self, "fit", **{name: value for name, value in given.items() if value is not None})
            return routed.estimator.fit, routed.splitter.split
        to_fit = dict(fit_params)
        if weights is not None and not any(name.endswith("sample_weight") for name in fit_params):
            if "sample_weight" not in signature(self.estimator.fit).parameters:
                raise ValueError(
                    f"sample_weight is not taken by {type(self.estimator).__name__}.fit: give it under the name of a "
                    "step too (step__sample_weight), or enable scikit-learn's metadata routing"
                )
            to_fit["sample_weight"] = weights
        return to_fit, {"groups": groups}

    def _scores(self, estimator: Any, X: Any) -> np.ndarray:
        """Scores of the positive class, `[n]`."""
        names = RESPONSES if self.response_method == "auto" else (self.response_method,)
        name = next((name for name in names if hasattr(estimator, name)), names[0])
        scores = np.asarray(getattr(estimator, name)(X))
        return scores[:, 1] if scores.ndim == 2 else scores

    # What comes out.

    def _decide(self, aim: Aim, y: np.ndarray, weights: np.ndarray | None, groups: Any, choosing: Choosing) -> None:
        """Choose the operating point and keep the curve that it lies on."""
        labels = self._positive(y[choosing.rows])
        known = None if weights is None else weights[choosing.rows]
        together = None if groups is None else np.asarray(groups)[choosing.rows]
        scores = choosing.scores.astype(np.float64)
        self.curve_ = cumulate(labels, scores, np.ones(len(labels)) if known is None else known)
        self.operating_point_ = decided_point(
            labels, scores, aim, self.confidence, sample_weight=known, groups=together, source=choosing.source
        )
        warn_of_weak_claims([self.operating_point_])


def _fitted(estimator: Any, X: Any, y: np.ndarray, fit_params: dict[str, Any], rows: Any) -> Any:
    """The estimator, fitted on some rows, or on all for None."""
    if rows is None:
        return estimator.fit(X, y, **fit_params)
    params = _check_method_params(X, fit_params, indices=rows)
    return estimator.fit(_safe_indexing(X, rows), _safe_indexing(y, rows), **params)
