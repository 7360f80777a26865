"""A process that is killed by SIGKILL and resumed in another ends as one that was not, bit for bit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
MODULES = {"huggingface": "transformers", "lightning": "lightning", "accelerate": "accelerate"}


def run(trainer: str, mode: str, folder: Path) -> int:
    path = os.pathsep.join([str(HERE), *sys.path])
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_run.py"), trainer, mode, str(folder)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
    return done.returncode


@pytest.mark.slow  # each process imports its trainer
@pytest.mark.timeout(900)
@pytest.mark.parametrize("trainer", MODULES)
def test_killed_and_resumed_equals_uninterrupted(trainer, tmp_path):
    pytest.importorskip(MODULES[trainer], reason="the extra integration is not installed")
    assert run(trainer, "cut", tmp_path) == -signal.SIGKILL
    assert not (tmp_path / "cut.pt").exists()
    for mode in ("resumed", "whole"):
        assert run(trainer, mode, tmp_path) == 0
    found, expected = (torch.load(tmp_path / f"{mode}.pt") for mode in ("resumed", "whole"))
    assert found.keys() == expected.keys()
    assert any(name.endswith("state.thresholds") for name in expected)
    assert any(name.endswith("state.multipliers") for name in expected)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
