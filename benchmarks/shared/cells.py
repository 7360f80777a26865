"""The finished cells of a benchmark, kept as a CSV file with the command, the versions and the machine."""

import csv
import os
import platform
import shlex
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import aimfor

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


class Cells:
    """Finished cells of a benchmark, kept as rows of a CSV file; a run that was stopped goes on where it was.

    Args:
        path: the file; None to keep nothing (short runs).
    """

    def __init__(self, path: Path | None):
        self.path = path
        self.rows: list[dict[str, str]] = []
        if path is not None and path.is_file():
            with path.open(newline="") as file:
                self.rows = list(csv.DictReader(file))

    def find(self, **where: object) -> list[dict[str, str]]:
        """The finished cells whose columns have these values."""
        return [row for row in self.rows if all(row[name] == _text(value) for name, value in where.items())]

    def add(self, **cell: object) -> None:
        """Keep a finished cell, with the command and the versions that made it."""
        row = {name: _text(value) for name, value in (cell | provenance()).items()}
        self._write([row], "a" if self.rows else "w")
        self.rows.append(row)

    def drop(self, **where: object) -> None:
        """Forget cells, so that they are run again."""
        dropped = self.find(**where)
        self.rows = [row for row in self.rows if row not in dropped]
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        self._write(self.rows, "w")

    def _write(self, rows: list[dict[str, str]], mode: str) -> None:
        if self.path is None or not rows:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open(mode, newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@lru_cache(maxsize=1)
def provenance() -> dict[str, object]:
    """The command that runs, the versions it runs with, of aimfor the commit too, and the machine."""
    script = Path(sys.argv[0]).resolve()
    module = ".".join(script.relative_to(ROOT).with_suffix("").parts) if script.is_relative_to(ROOT) else script.name
    command = shlex.join(["python", "-m", module, *sys.argv[1:]])
    return {
        "command": command,
        "python": platform.python_version(),
        **{package: _version(package) for package in ("torch", "numpy", "scikit-learn")},
        "aimfor": f"{_version('aimfor')} {_commit()}".rstrip(),
        "machine": f"{platform.machine()} {os.cpu_count()} cores, {_processor()}",
    }


def _commit() -> str:
    """The last commit of the package that is imported; empty outside git."""
    asked = ["git", "-C", str(Path(aimfor.__file__).parent), "log", "-1", "--abbrev=8", "--format=%h", "--", "."]
    try:
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _processor() -> str:
    """Its name as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "source"
