"""Read a saved state, which may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def number(value: Any, kind: type[int] | type[float]) -> Any:
    """A number of a saved state, which may hold anything."""
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise TypeError(f"a number was expected, got {str(value)[:50]!r}")
    return kind(value)


def alike(wanted: Mapping[str, Tensor], found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that were found, if they have the names, shapes and types of the wanted ones."""
    forms = [{name: (one.dtype, tuple(one.shape)) for name, one in every.items()} for every in (wanted, found)]
    if forms[0] != forms[1]:
        raise ValueError(f"tensors like {str(forms[0])[:200]} were expected, got {str(forms[1])[:200]}")
    return found


def below(prefix: str, tensors: Any) -> dict[str, Tensor]:
    start = prefix + "."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
