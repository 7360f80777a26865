"""What all readers share: options, limits, and errors of one sentence."""

from __future__ import annotations

import gzip
import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from aimfor._base.errors import DataError

SIZE = 16_384  # rows read at a time
# A small compressed file may grow without end. Beyond this size it may be at most so many times the compressed one.
MOST_UNPACKED, MOST_TIMES = 256 * 2**20, 200
ROW = re.compile(r"(?:CSV parse error: )?Row #(\d+): Expected (\d+) columns, got (\d+)(?::? ?(.*))?", re.DOTALL)


@dataclass(frozen=True)
class ReadOptions:
    """How files are read where their contents do not say it.

    Attributes:
        separator: between the cells of a line; None to find it out.
        encoding: of texts; None to find it out.
        missing: texts that stand for a missing value, besides the usual ones.
        numeric: names of columns that hold numbers; a cell that is none counts as missing.
        categorical: names of columns that are not to be read as numbers or dates.
    """

    separator: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n\0'):
            raise DataError(f"--sep must be one character such as ';', got {self.separator!r}")
        if self.encoding is not None:
            try:
                "a".encode(self.encoding)
            except (LookupError, ValueError, TypeError):
                raise DataError(
                    f"--encoding: there is no encoding {self.encoding[:50]!r}: try utf-8, utf-16 or latin-1"
                ) from None


def fingerprint(paths: Iterable[Path]) -> str:
    """SHA-256 over name, size and contents of each file, read in blocks."""
    digest = hashlib.sha256()
    for path in paths:
        with reading(path, "file"), path.open("rb") as file:
            digest.update(f"{path.name}\n{path.stat().st_size}\n".encode())
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


@contextmanager
def reading(path: Path | str, kind: str) -> Iterator[None]:
    """Turn what the readers raise over a bad file into one sentence that names it."""
    try:
        yield
    except DataError:
        raise
    except UnicodeError:
        raise DataError(
            f"{path} has bytes that its encoding does not allow: give the right one with --encoding"
        ) from None
    except (pa.ArrowException, OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if row := ROW.fullmatch(reason):
            line, expected, got, text = row.groups()
            shown = f": {one_line(text, 80)}" if text else ""
            raise DataError(f"{path}, line {line}: expected {expected} columns, got {got}{shown}") from None
        raise DataError(f"{path} cannot be read as {kind}: {one_line(reason)}") from None


def one_line(text: str, most: int = 200) -> str:
    """A text from a file or a library, fit to be printed: one line, no control characters, not long."""
    shown = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return shown if len(shown) <= most else shown[:most] + "..."


def first_of(texts: Sequence[str], most: int) -> str:
    """The first of some texts, side by side; dots at the end stand for the rest.

    Example:
        >>> first_of(["a", "b", "c"], 2)
        'a, b, ...'
    """
    return ", ".join([*texts[:most], "..."] if len(texts) > most else texts)


def is_gzip(path: Path) -> bool:
    """Whether the name of a file says that it is compressed."""
    return path.suffix.lower() == ".gz"


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for its bytes, unpacked."""
    if not is_gzip(path):
        return path.open("rb")
    return gzip.open(path if isinstance(path, Path) else path.open("rb"), "rb")  # pyright: ignore[reportReturnType]


def blocks_of(path: Path, size: int = 2**20) -> Iterator[bytes]:
    """The bytes of a file in blocks, unpacked.

    Raises:
        DataError: where a small file unpacks to a huge one.
    """
    packed, unpacked = path.stat().st_size, 0
    with open_bytes(path) as file:
        while block := file.read(size):
            unpacked += len(block)
            check_unpacked(path, packed, unpacked)
            yield block


def check_unpacked(path: Any, packed: int, unpacked: int) -> None:
    """Refuse a compressed file that is small and holds very much."""
    if unpacked > max(MOST_UNPACKED, MOST_TIMES * packed):
        raise DataError(f"{path} unpacks to more than {MOST_TIMES} times its size: unpack it first if that is right")
