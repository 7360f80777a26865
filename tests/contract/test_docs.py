"""The examples of README and docs run, in order, each page from a clean start, and print what they say."""

import ast
import re
import shlex
import sys
from pathlib import Path

import pytest

from aimfor import cli

ROOT = Path(__file__).resolve().parent.parent.parent
MADE = ("_build", "gallery")  # by `make docs`
PAGES = [ROOT / "README.md"] + [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if page.relative_to(ROOT / "docs").parts[0] not in MADE
]

# Pages of trainers run where the trainer is installed.
TRAINERS = {
    "huggingface.md": "transformers",
    "lightning.md": "torchmetrics",
    "accelerate.md": "accelerate",
    "skorch.md": "skorch",
}


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")  # the pages stay short
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec")  # of Lightning, about itself
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run_and_print_what_they_say(page, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if page.parent.name == "trainers" and page.name in TRAINERS:
        pytest.importorskip(TRAINERS[page.name], reason="the extra integration is not installed")
    examples = re.findall(r"^```(python|console)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    namespace: dict = {}
    checked = 0
    for number, (kind, example) in enumerate(examples):
        if kind == "console":
            run_commands(example, monkeypatch)
            continue
        lines = example.splitlines()
        for statement in ast.parse(example).body:
            program = ast.Module([statement], type_ignores=[])
            capsys.readouterr()
            exec(compile(program, f"{page.name}, example {number + 1}", "exec"), namespace)
            printed = capsys.readouterr().out
            # A comment that starts with a digit or a bracket is the result; others are about it.
            told = re.search(r"^print\(.*\)\s+# ([\d(].*)$", lines[(statement.end_lineno or 0) - 1])
            if told:
                assert printed.strip() == told[1].strip()
                checked += 1
    if page.name == "README.md":
        assert checked


def run_commands(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [shlex.split(line.removeprefix("$ ")) for line in example.splitlines() if line.startswith("$ ")]
    assert commands, example
    for command in commands:
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, command
