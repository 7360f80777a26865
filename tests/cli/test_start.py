"""A command starts quickly, because it imports only what it needs."""

import resource
import subprocess
import sys

import pytest

from aimfor import cli

# What takes long to import, and which commands need none of it.
NEVER_TO_SCORE = (
    "sklearn.linear_model",
    "sklearn.model_selection",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "sklearn.metrics",
    "scipy.io",
    "lightgbm",
    "rich",
    "onnx",
    "matplotlib",
    "openpyxl",
    "aimfor.solvers._solve",
    "aimfor.cli._fit",
)
NEVER_TO_HELP = (*NEVER_TO_SCORE, "torch", "numpy", "pyarrow", "sklearn", "scipy", "pandas")
PROGRAM = """
import sys
from aimfor.cli import main
try:
    main()
finally:
    print("modules:", *sys.modules, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    lines = [f"{index % 13},{index % 7},{int(index % 13 > 9)}" for index in range(300)]
    (folder / "rows.csv").write_text("\n".join(["a,b,y", *lines]))
    arguments = ["fit", str(folder / "rows.csv"), "--label", "y", "--model", "linear", "--steps", "5"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["aimfor", *arguments, "--out", str(folder / "run")])
        with pytest.raises(SystemExit):
            cli.main()
    return folder


COMMANDS = {
    "help": (("--help",), NEVER_TO_HELP),
    "help of a command": (("fit", "--help"), NEVER_TO_HELP),
    "score": (("score", "run", "rows.csv"), NEVER_TO_SCORE),
    "evaluate": (("evaluate", "run", "rows.csv"), NEVER_TO_SCORE),
    "report": (("report", "run"), NEVER_TO_SCORE),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_only_what_it_needs(name, folder):
    arguments, never = COMMANDS[name]
    ended = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    loaded = set(ended.stderr.split("modules:")[1].split())
    assert "aimfor.cli._commands" in loaded
    assert loaded & set(never) == set()


def cpu_seconds(*command: str, cwd=None) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], cwd=cwd, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("name", ["score", "evaluate"])
def test_a_command_takes_little_more_than_torch_to_start(name, folder):
    """Two seconds where torch takes one. On a busy machine both take longer, so that their ratio is what counts."""
    ratios = []
    for _ in range(3):
        torch = cpu_seconds("-c", "import torch")
        ratios.append(cpu_seconds("-m", "aimfor", *COMMANDS[name][0], cwd=folder) / torch)
        if ratios[-1] < 2:
            return
    pytest.fail(f"ratios to torch: {ratios}")
