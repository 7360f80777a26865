"""Check arguments: each becomes an array or a number, or an error says what is wrong with it."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

# Above this size float64 cannot tell whole numbers apart, and different scores would become ties.
LARGEST_WHOLE = 2**53


class MetricArrays(NamedTuple):
    """What an exact metric reads, each of shape [n] or [n, num_labels]."""

    labels: NDArray[np.bool_]
    scores: NDArray[np.float64]
    weights: NDArray[np.float64]


def metric_arrays(
    y_true: ArrayLike | torch.Tensor, y_score: ArrayLike | torch.Tensor, sample_weight: ArrayLike | torch.Tensor | None
) -> MetricArrays:
    """Check the arrays of an exact metric and bring them to numpy.

    Args:
        y_true: labels 0 or 1, shape [n] or [n, num_labels].
        y_score: finite scores of the same shape.
        sample_weight: finite weights >= 0, one per row or one per entry; None means 1.

    Returns:
        Labels, scores and weights, all of the shape of `y_true`.

    Example:
        >>> metric_arrays([0, 1], torch.tensor([0.5, 2.0]), None).weights
        array([1., 1.])
    """
    labels = to_numpy("y_true", y_true)
    scores = _metric_scores(y_score)
    if labels.ndim not in (1, 2):
        raise ValueError(f"y_true must have shape [n] or [n, num_labels], got {labels.shape}")
    if labels.size == 0:
        raise ValueError(f"y_true must not be empty, got shape {labels.shape}")
    if scores.shape != labels.shape:
        columns = scores.shape[1] if scores.ndim == 2 and scores.shape[:1] == labels.shape else 0
        remedy = f": pass y_score[:, {columns - 1}]" if columns in (1, 2) else ""
        raise ValueError(f"y_score must have the shape of y_true, {labels.shape}, got {scores.shape}{remedy}")
    all_entries("y_true", labels, (labels == 0) | (labels == 1), "0 or 1")
    return MetricArrays(labels == 1, scores, _metric_weights(sample_weight, labels.shape))


def _metric_weights(sample_weight: ArrayLike | torch.Tensor | None, shape: tuple[int, ...]) -> NDArray[np.float64]:
    if sample_weight is None:
        return np.ones(shape)
    weights = to_numpy("sample_weight", sample_weight)
    allowed = list(dict.fromkeys([shape[:1], shape]))
    if weights.shape not in allowed:
        raise ValueError(f"sample_weight must have shape {' or '.join(map(str, allowed))}, got {weights.shape}")
    all_entries("sample_weight", weights, np.isfinite(weights) & (weights >= 0), "finite and >= 0")
    return np.broadcast_to(weights if weights.shape == shape else weights[:, None], shape)


def to_numpy(name: str, values: ArrayLike | torch.Tensor) -> NDArray[np.float64]:
    """Bring a list, numpy array or tensor (any device, any real dtype) to numpy float64."""
    return _real_array(name, values).astype(np.float64)


def _metric_scores(values: ArrayLike | torch.Tensor) -> NDArray[np.float64]:
    array = _real_array("y_score", values)
    if array.dtype.kind in "iu":
        told_apart = (array <= LARGEST_WHOLE) & (array >= -LARGEST_WHOLE)
        all_entries("y_score", array, told_apart, "a whole number of at most 2**53 in size")
    scores = array.astype(np.float64)
    all_entries("y_score", scores, np.isfinite(scores), "finite")
    return scores


def _real_array(name: str, values: ArrayLike | torch.Tensor) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        dense(name, values)
        if values.is_complex():
            raise TypeError(f"{name} must hold real numbers, got dtype {values.dtype}")
        values = values.detach().cpu().resolve_neg()
        # numpy has no bfloat16, so the conversion to float64 comes first.
        values = (values.to(torch.float64) if values.is_floating_point() else values).numpy()
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array, got rows of unequal length") from None
    if array.dtype.kind not in "biuf":
        remedy = ": compare texts with the positive one, as in y == 'yes'" if name == "y_true" else ""
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}{remedy}")
    return array


def dense(name: str, values: torch.Tensor) -> None:
    """Raise a TypeError when a tensor is sparse or nested."""
    if values.layout != torch.strided or values.is_nested:
        raise TypeError(f"{name} must be a dense tensor, got {'a nested one' if values.is_nested else values.layout}")


def all_entries(name: str, values: np.ndarray, valid: np.ndarray, rule: str) -> None:
    """Raise a ValueError that shows the first entry of `values` where `valid` is False."""
    if not valid.all():
        raise ValueError(f"{name} must be {rule} in every entry, got {values[~valid][0]}")


def in_range(
    name: str, value: Any, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> float:
    """Return `value` as a float if it is a number in the range. The ends belong to the range unless they are open.

    Example:
        >>> in_range("min_precision", 1.7, 0, 1, open_low=True)
        Traceback (most recent call last):
        ValueError: min_precision must be in (0, 1], got 1.7
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    # Written so that NaN, which compares false with everything, is outside.
    inside = (low < number if open_low else low <= number) and (number < high if open_high else number <= high)
    if not inside:
        raise ValueError(f"{name} must be in {'[('[open_low]}{low:g}, {high:g}{'])'[open_high]}, got {value}")
    return number


def per_column(
    name: str,
    value: Any,
    shape: tuple[int, ...],
    low: float,
    high: float,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> list[float]:
    """Return one checked number for each column, from a single number or from one per column.

    Example:
        >>> per_column("min_precision", 0.9, (100, 2), 0, 1), per_column("min_precision", (0.9, 0.5), (100, 2), 0, 1)
        ([0.9, 0.9], [0.9, 0.5])
    """
    if isinstance(value, (np.ndarray, torch.Tensor)):
        value = value.tolist()
    num_columns = shape[1] if len(shape) == 2 else 1
    if not isinstance(value, Sequence) or isinstance(value, str):
        value = [value] * num_columns
    elif len(shape) == 1:
        raise ValueError(f"{name} must be one number where y_true has shape [n], got {value}")
    elif len(value) != num_columns:
        raise ValueError(f"{name} must have one entry for each of the {num_columns} labels, got {len(value)}")
    return [in_range(name, entry, low, high, open_low=open_low, open_high=open_high) for entry in value]


def range_per_column(low: Any, high: Any, shape: tuple[int, ...]) -> tuple[list[float], list[float]]:
    """Return the checked ends of a range inside [0, 1] for each column. The low end must be below the high end."""
    lows, highs = per_column("low", low, shape, 0, 1), per_column("high", high, shape, 0, 1)
    for start, end in zip(lows, highs, strict=True):
        if start >= end:
            raise ValueError(f"low must be below high, got {start} and {end}")
    return lows, highs


def rule(holds: bool, name: str, must: str, value: Any) -> None:
    """Raise a ValueError of one sentence if a rule does not hold."""
    if not holds:
        raise ValueError(f"{name} {must}, got {value}")


def positive_number(name: str, value: Any, *, above: float = 0) -> float:
    """Return `value` as a float if it is a finite number above `above`."""
    return in_range(name, value, above, np.inf, open_low=True, open_high=True)


def whole_number(name: str, value: Any, *, at_least: int) -> int:
    """Return `value` as an int if it is a whole number of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    number = int(value)
    rule(number >= at_least, name, f"must be at least {at_least}", value)
    return number


def choice(name: str, value: Any, options: Sequence[str]) -> None:
    """Raise a ValueError that lists the options when `value` is none of them."""
    if value not in options:  # called at every batch, so the message is built only when it is needed
        rule(False, name, f"must be one of {', '.join(map(repr, options))}", repr(value))


def targets(name: str, value: Any) -> None:
    """Check a target, or a tuple of one per label, each strictly between 0 and 1."""
    for entry in as_tuple(name, value):
        away_from_ends(name, in_range(name, entry, 0, 1, open_low=True, open_high=True))


def away_from_ends(name: str, value: float) -> None:
    """Check that float32 does not round a share in (0, 1) to 0 or 1."""
    rule(1e-7 <= value <= 1 - 1e-7, name, "must be at least 1e-07 away from 0 and 1", value)


def yes_or_no(name: str, value: Any) -> None:
    """Raise a TypeError when `value` is not a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def target_range(axis: str, low: Any, high: Any) -> None:
    """Check the ends of a range inside [0, 1]. Either may be None, and float32 must tell them apart."""
    lows, highs = (
        as_tuple(f"min_{axis}", 0.0 if low is None else low),
        as_tuple(f"max_{axis}", 1.0 if high is None else high),
    )
    for name, ends in ((f"min_{axis}", lows), (f"max_{axis}", highs)):
        for end in ends:
            if in_range(name, end, 0, 1) not in (0, 1):
                away_from_ends(name, end)
    if 1 < len(lows) != len(highs) > 1:
        raise ValueError(f"min_{axis} and max_{axis} must have as many entries, got {len(lows)} and {len(highs)}")
    count = max(len(lows), len(highs))
    for start, end in zip(lows * (count // len(lows)), highs * (count // len(highs)), strict=True):
        if end - start >= 1e-6 - 1e-12:  # the second number allows for rounding, as in 0.300001 - 0.3
            continue
        by = " by at least 1e-06" if start < end else ""
        rule(low is not None, f"max_{axis}", f"must be above 0{by}", end)
        rule(high is not None, f"min_{axis}", f"must be below 1{by}", start)
        raise ValueError(f"min_{axis} must be below max_{axis}{by}, got {start} and {end}")


def as_tuple(name: str, value: Any) -> tuple:
    """Return a tuple of one value per label as it is, and a single value as a tuple of one."""
    if isinstance(value, tuple):
        rule(len(value) > 0, name, "must have at least one entry", value)
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number or a tuple of numbers, got {value!r}")
    return (value,)


def callers_level() -> int:
    """The stack level of the caller outside of this package and torch, for `warnings.warn`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("aimfor", "torch"):
        frame, level = frame.f_back, level + 1
    return level
