"""scripts/prose.py finds sentences, files and functions that are too long, and nothing else."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("prose", ROOT / "scripts" / "prose.py")
assert SPEC is not None
assert SPEC.loader is not None
prose = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(prose)

SHORT = "This sentence is short."
LONG = " ".join(["word"] * 36) + "."
NOT_QUITE_LONG = " ".join(["word"] * 35) + "."


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "README.md").write_text(SHORT)
    return tmp_path


def found(text: str) -> list[tuple[int, int]]:
    """Line and number of words of each sentence."""
    return [(line, len(words)) for line, words in prose.sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One two. Three four five!\n", [(1, 2), (1, 3)]),
        ("One two\nthree. Four\nfive.\n", [(1, 3), (2, 2)]),
        ("- one two\n- three\n  four\n", [(1, 2), (2, 2)]),
        ("1. One two.\n2. Three.\n", [(1, 2), (2, 1)]),
        ("Intro:\n\n- item one\n", [(1, 1), (3, 2)]),
        ("# A heading of five words\n\nOne.\n", [(3, 1)]),
        ("| a | b |\n|---|---|\n| one | two |\n\nOne.\n", [(5, 1)]),
        ("One.\n\n```python\na = 1 # no prose here\n```\n\nTwo.\n", [(1, 1), (7, 1)]),
        ("One.\n\n    make demo\n    make test\n\nTwo.\n", [(1, 1), (6, 1)]),
        ("- one\n\n    still the item, as it is indented\n", [(1, 1), (3, 7)]),
        ("Use `a long command here`. Then\n`stop` now.\n", [(1, 2), (1, 3)]),
        ("See [the page of results](docs/results.md) first.\n", [(1, 6)]),
        ("![a picture of five words](x.png)\n\nOne.\n", [(3, 1)]),
        ("<!-- not\nhere -->\n<details><summary>One two.</summary>\n", [(3, 2)]),
        ("**Bold start.** The rest *follows.* And more.\n", [(1, 2), (1, 3), (1, 2)]),
        ("At precision 0.9 it holds (Eban et al. 2017, e.g. here). Next.\n", [(1, 11), (1, 1)]),
        ('He said "stop." (It did.) Well - yes.\n', [(1, 3), (1, 2), (1, 2)]),
        ("Some rivals, focal and so on ... lose.\n", [(1, 7)]),
    ],
)
def test_sentences_and_their_lines(text, expected):
    assert found(text) == expected


def test_a_sentence_of_36_words_is_named_with_its_place(repository, capsys):
    (repository / "docs" / "deep").mkdir()
    (repository / "docs" / "deep" / "page.md").write_text(f"# Page\n\n{SHORT}\n{LONG}\n{SHORT}\n")
    assert prose.main(["--root", str(repository)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1
    assert printed[0].startswith("docs/deep/page.md:4: 36 words in a sentence")


def test_a_sentence_of_35_words_passes(repository, capsys):
    (repository / "docs" / "page.md").write_text(f"{SHORT}\n{NOT_QUITE_LONG}\n{SHORT}\n")
    assert prose.main(["--root", str(repository)]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("words", "faults"), [(18, 0), (19, 1)])
def test_the_median_of_each_page_is_limited(repository, capsys, words, faults):
    (repository / "docs" / "page.md").write_text(" ".join(["word"] * words) + ".\n")
    assert prose.main(["--root", str(repository)]) == faults
    assert ("docs/page.md:1: 19 words in the median sentence" in capsys.readouterr().out) == bool(faults)


@pytest.mark.parametrize(
    ("name", "first", "lines", "faults"),
    [
        ("a.py", "", 400, 0),
        ("a.py", "", 401, 1),
        ("a.h", "", 401, 1),
        ("a.md", "", 401, 0),
        ("a.py", "# long file: one table of all aims", 401, 0),
        ("a.h", "// long file: one pass", 401, 0),
        ("a.py", "# long file:", 401, 1),
    ],
)
def test_files_of_more_than_400_lines_need_a_reason(repository, name, first, lines, faults):
    (repository / "src" / name).write_text("\n".join([first, *[""] * (lines - 1)]) + "\n")
    assert prose.main(["--code", "--root", str(repository)]) == faults


def test_a_reason_for_a_file_is_in_its_first_ten_lines(repository):
    comment = "# long file: one table of all aims"
    for place, faults in ((9, 0), (10, 1)):
        lines = [""] * 401
        lines[place] = comment
        (repository / "src" / "a.py").write_text("\n".join(lines) + "\n")
        assert prose.main(["--code", "--root", str(repository)]) == faults


@pytest.mark.parametrize(
    ("above", "definition", "lines", "faults"),
    [
        ("", "def f():", 50, 0),
        ("", "def f():", 51, 1),
        ("", "async def f():", 51, 1),
        ("# long: one step of the method", "def f():", 51, 0),
        ("", "def f():  # long: one step of the method", 51, 0),
        ("# long:", "def f():", 51, 1),
        ("# long: one step of the method\n@wraps", "def f():", 51, 0),
    ],
)
def test_functions_of_more_than_50_lines_need_a_reason(repository, capsys, above, definition, lines, faults):
    body = "\n".join(["    x = 1"] * (lines - 1))
    (repository / "src" / "a.py").write_text(f"{above}\n{definition}\n{body}\n")
    assert prose.main(["--code", "--root", str(repository)]) == faults
    assert ("src/a.py:2: 51 lines in f, at most 50" in capsys.readouterr().out) == bool(faults)


def test_each_option_checks_its_part_and_none_checks_both(repository):
    (repository / "README.md").write_text(LONG)
    root = ["--root", str(repository)]
    assert [prose.main([*options, *root]) for options in (["--prose"], ["--code"], [], ["--prose", "--code"])] == [
        1,
        0,
        1,
        1,
    ]
