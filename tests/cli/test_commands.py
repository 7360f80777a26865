"""The program from end to end: fit, score, evaluate, compare, report, export, and what goes wrong."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification

import aimfor
from aimfor import cli, metrics
from aimfor.cli import _fit as fitting
from aimfor.cli import _run as running
from aimfor.report import _files as stories

FIT = ("--label", "fraud", "--aim", "recall@precision>=0.7", "--model", "linear", "--steps", "60")


class Ended:
    """How a command ended: exit code, what it printed, what it said on the error stream."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments) -> Ended:
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return Ended(ended.value.code or 0, said.out, said.err)

    return run


def table(rows: int = 1500, seed: int = 0) -> pd.DataFrame:
    X, y = make_classification(
        rows, 5, n_informative=3, n_redundant=0, weights=[0.85], class_sep=1.2, random_state=seed
    )
    frame = pd.DataFrame(X, columns=[f"x{index}" for index in range(5)])
    random = np.random.default_rng(seed)
    frame["kind"] = np.where(random.random(rows) < 0.5, np.where(y == 1, "web", "shop"), "card")
    frame.loc[random.random(rows) < 0.05, "x1"] = np.nan
    frame["id"] = [f"t{index}" for index in range(rows)]
    frame["fraud"] = np.where(y == 1, "yes", "no")
    return frame


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Training and new rows in several formats, and a model of them."""
    folder = tmp_path_factory.mktemp("program")
    frame = table()
    frame[:1200].to_csv(folder / "train.csv", index=False)
    frame[:1200].to_parquet(folder / "train.parquet")
    frame[1200:].to_csv(folder / "new.csv", index=False)
    job = ["fit", str(folder / "train.csv"), *FIT, "--out", str(folder / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "aimfor", *job], check=True, env=environment, capture_output=True)
    return folder


def test_fit_writes_the_folder_and_says_what_it_understood(command, files, tmp_path):
    ended = command("fit", files / "train.csv", *FIT, "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "5 numeric, 1 categorical, 1 dropped: id (all unique)" in ended.out
    names = {"model.safetensors", "model.json", "metrics.json", "history.csv", "report.html"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == names
    facts = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert facts["aim"] == "recall@precision>=0.7"
    assert facts["labels"][0]["rows"] == 240
    # The same command gives the same model, wherever it runs.
    for name in ("model.safetensors", "history.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (files / "run" / name).read_bytes()


def test_score_gives_every_row_in_order_and_equals_the_loaded_estimator(command, files, tmp_path):
    assert command("score", files / "run", files / "new.csv", "--out", tmp_path / "scored.csv").code == 0
    scored = pd.read_csv(tmp_path / "scored.csv")
    new = pd.read_csv(files / "new.csv")
    model = aimfor.load(files / "run")
    raw = model[-1].raw_scores(model[:-1].transform(new))[:, 0]
    assert np.array_equal(scored["score"].to_numpy(np.float32), raw.astype(np.float32))
    assert scored["decision"].tolist() == model.predict(new).tolist()
    assert set(scored["decision"]) == {"yes", "no"}
    for suffix, read in ((".parquet", pd.read_parquet), (".feather", pd.read_feather)):
        assert command("score", files / "run", files / "new.csv", "--out", tmp_path / f"scored{suffix}").code == 0
        again = read(tmp_path / f"scored{suffix}")
        assert again["decision"].tolist() == scored["decision"].tolist()


def test_evaluate_tells_exact_metrics_and_whether_the_promise_held(command, files):
    ended = command("evaluate", files / "run", files / "new.csv", "--json")
    assert ended.code == 0, ended.err
    measured = ended.json["labels"][0]
    new = pd.read_csv(files / "new.csv")
    model = aimfor.load(files / "run")
    labels, decided = (new["fraud"] == "yes").to_numpy(), model.predict(new) == "yes"
    assert measured["operating"]["tp"] == (labels & decided).sum()
    assert measured["operating"]["fp"] == (~labels & decided).sum()
    scores = model.decision_function(new)
    assert measured["metric"]["ours"] == pytest.approx(metrics.recall_at_precision(labels, scores, 0.7).value)
    strict = command("evaluate", files / "run", files / "new.csv", "--strict")
    assert strict.code == (0 if measured["verdict"] == "met" else 3)
    assert "asked was at least 70 %" in strict.out


def test_evaluate_reads_rows_of_one_class_with_the_classes_of_the_model(command, files, tmp_path):
    new = pd.read_csv(files / "new.csv")
    new[new["fraud"] == "no"].to_csv(tmp_path / "no.csv", index=False)
    ended = command("evaluate", files / "run", tmp_path / "no.csv", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["labels"][0]["positives"] == 0
    assert ended.json["labels"][0]["metric"]["ours"] is None


def test_compare_has_three_methods_on_the_same_rows(command, files):
    ended = command("compare", files / "train.csv", *FIT, "--splits", "2", "--json")
    assert ended.code == 0, ended.err
    measured = ended.json["measured"]
    assert [(one["split"], one["method"]) for one in measured] == [
        (split, method) for split in (0, 1) for method in ("log-loss", "balanced log-loss", "aimfor")
    ]
    assert len({one["positives"] for one in measured if one["split"] == 0}) == 1
    told = command("compare", files / "train.csv", *FIT, "--splits", "2")
    assert "standard error over splits" in told.out


def test_compare_shows_the_kinds_side_by_side(files, command):
    options = ("--label", "fraud", "--aim", "f1", "--steps", "20", "--splits", "1", "--json")
    ended = command("compare", files / "train.csv", *options)
    assert ended.code == 0
    methods = {one["method"] for one in json.loads(ended.out)["measured"]}
    kinds = {"log-loss, trees", "log-loss, linear", "log-loss, mlp"}
    assert methods == {"log-loss", "balanced log-loss", "aimfor", *kinds}


def test_report_makes_the_same_page_again(command, files, tmp_path):
    shutil.copytree(files / "run", tmp_path / "run")
    page = tmp_path / "run" / "report.html"
    before = page.read_text()
    page.unlink()
    assert command("report", tmp_path / "run").code == 0
    assert page.read_text() == before


@pytest.mark.parametrize("damage", ["{", "[]", '{"aim": 1}', '{"aim": "f1", "labels": [1]}'])
def test_report_refuses_damaged_facts_in_one_sentence(command, files, tmp_path, damage):
    shutil.copytree(files / "run", tmp_path / "run")
    (tmp_path / "run" / "metrics.json").write_text(damage)
    ended = command("report", tmp_path / "run")
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1


def test_a_table_split_across_shards_of_another_format_gives_the_same_model(command, files, tmp_path):
    frame = pd.read_parquet(files / "train.parquet")
    (tmp_path / "shards").mkdir()
    for index, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_parquet(tmp_path / "shards" / f"part-{index}.parquet")
    assert command("fit", tmp_path / "shards", *FIT, "--out", tmp_path / "run").code == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (files / "run" / "model.safetensors").read_bytes()


def test_a_fit_from_disk_equals_a_fit_from_memory(command, files, tmp_path, monkeypatch):
    real = fitting.Job.dataset if hasattr(fitting, "Job") else None
    stored = []

    def tiny(self, folder, ranks):
        found = real(dataclasses.replace(self, memory=10_000), folder, ranks)
        stored.append(type(found.train.features).__name__)
        return found

    monkeypatch.setattr(fitting.Job, "dataset", tiny)
    assert command("fit", files / "train.csv", *FIT, "--out", tmp_path / "run").code == 0
    assert stored == ["StoredRows"]
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (files / "run" / "model.safetensors").read_bytes()
    assert not (tmp_path / "run" / fitting.WORK).exists()


def test_several_labels(command, tmp_path):
    frame = table(900)
    frame["fraud"] = (frame["fraud"] == "yes").astype(int)
    frame["large"] = (frame["x0"] + frame["x2"].to_numpy() > 1).astype(int)
    frame.to_csv(tmp_path / "train.csv", index=False)
    options = ("--label", "fraud", "--label", "large", "--aim", "f1", "--model", "linear", "--steps", "40")
    ended = command("fit", tmp_path / "train.csv", *options, "--out", tmp_path / "run", "--json")
    assert ended.code == 0, ended.err
    assert [one["name"] for one in ended.json["labels"]] == ["fraud", "large"]
    assert command("score", tmp_path / "run", tmp_path / "train.csv", "--out", tmp_path / "scored.csv").code == 0
    scored = pd.read_csv(tmp_path / "scored.csv")
    assert list(scored) == ["score fraud", "decision fraud", "score large", "decision large"]
    assert command("evaluate", tmp_path / "run", tmp_path / "train.csv").code == 0


def test_a_model_without_an_operating_point_scores_and_leaves_the_decision_empty(command, tmp_path):
    generator = np.random.default_rng(0)
    # Two scores at most, each with many negatives.
    frame = pd.DataFrame(
        {"x": generator.integers(0, 2, 600), "fraud": generator.choice(["no", "yes"], 600, p=[0.9, 0.1])}
    )
    frame.to_csv(tmp_path / "train.csv", index=False)
    options = ("--label", "fraud", "--aim", "recall@precision>=0.99", "--model", "linear", "--steps", "20")
    assert command("fit", tmp_path / "train.csv", *options, "--out", tmp_path / "run").code == 0
    assert aimfor.load(tmp_path / "run")[-1].threshold_ is None
    assert command("score", tmp_path / "run", tmp_path / "train.csv", "--out", tmp_path / "scored.csv").code == 0
    scored = pd.read_csv(tmp_path / "scored.csv")
    assert scored["decision"].isna().all()
    assert np.isfinite(scored["score"]).all()
    assert command("evaluate", tmp_path / "run", tmp_path / "train.csv").code == 0


def test_libsvm_and_npz(command, tmp_path):
    from sklearn.datasets import dump_svmlight_file

    X, y = make_classification(600, 6, weights=[0.8], random_state=0)
    dump_svmlight_file(np.where(np.abs(X) > 0.3, X, 0), y, str(tmp_path / "rows.svm"))
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    for name in ("rows.svm", "rows.npz"):
        ended = command(
            "fit",
            tmp_path / name,
            "--aim",
            "f1",
            "--model",
            "linear",
            "--steps",
            "30",
            "--out",
            tmp_path / "run",
            "--json",
        )
        assert ended.code == 0, ended.err
        assert command("score", tmp_path / "run", tmp_path / name, "--out", tmp_path / "scored.csv").code == 0
        assert len(pd.read_csv(tmp_path / "scored.csv")) == 600


def test_the_positive_class_and_the_rows_that_measure_are_named(command, files, tmp_path):
    flipped = command("fit", files / "train.csv", *FIT, "--positive", "no", "--out", tmp_path / "run", "--json")
    assert flipped.json["labels"][0]["positive"] == "no"
    assert flipped.json["labels"][0]["on"] == "rows the model never saw"
    told = command("fit", files / "train.csv", *FIT, "--test-fraction", "0", "--out", tmp_path / "run")
    assert "(fraud = yes)" in told.out
    assert "the validation rows, which also chose" in told.out
    assert "never saw" not in told.out
    told = command("evaluate", files / "run", files / "train.csv")
    assert "the rows it was fitted on" in told.out
    told = command("evaluate", files / "run", files / "new.csv")
    assert "rows of files it was not fitted on" in told.out


@pytest.mark.parametrize(
    ("labels", "classes"),
    [([False, True], [False, True]), ([-1, 1], [-1, 1]), ([0.5, 1.5], [0.5, 1.5]), (["a", "b"], ["a", "b"])],
)
def test_loaded_models_predict_the_classes_as_they_were(command, tmp_path, labels, classes):
    frame = table(300)
    frame["fraud"] = np.where(frame["fraud"] == "yes", labels[1], labels[0])
    frame.to_parquet(tmp_path / "train.parquet")
    assert (
        command(
            "fit", tmp_path / "train.parquet", *FIT[:2], "--model", "linear", "--steps", "10", "--out", tmp_path / "run"
        ).code
        == 0
    )
    model = aimfor.load(tmp_path / "run")
    assert model.classes_.tolist() == classes
    assert set(model.predict(frame)) <= set(classes)
    ended = command("evaluate", tmp_path / "run", tmp_path / "train.parquet", "--json")
    assert ended.json["labels"][0]["positives"] == (frame["fraud"] == labels[1]).sum()


def test_weights_count_in_evaluate_too(command, tmp_path):
    frame = table(600).assign(often=np.where(np.arange(600) % 3, 1.0, 4.0))
    frame.to_csv(tmp_path / "train.csv", index=False)
    assert command("fit", tmp_path / "train.csv", *FIT, "--weight", "often", "--out", tmp_path / "run").code == 0
    counted = command("evaluate", tmp_path / "run", tmp_path / "train.csv", "--json").json["labels"][0]["operating"]
    assert sum(counted[name] for name in ("tp", "fp", "fn", "tn")) == pytest.approx(frame["often"].sum())
    told = command("evaluate", tmp_path / "run", tmp_path / "train.csv", "--cost-fp", "1").out
    assert f"Their weight is {frame['often'].sum():,.0f}, " in told
    assert "  weight                 alarm    no alarm\n" in told
    assert "Per 1,000 of weight: " in told
    assert "rows: " not in told
    ((share, count),) = json.loads((tmp_path / "run" / "model.json").read_text())["data"]["alerts"]
    assert count == 120, "new rows count the same each, so these must"
    assert share * count == pytest.approx(round(share * count))
    frame.drop(columns="often").to_csv(tmp_path / "without.csv", index=False)
    ended = command("evaluate", tmp_path / "run", tmp_path / "without.csv")
    assert ended.code == 0
    assert "no column 'often' of weights" in ended.err


def test_each_of_three_classes_is_called_by_its_name(command, tmp_path):
    frame = table(600).drop(columns="fraud")
    frame["level"] = np.select([frame["x0"] > 1, frame["x0"] > -1], ["high", "mid"], "low")
    frame.to_csv(tmp_path / "train.csv", index=False)
    options = ("--label", "level", "--aim", "f1", "--model", "linear", "--steps", "20")
    ended = command("fit", tmp_path / "train.csv", *options, "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    for name in ("high", "mid", "low"):
        assert f" of them positive ({name})." in ended.out
    assert "= " not in ended.out.replace(">= ", "")
    assert "given" not in ended.out
    ended = command("score", tmp_path / "run", tmp_path / "train.csv", "--out", tmp_path / "scored.csv")
    assert "decision: the class of the highest score, whatever the thresholds" in ended.out
    scored = pd.read_csv(tmp_path / "scored.csv")
    highest = scored.filter(like="score ").idxmax(axis=1)
    assert (highest == "score " + scored["decision"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "linear"), "error: --hidden is for --model mlp or auto, got 'linear'"),
        (("--model", "trees"), "error: --hidden is for --model mlp or auto, got 'trees'"),
        (("--surrogate", "hinge"), "error: --hidden with --surrogate hinge needs --model mlp: auto means linear there"),
        (("--solver", "lp"), "error: --hidden is for --model mlp, and --solver lp fits a linear one: leave it out"),
    ],
)
def test_hidden_layers_are_refused_for_models_without_any(command, files, options, message):
    ended = command("fit", files / "train.csv", "--label", "fraud", "--aim", "f1", "--hidden", "3", *options)
    assert (ended.code, ended.err.strip()) == (1, message)


def test_the_help_says_which_rates_the_loss_takes_where_the_program_takes_others(command):
    told = " ".join(command("fit", "--help").out.split())
    assert "By default `aimfor.Loss` takes exact ones, except over areas. [default: surrogate]" in told
    assert {aimfor.Loss(aim, num_labels=1).constraint for aim in ("recall@precision>=0.9", "f1")} == {"exact"}
    assert aimfor.Loss("aucpr", num_labels=1).constraint == "surrogate"


def test_weights_may_have_any_size(command, tmp_path):
    models = []
    for size in (1.0, 1e-300, 1e300):
        table(400).assign(w=size * (1 + np.arange(400) % 2)).to_csv(tmp_path / "train.csv", index=False)
        assert command("fit", tmp_path / "train.csv", *FIT, "--weight", "w", "--out", tmp_path / "run").code == 0
        models.append(aimfor.load(tmp_path / "run")[-1].coef_)
    np.testing.assert_allclose(models[1], models[0], rtol=1e-4)
    np.testing.assert_allclose(models[2], models[0], rtol=1e-4)


def test_by_time_there_is_one_split(command, files, tmp_path):
    frame = pd.read_csv(files / "train.csv")
    frame.assign(when=np.arange(len(frame))).to_csv(tmp_path / "train.csv", index=False)
    ended = command("compare", tmp_path / "train.csv", *FIT, "--time", "when", "--json")
    assert {one["split"] for one in ended.json["measured"]} == {0}


def test_row_numbers_as_pandas_writes_them_are_left_alone(command, files, tmp_path):
    pd.read_csv(files / "train.csv").to_csv(tmp_path / "train.csv")
    assert command("fit", tmp_path / "train.csv", *FIT, "--out", tmp_path / "run").code == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (files / "run" / "model.safetensors").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="a closed pipe is another error there")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_pipe_ends_it_quietly(files, stream):
    job = ["report", str(files / "run")] if stream == "stdout" else ["report", str(files / "nowhere")]
    read, write = os.pipe()
    os.close(read)
    out, err = (write if name == stream else subprocess.PIPE for name in ("stdout", "stderr"))
    ended = subprocess.run([sys.executable, "-m", "aimfor", *job], stdout=out, stderr=err, timeout=60)
    os.close(write)
    assert (ended.returncode, ended.stdout or b"", ended.stderr or b"") == (141, b"", b"")


# Interruptions


def start(files, out, *more):
    job = ["fit", str(files / "train.csv"), *FIT, "--steps", "400", "--model", "mlp", "--out", str(out), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "aimfor", *job], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_ctrl_c_stops_with_a_usable_model_and_resume_goes_on(files, tmp_path, command):
    process = start(files, tmp_path / "run", "--steps", "1000000", "--patience", "1000000")
    wait_for(tmp_path / "run" / fitting.WORK / "log-loss.safetensors", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"the page to look at" in out
    assert b"stopped by hand" in err
    assert command("score", tmp_path / "run", files / "new.csv", "--out", tmp_path / "scored.csv").code == 0
    assert (tmp_path / "run" / fitting.WORK).exists()


def wait_for(path, process, seconds=60):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, (out, err)


def resumed_after_kills(files, out, moments):
    """The tensors of a run that was killed at these moments, in seconds after each start, and then left to end."""
    for moment in moments:
        process = start(files, out, "--resume")
        time.sleep(moment)
        process.kill()
        process.communicate()
    finish(start(files, out, "--resume"))
    return (out / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(files):
    """The tensors of a run that was never interrupted."""
    finish(start(files, files / "whole"))
    return (files / "whole" / "model.safetensors").read_bytes()


def test_killed_and_resumed_gives_the_same_model(files, whole, tmp_path):
    assert resumed_after_kills(files, tmp_path / "run", (3.0, 4.0)) == whole


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_twenty_random_moments_and_resumed_gives_the_same_model(files, whole, tmp_path):
    for index, moment in enumerate(np.random.default_rng().uniform(0.5, 10, size=20)):
        assert resumed_after_kills(files, tmp_path / str(index), [moment]) == whole, moment


def test_resume_refuses_other_options_and_other_data(command, files, tmp_path, monkeypatch):
    def die(*_, **__):
        raise KeyboardInterrupt

    shutil.copy(files / "train.csv", tmp_path / "train.csv")
    with monkeypatch.context() as patch:
        patch.setattr(running.Run, "on_batch_end", die)
        assert command("fit", tmp_path / "train.csv", *FIT, "--out", tmp_path / "run").code != 0
    ended = command("fit", tmp_path / "train.csv", *FIT, "--seed", "5", "--out", tmp_path / "run", "--resume")
    assert ended.code == 1
    assert "other options (--seed): repeat them" in ended.err
    others = ("--aim", "f1", "--label", "fraud", "--hidden", "8", "--na", "-1", "--by", "kind", "--memory", "9")
    ended = command("fit", "--resume", "--out", tmp_path / "run", *others)
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "other options (--aim, --memory, --na, --by, --hidden): leave them out" in ended.err
    with (tmp_path / "train.csv").open("a") as file:
        file.write((files / "new.csv").read_text().splitlines()[1] + "\n")
    ended = command("fit", "--resume", "--out", tmp_path / "run")
    assert ended.code == 1
    assert "data changed" in ended.err
    shutil.copy(files / "train.csv", tmp_path / "train.csv")
    job = tmp_path / "run" / fitting.WORK / "job.json"
    before = job.read_text()
    for foreign in (
        "{}",
        '{"job": 1}',
        before.replace('"seed": 0', '"seed": "0"'),
        before.replace('"steps"', '"stops"'),
    ):
        job.write_text(foreign)
        ended = command("fit", "--resume", "--out", tmp_path / "run")
        assert ended.code == 1
        assert "does not hold a job" in ended.err
    job.write_text(before)
    assert command("fit", "--resume", "--out", tmp_path / "run", "--label", "fraud", "--seed", "0").code == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (files / "run" / "model.safetensors").read_bytes()
    ended = command("fit", "--resume", "--out", tmp_path / "nowhere")
    assert ended.code == 1
    assert not (tmp_path / "nowhere").exists()


# What goes wrong


def change(**columns):
    return lambda frame: frame.assign(**columns)


BAD_DATA = {
    "missing label": (lambda frame: frame.drop(columns="fraud"), FIT, "fraud"),
    "one class": (change(fraud="no"), FIT, "two classes are needed"),
    "few positives": (
        lambda frame: frame.assign(fraud=np.where(np.arange(len(frame)) == 7, "yes", "no")),
        FIT,
        "positive",
    ),
    "confidence": (
        lambda frame: frame[:120],
        (*FIT, "--aim", "recall@precision>=0.99", "--confidence", "0.99"),
        "confidence 0.99 needs more validation rows",
    ),
    "misspelt aim": (lambda frame: frame, ("--label", "fraud", "--aim", "recal@precision>=0.9"), "recall@precision"),
    "unknown column": (lambda frame: frame, (*FIT, "--drop", "x9"), "x9"),
    "bad model": (lambda frame: frame, (*FIT, "--model", "forest"), "model"),
    "bad device": (lambda frame: frame, (*FIT, "--device", "nowhere"), "device must be"),
    "search for an area": (lambda frame: frame, (*FIT, "--aim", "aucpr", "--solver", "search"), "aim must be"),
    "bad decay": (lambda frame: frame, (*FIT, "--weight-decay", "much"), "weight-decay"),
    "bad rate": (lambda frame: frame, (*FIT, "--learning-rate", "fast"), "learning-rate must be a number"),
    "bad batch": (lambda frame: frame, (*FIT, "--batch-size", "2.5"), "batch-size must be a whole number"),
    "no batch": (lambda frame: frame, (*FIT, "--batch-size", "0"), "--batch-size must be at least 1, got 0"),
    "no budget": (lambda frame: frame, (*FIT, "--budget", "0"), "--budget must be above 0, got 0.0"),
    "no decay": (lambda frame: frame, (*FIT, "--weight-decay", "-1"), "--weight-decay must be at least 0, got -1.0"),
    "too precise": (
        lambda frame: frame,
        (*FIT, "--aim", "recall@precision>=1.5"),
        "--aim: the least precision must be above 0 and below 1, got 1.5",
    ),
    "no constraint": (
        lambda frame: frame,
        (*FIT, "--aim", "f1", "--confidence", "0.9"),
        "--confidence needs an aim with a constraint",
    ),
    "nothing held out": (
        lambda frame: frame,
        (*FIT, "--validation-fraction", "0", "--confidence", "0.9"),
        "hold some back with --validation-fraction, or leave out --confidence",
    ),
    "another solver": (
        lambda frame: frame,
        (*FIT, "--solver", "lp", "--surrogate", "ramp"),
        "--surrogate for --solver lp must be one of 'auto', 'hinge', got 'ramp'",
    ),
    "only an id": (
        lambda frame: frame[["id", "fraud"]].assign(same=1),
        FIT,
        "all were left out: 'id' (all unique), 'same' (constant); add columns",
    ),
    "only the label": (lambda frame: frame[["fraud"]], FIT, "the data hold no others than those that options name"),
    "no label asked": (lambda frame: frame, ("--aim", "f1"), "label"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_input_is_told_in_one_sentence_and_leaves_nothing(command, tmp_path, case):
    spoil, options, said = BAD_DATA[case]
    spoil(table(400)).to_csv(tmp_path / "train.csv", index=False)
    ended = command("fit", tmp_path / "train.csv", *options, "--out", tmp_path / "run")
    assert ended.code == 1
    assert said in ended.err
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["train.docx", "empty.csv", "ragged.csv", "absent.csv", "cut.parquet"])
def test_bad_files_are_told_in_one_sentence(command, files, tmp_path, name):
    (tmp_path / "train.docx").write_text("a,b\n1,2\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "ragged.csv").write_text("a,fraud\n1,0\n1,0,3\n")
    (tmp_path / "cut.parquet").write_bytes((files / "train.parquet").read_bytes()[:5000])
    ended = command("fit", tmp_path / name, *FIT, "--out", tmp_path / "run")
    assert ended.code == 1
    assert name in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_other_separators_and_encodings_are_found_out(command, files, tmp_path):
    frame = pd.read_csv(files / "train.csv")
    for sep, encoding in ((";", "utf-8"), ("\t", "utf-16"), ("|", "utf-8-sig")):
        frame.to_csv(tmp_path / "train.csv", index=False, sep=sep, encoding=encoding)
        assert command("fit", tmp_path / "train.csv", *FIT, "--out", tmp_path / "run").code == 0
        model = (tmp_path / "run" / "model.safetensors").read_bytes()
        assert model == (files / "run" / "model.safetensors").read_bytes()


def test_scoring_states_what_is_missing_and_takes_unseen_categories(command, files, tmp_path):
    new = pd.read_csv(files / "new.csv")
    new.drop(columns="x2").to_csv(tmp_path / "lacking.csv", index=False)
    ended = command("score", files / "run", tmp_path / "lacking.csv", "--out", tmp_path / "scored.csv")
    assert ended.code == 1
    assert "'x2'" in ended.err
    assert not (tmp_path / "scored.csv").exists()
    new.assign(kind="never seen").to_csv(tmp_path / "unseen.csv", index=False)
    assert command("score", files / "run", tmp_path / "unseen.csv", "--out", tmp_path / "scored.csv").code == 0
    assert command("score", files / "run", files / "new.csv", "--out", tmp_path / "scored.xls").code == 1
    ended = command("score", files / "run", files / "new.csv", "--threshold", "nan", "--out", tmp_path / "nan.csv")
    assert (ended.code, ended.err) == (1, "error: --threshold must be a finite number, got nan\n")


def test_a_failed_fit_leaves_the_earlier_model(command, files, tmp_path, monkeypatch):
    shutil.copytree(files / "run", tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("aimfor.cli._checkpoint.write_bytes", full, raising=False)
        patch.setattr(running.Checkpoint, "save", full)
        ended = command("fit", files / "train.csv", *FIT, "--seed", "3", "--out", tmp_path / "run")
    assert ended.code == 1
    assert "No space left" in ended.err
    left = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert left == before


@pytest.mark.parametrize("place", range(4))
def test_a_disk_that_fills_while_the_model_is_written_leaves_all_files_of_the_earlier_one(
    command, files, tmp_path, monkeypatch, place
):
    shutil.copytree(files / "run", tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    real, written = stories.write_text, []

    def full(path, text):
        written.append(path)
        if len(written) > place:
            raise OSError(28, "No space left on device", str(path))
        real(path, text)

    def never(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stories, "write_text", full)
    if place == 3:
        monkeypatch.setattr(fitting, "save_model", never)
    ended = command("fit", files / "train.csv", *FIT, "--seed", "3", "--out", tmp_path / "run")
    assert ended.code == 1
    assert "No space left" in ended.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before


def test_a_folder_in_which_another_run_works_is_refused(command, files, tmp_path):
    process = start(files, tmp_path / "run", "--steps", "1000000", "--patience", "1000000")
    wait_for(tmp_path / "run" / fitting.WORK / "job.json", process)
    ended = command("fit", files / "train.csv", *FIT, "--out", tmp_path / "run")
    process.kill()
    process.communicate()
    assert ended.code == 1
    assert "another run is writing to" in ended.err
    assert (tmp_path / "run" / fitting.WORK / "job.json").exists()


def test_outputs_do_not_replace_what_is_read(command, files, tmp_path):
    shutil.copytree(files / "run", tmp_path / "run")
    shutil.copy(files / "new.csv", tmp_path / "new.csv")
    for out in (tmp_path / "new.csv", tmp_path / "run" / "history.csv"):
        before = out.read_bytes()
        ended = command("score", tmp_path / "run", tmp_path / "new.csv", "--out", out)
        assert ended.code == 1
        assert "would replace what is read" in ended.err
        assert out.read_bytes() == before
    assert command("export", tmp_path / "run", "--out", tmp_path / "run" / "model.json").code == 1
    aimfor.load(tmp_path / "run")


def test_a_folder_that_cannot_be_written_is_told(command, files, tmp_path):
    (tmp_path / "run").write_text("a file where the folder should be")
    ended = command("fit", files / "train.csv", *FIT, "--out", tmp_path / "run")
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert (tmp_path / "run").read_text() == "a file where the folder should be"
