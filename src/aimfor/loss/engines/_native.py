"""The native engine, which does the whole step in C++."""

import ctypes
import operator
import weakref
from collections.abc import Collection
from ctypes import byref
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from aimfor.aims import Anchors
from aimfor.loss import _state as state_rules
from aimfor.loss._batch import (
    LARGEST_SCORE,
    LARGEST_WEIGHT,
    Batch,
    Positives,
    has_memory,
    refuse,
    valid_positions,
    valid_weights,
)
from aimfor.loss._distributed import Exchange
from aimfor.loss._state import State
from aimfor.loss._step import LogLossCosts, LossRules, PassCounts, Sums, summed
from aimfor.loss._surrogates import LEAK, Surrogate
from aimfor.loss.engines import _native_library as native_library
from aimfor.loss.engines._native_library import (
    BATCH_STRUCT,
    BUFFERS,
    SURROGATE_CODES,
    TABLE,
    TABLE_STRUCT,
    FaultRecord,
    RulesRecord,
    StateRecord,
    library,
)
from aimfor.loss.engines._protocol import CountingEngine, Pass

SCORE_TYPES = {torch.float32: 0, torch.bfloat16: 1}
# Those, and one that is widened first.
TAKEN_TYPES = (*SCORE_TYPES, torch.float16)
LABEL_TYPES = {torch.float32: 1, torch.bool: 2, torch.uint8: 2, torch.int32: 3, torch.int64: 4, torch.float64: 5}
# What the entry is of that breaks its rule; positions of sparse labels that are not plain ones are another fault.
FAULTS = {1: "scores", 2: "labels", 3: "weights", 5: "labels"}
ODD_POSITIONS = 4

_entries = operator.attrgetter(*TABLE)
_buffers = operator.itemgetter(*BUFFERS)


class NativeEngine(CountingEngine):
    """Scores of 16 or 32 bits on the CPU, with the surrogates of the library."""

    name = "native"
    surrogates = SURROGATE_CODES.keys()

    def problem(self) -> str | None:
        return native_library.problem()

    def description(self) -> str:
        return native_library.description()

    def scores_problem(self, scores: Tensor) -> str | None:
        if scores.is_cpu and scores.dtype in TAKEN_TYPES:
            return None
        return f"scores of float32, bfloat16 or float16 on the CPU, got {scores.dtype} on {scores.device}"

    def begin(self, batch: Batch, state: State, rules: LossRules) -> "NativePass":
        return NativePass(batch, state, rules)


class NativePass(Pass):
    """A batch and the state that learns from it, as the library reads them; keeps alive what pointers point at."""

    def __init__(self, batch: Batch, state: State, rules: LossRules):
        self.state, self.rules = state, rules
        self._rules = _rules_record(*rules[:-1])
        rows, labels = batch.scores.shape
        self._buffers = _checked_buffers(state, labels)
        self.scores = _readable(batch.scores, SCORE_TYPES, torch.float32)
        self.labels, self.positives, self.weights, self.mask = None, None, batch.weights, batch.mask
        if isinstance(batch.labels, Positives):
            self.positives = _readable_positions(batch.labels, labels)
        else:
            whole = torch.float32 if batch.labels.is_floating_point() else torch.int64
            self.labels = _readable(batch.labels, LABEL_TYPES, whole)
        if self.weights is not None:
            if self.weights.dtype != torch.float32:
                valid_weights(self.weights, self.mask)  # before it is rounded
            self.weights = _readable(self.weights, (torch.float32,), torch.float32)
        # In one piece of memory a bit for every label that is 1, in words of 32 labels, and the census, `[3, L]`.
        self._words, self._num_labels = -(-labels // 32) * rows, labels
        self._memory = _empty(self._words + 3 * labels)
        self._census_at = self._memory.data_ptr() + 4 * self._words
        self._record = self._packed()
        self._take_census()

    @property
    def census(self) -> Tensor:
        """What was counted, in the memory from which the library reads it."""
        return self._memory[self._words :].view(3, -1)

    @census.setter
    def census(self, summed: Tensor) -> None:
        self.census.copy_(summed)

    def observe_(self) -> Tensor:
        if not self.rules.learning:
            return super().observe_()
        anchors, labels = self._buffers.shape
        self.counted_priors = priors = _empty(labels)
        record, rules = self._buffers.record, byref(self._rules)
        library().aimfor_observe(record, self._census_at, anchors, labels, rules, priors.data_ptr())
        return priors

    def step(self, anchors: Anchors) -> Exchange[tuple[Tensor, Tensor]]:
        """The whole step in the library; with ranks in two parts, between which they add up their sums."""
        ranks = self.rules.ranks
        if ranks.size == 1:
            return self._run(anchors)
        counts = self._counted(anchors)
        value = self._learn(anchors, *(yield from summed(ranks, counts)))
        return value, counts.gradient * ranks.size

    def count(self, anchors: Anchors, positive_cost: Tensor, negative_cost: Tensor, errors: bool) -> PassCounts:
        """The pass alone; the library finds the costs and whether it counts errors from the table and the state."""
        return self._counted(anchors)

    def _counted(self, anchors: Anchors) -> PassCounts:
        sums, beside = _empty(len(Sums._fields), *self._buffers.shape), _empty(2, self._num_labels)
        squares, log_loss = beside
        _, gradient = self._run(anchors, sums.data_ptr(), squares.data_ptr(), log_loss.data_ptr())
        return PassCounts(Sums(*sums), squares, gradient, log_loss if self.rules.log_loss else None)

    def count_with_log_loss(
        self, anchors: Anchors, positive_cost: Tensor, negative_cost: Tensor, errors: bool, log_costs: LogLossCosts
    ) -> PassCounts:
        """The same: the library finds the costs of log-loss too."""
        return self._counted(anchors)

    def _learn(self, anchors: Anchors, sums: Sums, squares: Tensor, log_loss: Tensor | None) -> Tensor:
        """The value, and the step of the state, from sums over all ranks."""
        value, together = torch.empty_like(_SCALAR), torch.cat(sums)
        beside = None if log_loss is None else log_loss.data_ptr()
        _done(
            library().aimfor_learn(
                self._record,
                self._census_at,
                self._buffers.shape[0],
                _table(anchors, *self._buffers.shape),
                self._buffers.record,
                byref(self._rules),
                together.data_ptr(),
                squares.data_ptr(),
                beside,
                value.data_ptr(),
            )
        )
        return value

    def _take_census(self) -> None:
        """Check every value and count the batch; see `_reference.census`."""
        fault = FaultRecord()
        _done(library().aimfor_census(self._record, self._census_at, byref(fault)))
        if fault.kind == ODD_POSITIONS:
            assert self.positives is not None
            # Here it is found out what is odd about them; zeros that are stored all the same are left out.
            self.positives = valid_positions(self.positives, self._num_labels)
            self._record = self._packed()
            self._take_census()
        elif fault.kind:
            name = FAULTS[fault.kind]
            refuse(name, fault.value if self._shown_as_float(name) else int(fault.value))

    def _packed(self) -> bytes:
        scores, labels, positives = self.scores, self.labels, self.positives
        return BATCH_STRUCT.pack(
            *scores.shape,
            *_matrix(scores),
            *_matrix(labels),
            *_matrix(self.weights),
            *_matrix(self.mask),
            *((0, 0, 0, 0) if positives is None else _positions(positives)),
            self._memory.data_ptr(),
            LARGEST_SCORE,
            LARGEST_WEIGHT,
            SCORE_TYPES[scores.dtype],
            0 if labels is None else LABEL_TYPES[labels.dtype],
            torch.get_num_threads(),
        )

    def _shown_as_float(self, name: str) -> bool:
        return name != "labels" or (self.labels is not None and self.labels.is_floating_point())

    def _run(
        self, anchors: Anchors, sums: int | None = None, squares: int | None = None, log_loss: int | None = None
    ) -> tuple[Tensor, Tensor]:
        value = torch.empty_like(_SCALAR)
        gradient = torch.empty_like(self.scores, memory_format=torch.contiguous_format)
        _done(
            library().aimfor_step(
                self._record,
                self._census_at,
                self._buffers.shape[0],
                _table(anchors, *self._buffers.shape),
                self._buffers.record,
                byref(self._rules),
                gradient.data_ptr(),
                value.data_ptr(),
                sums,
                squares,
                log_loss,
            )
        )
        return value, gradient


@lru_cache(maxsize=64)  # to fill a record takes as long as to count a small batch
def _rules_record(
    surrogate: Surrogate,
    exact: bool,
    dual_rate: float,
    threshold_rate: float,
    warmup: int,
    learning: bool,
    log_loss: float,
    exclusive: bool,
) -> RulesRecord:
    """What the library has to know of a loss."""
    return RulesRecord(
        dual_rate=dual_rate,
        threshold_rate=threshold_rate,
        sharpness=1.0 if surrogate.sharpness is None else surrogate.sharpness,
        leak=LEAK,
        log_loss=log_loss,
        forget=state_rules.FORGET,
        forget_slope=state_rules.FORGET_SLOPE,
        progress=state_rules.PROGRESS,
        max_multiplier=state_rules.MAX_MULTIPLIER,
        longest_count=state_rules.LONGEST_COUNT,
        smallest_size=state_rules.SMALLEST_SIZE,
        smallest_deviation=state_rules.SMALLEST_DEVIATION,
        rounding=state_rules.ROUNDING,
        outlying=state_rules.OUTLYING,
        mean_rounding=state_rules.MEAN_ROUNDING,
        nearest_to_ends=state_rules.NEAREST_TO_ENDS,
        warmup=warmup,
        surrogate=SURROGATE_CODES[surrogate],
        tight=not surrogate.convex,
        exact=exact,
        learning=learning,
        exclusive=exclusive,
        look_every=state_rules.LOOK_EVERY,
        count_every=state_rules.COUNT_EVERY,
    )


def _done(code: int) -> None:
    if code:
        raise MemoryError("the native engine ran out of memory")


def _empty(*shape: int) -> Tensor:
    """Memory for the library, where it can write whatever the default device is."""
    return _SCALAR.new_empty(*shape)


# Tensors are made like this one or like the scores. To name a type and a device takes as long again.
_SCALAR = torch.empty((), dtype=torch.float32, device="cpu")


def _readable(tensor: Tensor, types: Collection[torch.dtype], otherwise: torch.dtype) -> Tensor:
    """As the library can read it, which sees memory alone: of one of its types, and with its sign turned there."""
    tensor = tensor.detach().resolve_neg() if tensor.is_neg() else tensor
    return tensor if tensor.dtype in types else tensor.detach().to(otherwise)


def _matrix(tensor: Tensor | None) -> tuple[int, int, int]:
    """A matrix `[B, L]`, or `[B, 1]` that stands for all labels: pointer, stride along rows and along labels."""
    if tensor is None:
        return 0, 0, 0
    (rows, columns), (row_stride, label_stride) = tensor.shape, tensor.stride()
    return tensor.data_ptr(), row_stride if rows > 1 else 0, label_stride if columns > 1 else 0


def _readable_positions(positives: Positives, num_labels: int) -> Positives:
    """The ones of sparse labels, contiguous; values that the library cannot read are checked here."""
    if positives.values is not None and positives.values.dtype != torch.float32:
        positives = valid_positions(positives, num_labels)
    starts, columns, values = positives
    return Positives(starts.contiguous(), columns.contiguous(), None if values is None else values.contiguous())


def _positions(positives: Positives) -> tuple[int, int, int, int]:
    starts, columns, values = positives
    return starts.data_ptr(), columns.data_ptr(), 0 if values is None else values.data_ptr(), len(columns)


def _table(anchors: Anchors, anchor_count: int, num_labels: int) -> bytes:
    places = {id(None): (0, 0, 0)}
    numbers = []
    for name, entry in zip(TABLE, _entries(anchors), strict=True):
        if id(entry) not in places:  # a table has its zeros and ones in several places
            (rows, labels), (anchor_stride, label_stride) = entry.shape, entry.stride()
            # What the library cannot see for itself, and would read as other numbers or beyond the end.
            fits = rows in (1, anchor_count) and labels in (1, num_labels) and (labels == 1 or label_stride <= 1)
            if entry.dtype is not torch.float32 or not fits or not entry.is_cpu:
                raise TypeError(
                    f"{name} must be float32, [{anchor_count}, {num_labels}] with labels side by side and on the CPU, "
                    f"got {entry.dtype}, {list(entry.shape)} with strides {entry.stride()} on {entry.device}"
                )
            places[id(entry)] = entry.data_ptr(), anchor_stride if rows > 1 else 0, label_stride if labels > 1 else 0
        numbers += places[id(entry)]
    return TABLE_STRUCT.pack(*numbers)


def _checked_buffers(state: State, num_labels: int) -> "_CheckedBuffers":
    """Where the buffers are; those that are where they were when they were last checked are not checked again."""
    buffers = _buffers(state._buffers)
    kept = _CHECKED.get(state)
    if kept is None or kept.shape[1] != num_labels or not kept.holds(buffers):
        shape = state.thresholds.shape
        _check_state(shape, num_labels, buffers)
        pointers = [buffer.data_ptr() for buffer in buffers]
        kept = _CHECKED[state] = _CheckedBuffers(buffers, pointers, shape, StateRecord(*pointers))
    return kept


class _CheckedBuffers(NamedTuple):
    """Buffers that have the form that the library reads; held on to, so that no other tensor can be one of them."""

    buffers: tuple[Tensor, ...]
    pointers: list[int]
    shape: torch.Size
    record: ctypes.Array

    def holds(self, buffers: tuple[Tensor | None, ...]) -> bool:
        """Whether these are the buffers, and still where they were."""
        return all(map(operator.is_, self.buffers, buffers)) and self.pointers == list(map(_pointer, self.buffers))


_pointer = Tensor.data_ptr
_CHECKED: weakref.WeakKeyDictionary[State, _CheckedBuffers] = weakref.WeakKeyDictionary()


def _check_state(shape: torch.Size, num_labels: int, buffers: tuple[Tensor | None, ...]) -> None:
    if len(shape) != 2 or shape[1] != num_labels:
        raise TypeError(f"state.thresholds must have shape [K, {num_labels}], got {list(shape)}")
    for buffer, (name, dtype, size) in zip(buffers, _forms(*shape), strict=True):
        # A module may be cast, moved or loaded in ways that it does not see, and the library writes here.
        if (
            buffer is None
            or not has_memory(buffer)
            or buffer.dtype is not dtype
            or buffer.numel() != size
            or not buffer.is_cpu
            or not buffer.is_contiguous()
            or buffer.is_neg()
            or not buffer.data_ptr()
        ):
            raise TypeError(_wrong_form(name, dtype, size, buffer))


@lru_cache(maxsize=64)
def _forms(anchors: int, labels: int) -> tuple[tuple[str, torch.dtype, int], ...]:
    """Name, type and number of entries of each buffer."""
    classes = "positives", "exact_positives", "negatives", "exact_negatives"
    per_label = dict.fromkeys(("steps", *classes, "score_mean", "score_variance"), labels)
    sizes = per_label | {"class_weight": 2 * labels, "rates": 4 * anchors * labels}
    return tuple(
        (name, torch.int64 if name == "steps" else torch.float32, sizes.get(name, anchors * labels)) for name in BUFFERS
    )


def _wrong_form(name: str, dtype: torch.dtype, size: int, buffer: Tensor | None) -> str:
    """The sentence on a buffer that the library cannot use."""
    if buffer is None:
        return f"state.{name} must be a tensor, got None"
    if not has_memory(buffer):
        return f"state.{name} must be a plain tensor with memory of its own, got {type(buffer).__name__}"
    if buffer.is_cpu and (buffer.is_neg() or not buffer.data_ptr()):
        return (
            f"state.{name} must have its numbers in memory, got {'a negated view' if buffer.is_neg() else 'none there'}"
        )
    if buffer.dtype is dtype and buffer.is_cpu and buffer.is_contiguous():
        return f"state.{name} must have {size} entries, got {buffer.numel()}"
    got = str(buffer.dtype) if buffer.dtype is not dtype else f"strides {buffer.stride()} on {buffer.device}"
    return f"state.{name} must be {str(dtype).removeprefix('torch.')}, contiguous and on the CPU, got {got}"
