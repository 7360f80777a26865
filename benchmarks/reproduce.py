"""The quick form of every table: some of its cells reproduced and compared with the committed ones.

    make benchmarks                                  # all of them
    python -m benchmarks.reproduce anchors engine        # some
    python -m benchmarks.reproduce --rivals PYTHON       # with the Python of an environment that has the rivals

Exit status 1 where a number is further from the committed one than these are from each other. Tables whose data are not
there, and rivals where no environment is named, are not reproduced, which the last line says.
"""

import argparse
import os
import subprocess
import sys
import time

from benchmarks.shared.cells import RESULTS, ROOT
from benchmarks.shared.reproduced import NOTHING_MADE
from benchmarks.shared.scripts import SCRIPTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=", ".join(SCRIPTS))
    parser.add_argument("--rivals", metavar="PYTHON", help="the Python that has the rivals installed")
    arguments = parser.parse_args()
    for name in arguments.scripts:
        if name not in SCRIPTS:
            parser.error(f"SCRIPT must be one of {', '.join(SCRIPTS)}, got {name}")
    names, start = arguments.scripts or list(SCRIPTS), time.perf_counter()
    ended = {name: status(name, arguments.rivals if name == "rivals" else sys.executable) for name in names}
    skipped = [name for name, code in ended.items() if code == NOTHING_MADE]
    off = [name for name, code in ended.items() if code not in (0, NOTHING_MADE)]
    told = [
        f"{time.perf_counter() - start:.0f} s",
        f"{len(names) - len(skipped) - len(off)} of {len(names)} tables within their spread",
        *([f"off: {', '.join(off)}"] if off else []),
        *([f"not reproduced: {', '.join(skipped)}"] if skipped else []),
    ]
    print("; ".join(told))
    sys.exit(bool(off))


def status(name: str, python: str | None) -> int:
    """Run the quick form of a script: 0 where all of its numbers hold, `NOTHING_MADE` where it has none."""
    print(f"{name}:", flush=True)
    if python is None or not (RESULTS / f"{name}.csv").is_file():
        print("  skipped: " + ("--rivals names no environment" if python is None else "it has no committed cells"))
        return NOTHING_MADE
    start = time.perf_counter()
    # The environment of the rivals has no aimfor of its own.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([python, "-m", SCRIPTS[name], "--quick"], cwd=ROOT, env=environment, check=False)
    print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    return done.returncode


if __name__ == "__main__":
    main()
