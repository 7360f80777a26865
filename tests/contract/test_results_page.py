"""docs/results.md says what the files of the benchmarks say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_results_page_is_what_the_files_say():
    command = [sys.executable, "-m", "benchmarks.results_page", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
