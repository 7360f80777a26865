"""Serve: scikit-learn estimators that train for an aim and decide at an operating point chosen on held-out rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from aimfor._base import checks
from aimfor.aims import Aim, exact_metric, one_hot
from aimfor.aims import aim as parse_aim
from aimfor.estimator._decisions import (
    Scored,
    against,
    chances,
    curves_of,
    decided,
    kept,
    marked,
    points_of,
    staying,
    with_room,
)
from aimfor.estimator._holdout import TRAINED, LabelledRows, divided
from aimfor.estimator._inputs import Intake
from aimfor.estimator._progress import Progress
from aimfor.operating_points import OperatingPoint
from aimfor.solvers import solve_by_lp, solve_by_search, warn_of_infeasible
from aimfor.training import (
    OF_CONSTANTS,
    Candidate,
    Contest,
    Data,
    FeatureRows,
    Heads,
    Layers,
    Modules,
    Objectives,
    Observer,
    Recipe,
    Scaling,
    compete,
    module_maker,
    one_thread,
    ranked,
    seeded,
    train_one,
)


class Classifier(Intake):
    """A classifier trained for the number it is judged by, with the threshold that goes with it.

    By default it never bets on one recipe: log-loss, the aim and its area are trained as heads of one model, the exact
    metric and the area on held-out rows choose among them, and log-loss is left only for more than the noise of those
    rows. The threshold is then chosen on the same rows, with a confidence on a half that the choice did not see.

    Args:
        aim: an aim record or its text, such as "recall@precision>=0.9".
        model: "linear", "mlp", an `nn.Module` for `[B, D]` float32 rows with one output per label (it is copied), or a
            function without arguments that makes one.
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
            Half of the rows held back then choose among candidates, the other half the threshold (all of them with an
            exact solver, which has nothing to choose). Needs an aim with a constraint, and rows held back.
        calibrate: fit probabilities on the validation rows, for `predict_proba`: True, "isotonic" or "logistic".
        steps: batches that each stage trains for.
        batch_size: rows of a batch; "auto" for 256 with "mlp", else 512.
        learning_rate: of Adam at the start, from where it falls to 0 along a half cosine; "auto" for 0.02 with "mlp",
            else 0.01.
        weight_decay: of a linear model the weight of half the squared weights in the loss, of others that of AdamW;
            "auto" tries several with log-loss.
        patience: looks at the validation rows (eight in a stage) without any candidate getting better, after which the
            stage ends.
        device: where training runs.
        random_state: seed, or numpy `RandomState`, of split, start, order and what a module draws; an int gives
            identical results.
        verbose: show progress with the exact validation metric and the violation.

    Attributes:
        classes_: labels in sorted order; of two, the second is the positive one. For multi-label y, 0..L-1.
        operating_point_: `OperatingPoint`, or a tuple with one per label or class.
        threshold_: its threshold on the raw score, None where none qualifies; an array (nan for None) for many.
        history_: one dict per candidate: name, value of the exact metric on the validation rows, merit by which it was
            compared, step, whether it was chosen. Of an exact solver: name, objective, violation, feasible, chosen; of
            `partial_fit` one more per call: name, rows.
        n_features_in_, feature_names_in_: of the rows given to `fit`.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(400, weights=[0.9], random_state=0)
        >>> model = Classifier("recall@precision>=0.8", steps=200, random_state=0).fit(X, y)
        >>> model.predict(X[:3]).shape
        (3,)
    """

    operating_point_: Any

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        validation_data: tuple[Any, ...] | None = None,
    ) -> Classifier:
        """Train the candidates, keep one, and choose its operating point.

        Args:
            X: `[n, D]`, dense or SciPy sparse (never made dense), finite.
            y: `[n]` of two or more classes, or `[n, L]` of 0/1 for several labels.
            sample_weight: `[n]`, at least 0; a row of weight 0 is as good as absent.
            validation_data: `(X, y)` or `(X, y, sample_weight)` held out by the caller, instead of a part of the rows;
                both classes of a label must be there. A `Pipeline` hands it over as it is: its X must have gone
                through the steps before.

        Returns:
            Itself.
        """
        if self.verbose:
            with Progress(str(self.aim)) as observer:
                self.fit_supervised(X, y, sample_weight, validation_data, observer)
        else:
            self.fit_supervised(X, y, sample_weight, validation_data, Observer())
        return self

    def fit_supervised(
        self, X: Any, y: Any, sample_weight: Any, validation_data: tuple[Any, ...] | None, observer: Observer
    ) -> Contest | None:
        """`fit` for those who keep its state, stop it or compare its candidates; the contest, None with a solver."""
        with self._unchanged_on_error({}):
            return self._fit(X, y, sample_weight, validation_data, observer)

    @contextmanager
    def _unchanged_on_error(self, copies: dict[str, Any]) -> Iterator[None]:
        """Inside, what was fitted before still is when something goes wrong, also when it is interrupted.

        Args:
            copies: attributes that are changed in place, as they were.
        """
        before = {**vars(self), **copies}
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    @torch.inference_mode(False)  # whatever the caller is in, as training needs gradients
    def _fit(
        self, X: Any, y: Any, sample_weight: Any, validation_data: tuple[Any, ...] | None, observer: Observer
    ) -> Contest | None:
        aim = self.check_options()
        X, labels, weights = self._check_rows(X, y, sample_weight)
        outputs = self.targets_.num_outputs
        for count in aim.label_counts():
            checks.rule(count == outputs, "aim", f"must have one target per label ({outputs})", count)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        whole = LabelledRows(X, labels, weights)
        if validation_data is not None:
            if not isinstance(validation_data, (tuple, list)) or len(validation_data) not in (2, 3):
                raise TypeError("validation_data must be (X, y) or (X, y, sample_weight), got something else")
            held_out = self._check_validation(*validation_data)
            fitted = whole = whole._replace(source=TRAINED)
        else:
            fitted, held_out = divided(whole, self.validation_fraction, seed)
        self._check_confidence(held_out, trained_on=held_out is fitted)
        choosing, held_out = self.share_out(held_out)
        self.scaling_ = Scaling.of(X, fitted.index, fitted.weights)
        if self.solver == "sgd":
            # Those models draw nothing while they train, and their batches are small.
            known = isinstance(self.model, str)
            with one_thread(known), seeded(seed, not known):
                contest = compete(
                    self._make_heads,
                    aim,
                    self._data(fitted),
                    self._data(choosing),
                    multiclass=self.targets_.multiclass,
                    single=self._single_recipe(aim),
                    restarts=self.restarts,
                    decays=self._decays(outputs),
                    budget=self._budget(),
                    seed=seed,
                    observer=observer,
                )
            self.keep_candidate(contest.candidates[contest.chosen])
            self.history_ = _history(contest.candidates, contest.chosen, aim)
        else:
            contest = None
            self._solve(aim, fitted)
        self._decide(aim, held_out, whole)
        for name in ("running_", "seen_"):  # what partial_fit was about was another model
            vars(self).pop(name, None)
        return contest

    @available_if(lambda self: self.solver == "sgd")
    @torch.inference_mode(False)
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
        before = copy.deepcopy({name: value for name, value in vars(self).items() if name in ("model_", "running_")})
        with self._unchanged_on_error(before):
            self._go_on(X, y, classes, sample_weight)
        return self

    def _go_on(self, X: Any, y: Any, classes: ArrayLike | None, sample_weight: Any) -> None:
        aim = self.check_options()
        first = not hasattr(self, "model_")
        X, labels, weights = self._check_rows(X, y, sample_weight, classes=classes, first=first)
        part = LabelledRows(X, labels, weights, source="the rows of the last partial_fit, trained on")
        weight_before, rows_before = vars(self).get("seen_", (0.0, 0))
        weight_here = float(len(labels) if weights is None else weights.sum())
        self.seen_ = weight_before + weight_here, rows_before + len(labels)
        self._check_confidence(part, trained_on=True)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if first:
            self.scaling_ = Scaling.of(X, None, weights).before_more_rows()
            self.model_ = self._make_heads(1, seed)
            self.history_ = []
        recipe = self._single_recipe(aim) or Recipe(aim, "hinge", decay=self._decays(self.targets_.num_outputs)[0])
        data, budget = self._data(part, self.seen_[0] / self.seen_[1]), self._budget()
        if not hasattr(self, "running_") or self.running_[0] != recipe:  # another aim starts its multipliers anew
            self.model_ = self.model_.float()
            objectives = Objectives([recipe], self.model_.num_labels, data, self.targets_.multiclass)
            self.running_ = recipe, objectives, torch.optim.Adam(self.model_.parameters(), lr=budget.rate)
        for group in self.running_[2].param_groups:
            group["lr"] = budget.rate
        with seeded(seed, not isinstance(self.model, str)):
            train_one(self.model_.float(), *self.running_, data, budget.batch_size, seed)
        self.history_ = [*self.history_, {"name": self.running_[0].name, "rows": len(labels)}]
        earlier = () if first else (self.operating_point_,) if self.targets_.one_label else self.operating_point_
        self._decide(aim, part, part, earlier)

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
        return self._raw_of(self._check_features(X))

    def predict(self, X: Any) -> np.ndarray:
        """Decisions at the operating point; the class of the highest score where there are more than two.

        Args:
            X: `[n, D]`.

        Returns:
            `[n]` of `classes_`, or `[n, L]` of 0/1.

        Raises:
            ValueError: where no threshold qualified, with the label; `decision_function` still ranks.
        """
        raw = self.raw_scores(X)
        if self.targets_.multiclass:
            return self.classes_[raw.argmax(1)]
        if self.targets_.one_label:
            return self.classes_[self.operating_point_.predict(raw[:, 0])]
        return decided(self.operating_point_, raw)

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

    @property
    def coef_(self) -> np.ndarray:
        """Weights of a linear model on the features as they came, `[L, D]`."""
        return self._folded()[0]

    @property
    def intercept_(self) -> np.ndarray:
        """Offsets of a linear model, `[L]`; the operating threshold is apart."""
        return self._folded()[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = self.solver == "sgd"
        tags.classifier_tags.multi_class = self.solver == "sgd"
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = self.solver == "sgd"
        return tags

    # What comes in.

    def _data(self, part: LabelledRows, mean_weight: float | None = None) -> Data:
        """Rows as they are trained on; the weights are over their mean, or over that of all rows that there are."""
        own = part.labels[:, 0] if self.targets_.multiclass else part.labels
        weights = part.weights
        if weights is None and mean_weight not in (None, 1.0):
            weights = np.ones(len(own))
        if weights is not None:
            # Only their proportions matter, and single precision must hold them.
            largest = weights.max()
            weights = weights / largest
            weights = weights / (weights.mean() if mean_weight is None else mean_weight / largest)
        known = None if weights is None else torch.from_numpy(weights.astype(np.float32))
        return Data(FeatureRows(part.X, self.scaling_, self.device, index=part.index), torch.from_numpy(own), known)

    # What comes out.

    def _make_heads(self, num_heads: int, seed: int) -> Heads:
        outputs = self.targets_.num_outputs
        generator = torch.Generator().manual_seed(seed)
        if isinstance(self.model, str):
            sizes = tuple(self.hidden_layer_sizes) if self.model == "mlp" else ()
            heads: Heads = Layers(num_heads, self.n_features_in_, outputs, sizes, generator)
        else:
            with seeded(seed):
                heads = Modules(num_heads, outputs, module_maker(self.model))
        return heads.to(self.device).eval()

    def keep_candidate(self, candidate: Candidate) -> None:
        """Score with the weights of this candidate from now on; the operating point is left as it is."""
        self.model_ = self._make_heads(1, 0)
        self.model_.set_head_(0, candidate.tensors)

    def _solve(self, aim: Aim, fitted: LabelledRows) -> None:
        """The optimum of the relaxed problem, as a model that scales like the others."""
        X, labels, weights = fitted.taken()
        checks.rule(self.targets_.one_label, "y", f"must have one label for solver {self.solver!r}", len(self.classes_))
        if self.solver == "lp":
            solution = solve_by_lp(X, labels[:, 0], weights, aim)
        else:
            surrogate = "hinge" if self.surrogate == "auto" else self.surrogate
            decay = 1e-4 if self.weight_decay == "auto" else float(self.weight_decay)
            solution = solve_by_search(X, labels[:, 0], weights, aim, surrogate=surrogate, decay=decay)
        warn_of_infeasible(aim, solution)
        # Scores are those of centred features, as of every model: far from 0, rows would be rounded to one score.
        self.model_ = self._make_heads(1, 0).double()
        weight = torch.from_numpy(solution.weight * self.scaling_.scale)[:, None]
        tensors = {"weights.0": weight, "offsets.0": torch.zeros(1)}
        self.model_.set_head_(0, tensors)
        found = {"objective": solution.objective, "violation": solution.violation, "feasible": solution.feasible}
        self.history_ = [{"name": f"{aim}, solver {self.solver}", **found, "chosen": True}]

    def _decide(
        self, aim: Aim, held_out: LabelledRows, whole: LabelledRows, earlier: Sequence[OperatingPoint] = ()
    ) -> None:
        """Choose thresholds, and curves of the chances, on rows held out; on all for a label that lacks a class there.

        Args:
            aim: what the model is judged by.
            held_out: rows that choose.
            whole: all rows.
            earlier: the operating points so far, where training went on.
        """
        curves_before = vars(self).pop("calibration_", [])  # of an earlier fit
        rows = [self._scored(held_out, held_out.source)] * self.targets_.num_outputs
        if self.targets_.several and self.confidence is None:
            rare = (held_out.labels.min(0) == held_out.labels.max(0)) & (whole.labels.min(0) < whole.labels.max(0))
            if rare.any():
                others = self._scored(whole, f"{whole.source}, {held_out.source} lacking a class")
                rows = [others if is_rare else one for one, is_rare in zip(rows, rare, strict=True)]
        points = points_of(aim, rows, self.confidence)
        if not self._scores_exactly():
            points = tuple(with_room(one, rows[label].scores[:, label]) for label, one in enumerate(points))
        if self.targets_.several:
            points = marked(points, whole.labels, earlier)
        stays = staying(rows, earlier)
        points = kept(stays, earlier, points)
        self.operating_point_ = points[0] if self.targets_.one_label else points
        found = [math.nan if point.threshold is None else point.threshold for point in points]
        self.threshold_ = points[0].threshold if self.targets_.one_label else np.array(found)
        if self.calibrate:
            stays = [one and bool(curves_before) for one in stays]
            self.calibration_ = list(kept(stays, curves_before, curves_of(self.calibrate, rows)))

    def _scored(self, part: LabelledRows, source: str) -> Scored:
        labels = one_hot(part.labels, len(self.classes_)) if self.targets_.multiclass else part.labels
        return Scored(labels, self._raw_of(part.X, part.index), part.weights, source)

    def _raw_of(self, X: Any, index: np.ndarray | None = None) -> np.ndarray:
        # In double and then rounded to single, a row has one score whichever rows come with it: matrix products round
        # differently with the number of rows, and a threshold is the score of a row.
        exact = self._scores_exactly()
        model = self.model_.double() if exact else self.model_
        scores = model.scores(
            FeatureRows(X, self.scaling_, self.device, torch.float64 if exact else torch.float32, index)
        )
        return ranked(scores, self.targets_.multiclass)[:, 0].float().double().numpy()

    def _scores_exactly(self) -> bool:
        """Whether it is a model of ours, which can be scored in double precision; another's may not bear that."""
        return isinstance(self.model_, Layers)

    def _folded(self) -> tuple[np.ndarray, np.ndarray]:
        if self.model != "linear":
            raise AttributeError(f'coef_ and intercept_ exist for model "linear" only, got {self.model!r}')
        check_is_fitted(self, "model_")
        tensors = self.model_.head(0)
        weight, offset = (tensors[name].double().cpu().numpy() for name in ("weights.0", "offsets.0"))
        mean, scale = self.scaling_
        coefficients = np.where(scale < OF_CONSTANTS, (weight / scale[:, None]).T, 0.0)
        return coefficients, offset if mean is None else offset - coefficients @ mean


def _history(candidates: list[Candidate], chosen: int, aim: Aim) -> list[dict[str, Any]]:
    sign = 1 if aim.greater_is_better else -1
    return [
        {
            "name": one.recipe.name,
            "value": sign * one.value,
            "merit": one.merit,
            "step": one.step,
            "chosen": index == chosen,
        }
        for index, one in enumerate(candidates)
    ]
