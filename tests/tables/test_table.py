"""Every format gives the same rows, and a bad file one sentence that names it."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from aimfor._base.errors import DataError
from aimfor.tables._dataset import features_of, prepare
from aimfor.tables._table import open_table
from program_rows import matrix, opened, prepared, rows_of, write


@pytest.mark.parametrize("name", ["r.csv", "r.tsv", "r.csv.gz", "r.tsv.gz", "r.arrow", "r.feather"])
def test_every_format_gives_the_same_features(name, tmp_path):
    rows = rows_of()
    reference = prepared(opened(write(rows, tmp_path / "r.parquet")), tmp_path)
    other = prepared(opened(write(rows, tmp_path / name)), tmp_path)
    assert other.said == reference.said
    assert other.preparation.to_dict() == reference.preparation.to_dict()
    for part in ("train", "validation", "test"):
        ours, theirs = getattr(other, part), getattr(reference, part)
        np.testing.assert_array_equal(ours.features, theirs.features)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
    assert other.summary == reference.summary
    assert other.fingerprint != reference.fingerprint


def test_an_arrow_stream_is_read(tmp_path):
    rows = rows_of(50)
    with pa.ipc.new_stream(tmp_path / "r.arrow", rows.schema) as stream:
        stream.write_table(rows, max_chunksize=7)
    assert pa.Table.from_batches(opened(tmp_path / "r.arrow").batches()).equals(rows)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".feather"])
def test_shards_equal_one_file_and_batches_are_of_the_size_asked_for(suffix, tmp_path):
    rows = rows_of()
    folder = tmp_path / "shards"
    folder.mkdir()
    for number, start in enumerate([0, 10, 250]):
        piece = rows.slice(start, [10, 240, 350][number])
        # The order of columns is free.
        write(piece.select(rows.schema.names[:: -1 if number == 1 else 1]), folder / f"part-{number}{suffix}")
    for ignored in ("_SUCCESS", ".part-0.crc"):
        (folder / ignored).write_text("")
    table = opened(folder)
    assert [path.name for path in table.paths] == [f"part-{number}{suffix}" for number in range(3)]
    batches = list(table.batches(["id", "town"], size=128))
    assert [batch.num_rows for batch in batches] == [128, 128, 128, 128, 88]
    assert pa.Table.from_batches(batches).equals(rows.select(["id", "town"]))
    one = prepared(opened(write(rows, tmp_path / f"one{suffix}")), tmp_path)
    np.testing.assert_array_equal(prepared(table, tmp_path).train.features, one.train.features)
    assert table.fingerprint == opened(*table.paths).fingerprint != opened(*table.paths[:2]).fingerprint


def test_shards_of_parquet_may_differ_in_width_and_dictionary(tmp_path):
    write(pa.table({"x": [1, 2], "t": pa.array(["a", "b"]).dictionary_encode()}), tmp_path / "0.parquet")
    write(pa.table({"x": [0.5, None], "t": pa.array(["c", "a"])}), tmp_path / "1.parquet")
    found = pa.Table.from_batches(opened(tmp_path).batches()).to_pydict()
    assert found == {"x": [1.0, 2.0, 0.5, None], "t": ["a", "b", "c", "a"]}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2", ""], pa.int64()),
        (["1", " 2", "2.5 "], pa.float64()),
        (["1", "2.5", "x"], pa.string()),
        (["", "", "7"], pa.int64()),
        (["", "NA", ""], pa.null()),
        (["true", "False", ""], pa.bool_()),
        (["true", "perhaps"], pa.string()),
        (["1", "true"], pa.string()),
        (["2024-01-01", "2024-01-02 10:30"], pa.timestamp("ns")),
        (["2024-01-01", "2024-01-02"], pa.date32()),
        (["2024-01-01T10:30:00Z"], pa.timestamp("ns", "UTC")),
        (["99999999999999999999", "1"], pa.decimal128(38, 0)),
        (["99999999999999999999", "1.5"], pa.float64()),
    ],
)
def test_types_of_csv_are_those_of_all_rows(values, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("aimfor.tables._delimited.BLOCK", 64)  # so that the rows come in several blocks
    lines = [f'"{value}",{index}' for index, value in enumerate(value for value in values for _ in range(20))]
    (tmp_path / "r.csv").write_text("\n".join(["x,n", *lines]))
    table = opened(tmp_path / "r.csv")
    assert table.schema.field("x").type == kind
    assert sum(batch.num_rows for batch in table.batches()) == len(lines)


def test_a_line_break_within_quotes_is_part_of_the_value(tmp_path):
    (tmp_path / "r.csv").write_bytes(b'\xef\xbb\xbfa,b\r\n1,"x\ny"\r\n2,z\r\n')
    assert pa.Table.from_batches(opened(tmp_path / "r.csv").batches()).to_pydict() == {"a": [1, 2], "b": ["x\ny", "z"]}


def test_matrices(tmp_path):
    random = np.random.default_rng(0)
    dense = sparse.random(60, 8, 0.4, format="csr", dtype=np.float32, random_state=0)
    dense.data[:] = dense.data.round(3)
    y = random.integers(0, 2, 60)
    parts = {"data": dense.data, "indices": dense.indices, "indptr": dense.indptr, "shape": dense.shape}
    np.savez(tmp_path / "dense.npz", X=dense.toarray(), y=y)
    np.savez(tmp_path / "sparse.npz", y=y, format=b"csr", **parts)
    dump_svmlight_file(dense, y, str(tmp_path / "r.svm"))
    (tmp_path / "r.libsvm.gz").write_bytes(gzip.compress((tmp_path / "r.svm").read_bytes()))
    for name in ("dense.npz", "sparse.npz", "r.svm", "r.libsvm.gz"):
        found = matrix(tmp_path / name)
        assert found.features.dtype == np.float32
        features = found.features.toarray() if sparse.issparse(found.features) else found.features
        np.testing.assert_array_equal(features, dense.toarray())
        data = prepare(found, labels=["fraud"], folder=tmp_path)
        assert data.preparation is None
        assert data.label_names == ("fraud",)
        np.testing.assert_array_equal(data.test.labels, y[data.split == 2])
        assert data.train.features.shape == ((data.split == 0).sum(), 8)
    both = open_table([tmp_path / "r.svm", tmp_path / "r.libsvm.gz"])
    assert both.features.shape == (120, 8)


def test_a_sparse_file_for_scoring_may_lack_the_last_features_but_not_have_more(tmp_path):
    (tmp_path / "r.svm").write_text("1 2:0.5\n0 0:1\n")
    found = matrix(tmp_path / "r.svm")
    (block,) = features_of(found, None, 5)
    np.testing.assert_array_equal(block.toarray(), [[0, 0, 0.5, 0, 0], [1, 0, 0, 0, 0]])
    with pytest.raises(DataError, match=r"r.svm has 3 features, but the model needs 2"):
        next(features_of(found, None, 2))


def test_sets_of_labels_in_svmlight(tmp_path):
    (tmp_path / "r.svm").write_text("1,3 0:1\n 1:1\n3 0:2\n" * 20)
    data = prepare(matrix(tmp_path / "r.svm"), labels=[], folder=tmp_path)
    assert data.label_names == ("1", "3")
    np.testing.assert_array_equal(matrix(tmp_path / "r.svm").labels[:3], [[1, 1], [0, 0], [0, 1]])


PARQUET = pa.BufferOutputStream()
pyarrow.parquet.write_table(rows_of(50), PARQUET)
PARQUET = PARQUET.getvalue().to_pybytes()
ZIPPED = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (index, index) for index in range(50_000)), mtime=0)


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("r.csv", b"", "is empty"),
        ("r.csv", b"a,b\n", "no rows"),
        ("r.csv", b"a,b\n1,2\n3\n", "line 3: expected 2 columns, got 1: 3"),
        ("r.csv", b"a,b\n1,2,3\n", "line 2: expected 2 columns, got 3"),
        ("r.csv", PARQUET, "holds bytes of zero, so it is no text"),
        ("r.csv", b"a,a\n1,2\n", "has 2 columns named 'a': rename all but one"),
        ("r.csv", b"a,\n1,2\n", "column 2 has no name"),
        ("r.csv", b"a,b\n1," + b"x" * 2**23 + b"\n", "cannot be read as CSV: "),
        ("r.csv.gz", ZIPPED[:-100], "cannot be read as CSV: Compressed file ended"),
        ("r.csv.gz", b"a,b\n1,2\n", "cannot be read as CSV: Not a gzipped file"),
        ("r.tsv", b"a\tb\n1\n", "line 2: expected 2 columns, got 1"),
        ("r.parquet", b"", "cannot be read as Parquet: Parquet file size is 0 bytes"),
        ("r.parquet", PARQUET[:-50], "cannot be read as Parquet"),
        ("r.parquet", b"a,b\n1,2\n" * 9, "cannot be read as Parquet"),
        ("r.arrow", b"", "cannot be read as Arrow"),
        ("r.feather", PARQUET, "cannot be read as Arrow"),
        ("r.npz", b"", "cannot be read as NPZ"),
        ("r.npz", b"PK\x03\x04", "cannot be read as NPZ"),
        ("r.svm", b"", "must have at least one row and one feature"),
        ("r.svm", b"1 a:b\n", "cannot be read as SVMlight"),
        ("r.svm", b"1 1:nan\n", "must have finite float32 features, got nan"),
        ("r.svm", b"1 2000000000:1\n", "must have at most 10,000,000 features, got 2,000,000,001"),
        ("r.svm.gz", gzip.compress(b"1 1:1\n" * 999, mtime=0)[:-9], "cannot be read as SVMlight"),
        ("r.xlsx", b"x", "cannot be read as Excel: File is not a zip file"),
        ("r.docx", b"x", "names must end in .csv"),
        ("r.parquet.gz", b"x", "names must end in .csv"),
        ("r", b"x", "names must end in .csv"),
    ],
)
def test_bad_files(name, contents, message, tmp_path):
    if name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    path = tmp_path / name
    path.write_bytes(contents)
    with pytest.raises(DataError) as caught:
        open_table([path])
    text = str(caught.value)
    assert message in text
    assert str(path) in text
    assert "\n" not in text
    assert len(text) < 500


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"Z": np.zeros(3)}, "it must have X, or data, indices, indptr, shape, got Z"),
        ({"X": np.zeros(3), "y": np.zeros(3)}, r"must have numbers of shape \[n, D\], got float64 of shape \(3,\)"),
        ({"X": np.array([["a"]])}, r"must have numbers of shape \[n, D\], got <U1"),
        ({"X": np.array([[None]], dtype=object)}, "cannot be read as NPZ: Object arrays cannot be loaded"),
        ({"X": np.zeros((0, 3))}, "must have at least one row and one feature"),
        ({"X": np.array([[1e300]])}, r"must have finite float32 features, got 1e\+300"),
        ({"X": np.zeros((3, 2)), "y": np.zeros(2)}, r"must have y of shape \[n\] or \[n, L\] for 3 rows, got \(2,\)"),
        ({"X": np.zeros((1, 2)), "y": np.zeros(1, "M8[s]")}, "must have numbers or texts as y"),
        (
            {"data": np.ones(1), "indices": np.array([9]), "indptr": np.array([0, 1]), "shape": np.array([1, 3])},
            "cannot be read as NPZ: ",
        ),
        (
            {"data": np.ones(1), "indices": np.array([0]), "indptr": np.array([0, 1]), "shape": np.array([1, 3, 1])},
            "cannot be read as NPZ: ",
        ),
    ],
)
def test_bad_npz(arrays, message, tmp_path):
    np.savez(tmp_path / "r.npz", **arrays)
    with pytest.raises(DataError, match=message):
        open_table([tmp_path / "r.npz"])


def test_npz_entries_that_are_no_arrays(tmp_path):
    for contents, message in (
        (b"junk", "its entry X is no array"),
        (b"\x93NUMPY\x01\x00\x09\x00{'a': (1)", "Cannot|EOF"),
    ):
        with zipfile.ZipFile(tmp_path / "r.npz", "w") as file:
            file.writestr("X.npy", contents)
        with pytest.raises(DataError, match=rf"r.npz cannot be read as NPZ: .*({message})"):
            open_table([tmp_path / "r.npz"])


def test_bad_paths_and_shards(tmp_path):
    def refused(*paths, message):
        with pytest.raises(DataError, match=message):
            open_table(paths)

    refused(message="no data: name at least one file or folder")
    refused(tmp_path / "absent.csv", message="absent.csv: no such file or folder")
    refused(tmp_path, message="is an empty folder")
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("x,z\n1,2\n")
    refused(tmp_path, message=r"b.csv lacks column 'y', which a.csv has")
    (tmp_path / "b.csv").write_text("x,y,z\n1,2,3\n")
    refused(tmp_path, message=r"b.csv has column 'z', which a.csv lacks")
    write(pa.table({"x": [1]}), tmp_path / "b.parquet")
    refused(tmp_path / "a.csv", tmp_path / "b.parquet", message=r"b.parquet is Parquet and a.csv is CSV: give one kind")
    write(pa.table({"x": ["a"]}), tmp_path / "c.parquet")
    refused(
        tmp_path / "b.parquet",
        tmp_path / "c.parquet",
        message=r"c.parquet has string in column 'x', but the files before it have int64",
    )
    (tmp_path / "folder").mkdir()
    refused(tmp_path, message="holds the folder folder: only files can be read")


def test_a_file_that_grows_between_two_readings_is_noticed(tmp_path):
    table = opened(write(rows_of(20), tmp_path / "r.csv"))
    for count in (19, 21):
        write(rows_of(count), tmp_path / "r.csv")
        with pytest.raises(DataError, match=rf"r.csv changed while being read: there were 20 rows, then {count}"):
            list(table.batches())


def files_to_damage(folder: Path) -> dict[str, bytes]:
    rows = rows_of(150)
    for name in ("f.csv.gz", "f.csv", "f.parquet", "f.feather"):
        write(rows, folder / name)
    with pa.ipc.new_stream(folder / "s.arrow", rows.schema) as stream:
        stream.write_table(rows)
    eye = sparse.eye(6, format="csr")
    np.savez(folder / "d.npz", X=eye.toarray(), y=np.arange(6) % 2)
    parts = {"data": eye.data, "indices": eye.indices, "indptr": eye.indptr, "shape": eye.shape}
    np.savez(folder / "s.npz", y=np.arange(6) % 2, **parts)
    dump_svmlight_file(eye, np.arange(6) % 2, str(folder / "f.svm"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.filterwarnings("ignore:.* is not UTF-8 and was read as")
@pytest.mark.parametrize("cases", [15, pytest.param(1500, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_damaged_files_give_one_sentence(cases, tmp_path):
    random = np.random.default_rng(0)
    found = {True: 0, False: 0}
    for name, whole_file in files_to_damage(tmp_path).items():
        for case in range(cases):
            contents = bytearray(whole_file)
            for place in random.integers(0, len(contents), random.integers(1, 4)):
                contents[place] = random.integers(0, 256)
            if case % 5 == 0:
                start = random.integers(0, len(contents))
                del contents[start : start + random.integers(1, 9)]
            (tmp_path / name).write_bytes(contents[: random.integers(len(contents))] if case % 7 == 0 else contents)
            try:
                prepare(open_table([tmp_path / name]), labels=["fraud"], folder=tmp_path / "out")
                found[True] += 1
            except DataError as error:
                assert "\n" not in str(error)  # noqa: PT017
                found[False] += 1
    assert min(found.values()) > cases / 3  # both are met
    assert not (tmp_path / "out").exists()
