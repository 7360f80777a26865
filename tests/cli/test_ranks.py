"""`torchrun -m aimfor fit`: several processes fit the model of one."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import safetensors.torch

from program_rows import rows_of
from storage_server import free_port

FIT = ("--label", "fraud", "--positive", "yes", "--aim", "recall@precision>=0.5", "--steps", "40")
LONG = (*FIT[:-1], "300", "--model", "mlp")
SENTENCE = "start again with --resume to go on"
AGAIN = "nothing was saved yet, so run the command again"
ENDED = f"stops, as another rank ended: {SENTENCE}"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks") / "rows.parquet"
    table = rows_of(3000, seed=2)
    table = table.append_column("weight", pa.array(np.random.default_rng(0).integers(1, 4, len(table)) * 1.0))
    pyarrow.parquet.write_table(table, path, row_group_size=170)
    return path


def start(size: int, *arguments: object) -> list[subprocess.Popen]:
    """The processes that torchrun would start."""
    port, processes = free_port(), []
    for rank in range(size):
        shared = {"WORLD_SIZE": size, "RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **{name: str(value) for name, value in shared.items()}, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "aimfor", "fit", *map(str, arguments)]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
    return processes


def ended(processes: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    found = [process.communicate(timeout=280) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, found, strict=True)]


def fitted(size: int, rows, out, *options: object):
    """The facts and tensors of a model that so many processes fitted."""
    for code, _, err in ended(start(size, rows, *options, "--out", out)):
        assert code == 0, err
    return model_in(out)


def model_in(out):
    return json.loads((out / "model.json").read_text()), safetensors.torch.load_file(out / "model.safetensors")


def assert_equal_models(one, other, tolerance=1e-5):
    for name, tensor in one[1].items():
        np.testing.assert_allclose(other[1][name], tensor, rtol=tolerance, atol=tolerance, err_msg=name)
    assert one[0]["preparation"].keys() == other[0]["preparation"].keys()
    assert [entry["name"] for entry in other[0]["history"]] == [entry["name"] for entry in one[0]["history"]]
    assert [entry["chosen"] for entry in other[0]["history"]] == [entry["chosen"] for entry in one[0]["history"]]


def assert_same_run(one, other):
    """The same rows, preparation and log-loss candidates.

    Rounding depends on the number of ranks. In a long training of networks it grows until another of several nearly
    equal candidates may be chosen, whether the run was interrupted or not. So weights are compared after short ones.
    """
    assert one[0]["preparation"].keys() == other[0]["preparation"].keys()
    assert [entry["name"] for entry in other[0]["history"]] == [entry["name"] for entry in one[0]["history"]]
    values = [
        [entry["value"] for entry in facts["history"] if entry["name"].startswith(("log-loss", "balanced log-loss"))]
        for facts in (one[0], other[0])
    ]
    assert len(values[0]) > 1
    assert values[0] == pytest.approx(values[1], abs=1e-6)


def test_two_processes_fit_the_model_of_one(rows, tmp_path):
    options = (*FIT, "--model", "linear", "--weight", "weight")
    one = fitted(1, rows, tmp_path / "one", *options)
    assert_equal_models(one, fitted(2, rows, tmp_path / "two", *options))
    metrics = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("one", "two")]
    assert metrics[0]["data"]["rows"] == metrics[1]["data"]["rows"]
    labels = [facts["labels"][0] for facts in metrics]
    assert labels[0]["operating"]["tp"] == labels[1]["operating"]["tp"]
    promises = [[one["delivered"] for one in facts["promise"]["points"]] for facts in labels]
    assert promises[0] == pytest.approx(promises[1])
    kinds = [{one["name"]: one["precision"] for one in facts["kinds"]} for facts in metrics]
    assert kinds[0] == pytest.approx(kinds[1])


def test_where_no_rows_are_held_out_the_first_process_measures_its_own(rows, tmp_path):
    """The others have other rows, so they take no turns."""
    nothing = ("--validation-fraction", "0", "--test-fraction", "0", "--model", "linear")
    fitted(2, rows, tmp_path / "run", *FIT, *nothing)
    (label,) = json.loads((tmp_path / "run" / "metrics.json").read_text())["labels"]
    assert 0 < label["rows"] < 3000


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--model", "mlp"),
        ("--model", "mlp", "--time", "when"),
        ("--model", "auto"),
        ("--model", "linear", "--label", "known", "--label", "same2", "--weight", "weight"),
        ("--model", "linear", "--memory", "1"),
    ],
    ids=["mlp", "times", "auto", "labels", "on disk"],
)
def test_one_two_and_four_processes_fit_one_model(rows, tmp_path, options):
    base = FIT
    if "same2" in options:
        table = pyarrow.parquet.read_table(rows)
        table = table.append_column("same2", pa.array((np.arange(len(table)) % 3 == 0).astype(int)))
        known = pa.array([int(bool(value)) for value in table["known"].to_pylist()])
        table = table.set_column(table.schema.get_field_index("known"), "known", known)
        rows = tmp_path / "labels.parquet"
        pyarrow.parquet.write_table(table, rows, row_group_size=170)
        base = ("--aim", "aucpr", "--steps", "40")
    if "auto" in options:  # trees train on the rows of the first process, so that models differ
        for size in (2, 4):
            facts, _ = fitted(size, rows, tmp_path / str(size), *base, "--model", "auto")
            assert {"trees", "linear", "mlp", "auto"} == {entry["kind"] for entry in facts["history"]}
        return
    models = {size: fitted(size, rows, tmp_path / str(size), *base, *options) for size in (1, 2, 4)}
    for size in (2, 4):
        assert_equal_models(models[1], models[size])


def wait_until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def killed(size: int, rows, out, rank: int, moment: float, *more: str) -> list[tuple[int, str, str]]:
    """Kill one rank so many seconds after the first checkpoint, or after the start."""
    processes = start(size, *([] if more else [rows, *LONG]), *more, "--out", out)
    wait_until(lambda: (out / ".work").exists() or processes[0].poll() is not None)
    time.sleep(moment)
    processes[rank].send_signal(signal.SIGKILL)
    return ended(processes)


def test_a_rank_that_dies_ends_the_others_with_one_sentence_and_another_number_goes_on(rows, tmp_path):
    out = tmp_path / "run"
    processes = start(2, rows, *LONG, "--out", out)
    wait_until(lambda: (out / ".work" / "log-loss.safetensors").exists() or processes[0].poll() is not None)
    processes[1].send_signal(signal.SIGKILL)
    at = time.monotonic()
    (code, _, err), _ = ended(processes)
    assert time.monotonic() - at < 60
    assert code == 1
    assert ENDED in err
    assert err.count("error:") == 1
    assert "Traceback" not in err
    assert not (out / "model.json").exists()
    for code, _, err in ended(start(1, "--resume", "--out", out)):
        assert code == 0, err
    assert (out / "model.json").exists()
    assert not (out / ".work").exists()


def test_a_rank_that_dies_before_anything_is_saved_does_not_send_the_others_to_a_checkpoint(rows, tmp_path):
    processes = start(2, rows, *LONG, "--out", tmp_path / "run")
    wait_until(lambda: (tmp_path / "run" / ".work").exists() or processes[0].poll() is not None)
    processes[1].send_signal(signal.SIGKILL)
    (code, _, err), _ = ended(processes)
    assert code == 1
    assert err.endswith(f"rank 0 of 2 stops, as another rank ended: {AGAIN}\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("environment", "is_saved", "told"),
    [
        ({"RANK": "1"}, True, SENTENCE),
        ({"RANK": "1"}, False, AGAIN),
        ({"RANK": "0", "LOCAL_WORLD_SIZE": "1"}, False, AGAIN),
        ({"RANK": "1", "LOCAL_WORLD_SIZE": "1"}, False, "with --resume if the first rank saved a checkpoint"),
    ],
    ids=["saved", "not saved", "not saved by the first rank", "on another machine"],
)
def test_what_to_do_depends_on_what_was_saved(monkeypatch, environment, is_saved, told):
    from aimfor.cli import _ranks

    def lost(*_, **__):
        raise RuntimeError("gloo: connection closed by peer")

    monkeypatch.setattr(_ranks.distributed, "init_process_group", lost)
    for name, value in {"WORLD_SIZE": "2", **environment}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(_ranks.LostRankError, match=told), _ranks.torchrun_ranks(lambda: is_saved):
        raise AssertionError("the ranks have not met")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_any_rank_is_killed_at_ten_random_moments_and_another_number_of_ranks_goes_on(rows, tmp_path):
    whole = fitted(1, rows, tmp_path / "whole", *LONG)
    dice, out, kills = random.Random(0), tmp_path / "run", 0
    resume: tuple[str, ...] = ()
    for size in (2, 4, 2, 3, 2, 4, 2, 3, 2, 2):
        rank = dice.randrange(size)
        found = killed(size, rows, out, rank, dice.uniform(0.5, 8), *resume)
        if (out / "model.json").exists():  # it was done before the kill
            assert_same_run(whole, model_in(out))
            shutil.rmtree(out)
            resume = ()
            continue
        kills += 1
        for number, (code, _, err) in enumerate(found):
            if number != rank:
                assert code == 1, err
                assert SENTENCE in err or AGAIN in err
        resume = ("--resume",) if (out / ".work" / "job.json").exists() else ()
        if not resume and out.exists():
            shutil.rmtree(out)
    assert kills >= 5
    for code, _, err in ended(start(2, *(resume or (rows, *LONG)), "--out", out)):
        assert code == 0, err
    assert_same_run(whole, model_in(out))


@pytest.mark.slow
def test_torchrun_itself_starts_it(rows, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    job = ["-m", "aimfor", "fit", str(rows), *FIT, "--model", "linear", "--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run([*command, *job], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["labels"][0]["rows"] == 600, "the first rank alone writes, and all of it is JSON"


@pytest.mark.parametrize(
    ("options", "sql", "told"),
    [({"solver": "lp"}, None, "need --solver sgd"), ({}, "select 1", "cannot share a query")],
)
def test_what_several_ranks_cannot_do_is_refused(options, sql, told):
    from aimfor._base.errors import DataError
    from aimfor.cli._ranks import check_shared
    from ranks_in_threads import ThreadRanks

    with pytest.raises(DataError, match=told):
        check_shared(options, sql, None, ThreadRanks(0, 2, None, []))
