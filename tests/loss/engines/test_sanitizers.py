"""The native library under AddressSanitizer and UBSan, on the cases of test_engines."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aimfor.loss.engines import _native_library as native

ROOT = Path(__file__).resolve().parent.parent.parent.parent
CASES = "odd_shapes or extremes or weights_and_masks or forms_of_labels or other_types or views or any_shape or threads"
CASES += " or sparse_labels_made_of_anything"

# The tests of another file, with this library in place of the installed one.
RUNNER = """
import sys
from pathlib import Path
import pytest
from aimfor.loss.engines import _native_library as native
native.LIBRARY = native.WIDE_LIBRARY = Path(sys.argv[1])
assert native.problem() is None, native.problem()
sys.exit(pytest.main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_the_library_under_sanitizers(target, tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ here")
    if target == "x86-64-v4" and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("no AVX-512 here")
    library = tmp_path / "_native.so"
    flags = ["-std=c++17", "-O1", "-g", f"-march={target}", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    source = str(ROOT / "src/aimfor/loss/engines/csrc/native.cpp")
    checks += [f'-DAIMFOR_SOURCES="{native._sources()}"']  # without which it would not be loaded
    build = [compiler, *flags, *checks, "-fopenmp", "-fPIC", "-shared", source, "-o", str(library)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"no sanitizers here: {built.stderr.splitlines()[:1]}")
    # The C++ library too: torch throws exceptions, which the sanitizer looks for when the process starts.
    runtimes = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    command = [sys.executable, "-c", RUNNER, str(library), "-q", "-s", "-p", "no:cacheprovider"]
    command += [str(ROOT / "tests/loss/engines/test_engines.py"), "-k", f"native and ({CASES}) or number_of_threads"]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own; what the library allocates it frees by its destructors
        "OMP_NUM_THREADS": "2",
    }
    environment.pop("AIMFOR_ENGINE", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[:3000]
    assert " passed" in done.stdout
