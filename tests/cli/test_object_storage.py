"""fit, score and evaluate from and to an S3 server on the loopback, also where its answers fail."""

import json

import pytest
import safetensors.torch
import torch
from pyarrow import fs
from test_ranks import ended, fitted, start

import aimfor
from aimfor.cli._commands import app
from aimfor.tables import _storage, as_path
from aimfor.tables._storage import storage_of
from program_rows import rows_of, write
from storage_server import FaultyProxy, moto_python, moto_server

pytestmark = pytest.mark.skipif(
    moto_python() is None, reason="moto is not installed in .venv-s3; make test installs it"
)
FIT = ("--label", "fraud", "--positive", "yes", "--model", "linear", "--aim", "recall@precision>=0.5", "--steps", "40")


@pytest.fixture(scope="module")
def server():
    with moto_server() as port:
        yield port


@pytest.fixture
def proxy(server, monkeypatch):
    """The server behind a proxy, which is what AWS_ENDPOINT_URL names."""
    proxy = FaultyProxy(server)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_storage, "FIRST_WAIT", 0.01)
    storage_of.cache_clear()
    buckets = fs.S3FileSystem(endpoint_override=f"http://127.0.0.1:{server}", allow_bucket_creation=True)
    buckets.create_dir("bucket")
    yield proxy
    storage_of.cache_clear()
    proxy.close()


def run(capsys, *arguments: object, code: int = 0) -> str:
    with pytest.raises(SystemExit) as end:
        app([str(argument) for argument in arguments], prog_name="aimfor")
    told = capsys.readouterr()
    assert (end.value.code or 0) == code, told.err
    return told.err if code else told.out


def put(path, address: str) -> None:
    as_path(f"{address}/{path.name}").write_whole(path.read_bytes())


def facts_of(text: str) -> dict:
    facts = json.loads(text)
    del facts["versions"]
    return facts


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    table = rows_of(900)
    return [write(table.slice(300 * part, 300), folder / f"{part}.parquet") for part in range(3)]


def test_the_model_and_its_scores_are_those_from_disk_whatever_answers_fail(proxy, shards, tmp_path, capsys):
    for shard in shards:
        put(shard, "s3://bucket/first/rows")
    run(capsys, "fit", tmp_path / "rows", *FIT, "--out", tmp_path / "run")
    proxy.spoil(0.2)
    run(capsys, "fit", "s3://bucket/first/rows/", *FIT, "--out", "s3://bucket/first/run")
    assert min(proxy.spoil(0.2).values()) > 0, "each fault came at least once"
    remote = as_path("s3://bucket/first/run")
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert sorted(path.name for path in remote.iterdir()) == names
    assert (remote / "model.safetensors").read_whole(10**7) == (tmp_path / "run/model.safetensors").read_bytes()
    assert facts_of((remote / "model.json").read_whole(10**7)) == facts_of((tmp_path / "run/model.json").read_text())

    run(capsys, "score", tmp_path / "run", tmp_path / "rows", "--out", tmp_path / "scored.csv")
    run(capsys, "score", "s3://bucket/first/run", "s3://bucket/first/rows", "--out", "s3://bucket/first/scored.csv")
    assert as_path("s3://bucket/first/scored.csv").read_whole(10**7) == (tmp_path / "scored.csv").read_bytes()

    measured = json.loads(run(capsys, "evaluate", tmp_path / "run", tmp_path / "rows", "--json"))
    assert json.loads(run(capsys, "evaluate", "s3://bucket/first/run", "s3://bucket/first/rows/", "--json")) == measured
    proxy.spoil()
    assert aimfor.load("s3://bucket/first/run").predict(rows_of(20)).tolist()


@pytest.mark.slow
def test_two_processes_fit_from_storage_into_storage_the_model_from_disk(proxy, shards, tmp_path):
    for shard in shards:
        put(shard, "s3://bucket/ranks/rows")
    here = fitted(2, tmp_path / "rows", tmp_path / "run", *FIT)
    proxy.spoil(0.1)
    for code, _, err in ended(start(2, "s3://bucket/ranks/rows/", *FIT, "--out", "s3://bucket/ranks/run")):
        assert code == 0, err
    assert sum(proxy.spoil().values()) > 0, "some answers failed"
    remote, local = as_path("s3://bucket/ranks/run"), fitted(2, "s3://bucket/ranks/rows/", tmp_path / "local", *FIT)
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert sorted(path.name for path in remote.iterdir()) == names
    assert not (remote / ".work").exists()
    for name, tensor in safetensors.torch.load((remote / "model.safetensors").read_whole(10**7)).items():
        assert torch.equal(tensor, here[1][name]), name
        assert torch.equal(local[1][name], here[1][name]), name
    assert facts_of((remote / "model.json").read_whole(10**7)) == facts_of((tmp_path / "run/model.json").read_text())


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.feather"])
def test_every_format_is_read_from_storage(proxy, tmp_path, capsys, name):
    path = write(rows_of(300), tmp_path / name)
    put(path, "s3://bucket/formats")
    run(capsys, "fit", path, *FIT, "--out", tmp_path / "run")
    run(capsys, "score", tmp_path / "run", path, "--out", tmp_path / "here.parquet")
    run(capsys, "score", tmp_path / "run", f"s3://bucket/formats/{name}", "--out", "s3://bucket/formats/out.parquet")
    assert as_path("s3://bucket/formats/out.parquet").read_whole(10**7) == (tmp_path / "here.parquet").read_bytes()


def test_storage_that_stays_broken_is_told_and_leaves_nothing_half_written(
    proxy, shards, tmp_path, capsys, monkeypatch
):
    put(shards[0], "s3://bucket/broken/rows")
    run(capsys, "fit", tmp_path / "rows", *FIT, "--out", tmp_path / "run")
    out = as_path("s3://bucket/broken/scored.csv")
    out.write_whole(b"earlier")
    monkeypatch.setattr(_storage, "ATTEMPTS", 1)
    proxy.spoil(refuse=("PUT",))
    told = run(capsys, "score", tmp_path / "run", "s3://bucket/broken/rows", "--out", out, code=1)
    assert told.count("\n") == 1, told
    assert "Traceback" not in told
    proxy.spoil(refuse=("PUT", "POST"))
    run(capsys, "fit", tmp_path / "rows", *FIT, "--out", "s3://bucket/broken/run", code=1)
    proxy.spoil()
    assert out.read_whole(100) == b"earlier"
    assert [path.name for path in as_path("s3://bucket/broken").iterdir()] == ["rows", "scored.csv"]


def test_a_run_that_was_stopped_goes_on_from_storage(proxy, shards, tmp_path, capsys, monkeypatch):
    from aimfor.cli import _fit

    run(capsys, "fit", tmp_path / "rows", *FIT, "--out", tmp_path / "run")

    def broken(*_):
        raise OSError("the disk is full")

    with monkeypatch.context() as inside:
        inside.setattr(_fit, "measured", broken)
        run(capsys, "fit", tmp_path / "rows", *FIT, "--out", "s3://bucket/stopped/run", code=1)
    kept = as_path("s3://bucket/stopped/run/.work")
    assert "job.json" in [path.name for path in kept.iterdir()]
    run(capsys, "fit", "--resume", "--out", "s3://bucket/stopped/run")
    assert not kept.exists()
    tensors = as_path("s3://bucket/stopped/run/model.safetensors").read_whole(10**7)
    assert tensors == (tmp_path / "run/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("s3://bucket/nothing.csv", "no such file or folder"),
        ("s3:///rows.csv", "names no bucket"),
        ("gs:/x", "no such file"),
    ],
)
def test_addresses_of_nothing_are_told_in_one_sentence(proxy, capsys, address, told):
    said = run(capsys, "fit", address, *FIT, "--out", "nowhere", code=1)
    assert told in said
    assert said.count("\n") == 1
