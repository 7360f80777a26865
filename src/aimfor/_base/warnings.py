"""Warnings, one class for each, so that users can filter them."""

from __future__ import annotations


class UndefinedMetricWarning(UserWarning):
    """The metric does not exist in some columns and is nan there."""


class InfeasibleConstraintWarning(UserWarning):
    """The constraint of a label looks impossible to meet.

    It stays broken although its multiplier is at its limit, or although nothing is predicted positive.
    """


class VacuousRangeWarning(UserWarning):
    """Every model meets the range of an aim, as with a precision below the share of positives."""


class NoValidationWarning(UserWarning):
    """There are too few rows to hold some back, so every choice was made on the training rows."""


class PositiveClassWarning(UserWarning):
    """Most rows are positive, and the positive class was picked only because its name sorts second."""


class NoThresholdWarning(UserWarning):
    """No threshold qualifies for the aim, so nothing is predicted positive."""


class LowConfidenceWarning(UserWarning):
    """The chosen threshold breaks its constraint on new rows at least as likely as it keeps it."""


class OtherAimWarning(UserWarning):
    """The loaded state belongs to a loss for another aim, so the loss starts anew."""
