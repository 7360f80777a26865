"""The forests of all labels: searched place after place, kept for a resume, on the rows that memory holds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from aimfor._base import checks
from aimfor._base.splitting import chunks
from aimfor._base.stored_rows import StoredRows
from aimfor._base.warnings import ThinnedRowsWarning
from aimfor.boosting import Forest, ForestAverage, Sample, search
from aimfor.model_kinds._kind import Task
from aimfor.model_kinds._table_columns import TableColumns
from aimfor.training import Data, Evaluation, JudgedRows, Observer, SavedState, resuming

STAGE = "forests"
# Forests of a search for one label, and of all labels together: with more labels each gets fewer.
FORESTS, MOST_FORESTS = 12, 144
LEAST_FORESTS = 2
FLOAT = 4  # bytes of a number
# The share of the memory that rows which choose the rounds may take, beside those that train.
CHOOSING = 1 / 4


class ForestSearch:
    """The forests of all labels, searched one place after the other, and kept where the observer keeps states.

    Args:
        task: the problem with its rows.
        observer: follows training.
        judged: the validation rows, as the aim judges them.
    """

    def __init__(self, task: Task, observer: Observer, judged: JudgedRows):
        self.task, self.observer, self.judged = task, observer, judged
        self.num_labels = task.problem.num_outputs
        self.count = min(FORESTS, max(LEAST_FORESTS, MOST_FORESTS // self.num_labels))
        self.found: list[dict[int, Forest]] = [{} for _ in range(self.num_labels)]
        self.best = -math.inf

    def run(self) -> list[list[Forest]]:
        """For each label its forests, as many as were trained for every label."""
        if (state := self.observer.saved(STAGE)) is not None:
            with resuming(STAGE):
                self._restore(state)
        training = in_memory(self.task, self.task.data, self.task.memory, "train on")
        choosing = in_memory(
            self.task, self.task.validation, int(CHOOSING * self.task.memory), "choose their rounds on"
        )
        searches = [
            self._forests_of(label, training.of_label(label), choosing.of_label(label))
            for label in range(self.num_labels)
        ]
        # Place after place, so that a stop leaves the same number of forests to every label.
        for place in range(self.count):
            if place and self.observer.should_stop():
                break
            row = [next(one, None) for one in searches]
            if any(forest is None for forest in row):
                break
            for label, forest in enumerate(row):
                assert forest is not None
                self.found[label][place] = forest
            self._report(place)
        done = range(min(len(forests) for forests in self.found))
        return [[forests[place] for place in done] for forests in self.found]

    def _forests_of(self, label: int, training: Sample, choosing: Sample) -> Iterator[Forest]:
        if len(np.unique(training.labels)) < 2:  # nothing can be learned of it
            # A new one each time: tensors that share memory cannot be saved.
            yield from (constant_forest(training.features.shape[1], training.labels) for _ in range(self.count))
            return
        columns = self.task.problem.columns
        # With several labels the deadline is asked between places, so that each label gets a first forest.
        found = search(
            training,
            choosing,
            categories=() if columns is None else columns.categorical,
            seed=self.task.seed + label,
            forests=self.count,
            stored=dict(self.found[label]),
            deadline=self.task.deadline,
        )
        yield from (one.forest for one in found)

    def _report(self, place: int) -> None:
        self.observer.on_batch_end(STAGE, place + 1, self.count)
        columns, rows = self.task.problem.columns, self.task.validation.rows
        own = [plain_average([forests[place]]) for forests in self.found]
        value = self.judged.judge(forest_scores(own, columns, rows.features, rows.index)).value
        nan = float("nan")
        evaluation = Evaluation(STAGE, f"forest {place + 1}", place + 1, value, nan, nan, nan, nan, nan)
        self.best = max(value, self.best)
        self.observer.on_evaluation([evaluation], self.best)
        self.observer.save(STAGE, state_of(self.found, {"forests": place + 1}))

    def _restore(self, state: SavedState) -> None:
        self.found = restored(self.task, state)
        count = state.facts["forests"]  # may be anything, so nothing is made of this size
        for forests in self.found:
            first = len(forests) == count and set(forests) == set(range(len(forests)))
            checks.rule(first, "the forests", f"must be the first {str(count)[:20]}", sorted(forests))


def state_of(found: Sequence[Mapping[int, Forest]], facts: dict[str, Any]) -> SavedState:
    """The forests of each label by their place, to be kept."""
    tensors = {
        f"{label}.{place}.{name}": tensor
        for label, forests in enumerate(found)
        for place, forest in forests.items()
        for name, tensor in forest.to_tensors().items()
    }
    return SavedState(facts, tensors)


def restored(task: Task, state: SavedState) -> list[dict[int, Forest]]:
    """The forests that `state_of` kept."""
    problem = task.problem
    width = problem.num_features if problem.columns is None else len(problem.columns.columns)
    of_forest: dict[tuple[int, int], dict[str, Tensor]] = {}
    for key, tensor in state.tensors.items():
        label, place, name = key.split(".")
        of_forest.setdefault((int(label), int(place)), {})[name] = tensor
    found: list[dict[int, Forest]] = [{} for _ in range(problem.num_outputs)]
    for (label, place), tensors in sorted(of_forest.items()):
        forest = Forest.from_tensors(tensors)
        checks.rule(forest.num_features == width, "a forest", f"must read {width} columns", forest.num_features)
        found[label][place] = forest
    return found


def forest_scores(
    averages: list[ForestAverage] | tuple[ForestAverage, ...],
    columns: TableColumns | None,
    features: Any,
    index: np.ndarray | None,
) -> np.ndarray:
    """Scores `[n, L]` in single precision, stored as double; see `Model.scores`."""
    count = features.shape[0] if index is None else len(index)
    found = np.empty((count, len(averages)), dtype=np.float32)
    for part in chunks(count):
        rows = features[part if index is None else index[part]]
        rows = rows if columns is None else columns.apply(rows)
        for label, average in enumerate(averages):
            found[part, label] = average.scores(rows)
    return found.astype(np.float64)


def plain_average(forests: list[Forest]) -> ForestAverage:
    """The mean of the forests' own scores, which are log-odds."""
    return ForestAverage(tuple(forests), np.zeros(len(forests)), np.ones(len(forests)))


def constant_forest(num_features: int, labels: np.ndarray) -> Forest:
    """A forest of one leaf for labels that are all the same: the class that is absent is taken for rare."""
    score = float(np.log(2 * len(labels) + 1))
    return Forest(
        tree_starts=np.array([0, 1]),
        feature=np.array([-1], np.int32),
        threshold=np.zeros(1),
        child=np.array([-1], np.int32),
        decision=np.zeros(1, np.uint8),
        value=np.array([score if labels[0] == 1 else -score]),
        set_starts=np.array([0, 0]),
        set_bytes=np.zeros(0, np.uint8),
        gain=np.zeros(num_features),
    )


# Rows as LightGBM takes them


class TreeRows(NamedTuple):
    """Rows in memory, as trees read them: columns `[n, C]`, labels `[n, L]` of 0/1, weights `[n]` or None."""

    features: Any
    labels: np.ndarray
    weights: np.ndarray | None

    def of_label(self, label: int) -> Sample:
        """The rows with one of their labels."""
        return Sample(self.features, self.labels[:, label], self.weights)


def in_memory(task: Task, data: Data, memory: int, deed: str) -> TreeRows:
    """All rows where memory holds them. Of more rows on disk, those with a label and a weighted draw of the others."""
    columns, count, multiclass = task.problem.columns, len(data.rows), task.problem.multiclass
    labels = data.labels.numpy()
    labels = (labels[:, None] == np.arange(task.problem.num_outputs)).astype(np.uint8) if multiclass else labels
    weights = None if data.weights is None else data.weights.numpy().astype(np.float64)
    if (most := most_rows(task, data, memory)) is None or count <= most:
        return TreeRows(_taken(data, None, columns), labels, weights)
    positive = np.zeros(count, dtype=bool) if multiclass else labels.max(axis=1) > 0
    if positive.sum() > most / 2:  # the others would be too few to learn from
        positive[:] = False
    index, factor = thinned(positive, most, task.seed)
    weights = factor if weights is None else weights[index] * factor
    kept = f"all {int(positive.sum()):,} with a label and a sample of the others" if positive.any() else "a sample"
    warnings.warn(
        f"trees {deed} {len(index):,} of {count:,} rows, as the memory limit holds no more: {kept}, whose weights make "
        "up for those left out",
        ThinnedRowsWarning,
        stacklevel=checks.callers_level(),
    )
    return TreeRows(_taken(data, index, columns), labels[index], weights)


def most_rows(task: Task, data: Data, memory: int) -> int | None:
    """How many rows on disk memory may hold; None for rows that it holds already."""
    columns = task.problem.columns
    width = data.rows.num_features if columns is None else len(columns.columns)
    return max(2, memory // (FLOAT * width)) if isinstance(data.rows.features, StoredRows) else None


def thinned(kept: np.ndarray, most: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of `most` rows, in order: all that are kept and a draw of the others; and weights that undo the draw.

    Args:
        kept: bool `[n]`, fewer than `most`.
        most: how many rows to give.
        seed: of the draw.
    """
    others = np.flatnonzero(~kept)
    drawn = np.random.default_rng(seed).choice(others, most - int(kept.sum()), replace=False)
    index = np.sort(np.concatenate([np.flatnonzero(kept), drawn]))
    return index, np.where(kept[index], 1.0, len(others) / len(drawn))


def _taken(data: Data, rows: np.ndarray | None, columns: TableColumns | None) -> Any:
    """The columns of some rows by themselves, unscaled; None for all rows."""
    features, index = data.rows.features, data.rows.index
    index = index if rows is None else rows if index is None else index[rows]
    if columns is None and not isinstance(features, StoredRows):
        return features if index is None else features[index]
    count = features.shape[0] if index is None else len(index)
    width = features.shape[1] if columns is None else len(columns.columns)
    found = np.empty((count, width), features.dtype)
    for part in chunks(count):  # rows on disk and rows with all their features pass through memory piece by piece
        block = features[part if index is None else index[part]]
        found[part] = block if columns is None else columns.apply(block)
    return found
