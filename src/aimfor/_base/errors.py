"""Errors that users catch. All are ValueErrors."""

from __future__ import annotations


class DataError(ValueError):
    """The data cannot be used. The message says why in one sentence."""


class ModelFileError(ValueError):
    """A file of a model cannot be read or written."""


class UndefinedMetricError(ValueError):
    """The metric does not exist for the data."""
