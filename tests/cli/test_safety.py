"""Files outside of the folders that a command is given stay as they are, whatever links lie in its way."""

import os
import sys

import numpy as np
import pandas as pd
import pytest

from aimfor import cli
from aimfor.tables import open_writer

pytestmark = pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="this system cannot refuse links")


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return ended.value.code or 0, said.out + said.err

    return run


@pytest.fixture
def rows(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=400)
    frame = pd.DataFrame({"x": x, "y": np.where(x + random.normal(size=400) > 1.3, "fraud", "ok")})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


@pytest.fixture
def precious(tmp_path):
    """A folder of someone else, and a check that it is as it was."""
    folder = tmp_path / "precious"
    folder.mkdir()
    names = ("thesis.txt", "lock", "job.json", "log-loss.safetensors", "train.rows")
    for name in names:
        (folder / name).write_text(f"precious {name}")
    yield folder
    assert {path.name: path.read_text() for path in folder.iterdir()} == {name: f"precious {name}" for name in names}


FIT = ("--label", "y", "--aim", "f1", "--model", "linear", "--steps", "10")


def test_a_work_folder_that_is_a_link_is_refused(command, rows, precious, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".work").symlink_to(precious, target_is_directory=True)
    for more in ((), ("--resume",)):
        code, said = command("fit", rows, *FIT, "--out", tmp_path / "run", *more)
        assert code == 1
        assert ".work is a link or a file, not a folder" in said


@pytest.mark.parametrize("name", ["lock", "job.json", "log-loss.safetensors", "train.rows"])
def test_a_link_inside_the_work_folder_is_refused(command, rows, precious, tmp_path, name):
    work = tmp_path / "run" / ".work"
    work.mkdir(parents=True)
    (work / name).symlink_to(precious / name)
    code, said = command("fit", rows, *FIT, "--out", tmp_path / "run", "--memory", "1")
    assert code == 1
    assert f"holds '{name}', which aimfor did not write" in said


def test_files_of_others_in_the_work_folder_stay(command, rows, tmp_path):
    work = tmp_path / "run" / ".work"
    work.mkdir(parents=True)
    (work / "notes.txt").write_text("mine")
    code, said = command("fit", rows, *FIT, "--out", tmp_path / "run")
    assert code == 1
    assert "holds 'notes.txt', which aimfor did not write" in said
    assert (work / "notes.txt").read_text() == "mine"


def test_a_folder_of_others_is_refused(command, rows, precious, tmp_path):
    code, said = command("fit", rows, *FIT, "--out", precious)
    assert code == 1
    assert "precious holds files but no model" in said
    (tmp_path / "empty").mkdir()
    assert command("fit", rows, *FIT, "--out", tmp_path / "empty")[0] == 0
    assert command("fit", rows, *FIT, "--out", tmp_path / "empty")[0] == 0  # it holds a model of ours now


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "metrics.json", "history.csv", "report.html"])
@pytest.mark.parametrize("waiting", [False, True])
def test_files_of_a_run_that_are_links_are_replaced_and_not_followed(command, rows, precious, tmp_path, name, waiting):
    assert command("fit", rows, *FIT, "--out", tmp_path / "run")[0] == 0
    path = tmp_path / "run" / (f".{name}.part" if waiting else name)
    path.unlink(missing_ok=True)
    path.symlink_to(precious / "thesis.txt")
    if name == "model.json" and not waiting:  # what says that the folder is ours
        (tmp_path / "run" / ".work").mkdir()
    assert command("fit", rows, *FIT, "--out", tmp_path / "run")[0] == 0
    assert waiting or not path.is_symlink()


def test_scores_are_written_through_no_link(command, rows, precious, tmp_path, monkeypatch):
    assert command("fit", rows, *FIT, "--out", tmp_path / "run")[0] == 0
    out = tmp_path / "scored.csv"
    out.symlink_to(precious / "thesis.txt")
    (tmp_path / f".scored.csv.{os.getpid()}").symlink_to(precious / "lock")
    assert command("score", tmp_path / "run", rows, "--out", out)[0] == 0
    assert not out.is_symlink()
    # Even whoever guesses the name of the file in the making cannot have it written through a link.
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    (tmp_path / ".scored.csv.guessed").symlink_to(precious / "lock")
    code, said = command("score", tmp_path / "run", rows, "--out", out)
    assert (code, "File exists" in said) == (1, True)


def test_a_hostile_job_is_data(command, tmp_path):
    work = tmp_path / "run" / ".work"
    work.mkdir(parents=True)
    for job in ('{"job": {"__class__": "os.system"}}', "[1]", "{" * 10_000, '{"job": ' + "9" * 10_000 + "}"):
        (work / "job.json").write_text(job)
        code, said = command("fit", "--resume", "--out", tmp_path / "run")
        assert code == 1
        assert said.startswith("error: ")


def test_cells_that_a_spreadsheet_would_run_are_marked(tmp_path):
    import pyarrow as pa

    cells = ["=cmd()", "+1+2", "-1", "@x", "\t=1", "plain", "-2.5e3", None]
    with open_writer(tmp_path / "a.csv") as write:
        write(pa.table({"=name": cells, "n": range(8)}))
    found = pd.read_csv(tmp_path / "a.csv", keep_default_na=False)
    assert list(found) == ["'=name", "n"]
    assert found["'=name"].tolist() == ["'=cmd()", "'+1+2", "-1", "'@x", "'\t=1", "plain", "-2.5e3", ""]
    with open_writer(tmp_path / "a.parquet") as write:
        write(pa.table({"=name": cells}))
    assert pd.read_parquet(tmp_path / "a.parquet")["=name"].tolist()[:2] == ["=cmd()", "+1+2"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--model", "mlp", *(("--hidden", "100000") * 3)), 1, "not enough memory for this model"),
        (("--hidden", "1000000000"), 1, "--hidden must be at most 100,000"),
        (("--restarts", "100000000"), 1, "--restarts must be at most 1,000"),
    ],
)
def test_absurd_options_are_answered_in_a_sentence(command, rows, tmp_path, options, code, words):
    ended, said = command("fit", rows, "--label", "y", "--aim", "f1", *options, "--out", tmp_path / "run")
    assert (ended, words in said) == (code, True)
