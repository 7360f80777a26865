"""Write the numbers, ranges and options of an aim as text.

Examples are `recall@precision>=0.9`, `aucroc[0.01<=fpr<=0.1]`, and `recall@precision>=(0.9, 0.8)` for one target per
label. Options follow semicolons: `aucpr; num_anchors=20; spacing=geometric`.
"""

from dataclasses import fields

Target = float | tuple[float, ...]
"""One number for all labels, or one per label."""

OPTIONS = {"band": float, "num_anchors": int, "spacing": str}


def show_target(value: Target) -> str:
    """The shortest text that parses to the same number, or several in parentheses."""
    if isinstance(value, tuple):
        return "(" + ", ".join(show_target(one) for one in value) + (",)" if len(value) == 1 else ")")
    return repr(float(value)).removesuffix(".0")


def show_range(low: Target | None, axis: str, high: Target | None) -> str:
    """A range of an axis in brackets; empty for the whole axis."""
    if low is not None and high is not None:
        return f"[{show_target(low)}<={axis}<={show_target(high)}]"
    if low is not None:
        return f"[{axis}>={show_target(low)}]"
    return "" if high is None else f"[{axis}<={show_target(high)}]"


def show_options(record) -> str:
    """The options that differ from their default, as the text form writes them."""
    text = ""
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name in OPTIONS and value != field.default:
            text += f"; {field.name}={show_target(value) if OPTIONS[field.name] is float else value}"
    return text
