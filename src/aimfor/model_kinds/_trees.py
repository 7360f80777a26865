"""Boosted trees: log-loss forests by a seeded search, the best half of them averaged.

In tuned forests an aimed objective gains nothing, but averaging the forests that a search trains anyway does; see
docs/boosting.md. So every forest is trained by log-loss, and the aim chooses which of them are averaged.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from aimfor._base import checks
from aimfor._base.checks import rule
from aimfor._base.json import check_entries
from aimfor._base.splitting import chunks
from aimfor._base.stored_rows import StoredRows
from aimfor._base.warnings import ThinnedRowsWarning
from aimfor.boosting import Forest, ForestAverage, Sample, add_forests, search
from aimfor.model_kinds._kind import Fit, Model, ModelKind, OnnxGraph, Task
from aimfor.operating_points import one_per_label
from aimfor.training import Candidate, Contest, Data, Evaluation, JudgedRows, Observer, SavedState, resuming

STAGE = "forests"
# Forests of a search for one label, and of all labels together: with more labels each gets fewer.
FORESTS, MOST_FORESTS = 12, 144
LEAST_FORESTS = 2
# The share of the forests that is averaged.
AVERAGED = 1 / 2
# Bytes of features that trees train on; of rows on disk that are more, some are drawn.
MOST_BYTES = 512 * 2**20
# Of a model folder: what is larger is refused unread.
MOST_TENSOR_BYTES = 2**31
DESCRIPTION: dict[str, Any] = {
    "model": str,
    "num_features": int,
    "num_labels": int,
    "multiclass": bool,
    "tensor_bytes": int,
}


class ForestRecipe(NamedTuple):
    """How a candidate of forests came about: its name, and whether it is an average; the rest every recipe has."""

    name: str
    averaged: bool = False
    aim: None = None
    balanced: bool = False
    decay: float = 0.0


class Trees(Model):
    """Averaged forests, one average for each label or class.

    Args:
        averages: at least one.
        multiclass: whether they are for classes.
    """

    kind = "trees"

    def __init__(self, averages: Sequence[ForestAverage], multiclass: bool):
        self.averages, self.multiclass = tuple(averages), multiclass
        self.num_outputs = len(self.averages)

    @property
    def gain(self) -> np.ndarray:
        """`[D]`, share of each feature in the gain of all splits."""
        return np.mean([average.gain for average in self.averages], axis=0)

    def scores(self, features: Any, index: np.ndarray | None = None) -> np.ndarray:
        count = features.shape[0] if index is None else len(index)
        found = np.empty((count, self.num_outputs), dtype=np.float32)
        for part in chunks(count):
            rows = features[part if index is None else index[part]]
            for label, average in enumerate(self.averages):
                found[part, label] = average.scores(rows)
        return found.astype(np.float64)

    def describe(self) -> dict[str, Any]:
        return {
            "model": self.kind,
            "num_features": self.averages[0].num_features,
            "num_labels": self.num_outputs,
            "multiclass": self.multiclass,
            "tensor_bytes": sum(tensor.nbytes for tensor in self.to_tensors().values()),
        }

    def to_tensors(self) -> dict[str, Tensor]:
        return {
            f"forests.{label}.{name}": tensor
            for label, average in enumerate(self.averages)
            for name, tensor in average.to_tensors().items()
        }

    def to_onnx(self, graph: OnnxGraph, features: str) -> str:
        columns = [add_forests(graph, average, features) for average in self.averages]
        return graph("Concat", *columns, axis=1) if len(columns) > 1 else columns[0]


class TreesKind(ModelKind):
    """Boosted trees, trained by LightGBM."""

    name = "trees"
    takes_missing = True
    threshold_apart = True

    def fit(self, task: Task, observer: Observer) -> Fit:
        observer.on_stage_begin(STAGE)
        multiclass = task.problem.multiclass
        judged = JudgedRows.of(task.aim, task.validation, task.problem.num_outputs if multiclass else None)
        found = _Search(task, observer, judged).run()
        places = range(len(found[0]))
        models = [Trees([_plain([forests[place]]) for forests in found], multiclass) for place in places]
        scores = [model.scores(*_rows(task.validation)) for model in models]
        candidates = [self._candidate(f"forest {place + 1}", own, judged, place) for place, own in enumerate(scores)]
        average = _average(task, judged, found, scores)
        own = average.scores(*_rows(task.validation))
        chosen = max(1, round(AVERAGED * len(models)))
        name = f"average of the best {chosen} of {len(models)} forests"
        contest = Contest([*candidates, self._candidate(name, own, judged, len(models), True)], len(models))
        by_name = {one.recipe.name: model for one, model in zip(contest.candidates, [*models, average], strict=True)}
        return Fit(contest, lambda candidate: by_name[candidate.recipe.name])

    def _candidate(
        self, name: str, scores: np.ndarray, judged: JudgedRows, step: int, averaged: bool = False
    ) -> Candidate:
        recipe: Any = ForestRecipe(name, averaged)
        return Candidate(recipe, *judged.judge(scores), scores, {}, step, {}, self.name)

    def tensor_bytes(self, description: Mapping[str, Any]) -> int:
        check_entries("architecture", description, DESCRIPTION)
        checks.whole_number("tensor_bytes", description["tensor_bytes"], at_least=1)
        size = description["tensor_bytes"]
        rule(size <= MOST_TENSOR_BYTES, "tensor_bytes", f"must be at most {MOST_TENSOR_BYTES}", size)
        return size

    def from_tensors(self, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Trees:
        self.tensor_bytes(description)
        num_labels = description["num_labels"]
        of_label: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            first, _, rest = name.partition(".")
            label, _, own = rest.partition(".")
            rule(first == "forests", "the tensors", "must be those of forests", repr(name[:50]))
            of_label.setdefault(label, {})[own] = tensor
        same = of_label.keys() == {str(label) for label in range(num_labels)}
        rule(same, "the tensors", f"must have forests for {num_labels} labels", len(of_label))
        averages = [ForestAverage.from_tensors(of_label[str(label)]) for label in range(num_labels)]
        for average in averages:
            width = average.num_features
            rule(width == description["num_features"], "the forests", "must read the features of the model", width)
        return Trees(averages, description["multiclass"])


class _Search:
    """The forests of all labels, searched one place after the other, and kept where the observer keeps states."""

    def __init__(self, task: Task, observer: Observer, judged: JudgedRows):
        self.task, self.observer, self.judged = task, observer, judged
        self.num_labels = task.problem.num_outputs
        self.count = min(FORESTS, max(LEAST_FORESTS, MOST_FORESTS // self.num_labels))
        self.found: list[dict[int, Forest]] = [{} for _ in range(self.num_labels)]

    def run(self) -> list[list[Forest]]:
        """For each label its forests, as many as were trained for every label."""
        if (state := self.observer.saved(STAGE)) is not None:
            with resuming(STAGE):
                self._restore(state)
        features, index, weights = _training_rows(self.task)
        labels = _columns(self.task.data, self.num_labels, self.task.problem.multiclass)[index]
        held_out = _taken(self.task.validation)
        held_weights = None if self.task.validation.weights is None else self.task.validation.weights.numpy()
        searches = [
            self._forests_of(
                label,
                Sample(features, labels[:, label], weights),
                Sample(held_out, self.judged.labels[:, label], held_weights),
            )
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

    def _forests_of(self, label: int, training: Sample, validation: Sample) -> Iterator[Forest]:
        if len(np.unique(training.labels)) < 2:  # nothing can be learned of it
            # A new one each time: tensors that share memory cannot be saved.
            yield from (constant_forest(training.features.shape[1], training.labels) for _ in range(self.count))
            return
        # With several labels the deadline is asked between places, so that each label gets a first forest.
        found = search(
            training,
            validation,
            seed=self.task.seed + label,
            forests=self.count,
            stored=dict(self.found[label]),
            deadline=self.task.deadline,
        )
        yield from (one.forest for one in found)

    def _report(self, place: int) -> None:
        self.observer.on_batch_end(STAGE, place + 1, self.count)
        rows = self.task.validation.rows
        model = Trees([_plain([forests[place]]) for forests in self.found], self.task.problem.multiclass)
        value = self.judged.judge(model.scores(rows.features, rows.index)).value
        nan = float("nan")
        evaluation = Evaluation(STAGE, f"forest {place + 1}", place + 1, value, nan, nan, nan, nan, nan)
        self.best = max(value, getattr(self, "best", value))
        self.observer.on_evaluation([evaluation], self.best)
        tensors = {
            f"{label}.{number}.{name}": tensor
            for label, forests in enumerate(self.found)
            for number, forest in forests.items()
            for name, tensor in forest.to_tensors().items()
        }
        self.observer.save(STAGE, SavedState({"forests": place + 1}, tensors))

    def _restore(self, state: SavedState) -> None:
        for place in range(int(state.facts["forests"])):
            for label, forests in enumerate(self.found):
                prefix = f"{label}.{place}."
                own = {name.removeprefix(prefix): one for name, one in state.tensors.items() if name.startswith(prefix)}
                forests[place] = Forest.from_tensors(own)


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


def _plain(forests: Sequence[Forest]) -> ForestAverage:
    """The mean of the forests' own scores, which are log-odds."""
    return ForestAverage(tuple(forests), np.zeros(len(forests)), np.ones(len(forests)))


def _average(task: Task, judged: JudgedRows, found: Sequence[Sequence[Forest]], scores: Sequence[np.ndarray]) -> Trees:
    """The best half of the forests of each label, averaged: standardised, or for classes as log-odds, whose scale says
    which class is likelier."""
    chosen = max(1, round(AVERAGED * len(scores)))
    averages = []
    for label, (forests, aim) in enumerate(zip(found, one_per_label(task.aim, len(found)), strict=True)):
        rows = JudgedRows(aim, judged.labels[:, [label]], judged.weights)
        # Where a label lacks a class, the rows say nothing, and the first forests are as good as any.
        merits = [0.0 if rows.blind else rows.judge(own[:, [label]]).merit for own in scores]
        best = sorted(np.argsort(merits, kind="stable")[::-1][:chosen].tolist())
        members = [forests[place] for place in best]
        if task.problem.multiclass:
            averages.append(_plain(members))
        else:
            own = [scores[place][:, label] for place in best]
            averages.append(ForestAverage.standardised(members, own, judged.weights))
    return Trees(averages, task.problem.multiclass)


# Rows as LightGBM takes them


def _rows(data: Data) -> tuple[Any, np.ndarray | None]:
    return data.rows.features, data.rows.index


def _taken(data: Data, rows: np.ndarray | None = None) -> Any:
    """Some features of some data by themselves, unscaled; None for all rows."""
    features, index = _rows(data)
    index = index if rows is None else rows if index is None else index[rows]
    if index is None:
        return features[:] if isinstance(features, StoredRows) else features
    return features[index]


def _columns(data: Data, num_labels: int, multiclass: bool) -> np.ndarray:
    """Labels `[n, L]` of 0/1."""
    labels = data.labels.numpy()
    return (labels[:, None] == np.arange(num_labels)).astype(np.uint8) if multiclass else labels


def _training_rows(task: Task) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Features, numbers and weights of the rows to train on: all of them where memory holds them.

    Of more rows on disk, those with a label are kept and others are drawn; their weights make up for those left out.
    """
    data, count = task.data, len(task.data.rows)
    weights = None if data.weights is None else data.weights.numpy().astype(np.float64)
    most = MOST_BYTES // (4 * data.rows.num_features)
    if not isinstance(data.rows.features, StoredRows) or count <= most:
        return _taken(data), np.arange(count), weights
    generator = np.random.default_rng(task.seed)
    positive = np.asarray(_columns(data, task.problem.num_outputs, task.problem.multiclass).max(axis=1) > 0)
    if task.problem.multiclass or positive.sum() > most / 2:  # no class is the rare one
        positive = np.zeros(count, dtype=bool)
    others = np.flatnonzero(~positive)
    drawn = generator.choice(others, most - int(positive.sum()), replace=False)
    index = np.sort(np.concatenate([np.flatnonzero(positive), drawn]))
    weights = np.ones(len(index)) if weights is None else weights[index]
    weights = np.where(positive[index], weights, weights * (len(others) / len(drawn)))
    kept = f"all {int(positive.sum()):,} with a label and a sample of the others" if positive.any() else "a sample"
    warnings.warn(
        f"trees train on {len(index):,} of {count:,} rows, {kept}, whose weights make up for those left out",
        ThinnedRowsWarning,
        stacklevel=checks.callers_level(),
    )
    return _taken(data, index), index, weights


TREES = TreesKind()


def trees_available() -> bool:
    """Whether LightGBM, which trains them, is installed."""
    from importlib.util import find_spec

    return find_spec("lightgbm") is not None
