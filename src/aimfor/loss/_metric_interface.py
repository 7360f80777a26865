"""The part of torchmetrics' interface that `Metric` uses, for environments without torchmetrics.

The names, also the private ones, are those of `torchmetrics.Metric`: `Metric` derives from either and cannot tell them
apart. Only list states with concatenation are here.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class MetricInterface(nn.Module):
    """Counts updates, keeps list states, gathers them for `compute`, and keeps its result until the next update."""

    def __init__(self, *, process_group: Any, distributed_available_fn: Callable[[], bool]):
        super().__init__()
        self.process_group = process_group
        self.distributed_available_fn = distributed_available_fn
        self._defaults: dict[str, list] = {}
        self._persistent: dict[str, bool] = {}
        self._update_count = 0
        self._computed: Any = None
        self._to_sync = True
        self._is_synced = False
        self._cache: dict[str, list[Tensor]] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.update, cls.compute = _counting(cls.update), _caching(cls.compute)

    def update(self, *inputs: Any, **options: Any) -> None:
        """Add a batch to the states."""
        raise NotImplementedError

    def compute(self) -> Any:
        """The value over all that was added, on all ranks."""
        raise NotImplementedError

    def _sync_dist(self, dist_sync_fn: Any = None, process_group: Any = None) -> None:
        raise NotImplementedError

    def add_state(self, name: str, default: list, dist_reduce_fx: str, persistent: bool = False) -> None:
        """Declare a list of tensors, of which all ranks' entries together are the whole."""
        self._defaults[name], self._persistent[name] = list(default), persistent
        setattr(self, name, list(default))

    @property
    def metric_state(self) -> dict[str, list[Tensor]]:
        """The states by name."""
        return {name: getattr(self, name) for name in self._defaults}

    @property
    def update_count(self) -> int:
        """Number of updates since the start or the last `reset`."""
        return self._update_count

    @property
    def update_called(self) -> bool:
        """Whether there was an update since the start or the last `reset`."""
        return self._update_count > 0

    def reset(self) -> None:
        """Forget everything that was added."""
        self._update_count, self._computed, self._is_synced, self._cache = 0, None, False, None
        self._set_states({name: [] for name in self._defaults})

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Add a batch, and give the value on this batch and this rank alone."""
        if self._is_synced:
            raise RuntimeError("the metric holds the rows of all ranks: call unsync() before you add more")
        before, count = self.metric_state, self._update_count
        batch: dict[str, list[Tensor]] = {name: [] for name in self._defaults}
        self.reset()
        try:
            self.update(*inputs, **options)
            batch, count = self.metric_state, count + 1
            self._to_sync = False
            return self.compute()
        finally:
            self._to_sync, self._computed, self._update_count = True, None, count
            self._set_states({name: before[name] + batch[name] for name in before})

    def sync(self, should_sync: bool = True) -> None:
        """Replace the states by those of all ranks together; every rank must call it."""
        if not should_sync or not self.distributed_available_fn():
            return
        if self._is_synced:
            raise RuntimeError("the metric has been synced already: call unsync() first")
        self._cache = self.metric_state
        self._sync_dist(process_group=self.process_group)
        self._is_synced = True

    def unsync(self, should_unsync: bool = True) -> None:
        """Go back to the states of this rank."""
        if not should_unsync:
            return
        if self._cache is None:
            raise RuntimeError("the metric is not synced: call sync() first")
        self._set_states(self._cache)
        self._is_synced, self._cache = False, None

    @contextmanager
    def sync_context(self, should_sync: bool = True, should_unsync: bool = True) -> Generator[None, None, None]:
        """Hold the states of all ranks inside the block."""
        self.sync(should_sync=should_sync)
        try:
            yield
        finally:
            self.unsync(should_unsync=self._is_synced and should_unsync)

    def persistent(self, mode: bool = False) -> None:
        """Say whether `state_dict` holds the states."""
        self._persistent = dict.fromkeys(self._persistent, mode)

    def clone(self) -> Any:
        """A copy with states of its own."""
        return copy.deepcopy(self)

    def _set_states(self, states: dict[str, list[Tensor]]) -> None:
        for name, tensors in states.items():
            setattr(self, name, tensors)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        moved = {name: [fn(tensor) for tensor in tensors] for name, tensors in self.metric_state.items()}
        self._set_states(moved)
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, tensors in self.metric_state.items():
            if self._persistent[name]:
                destination[prefix + name] = [tensor.clone() for tensor in tensors]

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *details: Any) -> None:
        for name in self._defaults:
            if prefix + name in state_dict:
                setattr(self, name, state_dict.pop(prefix + name))
        super()._load_from_state_dict(state_dict, prefix, *details)


def _counting(update: Callable) -> Callable:
    @functools.wraps(update)
    def counted(self: MetricInterface, *inputs: Any, **options: Any) -> None:
        with torch.no_grad():
            update(self, *inputs, **options)
        self._update_count, self._computed = self._update_count + 1, None

    return counted


def _caching(compute: Callable) -> Callable:
    @functools.wraps(compute)
    def cached(self: MetricInterface) -> Any:
        if self._computed is None:
            with self.sync_context(should_sync=self._to_sync and not self._is_synced):
                self._computed = compute(self)
        return self._computed

    return cached
