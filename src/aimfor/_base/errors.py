"""Errors that users catch. All are ValueErrors."""

from __future__ import annotations


class DataError(ValueError):
    """The data cannot be used. The message says why in one sentence.

    Example:
        >>> issubclass(DataError, ValueError)
        True
    """


class ModelFileError(ValueError):
    """A file of a model cannot be read or written.

    Example:
        >>> import aimfor
        >>> try:
        ...     aimfor.load("no such folder")
        ... except ModelFileError as error:
        ...     print(type(error).__name__)
        ModelFileError
    """


class UndefinedMetricError(ValueError):
    """The metric does not exist for the data.

    Example:
        >>> from aimfor import metrics
        >>> try:
        ...     metrics.roc_auc([1, 1], [0.2, 0.9])
        ... except UndefinedMetricError as error:
        ...     print(type(error).__name__)
        UndefinedMetricError
    """
