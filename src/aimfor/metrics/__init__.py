"""Exact metrics over all distinct scores, each with the threshold that goes with it."""

from aimfor._base.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
