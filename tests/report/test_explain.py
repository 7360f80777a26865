"""Why a model decides as it does: shuffled columns, split gain, coefficients and mean scores."""

import json

import numpy as np
import pyarrow as pa
import pytest

import aimfor
from aimfor.estimator import Extras, fit_classifier
from aimfor.report import _importance as module
from aimfor.report import explain
from aimfor.tables import Preparation, grid_of
from aimfor.tables._features import Words
from aimfor.training import Observer


def rows_of(count, seed):
    rng = np.random.default_rng(seed)
    town = rng.choice(["Bonn", "Rome", "Oslo"], count, p=[0.5, 0.3, 0.2])
    age = rng.normal(50, 10, count)
    absent = rng.random(count) < 0.2
    chance = 0.1 + 0.6 * (town == "Rome") + 0.2 * absent
    table = pa.table(
        {
            "town": town,
            "age": pa.array(np.where(absent, np.nan, age), from_pandas=True),
            "day": np.datetime64("2024-01-01") + rng.integers(0, 400, count),
            "mail": [f"jane{number}@example.org" for number in range(count)],
        }
    )
    return table, (rng.random(count) < chance).astype(int)


@pytest.fixture(scope="module", params=["trees", "linear", "mlp"])
def found(request):
    if request.param == "trees":
        pytest.importorskip("lightgbm")
    table, labels = rows_of(900, 0)
    preparation = Preparation(drop=["mail"]).fit(table)
    model = aimfor.Classifier("aucpr", model=request.param, steps=40, random_state=0)
    extras = Extras(preparation.table_columns)
    fit_classifier(model, preparation.transform(table), labels, None, None, Observer(), extras)
    unseen, labels = rows_of(500, 1)
    return explain(model, preparation.transform(unseen), labels[:, None], None, preparation, Observer()), model


def test_columns_come_by_their_worth_with_what_their_kind_has(found):
    facts, model = found
    names = [column["name"] for column in facts["columns"]]
    assert names[0] == "town"
    assert set(names) == {"town", "age", "day"}
    assert facts["metric"] == "aucpr"
    assert (facts["rows"], facts["of_rows"], facts["repeats"], facts["not_shuffled"]) == (500, 500, 5, 0)
    first = facts["columns"][0]
    assert first["drop"] > 0.1
    assert 0 < first["spread"] < first["drop"]
    if model.model == "trees":
        np.testing.assert_allclose(sum(column["gain"] for column in facts["columns"]), 1)
    else:
        assert first["gain"] is None
    if model.model == "linear":
        assert first["coefficients"][0]["feature"] == "town = Rome"
    else:
        assert first["coefficients"] is None


def test_mean_scores_of_the_strongest_follow_the_label(found):
    facts, _ = found
    by_name = {entry["name"]: entry for entry in facts["dependence"]}
    assert set(by_name) == {"town", "age", "day"}
    town = dict(zip(by_name["town"]["values"], by_name["town"]["scores"], strict=True))
    assert town["Rome"] > town["Bonn"]
    assert by_name["town"]["missing"] is None
    ages = by_name["age"]["values"]
    assert ages == sorted(ages)
    assert len(ages) == 11
    assert 20 < ages[0] < ages[-1] < 80
    assert by_name["age"]["missing"] is not None
    assert by_name["day"]["values"][0].startswith("2024-01")


def test_texts_have_no_values_to_ask_about():
    assert grid_of(Words("note", "text", 4), np.zeros((3, 4))) is None


def test_nothing_of_a_dropped_column_appears(found):
    text = json.dumps(found[0], allow_nan=False)
    assert "jane" not in text
    assert "mail" not in text


def test_many_columns_and_rows_are_bounded_and_a_stop_ends_it_early(monkeypatch):
    monkeypatch.setattr(module, "MOST_COLUMNS", 3)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 8))
    y = (X[:, 6] > 1).astype(int)
    model = aimfor.Classifier("aucpr", model="mlp", steps=40, random_state=0).fit(X, y)

    class Stopping(Observer):
        steps = 0

        def on_batch_end(self, stage, step, steps):
            assert stage == "importance"
            self.steps = step

        def should_stop(self):
            return self.steps == 2

    facts = explain(model, X, y[:, None], None, None, Stopping())
    assert facts["columns"][0]["name"] == "feature 6"
    assert (len(facts["columns"]), facts["not_shuffled"], facts["rows"], facts["repeats"]) == (3, 5, 2000, 2)
    assert facts["dependence"][0]["name"] == "feature 6"


def test_rows_of_one_class_have_no_importance():
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = aimfor.Classifier("aucpr", model="linear", steps=20, random_state=0).fit(X, X[:, 0] > 0)
    assert explain(model, X, np.zeros((200, 1), int), None, None, Observer()) is None
