"""Builds the C++ libraries with the package, where there is a compiler; without one torch and numpy do their work."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FLAGS = ["-std=c++17", "-O3", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]


class Library(NamedTuple):
    """A library to build.

    Attributes:
        source: its file.
        targets: what to compile it for; the first that the compiler knows is taken.
        without: what a package without this library lacks.
        part_of: the library without which this one is of no use.
    """

    source: Path
    targets: list[list[str]]
    without: str
    part_of: str | None = None

    @property
    def sources(self) -> str:
        """What the sources are, in a few digits: a library that was built from others is not used."""
        digest = hashlib.sha256()
        for file in sorted(self.source.parent.glob("*.[ch]*")):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()[:16]


ENGINE, FOREST = Path("src/aimfor/loss/engines/csrc/native.cpp"), Path("src/aimfor/boosting/csrc/forest.cpp")
X86 = platform.machine() in ("x86_64", "AMD64")
NATIVE = "aimfor.loss.engines.libaimfor"
# Vectors of 256 bits are 5 to 9 times as fast as the oldest common ones; the engine takes the widest that the processor
# has. The walker of forests uses none.
LIBRARIES = {
    NATIVE: Library(
        ENGINE, [["-march=x86-64-v3"], []] if X86 else [[]], "the native engine, torch alone will do the counting"
    ),
    "aimfor.boosting.libforest": Library(FOREST, [[]], "the walker of forests, numpy will score them"),
}
if X86:
    LIBRARIES["aimfor.loss.engines.libaimfor_v4"] = Library(
        ENGINE, [["-march=x86-64-v4"]], "AVX-512 in the native engine, its vectors will be narrower", part_of=NATIVE
    )


def compiler() -> str | None:
    """The C++ compiler: CXX, or the first of the usual ones."""
    named = os.environ.get("CXX")
    return named or next((found for found in map(shutil.which, ("g++", "c++", "clang++")) if found), None)


def thread_flags(command: str) -> list[list[str]]:
    """Ways to build with threads, the best first. Torch on Linux loads GCC's OpenMP, which clang's code cannot use."""
    try:
        version = subprocess.run([*command.split(), "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:  # that there is no such compiler is found, and told, where it is asked to compile
        version = ""
    return [[]] if sys.platform == "linux" and "clang" in version else [["-fopenmp"], []]


def build_library(name: str, path: Path) -> str | None:
    """Compile a library; returns what went wrong, or None."""
    command, library = compiler(), LIBRARIES[name]
    if command is None:
        return "no C++ compiler was found"
    problem = ""
    with tempfile.TemporaryDirectory() as folder:
        compiled = str(Path(folder) / "library.o")
        for flags in ([*target, *threads] for target in library.targets for threads in thread_flags(command)):
            try:
                # Linked without OpenMP's library: torch has loaded one already, and two would fight for the cores.
                named = f'-DAIMFOR_SOURCES="{library.sources}"'
                compile_it = [
                    *command.split(),
                    *FLAGS,
                    *flags,
                    named,
                    "-c",
                    str(library.source),
                    "-o",
                    compiled,
                ]
                link_it = [*command.split(), "-shared", compiled, "-o", str(path)]
                for step in (compile_it, link_it):
                    subprocess.run(step, check=True, capture_output=True, text=True)
                return None
            except (OSError, subprocess.CalledProcessError) as error:
                lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
                problem = problem or f"{command}: {lines[0] if lines else error}"
    return problem


class BuildNative(build_ext):
    """Makes plain shared libraries; a failure is told in one line for each and stops nothing."""

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"  # of no Python version

    def build_extensions(self) -> None:
        problems = {}
        for ext in self.extensions:
            path = Path(self.get_ext_fullpath(ext.name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            problems[ext.name] = build_library(ext.name, path)
        for name, problem in problems.items():
            library = LIBRARIES[name]
            if problem and not (library.part_of and problems[library.part_of]):
                print(f"aimfor: built without {library.without}: {problem}", file=sys.stderr)

    def copy_extensions_to_source(self) -> None:
        # For an editable install; what could not be built cannot be copied.
        built = [ext for ext in self.extensions if Path(self.build_lib, self.get_ext_filename(ext.name)).is_file()]
        self.extensions = built
        super().copy_extensions_to_source()


class Wheel(bdist_wheel):
    """Fits every Python: the library knows nothing of its ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        *_, system = super().get_tag()
        return "py3", "none", system


setup(
    ext_modules=[Extension(name, [str(library.source)], optional=True) for name, library in LIBRARIES.items()],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": Wheel},
)
