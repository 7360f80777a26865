"""docs/results/, README.md and docs/why.md say what the files of the benchmarks say."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def claims(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.claims")


def test_results_page_is_what_the_files_say():
    command = [sys.executable, "-m", "benchmarks.results_page", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_readme_and_why_say_what_the_files_say(claims):
    assert claims.all_faults() == []


def test_another_number_is_found(claims):
    page = (ROOT / "README.md").read_text()
    known = claims.readme_claims()
    assert len(list(claims.faults("README.md", page.replace("| 0.656 |", "| 0.657 |"), known))) == 1
    assert len(list(claims.faults("README.md", page.replace("0.257", "0.258"), known))) == 1


def test_another_number_of_averaged_forests_is_found(claims):
    page = (ROOT / "docs" / "estimators.md").read_text()
    known = claims.estimator_claims()
    assert list(claims.faults("estimators", page, known)) == []
    assert len(list(claims.faults("estimators", page.replace("| +0.004 ± 0.004 |", "| +0.014 ± 0.004 |"), known))) == 1
    assert len(list(claims.faults("estimators", page.replace("On 22 public", "On 23 public"), known))) == 1
