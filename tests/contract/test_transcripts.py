"""The page of tasks in a terminal is what its script prints now, but for numbers."""

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    sys.modules.pop("transcripts", None)
    import transcripts  # pyright: ignore[reportMissingImports]

    return transcripts


def sections(text: str) -> list[str]:
    return text.split("\n## ")[1:]


def test_the_page_has_the_tasks_of_the_script(script):
    found = sections(script.PAGE.read_text(encoding="utf-8"))
    assert [section.split("\n")[0] for section in found] == [task.title for task in script.TASKS]
    for task, section in zip(script.TASKS, found, strict=True):
        assert [line for line in section.split("\n") if line.startswith("$ ")] == [f"$ {one}" for one in task.commands]


@pytest.mark.parametrize("number", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 2))])
def test_a_task_ends_as_the_page_says(script, number):
    before = sections(script.PAGE.read_text(encoding="utf-8"))[number]
    (after,) = sections(script.page([script.TASKS[number]]))
    assert script.masked(after).strip() == script.masked(before).strip()
