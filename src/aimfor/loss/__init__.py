"""The loss: scores and labels in, one scalar to differentiate out."""

from aimfor._base.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
