"""Decisions of the estimator: which rows choose them, labels that are rare or never there, thresholds and chances."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError

import aimfor
from aimfor.cli._fit import deciding_rows
from aimfor.estimator._holdout import LabelledRows, divided, held_share, with_choosing
from aimfor.model_kinds import _networks
from aimfor.operating_points import decided_point
from aimfor.tables._dataset import SplitPart

QUICK = {"steps": 40, "batch_size": 64, "random_state": 0}
PRECISE = "recall@precision>=0.6"


def one_label(rows=600, seed=0):
    return make_classification(rows, 8, weights=[0.7], class_sep=1.5, random_state=seed)


def two_labels(rows=500, edge=2.4):
    X = np.random.default_rng(0).normal(size=(rows, 4))
    return X, np.c_[X[:, 0] > 0, X[:, 1] > edge].astype(int)


# Which rows choose


@pytest.mark.parametrize("surrogate", ["auto", "hinge", "log_loss"])
@pytest.mark.parametrize("given", [False, True])
def test_with_a_confidence_the_rows_of_the_threshold_did_not_choose_the_model(monkeypatch, surrogate, given):
    X, y = one_label()
    other = one_label(seed=1) if given else None
    seen = []

    def compete(training, **options):
        seen.append(training.validation.rows)
        return whole(training, **options)

    whole = _networks.compete
    monkeypatch.setattr(_networks, "compete", compete)
    model = aimfor.Classifier(PRECISE, surrogate=surrogate, confidence=0.9, calibrate=True, **QUICK)
    model.fit(X, y, validation_data=other)
    X_held, y_held = (X, y) if other is None else other
    looked_at, point = seen[0].index, model.operating_point_
    held = 120 if other is None else len(y_held)
    assert (len(looked_at), point.num_rows) == (round((600 if given else 480) / 8), held)
    assert point.source == ("the given validation rows" if given else "the validation rows")
    if given:
        chosen = model.raw_scores(X)
        alone = aimfor.operating_point(
            y_held, model.raw_scores(X_held)[:, 0], PRECISE, confidence=0.9, source=point.source
        )
        assert point == alone
        other_rows = (np.zeros_like(X_held), y_held)  # another threshold of the same model
        np.testing.assert_array_equal(model.fit(X, y, validation_data=other_rows).raw_scores(X), chosen)
    else:
        fitted, held_out = divided(
            LabelledRows(X, y[:, None], None), 0.2, int(np.random.RandomState(0).randint(2**31 - 1))
        )
        assert set(looked_at) <= set(fitted.index)
        assert not set(looked_at) & set(held_out.index)


@pytest.mark.parametrize("options", [{}, {"solver": "search", "confidence": 0.9}, {"solver": "lp", "confidence": 0.9}])
def test_rows_that_choose_nothing_else_are_all_for_the_threshold(options):
    X, y = one_label(200)
    classifier = aimfor.Classifier(PRECISE, model="linear", **QUICK, **options)
    share = held_share(aimfor.aim(PRECISE), classifier, LabelledRows(X, y[:, None], None))
    point = classifier.fit(X, y).operating_point_
    also = ", which also chose the model" if not options else ""
    assert (point.num_rows, point.source) == (round(200 * share), f"the validation rows{also}")
    assert (share > 0.2) == bool(options)


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("confidence", [None, 0.9])
def test_the_program_knows_which_rows_chose_the_threshold(labels, confidence):
    X, y = one_label()
    X_held, y_held = one_label(seed=1)
    y, y_held = (y, y_held) if labels == 1 else (np.c_[y, 1 - y], np.c_[y_held, 1 - y_held])
    weights = np.ones(len(X_held))
    weights[::5] = 0
    model = aimfor.Classifier("tpr@fpr<=0.3", model="linear", confidence=confidence, **QUICK)
    model.fit(X, y, validation_data=(X_held, y_held, weights))
    rows = deciding_rows(SplitPart(X_held, y_held, weights))
    points = model.operating_point_ if labels == 2 else (model.operating_point_,)
    for label, point in enumerate(points):
        own, scores = y_held.reshape(len(X_held), -1)[rows, label], model.raw_scores(X_held[rows])[:, label]
        assert point == decided_point(own, scores, aimfor.aim("tpr@fpr<=0.3"), confidence, source=point.source)


def test_rows_that_choose_the_model_have_their_share_of_every_class():
    classes = np.repeat([0, 1, 2], [80, 40, 16])
    rows = LabelledRows(None, classes[:, None], None, 100 + np.arange(136))
    fitted, choosing = with_choosing(rows, rows, aimfor.Classifier(PRECISE, model="linear", confidence=0.9))
    assert [np.bincount(part.labels[:, 0]).tolist() for part in (fitted, choosing)] == [[70, 35, 14], [10, 5, 2]]
    assert sorted(np.concatenate([fitted.index, choosing.index])) == list(range(100, 236))
    assert with_choosing(rows, fitted, aimfor.Classifier(PRECISE, model="linear")) == (rows, fitted)


def test_a_class_of_one_training_row_is_refused():
    X, y = one_label(200)
    few = np.flatnonzero(y == 0)[:20].tolist() + np.flatnonzero(y == 1)[:1].tolist()
    with pytest.raises(ValueError, match=r"^confidence needs 2 training rows of each class, got 1$"):
        aimfor.Classifier(PRECISE, model="linear", confidence=0.9, **QUICK).fit(X[few], y[few], validation_data=(X, y))


@pytest.mark.parametrize(
    ("text", "confidence", "positives", "share"),
    [
        ("recall@precision>=0.9", None, 100, 0.2),
        ("recall@precision>=0.9", 0.95, 1000, 0.2),
        ("recall@precision>=0.9", 0.95, 500, 4 * np.log(0.05 / 3) / np.log(0.9) / 500),
        ("precision@recall>=0.9", 0.95, 100, 0.5),
        ("tpr@fpr<=0.01", 0.95, 8000, 0.5),
        ("tpr@fpr<=0.01", 0.95, 100, 0.2),
    ],
)
def test_the_share_follows_from_what_the_test_needs(text, confidence, positives, share):
    labels = (np.arange(10000) < positives)[:, None].astype(np.uint8)
    classifier = aimfor.Classifier(text, model="linear", confidence=confidence)
    assert held_share(aimfor.aim(text), classifier, LabelledRows(None, labels, None)) == pytest.approx(share)


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("labels", [1, 2])
def test_given_validation_rows_of_one_class_are_refused(value, labels):
    X, y = one_label()
    y, same = (y, np.full(50, value)) if labels == 1 else (np.c_[y, y], np.full((50, 2), value))
    with pytest.raises(ValueError, match=r"^validation_data must hold rows of both classes of a label, got one class"):
        aimfor.Classifier(model="linear", **QUICK).fit(X, y, validation_data=(X[:50], same))


def test_where_nothing_can_be_judged_the_last_look_is_kept():
    X = np.random.default_rng(0).normal(size=(40, 3))
    Y = np.zeros((40, 2), dtype=int)
    Y[3, 0] = Y[7, 1] = 1  # hardly ever held back
    model = aimfor.Classifier("f1", model="mlp", **QUICK).fit(X, Y)
    assert [row["step"] for row in model.history_] == [40] * len(model.history_)


def test_validation_rows_of_weight_zero_are_absent():
    X, y = one_label()
    X_held, y_held = one_label(seed=1)
    weights = np.ones(len(y_held))
    weights[:200] = 0
    one = aimfor.Classifier(model="linear", **QUICK).fit(X, y, validation_data=(X_held, y_held, weights))
    other = aimfor.Classifier(model="linear", **QUICK).fit(
        X, y, validation_data=(X_held[200:], y_held[200:], weights[200:])
    )
    assert one.history_ == other.history_
    assert one.operating_point_ == other.operating_point_
    for bad, message in ((-weights, "Negative values"), (0 * weights, "above 0|non-zero")):
        with pytest.raises(ValueError, match=message):
            aimfor.Classifier(model="linear", **QUICK).fit(X, y, validation_data=(X_held, y_held, bad))


# Labels that are rare or never there


def test_a_label_that_was_positive_in_training_is_not_predicted_absent():
    X, Y = two_labels()
    Y = np.c_[Y, np.zeros(len(Y), dtype=int)]
    options = QUICK | {"surrogate": "log_loss", "steps": 150, "learning_rate": 0.05}
    model = aimfor.Classifier(PRECISE, model="linear", confidence=0.9, **options).fit(X, Y)
    assert model.operating_point_[0].threshold is not None
    assert model.operating_point_[1].num_positives == 0  # among the rows that choose
    told = r"no threshold of label 1 qualifies for 'recall@precision>=0\.6': "
    with pytest.warns(aimfor.NoThresholdWarning, match=f"^{told}"):
        found = model.predict(X)
    assert found[:, 0].any()
    assert not found[:, 1].any()
    with pytest.raises(ValueError, match=f"^predict needs a threshold, but {told}"):
        model.set_params(on_no_threshold="raise").predict(X)
    assert model.operating_point_[2].reason == "the label was never positive"
    plain = model.set_params(aim="f1", confidence=None).fit(X, Y)
    assert not plain.predict(X)[:, 2].any()


def test_a_label_that_was_positive_in_an_earlier_call_is_not_predicted_absent():
    X, Y = two_labels(edge=1.0)
    model = aimfor.Classifier("f1", model="linear", **QUICK).partial_fit(X, Y * [1, 0])
    assert not model.predict(X)[:, 1].any()
    point = model.partial_fit(X, Y).operating_point_[1]
    model.partial_fit(X, Y * [1, 0])
    assert model.operating_point_[1] is point
    np.testing.assert_array_equal(model.predict(X)[:, 1], point.predict(model.raw_scores(X)[:, 1]))


@pytest.mark.parametrize("given", [False, True])
def test_a_label_that_lacks_a_class_takes_curve_and_threshold_from_the_same_rows(given):
    X, Y = two_labels()
    held = (X[:50], Y[:50] * [1, 0]) if given else None
    model = aimfor.Classifier("f1", calibrate=True, surrogate="log_loss", **QUICK).fit(X, Y, validation_data=held)
    point = model.operating_point_[1]
    rows, lacking = ("the training rows", "the given validation rows") if given else ("all rows", "the validation rows")
    assert point.source == f"{rows}, {lacking} lacking a class"
    assert model.predict(X)[:, 1].sum() == point.counts.tp + point.counts.fp
    found = model.predict_proba(X)[:, 1]
    assert found[Y[:, 1] == 1].mean() > found[Y[:, 1] == 0].mean() > 0


def test_chances_are_those_of_the_last_fit():
    X, y = one_label()
    model = aimfor.Classifier(model="linear", calibrate=True, **QUICK).fit(X, y)
    model.set_params(calibrate=False).fit(-X, y)
    with pytest.raises(NotFittedError, match=r"^predict_proba needs a fit with calibrate, got one without$"):
        model.set_params(calibrate=True).predict_proba(X)
    with pytest.raises(NotFittedError):
        aimfor.Classifier(model="linear", calibrate=True).predict_proba(X)
