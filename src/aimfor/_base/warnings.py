"""Warnings, one class for each, so that users can filter them."""

from __future__ import annotations


class UndefinedMetricWarning(UserWarning):
    """The metric does not exist in some columns and is nan there.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=UndefinedMetricWarning)  # a column without positives is expected
    """


class InfeasibleConstraintWarning(UserWarning):
    """The constraint of a label looks impossible to meet.

    It stays broken although its multiplier is at its limit, or although nothing is predicted positive.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=InfeasibleConstraintWarning)  # broken at first
    """


class VacuousRangeWarning(UserWarning):
    """Every model meets the range of an aim, as with a precision below the share of positives.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=VacuousRangeWarning)  # some labels are common on purpose
    """


class NoValidationWarning(UserWarning):
    """There are too few rows to hold some back, so every choice was made on the training rows.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=NoValidationWarning)  # a handful of rows is all there is
    """


class PositiveClassWarning(UserWarning):
    """Most rows are positive, and the positive class was picked only because its name sorts second.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=PositiveClassWarning)  # the common class is the one to find
    """


class NoThresholdWarning(UserWarning):
    """No threshold qualifies for the aim, so nothing is predicted positive.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=NoThresholdWarning)  # one fold may lack a threshold
    """


class LowConfidenceWarning(UserWarning):
    """The chosen threshold breaks its constraint on new rows at least as likely as it keeps it.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=LowConfidenceWarning)  # the threshold is a first guess
    """


class OtherAimWarning(UserWarning):
    """The loaded state belongs to a loss for another aim, so the loss starts anew.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=OtherAimWarning)  # the target was raised on purpose
    """


class ThinnedRowsWarning(UserWarning):
    """Trees train on a part of the rows, as memory does not hold all of them.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("error", category=ThinnedRowsWarning)  # use a machine with more memory instead
        >>> warnings.filterwarnings("default", category=ThinnedRowsWarning)
    """


class MissingTreesWarning(UserWarning):
    """Boosted trees would compete too, but the extra that trains them is not installed, or cannot be imported.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=MissingTreesWarning)  # linear models and networks will do
    """
