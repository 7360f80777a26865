"""Each messy or hostile file ends as its table says: read as people mean it, or refused in one sentence."""

import json
import sys
import time

import numpy as np
import pytest
from messy_cases import AMOUNT, CASES, columns, csv, english, every, make

from aimfor import cli

FIT = ("--label", "fraud", "--aim", "f1", "--steps", "5")
SECONDS = 20  # that the slowest case may take; most take half a second


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def test_there_are_many_cases():
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", CASES)
def test_a_case_ends_as_expected(name, command, tmp_path):
    case = CASES[name]
    path = make(name, tmp_path)
    address = f"sqlite:///{path}" if path.suffix == ".db" else path
    start = time.monotonic()
    code, out, err = command("fit", address, *FIT, *case.options, "--out", tmp_path / "run")
    assert time.monotonic() - start < SECONDS
    assert code == case.code, out + err
    for text in case.says:
        assert text in out + err
    assert "Traceback" not in err
    assert not any(char in out + err for char in "\x1b\x07")
    if code:
        assert err.splitlines()[-1].startswith("error: ")
        assert not (tmp_path / "run").exists()
    else:
        assert (tmp_path / "run" / "report.html").exists()


def test_values_of_dropped_columns_appear_nowhere(command, tmp_path):
    (tmp_path / "a.csv").write_bytes(csv(columns(mail=[f"person{index}@example.org" for index in range(300)])))
    assert command("fit", tmp_path / "a.csv", *FIT, "--out", tmp_path / "run")[0] == 0
    for path in (tmp_path / "run").iterdir():
        assert b"example.org" not in path.read_bytes(), path.name


def test_a_table_with_marks_gives_the_scores_of_its_clean_twin(command, tmp_path):
    values = {"clean": list(AMOUNT), "marks": [english(one) for one in AMOUNT]}
    measured = {}
    for name, cells in values.items():
        blank = "" if name == "clean" else "?"
        (tmp_path / f"{name}.csv").write_bytes(csv(columns(amount=every(20, blank, cells))))
        options = ("--label", "fraud", "--aim", "f1", "--steps", "200", "--json", "--out", tmp_path / name)
        code, out, _ = command("fit", tmp_path / f"{name}.csv", *options)
        assert code == 0
        measured[name] = json.loads(out)["labels"][0]["metric"]["ours"]
    assert measured["marks"] == pytest.approx(measured["clean"], abs=0.02)
    assert np.isfinite(measured["marks"])
