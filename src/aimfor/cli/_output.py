"""What the commands print."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from aimfor.cli._words import in_words

EXIT_CODES = (
    "Exit codes: 0 done, 1 error, 2 wrong usage, 3 promise not held (watch, --strict), 4 drift (watch, --strict), 130 "
    "interrupted."
)
MISSED, DRIFTED, INTERRUPTED = 3, 4, 130
UNREAD = 141  # as of a program that ends by the signal of a closed pipe
MOST_TOLD = 20  # labels, in text; all are in --json
MOST_STRONGEST = 5  # columns, in text


# What comes in and goes out


@contextmanager
def told_in_one_sentence() -> Iterator[None]:
    """Inside, what the user can mend is told in one sentence, warnings too, and ends the program with 1."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"warning: {in_words(str(message))}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        warnings.filterwarnings("default", category=UserWarning)
        try:
            yield
        except KeyboardInterrupt as error:
            say("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            say(f"error: {where}{error.strerror or error}", err=True)
            raise typer.Exit(1) from error
        except (ValueError, ImportError, OverflowError, MemoryError) as error:
            say(f"error: {in_words(' '.join(str(error).split())) or 'not enough memory'}", err=True)
            raise typer.Exit(1) from error
        except RuntimeError as error:  # torch has no class of its own for memory that the CPU lacks
            if "allocate memory" not in str(error):
                raise
            say("error: not enough memory for this model: choose a smaller one", err=True)
            raise typer.Exit(1) from error


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print as it is; where nobody reads it any more, as with `aimfor ... | head -1`, end the program quietly."""
    try:
        typer.echo(text, err=err, nl=nl)
    except BrokenPipeError as error:
        # What Python still holds goes nowhere, or it would complain when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if err else sys.stdout).fileno())
        raise typer.Exit(UNREAD) from error


def say(text: str, *, err: bool = False) -> None:
    """Print, without control characters: names from data could move the cursor or change what was printed."""
    echo("".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text), err=err)


def warn_of(remarks: list[dict[str, Any]]) -> None:
    """Print what is remarkable about the data."""
    for remark in remarks[:MOST_TOLD]:
        say(f"warning: {remark['text']}", err=True)
    if len(remarks) > MOST_TOLD:
        say(f"warning: {len(remarks) - MOST_TOLD} more of these are in metrics.json or --json", err=True)


def number_or_auto(name: str, text: str, kind: type[int] | type[float]) -> float | str:
    if text == "auto":
        return text
    try:
        return kind(text)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise ValueError(f'--{name} must be a {what} or "auto", got {text!r}') from None


@contextmanager
def progress_of(name: str, *, quiet: bool = False) -> Iterator[Any]:
    """Progress on a terminal, quiet in a pipe."""
    from aimfor.estimator import Progress
    from aimfor.training import Observer

    if quiet or not sys.stderr.isatty():
        yield Observer()
        return
    with Progress(name) as shown:
        yield shown


def print_json(facts: dict[str, Any]) -> None:
    echo(json.dumps(facts, indent=1, allow_nan=False))


def short(facts: dict[str, Any]) -> dict[str, Any]:
    labels = [short_label(measured) for measured in facts["labels"]]
    return {**{name: facts[name] for name in ("aim", "confidence", "stopped", "candidates")}, "labels": labels}


def short_label(measured: dict[str, Any]) -> dict[str, Any]:
    names = (
        "name",
        "positive",
        "on",
        "rows",
        "positives",
        "verdict",
        "sentence",
        "metric",
        "operating",
        "constraint",
        "level",
        "claimable",
    )
    return {name: measured[name] for name in (*names, "segments") if name in measured}


def tell(labels: list[dict[str, Any]], costs: tuple[float, float] | None = None) -> None:
    """What was measured: all of one label or a few, of many how they ended."""
    if len(labels) > MOST_TOLD:
        for verdict, count in Counter(measured["verdict"] for measured in labels).most_common():
            say(f"{verdict}: {count} of {len(labels)} labels")
        return
    for measured in labels:
        metric = measured["metric"]
        say((f"{measured['name']}: " if len(labels) > 1 else "") + measured["sentence"])
        counted = f"{measured['rows']:,}, {measured['positives']:,} of them positive"
        say(f"Measured on {measured['on']}: {counted} ({_positive(measured)}).{_weight_of(measured)}")
        if measured.get("claim"):
            say(measured["claim"])
        _tell_counts(measured, costs)
        if metric["ours"] is not None:
            beside = "" if metric["baseline"] is None else f", log-loss {metric['baseline']:.4f}"
            best = f"{metric['name']} {metric['ours']:.4f}{beside}"
            where = "Over all thresholds" if metric["area"] else "At the best threshold of these very rows, to compare"
            say(f"{where}: {best}.")
        _tell_segments(measured)


def tell_model(facts: dict[str, Any]) -> None:
    """Which candidate was chosen of how many, and what its strongest columns are worth."""
    candidates, importance = facts["candidates"], facts["importance"]
    for one in candidates:
        if one["chosen"] and len(candidates) > 1:
            kind = "" if one["kind"] in one["name"] or one["kind"] == "auto" else f"{one['kind']}, "
            say(f"Chosen on rows held out of training, of {len(candidates)} candidates: {kind}{one['name']}.")
    strongest = [one for one in importance["columns"][:MOST_STRONGEST] if one["drop"] > 0] if importance else []
    if strongest:
        named = ", ".join(f"{one['name']} ({one['drop']:.2g})" for one in strongest)
        say(f"Strongest columns, by how much {importance['metric']} falls when one is shuffled: {named}.")


def tell_watched(labels: list[dict[str, Any]]) -> None:
    """What a watch found: first the alarms, then how far each question is from one."""
    for one in labels[:MOST_TOLD]:
        say((f"{one['name']}: " if len(labels) > 1 else "") + one["sentence"])
        for question in one["questions"]:
            state = "alarm" if question["alarm"] else "no alarm"
            far = f"evidence {question['evidence']:.3g}, an alarm needs {question['limit']:.3g}"
            say(f"  {question['text']}: {state} ({far})")


def cost_of(operating: dict[str, Any], costs: tuple[float, float]) -> float | None:
    """The cost of the errors for every 1,000 rows, or for a weight of 1,000."""
    if operating["tp"] is None:
        return None
    total = sum(operating[name] for name in ("tp", "fp", "fn", "tn"))
    return 1000 * (costs[0] * operating["fp"] + costs[1] * operating["fn"]) / total if total else None


def _positive(measured: dict[str, Any]) -> str:
    """What counts as positive; of several classes, each is a label with the name of its class."""
    name, positive = measured["name"], measured["positive"]
    return positive if name == positive else f"{name} = {positive}"


def _is_weighted(measured: dict[str, Any]) -> bool:
    """Whether the counts are sums of weights."""
    positives, negatives = measured["positives"], measured["rows"] - measured["positives"]
    counts = [measured["operating"][name] for name in ("tp", "fp", "fn", "tn")]
    fractions = any(isinstance(count, float) for count in counts)
    return fractions or (measured["num_positives"], measured["num_negatives"]) != (positives, negatives)


def _weight_of(measured: dict[str, Any]) -> str:
    if not _is_weighted(measured):
        return ""
    positives, negatives = measured["num_positives"], measured["num_negatives"]
    return f" Their weight is {_amount(positives + negatives)}, {_amount(positives)} of it positive."


def _amount(count: float) -> str:
    return f"{count:,}" if isinstance(count, int) else f"{count:,.6g}"


def _tell_counts(measured: dict[str, Any], costs: tuple[float, float] | None) -> None:
    counts = measured["operating"]
    if counts["tp"] is None:
        return
    counts = {**counts, "alarms": counts["tp"] + counts["fp"]}
    total, weighted = sum(counts[name] for name in ("tp", "fp", "fn", "tn")) or 1, _is_weighted(measured)
    say(f"  {'weight' if weighted else '':16}{'alarm':>12}{'no alarm':>12}")
    for name, (alarm, none) in (("positive", ("tp", "fn")), ("negative", ("fp", "tn"))):
        say(f"  {name:16}{_amount(counts[alarm]):>12}{_amount(counts[none]):>12}")
    alarms, false, missed = (f"{1000 / total * counts[name]:.1f}" for name in ("alarms", "fp", "fn"))
    if weighted:
        line = f"Per 1,000 of weight: {alarms} in alarms, {false} of it in false ones; {missed} in missed positives"
    else:
        line = f"Per 1,000 rows: {alarms} alarms, {false} of them false; {missed} positives missed"
    if costs is not None:
        line += f"; cost {cost_of(counts, costs):.6g}"
    say(line + ".")


def _tell_segments(measured: dict[str, Any]) -> None:
    for one in measured.get("segments", ()):
        shown = [f"{one['rows']:,} rows, {one['positives']:,} positive"]
        for rate in ("precision", "recall", "fpr"):
            interval = one["intervals"] and one["intervals"][rate]
            if one[rate] is not None:
                ends = f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
                shown.append(f"{rate} {one[rate]:.3f}{ends}")
        say(f"  {one['segment']}: {', '.join(shown)}")


def print_comparison(found: list[dict[str, Any]]) -> None:
    """One row per method: means over labels, then mean and standard error over splits."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    splits = sorted({one["split"] for one in found})
    rates = ("precision", "recall", "fpr")
    table = Table("method", "metric", *(f"{rate} at threshold" for rate in rates), "constraint held")
    table.title = f"{found[0]['metric']['name']}, on {found[0]['on']}, {found[0]['rows']:,} a split"
    for method in dict.fromkeys(one["method"] for one in found):
        own = [[one for one in found if (one["method"], one["split"]) == (method, split)] for split in splits]

        def shown(values: list[list[float | None]]) -> str:
            means = [np.mean(known) for one in values if (known := [value for value in one if value is not None])]
            if not means:
                return "-"
            error = f" +- {np.std(means, ddof=1) / np.sqrt(len(means)):.4f}" if len(means) > 1 else ""
            return f"{np.mean(means):.4f}{error}"

        held = [one["constraint"] and one["constraint"]["held"] for group in own for one in group]
        known = [one for one in held if one is not None]
        table.add_row(
            method,
            shown([[one["metric"]["ours"] for one in group] for group in own]),
            *(shown([[one["operating"][rate] for one in group] for group in own]) for rate in rates),
            f"{sum(known)} of {len(known)}" if known else "-",
        )
    console = Console(width=None if sys.stdout.isatty() else 120)
    with console.capture() as printed:
        console.print(table)
        if len(splits) > 1:
            console.print(f"{len(splits)} splits; +- is the standard error over splits.")
    echo(printed.get(), nl=False)
