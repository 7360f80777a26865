"""Messy and hostile files, made by code, each with what `aimfor fit` must make of it.

Run as a program, it writes all files to a folder: python tests/messy/messy_cases.py folder
"""

import datetime
import gzip
import json
import sqlite3
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

N = 300
RANDOM = np.random.default_rng(0)
AMOUNT = (RANDOM.lognormal(5, 1.2, N) + 1000 * (RANDOM.random(N) < 0.3)).round(2)
AGE = RANDOM.integers(18, 90, N)
FRAUD = AMOUNT / 400 + AGE / 60 + RANDOM.normal(size=N) > 3.6
DAYS = [datetime.date(2023, 1, 1) + datetime.timedelta(days=int(day)) for day in RANDOM.integers(0, 700, N)]
WORDS = [
    " ".join(RANDOM.choice(["bill", "late", "paid", "urgent", "refund", "order", "card", "lost"], 6)) + f" {i}"
    for i in range(N)
]
Cells = list[object]


def columns(**more: Cells) -> dict[str, Cells]:
    base: dict[str, Cells] = {
        "amount": list(AMOUNT),
        "age": list(AGE),
        "fraud": ["yes" if one else "no" for one in FRAUD],
    }
    return base | more


def lines(table: dict[str, Cells], sep: str = ",", *, header: bool = True, quote: bool = False) -> str:
    def cell(value: object) -> str:
        text = "" if value is None else str(value)
        return '"' + text.replace('"', '""') + '"' if quote or sep in text or '"' in text or "\n" in text else text

    rows = [sep.join(map(cell, row)) for row in zip(*table.values(), strict=True)]
    return "\n".join([sep.join(map(cell, table)), *rows] if header else rows) + "\n"


class Case(NamedTuple):
    """One case: the file, its bytes, more options, the exit code, and texts that must be printed."""

    file: str
    contents: bytes | Callable[[Path], None]
    options: tuple[str, ...] = ()
    code: int = 0
    says: tuple[str, ...] = ()


def csv(table: dict[str, Cells], sep: str = ",", encoding: str = "utf-8", **options: bool) -> bytes:
    return lines(table, sep, **options).encode(encoding)


def parquet(table: pa.Table) -> Callable[[Path], None]:
    return lambda path: pyarrow.parquet.write_table(table, path)


def every(step: int, mark: object, values: Cells) -> Cells:
    return [mark if index % step == 0 else value for index, value in enumerate(values)]


def excel(path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.worksheets[0]
    table = columns(day=list(DAYS))
    sheet.append(list(table))
    for row in zip(*table.values(), strict=True):
        sheet.append([value.item() if isinstance(value, np.generic) else value for value in row])
    book.save(path)


def sqlite(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("create table rows (amount real, age integer, fraud text)")
        rows = [(float(a), int(b), c) for a, b, c in zip(*columns().values(), strict=True)]
        base.executemany("insert into rows values (?, ?, ?)", rows)
    base.close()


def bomb(path: Path) -> None:
    block = b"1,2,no\n" * 150_000
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b"amount,age,fraud\n")
        for _ in range(300):
            file.write(block)


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b" " * 300_000_000)


def german(value: float) -> str:
    whole, cents = f"{value:,.2f}".split(".")
    return whole.replace(",", ".") + "," + cents


def english(value: float) -> str:
    return f"${value:,.2f}"


POSITIVE, NUMBERS = "Positive class: fraud = yes", "2 numeric"
PLAIN = (POSITIVE, NUMBERS)
JSON_ROWS = [dict(zip(columns(), row, strict=True)) for row in zip(*columns().values(), strict=True)]
JSON_LINES = "".join(json.dumps(row, default=lambda value: value.item()) + "\n" for row in JSON_ROWS)
WIDE = {f"c{number}": ["1"] * 5 for number in range(60_000)}
ONE, TWO = ["x"] * N, ["x", "y"] * (N // 2)

CASES: dict[str, Case] = {
    # Numbers with marks
    "clean": Case("a.csv", csv(columns()), says=PLAIN),
    "question marks": Case("a.csv", csv(columns(amount=every(9, "?", list(AMOUNT)))), says=PLAIN),
    "dashes": Case("a.csv", csv(columns(amount=every(9, "-", list(AMOUNT)))), says=PLAIN),
    "n.a. and blanks": Case("a.csv", csv(columns(amount=every(9, "n.a.", every(7, " ", list(AMOUNT))))), says=PLAIN),
    "spreadsheet errors": Case("a.csv", csv(columns(amount=every(9, "#DIV/0!", list(AMOUNT)))), says=PLAIN),
    "thousands": Case("a.csv", csv(columns(amount=[f"{one:,.2f}" for one in AMOUNT])), says=PLAIN),
    "currency": Case("a.csv", csv(columns(amount=[english(one) for one in AMOUNT])), says=PLAIN),
    "euros": Case("a.csv", csv(columns(amount=[german(one) + " €" for one in AMOUNT]), ";"), says=PLAIN),
    "decimal commas": Case("a.csv", csv(columns(amount=[german(one) for one in AMOUNT]), ";"), says=PLAIN),
    "commas within commas": Case("a.csv", csv(columns(amount=[german(one) for one in AMOUNT]), quote=True), says=PLAIN),
    "percent": Case("a.csv", csv(columns(amount=[f"{one} %" for one in AMOUNT])), says=PLAIN),
    "swiss": Case("a.csv", csv(columns(amount=[f"{one:,.2f}".replace(",", "'") for one in AMOUNT])), says=PLAIN),
    "spaces": Case("a.csv", csv(columns(amount=[f"{one:,.2f}".replace(",", "\u202f") for one in AMOUNT])), says=PLAIN),
    "brackets": Case("a.csv", csv(columns(amount=[f"({one})" for one in AMOUNT])), says=PLAIN),
    "padded": Case("a.csv", csv(columns(amount=[f"  {one} " for one in AMOUNT])), says=PLAIN),
    "infinities": Case("a.csv", csv(columns(amount=every(9, "inf", every(7, "-inf", list(AMOUNT))))), says=PLAIN),
    "own mark": Case("a.csv", csv(columns(amount=every(9, "-999", list(AMOUNT)))), ("--na", "-999"), says=PLAIN),
    "one text cell": Case(
        "a.csv", csv(columns(amount=["many", *AMOUNT[1:]])), says=("'amount' is nearly numeric: 1 of 300",)
    ),
    "forced": Case(
        "a.csv",
        csv(columns(amount=["many", *AMOUNT[1:]])),
        ("--numeric", "amount"),
        says=(NUMBERS, "1 of 300 cells are no numbers and count as missing ('many')"),
    ),
    "no numbers forced": Case("a.csv", csv(columns(town=TWO)), ("--numeric", "town"), 1, ("holds no numbers",)),
    "many digits": Case(
        "a.csv",
        csv(columns(key=[str(10**25 + i % 50) for i in range(N)])),
        ("--categorical", "key"),
        says=("1 categorical",),
    ),
    # Separators, encodings, headers
    "semicolons": Case("a.csv", csv(columns(), ";"), says=PLAIN),
    "tabs": Case("a.csv", csv(columns(), "\t"), says=PLAIN),
    "pipes": Case("a.csv", csv(columns(), "|"), says=PLAIN),
    "commas in tsv": Case("a.tsv", csv(columns(), ","), says=PLAIN),
    "colons": Case("a.csv", csv(columns(), ":"), ("--sep", ":"), says=PLAIN),
    "absurd separator": Case("a.csv", csv(columns()), ("--sep", "ab"), 1, ("--sep must be one character",)),
    "byte order mark": Case("a.csv", csv(columns(), encoding="utf-8-sig"), says=PLAIN),
    "utf-16": Case("a.csv", csv(columns(), encoding="utf-16"), says=PLAIN),
    "utf-16 without a mark": Case("a.csv", csv(columns(), encoding="utf-16-le"), says=PLAIN),
    "latin-1": Case(
        "a.csv",
        csv(columns(town=["Köln", "Łódź".encode().decode("latin-1")] * (N // 2)), encoding="latin-1"),
        says=("is not UTF-8 and was read as", POSITIVE),
    ),
    "encoding given": Case(
        "a.csv", csv(columns(town=["Köln", "Bonn"] * (N // 2)), encoding="cp1252"), ("--encoding", "cp1252"), says=PLAIN
    ),
    "no such encoding": Case(
        "a.csv", csv(columns()), ("--encoding", "klingon"), 1, ("there is no encoding 'klingon'",)
    ),
    "wrong encoding": Case(
        "a.csv",
        csv(columns(t=["Köln"] * N), encoding="latin-1"),
        ("--encoding", "utf-8"),
        1,
        ("give the right one with --encoding",),
    ),
    "no header": Case("a.csv", csv(columns(), header=False), code=1, says=("has no line of names",)),
    "old Mac lines": Case("a.csv", csv(columns()).replace(b"\n", b"\r"), says=PLAIN),
    "Windows lines": Case("a.csv", csv(columns()).replace(b"\n", b"\r\n"), says=PLAIN),
    "ragged": Case("a.csv", csv(columns()) + b"1,2\n", code=1, says=("line 302: expected 3 columns, got 2",)),
    "empty": Case("a.csv", b"", code=1, says=("a.csv is empty",)),
    "names only": Case("a.csv", b"amount,age,fraud\n", code=1, says=("no rows",)),
    "doubled name": Case(
        "a.csv", csv(columns()).replace(b"age", b"amount", 1), code=1, says=("2 columns named 'amount'",)
    ),
    "nameless": Case("a.csv", csv(columns()).replace(b"age", b"", 1), code=1, says=("column 2 has no name",)),
    "binary": Case("a.csv", bytes(range(256)) * 50, code=1, says=("holds bytes of zero",)),
    "unknown kind": Case("a.docx", b"x", code=1, says=("files of this kind cannot be read",)),
    "control characters": Case("a.csv", csv(columns(**{"\x1b[31mred": ONE})), says=("red",)),
    "huge line": Case("a.csv", b"a,fraud\n" + b"x" * 9_000_000 + b",1\n", code=1, says=("cannot be read as CSV",)),
    # Other kinds of files
    "json lines": Case("a.jsonl", JSON_LINES.encode(), says=PLAIN),
    "json lines zipped": Case("a.jsonl.gz", gzip.compress(JSON_LINES.encode(), mtime=0), says=PLAIN),
    "broken json": Case("a.jsonl", JSON_LINES.encode() + b"{", code=1, says=("line 301: no JSON",)),
    "no object": Case("a.jsonl", JSON_LINES.encode() + b"[1]\n", code=1, says=("line 301: a JSON object is needed",)),
    "deep json": Case("a.jsonl", b'{"a":' + b"[" * 100_000 + b"\n", code=1, says=("line 1: no JSON",)),
    "excel": Case("a.xlsx", excel, says=("2 numeric, 1 date",)),
    "no excel": Case("a.xlsx", b"x", code=1, says=("cannot be read as Excel",)),
    "excel bomb": Case("a.xlsx", zip_bomb, code=1, says=("unpacks to more than 200 times its size",)),
    "gzip bomb": Case("a.csv.gz", bomb, code=1, says=("unpacks to more than 200 times its size",)),
    "no gzip": Case("a.csv.gz", csv(columns()), code=1, says=("Not a gzipped file",)),
    "query": Case("a.db", sqlite, ("--sql", "select * from rows"), says=PLAIN),
    "bad query": Case("a.db", sqlite, ("--sql", "selct 1"), 1, ("syntax error",)),
    "query without database": Case("a.csv", csv(columns()), ("--sql", "select 1"), 1, ("the address of one database",)),
    "texts in parquet": Case(
        "a.parquet", parquet(pa.table(columns(amount=[german(one) for one in AMOUNT]))), says=PLAIN
    ),
    # Dates, texts, categories
    "ISO dates": Case("a.csv", csv(columns(day=list(DAYS))), says=("1 date",)),
    "German dates": Case("a.csv", csv(columns(day=[f"{day:%d.%m.%Y}" for day in DAYS])), says=("1 date",)),
    "American dates": Case("a.csv", csv(columns(day=[f"{day:%m/%d/%Y}" for day in DAYS])), says=("1 date",)),
    "dates with times": Case("a.csv", csv(columns(day=[f"{day:%d.%m.%Y} 12:30" for day in DAYS])), says=("1 date",)),
    "split by German dates": Case(
        "a.csv", csv(columns(day=[f"{day:%d.%m.%Y}" for day in DAYS])), ("--time", "day"), says=("day (time)",)
    ),
    "texts": Case("a.csv", csv(columns(note=list(WORDS))), says=("1 text",)),
    "many categories": Case("a.csv", csv(columns(shop=[f"s{i % 120}" for i in range(N)])), says=("1 categorical",)),
    "e-mail addresses": Case("a.csv", csv(columns(mail=[f"{i}@x.org" for i in range(N)])), says=("mail (all unique)",)),
    # Labels
    "missing labels": Case(
        "a.csv",
        csv(columns(fraud=every(10, None, columns()["fraud"]))),
        says=("30 rows without a label were left out",),
    ),
    "fraud and ok": Case(
        "a.csv",
        csv(columns(fraud=["fraud" if one else "ok" for one in FRAUD])),
        says=("Positive class: fraud = fraud", "the rarer one"),
    ),
    "1 and 2": Case(
        "a.csv", csv(columns(fraud=[1 if one else 2 for one in FRAUD])), says=("Positive class: fraud = 1",)
    ),
    "positive given": Case(
        "a.csv", csv(columns()), ("--positive", "no"), says=("Positive class: fraud = no", "as asked")
    ),
    "three classes": Case("a.csv", csv(columns(fraud=[str(i % 3) for i in range(N)])), says=("each of 3 classes",)),
    "one class": Case(
        "a.csv", csv(columns(fraud=["no"] * N)), code=1, says=("holds only 'no': two classes are needed",)
    ),
    "numbers as label": Case("a.csv", csv(columns(fraud=list(AMOUNT))), code=1, says=("has more than 50 values",)),
    "no label column": Case("a.csv", csv({"x": ONE}), code=1, says=("the data have no column 'fraud'",)),
    # What a colleague would notice
    "copy of the label": Case(
        "a.csv", csv(columns(closed=[int(one) for one in FRAUD])), says=("is a copy of the label",)
    ),
    "shuffled ids": Case(
        "a.csv", csv(columns(nr=list(np.random.default_rng(1).permutation(N) + 5))), says=("nr (all unique)",)
    ),
    "copies of rows": Case(
        "a.csv",
        csv({name: cells[:200] + cells[:100] for name, cells in columns(x=list(RANDOM.normal(size=N))).items()}),
        says=("rows equal a row in another part of the split",),
    ),
    # Absurd sizes
    "60,000 columns": Case("a.csv", csv(WIDE | {"fraud": ["a", "b"] * 2 + ["a"]}), code=1, says=("too few",)),
    "absurd steps": Case("a.csv", csv(columns()), ("--batch-size", "-5"), 1, ("--batch-size",)),
    "absurd fractions": Case(
        "a.csv",
        csv(columns()),
        ("--validation-fraction", "0.9", "--test-fraction", "0.9"),
        1,
        ("no rows are left to train",),
    ),
}


def make(name: str, folder: Path) -> Path:
    """Write the file of a case."""
    case = CASES[name]
    path = folder / case.file
    if callable(case.contents):
        case.contents(path)
    else:
        path.write_bytes(case.contents)
    return path


if __name__ == "__main__":
    for number, name in enumerate(CASES):
        folder = Path(sys.argv[1]) / f"{number:02d} {name.replace('/', ' ')}"
        folder.mkdir(parents=True, exist_ok=True)
        make(name, folder)
