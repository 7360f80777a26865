"""Aims: what a model is trained for, as records, as tables of coefficients and as text."""

from aimfor._base.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
