"""Boosted trees: log-loss forests by a seeded search, the best of them averaged.

In tuned forests an aimed objective gains nothing, but averaging the forests that a search trains anyway does; see
docs/boosting.md. So every forest is trained by log-loss, and the aim chooses which of them are averaged. These are
trained again on all rows that have nothing else to choose.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from aimfor._base import checks
from aimfor._base.checks import rule
from aimfor._base.extras import import_lightgbm
from aimfor._base.json import check_entries
from aimfor._base.warnings import MissingTreesWarning
from aimfor.boosting import Forest, ForestAverage, add_forests
from aimfor.model_kinds._forest_choice import chosen_forests, trained_on_all
from aimfor.model_kinds._forest_search import STAGE, ForestSearch, forest_scores, plain_average
from aimfor.model_kinds._kind import Fit, Model, ModelKind, OnnxGraph, Task
from aimfor.model_kinds._table_columns import TableColumns
from aimfor.operating_points import one_per_label
from aimfor.training import Candidate, Contest, JudgedRows, Observer

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
        columns: what the forests read of the features; None for the features themselves.
    """

    kind = "trees"

    def __init__(self, averages: Sequence[ForestAverage], multiclass: bool, columns: TableColumns | None = None):
        self.averages, self.multiclass, self.columns = tuple(averages), multiclass, columns
        self.num_outputs = len(self.averages)

    @property
    def gain(self) -> np.ndarray:
        gain = np.mean([average.gain for average in self.averages], axis=0)
        return gain if self.columns is None else self.columns.of_features(gain)

    def scores(self, features: Any, index: np.ndarray | None = None) -> np.ndarray:
        return forest_scores(self.averages, self.columns, features, index)

    def with_forests(self, forests: Sequence[Sequence[Forest]]) -> Trees:
        """The same averages of other forests, `forests[label]`."""
        pairs = zip(self.averages, forests, strict=True)
        averages = [replace(average, forests=tuple(own)) for average, own in pairs]
        return Trees(averages, self.multiclass, self.columns)

    def describe(self) -> dict[str, Any]:
        columns = self.columns
        return {
            "model": self.kind,
            "num_features": self.averages[0].num_features if columns is None else columns.num_features,
            "num_labels": self.num_outputs,
            "multiclass": self.multiclass,
            "tensor_bytes": sum(tensor.nbytes for tensor in self.to_tensors().values()),
            **({} if columns is None else {"columns": columns.to_list()}),
        }

    def to_tensors(self) -> dict[str, Tensor]:
        return {
            f"forests.{label}.{name}": tensor
            for label, average in enumerate(self.averages)
            for name, tensor in average.to_tensors().items()
        }

    def to_onnx(self, graph: OnnxGraph, features: str) -> str:
        features = features if self.columns is None else self.columns.to_onnx(graph, features)
        scores = [add_forests(graph, average, features) for average in self.averages]
        return graph("Concat", *scores, axis=1) if len(scores) > 1 else scores[0]


def _searched(task: Task, observer: Observer, judged: JudgedRows) -> list[list[Forest]]:
    """The forests of each label. Of several processes the first searches, on its own rows, and the others wait."""
    ranks = task.data.ranks
    if ranks.size == 1:
        return ForestSearch(task, observer, judged).run()
    own, total = len(task.data.rows), task.data.total  # for which all ranks are asked
    if ranks.number > 0:
        observer.saved(STAGE)  # which all ranks ask for together
        return ranks.first(None)
    text = f"trees train on the rows of the first of {ranks.size} processes, {own:,} of {total:,}"
    warnings.warn(text, stacklevel=checks.callers_level())
    return ranks.first(ForestSearch(task, observer, judged).run())


class TreesKind(ModelKind):
    """Boosted trees, trained by LightGBM."""

    name = "trees"
    takes_missing = True
    threshold_apart = True
    log_loss_alone = True

    def fit(self, task: Task, observer: Observer) -> Fit:
        observer.on_stage_begin(STAGE)
        multiclass, columns, rows = task.problem.multiclass, task.problem.columns, task.validation.rows
        judged = JudgedRows.of(task.aim, task.validation, task.problem.num_outputs if multiclass else None)
        found = _searched(task, observer, judged)
        places = range(len(found[0]))
        models = [Trees([plain_average([own[place]]) for own in found], multiclass, columns) for place in places]
        scores = [model.scores(rows.features, rows.index) for model in models]
        candidates = [self._candidate(f"forest {place + 1}", own, judged, place) for place, own in enumerate(scores)]
        chosen = _chosen(task, judged, scores)
        average = _average(task, judged, found, chosen, scores)
        own = average.scores(rows.features, rows.index)
        name = f"average of the best {_counted(chosen)} of {len(models)} forests"
        contest = Contest([*candidates, self._candidate(name, own, judged, len(models), True)], len(models))
        # Their place on the scale stays that of rows which they had not been trained on.
        average = average.with_forests(trained_on_all(task, observer, found, chosen))
        by_name = {one.recipe.name: model for one, model in zip(contest.candidates, [*models, average], strict=True)}
        return Fit(contest, lambda candidate: by_name[candidate.recipe.name])

    def _candidate(
        self, name: str, scores: np.ndarray, judged: JudgedRows, step: int, averaged: bool = False
    ) -> Candidate:
        recipe: Any = ForestRecipe(name, averaged)
        return Candidate(recipe, *judged.judge(scores), scores, {}, step, {}, self.name)

    def tensor_bytes(self, description: Mapping[str, Any]) -> int:
        _columns_of(description)
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
        columns = _columns_of(description)
        wanted = description["num_features"] if columns is None else len(columns.columns)
        for average in averages:
            width = average.num_features
            rule(width == wanted, "the forests", "must read the features of the model", width)
        return Trees(averages, description["multiclass"], columns)


def _columns_of(description: Mapping[str, Any]) -> TableColumns | None:
    """The columns of a description, which is checked; a model whose forests read features has none."""
    if "columns" not in description:
        check_entries("architecture", description, DESCRIPTION)
        return None
    check_entries("architecture", description, DESCRIPTION | {"columns": list})
    return TableColumns.read(description["columns"], description["num_features"])


def _chosen(task: Task, judged: JudgedRows, scores: Sequence[np.ndarray]) -> list[list[int]]:
    """For each label the numbers of the forests to average."""
    aims = one_per_label(task.aim, judged.labels.shape[1])
    return [
        chosen_forests(JudgedRows(aim, judged.labels[:, [label]], judged.weights), [own[:, label] for own in scores])
        for label, aim in enumerate(aims)
    ]


def _counted(chosen: Sequence[Sequence[int]]) -> str:
    """How many forests the labels average."""
    counts = sorted(map(len, chosen))
    return f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def _average(
    task: Task,
    judged: JudgedRows,
    found: Sequence[Sequence[Forest]],
    chosen: Sequence[Sequence[int]],
    scores: Sequence[np.ndarray],
) -> Trees:
    """The chosen forests of each label, averaged: standardised, or for classes as log-odds, whose scale says which
    class is likelier."""
    averages = []
    for label, (forests, best) in enumerate(zip(found, chosen, strict=True)):
        members = [forests[place] for place in best]
        if task.problem.multiclass:
            averages.append(plain_average(members))
        else:
            own = [scores[place][:, label] for place in best]
            averages.append(ForestAverage.standardised(members, own, judged.weights))
    return Trees(averages, task.problem.multiclass, task.problem.columns)


TREES = TreesKind()


def trees_available() -> bool:
    """Whether LightGBM, which trains them, is there and can be imported."""
    try:
        import_lightgbm()
    except ImportError:
        return False
    return True


def warn_of_missing_trees() -> None:
    """Say in one line what the extra would add, or why what is installed does not work."""
    message = (
        "boosted trees, on most tables the strongest kind of model, would compete too after: "
        "pip install 'aimfor[boosting]'"
    )
    try:
        import_lightgbm()
    except ModuleNotFoundError:
        pass
    except ImportError as error:
        message = f"{error}; the other kinds of models compete without them"
    warnings.warn(message, MissingTreesWarning, stacklevel=checks.callers_level())
