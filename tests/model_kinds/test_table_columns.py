"""Trees read the columns of a table: categories as sets, missing numbers as missing."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline

import aimfor
from aimfor.estimator import Extras, fit_classifier
from aimfor.model_folder import export_onnx, load_model, save_model
from aimfor.model_kinds import TableColumn, TableColumns
from aimfor.tables import Preparation
from aimfor.training import Observer

lightgbm = pytest.importorskip("lightgbm")

from aimfor.boosting._walk import CATEGORICAL  # noqa: E402

COLUMNS = TableColumns((TableColumn(0, missing=1), TableColumn(2, categories=3), TableColumn(5)), 6)


def test_columns_of_features():
    features = np.array([[0.5, 0, 0, 1, 0, 7], [0, 1, 1, 0, 0, 8], [2, 0, 0, 0, 0, 9]])
    wanted = [[0.5, 1, 7], [np.nan, 0, 8], [2, np.nan, 9]]
    np.testing.assert_array_equal(COLUMNS.apply(features), wanted)
    assert COLUMNS.categorical == [1]
    np.testing.assert_array_equal(COLUMNS.of_features(np.array([1.0, 2.0, 3.0])), [1, 0, 2, 0, 0, 3])
    assert TableColumns.read(COLUMNS.to_list(), 6) == COLUMNS


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (None, "columns must be a list of at most 6"),
        ([], "columns must be a list of at most 6"),
        ([[0, 0, -1]] * 7, "columns must be a list of at most 6"),
        ([[0, 0]], "a column must be 3 numbers"),
        ([[0, True, -1]], "a column must be 3 numbers"),
        ([[0.0, 0, -1]], "a column must be 3 numbers"),
        ([[6, 0, -1]], "a column must lie within 6 features"),
        ([[-1, 0, -1]], "a column must lie within 6 features"),
        ([[4, 3, -1]], "a column must lie within 6 features"),
        ([[0, -1, -1]], "a column must lie within 6 features"),
        ([[0, 0, 6]], "a column must lie within 6 features"),
    ],
)
def test_damaged_columns_are_refused(entries, message):
    with pytest.raises(ValueError, match=message):
        TableColumns.read(entries, 6)


def rows_of(count=1500, seed=0):
    """A table whose label hangs on sets of categories and on what is missing."""
    rng = np.random.default_rng(seed)
    town = rng.integers(0, 90, count)  # more than have a feature of their own
    colour = rng.choice(["red", "green", "blue"], count)
    size = rng.normal(size=count)
    absent = rng.random(count) < 0.2
    chance = 0.05 + 0.5 * (town % 5 == 0) + 0.3 * absent * (colour == "red")
    table = pa.table(
        {
            "town": pa.array([f"town {one}" for one in town]),
            "size": pa.array(np.where(absent, np.nan, size), from_pandas=True),
            "colour": pa.array(np.where(rng.random(count) < 0.1, None, colour)),
            "day": pa.array(np.datetime64("2024-01-01") + rng.integers(0, 700, count)),
        }
    )
    return table, (rng.random(count) < chance).astype(int)


def fitted(table, labels, model="trees"):
    preparation = Preparation().fit(table)
    classifier = aimfor.Classifier("aucpr", model=model, steps=40, random_state=0)
    features = preparation.transform(table)
    fit_classifier(classifier, features, labels, None, None, Observer(), Extras(preparation.table_columns))
    return preparation, classifier


def test_a_preparation_gives_the_columns_back():
    table, _ = rows_of()
    preparation = Preparation().fit(table)
    spans, columns = preparation.spans, preparation.table_columns
    assert [name for name, _, _ in spans] == table.schema.names
    assert spans[-1][2] == columns.num_features == len(preparation.feature_names_out)
    read = columns.apply(preparation.transform(table))
    town, size, colour = read[:, 0], read[:, 1], read[:, 2]
    _, codes = np.unique(table["town"].to_numpy(), return_inverse=True)
    counts = np.bincount(codes)
    frequent = counts[codes] >= np.sort(counts)[-50]
    pairs = set(zip(codes[frequent], town[frequent], strict=True))
    assert len(pairs) == len({code for code, _ in pairs}) == len({one for _, one in pairs})
    np.testing.assert_array_equal(np.isnan(size), table["size"].is_null().to_numpy())
    absent = table["colour"].is_null().to_numpy()
    assert set(colour[absent]) == {3.0}  # being missing is a category of its own
    assert set(colour[~absent]) == {0.0, 1.0, 2.0}
    assert not np.isnan(colour).any()


def test_forests_split_by_sets_of_categories_and_store_themselves(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    table, labels = rows_of()
    table = table.drop_columns(["day", "town"]).append_column("group", pa.array([f"g{i % 40}" for i in range(1500)]))
    preparation, classifier = fitted(table, labels)
    decisions = np.concatenate([forest.decision for forest in classifier.model_.averages[0].forests])
    assert (decisions & CATEGORICAL).any()
    features = preparation.transform(table)
    save_model(tmp_path / "run", classifier, preparation=preparation)
    loaded = load_model(tmp_path / "run")
    np.testing.assert_array_equal(loaded.classifier.raw_scores(features), classifier.raw_scores(features))
    export_onnx(loaded.classifier, loaded.preparation, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    given = {}
    for name in preparation.inputs:
        column = table[name]
        text = pa.types.is_string(column.type)
        cells = [("" if text else np.nan) if one is None else one for one in column.to_pylist()]
        given[name] = np.array(cells, dtype=object if text else np.float64)[:, None]
    score, decision = session.run(["score", "decision"], given)
    np.testing.assert_allclose(score, classifier.raw_scores(features), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(decision[:, 0], classifier.predict(features))


def test_scores_are_those_of_lightgbm_on_the_columns():
    table, labels = rows_of()
    preparation = Preparation().fit(table)
    columns = preparation.table_columns
    read = columns.apply(preparation.transform(table))
    data = lightgbm.Dataset(read, labels, categorical_feature=columns.categorical, params={"verbose": -1})
    booster = lightgbm.train({"objective": "binary", "verbose": -1, "num_leaves": 8, "seed": 0}, data, 40)
    theirs = booster.predict(read, raw_score=True)
    ours = aimfor.boosting.from_lightgbm(booster).scores(read)
    assert np.abs(ours - theirs).max() <= 1e-6 * np.abs(theirs).max()


def test_auto_averages_trees_of_columns_with_models_of_features(tmp_path):
    table, labels = rows_of(800)
    preparation, classifier = fitted(table, labels, "auto")
    save_model(tmp_path / "run", classifier, preparation=preparation)
    again = make_pipeline(preparation, classifier).decision_function(table)
    np.testing.assert_array_equal(aimfor.load(tmp_path / "run").decision_function(table), again)
