"""Numbers as sentences: whether the aim is met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aimfor.aims import Aim, PointAim, rate_of
from aimfor.operating_points import WEAK, Confusion, OperatingPoint, percent_down

# Telling


def verdict_of(operating: dict[str, Any], constraint: dict[str, Any] | None, level: float) -> str:
    """`met`, `missed`, `within chance` (missed, but the interval holds the target), `no threshold`, `no constraint`,
    `too few rows` where even a perfect result on them would not have shown it, or `unknown` where there are none."""
    if operating["threshold"] is None:
        return "no threshold"
    if constraint is None:
        return "no constraint"
    if constraint["held"] is None:
        return "unknown"
    if constraint["held"]:
        return "met" if _could_show(operating, constraint, level) else "too few rows"
    interval = operating["intervals"] and operating["intervals"][constraint["rate"]]
    near = interval is not None and interval[0] <= constraint["target"] <= interval[1]
    return "within chance" if near else "missed"


def _could_show(operating: dict[str, Any], constraint: dict[str, Any], level: float) -> bool:
    """Whether the interval would be on the right side of the target if all rows that count had gone well."""
    if operating["intervals"] is None:
        return True  # weighted rows have no interval to ask
    counted = Confusion(*(operating[name] for name in Confusion._fields)).of(constraint["rate"])[1]
    room = ((1 - level) / 2) ** (1 / counted)  # the end of the exact interval of `counted` successes
    return room >= constraint["target"] if constraint["sense"] == ">=" else 1 - room <= constraint["target"]


OPENINGS = {
    "met": "Met",
    "too few rows": "Too few rows to tell",
    "missed": "Not met",
    "within chance": "Not met on these rows, though within chance",
    "no constraint": "No constraint was asked for",
    "unknown": "Unknown, as no test row can tell",
}


def sentence_of(verdict: str, measured: dict[str, Any], aim: Aim, source: str) -> str:
    if verdict == "no threshold":
        return f"No threshold: {measured['reason']} on {source}, so the model ranks rows but decides nothing."
    operating, constraint = measured["operating"], measured["constraint"]
    objective, other = ("recall", "precision")
    if isinstance(aim, PointAim):
        objective, other = (rate_of(name).name for name in (aim.objective, aim.constrained))
    opening = OPENINGS[verdict]
    if verdict == "met" and not _is_sure(operating, constraint):
        opening = "Met on these rows, though the interval reaches beyond the target"
    text = f"{opening}: at threshold {operating['threshold']:.4g} the model {_reaches(measured)}"
    text += f"{_did(objective, operating, measured['level'])} and {_did(other, operating, measured['level'])}"
    if constraint is None:
        return text + f", the {measured['chosen']} on {source}."
    sense = "at least" if constraint["sense"] == ">=" else "at most"
    return text + f"; asked was {sense} {100 * constraint['target']:.6g} %."


def claim_of(point: OperatingPoint) -> str:
    """The highest confidence at which the constraint can be claimed; empty where there is none to claim."""
    if point.claimable is None:
        return ""
    of = f"{point.num_rows:,} rows" if point.num_groups is None else f"{point.num_groups:,} groups of rows"
    text = f"By the {of} that chose the threshold, the constraint can be claimed for new rows with at most "
    text += f"{percent_down(point.claimable)} confidence"
    return text + (": it is more likely broken than kept." if point.claimable < WEAK else ".")


def condition_of(facts: Mapping[str, Any]) -> str:
    """What a confidence takes for granted about the rows, in a sentence.

    Args:
        facts: names of the columns of groups and times, `group` and `time`, or None.
    """
    if facts.get("group"):
        return (
            f"This is about a row of a new {facts['group']}; rows of one {facts['group']} may depend on one another, "
            f"others must not. Every {facts['group']} counts the same."
        )
    if facts.get("time"):
        return (
            f"Rows were split by {facts['time']}: this assumes that tomorrow is like the held-out days, and that rows "
            "are independent."
        )
    return "This assumes that rows are independent and that new ones are drawn like these."


def _reaches(measured: dict[str, Any]) -> str:
    """The value of an aim without a constraint at the threshold."""
    metric = measured["metric"]
    if measured["constraint"] is not None or metric["at_threshold"] is None or metric["at_threshold"]["value"] is None:
        return ""
    interval = metric["at_threshold"]["interval"]
    ends = f" ({100 * measured['level']:.6g} % interval {interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    return f"reaches {metric['name']} {metric['at_threshold']['value']:.3f}{ends}, "


def _is_sure(operating: dict[str, Any], constraint: dict[str, Any]) -> bool:
    interval = operating["intervals"] and operating["intervals"][constraint["rate"]]
    if interval is None:
        return True
    return interval[0] >= constraint["target"] if constraint["sense"] == ">=" else interval[1] <= constraint["target"]


def _did(rate: str, operating: dict[str, Any], level: float) -> str:
    value, interval = operating[rate], operating["intervals"] and operating["intervals"][rate]
    name = rate_of(rate).title
    if value is None:
        return f"has no {name} here"
    did = rate_of(rate).deed.format(_percent(value))
    if interval is None:
        return f"{did} ({name})"
    low, high = (_percent(end).removesuffix(" %") for end in interval)
    return f"{did} ({name}, {100 * level:.6g} % interval {low} to {high} %)"


def _percent(share: float) -> str:
    # Near 1 the distance from it is what counts: 99.96 % must not read 100 %.
    return f"{100 * share:.{3 if share < 0.99 else 5}g} %"
