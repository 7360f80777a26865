"""Errors that users catch; all are ValueErrors."""

from __future__ import annotations


class DataError(ValueError):
    """What is wrong with the data, in one sentence."""


class ModelFileError(ValueError):
    """A file of a model that cannot be read or written."""


class UndefinedMetricError(ValueError):
    """The metric does not exist for the data."""
