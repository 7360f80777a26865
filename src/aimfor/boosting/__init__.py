"""Boosted trees: forests as plain data, the search that trains them, and the aim as an objective for boosting."""

from aimfor._base.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
