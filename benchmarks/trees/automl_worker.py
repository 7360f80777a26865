"""One fit of AutoGluon or CatBoost, in their own environment.

    python automl_worker.py METHOD SECONDS ROWS.npz SCORES.npy

Seconds are those of the processor, so that a busy machine does not decide. It imports nothing of ours: that environment
has neither torch nor aimfor. automl.py calls it.
"""

import sys
import tempfile
import time

import numpy as np
import pandas as pd

# AutoGluon asks this clock how much of its time is left.
time.time = time.process_time


def frame(rows, part: str) -> pd.DataFrame:
    """Numbers and categories as columns."""
    numbers, categories = rows[f"{part}_numbers"], rows[f"{part}_categories"]
    columns = {f"number {place}": numbers[:, place] for place in range(numbers.shape[1])}
    columns |= {f"category {place}": categories[:, place].astype(object) for place in range(categories.shape[1])}
    return pd.DataFrame(columns)


def autogluon(train: pd.DataFrame, labels: np.ndarray, test: pd.DataFrame, seconds: float) -> np.ndarray:
    from autogluon.tabular import TabularPredictor

    with tempfile.TemporaryDirectory() as folder:
        predictor = TabularPredictor("label", eval_metric="average_precision", path=folder, verbosity=0)
        predictor.fit(train.assign(label=labels), presets="medium_quality", time_limit=seconds, num_cpus=1, num_gpus=0)
        return predictor.predict_proba(test, as_multiclass=False).to_numpy()


class Deadline:
    """Ends CatBoost's training after some seconds."""

    def __init__(self, seconds: float):
        self.end = time.process_time() + seconds

    def after_iteration(self, _: object) -> bool:
        return time.process_time() < self.end


def catboost(train: pd.DataFrame, labels: np.ndarray, test: pd.DataFrame, seconds: float) -> np.ndarray:
    from catboost import CatBoostClassifier

    categories = [column for column in train if column.startswith("category")]
    model = CatBoostClassifier(thread_count=1, random_seed=0, verbose=False, allow_writing_files=False)
    model.fit(train, labels, cat_features=categories, callbacks=[Deadline(seconds)])
    return model.predict_proba(test)[:, 1]


def main() -> None:
    method, seconds, source, target = sys.argv[1:]
    with np.load(source) as rows:
        train, labels, test = frame(rows, "train"), rows["train_labels"], frame(rows, "test")
    fit = {"AutoGluon": autogluon, "CatBoost": catboost}[method]
    np.save(target, fit(train, labels, test, float(seconds)))


if __name__ == "__main__":
    main()
