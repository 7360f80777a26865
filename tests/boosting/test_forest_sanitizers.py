"""The walker of forests under AddressSanitizer and UBSan, on the cases of test_forest, flipped bits among them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aimfor.boosting import _library

ROOT = Path(__file__).resolve().parents[2]
CASES = "lightgbm or float32 or flipped or category or threads"

# The tests of another file, with this library in place of the installed one.
RUNNER = """
import sys
from pathlib import Path
import pytest
from aimfor.boosting import _library
_library.LIBRARY = Path(sys.argv[1])
assert _library.problem() is None, _library.problem()
sys.exit(pytest.main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_the_walker_under_sanitizers(tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ here")
    source, library = _library.SOURCES / "forest.cpp", tmp_path / "libforest.so"
    assert source.is_file()
    flags = ["-std=c++17", "-O1", "-g", "-fPIC", "-shared", f'-DAIMFOR_SOURCES="{_library._sources()}"']
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    build = [compiler, *flags, *checks, str(source), "-o", str(library)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    if built.returncode and "sanit" in built.stderr:
        pytest.skip(f"no sanitizers here: {built.stderr.splitlines()[:1]}")
    assert built.returncode == 0, built.stderr
    # The C++ library too: torch throws exceptions, which the sanitizer looks for when the process starts.
    runtimes = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    command = [sys.executable, "-c", RUNNER, str(library), "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [str(ROOT / "tests/boosting/test_forest.py"), "-k", CASES]
    options = {"LD_PRELOAD": " ".join(runtimes), "ASAN_OPTIONS": "detect_leaks=0"}  # Python's own leaks
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | options, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[:3000]
    assert " passed" in done.stdout
