"""Warnings that users filter by their class."""

from __future__ import annotations


class UndefinedMetricWarning(UserWarning):
    """The metric does not exist in some columns and is nan there."""


class InfeasibleConstraintWarning(UserWarning):
    """The constraint of a label looks impossible to meet: it stays broken with its multiplier at its limit, or with
    nothing predicted positive."""


class VacuousRangeWarning(UserWarning):
    """The range of an aim asks nothing of a label, such as a precision below its share of positives."""


class NoValidationWarning(UserWarning):
    """The rows are too few to hold some back, so every choice was made on the rows that were trained on."""


class PositiveClassWarning(UserWarning):
    """Most rows are of the class that counts as positive only because its name is the second in sorted order."""


class NoThresholdWarning(UserWarning):
    """No threshold qualifies for the aim, so nothing is predicted positive."""


class LowConfidenceWarning(UserWarning):
    """The constraint of a threshold that was chosen is not more likely kept than broken on new rows."""


class UncertainConstraintWarning(UserWarning):
    """The constraint of an operating point is more likely broken than kept on new rows."""
