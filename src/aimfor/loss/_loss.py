"""The loss: scores and labels in, one scalar to differentiate out. It learns its own state on the way."""

import copy
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from aimfor._base import checks
from aimfor.aims import NO_RATES, Aim, Anchors
from aimfor.aims import aim as parse_aim
from aimfor.loss._advice import advise, at_a_look, warn_of_other_aim
from aimfor.loss._autograd import attach_gradient, gradient_type, overflow_result, overflowed
from aimfor.loss._batch import awaited, known_priors, training_batch
from aimfor.loss._diagnostics import Diagnostics, diagnose
from aimfor.loss._distributed import (
    ALONE,
    Exchange,
    Overflow,
    checked_group,
    finished,
    report_refusal,
    sum_census,
    training_ranks,
)
from aimfor.loss._numbered import take_number
from aimfor.loss._options import at_least, one_of, option, share, surrogate_of
from aimfor.loss._state import State
from aimfor.loss._step import LossRules, exact_drives
from aimfor.loss._surrogates import SURROGATES, Surrogate
from aimfor.loss.engines import Pass, engine_for

# The name that torch gives to `get_extra_state` in a state_dict.
EXTRA_STATE = "_extra_state"


class Loss(nn.Module):
    """Trains any model for an aim: `loss(model(x), y).backward()`, with any optimiser, in any loop.

    Like BatchNorm it owns its state (thresholds, multipliers, priors) as buffers, learns it in every forward pass in
    training mode, also when the scores need no gradient, and leaves it alone in `eval()` and under `no_grad`. With
    gradient accumulation it learns at every micro-batch. In one pass the sums at the current state give the value, the
    gradient of the scores and the step of the state; the paper updates the multipliers with the scores after the
    model's step, here they see them at the next batch.

    The value is a Lagrangian and says nothing about progress; `diagnostics()` does. Each label's is divided by the
    total of its weights on u and v, which keeps gradients at the size of those of log-loss; the value is the mean over
    labels. A label takes part once both of its classes have been seen in training; until then it adds 0.

    Args:
        aim: an aim record or its text, such as "recall@precision>=0.9".
        num_labels: L.
        surrogate: "smooth_hinge", "hinge", "log", "ramp" (bounds on the 0-1 loss) or "sigmoid" (an approximation).
            None takes the smooth hinge, but the hinge for F_beta. The tight ones, ramp and sigmoid, are reached by a
            ladder: the first `warmup` batches of a label use the hinge.
        constraint: which rates drive the multipliers and, for F_beta, its weights: "exact" for the true 0-1 rates,
            "surrogate" for their bounds. None takes exact rates, but those of the surrogate over areas. A constraint
            that holds for a bound holds for the true rates of the same batch, but a bound may be out of reach.
        multiclass: labels are class indices `[B]` of `num_labels` exclusive classes; the aim is trained on the softmax
            log-odds of each class.
        priors: share of positives that the aim is about, a number or one per label; the share in the training batches
            when None. Give it when the batches are drawn with another share, without weights that undo it.
        dual_rate: step of the multipliers.
        threshold_rate: step of the thresholds, in standard deviations of the scores.
        warmup: batches that a label spends on the hinge before a tight surrogate.
        log_loss: share of log-loss (cross-entropy when `multiclass`) in the gradient, from 0 to 1; the rest is the
            aim. None takes 0.5, but 0.8 for F_beta and over areas. Gradients of both are brought to one size. Log-loss
            keeps the whole ranking, the aim sharpens the part that counts. Thresholds, multipliers and priors are
            learned for the aim at any share.
        log_loss_batches: batches at the start with a share of 1. A model that starts from scratch may end better so;
            500 is a first number to try where there are a thousand batches and more.
        process_group: ranks whose rows are one batch: None for all, False for this process alone, a process group, or
            one dimension of a DeviceMesh.
        total_labels: labels of all shards together, where this loss has a shard of them: values then sum to the whole.

    Example:
        >>> loss = Loss("recall@precision>=0.9")
        >>> scores = torch.tensor([2.0, -1.0, 0.5, -2.0], requires_grad=True)
        >>> loss(scores, torch.tensor([1, 0, 1, 0])).backward()
        >>> loss.thresholds.shape
        torch.Size([1, 1])
    """

    _advised = True  # False where a head warns for the losses of all its chunks

    _dual_rate: float
    _threshold_rate: float
    _log_loss: float
    _log_loss_batches: int
    _warmup: int
    _surrogate: Surrogate

    def __init__(
        self,
        aim: str | Aim,
        *,
        num_labels: int = 1,
        surrogate: str | None = None,
        constraint: str | None = None,
        multiclass: bool = False,
        priors: float | list[float] | tuple[float, ...] | Tensor | None = None,
        dual_rate: float = 0.01,
        threshold_rate: float = 0.1,
        warmup: int = 500,
        log_loss: float | None = None,
        log_loss_batches: int = 0,
        process_group: Any = None,
        total_labels: int | None = None,
    ):
        super().__init__()
        self.aim = parse_aim(aim)
        checks.whole_number("num_labels", num_labels, at_least=2 if multiclass is True else 1)
        for count in self.aim.label_counts():
            checks.rule(count == num_labels, "aim", f"must have one target per label ({num_labels} labels)", count)
        checks.yes_or_no("multiclass", multiclass)
        surrogate = self.aim.default_surrogate if surrogate is None else surrogate
        checks.choice("surrogate", surrogate, tuple(SURROGATES))
        self.num_labels = num_labels
        self.surrogate = SURROGATES[surrogate]
        self.constraint = self.aim.default_constraint if constraint is None else constraint
        self.multiclass = multiclass
        self.dual_rate = dual_rate
        self.threshold_rate = threshold_rate
        self.warmup = warmup
        self.log_loss = self.aim.default_log_loss if log_loss is None else log_loss
        self.log_loss_batches = log_loss_batches
        self.state = State(self.aim.anchor_count, num_labels, known_priors(priors, num_labels))
        self.process_group = checked_group(process_group)
        self.total_labels = num_labels if total_labels is None else total_labels
        checks.whole_number("total_labels", self.total_labels, at_least=num_labels)
        self.told_of_vacuous = False
        self._number = take_number(self)

    @property
    def _filled_state(self) -> State:
        """The state, with right numbers also where others gave it memory and did not fill that in."""
        state: Any = self._modules["state"]  # as an attribute it takes as long as a small tensor to make
        if state.without_numbers:
            state.fill_in_()
        return state

    def reset_parameters(self) -> None:
        """Forget everything that was learned; frameworks call it after they gave a module memory."""
        self.state.reset_()

    @property
    def thresholds(self) -> Tensor:
        """`[K, L]` learned thresholds, positive means score >= threshold; the buffer itself, so clone it to keep it."""
        return self._filled_state.thresholds

    @property
    def multipliers(self) -> Tensor:
        """`[K, L]` learned multipliers."""
        return self._filled_state.multipliers

    @property
    def priors(self) -> Tensor:
        """`[L]` share of positives, given or counted; 0.5 for a counted label until both of its classes were seen."""
        return self._filled_state.priors

    def forward(
        self, scores: Tensor, labels: Tensor, *, weights: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The Lagrangian of the aim on this batch.

        Args:
            scores: `[B]` or `[B, L]`, raw scores; nothing is passed through a sigmoid.
            labels: 0/1 of the same shape, any dtype, dense or sparse (CSR, COO, see `sparse_labels`); with
                `multiclass` class indices `[B]`.
            weights: `[B]` or like scores, at least 0; only their proportions matter.
            mask: `[B]` or like scores, False where the label is unknown; what stands there is not looked at.

        Returns:
            A scalar.
        """
        learning = self.training and torch.is_grad_enabled()
        if torch.compiler.is_compiling():
            from aimfor.loss import _compiled as compiled  # here, as it imports torch's compiler

            # Of classes the log-odds have a graph of their own, and sparse labels, or what is no tensor, are nothing
            # that a compiled graph knows.
            known = isinstance(labels, Tensor) and labels.layout == torch.strided and not self.multiclass
            if known:
                return compiled.in_graph(self, scores, labels, weights, mask, learning)
            return compiled.between_graphs(self, scores, labels, weights, mask, learning)  # pyright: ignore[reportCallIssue]
        if "torch._dynamo" in sys.modules:  # else no graph can be near
            return _between_graphs()(self, scores, labels, weights, mask, learning)
        return attach_gradient(*self._evaluate(scores, labels, weights, mask, learning))

    def _evaluate(
        self, scores: Tensor, labels: Tensor, weights: Tensor | None, mask: Tensor | None, learning: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The value, what it is to be differentiated by, and the gradient in that; moves the state when learning."""
        return finished(self._exchange(scores, labels, weights, mask, learning))

    def _exchange(
        self, scores: Tensor, labels: Tensor, weights: Tensor | None, mask: Tensor | None, learning: bool
    ) -> Exchange[tuple[Tensor, Tensor, Tensor]]:
        """The same in the pieces between its two messages to other ranks."""
        scores, labels = awaited(scores), awaited(labels)
        state, rules = self._filled_state, self._rules(learning)  # once: a module looks for its parts in Python
        try:
            device = state.device
            if isinstance(scores, Tensor) and scores.device != device:
                raise ValueError(
                    f"scores must be on the device of the loss, {device}, got {scores.device}: move the loss with "
                    f"loss.to({str(scores.device)!r})"
                )
            batch = training_batch(scores, labels, weights, mask, self.num_labels, self.multiclass)
            run = engine_for(batch.scores, self._surrogate).begin(batch, state, rules)
            run.batch = batch
        except Exception as error:
            overflow = learning and isinstance(error, ValueError) and overflowed(scores)
            yield from report_refusal(rules.ranks, state.score_mean, overflow)
            if not overflow:
                raise
            return overflow_result(scores)
        try:
            value, gradient = yield from self._pass(state, rules, run)
        except Overflow:  # on another rank
            return overflow_result(scores)
        if self.total_labels != self.num_labels:
            share = self.num_labels / self.total_labels
            value, gradient = value * share, gradient * share
        # Log-odds have a graph of their own; otherwise the gradient is that of the scores as they came.
        source = batch.scores if self.multiclass else scores
        if gradient.shape != source.shape or gradient.dtype != gradient_type(source):
            gradient = gradient.view(source.shape).to(gradient_type(source))
        return value, source, gradient

    def diagnostics(self) -> Diagnostics:
        """Running numbers of the recent training batches; see `Diagnostics`."""
        state = self._filled_state
        anchors = self._table(state, state.priors)
        return diagnose(state, anchors, exact_drives(state, self._rules(learning=False)))

    surrogate: Surrogate = option("surrogate", surrogate_of, "The surrogate, which may be set by its name")
    dual_rate: float = option("dual_rate", checks.positive_number, "Step of the multipliers")
    threshold_rate: float = option("threshold_rate", checks.positive_number, "Step of the thresholds")
    log_loss: float = option("log_loss", share, "Share of log-loss in the gradient")
    log_loss_batches: int = option("log_loss_batches", at_least(0), "Batches at the start with log-loss alone")
    warmup: int = option("warmup", at_least(1), "Batches that a label spends on the hinge before a tight surrogate")
    constraint: str = option("constraint", one_of("surrogate", "exact"), "Which rates drive the multipliers")

    def get_extra_state(self) -> Tensor:
        """What the state is about, as text in bytes: numbers of another aim would load and mean something else."""
        return torch.tensor(list(self._subject().encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing to keep. What loads without `load_state_dict`, which compares, starts anew with another aim."""
        saved = self._other_subject(state)
        if saved is not None:
            self.state.of_another_aim = True
            warn_of_other_aim(saved, self._subject())

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False):
        """Continue from a saved state.

        Args:
            state_dict: what `state_dict()` of a loss for the same aim and number of labels gave.
            strict: True refuses the state of another aim; False starts anew there, with an `OtherAimWarning`.
            assign: as for every module.
        """
        saved = self._other_subject(state_dict.get(EXTRA_STATE))
        if strict and saved is not None:
            raise ValueError(
                f"state_dict must be of a loss for {self._subject()!r}, got {saved!r}: load it with strict=False to "
                "start anew"
            )
        return super().load_state_dict(state_dict, strict, assign)

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors) -> None:
        saved = self._other_subject(state_dict.get(prefix + EXTRA_STATE))
        if saved is not None:
            # A model that holds this loss refuses missing keys where it is strict, and goes on where it is not. Torch
            # does not say here which of the two it is.
            missing.append(f"{prefix}state for {self._subject()!r}, the saved one is for {saved!r}")
            self.state.reset_()
            warn_of_other_aim(saved, self._subject())
            for key in [key for key in state_dict if key.startswith(prefix)]:
                del state_dict[key]
            state_dict.update(self.state_dict(prefix=prefix))
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)

    def _other_subject(self, saved: Tensor | None) -> str | None:
        """What a saved state is about, where that is something else than this loss."""
        text = None if saved is None else bytes(saved.tolist()).decode(errors="replace")
        return None if text == self._subject() else text

    def _subject(self) -> str:
        return subject_of(self.aim, self.num_labels, self.multiclass)

    def __deepcopy__(self, memo: dict) -> "Loss":
        memo[id(self.process_group)] = self.process_group  # a group of processes is not copied
        other = memo[id(self)] = type(self).__new__(type(self))
        other.__setstate__(copy.deepcopy(self.__dict__, memo))
        return other

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._number = take_number(self)  # a copy is another loss

    def extra_repr(self) -> str:
        return (
            f"{str(self.aim)!r}, num_labels={self.num_labels}, surrogate={self.surrogate.name!r}, "
            f"constraint={self.constraint!r}, log_loss={self.log_loss:g}, multiclass={self.multiclass}"
        )

    def _pass(self, state: State, rules: LossRules, run: Pass) -> Exchange[tuple[Tensor, Tensor]]:
        """Value and gradient on this batch, and the step of the state."""
        learning = rules.learning
        if rules.ranks.size > 1:
            run.census = yield from sum_census(rules.ranks, run.census)
        if learning:
            state.count_batch_()
        counted, given = run.observe_(), state.given_priors
        priors = counted if given is None else given
        anchors = self._table(state, priors)
        value, gradient = yield from run.step(anchors)
        if learning and rules.log_loss == 1:
            state.forget_looks_()  # no constraint is tried by log-loss alone
        if learning and self._advised and at_a_look(state):
            advise(self.aim, (self,), (anchors,))
        return value, gradient

    def _rules(self, learning: bool) -> LossRules:
        starting = learning and self._log_loss_batches > 0 and self.state.batches < self._log_loss_batches
        return LossRules(
            self._surrogate,
            self._constraint == "exact",
            self._dual_rate,
            self._threshold_rate,
            self._warmup,
            learning,
            1.0 if starting else self._log_loss,
            self.multiclass,
            training_ranks(self.process_group) if learning else ALONE,
        )

    def _table(self, state: State, priors: Tensor) -> Anchors:
        """The table of the aim at the running rates."""
        aim, rates = self.aim, NO_RATES
        if aim.follows_rates:
            rates = state.exact_rates if self.constraint == "exact" else state.surrogate_rates
        anchors = aim.anchors(priors, rates)
        return aim.counted(anchors, priors, state.exact_rates) if aim.counts_by_rates else anchors


def subject_of(aim: Aim, num_labels: int, multiclass: bool = False) -> str:
    """What a saved state says that it is about."""
    return f"{aim}, num_labels={num_labels}{', multiclass' if multiclass else ''}"


@lru_cache(maxsize=1)
def _between_graphs() -> Callable[..., Tensor]:
    """`_compiled.between_graphs`, which imports torch's compiler."""
    from aimfor.loss import _compiled as compiled

    return compiled.between_graphs  # pyright: ignore[reportReturnType]
