"""The folders of a run: none but ours are written to, and nothing but what we wrote is removed."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aimfor._base.errors import ModelFileError
from aimfor._base.files import OtherPath, is_plain_file, is_there

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
    if is_there(out) and not out.is_dir():
        raise ModelFileError(f"{out} is a file: give the name of a folder with --out")
    if out.is_dir() and any(out.iterdir()) and not any(is_there(out / mark) for mark in MARKS):
        raise ModelFileError(f"{out} holds files but no model: give a new folder with --out, or empty this one")
    with contextlib.suppress(FileExistsError):  # a link or a file of its name, which the next lines refuse
        work.mkdir(parents=True, exist_ok=True)
    if not isinstance(work, OtherPath) and not stat.S_ISDIR(os.lstat(work).st_mode):
        raise ModelFileError(f"{work} is a link or a file, not a folder: remove it, or choose another --out")
    for path in work.iterdir():
        if not OURS.fullmatch(path.name) or not is_plain_file(path):
            raise ModelFileError(f"{work} holds {path.name!r}, which aimfor did not write: remove it first")
    return work


@contextlib.contextmanager
def place_of_rows(work: Path) -> Iterator[Path]:
    """Where rows wait that memory does not hold: the work folder, or one of this machine where that is elsewhere."""
    if not isinstance(work, OtherPath):
        yield work
        return
    with tempfile.TemporaryDirectory(prefix="aimfor-") as place:
        yield Path(place)


def has_checkpoint(out: Path) -> bool:
    """Whether an interrupted run left something in the folder that can be taken up again."""
    work = out / WORK
    return work.is_dir() and any(work.glob("*.safetensors"))


def empty(work: Path, *, keep: tuple[str, ...] = (LOCK,)) -> None:
    """Remove the files of earlier runs."""
    for path in work.iterdir():
        if path.name not in keep and OURS.fullmatch(path.name) and is_plain_file(path):
            path.unlink()


def remove_work_folder(work: Path) -> None:
    """Remove the work folder, and the folder around it where that is empty; what others put there stays."""
    empty(work, keep=())
    if not any(work.iterdir()):
        work.rmdir()
        if not any(work.parent.iterdir()):
            work.parent.rmdir()
