"""What no training can give, and a state must therefore not hold."""

from torch import Tensor

# Scores are at most 1e10 and weights at most 1e12: no number of a state comes near this one.
LARGEST_NUMBER = 1e37
NEVER_NEGATIVE = (
    *("steps", "class_weight", "multipliers", "positives", "exact_positives", "negatives", "exact_negatives"),
    *("score_variance", "slope_square", "violation_square", "fruitless_steps"),
)


def refuse_impossible(shown: str, name: str, buffer: Tensor) -> None:
    """Raise ValueError for a buffer that no training can give."""
    if buffer.is_meta:
        return
    reason = None
    if not bool(buffer.isfinite().all()):
        reason = "must be finite"
    elif name != "lowest_violation" and bool((buffer.abs() > LARGEST_NUMBER).any()):
        reason = f"must be at most {LARGEST_NUMBER:g}"
    elif name in NEVER_NEGATIVE and bool((buffer < 0).any()):
        reason = "must not be negative"
    if reason is not None:
        raise ValueError(f"{shown} {reason} in a state_dict: the file is not of a loss, or is damaged")
