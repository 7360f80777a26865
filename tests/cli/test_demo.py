"""The command line: what it says about itself and about what is missing, and a demo of few steps."""

import sys
import warnings
from importlib.metadata import version

import numpy as np
import pytest

import aimfor
from aimfor import cli
from aimfor.cli import _demo as demo


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the command with these arguments: its exit code or message, and what it printed on either stream."""

    def run(*arguments: str):
        monkeypatch.setattr(sys, "argv", ["aimfor", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out + printed.err

    return run


@pytest.fixture
def short(monkeypatch):
    """A demo of few steps: enough that some split has a threshold of the precision asked for."""
    for name, value in (("STEPS_OF_LINES", 3), ("STEPS_OF_DIGITS", 300), ("NUM_SPLITS", 2)):
        monkeypatch.setattr(demo, name, value)


def test_without_its_extra_it_says_how_to_install_it(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)  # an import of it is now a ModuleNotFoundError
    monkeypatch.delitem(sys.modules, "aimfor.cli._commands", raising=False)
    assert command() == ("the aimfor command needs its extra: pip install 'aimfor[cli]'", "")


def test_version(command):
    assert command("--version") == (0, f"aimfor {version('aimfor')}\n")


@pytest.mark.parametrize("arguments", [("--help",), ()])
def test_help_names_the_commands(command, arguments):
    code, told = command(*arguments)
    assert code == (0 if arguments else 2)
    assert "Usage: aimfor" in told
    assert "--version" in told
    assert "demo" in told


def test_help_of_the_demo_names_its_options(command):
    code, told = command("demo", "--help")
    assert code == 0
    assert "--out" in told
    assert "--seed" in told


def test_a_short_demo_prints_its_tables_and_writes_its_picture(command, short, tmp_path):
    code, told = command("demo", "--out", str(tmp_path / "new" / "folder"), "--seed", "1")
    assert code == 0
    for word in ("Figure 1", "best there is", "digits", "log-loss", "aimfor", "difference", "Picture:"):
        assert word in told
    picture = (tmp_path / "new" / "folder" / "aimfor.png").read_bytes()
    assert picture.startswith(b"\x89PNG")


@pytest.mark.parametrize(("module", "name"), [("matplotlib", "matplotlib"), ("sklearn", "scikit-learn")])
def test_the_demo_names_a_missing_package(command, monkeypatch, tmp_path, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    message = f"the demo needs {name}: pip install 'aimfor[cli,report,sklearn]'"
    assert command("demo", "--out", str(tmp_path / "out")) == (1, f"error: {message}\n")
    assert not (tmp_path / "out").exists()


def test_the_demo_refuses_a_file_as_its_folder(command, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, told = command("demo", "--out", str(tmp_path / "file"))
    assert code == 1
    assert "File exists" in told
    assert (tmp_path / "file").read_text() == "mine"


def test_splits_of_the_digits_are_disjoint_and_chosen_without_the_held_out_rows(short):
    labels = np.repeat([1, 0], [40, 360])
    parts = demo._split(labels, np.random.default_rng(0))
    for label, counts in ((1, [20, 10, 10]), (0, [180, 90, 90])):
        assert np.bincount(parts[labels == label]).tolist() == counts
    rng = np.random.default_rng(1)
    good = labels + 0.1 * rng.random(400)
    # Right where it is chosen and wrong where it is judged, against the other way round.
    flattering = np.where(parts == demo.HELD_OUT, -good, good).astype(np.float32)
    modest = np.where(parts == demo.HELD_OUT, good, -good).astype(np.float32)
    chosen = demo._choose(labels, np.stack([modest, flattering], axis=1), parts)
    np.testing.assert_array_equal(chosen.scores, flattering[parts == demo.HELD_OUT])


def test_columns_that_cannot_meet_the_constraint_are_no_matter_for_a_warning(short):
    def infeasible(scores, labels, *, mask):
        warnings.warn("looks infeasible", aimfor.InfeasibleConstraintWarning, stacklevel=2)
        return demo.log_loss(scores, labels, mask=mask)

    assert len(demo.rank_digits(infeasible, seed=0, advance=lambda: None)) == 2
