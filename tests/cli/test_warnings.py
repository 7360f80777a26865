"""What a careful colleague would say of leaks, copies, dates after the event and drift; and nothing without cause."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification

from aimfor import cli

FIT = ("--label", "y", "--aim", "f1", "--steps", "5", "--json")


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, json.loads(said.out) if said.out else {}, said.err

    return run


def rows(count: int = 1000, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["town"] = random.choice(["Bonn", "Rome", "Oslo"], count)
    frame["y"] = np.where(x.sum(1) + random.normal(size=count) > 1.8, "yes", "no")
    return frame


def doubled(frame):
    return pd.concat([frame[:800], frame[:200]])


def with_dates(frame, days):
    start = pd.Timestamp("2023-01-01") + pd.to_timedelta(np.arange(len(frame)), unit="h")
    return frame.assign(opened=start, closed=start + pd.to_timedelta(days, unit="D"))


RANDOM = np.random.default_rng(5)
RARE = np.where(RANDOM.random(4000) < 0.02, "yes", "no")
GROUP = RANDOM.integers(0, 40, 1000)
DAYS = np.random.default_rng(0).integers(1, 30, 1000)
FITS = {
    "nothing": (rows(), (), []),
    "copy of the label": (rows().assign(z=lambda f: f["y"].map({"yes": 3, "no": 7})), (), ["leak"]),
    "nearly the label": (
        rows().assign(z=lambda f: (f["y"] == "yes") + np.random.default_rng(0).normal(0, 0.12, len(f))),
        (),
        ["leak"],
    ),
    "missing gives it away": (rows().assign(z=lambda f: np.where(f["y"] == "yes", f["a"], np.nan)), (), ["leak"]),
    "category gives it away": (
        rows().assign(z=lambda f: np.where(f["y"] == "yes", "charged back", "fine")),
        (),
        ["leak"],
    ),
    "a strong feature": (
        rows().assign(z=lambda f: (f["y"] == "yes") + np.random.default_rng(0).normal(0, 0.5, 1000)),
        (),
        [],
    ),
    "sets most of the others apart": (
        rows(4000).assign(y=RARE, z=np.where(RARE == "yes", 1.0, RANDOM.random(4000) < 0.015)),
        (),
        [],
    ),
    "copies": (doubled(rows()), (), ["duplicates"]),
    "copies of wholes, four times": (pd.concat([rows(300)] * 4), (), ["duplicates"]),
    "columns that belong together": (
        rows().assign(a=GROUP, b=GROUP * 2, c=GROUP % 3, d=GROUP + 1.5, town=np.char.add("t", GROUP.astype(str))),
        (),
        [],
    ),
    "equal by chance": (rows().assign(a=1, b=2, c=lambda f: f["c"] > 0), (), []),
    "closed after opened": (with_dates(rows(), DAYS), ("--time", "opened"), ["after the event"]),
    "closed before opened": (with_dates(rows(), -DAYS), ("--time", "opened"), []),
    "nearly numeric": (rows().assign(z=lambda f: ["x", *f["a"].astype(str)[1:]]), (), ["nearly numeric"]),
}


@pytest.mark.parametrize("case", FITS)
def test_warnings_of_a_fit(case, command, tmp_path):
    frame, options, kinds = FITS[case]
    frame.to_csv(tmp_path / "a.csv", index=False)
    code, out, err = command("fit", tmp_path / "a.csv", *FIT, *options, "--out", tmp_path / "run")
    assert code == 0, err
    assert [one["kind"] for one in out["warnings"]] == kinds
    assert err.count("warning: ") == len(kinds)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["data"]["warnings"] == out["warnings"]


def test_copies_are_in_one_part(tmp_path):
    from aimfor.tables import open_table, prepare

    frame = doubled(rows())
    frame.to_csv(tmp_path / "a.csv", index=False)
    split = prepare(open_table([tmp_path / "a.csv"]), labels=["y"], folder=tmp_path).split
    assert split[:200].tolist() == split[800:].tolist()


DRIFTS = {
    "nothing": (lambda f: f, False),
    "all missing": (lambda f: f.assign(a=np.nan), True),
    "often missing": (lambda f: f.assign(a=np.where(np.arange(len(f)) % 2, f["a"], np.nan)), True),
    "another unit": (lambda f: f.assign(a=f["a"] * 1000), True),
    "new categories": (lambda f: f.assign(town="Lima"), True),
    "other alerts": (lambda f: f.assign(a=f["a"] + 2.5, b=f["b"] + 2.5), True),
    "a little more": (lambda f: f.assign(a=f["a"] + 0.1), False),
    "few rows": (lambda f: f[:30].assign(a=np.nan), False),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drift")
    rows().to_csv(folder / "a.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["aimfor", "fit", str(folder / "a.csv"), *FIT, "--out", str(folder / "run")])
        with pytest.raises(SystemExit):
            cli.main()
    return folder / "run"


@pytest.mark.parametrize("case", DRIFTS)
def test_drift(case, command, model, tmp_path):
    change, drifts = DRIFTS[case]
    change(rows(seed=1)).to_csv(tmp_path / "new.csv", index=False)
    for name, more in (("score", ("--out", tmp_path / "s.csv")), ("evaluate", ())):
        code, out, err = command(name, model, tmp_path / "new.csv", *more, "--strict", "--json")
        assert code == (4 if drifts else 0), err
        assert any(one["kind"] == "drift" for one in out["warnings"]) == drifts


def test_rows_that_the_model_was_fitted_on_are_noticed_in_another_file(command, model, tmp_path):
    rows().sample(frac=1, random_state=0).to_parquet(tmp_path / "same.parquet")
    _, out, err = command("evaluate", model, tmp_path / "same.parquet", "--json")
    assert [one["kind"] for one in out["warnings"]] == ["fitted on"]
    assert "the numbers flatter it" in err
    assert out["labels"][0]["on"] == "rows that it was partly fitted on"


FITTED = {
    "a twentieth": (lambda: rows().sample(frac=0.05, random_state=0), True),
    "a fifth": (lambda: rows().sample(frac=0.2, random_state=0), True),
    "all": (lambda: rows().sample(frac=1, random_state=0), True),
    "fresh": (lambda: rows(seed=1), False),
    "half of them": (lambda: pd.concat([rows().sample(100, random_state=0), rows(100, seed=1)]), True),
    "a few copies": (lambda: pd.concat([rows().sample(10, random_state=0), rows(seed=1)]), False),
}


@pytest.mark.parametrize("case", FITTED)
def test_the_share_of_the_evaluated_rows_counts(case, command, model, tmp_path):
    make, known = FITTED[case]
    make().to_csv(tmp_path / "part.csv", index=False)
    code, out, err = command("evaluate", model, tmp_path / "part.csv", "--json")
    assert code == 0, err
    assert ([one["kind"] for one in out["warnings"]] == ["fitted on"]) == known
    assert ("the model was fitted on about" in err) == known


def test_a_folder_without_the_limit_of_its_hashes_still_knows_its_rows():
    from aimfor.cli._score import _fitted_text

    hashes = np.arange(100, dtype=np.uint64)
    data = {"row_hashes": [f"{code:016x}" for code in range(50)]}
    assert "about 100% of the rows that the model was fitted on are among these" in (_fitted_text(data, hashes) or "")
    assert _fitted_text(data, hashes + np.uint64(50)) is None
    for broken in ({"row_hash_limit": "x", "row_chance": 0.0}, {"row_hash_limit": "f" * 16, "row_chance": "0"}):
        assert _fitted_text(data | broken, hashes + np.uint64(50)) is None


@pytest.mark.parametrize("name", ["breast cancer", "digits", "wine", "made"])
def test_there_is_no_false_alarm_on_public_tables(name, command, tmp_path):
    if name == "made":
        X, y = make_classification(3000, 20, weights=[0.9], random_state=0)
    else:
        load = {"breast cancer": load_breast_cancer, "digits": load_digits, "wine": load_wine}[name]
        X, y = load(return_X_y=True)
        y = y == (8 if name == "digits" else 0)
    frame = pd.DataFrame(X, columns=[f"x{index}" for index in range(X.shape[1])]).assign(y=np.where(y, "yes", "no"))
    frame.to_csv(tmp_path / "a.csv", index=False)
    code, out, _ = command("fit", tmp_path / "a.csv", *FIT, "--out", tmp_path / "run")
    assert (code, out["warnings"]) == (0, [])
