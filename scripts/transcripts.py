"""Write docs/start/tasks.md: three tasks from start to finish in a terminal, as they ran.

python scripts/transcripts.py            # makes the data, runs the commands, writes the page
python scripts/transcripts.py --check    # runs them and compares, but for digits; exit code 1 where they differ
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

PAGE = Path(__file__).resolve().parents[1] / "docs" / "start" / "tasks.md"
ROWS, NEW = 2500, 1000


class Task(NamedTuple):
    """A heading, what the page says first, and the commands."""

    title: str
    text: str
    commands: tuple[str, ...]


def orders(seed: int, rows: int) -> pd.DataFrame:
    """Orders of a shop, of which some are returned."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "order": 100_000 + np.arange(rows) * 7 + seed,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.sort(random.integers(0, 300, rows)), unit="D"),
            "amount": random.lognormal(4.5, 0.9, rows).round(2),
            "discount": random.choice([0, 0, 0, 5, 10, 20, 50], rows),
            "size": random.choice(["S", "M", "L", "größer"], rows, p=[0.3, 0.4, 0.25, 0.05]),
            "country": random.choice(["DE", "FR", "IT"], rows, p=[0.6, 0.25, 0.15]),
        }
    )
    late = frame["day"].dt.month.isin([11, 12])
    odds = np.log(frame["amount"]) + 0.06 * frame["discount"] + 1.2 * (frame["size"] == "größer") + late
    returned = odds + random.logistic(0, 0.35, rows) > 6.9
    return frame.assign(returned=np.where(returned, "yes", "no"))


def german(value: float) -> str:
    """1234.5 as 1.234,50."""
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def write_spreadsheet(path: Path, frame: pd.DataFrame) -> None:
    """A CSV as a German spreadsheet program exports it: semicolons, decimal commas, Latin-1, dates, empty marks."""
    table = pd.DataFrame(
        {
            "Bestellung": frame["order"],
            "Datum": frame["day"].dt.strftime("%d.%m.%Y"),
            "Betrag": [f"{german(one)} €".replace("€", "EUR") for one in frame["amount"]],
            "Rabatt": [f"{one} %" if one else "-" for one in frame["discount"]],
            "Größe": frame["size"],
            "Rücksendung": np.where(frame["returned"] == "yes", "ja", "nein"),
        }
    )
    table.to_csv(path, sep=";", index=False, encoding="latin-1", lineterminator="\r\n")


def write_data(folder: Path) -> None:
    """The files of all three tasks."""
    known, new = orders(0, ROWS), orders(1, NEW)
    write_spreadsheet(folder / "bestellungen.csv", known)
    write_spreadsheet(folder / "neue.csv", new)
    base = sqlite3.connect(folder / "shop.db")
    stored = pd.concat([known, new]).assign(day=lambda one: one["day"].dt.strftime("%Y-%m-%d"))
    stored.drop(columns="country").to_sql("orders", base, index=False)
    stored[["order", "country"]].to_sql("customers", base, index=False)
    base.close()
    (folder / "shards").mkdir()
    for number, start in enumerate(range(0, ROWS, ROWS // 5)):
        known[start : start + ROWS // 5].to_parquet(folder / "shards" / f"part-{number}.parquet")
    new.to_parquet(folder / "new.parquet")


QUERY = "select o.*, c.country from orders o join customers c using ('order')"
TASKS = (
    Task(
        "A CSV from a spreadsheet program",
        "The export has semicolons, decimal commas, Latin-1 letters, dates and percent signs. No option is needed to "
        "read it. The order number is dropped, as it is an id, and `--id` brings it back beside the scores.",
        (
            "head -n 3 bestellungen.csv",
            'aimfor fit bestellungen.csv --label Rücksendung --aim "recall@precision>=0.8" --model linear --out run',
            "aimfor score run neue.csv --id Bestellung --out scored.csv",
            "head -n 4 scored.csv",
        ),
    ),
    Task(
        "A query to a database",
        "The rows are those of a join. They are streamed, and the query that measures asks for other rows.",
        (
            f'aimfor fit sqlite:///shop.db --sql "{QUERY} where \\"order\\" % 7 = 5" --label returned --drop order '
            "--aim f1 --model linear --out query-run",
            f'aimfor evaluate query-run sqlite:///shop.db --sql "{QUERY} where \\"order\\" % 7 = 6" --by country '
            "--cost-fp 1 --cost-fn 8",
        ),
    ),
    Task(
        "A folder of Parquet shards",
        "The latest orders measure, those before them choose, and the precision is promised with a confidence of 90 %.",
        (
            "ls shards",
            'aimfor fit shards --label returned --time day --aim "recall@precision>=0.7" --confidence 0.9 '
            "--model linear --out shard-run",
            "aimfor evaluate shard-run new.parquet",
        ),
    ),
)


def run(command: str, folder: Path) -> tuple[str, float]:
    """What a command prints, errors too, and the seconds of CPU it takes."""
    program = [sys.executable, "-m", "aimfor"]
    parts = shlex.split(command)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if parts[0] == "head":
        data = (folder / parts[3]).read_bytes().splitlines()[: int(parts[2])]
        text = b"\n".join(data).decode("latin-1" if parts[3] == "bestellungen.csv" else "utf-8") + "\n"
    elif parts[0] == "ls":
        text = "  ".join(sorted(path.name for path in (folder / parts[1]).iterdir())) + "\n"
    else:
        environment = {**os.environ, "COLUMNS": "118", "PYTHONIOENCODING": "utf-8"}
        ended = subprocess.run(
            [*program, *parts[1:]], cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8"
        )
        if ended.returncode:
            raise SystemExit(f"{command}\n{ended.stderr}")
        text = (ended.stderr + ended.stdout).replace(f"{folder}/", "")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return text, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def page(tasks: Sequence[Task] = TASKS) -> str:
    """The whole page, or some of its tasks, with what the commands print now."""
    opening = (
        "Each task goes from a file to an answer. `python scripts/transcripts.py` made the data, ran the commands and "
        "wrote this page. Each fit has `--model linear`, so that it takes seconds; without it, trees and networks "
        "compete too."
    )
    lines = ["# Three tasks in a terminal", "", textwrap.fill(opening, 120)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_data(folder)
        for task in tasks:
            lines += ["", f"## {task.title}", "", textwrap.fill(task.text, 120), "", "```text"]
            total = 0.0
            for command in task.commands:
                text, seconds = run(command, folder)
                total += seconds
                lines += [f"$ {command}", text.rstrip("\n"), ""]
            lines[-1:] = ["```", "", f"All of this took {total:.0f} seconds of one core."]
    return "\n".join(lines) + "\n"


def masked(text: str) -> str:
    """A text without what differs from machine to machine: numbers, and what they choose."""
    text = re.sub(r"(?m)^(Chosen on validation rows|Strongest columns).*$", r"\1", text)
    text = re.sub(r"\d[\d,.]*(e-?\d+)?", "#", text)
    return re.sub(r" +", " ", text)


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description="Write docs/start/tasks.md.")
    parser.add_argument("--check", action="store_true", help="compare with the page instead")
    given, found = parser.parse_args(), page()
    if not given.check:
        PAGE.write_text(found, encoding="utf-8")
        return 0
    before = masked(PAGE.read_text(encoding="utf-8")).splitlines()
    after = masked(found).splitlines()
    for one, other in zip(before, after, strict=False):
        if one != other:
            print(f"- {one}\n+ {other}")
    return int(before != after)


if __name__ == "__main__":
    sys.exit(main())
