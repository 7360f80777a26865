"""Runs of rows that one process reads, where several share the files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class FileRun(NamedTuple):
    """Rows of a file that one process reads.

    Attributes:
        path: of the file.
        group: number of the group of rows; None for the whole file.
        rows: how many they are.
    """

    path: Path
    group: int | None
    rows: int


def by_file(runs: Iterable[FileRun]) -> list[tuple[Path, list[int] | None]]:
    """The files of some runs in order, so that each is opened once for all of its groups; None for the whole file."""
    found: list[tuple[Path, list[int] | None]] = []
    for path, group, _ in runs:
        before, groups = found[-1] if found else (None, None)
        if group is not None and groups is not None and path == before and group > groups[-1]:
            groups.append(group)
        else:  # a file may be named twice
            found.append((path, None if group is None else [group]))
    return found
