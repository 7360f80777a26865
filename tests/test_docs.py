"""The Python examples of README and docs run, in order, each page from a clean start, and print what they say."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run_and_print_what_they_say(page, capsys):
    examples = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    namespace: dict = {}
    checked = 0
    for number, example in enumerate(examples):
        lines = example.splitlines()
        for statement in ast.parse(example).body:
            program = ast.Module([statement], type_ignores=[])
            exec(compile(program, f"{page.name}, example {number + 1}", "exec"), namespace)
            printed = capsys.readouterr().out
            # A comment that starts with a digit is the result; others are about it.
            told = re.search(r"^print\(.*\)\s+# (\d.*)$", lines[(statement.end_lineno or 0) - 1])
            if told:
                assert printed.strip() == told[1].strip()
                checked += 1
    if page.name == "README.md":
        assert checked
