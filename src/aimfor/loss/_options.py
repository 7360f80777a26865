"""Options of a loss that may be changed while training."""

from collections.abc import Callable
from functools import partial
from typing import Any

from aimfor._base import checks
from aimfor.loss._surrogates import SURROGATES, Surrogate


def option(name: str, check: Callable[[str, Any], Any], what: str) -> Any:
    """A property that checks what is set and keeps it under its name with an underscore.

    Args:
        name: of the option.
        check: gives the value that is kept, or raises; it is called with the name and the value.
        what: what the option says, for the documentation.
    """
    kept = f"_{name}"

    def write(loss: Any, value: Any) -> None:
        setattr(loss, kept, check(name, value))

    return property(lambda loss: getattr(loss, kept), write, doc=f"{what}; may be changed while training.")


def one_of(*options: str) -> Callable[[str, Any], str]:
    """A check that refuses other texts than these."""

    def check(name: str, value: Any) -> str:
        checks.choice(name, value, options)
        return value

    return check


def at_least(least: int) -> Callable[[str, Any], int]:
    """A check that refuses what is no whole number of at least this."""
    return partial(checks.whole_number, at_least=least)


share = partial(checks.in_range, low=0, high=1)


def surrogate_of(name: str, value: Any) -> Surrogate:
    """The surrogate, by its name or itself."""
    if isinstance(value, Surrogate):
        return value
    checks.choice(name, value, tuple(SURROGATES))
    return SURROGATES[value]
