"""Labels are read as zeros and ones, and rows are split into parts that have both."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aimfor._base.errors import DataError
from aimfor.tables._labels import read_labels
from aimfor.tables._split import split_rows
from aimfor.tables._table import MemoryTable


@pytest.mark.parametrize(
    ("values", "positive", "classes", "expected"),
    [
        ([0, 1, 1], None, ("0", "1"), [0, 1, 1]),
        ([-1.0, 1.0, -1.0], None, ("-1", "1"), [0, 1, 0]),
        ([10, 9, 10], None, ("10", "9"), [0, 1, 0]),
        ([True, False, True], None, ("false", "true"), [1, 0, 1]),
        ([True, False, True], "False", ("true", "false"), [0, 1, 0]),
        (["good", "bad", "good"], None, ("good", "bad"), [0, 1, 0]),
        (["good", "bad", "good", "bad"], None, ("bad", "good"), [1, 0, 1, 0]),
        ([1, 1, 0], None, ("0", "1"), [1, 1, 0]),
        (["a", "b", "c", "a"], "a", ("not a", "a"), [1, 0, 0, 1]),
        (["good", "bad", "good"], "bad", ("good", "bad"), [0, 1, 0]),
    ],
)
def test_two_classes(values, positive, classes, expected):
    labels = read_labels(MemoryTable(pa.table({"y": values})), ["y"], positive)
    assert (labels.names, labels.classes, labels.values.tolist()) == (("y",), classes, expected)
    assert labels.values.dtype == np.uint8


def test_several_labels():
    table = MemoryTable(pa.table({"a": [0, 1], "b": [True, False], "c": [["y", "x"], []]}))
    assert read_labels(table, ["a", "b"]).values.tolist() == [[0, 1], [1, 0]]
    lists = read_labels(table, ["c"])
    assert (lists.names, lists.values.tolist()) == (("x", "y"), [[1, 1], [0, 0]])


def test_labels_that_a_model_knows():
    def read(values, known):
        return read_labels(MemoryTable(pa.table({"y": values})), ["y"], known=known)

    assert read(["no", "no"], ("no", "yes")).values.tolist() == [0, 0]
    assert read(["bad", "good"], ("good", "bad")).values.tolist() == [1, 0]
    lists = read([["b"], ["b", "c"]], ("c", "a", "b"))
    assert (lists.names, lists.values.tolist()) == (("c", "a", "b"), [[0, 0, 1], [1, 0, 1]])
    for values in (["no", "other"], [["other"], ["no"]]):
        with pytest.raises(DataError, match="label column 'y' holds 'other', but the model knows 'no', 'yes'"):
            read(values, ("no", "yes"))


def test_rows_without_a_label_are_marked():
    for values in ([0, 1, None], [0, 1.0, float("nan")], [["a"], [], None]):
        labels = read_labels(MemoryTable(pa.table({"y": values})), ["y"])
        assert labels.present is not None
        assert labels.present.tolist() == [True, True, False]
    labels = read_labels(MemoryTable(pa.table({"y": [0, 1, 1], "z": [0, None, 1]})), ["y", "z"])
    assert labels.present is not None
    assert labels.present.tolist() == [True, False, True]


def test_three_classes_and_the_sentence_on_the_positive_one():
    labels = read_labels(MemoryTable(pa.table({"y": ["b", "a", "c", "b", None]})), ["y"])
    assert (labels.names, labels.classes) == (("a", "b", "c"), ("a", "b", "c"))
    assert labels.values[:4].tolist() == [1, 0, 2, 1]
    assert labels.choice == "y: each of 3 classes against the others: a (1), b (2), c (1)"
    labels = read_labels(MemoryTable(pa.table({"y": ["ok", "fraud", "ok"]})), ["y"])
    assert labels.choice == "Positive class: y = fraud (1 of 3 rows, the rarer one)"
    labels = read_labels(MemoryTable(pa.table({"y": ["9007199254740993", "9007199254740992"]})), ["y"])
    assert set(labels.classes) == {"9007199254740993", "9007199254740992"}


def test_label_lists_over_batches():
    rows = [[f"l{index % 5}", f"l{index % 3}"] if index % 7 else [] for index in range(150_000)]
    labels = read_labels(MemoryTable(pa.table({"y": rows})), ["y"])
    expected = [[int(f"l{name}" in row) for name in range(5)] for row in rows[-20:]]
    assert labels.values[-20:].tolist() == expected


@pytest.mark.parametrize(
    ("columns", "names", "positive", "message"),
    [
        ({"y": [1, 1]}, ["y"], None, "label column 'y' holds only '1': two classes are needed"),
        ({"y": list(range(5000))}, ["y"], None, "label column 'y' has more than 50 values"),
        ({"y": [None, None]}, ["y"], None, "label column 'y' holds no values: two classes are needed"),
        ({"y": ["a", "b"]}, ["y"], "c", "--positive: column 'y' holds no 'c'; its values are 'a', 'b'"),
        ({"y": list("abcdef")}, ["y"], "g", r"its values are 'a', 'b', 'c', 'd', 'e', \.\.\.$"),
        ({"is_fraud": [0, 1]}, ["is_frod"], None, "--label: the data have no column 'is_frod'; did you mean"),
        ({"y": [0, 1]}, [], None, "no label: name the column to predict with --label"),
        ({"y": [0, 1]}, ["y", "y"], None, "--label names a column twice: y, y"),
        (
            {"y": [0, 1], "z": [0, 2]},
            ["y", "z"],
            None,
            "label column 'z' holds 2: of several labels, each holds 0 and 1",
        ),
        ({"y": [0, 1], "z": ["a", "b"]}, ["y", "z"], None, "column 'z' holds 'a', where numbers are needed"),
        (
            {"y": [0, 1], "z": [0, 1]},
            ["y", "z"],
            "1",
            "--positive is for a single label, and there are several: leave out '1'",
        ),
        ({"y": [["a"], [None]]}, ["y"], None, "has lists with 1 missing labels"),
        ({"y": [[], []]}, ["y"], None, "label column 'y' has empty lists only"),
        (
            {"y": [datetime.date(2024, 1, 1)] * 2},
            ["y"],
            None,
            "label column 'y' holds date32.day.: texts, numbers, truth values",
        ),
    ],
)
def test_bad_labels(columns, names, positive, message):
    with pytest.raises(DataError, match=message) as caught:
        read_labels(MemoryTable(pa.table(columns)), names, positive)
    assert "\n" not in str(caught.value)


# Splits


@given(st.integers(6, 300), st.floats(0.05, 0.4), st.floats(0.05, 0.4), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_rows_are_split_by_class(n, validation, test, seed):
    labels = (np.random.default_rng(seed).random(n) < 0.3).astype(np.uint8)
    labels[:3], labels[3:6] = 0, 1
    try:
        parts = split_rows(labels, validation=validation, test=test, seed=seed)
    except DataError as error:
        assert "larger share" in str(error)  # noqa: PT017
        assert labels.sum() < 12 or (1 - labels).sum() < 12
        return
    np.testing.assert_array_equal(parts, split_rows(labels, validation=validation, test=test, seed=seed))
    for part, share in ((1, validation), (2, test)):
        for kind in (0, 1):
            size = (labels == kind).sum()
            assert abs(((parts == part) & (labels == kind)).sum() - share * size) <= 2


def test_a_large_set_holds_back_no_more_than_is_asked_for():
    labels = (np.arange(10_000) % 10 == 0).astype(np.uint8)
    options = {"validation": 0.3, "test": 0.2, "seed": 1, "most_validation": 500}
    for by in ({}, {"groups": np.arange(10_000) // 7}, {"times": np.arange(10_000) // 3}):
        counts = np.bincount(split_rows(labels, **options, **by))
        assert 490 < counts[1] <= 500
        assert 490 < counts[2] <= 500


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_groups_stay_together(seed):
    random = np.random.default_rng(seed)
    groups = random.choice([f"g{index}" for index in range(60)], 1000, p=random.dirichlet(np.ones(60)))
    labels = random.integers(0, 2, 1000).astype(np.uint8)
    parts = split_rows(labels, validation=0.2, test=0.3, seed=seed, groups=groups)
    for group in np.unique(groups):
        assert len(set(parts[groups == group])) == 1
    assert np.bincount(parts) / 1000 == pytest.approx([0.5, 0.2, 0.3], abs=0.05)


def test_the_latest_rows_are_the_test():
    times = np.random.default_rng(0).integers(0, 50, 1000)
    labels = (np.arange(1000) % 2).astype(np.uint8)
    parts = split_rows(labels, validation=0.2, test=0.2, seed=0, times=times)
    assert times[parts == 0].max() < times[parts == 1].min()
    assert times[parts == 1].max() < times[parts == 2].min()
    assert np.bincount(parts) / 1000 == pytest.approx([0.6, 0.2, 0.2], abs=0.03)


def test_a_part_of_share_0_is_empty():
    labels = (np.arange(100) % 2).astype(np.uint8)
    assert np.bincount(split_rows(labels, validation=0.2, test=0, seed=0)).tolist() == [80, 20]


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 1] * 9, {"validation": 1.0}, r"the share of validation rows must be in \[0, 1\), got 1.0"),
        ([0, 1] * 9, {"test": -0.1}, r"the share of test rows must be in \[0, 1\), got -0.1"),
        ([0, 1] * 9, {"validation": 0.5, "test": 0.5}, "no rows are left to train: validation takes 0.5 and test 0.5"),
        ([0] * 9 + [1, 1], {}, "too few positives: 3 are needed, one for each part, and there are 2"),
        ([1] * 9 + [0, 0], {}, "too few negatives: 3 are needed, one for each part, and there are 2"),
        ([0] * 9, {}, "too few positives: 3 are needed, one for each part, and there are 0"),
        (
            [1] * 6 + [0] * 6,
            {"times": np.arange(12)},
            "the test rows have no positives",
        ),
        ([0, 1] * 6, {"times": np.zeros(12)}, "there are no test rows"),
        ([0, 1] * 6, {"groups": np.zeros(12)}, "there are no .* rows: give that part"),
        ([0, 1] * 6, {"groups": np.zeros(12), "times": np.zeros(12)}, "--group and --time cannot be combined"),
        ([[0, 0]] * 9, {}, "the train rows have no positives"),
    ],
)
def test_bad_splits(labels, options, message):
    options = {"validation": 0.2, "test": 0.2, "seed": 0} | options
    with pytest.raises(DataError, match=message):
        split_rows(np.array(labels, dtype=np.uint8), **options)
