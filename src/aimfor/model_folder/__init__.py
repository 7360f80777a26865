"""A fitted classifier as a folder of plain data, and back."""

from aimfor._base.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
