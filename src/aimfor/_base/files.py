"""Files that are written whole or not at all, and read as plain bytes."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from aimfor._base.errors import ModelFileError

# What is larger is refused unread.
MOST_BYTES = 8 * 2**30
# Not on Windows, where making a link takes a right that few users have.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
BINARY = getattr(os, "O_BINARY", 0)


class OtherPath(ABC):
    """A path that is not on this machine. The functions below ask it to read and to write by itself."""

    @abstractmethod
    def read_whole(self, most: int) -> bytes:
        """As `read_bytes`."""

    @abstractmethod
    def write_whole(self, data: bytes) -> None:
        """As `write_bytes`."""

    @abstractmethod
    def replaced_when_whole(self) -> AbstractContextManager[IO[bytes]]:
        """As the function of that name."""


def create(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a new file to write to; where anything has its name already, even a link, that is an error."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | BINARY, 0o666), "wb")


@contextmanager
def replaced_when_whole(path: Path) -> Iterator[IO[bytes]]:
    """Inside, write to a file under a name that nobody can guess; at the end it takes the place of `path`.

    A link of the name `path` is replaced, and what it points to stays as it is.
    """
    if isinstance(path, OtherPath):
        with path.replaced_when_whole() as file:
            yield file
        return
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    try:
        with create(part) as file:
            yield file
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


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
    if isinstance(path, OtherPath):
        path.write_whole(data)
        return
    path = Path(path)
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)  # a process that was stopped may have left it
        with create(part) as file:
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
    if isinstance(path, OtherPath):
        return path.read_whole(most)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise ModelFileError(f"{path} is a link, a folder or a device, not a file")
        with os.fdopen(os.open(path, os.O_RDONLY | NO_LINK | BINARY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(most + 1) if size <= most else b""
        if size <= most and len(data) <= most:
            return data
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
    raise ModelFileError(f"{path} has {size:,} bytes, more than the {most:,} that such a file may have")


def is_there(path: Path) -> bool:
    """Whether anything has this name, even a link to nothing."""
    return path.exists() if isinstance(path, OtherPath) else os.path.lexists(path)


def is_plain_file(path: Path) -> bool:
    """Whether a file has this name: no link, no folder, no device."""
    return path.is_file() if isinstance(path, OtherPath) else stat.S_ISREG(os.lstat(path).st_mode)


def sync_folder(folder: Path) -> None:
    """Bring a folder's new names to the disk, where folders can be opened."""
    if os.name == "posix" and not isinstance(folder, OtherPath):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def not_written(path: Path, error: OSError) -> ModelFileError:
    """The error of a path that cannot be written."""
    return ModelFileError(f"{path} cannot be written: {error.strerror}")
