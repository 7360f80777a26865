"""The Python examples of README and docs run, in order, each page from a clean start."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, capsys):
    examples = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    namespace: dict = {}
    for number, example in enumerate(examples):
        exec(compile(example, f"{page.name}, example {number + 1}", "exec"), namespace)
    if page.name == "README.md":
        assert examples
