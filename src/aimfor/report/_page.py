"""The facts of a run as one HTML page that needs no other file.

The page holds its style, its program and the facts as JSON, loads nothing, and says so to the browser: its policy
forbids the network and every script but the one it came with. Texts from data are escaped here and stay text there.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from aimfor._base.json import json_ready
from aimfor.report._sentences import condition_of

# What may not stand in a script element or would end a line in old parsers, as JSON writes it instead.
ESCAPED = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
SCRIPTS = ("charts.js", "decision.js", "importance.js", "page.js")
MOODS = {"met": "met", "missed": "missed", "no constraint": "plain"}


def render(facts: Mapping[str, Any]) -> str:
    """The page of a run, as one self-contained HTML text.

    Args:
        facts: `aim`, a text; `labels`, what `measure_label` gives, one or more; `candidates`, dicts of name, value,
            step, chosen; `history`, dicts of stage, candidate, step, value, violation, multiplier, threshold,
            surrogate, exact, one per look, names as in `candidates`; `data`, a dict of said, rows (part to count) and
            columns (dicts of name, kind, reason, missing, mean, scale, categories); `importance`, what `explain`
            gives, and `kinds`, dicts of kind, name, log_loss, metric, rates and chosen, which both may be absent;
            `made`, texts by name;
            `confidence`, a number or None. Numbers may be None, and those that are not finite are shown as missing.

    Returns:
        The page, to be written as UTF-8.
    """
    style, script = asset("page.css"), "\n" + "".join(map(asset, SCRIPTS))
    verdict, mood = _headline(facts["labels"])
    return Template(asset("template.html")).substitute(
        policy=f"default-src 'none'; style-src {hash_of(style)}; script-src {hash_of(script)}; base-uri 'none'; "
        "form-action 'none'",
        title=html.escape(f"aimfor: {facts['aim']}"),
        aim=html.escape(facts["aim"]),
        verdict=html.escape(verdict),
        mood=mood,
        note=html.escape(_note(facts)),
        style=style,
        facts=json.dumps(json_ready(facts), allow_nan=False).translate(ESCAPED),
        script=script,
    )


def asset(name: str) -> str:
    """A file of the page as text."""
    return (resources.files("aimfor.report") / "assets" / name).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """What the policy of a page calls a style or a script by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _headline(labels: list[dict[str, Any]]) -> tuple[str, str]:
    """Whether the aim is met, in one sentence, and the mood to show it in: met, missed, unsure or plain."""
    counts = Counter(label["verdict"] for label in labels)
    moods = {MOODS.get(verdict, "unsure") for verdict in counts}
    mood = next(mood for mood in ("missed", "unsure", "met", "plain") if mood in moods)
    if len(labels) == 1:
        return labels[0]["sentence"], mood
    if mood == "plain":
        return f"No constraint was asked for: each of {len(labels)} labels has the threshold of its best F-score.", mood
    said = {
        "met": ("meets the aim", "meet the aim"),
        "too few rows": ("has too few rows to tell", "have too few rows to tell"),
        "within chance": ("misses the aim within chance", "miss the aim within chance"),
        "missed": ("misses the aim", "miss the aim"),
        "no threshold": ("has no threshold", "have no threshold"),
        "unknown": ("has no test rows that tell", "have no test rows that tell"),
    }
    parts = [f"{count} {texts[count > 1]}" for verdict, texts in said.items() if (count := counts[verdict])]
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
    return f"Of {len(labels)} labels, {listed}.", mood


def _note(facts: Mapping[str, Any]) -> str:
    if facts["confidence"] is not None:
        sure = f"{100 * facts['confidence']:.6g} %"
        kept = f"Thresholds are chosen so that the constraint holds on new rows with {sure} confidence."
        return f"{kept} {condition_of(facts)}"
    if facts["labels"][0]["constraint"] is None:
        return "Thresholds are those of the best F-score on the validation rows."
    return (
        "Thresholds keep the constraint on the validation rows with a little room. No confidence was asked for, so new "
        "rows may miss it by chance."
    )
