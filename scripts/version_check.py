"""Check the versions that the package supports: `make versions`.

1. Every Python from 3.10 on that is installed here compiles all files. Those without torch stop there.
2. The lowest version of every dependency that pyproject.toml allows goes into one environment, where the tests run.
   Torch is the exception: its pinned CPU build is used, as older ones cannot be installed everywhere.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
EXTRAS = ("sklearn", "cli", "report")  # what most users have; the others have tests that are skipped without them
TESTS = ("tests/metrics", "tests/aims", "tests/operating_points", "tests/loss", "tests/estimator", "tests/tables")


def interpreters() -> dict[str, str]:
    """The Pythons that can be found, by version: on the path, or beside others that pyenv keeps."""
    found = {}
    for version in PYTHONS:
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        path = shutil.which(f"python{version}") or (str(kept[-1]) if kept else None)
        if path and subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            found[version] = path
    return found


def lowest() -> list[str]:
    """Each dependency at its lowest allowed version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    pairs = (re.match(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", line) for line in asked if not line.startswith("aimfor"))
    return [f"{pair[1]}=={pair[2]}" for pair in pairs if pair and pair[1] != "torch"]


def main() -> None:
    for version, python in interpreters().items():
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
            subprocess.run([python, "-m", "compileall", "-q", "src", "tests"], cwd=ROOT, env=environment, check=True)
        print(f"Python {version}: all files compile", flush=True)
    pins = lowest()
    print("lowest:", ", ".join(pins), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "torch==2.13.0", *pins]
        tools = ["pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "pandas<3"]
        subprocess.run([*install, *tools, "-e", "."], cwd=ROOT, check=True)
        # What old versions warn about is not ours to mend.
        tests = [python, "-m", "pytest", "-q", "-n", "2", "-W", "default", *TESTS]
        subprocess.run(tests, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)


if __name__ == "__main__":
    main()
