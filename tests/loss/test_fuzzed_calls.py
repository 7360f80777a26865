"""Drawn calls end in a result equal to the reference or in a Python exception; a crash ends only their own process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("first", "count"), [(0, 1000), pytest.param(1000, 9000, marks=pytest.mark.slow)], ids=["thousand", "more"]
)
def test_fuzzed_calls(first, count):
    path = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, str(HERE / "fuzzed_calls.py"), str(first), str(count)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    equal, refused = map(int, re.findall(r"(\d+) (?:results|exceptions)", done.stdout))
    assert equal + refused == count
    assert equal > 0.4 * count
    assert refused > 0.2 * count
