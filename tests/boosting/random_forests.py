"""Random LightGBM forests of every kind, with missing values, zeros and categories, for the tests of the package."""

from typing import NamedTuple

import numpy as np


class Case(NamedTuple):
    """A trained booster, which of its features are categorical, and rows that it was not trained on."""

    booster: object
    categories: list[int]
    features: np.ndarray


def random_case(seed: int, *, rows: int = 300) -> Case:
    lightgbm = __import__("lightgbm")
    rng = np.random.default_rng(seed)
    num_features = int(rng.integers(1, 8))
    categories = [column for column in range(num_features) if rng.random() < 0.3]
    num_categories = int(rng.integers(2, 90))
    train, other = (_features(rng, rows, num_features, categories, num_categories) for _ in range(2))
    # A few categories and sizes that training never had.
    for column in categories:
        odd = rng.integers(0, rows, 12)
        other[odd, column] = rng.choice([-3, -0.5, 0.7, num_categories + 5, 1000, 1e12, np.inf, -np.inf], 12)
    linear = np.nan_to_num(train) @ rng.normal(size=num_features)
    labels = (linear + rng.normal(size=rows) > np.median(linear)).astype(int)
    data = lightgbm.Dataset(train, labels, weight=rng.random(rows) + 0.1, categorical_feature=categories)
    return Case(lightgbm.train(_settings(rng), data, int(rng.integers(1, 20))), categories, other)


def _settings(rng: np.random.Generator) -> dict:
    boosting = str(rng.choice(["gbdt", "gbdt", "gbdt", "dart", "rf"]))
    return {
        "objective": str(rng.choice(["binary", "regression"])),
        "boosting": boosting,
        "num_leaves": int(rng.integers(2, 32)),
        # Now and then no leaf may be as small as half of the rows, so the trees are single leaves.
        "min_data_in_leaf": int(rng.choice([1, 3, 10, 250], p=[0.3, 0.3, 0.35, 0.05])),
        "use_missing": bool(rng.random() < 0.8),
        "zero_as_missing": bool(rng.random() < 0.3),
        "max_cat_to_onehot": int(rng.choice([1, 4, 100])),
        "min_data_per_group": 1,
        "cat_smooth": 1.0,
        "bagging_fraction": 0.7 if boosting == "rf" else 1.0,
        "bagging_freq": 1 if boosting == "rf" else 0,
        "seed": int(rng.integers(1000)),
        "num_threads": 1,
        "verbose": -1,
    }


def _features(rng, rows, num_features, categories, num_categories) -> np.ndarray:
    features = np.round(rng.normal(size=(rows, num_features)) * 3, int(rng.integers(0, 6)))
    for column in categories:
        features[:, column] = rng.integers(0, num_categories, rows)
    holes = rng.random(features.shape)
    features[holes < 0.1 * rng.integers(0, 3)] = np.nan
    features[holes > 0.9] = rng.choice([0.0, -0.0, 1e-40, -1e-36, 1e-35, 2e-35])
    return features
