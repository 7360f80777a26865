"""Groups of dependent rows in `Classifier`: splits keep them together, and a confidence counts groups."""

import numpy as np
import pytest

import aimfor
from aimfor._base.splitting import groups_held_back
from aimfor.estimator._holdout import LabelledRows, divided, held_share, with_choosing

QUICK = {"model": "linear", "steps": 40, "batch_size": 64, "random_state": 0}
AIM = "precision@recall>=0.7"


def grouped(groups=300, size=4, seed=0):
    """Rows of a group share a part of their feature and, mostly, their label."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(groups), size)
    of_group = rng.random(groups) < 0.3
    y = np.where(rng.random(groups * size) < 0.9, of_group[codes], rng.random(groups * size) < 0.3)
    X = np.c_[2.0 * y + rng.normal(size=groups)[codes] + rng.normal(size=groups * size), rng.normal(size=groups * size)]
    return X, y.astype(int), codes


def test_no_group_is_on_two_sides():
    X, y, groups = grouped()
    whole = LabelledRows(X, y[:, None].astype(np.uint8), None, groups=groups)
    fitted, held_out = divided(whole, 0.2, seed=0)
    training, choosing = with_choosing(fitted, held_out, aimfor.Classifier(AIM, confidence=0.9, **QUICK))
    parts = [set(part.groups.tolist()) for part in (training, choosing, held_out)]
    assert [one & other for one, other in zip(parts, parts[1:] + parts[:1], strict=True)] == [set()] * 3
    assert set.union(*parts) == set(groups.tolist())
    assert abs(len(held_out.labels) - 240) <= 4


def test_groups_that_cannot_be_divided_are_not():
    assert groups_held_back(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]), 2, seed=0) is None


def test_a_confidence_counts_one_row_of_each_group():
    X, y, groups = grouped()
    model = aimfor.Classifier(AIM, confidence=0.9, **QUICK).fit(X, y, groups=groups)
    point = model.operating_point_
    assert point.num_groups is not None
    assert point.num_rows == 4 * point.num_groups
    assert point.intervals is None
    assert point.threshold is None or point.claimable >= 0.9
    whole = LabelledRows(X, y[:, None], None)
    shares = [held_share(aimfor.aim(AIM), model, whole._replace(groups=given)) for given in (None, groups)]
    assert shares[1] > shares[0]


def test_groups_of_given_validation_rows():
    X, y, groups = grouped()
    other = grouped(seed=1)
    model = aimfor.Classifier(AIM, confidence=0.9, **QUICK)
    model.fit(X, y, groups=groups, validation_data=(other[0], other[1], None, other[2]))
    assert model.operating_point_.num_groups == 300


@pytest.mark.parametrize(
    ("groups", "validation", "message"),
    [
        (np.arange(3), None, "groups must have one entry for each of the 1200 rows"),
        ("own", "without", "validation_data must have groups if fit has them"),
        (None, "with", "validation_data must have groups if fit has them"),
        ("none", None, "groups must name a group for every row"),
    ],
)
def test_bad_groups(groups, validation, message):
    X, y, codes = grouped()
    given = (
        {"own": codes, "none": np.where(codes == 3, np.nan, codes)}.get(groups, groups)
        if isinstance(groups, str)
        else groups
    )
    held_out = {None: None, "without": (X, y), "with": (X, y, None, codes)}[validation]
    with pytest.raises(ValueError, match=message):
        aimfor.Classifier(AIM, **QUICK).fit(X, y, groups=given, validation_data=held_out)


def test_the_source_says_whether_the_rows_also_chose_the_model():
    rng = np.random.default_rng(0)
    y = (rng.random(1000) < 0.25).astype(int)
    X = 2.0 * y[:, None] + rng.normal(size=(1000, 2))
    also = ", which also chose the model"
    model = aimfor.Classifier("recall@precision>=0.8", **QUICK).fit(X, y)
    assert model.operating_point_.source == f"the validation rows{also}"
    given = aimfor.Classifier("recall@precision>=0.8", **QUICK).fit(X, y, validation_data=(X, y))
    assert given.operating_point_.source == f"the given validation rows{also}"
    sure = aimfor.Classifier("recall@precision>=0.8", confidence=0.9, **QUICK).fit(X, y)
    assert sure.operating_point_.source == "the validation rows"


def test_a_confidence_finds_a_threshold_for_30_000_rows():
    rng = np.random.default_rng(0)
    y = (rng.random(30_000) < 0.22).astype(int)
    X = np.c_[1.7 * y + rng.normal(size=30_000), rng.normal(size=(30_000, 3))]
    model = aimfor.Classifier("recall@precision>=0.7", confidence=0.95, **QUICK).fit(X, y)
    point = model.operating_point_
    assert point.threshold is not None
    assert point.num_rows == 6000  # all rows held out
    few = aimfor.Classifier("recall@precision>=0.9", confidence=0.95, **QUICK).fit(X[:600], y[:600])
    assert few.operating_point_.threshold is None
    assert "rows like these would probably" in few.operating_point_.reason
