"""Models of torch: linear, with hidden layers, or a user's own module; many candidates are heads of one model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from aimfor._base import checks
from aimfor._base.checks import rule
from aimfor._base.json import check_entries
from aimfor.aims import Aim
from aimfor.model_kinds._kind import Fit, Model, ModelKind, OnnxGraph, Problem, Settings, Task, check_tensors
from aimfor.model_kinds._observers import DeadlineObserver
from aimfor.training import (
    OF_CONSTANTS,
    Adam,
    Budget,
    Candidate,
    Data,
    FeatureRows,
    Heads,
    HeadTraining,
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


class Network(Model):
    """Heads with the scaling of their features.

    Args:
        kind: name of its kind.
        heads: one head.
        scaling: of the features, before they reach the head.
        multiclass: whether the outputs are scores of classes.
    """

    def __init__(self, kind: str, heads: Heads, scaling: Scaling, multiclass: bool):
        self.kind, self.heads, self.scaling, self.multiclass = kind, heads, scaling, multiclass
        self.num_outputs = heads.num_labels
        # Layers can be scored in double precision; another's module may not bear that.
        self.exact = isinstance(heads, Layers)

    def scores(self, features: Any, index: np.ndarray | None = None) -> np.ndarray:
        # In double and then rounded to single, a row has one score whichever rows come with it: matrix products round
        # differently with the number of rows, and a threshold is the score of a row.
        heads, dtype = (self.heads.double(), torch.float64) if self.exact else (self.heads, torch.float32)
        scores = heads.scores(FeatureRows(features, self.scaling, self._device, dtype, index))
        return ranked(scores, self.multiclass)[:, 0].float().double().numpy()

    @property
    def _device(self) -> torch.device:
        return next(self.heads.parameters()).device

    @property
    def missing_values(self) -> np.ndarray:
        mean, scale = self.scaling
        return np.zeros(len(scale)) if mean is None else mean

    @property
    def coefficients(self) -> tuple[np.ndarray, np.ndarray] | None:
        if not isinstance(self.heads, Layers) or not self.heads.linear:
            return None
        tensors = self.heads.head(0)
        weight, offset = (tensors[name].double().cpu().numpy() for name in ("weights.0", "offsets.0"))
        mean, scale = self.scaling
        weights = np.where(scale < OF_CONSTANTS, (weight / scale[:, None]).T, 0.0)
        return weights, offset if mean is None else offset - weights @ mean

    def describe(self) -> dict[str, Any]:
        assert isinstance(self.heads, Layers), "a user's module is not stored"
        return {
            "model": self.kind,
            "hidden_sizes": [offset.shape[1] for offset in list(self.heads.offsets)[:-1]],
            "num_features": len(self.scaling.scale),
            "num_labels": self.num_outputs,
            "multiclass": self.multiclass,
            "centred": self.scaling.mean is not None,
        }

    def to_tensors(self) -> dict[str, Tensor]:
        mean, scale = self.scaling
        tensors = {
            **{f"network.{name}": tensor for name, tensor in self.heads.state_dict().items()},
            **({} if mean is None else {"scaling.mean": torch.from_numpy(mean)}),
            "scaling.scale": torch.from_numpy(scale),
        }
        # In double, which holds them exactly.
        return {name: tensor.detach().cpu().double().contiguous().clone() for name, tensor in tensors.items()}

    def to_onnx(self, graph: OnnxGraph, features: str) -> str:
        if not isinstance(self.heads, Layers):
            return super().to_onnx(graph, features)
        mean, scale = self.scaling
        hidden = features if mean is None else graph("Sub", features, graph.constant(mean))
        hidden = graph("Div", hidden, graph.constant(scale))
        tensors = self.heads.head(0)
        num_layers = len(tensors) // 2
        for layer in range(num_layers):
            weight, offset = (tensors[f"{name}.{layer}"].double().cpu().numpy() for name in ("weights", "offsets"))
            hidden = graph("Add", graph("MatMul", hidden, graph.constant(weight)), graph.constant(offset))
            hidden = graph("Relu", hidden) if layer < num_layers - 1 else hidden
        return graph.log_odds(hidden, self.num_outputs) if self.multiclass else hidden


@dataclass(frozen=True)
class NetworkKind(ModelKind):
    """A kind whose candidates are heads of one model.

    Attributes:
        name: in the registry.
        rate, batch_size: of training where none is given. By trial; benchmarks/README.md says on which rows, and how
            little is between them.
        aimed: whether candidates are trained for the aim beside those of log-loss.
        foreign: whether the module is a user's, which may draw while it trains.
    """

    name: str
    rate: float = 0.01
    batch_size: int = 512
    aimed: bool = True
    foreign: ClassVar[bool] = False
    incremental = True

    def fit(self, task: Task, observer: Observer) -> Fit:
        problem, settings = task.problem, task.problem.settings
        training = HeadTraining(
            self._heads_maker(problem),
            task.aim,
            task.data,
            task.validation,
            multiclass=problem.multiclass,
            budget=self.budget(settings),
            seed=task.seed,
            observer=DeadlineObserver(observer, task.deadline),
        )
        # Heads of ours draw nothing while they train, and their batches are small.
        with one_thread(not self.foreign), seeded(task.seed, self.foreign):
            contest = compete(
                training,
                single=single_recipe(settings, task.aim),
                restarts=settings.restarts,
                aimed=self.aimed,
                decays=self.decays(settings, problem.num_outputs),
            )
        candidates = [one._replace(kind=self.name) for one in contest.candidates]
        return Fit(contest._replace(candidates=candidates), lambda candidate: self.model_of(problem, candidate))

    def model_of(self, problem: Problem, candidate: Candidate) -> Network:
        """The model with the weights of a candidate."""
        model = self.begin(problem, 0)
        model.heads.set_head_(0, candidate.tensors)
        return model

    def begin(self, problem: Problem, seed: int) -> Network:
        """A model that was not trained yet."""
        return Network(self.name, self._heads_maker(problem)(1, seed), problem.scaling, problem.multiclass)

    def _heads_maker(self, problem: Problem) -> Callable[[int, int], Heads]:
        def make(num_heads: int, seed: int) -> Heads:
            return self.make_heads(problem, num_heads, seed).to(problem.settings.device).eval()

        return make

    def make_heads(self, problem: Problem, num_heads: int, seed: int) -> Heads:
        """New heads."""
        generator = torch.Generator().manual_seed(seed)
        return Layers(
            num_heads, problem.num_features, problem.num_outputs, self.hidden_sizes(problem.settings), generator
        )

    def hidden_sizes(self, settings: Settings) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(settings.hidden_layer_sizes)

    def budget(self, settings: Settings) -> Budget:
        """How long and how fast heads are trained."""
        rate = self.rate if settings.learning_rate == "auto" else float(settings.learning_rate)
        size = self.batch_size if settings.batch_size == "auto" else int(settings.batch_size)
        return Budget(settings.steps, rate, size, settings.patience)

    def decays(self, settings: Settings, num_outputs: int) -> tuple[float, ...]:
        """The decays that log-loss tries."""
        if settings.weight_decay != "auto":
            return (float(settings.weight_decay),)
        return self.tried_decays(num_outputs)

    def tried_decays(self, num_outputs: int) -> tuple[float, ...]:
        """The decays that log-loss tries where none is given."""
        return 0.0, 0.03, 0.1, 0.3, 1.0

    def check_description(self, description: Mapping[str, Any]) -> None:
        """Refuse facts that are of no such network."""
        check_entries("architecture", description, DESCRIPTION)
        for size in description["hidden_sizes"]:
            checks.whole_number("a hidden size", size, at_least=1)

    def tensor_bytes(self, description: Mapping[str, Any]) -> int:
        self.check_description(description)
        return 8 * sum(int(np.prod([*map(int, shape)], dtype=object)) for shape in shapes_of(description).values())

    def from_tensors(self, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Network:
        self.check_description(description)
        check_tensors(tensors, shapes_of(description))
        scale = tensors["scaling.scale"]
        rule(bool((scale > 0).all()), "tensor scaling.scale", "must be above 0", "a number that is not")
        mean = tensors["scaling.mean"].numpy() if description["centred"] else None
        sizes = description["hidden_sizes"]
        num_features, num_labels = description["num_features"], description["num_labels"]
        heads = Layers(1, num_features, num_labels, sizes, torch.Generator()).double()
        prefix = "network."
        heads.load_state_dict({name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)})
        return Network(self.name, heads, Scaling(mean, scale.numpy()), description["multiclass"])


class LinearKind(NetworkKind):
    """A score that is a weighted sum of the features."""

    def hidden_sizes(self, settings: Settings) -> tuple[int, ...]:
        return ()

    def tried_decays(self, num_outputs: int) -> tuple[float, ...]:
        # A decay that serves several labels is hardly ever the weakest, whose minimum takes the longest to find.
        return ((1e-7,) if num_outputs == 1 else ()) + (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)

    def check_description(self, description: Mapping[str, Any]) -> None:
        super().check_description(description)
        rule(not description["hidden_sizes"], "hidden_sizes", "must be none for a linear model", "some")


class ModuleKind(NetworkKind):
    """A user's own module, copied once for each candidate. Reading a file must run no code, so it is not stored."""

    foreign: ClassVar[bool] = True
    stored = False

    def make_heads(self, problem: Problem, num_heads: int, seed: int) -> Heads:
        with seeded(seed):
            return Modules(num_heads, problem.num_outputs, module_maker(problem.settings.model))


LINEAR = LinearKind("linear")
MLP = NetworkKind("mlp", rate=0.02, batch_size=256)
MODULE = ModuleKind("module")

DESCRIPTION: dict[str, Any] = {
    "model": str,
    "hidden_sizes": list,
    "num_features": int,
    "num_labels": int,
    "multiclass": bool,
    "centred": bool,
}


def shapes_of(description: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of a network, by name."""
    num_features, num_labels = description["num_features"], description["num_labels"]
    shapes: dict[str, tuple[int, ...]] = {}
    sizes = [num_features, *description["hidden_sizes"], num_labels]
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        shapes[f"network.weights.{layer}"] = (1, inputs, outputs) if layer else (inputs, 1, outputs)
        shapes[f"network.offsets.{layer}"] = (1, outputs)
    if description["centred"]:
        shapes["scaling.mean"] = (num_features,)
    return {**shapes, "scaling.scale": (num_features,)}


def single_recipe(settings: Settings, aim: Aim) -> Recipe | None:
    """The only recipe to train; None where several compete."""
    if settings.surrogate == "auto":
        return None
    decay = 0.0 if settings.weight_decay == "auto" else float(settings.weight_decay)
    loss_aim = None if settings.surrogate == "log_loss" else aim
    return Recipe(loss_aim, settings.surrogate, settings.constraint, "scratch", decay)


class ContinuedTraining:
    """Loss and optimiser of one head, which go on from call to call.

    Args:
        kind: of the model.
        problem: what the model fits.
        aim: what it is trained for.
    """

    def __init__(self, kind: NetworkKind, problem: Problem, aim: Aim):
        settings = problem.settings
        decay = kind.decays(settings, problem.num_outputs)[0]
        self.recipe = single_recipe(settings, aim) or Recipe(aim, "hinge", decay=decay)
        self.seeded = kind.foreign
        self.optimiser: Adam | None = None

    def pass_over(self, model: Network, data: Data, budget: Budget, seed: int) -> None:
        """One pass over the rows."""
        heads = model.heads = model.heads.float()
        if self.optimiser is None:
            self.objectives = Objectives([self.recipe], heads.num_labels, data, model.multiclass)
            self.optimiser = Adam(heads.parameters(), budget.rate)
        self.optimiser.rate = budget.rate
        with seeded(seed, self.seeded):
            train_one(heads, self.recipe, self.objectives, self.optimiser, data, budget.batch_size, seed)
