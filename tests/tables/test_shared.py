"""Several processes share a table: whatever their number, preparation and parts are those of one."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from aimfor._base.errors import DataError
from aimfor._base.ranks import ALONE, RowShare, in_turns
from aimfor._base.splitting import held_back
from aimfor.tables import open_table, prepare, shared
from aimfor.tables._runs import FileRun, by_file
from aimfor.tables._shared import begin_fingerprint
from program_rows import rows_of, write
from ranks_in_threads import ThreadRanks, in_ranks

SIZES = (1, 2, 4)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rows with everything that is hard: missing labels, groups, copies of rows, times in order."""
    folder = tmp_path_factory.mktemp("shared")
    table = rows_of(1300, seed=5)
    table = pa.concat_tables([table, table.slice(0, 40)])
    random = np.random.default_rng(0)
    labels = pa.array(table["fraud"].to_pylist(), mask=random.random(len(table)) < 0.03)
    table = table.set_column(table.schema.get_field_index("fraud"), "fraud", labels)
    table = table.append_column("weight", pa.array(random.integers(1, 4, len(table)) * 1.0))
    table = table.append_column("group", pa.array([f"g{number}" for number in random.integers(0, 200, len(table))]))
    table = table.append_column("odd", pa.array((random.random(len(table)) < 0.3).astype(int)))
    table = table.append_column("late", pa.array((np.arange(len(table)) % 5 == 0).astype(int)))
    pyarrow.parquet.write_table(table, folder / "one.parquet", row_group_size=97)
    (folder / "csv").mkdir()
    for part in range(7):
        write(table.slice(part * 200, 200).drop_columns(["late"]), folder / "csv" / f"{part}.csv")
    return folder


def read(files, name, tmp_path, ranks, **options):
    source = shared(open_table([files / name]), ranks)
    folder = tmp_path / f"{ranks.size}-{ranks.number}"
    options = {"labels": ["fraud"], "positive": "yes", "drop": ["weight", "group", "odd", "late"], **options}
    options["drop"] = [one for one in options["drop"] if one in source.schema.names and one not in options.values()]
    options["drop"] = [one for one in options["drop"] if one not in options["labels"]]
    return prepare(source, folder=folder, seed=3, **options)


def plain(preparation) -> dict:
    return copy.deepcopy(preparation.to_dict())


def assert_close(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_close(one[name], other[name])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_close(first, second)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-12)
    else:
        assert one == other


@pytest.mark.parametrize("name", ["one.parquet", "csv"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": "weight"},
        {"group": "group"},
        {"time": "when"},
        {"labels": ["odd", "late"], "positive": None},
        {"memory": 1000},
    ],
    ids=["plain", "weights", "groups", "times", "labels", "on disk"],
)
def test_preparation_parts_and_remarks_do_not_depend_on_the_number_of_ranks(files, tmp_path, name, options):
    if name == "csv" and options.get("labels"):
        options = {"labels": ["odd", "known"], "positive": None, "drop": ["weight", "group"]}
    found = {size: in_ranks(lambda ranks: read(files, name, tmp_path, ranks, **options), size) for size in SIZES}
    one = found[1][0]
    for size in SIZES[1:]:
        for dataset in found[size]:
            assert_close(plain(dataset.preparation), plain(one.preparation))
            assert dataset.said == one.said
            assert dataset.remarks == one.remarks
            assert dataset.row_hashes == one.row_hashes
            assert_close(dataset.summary["rows"], one.summary["rows"])
            assert_close(dataset.summary["positives"], one.summary["positives"])
            assert dataset.summary["without_label"] == one.summary["without_label"]
            for part, whole in ((dataset.validation, one.validation), (dataset.test, one.test)):
                np.testing.assert_allclose(part.features[:], whole.features[:], rtol=1e-6, atol=1e-6)
                np.testing.assert_array_equal(part.labels, whole.labels)
                assert (part.weights is None) == (whole.weights is None)
        shares = [dataset.share for dataset in found[size]]
        assert sum(map(len, shares)) == len(one.train.labels)
        order = np.argsort(np.concatenate([numbers_of(share, size, rank, shares) for rank, share in enumerate(shares)]))
        labels = np.concatenate([dataset.train.labels for dataset in found[size]])[order]
        features = np.concatenate([dataset.train.features[:] for dataset in found[size]])[order]
        np.testing.assert_array_equal(labels, one.train.labels)
        np.testing.assert_allclose(features, one.train.features[:], rtol=1e-6, atol=1e-6)


def numbers_of(share, size, rank, shares) -> np.ndarray:
    """The place of each row of a rank among the training rows, from the lengths of all runs."""
    turns = max(len(one.lengths) for one in shares)
    lengths = [[one.lengths[turn] if turn < len(one.lengths) else 0 for one in shares] for turn in range(turns)]
    starts = np.cumsum([0, *np.array(lengths).reshape(-1)])[:-1].reshape(turns, size)
    return np.concatenate([starts[turn, rank] + np.arange(length) for turn, length in enumerate(share.lengths)])


def test_a_file_is_opened_once_for_all_of_its_groups_unless_it_is_named_twice():
    one, two = Path("one"), Path("two")
    runs = [FileRun(one, group, 5) for group in (0, 2, 4, 1, 3)] + [FileRun(two, group, 5) for group in (0, 2)]
    assert by_file(runs) == [(one, [0, 2, 4]), (one, [1, 3]), (two, [0, 2])]
    assert by_file([FileRun(one, None, 5)] * 2) == [(one, None)] * 2


def test_turns_go_on_where_those_before_them_ended():
    def work(ranks):
        taken = []
        found = [in_turns(lambda index: taken.append(index) or 10 * index, count, ranks) for count in (1, 5, 0, 2)]
        return taken, found

    results = in_ranks(work, 2)
    assert [found for _, found in results] == [[[0], [0, 10, 20, 30, 40], [], [0, 10]]] * 2
    assert [taken for taken, _ in results] == [[0, 2, 4, 1], [0, 1, 3, 0]]


def test_more_processes_than_groups_of_rows_are_refused(files):
    with pytest.raises(ValueError, match="8 processes cannot share 7 files"):
        in_ranks(lambda ranks: shared(open_table([files / "csv"]), ranks), 8)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rows.parquet", "1 row group: start fewer, or write the Parquet files with a smaller row_group_size"),
        ("rows.arrow", "1 record batch: start fewer, or write the files with smaller record batches"),
        ("rows.csv", "1 file: start fewer, or write the rows to more files"),
    ],
)
def test_one_group_of_rows_is_refused_with_what_helps(tmp_path, name, told):
    write(rows_of(50), tmp_path / name)
    with pytest.raises(ValueError, match=f"2 processes cannot share {told}"):
        in_ranks(lambda ranks: shared(open_table([tmp_path / name]), ranks), 2)


@pytest.mark.parametrize("size", SIZES)
def test_rows_find_their_place(size):
    lengths = np.array([3, 0, 5, 2, 4, 1, 0, 6, 2])
    numbers = np.random.default_rng(0).permutation(int(lengths.sum()))

    def work(ranks):
        share = RowShare(lengths[ranks.number :: ranks.size], ranks)
        everyones = np.arange(share.total) * 10
        own = share.own(everyones)
        assert share.collect(own).tolist() == everyones.tolist()
        even = share.select(np.flatnonzero(own % 20 == 0))
        assert even.total == len(everyones[::2])
        return own[share.local(numbers)], len(share)

    found = in_ranks(work, size)
    assert sum(count for _, count in found) == lengths.sum()
    assert sorted(np.concatenate([rows for rows, _ in found]).tolist()) == (np.arange(len(numbers)) * 10).tolist()
    for rows, _ in found:  # each in the order of the numbers
        assert rows.tolist() == [number * 10 for number in numbers if number * 10 in set(rows.tolist())]


def test_rows_held_back_do_not_depend_on_the_number_of_ranks():
    lengths = np.array([30, 17, 40, 3, 25, 60])
    classes = (np.random.default_rng(1).random(lengths.sum()) < 0.2).astype(int)
    whole = held_back(classes, 30, seed=4)[1]
    whole_share = RowShare(lengths, ALONE)
    assert len(whole_share) == len(classes)

    def work(ranks):
        share = RowShare(lengths[ranks.number :: ranks.size], ranks)
        held = held_back(share.own(classes), 30, seed=4, share=share)[1]
        return share.own(np.arange(len(classes)))[held]

    for size in SIZES[1:]:
        assert sorted(np.concatenate(in_ranks(work, size)).tolist()) == sorted(whole.tolist())


def test_the_first_rank_alone_works_out_the_fingerprint_of_one_process(files):
    source = open_table([files / "one.parquet"])
    found = in_ranks(lambda ranks: begin_fingerprint(shared(source, ranks))(), 2)
    assert found == [source.fingerprint, ""]
    assert begin_fingerprint(source)() == source.fingerprint


def test_a_file_that_is_gone_when_its_fingerprint_is_wanted_is_named(files):
    gone = shared(open_table([files / "one.parquet"]), ThreadRanks(0, 2, None, []))
    waiting = begin_fingerprint(replace(gone, paths=(files / "gone.parquet",)))
    with pytest.raises(DataError, match=r"gone\.parquet"):
        waiting()
