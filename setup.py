"""Builds the native engine with the package, where there is a C++ compiler; without one the package works in torch."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/aimfor/loss/engines/csrc")
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
# The libraries, and what each is compiled for: the first of its targets that the compiler knows. Vectors of 256 bits
# are 5 to 9 times as fast as the oldest common ones; native.py takes the widest that the processor has.
LIBRARY, WIDE_LIBRARY = "aimfor.loss.engines.libaimfor", "aimfor.loss.engines.libaimfor_v4"
TARGETS = {LIBRARY: [[]]}
if platform.machine() in ("x86_64", "AMD64"):
    TARGETS = {LIBRARY: [["-march=x86-64-v3"], []], WIDE_LIBRARY: [["-march=x86-64-v4"]]}


def compiler() -> str | None:
    """The C++ compiler: CXX, or the first of the usual ones."""
    named = os.environ.get("CXX")
    return named or next((found for found in map(shutil.which, ("g++", "c++", "clang++")) if found), None)


def sources() -> str:
    """What the sources are, in a few digits: `native.py` does not use a library that was built from others."""
    digest = hashlib.sha256()
    for file in sorted(SOURCES.glob("*.[ch]*")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def build_library(name: str, path: Path) -> str | None:
    """Compile a library of the native engine; returns what went wrong, or None."""
    command = compiler()
    if command is None:
        return "no C++ compiler was found"
    problem = ""
    with tempfile.TemporaryDirectory() as folder:
        compiled = str(Path(folder) / "native.o")
        for flags in ([*target, *threads] for target in TARGETS[name] for threads in (["-fopenmp"], [])):
            try:
                # Linked without OpenMP's library: torch has loaded one already, and two would fight for the cores.
                named = f'-DAIMFOR_SOURCES="{sources()}"'
                compile_it = [
                    *command.split(),
                    *FLAGS,
                    *flags,
                    named,
                    "-c",
                    str(SOURCES / "native.cpp"),
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
    """Makes plain shared libraries; a failure is told in one line and stops nothing."""

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"  # of no Python version

    def build_extensions(self) -> None:
        problems = {}
        for ext in self.extensions:
            path = Path(self.get_ext_fullpath(ext.name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            problems[ext.name] = build_library(ext.name, path)
        missing = None
        if problems[LIBRARY]:
            missing = f"the native engine, torch alone will do the counting: {problems[LIBRARY]}"
        elif problems.get(WIDE_LIBRARY):
            missing = f"AVX-512 in the native engine, its vectors will be narrower: {problems[WIDE_LIBRARY]}"
        if missing:
            print(f"aimfor: built without {missing}", file=sys.stderr)

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
    ext_modules=[Extension(name, [str(SOURCES / "native.cpp")], optional=True) for name in TARGETS],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": Wheel},
)
