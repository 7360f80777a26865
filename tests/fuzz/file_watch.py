"""Watches what the program does to files, by an audit hook, and how long it takes."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CPU_SECONDS, SECONDS = 30, 200  # of one command; the second is for one that waits, on a busy machine
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0) | os.O_EXCL
# Events that make, change or remove names: the places of the names in their arguments, and of their folder's handle.
CHANGES = {
    "os.remove": [(0, 1)],
    "os.rename": [(0, 2), (1, 3)],
    "os.rmdir": [(0, 1)],
    "os.mkdir": [(0, 2)],
    "os.truncate": [(0, None)],
    "os.chmod": [(0, 2)],
    "os.chown": [(0, 3)],
    "os.utime": [(0, 3)],
    "os.symlink": [(1, 2)],
    "os.link": [(1, 3)],
}
NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "pickle.find_class")


class TooLongError(BaseException):
    """A command took too long; no handler of ordinary errors catches it."""


class Watch:
    """While it is on, every change outside of a folder is noted, and so is what a reader of data must never do."""

    def __init__(self) -> None:
        self.root: Path | None = None
        self.wrong: list[str] = []
        self.thread = 0
        sys.addaudithook(self._see)

    @contextmanager
    def over(self, root: Path) -> Iterator[None]:
        """Inside, only what lies in `root` may change, and a command may not take too long."""
        self.wrong, self.thread = [], threading.get_ident()
        previous = [signal.signal(number, _too_long) for number in (signal.SIGPROF, signal.SIGALRM)]
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        self.root = root.resolve()
        try:
            yield
        finally:
            self.root = None
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in zip((signal.SIGPROF, signal.SIGALRM), previous, strict=True):
                signal.signal(number, handler)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.root is None or threading.get_ident() != self.thread:
            return
        if event in NEVER:
            self.wrong.append(f"{event} {arguments}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            self._check(event, arguments[0], follow=not arguments[2] & NOT_FOLLOWED)
        elif event in CHANGES:
            for place, handle in CHANGES[event]:
                folder = -1 if handle is None else arguments[handle]
                self._check(event, arguments[place], follow=False, folder=folder)

    def _check(self, event: str, name: Any, *, follow: bool, folder: int = -1) -> None:
        if isinstance(name, int) or self.root is None:  # a file that is open already
            return
        path = Path("" if folder == -1 else os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(name))
        place = path.resolve() if follow else path.parent.resolve() / path.name
        if not place.is_relative_to(self.root) and place != Path(os.devnull):
            self.wrong.append(f"{event} {place}")


def _too_long(number: int, frame: Any) -> None:
    raise TooLongError(f"more than {CPU_SECONDS} s of CPU, or {SECONDS} s")
