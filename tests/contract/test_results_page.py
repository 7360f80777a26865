"""docs/results.md says what the files of the benchmarks say."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "results_page.py"


def test_results_page_is_what_the_files_say():
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
