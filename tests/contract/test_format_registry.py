"""A file format is one record: registered in one place, it works in every command, or is refused in one sentence."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest

from aimfor import cli
from aimfor._base.errors import DataError
from aimfor.tables import _formats, open_table, open_writer
from aimfor.tables._formats import FORMATS, Format, format_of, register


def facts(path, options):
    rows = json.loads(path.read_text())
    return pa.Table.from_pylist(rows).schema, len(rows)


def pieces(path, options, names):
    yield from pa.Table.from_pylist(json.loads(path.read_text())).select(list(names)).to_batches()


class Writer:
    def __init__(self, file, schema):
        self.file, self.rows = file, []

    def write_table(self, table):
        self.rows += table.to_pylist()

    def close(self):
        self.file.write(json.dumps(self.rows).encode())


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(_formats, "FORMATS", FORMATS.copy())
    return _formats.FORMATS


@pytest.fixture
def rows(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=300)
    entries = [{"x": float(a), "y": int(b)} for a, b in zip(x, x + random.normal(size=300) > 1, strict=True)]
    (tmp_path / "rows.fake").write_text(json.dumps(entries))
    return tmp_path / "rows.fake"


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, capsys.readouterr().err

    return run


def test_a_format_registered_once_is_fitted_scored_and_written(registry, rows, command, tmp_path):
    register(Format("Fake", (".fake",), facts, pieces, writer=Writer))
    fit = ("fit", rows, "--label", "y", "--aim", "f1", "--steps", "10", "--out", tmp_path / "run")
    assert command(*fit) == (0, "")
    assert command("score", tmp_path / "run", rows, "--out", tmp_path / "scored.fake")[0] == 0
    assert len(json.loads((tmp_path / "scored.fake").read_text())) == 300
    assert command("evaluate", tmp_path / "run", rows)[0] == 0


def test_a_format_that_holds_a_matrix_needs_one_reader(registry, tmp_path):
    register(Format("Fake", (".fake",), matrix=lambda path: (np.eye(4, dtype=np.float32), np.arange(4) % 2)))
    (tmp_path / "rows.fake").write_text("")
    assert open_table([tmp_path / "rows.fake"]).features.shape == (4, 4)


def test_what_no_record_knows_is_refused_in_one_sentence(registry, rows, command, tmp_path):
    code, said = command("fit", rows, "--label", "y", "--out", tmp_path / "run")
    assert code == 1
    assert said.count("\n") == 1
    assert "rows.fake: files of this kind cannot be read; names must end in .csv" in said
    register(Format("Fake", (".fake",), facts, pieces))
    with pytest.raises(DataError, match=r"scored.fake: files of this kind cannot be written"):
        open_writer(tmp_path / "scored.fake").__enter__()
    with pytest.raises(DataError, match=r"rows.fake.gz: files of this kind cannot be read"):
        format_of(tmp_path / "rows.fake.gz")


def test_a_record_that_cannot_work_is_refused_when_it_is_registered(registry):
    with pytest.raises(ValueError, match=r"\.csv belongs to CSV, so Fake cannot have it"):
        register(Format("Fake", (".csv",), facts, pieces))
    for readers in ({}, {"facts": facts}, {"pieces": pieces}, {"facts": facts, "pieces": pieces, "matrix": facts}):
        with pytest.raises(ValueError, match="the format Fake needs facts and pieces, or matrix alone"):
            register(Format("Fake", (".fake",), **readers))
    for suffix in ("fake", ".FAKE", ".gz"):
        with pytest.raises(ValueError, match="small letters behind a dot"):
            register(Format("Fake", (suffix,), facts, pieces))
    assert ".fake" not in registry
