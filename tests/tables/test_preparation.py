"""Columns are understood and become features, by what the training rows have."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import Pipeline

import aimfor
from aimfor._base.errors import DataError
from aimfor.tables._columns import Column, said, understand
from aimfor.tables._preparation import Preparation
from aimfor.tables._table import MemoryTable
from aimfor.tables._tallies import TextTally
from program_rows import opened, prepared, rows_of, whole, write


def test_what_is_understood_is_said(tmp_path):
    data = prepared(opened(write(rows_of(), tmp_path / "r.parquet")), tmp_path)
    dropped = "3 dropped: id (all unique), key (all unique), same (constant)"
    assert data.said == f"2 numeric, 1 boolean, 1 categorical, 1 date, {dropped}"
    json.dumps(data.summary, allow_nan=False)
    by_name = {column["name"]: column for column in data.summary["columns"]}
    assert "fraud" not in by_name
    assert by_name["town"]["categories"][0][1] > 50
    assert 0.05 < by_name["amount"]["missing"] < 0.15
    assert by_name["amount"]["mean"] == pytest.approx(100, abs=5)
    assert sum(data.summary["rows"].values()) == 600
    assert data.summary["positives"]["test"]["fraud"] == data.test.labels.sum()


def test_types_give_kinds():
    schema = pa.schema(
        {
            "a": pa.decimal128(5, 2),
            "b": pa.uint8(),
            "c": pa.float16(),
            "d": pa.large_string(),
            "e": pa.list_(pa.int8()),
            "f": pa.time32("s"),
            "g": pa.null(),
            "h": pa.binary(),
            "__index_level_0__": pa.int64(),
            "w": pa.float64(),
        }
    )
    columns = understand(schema, others={"w": "weight"}, categorical=["b"], drop=["a"])
    assert [(column.kind, column.reason) for column in columns] == [
        ("dropped", "asked"),
        ("categorical", None),
        ("numeric", None),
        ("categorical", None),
        ("dropped", "nested"),
        ("dropped", "time of day or duration"),
        ("dropped", "all missing"),
        ("dropped", "binary"),
        ("dropped", "index"),
        ("dropped", "weight"),
    ]
    assert said([Column("x", "numeric")] * 2) == "2 numeric"


def test_wishes_win(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("zip,n,y\n" + "".join(f"{index % 7:03d},{index},{index % 2}\n" for index in range(70)))
    data = prepared(opened(path), tmp_path, labels=["y"], categorical=["zip"], numeric=["n"])
    assert data.said == "1 numeric, 1 categorical"
    # Codes are kept as they are written, in training and in a file to score, where they could all be numbers.
    assert sorted(data.preparation.parts_[0].categories) == [f"{index:03d}" for index in range(7)]
    (tmp_path / "new.csv").write_text("n,zip\n3,006\n4,6\n")
    assert whole(opened(tmp_path / "new.csv"), data.preparation)[:, :7].sum(axis=1).tolist() == [1, 0]
    data = prepared(opened(path), tmp_path, labels=["y"], drop=["n"])
    assert data.said == "1 numeric, 1 dropped: n (asked)"


def test_many_texts_are_counted_within_bounds(monkeypatch):
    monkeypatch.setattr("aimfor.tables._tallies.MOST_COUNTED", 50)
    random, tally = np.random.default_rng(0), TextTally()
    for _ in range(50):
        values = [*(f"r{key}" for key in random.integers(0, 10**9, 40)), *["often"] * 8, *["more"] * 9]
        tally.add_("x", pa.array(values))
    assert len(tally.counts) <= 50
    assert tally.most_common(2) == [("more", 450), ("often", 400)]


def test_only_training_rows_are_learned_from(tmp_path):
    rows = rows_of()
    data = prepared(opened(write(rows, tmp_path / "r.parquet")), tmp_path)
    elsewhere = pa.array(data.split != 0)
    changed = rows.set_column(2, "amount", pc.if_else(elsewhere, 1e6, rows["amount"]))
    changed = changed.set_column(5, "town", pc.if_else(elsewhere, "Oslo", rows["town"]))
    changed = changed.set_column(6, "same", pc.if_else(elsewhere, "other", rows["same"]))
    other = prepared(opened(write(changed, tmp_path / "c.parquet")), tmp_path)
    assert other.preparation.to_dict() == data.preparation.to_dict()
    np.testing.assert_array_equal(other.train.features, data.train.features)
    assert not np.array_equal(other.test.features, data.test.features)


@given(
    columns=st.fixed_dictionaries(
        {
            "x": st.lists(st.none() | st.floats(-1e30, 1e30), min_size=12, max_size=12),
            "n": st.lists(st.none() | st.integers(-(2**62), 2**62), min_size=12, max_size=12),
            "b": st.lists(st.none() | st.booleans(), min_size=12, max_size=12),
            "t": st.lists(st.none() | st.text("ab\U0001f600", max_size=2), min_size=12, max_size=12),
        }
    )
)
@settings(max_examples=60, deadline=None)
def test_a_stored_preparation_is_the_same_and_features_are_as_defined(columns):
    types = {"x": pa.float64(), "n": pa.int64(), "b": pa.bool_(), "t": pa.string()}
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    try:
        preparation = Preparation.learn(MemoryTable(table))
    except DataError as error:
        assert "no column is left to learn from" in str(error)  # noqa: PT017
        return
    features = preparation.transform(table)
    stored = Preparation.from_dict(json.loads(json.dumps(preparation.to_dict(), allow_nan=False)))
    np.testing.assert_array_equal(stored.transform(table.select(["t", "b", "n", "x"])), features)
    assert np.isfinite(features).all()
    named = dict(zip(preparation.feature_names_out, features.T, strict=True))
    kept = {column.name: column.kind for column in preparation.columns_ if column.kind != "dropped"}
    for name, kind in kept.items():
        values = columns[name]
        missing = np.array([value is None for value in values])
        assert (f"{name} is missing" in named) == missing.any()
        if missing.any():
            np.testing.assert_array_equal(named[f"{name} is missing"], missing)
        if kind == "categorical":
            for text in set(values) - {None}:
                np.testing.assert_array_equal(named[f"{name} = {text}"], [value == text for value in values])
        elif kind == "boolean":
            assert named[name][~missing].tolist() == [float(value) for value in values if value is not None]
        else:
            present = np.array([value for value in values if value is not None], dtype=float)
            if present.std() > 1e-3:  # below it both are made of rounding alone
                expected = (present - present.mean()) / present.std()
                np.testing.assert_allclose(named[name][~missing], expected, atol=1e-5)
            assert (named[name][missing] == 0).all()


def test_unseen_rare_and_missing_values():
    train = pa.table({"t": [f"c{index:02d}" for index in range(70) for _ in range(2)], "x": [1.0, 3.0] * 70})
    preparation = Preparation.learn(MemoryTable(train))
    assert len(preparation.parts_[0].categories) == 64
    new = pa.table({"x": [None, 3.0, float("nan"), 1], "more": [1, 2, 3, 4], "t": ["c00", "c69", "never", None]})
    features = preparation.transform(new)
    assert features[:, :64].sum(axis=1).tolist() == [1, 0, 0, 0]
    assert features[:, 64].tolist() == [0, 1, 1, 0]  # rare and unseen ones share a feature
    assert features[:, 65].tolist() == [0, 1, 0, -1]


def test_categories_by_count_then_name():
    preparation = Preparation(categorical=["t"]).fit(pa.table({"t": ["b", "c", "a", "c", "b", None]}))
    assert preparation.feature_names_out == ["t = b", "t = c", "t = a", "t is missing"]


def test_numbers_as_categories_are_one_text_whatever_their_type():
    preparation = Preparation(categorical=["n"]).fit(pa.table({"n": [1, 10**10, 1, 3]}))
    as_floats = pa.table({"n": [1.0, 1e10, None, 3.5]})
    assert preparation.transform(as_floats).sum(axis=1).tolist() == [1, 1, 0, 0]


def test_large_means_and_tiny_scales_are_kept_exact():
    values = np.array([1e9, 1e9 + 1e-3, 1e9 + 2e-3] * 100)
    part = Preparation.learn(MemoryTable(pa.table({"x": values}))).parts_[0]
    assert part.mean == pytest.approx(values.mean(), rel=1e-15)
    assert part.scale == pytest.approx((values - values.mean()).std(), rel=1e-6)
    tiny = Preparation.learn(MemoryTable(pa.table({"x": [0.0, 5e-324]}))).transform(pa.table({"x": [0.0, 5e-324]}))
    assert np.isfinite(tiny).all()


def test_mean_and_scale_over_several_batches():
    values = np.random.default_rng(0).normal(5, 2, 200_000)
    part = Preparation.learn(MemoryTable(pa.table({"x": values}))).parts_[0]
    assert (part.mean, part.scale) == pytest.approx((values.mean(), values.std()), rel=1e-12)


def test_as_a_step_of_scikit_learn():
    rows = rows_of(400).drop_columns(["when"]).to_pandas()
    X, y = rows.drop(columns="fraud"), rows["fraud"]
    preparation = Preparation(drop=["known"])
    model = Pipeline(
        [
            ("preparation", clone(preparation)),
            ("classifier", aimfor.Classifier(model="linear", steps=50, random_state=0)),
        ]
    )
    model.fit(X, y)
    expected = model.predict(X)
    assert set(expected) <= {"no", "yes"}
    arrow = pa.Table.from_pandas(X)
    np.testing.assert_array_equal(model.predict(arrow), expected)
    np.testing.assert_array_equal(model.predict(arrow.to_batches()[0]), expected)
    names = model[0].get_feature_names_out()
    assert "amount is missing" in names
    assert "known" not in names
    assert model[0].transform(X[:0]).shape == (0, len(names))


STORED = {
    "columns": [
        {"name": "x", "kind": "numeric", "mean": 0.5, "scale": 2.0, "missing": True},
        {"name": "b", "kind": "boolean", "mean": 0.5, "scale": 1.0, "missing": False},
        {"name": "t", "kind": "categorical", "categories": ["a", "b"], "missing": False},
    ]
}


@pytest.mark.parametrize(
    ("column", "entry", "value"),
    [
        (0, "mean", float("nan")),
        (0, "mean", "1"),
        (0, "mean", True),
        (0, "mean", 10**400),
        (0, "scale", 0),
        (0, "scale", -1.0),
        (0, "scale", float("inf")),
        (0, "missing", 1),
        (0, "name", None),
        (0, "name", "t"),
        (0, "name", "\ud800"),
        (0, "kind", "other"),
        (0, "kind", ["numeric"]),
        (0, "more", 1),
        (1, "mean", 2),
        (2, "categories", "ab"),
        (2, "categories", ["a", "a"]),
        (2, "categories", ["a", 1]),
        (2, "categories", [str(index) for index in range(65)]),
    ],
)
def test_a_damaged_preparation_is_refused(column, entry, value):
    from aimfor._base.errors import ModelFileError

    assert Preparation.from_dict(STORED).to_dict() == STORED
    damaged = json.loads(json.dumps(STORED))
    damaged["columns"][column][entry] = value
    with pytest.raises(ModelFileError, match=r"must .*, got ") as caught:
        Preparation.from_dict(damaged)
    assert "\n" not in str(caught.value)
    for other in (None, [], {}, {"columns": {}}, {"columns": []}, {"columns": [1]}, {"columns": None, "x": 1}):
        with pytest.raises(ModelFileError):
            Preparation.from_dict(other)
