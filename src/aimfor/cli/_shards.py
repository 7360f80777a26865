"""Score some of many files: one file in, one file out. What is done already is not done again."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aimfor._base.errors import DataError, ModelFileError
from aimfor._base.files import is_there, write_text
from aimfor._base.json import read_json
from aimfor.cli._score import FolderScorer, RowSource, Scored, open_scorer, refuse_to_replace, score_rows
from aimfor.tables import as_path, files_of, is_database, output_suffix


class Shard(NamedTuple):
    """Which of how many shards; both count from 1."""

    number: int
    total: int


class ScoredFiles(NamedTuple):
    """What a shard wrote.

    Attributes:
        files: names of its outputs.
        there: how many of them were there already.
        scored: rows of all its files, columns and remarks.
    """

    files: list[str]
    there: int
    scored: Scored


def shard_of(text: str) -> Shard:
    """The shard of a text such as "3/16".

    Example:
        >>> shard_of("3/16")
        Shard(number=3, total=16)
    """
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    shard = Shard(int(found[1]), int(found[2])) if found else Shard(0, 0)
    if not 1 <= shard.number <= shard.total:
        raise ValueError(f"--shard must be a number of a total, such as 3/16, got {text[:30]!r}")
    return shard


def score_shard(
    folder: Path,
    rows: RowSource,
    out: Path,
    shard: Shard,
    *,
    ids: Sequence[str] = (),
    threshold: float | None = None,
) -> ScoredFiles:
    """Score every file of a shard to a file of its own in a folder.

    A file beside each output says what it was made of. Where that is still the same, the output stays as it is.

    Args:
        folder: of the model.
        rows: the files of all shards.
        out: the folder of the outputs.
        shard: which files: of the files in order, every `total`-th from `number` on.
        ids: as of `score`.
        threshold: as of `score`.
    """
    if any(is_database(path) for path in rows.paths):
        raise DataError("--shard takes some of many files, and a query has none: leave it out")
    refuse_to_replace([folder, *map(as_path, rows.paths)], out)
    files = files_of(rows.paths)
    names = _names(files)
    scorer, found, there = open_scorer(folder), [], 0
    out.mkdir(parents=True, exist_ok=True)
    facts = _made_of(scorer, rows, ids, threshold)
    for file, name in list(zip(files, names, strict=True))[shard.number - 1 :: shard.total]:
        made_of = {**facts, "file": _version(file)}
        kept = _kept(out, name, made_of)
        there += kept is not None
        if kept is None:
            source = dataclasses.replace(rows, paths=[file])
            kept = score_rows(scorer, source, out / name, ids=ids, threshold=threshold)
            note = {"made_of": made_of, **kept._asdict()}
            write_text(_note(out, name), json.dumps(note, allow_nan=False))
        found.append(kept)
    remarks = [remark for one in found for remark in one.remarks]
    columns = found[0].columns if found else {}
    return ScoredFiles(
        names[shard.number - 1 :: shard.total], there, Scored(sum(one.rows for one in found), columns, remarks)
    )


def _names(files: Sequence[Path]) -> list[str]:
    """The name of the output of each file."""
    names = [f"{file.name.split('.')[0]}{output_suffix(file)}" for file in files]
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise DataError(f"{count} files would be scored to {name}: give them names that differ before the first dot")
    return names


def _note(out: Path, name: str) -> Path:
    # Readers of shards leave out names that start so.
    return out / f"_{name}.json"


def _made_of(scorer: FolderScorer, rows: RowSource, ids: Sequence[str], threshold: float | None) -> dict[str, Any]:
    """All that decides what an output holds, but for its file."""
    options = rows.reading(scorer.missing)
    return {
        "model": scorer.model.facts["checksum"],
        "ids": list(ids),
        "threshold": threshold,
        "separator": options.separator,
        "encoding": options.encoding,
        "missing": list(options.missing),
    }


def _version(file: Path) -> list[Any]:
    status = file.stat()
    return [str(file), status.st_size, status.st_mtime_ns]


def _kept(out: Path, name: str, made_of: dict[str, Any]) -> Scored | None:
    """What was scored earlier from the same model and file; None where there is nothing of it."""
    if not (is_there(_note(out, name)) and is_there(out / name)):
        return None
    try:
        facts = read_json(_note(out, name))
        if facts["made_of"] != made_of:
            return None
        return Scored(int(facts["rows"]), dict(facts["columns"]), list(facts["remarks"]))
    except (ModelFileError, KeyError, TypeError, ValueError):  # whatever it is, it says nothing about our output
        return None
