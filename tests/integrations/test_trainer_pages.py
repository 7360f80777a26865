"""The scripts of docs/trainers that need processes of their own; tests/contract/test_docs.py runs the others."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "trainers"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SCRIPTS = {
    "ray.md": ("ray", [], "batches: 16 metric: 0."),
    "mlflow.md": ("mlflow", [], "Classifier precision@recall>=0.8"),
    "fsdp2.md": ("torch", TORCHRUN, "batches: 24"),
    "label_shards.md": ("torch", TORCHRUN, "batches: 48"),
}


def script(page: Path) -> str:
    (found,) = re.findall(r"^```py\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return found


def test_every_script_is_run():
    with_scripts = {page.name for page in PAGES.glob("*.md") if "\n```py\n" in page.read_text()}
    assert with_scripts == set(SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("page", SCRIPTS)
def test_script_runs(page, tmp_path):
    package, launcher, expected = SCRIPTS[page]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    file = tmp_path / "script.py"
    file.write_text(script(PAGES / page))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    done = subprocess.run(
        [sys.executable, *launcher, str(file)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert expected in done.stdout
