"""What a watch found as one HTML page without any program: sentences, numbers, and the evidence over the rows."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from aimfor.report._page import asset, hash_of

WIDTH, HEIGHT, LEFT, BOTTOM = 400, 180, 44, 22  # of a chart, in its own units


def watch_page(facts: Mapping[str, Any]) -> str:
    """The page of a watch.

    Args:
        facts: `aim`, a text; `level`, the most that false alarms may amount to; `labels`, dicts of name, alarm,
            sentence, rows, labels, alerts, rates, questions (dicts of name, text, promise, alarm, evidence, limit) and
            trace (dicts of rows and evidence, by question).

    Returns:
        The page, to be written as UTF-8.
    """
    labels, style = facts["labels"], asset("page.css")
    raised = [one for one in labels if one["alarm"]]
    verdict = labels[0]["sentence"] if len(labels) == 1 else f"{len(raised)} of {len(labels)} labels raised an alarm."
    broken = any(question["alarm"] and question["promise"] for one in labels for question in one["questions"])
    note = (
        f"If all is as promised, at most {100 * facts['level']:.6g} % of all watches ever raise an alarm, however many "
        "rows come. Evidence is how many times a bet against the promise has multiplied its stake."
    )
    return Template(asset("watch.html")).substitute(
        policy=f"default-src 'none'; style-src {hash_of(style)}; base-uri 'none'; form-action 'none'",
        title=html.escape(f"aimfor watch: {facts['aim']}"),
        aim=html.escape(facts["aim"]),
        verdict=html.escape(verdict),
        mood="missed" if broken else "unsure" if raised else "met",
        note=html.escape(note),
        style=style,
        sections="\n".join(_section(one, len(labels) > 1) for one in labels),
    )


def _section(label: Mapping[str, Any], several: bool) -> str:
    title = f"<h2>{html.escape(label['name'])}</h2>\n<p>{html.escape(label['sentence'])}</p>" if several else ""
    cards = "\n".join(_card(question, label["trace"]) for question in label["questions"])
    return f'<section>\n{title}\n{_numbers(label)}\n<div class="grid">\n{cards}\n</div>\n</section>'


def _numbers(label: Mapping[str, Any]) -> str:
    entries = [("Rows", f"{label['rows']:,}", ""), ("Labels", f"{label['labels']:,}", "")]
    if label["alerts"] is not None:
        entries.append(("Share of alerts", f"{100 * label['alerts']:.3g} %", "of the rows given last"))
    for rate in ("precision", "recall", "fpr") if label["rates"] else ():
        value, interval = label["rates"][rate], (label["rates"]["intervals"] or {}).get(rate)
        if value is not None:
            ends = f"95 % interval {100 * interval[0]:.3g} to {100 * interval[1]:.3g} %" if interval else ""
            entries.append((rate, f"{100 * value:.3g} %", ends))
    tiles = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{words}</small></dd></div>" for name, value, words in entries
    )
    return f'<div class="card"><dl class="tiles">{tiles}</dl></div>'


def _card(question: Mapping[str, Any], trace: Sequence[Mapping[str, Any]]) -> str:
    name, text = question["name"], html.escape(question["text"])
    words = "Alarm" if question["alarm"] else "No alarm"
    words += f": the evidence reached {question['evidence']:.3g}, an alarm needs {question['limit']:.3g}."
    points = [(look["rows"], look["evidence"][name]) for look in trace]
    return (
        f'<div class="card"><h3>{text}</h3><p class="hint">{words}</p>{_chart(text, points, question["limit"])}</div>'
    )


def _chart(title: str, points: Sequence[tuple[float, float]], limit: float) -> str:
    """The evidence over the rows, on a logarithmic axis that reaches beyond the limit."""
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    top = math.log10(max(limit, *(value for _, value in points))) * 1.1

    def x_of(rows: float) -> float:
        return LEFT + (WIDTH - LEFT) * (rows - first) / (last - first)

    def y_of(value: float) -> float:
        return (HEIGHT - BOTTOM) * (1 - math.log10(max(value, 1.0)) / top)

    line = " ".join(f"{x_of(rows):.1f},{y_of(value):.1f}" for rows, value in points)
    at, base = y_of(limit), HEIGHT - BOTTOM
    parts = [
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{base}" y2="{base}" stroke="currentColor" stroke-opacity="0.3"/>',
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="currentColor" stroke-dasharray="4 4"/>',
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="2"/>',
        _label(0, at + 4, f"{limit:.3g}"),
        _label(0, base, "1"),
        _label(LEFT, HEIGHT - 6, f"row {first:,}"),
        _label(WIDTH, HEIGHT - 6, f"row {points[-1][0]:,}", "end"),
    ]
    described = f'role="img" aria-label="Evidence against {title} over the rows"'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" {described}>{"".join(parts)}</svg>'


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="11" fill="currentColor" text-anchor="{anchor}">{text}</text>'
