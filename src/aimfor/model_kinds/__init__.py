"""Kinds of models behind one interface: how each is trained, scored, stored and exported."""

from aimfor._base.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
