"""From files to prepared parts: the training rows alone are learned from, and streaming changes nothing."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from aimfor._base.errors import DataError
from aimfor._base.stored_rows import RowWriter, StoredRows
from aimfor.tables._dataset import prepare
from aimfor.tables._preparation import Preparation
from aimfor.tables._table import MemoryTable
from program_rows import matrix, opened, prepared, rows_of, whole, write


def test_stored_rows_are_indexed_like_an_array(tmp_path):
    rows = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    with RowWriter(tmp_path / "r.rows", 3) as writer:
        for block in np.split(rows, [10, 10, 60]):
            writer.append(block)
    stored = StoredRows(tmp_path / "r.rows", 3)
    assert (len(stored), stored.shape, stored.dtype, stored.ndim) == (100, (100, 3), np.float32, 2)
    for index in (slice(5, 50), slice(None), np.array([3, 99, 3, -1]), np.array([], dtype=int), slice(0, 0)):
        np.testing.assert_array_equal(stored[index], rows[index])
    assert stored[:2].flags.owndata
    with pytest.raises(ValueError, match="must hold whole rows of 7 features"):
        StoredRows(tmp_path / "r.rows", 7)


def test_a_failed_write_leaves_no_file(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"rows must have shape \[b, 3\]"), RowWriter(tmp_path / "r.rows", 3) as rows:
        rows.append(np.zeros((2, 4)))
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("aimfor._base.stored_rows.create", lambda path: Path("/dev/full").open("wb"))  # noqa: SIM115 - RowWriter closes it
    with pytest.raises(OSError, match=r"No space left.*f\.rows"), RowWriter(tmp_path / "f.rows", 3) as rows:
        rows.append(np.zeros((2, 3)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("memory", [0, 150_000])
def test_streamed_rows_equal_those_in_memory(memory, tmp_path):
    table = opened(write(rows_of(3000), tmp_path / "r.parquet"))
    inside = prepared(table, tmp_path)
    outside = prepared(table, tmp_path / "new" / "folder", memory=memory)
    assert isinstance(outside.train.features, StoredRows)
    assert isinstance(outside.test.features, StoredRows) == (memory == 0)
    for part in ("train", "validation", "test"):
        ours, theirs = getattr(outside, part), getattr(inside, part)
        assert isinstance(theirs.features, np.ndarray)
        np.testing.assert_array_equal(ours.features[:].view(np.int32), theirs.features.view(np.int32))
        np.testing.assert_array_equal(ours.labels, theirs.labels)


# All together


def test_weights_groups_and_times(tmp_path):
    rows = rows_of(2000)
    rows = rows.append_column("w", pa.array(np.arange(2000.0))).append_column(
        "user", pa.array([f"u{index % 300}" for index in range(2000)])
    )
    table = opened(write(rows, tmp_path / "r.csv"))
    data = prepared(table, tmp_path, weight="w", group="user")
    np.testing.assert_array_equal(data.validation.weights, np.flatnonzero(data.split == 1))
    users = np.arange(2000) % 300
    assert not set(users[data.split == 0]) & set(users[data.split == 2])
    assert "w (weight), user (group)" in data.said
    data = prepared(table, tmp_path, time="when", drop=["user"])
    when = rows["when"].to_numpy()
    assert when[data.split == 0].max() < when[data.split == 2].min()
    assert "when (time)" in data.said


def test_scoring_streams_in_order_and_knows_what_it_needs(tmp_path):
    rows = rows_of()
    data = prepared(opened(write(rows, tmp_path / "r.parquet")), tmp_path)
    shuffled = rows.drop_columns(["fraud", "same"]).select(["town", "known", "when", "count", "amount"])
    again = whole(opened(write(shuffled, tmp_path / "new.csv")), data.preparation)
    np.testing.assert_array_equal(again[data.split == 0], data.train.features)
    np.testing.assert_array_equal(again[data.split == 2], data.test.features)
    with pytest.raises(DataError, match="column 'town' is missing: the model needs it"):
        whole(opened(write(rows.drop_columns(["town"]), tmp_path / "x.csv")), data.preparation)
    with pytest.raises(DataError, match="column 'town' is missing: the model needs it"):
        data.preparation.transform(rows.drop_columns(["town"]))
    texts = rows.set_column(2, "amount", pa.array(["5", "much"] * 300))
    some = whole(opened(write(texts, tmp_path / "y.csv")), data.preparation)
    assert some[:, 1].tolist() == [0, 1] * 300  # "much" counts as missing
    times = rows.set_column(2, "amount", rows["when"])
    with pytest.raises(DataError, match=r"column 'amount' holds timestamp.* where numbers are needed"):
        whole(opened(write(times, tmp_path / "z.parquet")), data.preparation)
    none = rows.set_column(2, "amount", pa.nulls(600))
    assert (whole(opened(write(none, tmp_path / "n.csv")), data.preparation)[:, 1] == 1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["frud"]}, "--label: the data have no column 'frud'; did you mean 'fraud'?"),
        ({"numeric": ["Count"]}, "--numeric: the data have no column 'Count'; did you mean 'count'?"),
        ({"drop": ["zzz"]}, "--drop: the data have no column 'zzz'; the columns are id, key, amount"),
        ({"drop": ["fraud"]}, "column 'fraud' is named by --label and by --drop: keep one of them"),
        ({"drop": ["count"], "weight": "count"}, "column 'count' is named by --weight and by --drop: keep one of them"),
        ({"numeric": ["id"], "group": "id"}, "column 'id' is named by --group and by --numeric: keep one of them"),
        ({"drop": ["id"], "numeric": ["id"]}, "column 'id' is named by --numeric and by --drop: keep one of them"),
        ({"numeric": ["town"]}, "--numeric: column 'town' holds no numbers in the training rows"),
        ({"numeric": ["when"]}, "--numeric: column 'when' holds timestamp[us], not numbers, truth values or texts"),
        ({"weight": "zzz"}, "--weight: the data have no column 'zzz'; the columns are id, key, amount"),
        ({"weight": "town"}, "--weight: column 'town' holds '"),
        ({"weight": "amount"}, "--weight: column 'amount' holds nan; finite numbers >= 0 are needed"),
        ({"group": "town"}, "--group: column 'town' has "),
        ({"group": "fraud"}, "column 'fraud' is named by --label and by --group: keep one of them"),
        ({"time": "town"}, "--time: column 'town' holds texts that are no dates; dates, times or numbers are needed"),
        ({"time": "amount"}, "--time: column 'amount' has "),
        ({"drop": ["amount", "count", "known", "town", "when"]}, "no column is left to learn from"),
    ],
)
def test_bad_wishes(options, message, tmp_path):
    table = opened(write(rows_of(), tmp_path / "r.parquet"))
    with pytest.raises(DataError) as caught:
        prepared(table, tmp_path / "new", **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("count", "end"), [(9, "x7, x8, y"), (10, "x7, x8, x9, ...")])
def test_columns_that_an_error_leaves_out_are_dots(count, end, tmp_path):
    columns = {f"x{index}": np.arange(60.0) for index in range(count)} | {"y": np.arange(60) % 2}
    table = opened(write(pa.table(columns), tmp_path / "r.parquet"))
    for options in ({"labels": ["nope"]}, {"labels": ["y"], "weight": "nope"}, {"labels": ["y"], "drop": ["nope"]}):
        with pytest.raises(DataError, match="the columns are x0, ") as caught:
            prepared(table, tmp_path, **options)
        assert str(caught.value).endswith(end)


def test_numbers_that_are_not_finite(tmp_path):
    (tmp_path / "r.csv").write_text("x,y\n" + "1,0\n2,1\n" * 20 + "inf,0\n-inf,1\n" * 5)
    data = prepared(opened(tmp_path / "r.csv"), tmp_path, labels=["y"])
    assert data.preparation.feature_names_out == ["x", "x is missing"]
    (tmp_path / "r.csv").write_text("x,y\n" + "1e308,0\n-1e308,1\n" * 20)
    with pytest.raises(DataError, match=r"column 'x' holds 1e\+308: numbers must be below 1e150 in size"):
        prepared(opened(tmp_path / "r.csv"), tmp_path, labels=["y"])
    learned = Preparation.learn(MemoryTable(pa.table({"x": [1.0, 2.0]})))
    with pytest.raises(DataError, match=r"column 'x' holds 1e\+300, far beyond all numbers"):
        learned.transform(pa.table({"x": [1e300]}))


def test_matrices_have_no_columns(tmp_path):
    np.savez(tmp_path / "r.npz", X=np.eye(9), y=np.arange(9) % 2)
    np.savez(tmp_path / "u.npz", X=np.eye(9))
    found = matrix(tmp_path / "r.npz")
    with pytest.raises(DataError, match=r"--group names a column, but r.npz has no named columns"):
        prepare(found, labels=["y"], group="g", folder=tmp_path)
    with pytest.raises(DataError, match=r"u.npz has no labels"):
        prepare(matrix(tmp_path / "u.npz"), labels=["y"], folder=tmp_path)
    with pytest.raises(DataError, match=r"--label must name each of the 1 labels of r.npz, not 2"):
        prepare(found, labels=["y", "z"], folder=tmp_path)
    with pytest.raises(DataError, match=r"r.npz has no named columns"):
        whole(found, Preparation().fit(pa.table({"x": [1, 2]})))
    table = opened(write(rows_of(20), tmp_path / "t.csv"))
    with pytest.raises(DataError, match=r"t.csv is CSV, but the model was trained on SVMlight or NPZ"):
        whole(table)


# Time and memory


@pytest.mark.slow
def test_a_million_rows_are_prepared_in_time():
    random = np.random.default_rng(0)
    table = pa.table({f"x{index}": random.normal(size=1_000_000) for index in range(50)})
    preparation = Preparation.learn(MemoryTable(table.slice(0, 10_000)))
    start = time.perf_counter()
    for batch in MemoryTable(table).batches():
        preparation.apply(batch)
    assert time.perf_counter() - start < 3


MEMORY_SCRIPT = """
import pathlib, resource, sys
from aimfor.tables import open_table, prepare
folder = pathlib.Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = prepare(open_table([folder / "rows"]), labels=["y"], folder=folder / "out", memory=64 * 2**20)
total = 0.0
for start in range(0, len(data.train.features), 100_000):
    total += float(data.train.features[start : start + 100_000].sum())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_files(tmp_path):
    (tmp_path / "rows").mkdir()
    random = np.random.default_rng(0)
    for shard in range(4):
        columns = {f"x{index}": random.normal(size=250_000) for index in range(38)}
        columns["t"] = random.integers(0, 10**9, 250_000).astype(str)
        write(pa.table(columns | {"y": random.integers(0, 2, 250_000)}), tmp_path / "rows" / f"{shard}.parquet")
    assert sum(path.stat().st_size for path in (tmp_path / "rows").iterdir()) > 300e6
    command = [sys.executable, "-c", MEMORY_SCRIPT, str(tmp_path)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 300_000  # KiB; the rows are over 300 MB in the files and 150 MB as features
