"""The kinds of models in the program: memory, budget, kills, what is shown of them, and why they decide."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aimfor import cli
from aimfor.cli import _fit as fitting
from aimfor.model_kinds import _trees

pytest.importorskip("lightgbm")

FIT = ("--label", "churn", "--aim", "aucpr", "--steps", "20")


def table(rows=1600, seed=0):
    random = np.random.default_rng(seed)
    town = random.integers(0, 30, rows)
    age = random.normal(50, 10, rows)
    churn = random.random(rows) < 0.05 + 0.4 * (town % 4 == 0) * (age > 45)
    columns = {
        "id": [f"c{index:05d}" for index in range(rows)],
        "town": [f"town {number}" for number in town],
        "age": np.where(random.random(rows) < 0.1, np.nan, age),
        "noise": random.normal(size=rows),
        "churn": np.where(churn, "yes", "no"),
    }
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("kinds") / "rows.csv"
    table().to_csv(path, index=False)
    return path


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert not ended.value.code, said.err
        return said

    return run


def test_trees_keep_to_the_memory_limit_and_scoring_streams(command, rows, tmp_path, monkeypatch):
    real = fitting.train
    # 960 training rows have three columns for trees: 4 bytes each.
    monkeypatch.setattr(fitting, "train", lambda one, data, run, memory: real(one, data, run, 400 * 3 * 4))
    dataset = fitting.Job.dataset
    monkeypatch.setattr(fitting.Job, "dataset", lambda job, *others: dataset(replace(job, memory=10_000), *others))
    said = command("fit", rows, *FIT, "--model", "trees", "--out", tmp_path / "run")
    told = re.search(r"trees train on 400 of ([\d,]+) rows, as the memory limit.*: all (\d+) with a label", said.err)
    assert told, said.err
    known = table()
    assert int(told[2]) < (known["churn"] == "yes").sum()
    assert "trees choose their rounds on 100 of" in said.err
    command("score", tmp_path / "run", rows, "--out", tmp_path / "scored.csv")
    scored = pd.read_csv(tmp_path / "scored.csv")
    assert len(scored) == len(known)
    assert scored["score"][known["churn"] == "yes"].mean() > scored["score"][known["churn"] == "no"].mean() + 0.5


def test_the_page_and_the_facts_show_kinds_and_importance(command, rows, tmp_path):
    said = command("fit", rows, *FIT, "--out", tmp_path / "run")
    assert re.search(r"^Chosen on rows held out of training, of \d+ candidates: .*\.$", said.out, re.MULTILINE)
    assert re.search(r"^Strongest columns, by how much aucpr falls .*: (town|age) \(", said.out, re.MULTILINE)
    facts = json.loads((tmp_path / "run" / "metrics.json").read_text())
    shown = {(one["kind"], one["log_loss"]) for one in facts["kinds"]}
    assert {("trees", True), ("trees", False), ("linear", True), ("mlp", True)} <= shown
    (chosen,) = [one for one in facts["kinds"] if one["chosen"]]
    assert chosen["metric"] == facts["labels"][0]["metric"]["ours"]
    assert chosen["recall"] == facts["labels"][0]["operating"]["recall"]
    assert {column["name"] for column in facts["importance"]["columns"]} == {"town", "age", "noise"}
    assert facts["importance"]["columns"][0]["name"] in ("town", "age")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "c00001" not in page  # a value of a dropped column
    (town,) = [entry for entry in facts["importance"]["dependence"] if entry["name"] == "town"]
    assert town["values"][0] in page
    assert all("kind" in entry for entry in facts["candidates"])


def test_compare_has_log_loss_forests_whatever_competes(command, rows, monkeypatch):
    asked = ("compare", rows, *FIT, "--model", "linear", "--splits", "1")
    facts = json.loads(command(*asked, "--json").out)
    assert [one["method"] for one in facts["measured"]] == ["log-loss", "balanced log-loss", "aimfor"]
    assert [one["method"] for one in facts["beside"]] == ["log-loss, trees"]
    assert facts["beside"][0]["positives"] == facts["measured"][0]["positives"]
    assert "log-loss, trees" in command(*asked).out
    monkeypatch.setattr(_trees, "trees_available", lambda: False)
    monkeypatch.setattr("aimfor.cli._compare.trees_available", lambda: False)
    said = command(*asked, "--json")
    assert json.loads(said.out)["beside"] == []
    assert "pip install 'aimfor[boosting]'" in said.err


def test_trees_without_a_lightgbm_that_works_are_refused_in_one_sentence(rows, monkeypatch, tmp_path, capsys):
    (tmp_path / "lightgbm.py").write_text("raise OSError('libgomp.so.1: cannot open shared object file')")
    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    job = ("fit", str(rows), *FIT, "--model", "trees", "--out", str(tmp_path / "run"))
    monkeypatch.setattr(sys, "argv", ["aimfor", *job])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert said.startswith("error: boosted trees need LightGBM, which is installed but cannot be imported: libgomp")
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_budget_ends_with_the_best_so_far(command, rows, tmp_path):
    started = time.monotonic()
    said = command("fit", rows, *FIT, "--steps", "1000000", "--budget", "0.5", "--out", tmp_path / "run", "--json")
    assert time.monotonic() - started < 60
    facts = json.loads(said.out)
    assert not facts["stopped"]
    assert "the budget was over before training was done" in said.err
    assert facts["candidates"]
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "run" / fitting.WORK).exists()


def start(rows, out, *more):
    job = [sys.executable, "-m", "aimfor", "fit", str(rows), *FIT, "--model", "trees", "--out", str(out), *more]
    return subprocess.Popen(job, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)


def test_a_killed_search_goes_on_to_the_same_forests(rows, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(rows, whole)
    assert process.wait(120) == 0
    process = start(rows, killed)
    state = killed / fitting.WORK / "forests.safetensors"
    while not state.exists():
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.wait(60)
    assert not (killed / "model.json").exists()
    process = start(rows, killed, "--resume")
    assert process.wait(120) == 0
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
