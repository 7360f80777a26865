"""What the program promises about a threshold, and on which condition: claims, groups, times, bounds on the page."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aimfor import cli

FIT = ("--label", "fraud", "--model", "linear", "--steps", "40")


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def table(rows=2000, seed=0, size=1):
    """Rows of customers; those of one customer share their label and a part of their feature."""
    random = np.random.default_rng(seed)
    customer = np.arange(rows) // size
    fraud = (random.random(rows) < 0.25)[customer]
    x = 2.5 * fraud + (random.normal(size=rows)[customer] + random.normal(size=rows)) / np.sqrt(2)
    names = [f"c{number}" for number in customer]
    noise = random.normal(size=rows)
    return pd.DataFrame({"x": x, "noise": noise, "customer": names, "day": np.arange(rows), "fraud": fraud})


def metrics():
    return json.loads(Path("run/metrics.json").read_text(encoding="utf-8"))


def test_the_claim_is_in_terminal_files_and_page(command):
    table().to_csv("rows.csv", index=False)
    code, out, err = command("fit", "rows.csv", *FIT, "--aim", "recall@precision>=0.8", "--drop", "customer")
    assert code == 0, err
    (label,) = metrics()["labels"]
    assert 0.5 <= label["claimable"] <= 1
    assert label["claim"] in out
    assert "the constraint can be claimed for new rows with at most" in label["claim"]
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert label["claim"] in page
    assert "Claimable confidence" in page


def test_a_claim_below_one_half_is_a_warning(command):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=400), "fraud": random.random(400) < 0.3})
    frame.to_csv("rows.csv", index=False)
    code, out, err = command("fit", "rows.csv", *FIT, "--aim", "recall@precision>=0.5")
    assert code == 0, err
    (label,) = metrics()["labels"]
    assert label["claimable"] < 0.5
    assert "more likely broken than kept" in out
    assert "can be claimed at its threshold with at most" in err


def test_the_slider_has_bounds_for_all_thresholds(command):
    table().to_csv("rows.csv", index=False)
    assert command("fit", "rows.csv", *FIT, "--aim", "recall@precision>=0.8", "--drop", "customer")[0] == 0
    (label,) = metrics()["labels"]
    band, curve = label["band"], label["curve"]
    assert band["confidence"] == 0.95
    for rate in ("precision", "recall"):
        low, high = (np.array(ends, dtype=float) for ends in band[rate])
        assert low.shape == high.shape == (len(curve["thresholds"]),)
        known = ~np.isnan(low)
        assert known.sum() >= len(low) - 1
        assert (low[known] <= high[known]).all()
    tp, fp = np.array(curve["tp"]), np.array(curve["fp"])
    flagged = tp + fp > 0
    assert (np.array(band["precision"][0], dtype=float)[flagged] <= (tp / np.maximum(tp + fp, 1))[flagged]).all()
    # The page asks for the same place of curve and band.
    assert "label.band" in Path("run/report.html").read_text(encoding="utf-8")


def test_a_confidence_with_groups_counts_groups_and_says_so(command):
    table(size=4).to_csv("rows.csv", index=False)
    table(rows=800, seed=1, size=4).to_csv("new.csv", index=False)
    asked = ("--aim", "precision@recall>=0.7", "--group", "customer", "--confidence", "0.9")
    code, out, err = command("fit", "rows.csv", *FIT, *asked)
    assert code == 0, err
    assert "This is about a row of a new customer" in out
    assert "groups of rows that chose the threshold" in out
    (label,) = metrics()["labels"]
    assert label["operating"]["intervals"] is None
    assert label["band"] is None
    assert "a row of a new customer" in Path("run/report.html").read_text(encoding="utf-8")
    code, out, err = command("evaluate", "run", "new.csv", "--json")
    assert code == 0, err
    assert json.loads(out)["labels"][0]["operating"]["intervals"] is None


def test_too_few_groups_for_a_confidence_are_refused(command):
    table(rows=1000, size=20).to_csv("rows.csv", index=False)
    asked = ("--aim", "precision@recall>=0.9", "--group", "customer", "--confidence", "0.95")
    code, _, err = command("fit", "rows.csv", *FIT, *asked)
    assert code == 1
    assert "groups, each counted as one row" in err


def test_a_time_split_says_what_it_assumes(command):
    table().to_csv("rows.csv", index=False)
    asked = ("--aim", "precision@recall>=0.7", "--time", "day", "--confidence", "0.9", "--drop", "customer")
    code, out, err = command("fit", "rows.csv", *FIT, *asked)
    assert code == 0, err
    assert "this assumes that tomorrow is like the held-out days" in out
    assert "tomorrow is like the held-out days" in Path("run/report.html").read_text(encoding="utf-8")
