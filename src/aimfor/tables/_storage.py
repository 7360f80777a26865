"""Files in object storage, named by addresses that `pyarrow.fs` knows: s3, gs, hdfs, abfs and file.

A `RemotePath` has those methods of `pathlib.Path` that the package uses. Reads and writes are tried again after
transient errors. A file appears under its name only when it is whole.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit

from aimfor._base.errors import DataError, ModelFileError
from aimfor._base.files import OtherPath

SCHEMES = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "file")
ATTEMPTS = 6
FIRST_WAIT = 0.2  # seconds before the second attempt; each further wait is twice as long
BLOCK = 4 * 2**20  # bytes of a request where a file is read from its start to its end
# Errors that another attempt will not mend.
LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
REFUSED = re.compile(r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|NO_SUCH_BUCKET|EXPIRED_TOKEN|UNRECOGNIZED_CLIENT")

Result = TypeVar("Result")


def is_remote(text: str) -> bool:
    """Whether a text is an address of object storage."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def as_path(text: str | os.PathLike[str]) -> Path:
    """The path of a text: one of this machine, or a `RemotePath`, which is used like one.

    Args:
        text: a path, or an address such as "s3://bucket/rows/".

    Raises:
        DataError: where an address names no bucket or host.

    Example:
        >>> as_path("file:///data/rows.csv").name
        'rows.csv'
    """
    if isinstance(text, OtherPath):
        return cast(Path, text)
    given = os.fspath(text)
    if not is_remote(given):
        return Path(given)
    parts = urlsplit(given)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if not parts.netloc:
        raise DataError(f"{given} names no bucket: write {parts.scheme}://bucket/folder")
    return cast(Path, RemotePath(given))


class FileStatus(NamedTuple):
    """Size and time of change of a file, named as `os.stat` does."""

    st_size: int
    st_mtime_ns: int


class RemotePath(OtherPath):
    """The address of a file or folder in object storage.

    Args:
        address: such as "s3://bucket/rows/". Options of the storage may follow a question mark, as `pyarrow.fs` has
            them: `region`, `endpoint_override`, `scheme`.
    """

    def __init__(self, address: str):
        self.address, _, self._options = address.partition("?")
        self._shown = re.sub(r"://[^/@]*@", "://", self.address).rstrip("/")
        self.name = PurePosixPath(urlsplit(self.address).path).name

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"RemotePath({self._shown!r})"

    def __hash__(self) -> int:
        return hash(self._shown)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and other._shown == self._shown

    def __lt__(self, other: RemotePath) -> bool:
        return self._shown < other._shown

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is not on this machine")

    def _of(self, address: str) -> RemotePath:
        return RemotePath(f"{address}?{self._options}" if self._options else address)

    def __truediv__(self, name: str) -> RemotePath:
        return self._of(f"{self.address.rstrip('/')}/{name}")

    @property
    def parent(self) -> RemotePath:
        """The folder that it is in."""
        return self._of(self.address.rstrip("/").rpartition("/")[0])

    @property
    def suffix(self) -> str:
        """The end of its name, from the last dot."""
        return PurePosixPath(self.name).suffix

    def with_name(self, name: str) -> RemotePath:
        """The path with another last name."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> RemotePath:
        """The path with another end of its name."""
        return self.with_name(PurePosixPath(self.name).with_suffix(suffix).name)

    @property
    def _place(self) -> tuple[Any, str]:
        parts = urlsplit(self.address)
        root = f"{parts.scheme}://{parts.netloc}"
        storage, start = storage_of(f"{root}?{self._options}" if self._options else root)
        return storage, f"{start.rstrip('/')}/{parts.path.strip('/')}".rstrip("/")

    # What is there

    def _info(self) -> Any:
        storage, key = self._place
        return tried(lambda: storage.get_file_info(key))

    def exists(self) -> bool:
        """Whether there is such a file or folder."""
        return self._info().type.name != "NotFound"

    def is_file(self) -> bool:
        """Whether there is such a file."""
        return self._info().is_file

    def is_dir(self) -> bool:
        """Whether there is such a folder, or files whose names start with it."""
        return self._info().type.name == "Directory"

    def stat(self) -> FileStatus:
        """Size and time of change."""
        info = self._info()
        if not info.is_file:
            raise FileNotFoundError(2, "No such file", str(self))
        return FileStatus(info.size, info.mtime_ns or 0)

    def iterdir(self) -> Iterator[RemotePath]:
        """The files and folders in a folder."""
        from pyarrow import fs

        storage, key = self._place
        found = tried(lambda: storage.get_file_info(fs.FileSelector(key, allow_not_found=True)))
        return iter([self / info.base_name for info in found if info.base_name])

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """The files in a folder whose names match a pattern."""
        return (path for path in self.iterdir() if PurePosixPath(path.name).match(pattern))

    # Reading

    def open(self, mode: str = "rb", buffering: int = BLOCK) -> IO[bytes]:
        """The file, to be read."""
        if mode != "rb":
            raise ValueError(f"{self} can only be opened to be read")
        return cast(IO[bytes], io.BufferedReader(RemoteReader(self), buffering))

    def read_whole(self, most: int) -> bytes:
        try:
            size = self.stat().st_size
            if size > most:
                raise ModelFileError(f"{self} has {size:,} bytes, more than the {most:,} that such a file may have")
            with self.open() as file:
                return file.read()
        except FileNotFoundError:
            raise ModelFileError(f"{self}: no such file") from None
        except OSError as error:
            raise ModelFileError(f"{self} cannot be read: {error}") from error

    # Writing

    def write_whole(self, data: bytes) -> None:
        try:
            self._send(lambda out: out.write(data), len(data))
        except OSError as error:
            raise ModelFileError(f"{self} cannot be written: {error}") from error

    @contextmanager
    def replaced_when_whole(self) -> Iterator[IO[bytes]]:
        # A file of this machine first: what is sent can then be sent again from its start.
        with tempfile.TemporaryFile(prefix="aimfor-") as file:
            yield file
            file.flush()

            def copy(out: Any) -> None:
                file.seek(0)
                shutil.copyfileobj(file, out, BLOCK)

            self._send(copy, file.seek(0, os.SEEK_END))

    def _send(self, write: Callable[[Any], Any], size: int) -> None:
        """Write a file under a name that nobody can guess, and give it its own name when it is whole."""
        part = self.with_name(f".{self.name[:100]}.{secrets.token_hex(8)}")
        storage, key = part._place

        def send() -> None:
            with storage.open_output_stream(key) as out:
                write(out)
            found = storage.get_file_info(key).size
            if found != size:
                raise OSError(f"{found} of {size} bytes of {self} arrived")

        try:
            tried(send)
            part.replace(self)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def replace(self, target: RemotePath | Path) -> None:
        """Give the file another name; a file of that name is replaced."""
        assert isinstance(target, RemotePath)
        (storage, key), (_, new) = self._place, target._place

        def move() -> None:
            if storage.type_name in ("hdfs", "viewfs"):  # which replace nothing by themselves
                with contextlib.suppress(FileNotFoundError):
                    storage.delete_file(new)
            elif not self.exists() and target.exists():
                return  # an earlier attempt moved it, and only its answer was lost
            storage.move(key, new)

        tried(move)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        storage, key = self._place
        if not missing_ok or self.exists():
            tried(lambda: storage.delete_file(key))

    def rmdir(self) -> None:
        """Remove a folder that is empty; most object storage has none of its own."""
        storage, key = self._place
        if self.is_dir():
            tried(lambda: storage.delete_dir(key))

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a folder, where the storage has folders."""
        storage, key = self._place
        if storage.type_name in ("hdfs", "viewfs"):
            tried(lambda: storage.create_dir(key, recursive=True))


class RemoteReader(io.RawIOBase):
    """The bytes of a remote file. A read that fails or ends too early is tried again from where it stopped.

    Args:
        path: of the file.
    """

    def __init__(self, path: RemotePath):
        super().__init__()
        self.path, self._at, self._file = path, 0, None
        self.size = path.stat().st_size
        self.name = str(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self.size - self._at)
        if wanted <= 0:
            return 0
        found = tried(lambda: self._read(wanted))
        buffer[:wanted] = found
        self._at += wanted
        return wanted

    def _read(self, wanted: int) -> bytes:
        storage, key = self.path._place
        try:
            if self._file is None:
                self._file = storage.open_input_file(key)
                if self._file.size() != self.size:
                    raise DataError(f"{self.path} changed while it was read")
            found = self._file.read_at(wanted, self._at)
            if len(found) < wanted:
                raise OSError(f"{self.path} gave {len(found)} of {wanted} bytes")
            return found
        except OSError:
            self._forget()  # a broken connection must not serve the next attempt
            raise

    def _forget(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None

    def close(self) -> None:
        self._forget()
        super().close()


def arrow_file(path: Path) -> Any:
    """What pyarrow's readers take for a file: the path on this machine, else a file that tries again."""
    if isinstance(path, Path):
        return path
    import pyarrow as pa

    return pa.PythonFile(cast(Any, path).open(), mode="r")


def tried(work: Callable[[], Result]) -> Result:
    """What some work gives, which is tried again after an error that may pass, each time after a longer wait.

    Raises:
        OSError: of the last attempt.
    """
    for attempt in range(ATTEMPTS):
        try:
            return work()
        except OSError as error:
            last = attempt == ATTEMPTS - 1
            if last or isinstance(error, LASTING) or REFUSED.search(str(error)):
                raise
            time.sleep(FIRST_WAIT * 2**attempt * random.uniform(0.5, 1.5))
    raise AssertionError("the last attempt gives or raises")


@lru_cache(maxsize=64)
def storage_of(root: str) -> tuple[Any, str]:
    """The storage of an address without its path, and the start of all keys there.

    Raises:
        DataError: where there is no such storage, or pyarrow lacks it.
    """
    shown = RemotePath(root)
    try:
        from pyarrow import ArrowException, fs
    except ModuleNotFoundError:
        raise DataError(f"{shown}: object storage needs an extra: pip install 'aimfor[cli]'") from None
    try:
        return tried(lambda: fs.FileSystem.from_uri(root))
    except (ArrowException, OSError) as error:
        raise DataError(f"{shown} cannot be reached: {error}") from None
