"""The search: log-loss forests with settings drawn at random, each kept at its best round on held-out rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from aimfor._base.checks import all_entries, rule, whole_number
from aimfor._base.extras import import_lightgbm
from aimfor.boosting._forest import Forest
from aimfor.boosting._lightgbm import from_lightgbm

if TYPE_CHECKING:
    import lightgbm

# What a forest is drawn from: measured on 13 tables, see docs/boosting.md.
LEAVES, ROWS_IN_LEAF = (4, 8, 15, 31), (5, 10, 20, 50)
RATES_AND_ROUNDS = ((0.05, 200), (0.1, 120), (0.2, 60))
FEATURE_FRACTIONS, L2, ROW_FRACTIONS = (0.5, 0.75, 1.0), (0.0, 1.0, 10.0), (0.7, 1.0)
# Up to so many categories a split parts one category from all others, beyond it sets of categories from one another.
# Sets suit some tables and overfit others, see docs/boosting.md, so it is drawn; without categories it does nothing.
CATEGORIES_ALONE = (4, 2**16)
# Training ends when this share of the rounds has brought no lower log-loss on the validation rows.
PATIENCE = 1 / 4
# LightGBM converts categories to 32-bit whole numbers.
LARGEST_CATEGORY = 2**31 - 1


class Sample(NamedTuple):
    """Rows of a table with one label.

    Attributes:
        features: `[n, D]` floats, NaN where missing; or SciPy CSR, whose absent entries are 0.
        labels: `[n]`, 0 or 1.
        weights: `[n]`, at least 0; None means 1.
    """

    features: Any
    labels: np.ndarray
    weights: np.ndarray | None = None


class FoundForest(NamedTuple):
    """A forest of the search.

    Attributes:
        place: its number in the search, from 0.
        settings: of LightGBM, with "rounds" as the most rounds that it might take.
        forest: the trees up to the best round.
        scores: `[n]`, raw scores (log-odds) of the validation rows.
        log_loss: weighted mean on the validation rows.
    """

    place: int
    settings: dict[str, Any]
    forest: Forest
    scores: np.ndarray
    log_loss: float


def search(
    training: Sample,
    validation: Sample,
    *,
    categories: Sequence[int] = (),
    seed: int = 0,
    forests: int = 12,
    stored: Mapping[int, Forest] | None = None,
    deadline: float | None = None,
) -> Iterator[FoundForest]:
    """Train log-loss forests with LightGBM, one after the other.

    A forest depends on the rows, on `seed` and on its place alone. So a search that was stopped goes on to the same
    forests if it gets those that were finished; and it does not matter how many threads torch may use, which LightGBM
    uses too. Weights count relative to their mean, and rows of weight 0 take no part.

    Args:
        training: rows to train on, with both classes.
        validation: rows that choose the round of each forest.
        categories: columns whose numbers are categories: whole numbers of at least 0, or NaN.
        seed: of the settings and of LightGBM.
        forests: how many to train.
        stored: finished forests by their place, which are not trained again.
        deadline: when to stop, in seconds of `time.monotonic()`. The forest in training is dropped then, unless it is
            the first, which is kept at its best round so far.

    Returns:
        An iterator that yields each forest as soon as it is trained, in the order of their places. Between two forests
        the caller may report progress, store what came, or stop. `list(search(...))` gives all of them.

    Raises:
        ValueError: where rows or options are not as above.
        ModuleNotFoundError: where LightGBM is not installed.
    """
    whole_number("forests", forests, at_least=1)
    training, validation = _of_both_classes(training, categories), _checked(validation, categories)
    data = _Data(training, validation, list(categories))
    stored = stored or {}
    return _found(data, validation, seed, range(forests), stored, deadline)


def _found(
    data: _Data,
    validation: Sample,
    seed: int,
    places: range,
    stored: Mapping[int, Forest],
    deadline: float | None,
) -> Iterator[FoundForest]:
    for place in places:
        settings = settings_of(seed, place)
        forest = stored.get(place) or _train(data, settings, deadline, place == 0)
        if forest is None:
            return
        scores = forest.scores(validation.features)
        yield FoundForest(place, settings, forest, scores, _log_loss(scores, validation))


def retrain(
    rows: Sample,
    forests: Mapping[int, Forest],
    *,
    categories: Sequence[int] = (),
    seed: int = 0,
    deadline: float | None = None,
) -> Iterator[tuple[int, Forest]]:
    """Train forests of a search again, each with its settings and for as many rounds as it has.

    The validation rows of a search chose the rounds. Once nothing is left to choose they can train as well.

    Args:
        rows: to train on, with both classes; as a rule those of the search, training and validation.
        forests: by their place in the search.
        categories: as in `search`.
        seed: of the search.
        deadline: when to stop, in seconds of `time.monotonic()`; the forest in training is dropped then.

    Returns:
        An iterator that yields places and forests in the order of `forests`.

    Raises:
        ValueError: where rows are not as above.
    """
    data = _Data(_of_both_classes(rows, categories), None, list(categories))
    return _again(data, seed, forests, deadline)


def _again(
    data: _Data, seed: int, forests: Mapping[int, Forest], deadline: float | None
) -> Iterator[tuple[int, Forest]]:
    for place, forest in forests.items():
        booster = data.booster(settings_of(seed, place))
        for _ in range(forest.num_trees):
            if deadline is not None and time.monotonic() > deadline:
                return
            no_more_splits = booster.update()
            if no_more_splits:
                break
        yield place, from_lightgbm(booster)


def settings_of(seed: int, place: int) -> dict[str, Any]:
    """The settings of the forest at this place of the search with this seed."""
    rng = np.random.default_rng([seed, place])
    rate, rounds = RATES_AND_ROUNDS[rng.integers(len(RATES_AND_ROUNDS))]
    return {
        "objective": "binary",
        "num_leaves": int(rng.choice(LEAVES)),
        "min_data_in_leaf": int(rng.choice(ROWS_IN_LEAF)),
        "learning_rate": rate,
        "rounds": rounds,
        "feature_fraction": float(rng.choice(FEATURE_FRACTIONS)),
        "lambda_l2": float(rng.choice(L2)),
        "bagging_fraction": float(rng.choice(ROW_FRACTIONS)),
        "bagging_freq": 1,
        "seed": int(rng.integers(2**31)),
        "max_cat_to_onehot": int(rng.choice(CATEGORIES_ALONE)),
        # Sums of the same order whatever the threads, and no trial runs that choose by the clock.
        "deterministic": True,
        "force_row_wise": True,
    }


class _Data:
    """Rows binned once for all forests."""

    def __init__(self, training: Sample, validation: Sample | None, categories: list[int]):
        library = import_lightgbm()
        self.validation_rows = None
        self.threads = torch.get_num_threads()
        # Columns that cannot be split with 50 rows in a leaf may be split with 5.
        options = {"feature_pre_filter": False, "verbose": -1, "num_threads": self.threads, "deterministic": True}
        self.training_rows = library.Dataset(
            training.features, training.labels, weight=training.weights, categorical_feature=categories, params=options
        )
        if validation is None:
            return
        self.validation_rows = self.training_rows.create_valid(
            validation.features, validation.labels, weight=validation.weights, params=options
        ).construct()  # now, as a booster gives its settings to the rows that it is made with

    def booster(self, settings: Mapping[str, Any]) -> lightgbm.Booster:
        """One that has no trees yet."""
        own = {name: value for name, value in settings.items() if name != "rounds"}
        threads = {"num_threads": self.threads, "verbose": -1, "feature_pre_filter": False}
        booster = import_lightgbm().Booster({**own, **threads, "metric": "binary_logloss"}, self.training_rows)
        if self.validation_rows is not None:
            booster.add_valid(self.validation_rows, "validation")
        return booster


def _train(data: _Data, settings: Mapping[str, Any], deadline: float | None, is_first: bool) -> Forest | None:
    """A forest up to its best round; None where the deadline came first, unless this is the first forest."""
    booster = data.booster(settings)
    best_loss, best_round = np.inf, 1
    for number in range(1, settings["rounds"] + 1):
        if deadline is not None and time.monotonic() > deadline and not (is_first and number == 1):
            if not is_first:
                return None
            break
        no_more_splits = booster.update()
        if no_more_splits:
            break
        loss = booster.eval_valid()[0][2]
        if loss < best_loss:
            best_loss, best_round = loss, number
        elif number - best_round >= PATIENCE * settings["rounds"]:
            break
    return from_lightgbm(booster, num_iteration=best_round)


def _log_loss(scores: np.ndarray, rows: Sample) -> float:
    losses = np.logaddexp(0, np.where(rows.labels == 1, -scores, scores))
    return float(np.average(losses, weights=rows.weights))


def _checked(rows: Sample, categories: Sequence[int]) -> Sample:
    """Rows with weight, whose weights have mean 1."""
    features = rows.features if hasattr(rows.features, "tocsr") else np.asarray(rows.features)
    rule(features.ndim == 2, "features", "must have shape [n, D]", list(features.shape))
    count, width = features.shape
    labels = np.asarray(rows.labels)
    rule(labels.shape == (count,), "labels", f"must have one entry for each of the {count} rows", labels.size)
    all_entries("labels", labels, (labels == 0) | (labels == 1), "0 or 1")
    for column in categories:
        rule(0 <= column < width, "categories", "must be a column of the features", column)
        _check_category(features, column)
    if rows.weights is None:
        return Sample(features, labels)
    weights = np.asarray(rows.weights, np.float64)
    rule(weights.shape == (count,), "weights", f"must have one entry for each of the {count} rows", weights.size)
    all_entries("weights", weights, np.isfinite(weights) & (weights >= 0), "finite and >= 0")
    present = weights > 0
    if not present.all():
        features, labels, weights = features[present], labels[present], weights[present]
    return Sample(features, labels, weights / weights.mean() if len(weights) else weights)


def _of_both_classes(rows: Sample, categories: Sequence[int]) -> Sample:
    rows = _checked(rows, categories)
    positives = int(np.count_nonzero(rows.labels))
    rule(
        0 < positives < len(rows.labels),
        "training labels",
        "must have both classes among rows with weight",
        np.unique(rows.labels),
    )
    return rows


def _check_category(features: Any, column: int) -> None:
    numbers = features[:, [column]].toarray() if hasattr(features, "tocsr") else features[:, column]
    known = numbers[~np.isnan(numbers)]
    valid = (known >= 0) & (known <= LARGEST_CATEGORY) & (known == np.floor(known))
    rule(bool(valid.all()), f"column {column}", "must hold whole numbers of at least 0, or NaN", known[~valid][:1])
