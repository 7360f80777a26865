"""What a model kind must offer: training that ends in candidates, and models that score, describe and store themselves.

A kind is added in one place, the registry. Estimator, model folder, ONNX export and program ask the kind and never
compare its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from aimfor._base.checks import rule
from aimfor._base.errors import ModelFileError
from aimfor.aims import Aim
from aimfor.model_kinds._table_columns import TableColumns
from aimfor.training import Candidate, Contest, Data, Observer, Scaling

MEMORY = 512 * 2**20


@dataclass(frozen=True)
class Settings:
    """Parameters of `aimfor.Classifier` that concern training; it explains them."""

    model: Any = "linear"
    hidden_layer_sizes: tuple[int, ...] = (64,)
    surrogate: str = "auto"
    constraint: str = "surrogate"
    restarts: int = 1
    steps: int = 2000
    batch_size: int | str = "auto"
    learning_rate: float | str = "auto"
    weight_decay: float | str = "auto"
    patience: int = 4
    device: str = "cpu"


@dataclass(frozen=True)
class Problem:
    """What a model must fit, without any rows.

    Attributes:
        num_features: D.
        num_outputs: L, scores of a row.
        multiclass: whether each row has one of L classes; else it has any of L labels.
        scaling: of the features, as learned on training rows.
        settings: of training.
        columns: the columns of a table that the features came from; None where they are columns themselves.
    """

    num_features: int
    num_outputs: int
    multiclass: bool
    scaling: Scaling
    settings: Settings
    columns: TableColumns | None = None


class Task(NamedTuple):
    """A problem with its rows.

    Attributes:
        problem: what a model must fit.
        aim: what the model is judged by.
        data: rows to train on.
        validation: rows to choose on.
        seed: of everything random.
        deadline: when to stop with the best so far, in seconds of `time.monotonic()`; None for never.
        memory: bytes of rows on disk that a kind which needs its rows in memory may read.
        everything: the rows of both, to train on once nothing is left to choose; None where the validation rows have
            more to choose than the model.
    """

    problem: Problem
    aim: Aim
    data: Data
    validation: Data
    seed: int
    deadline: float | None = None
    memory: int = MEMORY
    everything: Data | None = None


class OnnxGraph(Protocol):
    """An ONNX graph in the making; each call adds a node and returns the name of its output."""

    def __call__(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str: ...

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        """Add a constant and return its name."""
        ...

    def log_odds(self, scores: str, num_classes: int) -> str:
        """Add the log-odds of scores `[n, C]` of a softmax."""
        ...


class Model(ABC):
    """A fitted model.

    Attributes:
        kind: name of its kind.
        num_outputs: L, scores of a row.
        exact: whether a row has the same score whichever rows come with it.
    """

    kind: str
    num_outputs: int
    exact: bool = True

    @abstractmethod
    def scores(self, features: Any, index: np.ndarray | None = None) -> np.ndarray:
        """Score rows.

        Args:
            features: `[n, D]`, an array, SciPy CSR or `StoredRows`.
            index: which rows; None for all.

        Returns:
            `[n, L]`, single precision stored as double: raw scores of labels, log-odds of classes.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The model without its tensors, for JSON: `model`, `num_features`, `num_labels`, `multiclass` and its own."""

    @abstractmethod
    def to_tensors(self) -> dict[str, Tensor]:
        """All numbers of the model by name."""

    def to_onnx(self, graph: OnnxGraph, features: str) -> str:
        """Add the model to a graph.

        Args:
            graph: to add nodes to.
            features: name of the features, double `[n, D]`.

        Returns:
            Name of the scores, double `[n, L]`.
        """
        raise ModelFileError(f"a model of kind {self.kind!r} has no ONNX form, so it cannot be exported")

    @property
    def missing_values(self) -> np.ndarray | None:
        """`[D]`, what a missing feature is taken for; None where the model handles missing features itself."""
        return None

    @property
    def gain(self) -> np.ndarray | None:
        """`[D]`, share of each feature in the gain of all splits of trees; None for models without trees."""
        return None

    @property
    def coefficients(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Weights `[L, D]` on the features as they came and offsets `[L]` of a linear model; None for others."""
        return None


class Fit(NamedTuple):
    """A contest, and how a model is made of a candidate."""

    contest: Contest
    model_of: Callable[[Candidate], Model]

    @property
    def model(self) -> Model:
        """The chosen model."""
        return self.model_of(self.contest.winner)


class ModelKind(ABC):
    """One kind of model.

    Attributes:
        name: its name in the registry, and the value of `model` that asks for it.
        incremental: whether `partial_fit` works.
        takes_missing: whether features may be NaN.
        stored: whether a model folder can hold its models.
        threshold_apart: whether it chooses among so many models that the threshold needs rows which chose nothing.
        log_loss_alone: whether it knows no recipe but log-loss, so that nobody may ask for a surrogate.
    """

    name: str
    incremental: ClassVar[bool] = False
    takes_missing: ClassVar[bool] = False
    stored: ClassVar[bool] = True
    threshold_apart: ClassVar[bool] = False
    log_loss_alone: ClassVar[bool] = False

    @abstractmethod
    def fit(self, task: Task, observer: Observer) -> Fit:
        """Train candidates and choose among them on the validation rows."""

    @abstractmethod
    def tensor_bytes(self, description: Mapping[str, Any]) -> int:
        """The most bytes that the tensors of such a model take; checks the description first.

        Raises:
            ValueError: where the description is of no model of this kind, in one sentence.
        """

    @abstractmethod
    def from_tensors(self, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
        """The model that `describe` and `to_tensors` gave; both are checked.

        Raises:
            ValueError: where they are of no such model, in one sentence.
        """


def check_tensors(tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse tensors that are not float64, finite, and of exactly these names and shapes; thresholds may be NaN."""
    same = tensors.keys() == shapes.keys()
    rule(same, "the tensors", f"must be {', '.join(shapes)[:200]}", f"{', '.join(tensors)[:200]!r}")
    for name, shape in shapes.items():
        tensor = tensors[name]
        rule(tensor.dtype == torch.float64, f"tensor {name}", "must be float64", tensor.dtype)
        rule(tuple(tensor.shape) == shape, f"tensor {name}", f"must have shape {shape}", tuple(tensor.shape))
        # A label without a threshold has NaN there, which its operating point explains.
        right = name == "thresholds" or bool(tensor.isfinite().all())
        rule(right, f"tensor {name}", "must be finite", "a number that is not")
