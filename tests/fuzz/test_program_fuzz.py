"""Hostile folders, data files, jobs and checkpoints end in a sentence: no traceback, no harm outside, no hang."""

import contextlib
import io
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from random import Random

import pytest
from file_watch import Watch
from fuzz_cases import CASES, PRECIOUS, Material

from aimfor import cli

WATCH = Watch()
CODES = (0, 1, 2, 3, 4, 130)
LIGHT, WHOLE = 60, 5000  # of each kind

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the watch needs Linux")


def run(*arguments: object) -> tuple[int, str]:
    """Run a command in this process: its exit code and all it printed."""
    out = io.StringIO()
    before, sys.argv = sys.argv, ["aimfor", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
            warnings.simplefilter("default")
            try:
                cli.main()
            except SystemExit as ended:
                return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1, out.getvalue()
            return 0, out.getvalue()
    finally:
        sys.argv = before


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("material")
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # what a first import writes is no harm
    yield Material(folder / "valid", lambda *arguments: run(*arguments)[0])
    sys.dont_write_bytecode = before


def check(kind: str, seed: int, material: Material, place: Path) -> None:
    """Run one case and look at all that it did."""
    root, precious = place / "case", place / "precious"
    root.mkdir()
    precious.mkdir(exist_ok=True)
    (precious / PRECIOUS).write_text("precious")
    (root / "tmp").mkdir()
    arguments = CASES[kind](material, root, Random(f"{kind} {seed}"))
    said = f"{kind} {seed}: {' '.join(arguments)}"
    before, tempfile.tempdir = tempfile.tempdir, str(root / "tmp")
    try:
        with WATCH.over(root):
            code, out = run(*arguments)
    except BaseException as error:
        raise AssertionError(f"{said}\nended in {error!r}") from error
    finally:
        tempfile.tempdir = before
    assert WATCH.wrong == [], said
    assert {path.name: path.read_text() for path in precious.iterdir()} == {PRECIOUS: "precious"}, said
    assert code in CODES, f"{said}\n{out}"
    assert "Traceback" not in out, f"{said}\n{out}"
    assert not any(char in out for char in "\x1b\x07\0"), f"{said}\n{out!r}"
    if code == 1:
        assert "error: " in out, f"{said}\n{out}"
    assert not list((root / "tmp").iterdir()), f"{said} left temporary files"
    shutil.rmtree(root)


@pytest.mark.parametrize("kind", CASES)
def test_some_hostile_cases(kind, material, tmp_path):
    for seed in range(LIGHT):
        check(kind, seed, material, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("kind", CASES)
def test_twenty_thousand_hostile_cases(kind, material, tmp_path):
    for seed in range(LIGHT, WHOLE):
        check(kind, seed, material, tmp_path)


def test_the_watch_sees_changes_outside(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside / "through")
    with WATCH.over(inside):
        (inside / "a").write_text("fine")
        (outside / "b").write_text("not")
        (inside / "link").write_text("nor this")
        (outside / "b").rename(outside / "c")
        (outside / "c").unlink()
        (outside / "d").mkdir()
    events = ["open", "open", "os.rename", "os.rename", "os.remove", "os.mkdir"]
    assert [text.split()[0] for text in WATCH.wrong] == events
