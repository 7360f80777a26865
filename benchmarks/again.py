"""The quick form of every table: some of its cells made again and held to the committed ones, in under half an hour.

    make benchmarks                                  # all of them
    python benchmarks/again.py anchors engine        # some
    python benchmarks/again.py --rivals PYTHON       # with the Python of an environment that has the rivals

Exit status 1 where a number is further from the committed one than these are from each other. Rivals are skipped where
no environment is named.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from common import RESULTS
from results_page import SCRIPTS

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=", ".join(SCRIPTS))
    parser.add_argument("--rivals", metavar="PYTHON", help="the Python that has the rivals installed")
    arguments = parser.parse_args()
    for name in arguments.scripts:
        if name not in SCRIPTS:
            parser.error(f"SCRIPT must be one of {', '.join(SCRIPTS)}, got {name}")
    off, start = [], time.perf_counter()
    for name in arguments.scripts or SCRIPTS:
        if not (RESULTS / f"{name}.csv").is_file():
            print(f"{name}: skipped, it has no committed cells", flush=True)
        elif name == "rivals" and arguments.rivals is None:
            print("rivals: skipped, --rivals names no environment", flush=True)
        elif not holds(name, arguments.rivals if name == "rivals" else sys.executable):
            off.append(name)
    print(f"{time.perf_counter() - start:.0f} s; {'off: ' + ', '.join(off) if off else 'all within their spread'}")
    sys.exit(bool(off))


def holds(name: str, python: str) -> bool:
    """Run the quick form of a script; whether all of its numbers hold."""
    print(f"{name}:", flush=True)
    start = time.perf_counter()
    # The environment of the rivals has no aimfor of its own.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")}
    done = subprocess.run([python, str(HERE / f"{name}.py"), "--quick"], env=environment, check=False)
    print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
