"""Weigh: the loss. Scores and labels in; one scalar to differentiate out, its own state learned on the way."""

import itertools
import warnings
import weakref

import torch
from torch import Tensor, nn

from aimfor._base import checks
from aimfor._base.warnings import InfeasibleConstraintWarning, VacuousRangeWarning
from aimfor.aims import NO_RATES, Aim, Anchors, PointAim, Rates
from aimfor.aims import aim as parse_aim
from aimfor.loss._autograd import attach_gradient
from aimfor.loss._batch import Batch, known_priors, training_batch
from aimfor.loss._diagnostics import Diagnostics, diagnose
from aimfor.loss._distributed import sum_over_ranks, world_size
from aimfor.loss._state import LOOK_EVERY, State, Step, above, difference
from aimfor.loss._surrogates import SURROGATES, Surrogate
from aimfor.loss.engines import NativeRun, Options, TorchRun, engine_for, log_loss, reduced

# Losses by number: an operation of a compiled graph takes tensors and numbers, no modules.
_NUMBERS = itertools.count()
_LOSSES: weakref.WeakValueDictionary[int, "Loss"] = weakref.WeakValueDictionary()


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
        surrogate: "hinge", "log", "smooth_hinge", "ramp" (bounds on the 0-1 loss) or "sigmoid" (an approximation). The
            tight ones, ramp and sigmoid, are reached by a ladder: the first `warmup` batches of a label use the hinge.
        constraint: "surrogate", or "exact" to drive the multipliers by the true 0-1 rates, for aims that the surrogate
            constraint cannot meet, and for F_beta, whose weights then follow the F_beta there is instead of its bound.
        multiclass: labels are class indices `[B]` of `num_labels` exclusive classes; the aim is trained on the softmax
            log-odds of each class.
        priors: share of positives that the aim is about, a number or one per label; the share in the training batches
            when None. Give it when the batches are drawn with another share, without weights that undo it.
        dual_rate: step of the multipliers.
        threshold_rate: step of the thresholds, in standard deviations of the scores.
        warmup: batches that a label spends on the hinge before a tight surrogate.
        log_loss_batches: batches at the start that train the scores by log-loss (cross-entropy when `multiclass`),
            while thresholds, multipliers and priors are learned for the aim already. A model that starts from scratch
            may end better so; 500 is a first number to try where there are a thousand batches and more.

    Example:
        >>> loss = Loss("recall@precision>=0.9")
        >>> scores = torch.tensor([2.0, -1.0, 0.5, -2.0], requires_grad=True)
        >>> loss(scores, torch.tensor([1, 0, 1, 0])).backward()
        >>> loss.thresholds.shape
        torch.Size([1, 1])
    """

    def __init__(
        self,
        aim: str | Aim,
        *,
        num_labels: int = 1,
        surrogate: str = "hinge",
        constraint: str = "surrogate",
        multiclass: bool = False,
        priors: float | list[float] | tuple[float, ...] | Tensor | None = None,
        dual_rate: float = 0.01,
        threshold_rate: float = 0.1,
        warmup: int = 500,
        log_loss_batches: int = 0,
    ):
        super().__init__()
        self.aim = parse_aim(aim)
        checks.whole_number("num_labels", num_labels, at_least=2 if multiclass is True else 1)
        for count in self.aim.label_counts():
            checks.rule(count == num_labels, "aim", f"must have one target per label ({num_labels} labels)", count)
        checks.yes_or_no("multiclass", multiclass)
        checks.choice("surrogate", surrogate, tuple(SURROGATES))
        checks.choice("constraint", constraint, ("surrogate", "exact"))
        checks.whole_number("warmup", warmup, at_least=1)
        checks.whole_number("log_loss_batches", log_loss_batches, at_least=0)
        self.num_labels = num_labels
        self.surrogate: Surrogate = SURROGATES[surrogate]
        self.constraint = constraint
        self.multiclass = multiclass
        self.dual_rate = dual_rate
        self.threshold_rate = threshold_rate
        self.warmup = warmup
        self.log_loss_batches = log_loss_batches
        self.state = State(self.aim.anchor_count, num_labels, known_priors(priors, num_labels))
        self._told_of_vacuous = False
        self._take_number()

    @property
    def thresholds(self) -> Tensor:
        """`[K, L]` learned thresholds, positive means score >= threshold; the buffer itself, so clone it to keep it."""
        return self.state.thresholds

    @property
    def multipliers(self) -> Tensor:
        """`[K, L]` learned multipliers."""
        return self.state.multipliers

    @property
    def priors(self) -> Tensor:
        """`[L]` share of positives, given or counted; 0.5 for a counted label until both of its classes were seen."""
        return self.state.priors

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
        # Of classes the log-odds have a graph of their own, and sparse labels, or what is no tensor, are nothing that a
        # compiled graph knows.
        compiling = torch.compiler.is_compiling() and not self.multiclass
        if not compiling or not isinstance(labels, Tensor) or labels.layout != torch.strided:
            return self._at_once(scores, labels, weights, mask, learning)  # pyright: ignore[reportCallIssue]
        buffers = [buffer for buffer in self.state._buffers.values() if buffer is not None]
        inputs = scores.detach(), labels, weights, mask, buffers, self._number, learning
        value, gradient = torch.ops.aimfor.loss(*inputs)
        return torch.ops.aimfor.attach_gradient(value, scores, gradient)

    @torch.compiler.disable
    def _at_once(
        self, scores: Tensor, labels: Tensor, weights: Tensor | None, mask: Tensor | None, learning: bool
    ) -> Tensor:
        """The loss outside compiled graphs, or between two of them."""
        return attach_gradient(*self._evaluate(scores, labels, weights, mask, learning))

    def _evaluate(
        self, scores: Tensor, labels: Tensor, weights: Tensor | None, mask: Tensor | None, learning: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The value, what it is to be differentiated by, and the gradient in that; moves the state when learning."""
        state = self.state  # once: a module looks for its parts in Python
        try:
            batch = training_batch(scores, labels, weights, mask, self.num_labels, self.multiclass)
            device = state.thresholds.device
            if scores.device != device:
                raise ValueError(f"scores must be on the device of the loss, {device}, got {scores.device}")
            engine = engine_for(batch.scores)
            if engine == "native":
                run = NativeRun(state, self._options(), batch, learning)
            else:
                run = TorchRun(state, self._options(), batch, engine)
        except Exception:
            if learning:  # the other ranks wait for this one's census, whatever went wrong here
                sum_over_ranks(self._sent_census(None))
            raise
        value, gradient = self._pass(state, run, batch, learning)
        # Log-odds have a graph of their own; otherwise the gradient is that of the scores as they came.
        source = batch.scores if self.multiclass else scores
        if gradient.shape != source.shape or gradient.dtype != gradient_type(source):
            gradient = gradient.view(source.shape).to(gradient_type(source))
        return value, source, gradient

    def diagnostics(self) -> Diagnostics:
        """Running numbers of the recent training batches; see `Diagnostics`."""
        state = self.state
        anchors = self.aim.anchors(state.priors, self._followed_rates())
        return diagnose(state, anchors, self._exact_drives())

    @property
    def dual_rate(self) -> float:
        """Step of the multipliers; may be changed while training."""
        return self._dual_rate

    @dual_rate.setter
    def dual_rate(self, value: float) -> None:
        self._dual_rate = checks.positive_number("dual_rate", value)

    @property
    def threshold_rate(self) -> float:
        """Step of the thresholds, in standard deviations of the scores; may be changed while training."""
        return self._threshold_rate

    @threshold_rate.setter
    def threshold_rate(self, value: float) -> None:
        self._threshold_rate = checks.positive_number("threshold_rate", value)

    def get_extra_state(self) -> Tensor:
        """What the state is about, as text in bytes: numbers of another aim would load and mean something else."""
        return torch.tensor(list(self._subject().encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        saved = bytes(state.tolist()).decode(errors="replace")
        checks.rule(saved == self._subject(), "state_dict", f"must be of a loss for {self._subject()!r}", repr(saved))

    def _subject(self) -> str:
        return f"{self.aim}, num_labels={self.num_labels}{', multiclass' if self.multiclass else ''}"

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._take_number()  # a copy is another loss

    def _take_number(self) -> None:
        number = next(_NUMBERS)
        # A tensor, as a compiled graph would be compiled again for another number.
        self._number = torch.tensor(number, device="cpu")
        _LOSSES[number] = self

    def extra_repr(self) -> str:
        return (
            f"{str(self.aim)!r}, num_labels={self.num_labels}, surrogate={self.surrogate.name!r}, "
            f"constraint={self.constraint!r}, multiclass={self.multiclass}"
        )

    def _pass(self, state: State, run: NativeRun | TorchRun, batch: Batch, learning: bool) -> tuple[Tensor, Tensor]:
        """Value and gradient on this batch, and the step of the state."""
        reduce = sum_over_ranks if learning else lambda tensor: tensor
        alone = not learning or world_size() == 1
        if not alone:
            run.census = self._received_census(reduce(self._sent_census(run.census)))
        if learning:
            state.count_batch_()
        counted = run.observe_() if learning else state.counted_priors
        given = state.given_priors
        priors = counted if given is None else given
        anchors = self.aim.anchors(priors, self._followed_rates() if self.aim.follows_rates else NO_RATES)
        if isinstance(run, NativeRun) and alone:
            value, gradient = run.step(anchors)
        else:
            value, gradient = self._step(run, counted, anchors, reduce, learning)
        if learning and state.batches <= self.log_loss_batches:
            value, gradient = self._log_loss(batch, run.census, reduce)
        looking = learning and state.batches % LOOK_EVERY == 0
        if looking:
            self._warn_of_infeasible()
        if looking or (learning and state.batches == 1):
            self._warn_of_vacuous(anchors)
        return value, gradient

    @torch.no_grad()
    def _step(
        self, run: NativeRun | TorchRun, counted: Tensor, anchors: Anchors, reduce, learning: bool
    ) -> tuple[Tensor, Tensor]:
        """The step in torch: costs from the state, the pass, and the state from its sums."""
        state, census = self.state, run.census
        came = census[0] + census[1]
        active = state.taking_part.mul_(above(came, 0.0))
        # Rates are shares of each class as the batches hold it; what the aim is about, a given prior if there is one,
        # enters with the false positives per positive.
        weight = came * active + (1 - active)
        u_unit, v_unit = active / (counted * weight), active / ((1 - counted) * weight)
        multipliers = state.multipliers if anchors.multiplier is None else anchors.multiplier
        u_cost, v_cost = anchors.costs(multipliers)
        # All anchors of a label by one factor: the minimiser of the label stays, and the gradient keeps the size of
        # that of log-loss however the multipliers grow, so that a learning rate and a shared trunk serve all labels.
        total = u_cost.sum(0) + v_cost.sum(0)
        share = active / (total + (1 - above(total, 0.0))) / self.num_labels
        u_cost, v_cost = u_cost.mul_(share * u_unit), v_cost.mul_(share * v_unit)
        counts_for = state.counts_for(active, self._exact_drives()) if learning else None
        errors = counts_for is not None and bool(counts_for.any())
        counts = run.count(anchors, u_cost, v_cost, errors)
        sums, squares = reduced(reduce, counts)

        # In place from here on, and let go of early: what is `[K, L]` adds up beside the gradient.
        positives = census[1] * u_unit
        lagrangian = (sums.positive_loss * u_cost).addcmul_(sums.negative_loss, v_cost)
        lagrangian.addcmul_(multipliers, share * anchors.width * anchors.largest_room(positives), value=-1)
        value = lagrangian.sum()
        del lagrangian
        slope = difference(sums.negative_slope.mul_(v_cost), sums.positive_slope.mul_(u_cost))
        del u_cost, v_cost
        surrogate = Rates(sums.positive_loss.mul_(u_unit), sums.negative_loss.mul_(v_unit), positives)
        exact = None
        if errors:
            exact = Rates(sums.false_negatives.mul_(u_unit), sums.false_positives.mul_(v_unit), positives)
        if counts_for is None:
            return value, counts.gradient
        step = Step(
            active=active,
            anchors=anchors,
            surrogate=surrogate,
            exact=exact,
            negatives=census[0] * v_unit,
            counts_for=counts_for,
            exact_drives=self._exact_drives(),
            slope=slope,
            variance=squares / weight,
        )
        state.learn_(step, self.dual_rate, self.threshold_rate)
        # Data-parallel training averages the gradients over ranks, and each rank holds only its rows of the sum.
        return value, counts.gradient * world_size() if world_size() > 1 else counts.gradient

    def _log_loss(self, batch: Batch, census: Tensor, reduce) -> tuple[Tensor, Tensor]:
        """What trains the scores in the first batches: a mean over labels, of classes the cross-entropy."""
        came = census[0] + census[1]
        active = self.state.taking_part.mul_(above(came, 0.0))
        cost = active / (came * active + (1 - active))
        value, gradient = log_loss(batch, cost if self.multiclass else cost / self.num_labels, self.multiclass)
        self.state.forget_looks_()  # no constraint has been tried yet
        return reduce(value), gradient * world_size() if world_size() > 1 else gradient

    def _options(self) -> Options:
        return Options(self.surrogate, self.constraint == "exact", self.dual_rate, self.threshold_rate, self.warmup)

    def _followed_rates(self) -> Rates:
        """The running rates that the table of an aim may depend on."""
        return self.state.exact_rates if self.constraint == "exact" else self.state.surrogate_rates

    def _exact_drives(self) -> bool | Tensor:
        """Where the exact rates drive the multipliers: on the convex rung of a ladder too, because the hinge may have
        no feasible point where the tight surrogate, for which it only prepares, has one."""
        if self.constraint == "exact" or self.surrogate.convex:
            return self.constraint == "exact"
        return self.state.steps < self.warmup

    def _sent_census(self, census: Tensor | None) -> Tensor:
        """What is summed over ranks before the pass: `[3 L + 1]`, the last a count of ranks whose input was refused."""
        if census is None:
            return torch.cat([self.state.priors.new_zeros(3 * self.num_labels), self.state.priors.new_ones(1)])
        return torch.cat([census.flatten(), census.new_zeros(1)])

    def _received_census(self, received: Tensor) -> Tensor:
        if received[-1] > 0:
            raise ValueError(
                "scores, labels, weights and mask must be valid on every rank, another rank refused its own"
            )
        return received[:-1].unflatten(0, (3, -1))

    def _warn_of_infeasible(self) -> None:
        if self.state.warned:
            return
        stuck = self.state.stuck.all(0)
        if bool(stuck.any()):
            self.state.warned = True
            ways = ['constraint="exact"'] if self.constraint == "surrogate" else []
            ways += ['surrogate="sigmoid" with constraint="exact"'] if self.surrogate.convex else []
            ways += ["an area such as aucpr"] if isinstance(self.aim, PointAim) else []
            ways += ["a milder target"]
            kind = "exact" if self.constraint == "exact" else self.surrogate.name
            warnings.warn(
                f"the {kind} constraint of {str(self.aim)!r} looks infeasible for {self._named(stuck)}: it stays "
                f"broken at the largest weight it gets; try {', '.join(ways)}",
                InfeasibleConstraintWarning,
                stacklevel=checks.callers_level(),
            )

    def _warn_of_vacuous(self, anchors: Anchors) -> None:
        if self._told_of_vacuous:
            return
        # Only ranges of precision can be empty; the width of F_beta may vanish for a while.
        vacuous = (self.state.taking_part > 0) & ~(anchors.width > 0).any(0) & (anchors.multiplier is None)
        if bool(vacuous.any()):
            self._told_of_vacuous = True
            warnings.warn(
                f"{str(self.aim)!r} asks nothing of {self._named(vacuous)}: their share of positives is above the "
                "range of precision, so every threshold is; they do not train for it",
                VacuousRangeWarning,
                stacklevel=checks.callers_level(),
            )

    def _named(self, labels: Tensor) -> str:
        """How many of the labels these are, and which, or the first five."""
        numbers = labels.nonzero().flatten().tolist()
        shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
        return f"{len(numbers)} of {self.num_labels} labels ({shown})"


@torch.library.custom_op("aimfor::loss", mutates_args={"state"})
def _compiled_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    mask: Tensor | None,
    state: list[Tensor],
    number: Tensor,
    learning: bool,
) -> tuple[Tensor, Tensor]:
    """A loss as one operation of a compiled graph: value, and gradient in the scores."""
    loss = _LOSSES[int(number)]
    own = loss.state._buffers
    kept = dict(own)
    # A graph may hand over copies of the buffers, which it writes back.
    own.update(zip((name for name, buffer in kept.items() if buffer is not None), state, strict=True))
    try:
        value, _, gradient = loss._evaluate(scores, labels, weights, mask, learning)
    finally:
        own.update(kept)
    return value.to(value_type(scores)), gradient


@_compiled_loss.register_fake
def _(scores, labels, weights, mask, state, number, learning):
    gradient = torch.empty_like(scores, dtype=gradient_type(scores), memory_format=torch.contiguous_format)
    return scores.new_empty((), dtype=value_type(scores)), gradient


# Torch differentiates no operation that changes its arguments: a second one attaches the gradient.
@torch.library.custom_op("aimfor::attach_gradient", mutates_args=())
def _compiled_attach(value: Tensor, scores: Tensor, gradient: Tensor) -> Tensor:
    return value.clone()


@_compiled_attach.register_fake
def _(value, scores, gradient):
    return torch.empty_like(value)


def _keep_gradient(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[2])
    ctx.dtype = inputs[1].dtype


_compiled_attach.register_autograd(
    lambda ctx, factor: (None, (ctx.saved_tensors[0] * factor).to(ctx.dtype), None),
    setup_context=_keep_gradient,
)


def value_type(scores: Tensor) -> torch.dtype:
    """What the value is given in: that of the scores, but float32 for what has fewer digits."""
    return torch.promote_types(scores.dtype, torch.float32)


def gradient_type(scores: Tensor) -> torch.dtype:
    """What the gradient is kept in: that of the scores, but float32 for float16, whose smallest number is too large."""
    return torch.float32 if scores.dtype == torch.float16 else scores.dtype
