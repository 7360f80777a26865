"""The folders of a run: none but ours are written to, and nothing but what we wrote is removed."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from aimfor._base.errors import ModelFileError

# Where a run keeps what it needs to go on; gone when it is done.
WORK = ".work"
LOCK, JOB = "lock", "job.json"
# All names that a run gives to files of its work folder, with those of files in the making.
OURS = re.compile(
    r"lock|\.?job\.json(\.part)?|\.?[a-z0-9][-a-z0-9]*\.safetensors(\.part)?|(train|validation|test)\.rows|query\.arrow"
)
# What a folder has that a run has written to.
MARKS = ("model.json", WORK)


def make_work_folder(out: Path) -> Path:
    """The work folder of a run, made where there is none.

    Raises:
        ModelFileError: where `out` or the work folder is not ours: a folder with other files, or a link.
    """
    work = out / WORK
    if os.path.lexists(out) and not out.is_dir():
        raise ModelFileError(f"{out} is a file: give the name of a folder with --out")
    if out.is_dir() and any(out.iterdir()) and not any(os.path.lexists(out / mark) for mark in MARKS):
        raise ModelFileError(f"{out} holds files but no model: give a new folder with --out, or empty this one")
    with contextlib.suppress(FileExistsError):  # a link or a file of its name, which the next lines refuse
        work.mkdir(parents=True, exist_ok=True)
    if not stat.S_ISDIR(os.lstat(work).st_mode):
        raise ModelFileError(f"{work} is a link or a file, not a folder: remove it, or choose another --out")
    for path in work.iterdir():
        if not OURS.fullmatch(path.name) or not stat.S_ISREG(os.lstat(path).st_mode):
            raise ModelFileError(f"{work} holds {path.name!r}, which aimfor did not write: remove it first")
    return work


def empty(work: Path, *, keep: tuple[str, ...] = (LOCK,)) -> None:
    """Remove the files of earlier runs."""
    for path in work.iterdir():
        if path.name not in keep and OURS.fullmatch(path.name) and stat.S_ISREG(os.lstat(path).st_mode):
            path.unlink()


def remove_work_folder(work: Path) -> None:
    """Remove the work folder, and the folder around it where that is empty; what others put there stays."""
    empty(work, keep=())
    if not any(work.iterdir()):
        work.rmdir()
        if not any(work.parent.iterdir()):
            work.parent.rmdir()
