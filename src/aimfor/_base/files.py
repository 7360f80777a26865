"""Files that are written whole or not at all, and read as plain bytes."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from aimfor._base.errors import ModelFileError

# What is larger is refused unread.
MOST_BYTES = 8 * 2**30


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text as UTF-8, whole or not at all; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all: an earlier one stays until the new one is safely on the disk.

    Args:
        path: of the file; its folder must exist.
        data: all of it.

    Raises:
        ModelFileError: where it cannot be written, with the reason.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)  # a process that was stopped may have left it
        with open(part, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def read_bytes(path: Path, most: int) -> bytes:
    """Read a file of at most so many bytes, and nothing but a file: no link, no pipe, no folder.

    Args:
        path: of the file.
        most: bytes that it may have.

    Raises:
        ModelFileError: where it cannot be read, with the reason.
    """
    most = min(most, MOST_BYTES)
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(f"{path} must be a file, got a link, a folder or a device")
        if status.st_size <= most:
            with open(path, "rb") as file:
                data = file.read(most + 1)
            if len(data) <= most:
                return data
    except FileNotFoundError:
        raise ModelFileError(f"{path} must be there, got no such file") from None
    except OSError as error:
        raise ModelFileError(f"{path} must be readable, got: {error.strerror}") from error
    raise ModelFileError(f"{path} must have at most {most:,} bytes, got {status.st_size:,}")


def sync_folder(folder: Path) -> None:
    """Bring a folder's new names to the disk, where folders can be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def not_written(path: Path, error: OSError) -> ModelFileError:
    """The error of a path that cannot be written."""
    return ModelFileError(f"{path} must be writable, got: {error.strerror}")
