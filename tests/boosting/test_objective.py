"""The aim as an objective of boosting: derivatives by finite differences, the solved state, both libraries."""

import numpy as np
import pytest

import aimfor
from aimfor.boosting import metric, objective, starting_score
from aimfor.boosting._objective import (
    GRADIENT_SHARE,
    AimedObjective,
    Rows,
    Solved,
    focus_derivatives,
    log_loss_derivatives,
    ratio_derivatives,
    solve,
)

AIMS = (
    "recall@precision>=0.7",
    "recall@precision>=0.7; band=1.5",
    "precision@recall>=0.9",
    "tpr@fpr<=0.05",
    "fpr@tpr>=0.8",
    "aucpr",
    "aucpr[recall>=0.5]",
    "aucroc[fpr<=0.2]",
    "f1",
    "f2",
)


def rows(seed=0, count=400, prior=0.2):
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < prior).astype(np.float64)
    return Rows(rng.normal(size=count) * 1.5 + 1.5 * labels - 1, labels, rng.random(count) + 0.5)


def softplus(values):
    return np.logaddexp(0, values)


def ratio_loss(scores, data: Rows, solved: Solved, share):
    """What `ratio_derivatives` says it derives, one value per row."""
    sign = np.where(data.labels == 1, -1.0, 1.0)
    value = (1 - share) * softplus(sign * scores)
    for threshold, width, ratio in zip(*solved, strict=True):
        weight = np.where(data.labels == 1, 2 / (1 + ratio), 2 * ratio / (1 + ratio))
        value = value + share * width * weight * softplus(sign * (scores - threshold))
    return data.weights * value


def focus_loss(scores, data: Rows, solved: Solved, share):
    near = np.zeros(len(scores))
    for threshold, width in zip(solved.thresholds, solved.widths, strict=True):
        near += width / (4 * np.cosh((data.scores - threshold) / 2) ** 2)  # of the scores before the step
    near /= np.average(near, weights=data.weights)
    sign = np.where(data.labels == 1, -1.0, 1.0)
    return data.weights * (1 - share + share * near) * softplus(sign * scores)


@pytest.mark.parametrize("text", AIMS)
@pytest.mark.parametrize(("derive", "loss"), [(ratio_derivatives, ratio_loss), (focus_derivatives, focus_loss)])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_derivatives_by_finite_differences(text, derive, loss, share):
    data = rows()
    solved = solve(aimfor.aim(text), data, data)
    gradient, hessian = derive(data, solved, share)
    step = 1e-4
    below, here, above = (loss(data.scores + shift, data, solved, share) for shift in (-step, 0, step))
    np.testing.assert_allclose(gradient, (above - below) / (2 * step), rtol=1e-6, atol=1e-9)
    curvature = hessian - GRADIENT_SHARE * np.abs(gradient)
    np.testing.assert_allclose(curvature, (above - 2 * here + below) / step**2, rtol=1e-4, atol=1e-6)
    assert (hessian > 0).all()


@pytest.mark.parametrize("text", AIMS)
def test_the_ratio_makes_thresholds_stationary_where_it_is_not_clipped(text):
    data = rows()
    aim = aimfor.aim(text)
    solved = solve(aim, data, data)
    clipped = np.zeros(len(solved.ratios), bool)
    for place in range(len(solved.ratios)):
        losses = []
        for shift in (-1e-4, 1e-4):
            moved = solved._replace(thresholds=solved.thresholds + shift * (np.arange(len(clipped)) == place))
            losses.append(ratio_loss(data.scores, data, moved, 1.0).sum())
        slope = (losses[1] - losses[0]) / 2e-4 / data.weights.sum()
        clipped[place] = abs(slope) > 1e-7
    if text.startswith("recall@precision") or text == "aucpr":
        precision = 1 - aim.anchors(*_prior(data)).slack.numpy().ravel()
        np.testing.assert_allclose(solved.ratios[clipped], (precision / (1 - precision))[clipped], rtol=1e-9)
    else:
        assert not clipped.any()


def _prior(data):
    import torch

    from aimfor.aims import NO_RATES

    return torch.tensor([np.average(data.labels, weights=data.weights)], dtype=torch.float64), NO_RATES


def test_the_ratio_of_a_precision_is_clipped():
    """Scores that say nothing: the error of the negatives may weigh a / (1 - a) at most."""
    data = rows(prior=0.6)
    data = data._replace(scores=np.zeros(len(data.labels)))
    solved = solve(aimfor.aim("recall@precision>=0.55"), data, data)
    positives = np.average(data.labels, weights=data.weights)
    assert positives / (1 - positives) > 0.55 / 0.45
    np.testing.assert_allclose(solved.ratios, [0.55 / 0.45])


@pytest.mark.parametrize("text", [text for text in AIMS if "auc" not in text and "band" not in text])
def test_thresholds_are_those_of_the_exact_metric(text):
    data = rows(3)
    aim = aimfor.aim(text)
    threshold = solve(aim, data, data).thresholds[0]
    decided = data.scores >= threshold
    found, passed = (np.average(decided[data.labels == k], weights=data.weights[data.labels == k]) for k in (1, 0))
    prior = np.average(data.labels, weights=data.weights)
    precision = found * prior / (found * prior + passed * (1 - prior))
    values = {"recall": found, "tpr": found, "fpr": passed, "precision": precision}
    name = text.split("@")[0]
    best = aim.metric(data.labels, data.scores, sample_weight=data.weights)
    if name in values:
        assert values[name] == pytest.approx(best)
    else:
        beta = float(text[1:]) ** 2
        assert (1 + beta) * precision * found / (beta * precision + found) == pytest.approx(best)


def test_where_no_threshold_is_allowed_the_highest_is_taken():
    data = rows()
    data = data._replace(scores=-data.scores)
    assert solve(aimfor.aim("recall@precision>=0.99"), data, data).thresholds == data.scores.max()


def test_a_ratio_of_one_is_log_loss():
    data = rows()
    solved = Solved(np.zeros(1), np.ones(1), np.ones(1))
    for derive in (ratio_derivatives, focus_derivatives):
        gradient, hessian = derive(data, solved, 0.5 if derive is ratio_derivatives else 1e-12)
        plain, curvature = log_loss_derivatives(data)
        np.testing.assert_allclose(gradient, plain, rtol=1e-9)
        np.testing.assert_allclose(hessian, curvature + GRADIENT_SHARE * np.abs(plain), rtol=1e-9)


@pytest.mark.parametrize("scores", [np.zeros(400), np.linspace(-800, 800, 400), np.repeat([-1e6, 1e6], 200)])
@pytest.mark.parametrize("text", AIMS)
@pytest.mark.parametrize("derive", [ratio_derivatives, focus_derivatives])
def test_extreme_scores_give_finite_derivatives(scores, text, derive):
    data = rows()._replace(scores=scores)
    for derivative in derive(data, solve(aimfor.aim(text), data, data), 0.5):
        assert np.isfinite(derivative).all()


def test_weights_of_two_change_no_state_and_double_the_derivatives():
    data = rows()
    doubled = data._replace(weights=2 * data.weights)
    aim = aimfor.aim("aucpr")
    one, two = solve(aim, data, data), solve(aim, doubled, doubled)
    for entry, other in zip(one, two, strict=True):
        np.testing.assert_allclose(entry, other, rtol=1e-12)
    for derive in (ratio_derivatives, focus_derivatives):
        for entry, other in zip(derive(data, one, 0.5), derive(doubled, two, 0.5), strict=True):
            np.testing.assert_allclose(2 * entry, other, rtol=1e-12)


# In the training calls


def table(seed, count=4000):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 6))
    chance = 1 / (1 + np.exp(-(2.5 * X[:, 0] + 1.5 * X[:, 1] * X[:, 2] - 3.5)))
    return X, (rng.random(count) < chance).astype(int)


def boost_lightgbm(aim, *, weights=None, **options):
    lightgbm = pytest.importorskip("lightgbm")
    (X, y), (X_held, y_held) = table(0), table(1)
    start = starting_score(y, weights)
    aimed = objective(aim, **options)
    data = lightgbm.Dataset(X, y, weight=weights, init_score=np.full(len(y), start))
    held = lightgbm.Dataset(X_held, y_held, init_score=np.full(len(y_held), start), reference=data)
    history = {}
    settings = {"objective": aimed, "metric": "none", "num_leaves": 4, "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(
        *(settings, data, 40),
        valid_sets=[held],
        feval=metric(aim, feeds=aimed),
        callbacks=[lightgbm.record_evaluation(history)],
    )
    return booster.predict(X_held, raw_score=True) + start, y_held, history["valid_0"], aimed


def boost_xgboost(aim, *, weights=None, **options):
    xgboost = pytest.importorskip("xgboost")
    (X, y), (X_held, y_held) = table(0), table(1)
    aimed = objective(aim, **options)
    data, held = xgboost.DMatrix(X, y, weight=weights), xgboost.DMatrix(X_held, y_held)
    history = {}
    settings = {
        "base_score": starting_score(y, weights),
        "max_depth": 2,
        "nthread": 1,
        "disable_default_eval_metric": True,
    }
    booster = xgboost.train(
        *(settings, data, 40),
        obj=aimed,
        evals=[(held, "valid_0")],
        custom_metric=metric(aim, feeds=aimed),
        evals_result=history,
        verbose_eval=False,
    )
    return booster.predict(held, output_margin=True), y_held, history["valid_0"], aimed


BOOSTS = [boost_lightgbm, boost_xgboost]


@pytest.mark.parametrize("boost", BOOSTS)
@pytest.mark.parametrize("text", ["tpr@fpr<=0.05", "recall@precision>=0.6; band=1.5", "f1", "fpr@tpr>=0.8"])
@pytest.mark.parametrize("options", [{}, {"method": "focus", "log_loss_rounds": 10}])
def test_both_libraries_boost_for_an_aim(boost, text, options):
    scores, labels, history, aimed = boost(text, **options)
    ((name, values),) = history.items()
    assert name == text.replace(" ", "")
    assert len(values) == 40
    aim = aimfor.aim(text)
    # XGBoost prints its metric with six digits and reads it back.
    assert values[-1] == pytest.approx(aim.metric(labels, scores), abs=1e-5)
    better = values[-1] > values[0] if aim.greater_is_better else values[-1] < values[0]
    assert better
    assert aimfor.metrics.roc_auc(labels, scores) > 0.85
    assert aimed.solved is not None


@pytest.mark.parametrize("boost", BOOSTS)
def test_the_state_comes_from_the_rows_that_are_measured(boost, monkeypatch):
    """The threshold of the last round is one of the held-out scores, which had one round less."""
    measured, observe = [], AimedObjective.observe

    def recorded(self, scores, data):
        measured.append(np.array(scores, np.float64))
        observe(self, scores, data)

    monkeypatch.setattr(AimedObjective, "observe", recorded)
    *_, aimed = boost("tpr@fpr<=0.05")
    assert len(measured) == 40
    assert aimed.solved.thresholds[0] in measured[-2]
    assert aimed.solved.thresholds[0] not in measured[-1]


@pytest.mark.parametrize("boost", BOOSTS)
def test_weights_reach_the_objective(boost):
    weights = np.random.default_rng(0).random(4000)
    plain, weighted = boost("tpr@fpr<=0.05")[0], boost("tpr@fpr<=0.05", weights=weights)[0]
    assert not np.allclose(plain, weighted)
    assert np.corrcoef(plain, weighted)[0, 1] > 0.9


def test_rounds_of_log_loss_are_those_of_lightgbm():
    """40 rounds of log-loss give the scores of LightGBM's own objective."""
    lightgbm = pytest.importorskip("lightgbm")
    scores, *_, aimed = boost_lightgbm("f1", log_loss_rounds=40)
    assert aimed.solved is None
    X, y = table(0)
    settings = {"objective": "binary", "num_leaves": 4, "verbose": -1, "num_threads": 1}
    own = lightgbm.train(settings, lightgbm.Dataset(X, y), 40)
    np.testing.assert_allclose(scores, own.predict(table(1)[0], raw_score=True), rtol=1e-4, atol=1e-5)


def test_without_held_out_rows_the_training_rows_give_the_state():
    aimed, data = objective("f1"), rows()

    class Dataset:
        get_label, get_weight = staticmethod(lambda: data.labels), staticmethod(lambda: data.weights)

    gradient, _ = aimed(data.scores, Dataset())
    np.testing.assert_array_equal(aimed.solved.thresholds, solve(aimed.aim, data, data).thresholds)
    assert gradient.shape == data.scores.shape


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: objective("f1", method="other"), ValueError, "method must be one of 'ratio', 'focus'"),
        (lambda: objective("f1", share=0), ValueError, r"share must be in \(0, 1\]"),
        (lambda: objective("f1", log_loss_rounds=-1), ValueError, "log_loss_rounds must be at least 0"),
        (lambda: objective(aimfor.TPRAtFPR((0.1, 0.2))), ValueError, "aim must have one target"),
        (lambda: metric(aimfor.TPRAtFPR((0.1, 0.2))), ValueError, "aim must have one target"),
        (lambda: starting_score([1, 1]), ValueError, "labels must have both classes"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("labels", "message"),
    [(np.zeros(400), "both classes"), (np.full(400, 2), "0 or 1"), (np.zeros(3), "one for each of the 3 rows")],
)
def test_labels_that_are_not_of_one_label_are_refused(labels, message):
    class Dataset:
        get_label, get_weight = staticmethod(lambda: labels), staticmethod(lambda: None)

    with pytest.raises(ValueError, match=message):
        objective("f1")(np.zeros(400), Dataset())


@pytest.mark.parametrize("package", ["lightgbm", "xgboost"])
def test_scikit_learn_wrappers_are_refused_in_one_sentence(package):
    library = pytest.importorskip(package)
    classifier = library.LGBMClassifier if package == "lightgbm" else library.XGBClassifier
    data = rows()
    with pytest.raises(TypeError, match=r"got ndarray: call lightgbm\.train or xgboost\.train, not a scikit-learn"):
        classifier(objective=objective("f1"), n_estimators=2).fit(data.scores[:, None], data.labels)


def test_a_metric_refuses_arrays_of_labels():
    data = rows()
    with pytest.raises(TypeError, match="a Dataset of LightGBM or a DMatrix of XGBoost, got ndarray"):
        metric("f1")(data.labels, data.scores)
