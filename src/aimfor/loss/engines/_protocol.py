"""The protocol of engines: what an engine is, and how one batch passes through it.

An engine counts the sums of a batch. Everything else has a default in torch, so a new engine is a `begin` that gives a
`Pass` with a census and a `count`. An engine that can do the whole step itself replaces `step`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection

import torch
from torch import Tensor

from aimfor.aims import Anchors
from aimfor.loss._batch import Batch
from aimfor.loss._distributed import Exchange
from aimfor.loss._state import State
from aimfor.loss._step import LogLossCosts, LossRules, PassCounts, torch_step
from aimfor.loss._surrogates import Surrogate
from aimfor.loss.engines._entries import add_log_loss_, entries

# The environment variable that forces an engine by its name.
SETTING = "AIMFOR_ENGINE"


class Pass(ABC):
    """One batch and the state that learns from it.

    Call order: 1. `census` counts the classes, and ranks add theirs to it. 2. `observe_` counts them in the state and
    gives the priors, from which the table of the aim is made. 3. `step` gives value and gradient.

    Attributes:
        batch: the batch, which the loss puts here.
        state: the state of the loss.
        rules: how the loss takes the batch.
        census: `[3, L]`, weights of negatives and of positives, weighted mean of scores.
        counted_priors: `[L]`, known after `observe_`.
    """

    batch: Batch
    state: State
    rules: LossRules
    census: Tensor
    counted_priors: Tensor

    def observe_(self) -> Tensor:
        """Count the classes where the loss is learning; gives the counted priors."""
        if self.rules.learning:
            self.state.observe_(self.census)
        self.counted_priors = self.state.counted_priors
        return self.counted_priors

    def step(self, anchors: Anchors) -> Exchange[tuple[Tensor, Tensor]]:
        """Value and gradient of the Lagrangian; moves the state where the loss is learning. Ranks add up their sums."""
        return torch_step(self, anchors)

    @abstractmethod
    def count(self, anchors: Anchors, positive_cost: Tensor, negative_cost: Tensor, errors: bool) -> PassCounts:
        """The sums of this batch alone, for the step in torch and for ranks, which add them up.

        Args:
            anchors: the table of the aim.
            positive_cost: `[K, L]`, weight of positive_loss in the total that is differentiated.
            negative_cost: `[K, L]`, weight of negative_loss in that total.
            errors: whether false negatives and false positives are needed; else they may be anything.
        """

    def count_with_log_loss(
        self, anchors: Anchors, positive_cost: Tensor, negative_cost: Tensor, errors: bool, log_costs: LogLossCosts
    ) -> PassCounts:
        """`count`, and the gradient and cost of log-loss with it. An engine may replace this by one pass for both."""
        counts = self.count(anchors, positive_cost, negative_cost, errors)
        gradient = counts.gradient.to(torch.promote_types(counts.gradient.dtype, torch.float32))
        log_loss = add_log_loss_(gradient, entries(self.batch), log_costs)
        return counts._replace(gradient=gradient, log_loss=log_loss)


class CountingEngine(ABC):
    """One way to count the sums of a batch.

    Attributes:
        name: how the environment variable calls it.
        surrogates: the records that it can count; None for every surrogate.
    """

    name: str
    surrogates: Collection[Surrogate] | None = None

    def problem(self) -> str | None:
        """Why it cannot be used on this machine; None where it can."""
        return None

    @abstractmethod
    def description(self) -> str:
        """What it is, in a few words."""

    def scores_problem(self, scores: Tensor) -> str | None:
        """What scores it takes, where it does not take these; else None."""
        return None

    def takes(self, scores: Tensor, surrogate: Surrogate) -> bool:
        """Whether it can count these scores with this surrogate here."""
        knows = self.surrogates is None or surrogate in self.surrogates
        return knows and self.problem() is None and self.scores_problem(scores) is None

    @abstractmethod
    def begin(self, batch: Batch, state: State, rules: LossRules) -> Pass:
        """Check every value of a batch and count its classes."""
