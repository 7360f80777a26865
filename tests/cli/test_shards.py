"""`aimfor score --shard`: one file in, one file out."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from aimfor.cli._score import RowSource, score
from aimfor.cli._shards import Shard, score_shard, shard_of
from aimfor.tables import ReadOptions
from program_rows import rows_of, write

FILES = 16


def aimfor(*arguments: object) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "aimfor", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, and rows in sixteen files."""
    folder = tmp_path_factory.mktemp("shards")
    (folder / "in").mkdir()
    table = rows_of(FILES * 50, seed=1)
    for part in range(FILES):
        write(table.slice(50 * part, 50), folder / "in" / f"part-{part:02}.csv")
    job = ("--label", "fraud", "--positive", "yes", "--model", "linear", "--aim", "f1", "--steps", 30)
    done(aimfor("fit", folder / "in", *job, "--out", folder / "run"))
    return folder


def score_one(job) -> int:
    place, out, number = job
    return score_shard(place / "run", RowSource([place / "in"]), out, Shard(number, FILES), ids=["id"]).scored.rows


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_sixteen_shards_of_four_processes_equal_one_process(place, tmp_path):
    score(place / "run", RowSource([place / "in"]), tmp_path / "whole.csv", ids=["id"])
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as processes:
        jobs = [(place, tmp_path / "out", shard) for shard in range(1, FILES + 1)]
        assert sum(processes.map(score_one, jobs)) == FILES * 50
    parts = [path.read_bytes().split(b"\n", 1) for path in sorted((tmp_path / "out").glob("*.csv"))]
    assert len(parts) == FILES
    assert parts[0][0] + b"\n" + b"".join(rows for _, rows in parts) == (tmp_path / "whole.csv").read_bytes()

    score_shard(place / "run", RowSource([place / "in"]), tmp_path / "one", Shard(1, 1), ids=["id"])
    assert contents(tmp_path / "one") == contents(tmp_path / "out")


def test_a_shard_that_is_run_again_changes_nothing_and_goes_on_where_it_was_stopped(place, tmp_path):
    rows, out = RowSource([place / "in"]), tmp_path / "out"
    first = score_shard(place / "run", rows, out, Shard(2, 4))
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in out.iterdir()}
    again = score_shard(place / "run", rows, out, Shard(2, 4))
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in out.iterdir()}
    assert (first.there, again.there, again.scored) == (0, 4, first.scored)
    assert after == before
    (out / first.files[1]).unlink()  # as if stopped before it was written
    assert score_shard(place / "run", rows, out, Shard(2, 4)).there == 3
    assert {name: bytes_ for name, (bytes_, _, _) in before.items()} == contents(out)


def test_an_output_of_other_rows_or_another_threshold_is_made_again(place, tmp_path):
    source, out = tmp_path / "rows.csv", tmp_path / "out"
    write(rows_of(40), source)
    score_shard(place / "run", RowSource([source]), out, Shard(1, 1))
    write(rows_of(41), source)
    assert score_shard(place / "run", RowSource([source]), out, Shard(1, 1)).there == 0
    assert score_shard(place / "run", RowSource([source]), out, Shard(1, 1), threshold=0.0).there == 0
    assert score_shard(place / "run", RowSource([source]), out, Shard(1, 1), threshold=0.0).there == 1


@pytest.mark.parametrize("options", [ReadOptions(missing=("Bonn",)), ReadOptions(","), ReadOptions(encoding="utf-8")])
def test_an_output_of_rows_that_were_read_otherwise_is_made_again(place, tmp_path, options):
    source, out = write(rows_of(40), tmp_path / "rows.csv"), tmp_path / "out"
    read_so = RowSource([source], options=options)
    score_shard(place / "run", RowSource([source]), out, Shard(1, 1))
    assert score_shard(place / "run", read_so, out, Shard(1, 1)).there == 0
    assert score_shard(place / "run", read_so, out, Shard(1, 1)).there == 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "3", "a/b", "1/0", "-1/4", "1/4/4"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ValueError, match="--shard must be"):
        shard_of(text)


def test_names_that_collide_are_refused(place, tmp_path):
    for name in ("rows.csv.gz", "rows.csv"):
        write(rows_of(20), tmp_path / name)
    with pytest.raises(ValueError, match="names that differ"):
        score_shard(place / "run", RowSource([tmp_path]), tmp_path.parent / "collided", Shard(1, 1))
