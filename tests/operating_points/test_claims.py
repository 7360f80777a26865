"""What can be claimed at a threshold, rows in groups, and how many rows would do."""

import math
import re

import numpy as np
import pytest
from scipy import stats

import aimfor
from aimfor import LowConfidenceWarning, OperatingPoint, operating_point
from aimfor.operating_points import choose_points
from aimfor.operating_points._confidence import CONFIDENCES, walk_reaches, walk_starts, walk_tails, walked
from aimfor.operating_points._rows import LabelRows

AIMS = ["recall@precision>=0.8", "precision@recall>=0.8", "tpr@fpr<=0.05", "fpr@tpr>=0.8"]


def draw(rng, size, prior=0.4):
    labels = rng.random(size) < prior
    return labels, 2.0 * labels + rng.normal(size=size)


def population(threshold, prior=0.4):
    recall, fpr = stats.norm.sf(threshold - 2), stats.norm.sf(threshold)
    precision = prior * recall / (prior * recall + (1 - prior) * fpr)
    return {"precision": precision, "recall": recall, "tpr": recall, "fpr": fpr}


def kept(aim, threshold):
    value = population(threshold)[aim.constrained]
    return value >= aim.target if aim.sense == ">=" else value <= aim.target


# The claim


@pytest.mark.parametrize("text", AIMS)
def test_a_claim_made_after_the_choice_is_true_as_often_as_it_says(text):
    """A claim of at least c is wrong in at most 1 - c of all draws, for every c at once."""
    aim, rng, draws = aimfor.aim(text), np.random.default_rng(0), 600
    claims, broken = [], []
    for _ in range(draws):
        point = choose_points(*draw(rng, 200), aim)
        claims.append(0.0 if point.claimable is None else point.claimable)
        broken.append(point.threshold is not None and not kept(aim, point.threshold))
    claims, broken = np.array(claims), np.array(broken)
    assert 0.3 < broken.mean() < 0.8  # the choice without a confidence is a coin
    assert claims.max() > 0.3
    for confidence in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8):
        wrong = (broken & (claims >= confidence)).sum()
        assert wrong <= stats.binom.isf(1e-4, draws, 1 - confidence)


@pytest.mark.parametrize("text", ["precision@recall>=0.8", "tpr@fpr<=0.05"])
def test_the_claim_of_a_rate_that_falls_is_one_less_its_tail(text):
    labels, scores = draw(np.random.default_rng(1), 300)
    point, aim = choose_points(labels, scores, text), aimfor.aim(text)
    found = scores >= point.threshold
    if aim.constrained == "recall":
        tail = stats.binom.sf((found & labels).sum() - 1, labels.sum(), aim.target)
    else:
        tail = stats.binom.cdf((found & ~labels).sum(), (~labels).sum(), aim.target)
    assert point.claimable == pytest.approx(1 - tail)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("target", [0.5, 0.8, 0.95])
def test_a_walk_reaches_what_it_walks_through(seed, target):
    rng = np.random.default_rng(seed)
    labels, scores = draw(rng, int(rng.integers(1, 400)), prior=float(rng.uniform(0.2, 0.95)))
    tails = walk_tails(LabelRows(labels, scores, None), target)
    for level in (0.02, 0.2, 0.5, 0.9, 0.99):
        through = walked(tails, target, level)
        assert [walk_reaches(count, tails, target, level) for count in range(tails.size)] == through.tolist()


@pytest.mark.parametrize("target", [0.01, 0.3, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("prior", [0.1, 0.9])
def test_what_is_certified_at_a_confidence_is_certified_at_every_lower_one(target, prior):
    rng = np.random.default_rng(2)
    for size in (5, 40, 150, 1000):
        labels, scores = draw(rng, size, prior=prior)
        tails = walk_tails(LabelRows(labels, scores.round(1), None), target)
        before = np.zeros(size + 1, dtype=bool)
        for level in (0.001, 0.01, 0.05, 0.1, 0.2, 0.21, 0.3, 0.5, 0.7, 0.99):
            through = walked(tails, target, level)
            assert not (before & ~through).any()
            before = through


@pytest.mark.parametrize("n", [10, 1000, 100_000])
@pytest.mark.parametrize("target", [0.01, 0.5, 0.9, 0.999])
def test_shares_of_starts_use_up_the_level_and_no_more(n, target):
    for level in (0.001, 0.05, 0.2, 0.3, 0.5, 0.99):
        starts, shares = walk_starts(n, target, level)
        assert sum(shares) == pytest.approx(level)
        assert min(shares) > 0
        assert starts == sorted(set(starts))


@pytest.mark.parametrize("confidence", [None, 0.5, 0.9])
def test_the_order_of_rows_does_not_matter(confidence):
    rng = np.random.default_rng(4)
    for _ in range(10):
        labels, scores = draw(rng, 400, prior=0.5)
        scores = scores.round(0)
        point = choose_points(labels, scores, "recall@precision>=0.7", confidence=confidence)
        for _ in range(5):
            order = rng.permutation(400)
            assert choose_points(labels[order], scores[order], "recall@precision>=0.7", confidence=confidence) == point


@pytest.mark.parametrize("level", [0.05, 0.3])
def test_the_order_of_tied_rows_breaks_no_promise(level):
    """Blocks of equal scores, the upper ones below the precision or just at it: the hardest case for a walk."""
    rng, draws, target = np.random.default_rng(6), 2000, 0.8
    blocks, shares = np.array([4, 3, 2, 1, 0]), np.array([0.8, 0.78, 0.82, 0.79, 0.1])
    mass = np.array([0.15, 0.1, 0.2, 0.15, 0.4])
    precision = dict(zip(blocks, np.cumsum(shares * mass) / np.cumsum(mass), strict=True))
    broken = 0
    for _ in range(draws):
        block = rng.choice(5, 300, p=mass)
        labels, scores = rng.random(300) < shares[block], blocks[block].astype(float)
        point = choose_points(labels, scores, f"recall@precision>={target}", confidence=1 - level)
        broken += point.threshold is not None and precision[point.threshold] < target
    assert broken <= stats.binom.isf(1e-4, draws, level)


def test_the_claim_for_precision_is_the_highest_of_an_unbroken_run():
    labels, scores = draw(np.random.default_rng(3), 800)
    point = choose_points(labels, scores, "recall@precision>=0.8", confidence=0.7)
    rows = LabelRows(labels, scores, None)
    count, tails = int(point.counts.tp + point.counts.fp), walk_tails(rows, 0.8)
    run = [walked(tails, 0.8, 1 - confidence)[count] for confidence in CONFIDENCES]
    first_failure = run.index(False)
    assert point.claimable == max(0.7, CONFIDENCES[first_failure - 1] if first_failure else 0.0)


@pytest.mark.parametrize("text", AIMS)
def test_a_confidence_that_was_asked_for_can_be_claimed(text):
    for seed in range(20):
        point = choose_points(*draw(np.random.default_rng(seed), 300), text, confidence=0.9)
        assert point.threshold is None or point.claimable >= 0.9


@pytest.mark.parametrize("text", AIMS)
def test_a_confidence_of_one_half_holds_at_least_every_second_time(text):
    aim, rng, draws = aimfor.aim(text), np.random.default_rng(5), 300
    points = [choose_points(*draw(rng, 300), aim, confidence=0.5) for _ in range(draws)]
    broken = sum(point.threshold is not None and not kept(aim, point.threshold) for point in points)
    assert broken <= stats.binom.isf(1e-4, draws, 0.5)


def test_no_claim_without_constraint_threshold_or_equal_weights():
    labels, scores = draw(np.random.default_rng(0), 100)
    assert operating_point(labels, scores, "f1").claimable is None
    assert operating_point([0, 1], [2, 1], "recall@precision>=0.9").claimable is None
    weights = np.where(labels, 2.0, 1.0)
    assert operating_point(labels, scores, "precision@recall>=0.8", sample_weight=weights).claimable is None


def test_the_warning_names_the_weakest_claim():
    labels, scores = draw(np.random.default_rng(0), 200)
    message = r"the constraint of 'recall@precision>=0.8' can be claimed at its threshold with at most \d"
    with pytest.warns(LowConfidenceWarning, match=message) as caught:
        operating_point(labels, scores, "recall@precision>=0.8")
    assert caught[0].filename == __file__
    with pytest.warns(LowConfidenceWarning, match=r"and 1 more can be claimed"):
        operating_point(np.stack([labels] * 2, 1), np.stack([scores] * 2, 1), "recall@precision>=0.8")


@pytest.mark.filterwarnings("error::aimfor.LowConfidenceWarning")
def test_no_warning_where_the_claim_is_strong_or_was_asked_for():
    labels = np.arange(400) < 200
    operating_point(labels, -np.arange(400.0), "recall@precision>=0.8")
    operating_point(*draw(np.random.default_rng(0), 200), "recall@precision>=0.8", confidence=0.3)
    operating_point(*draw(np.random.default_rng(0), 200), "f1")


# Groups


def draw_groups(rng, num_groups, size):
    """Rows of a group share most of their score and all of their label."""
    group_labels = rng.random(num_groups) < 0.4
    groups = np.repeat(np.arange(num_groups), size)
    labels = group_labels[groups]
    shared = rng.normal(size=num_groups)[groups]
    return labels, 2.0 * labels + math.sqrt(0.9) * shared + math.sqrt(0.1) * rng.normal(size=groups.size), groups


def share_broken(text, confidence, with_groups, draws=300):
    aim, rng, broken, decided = aimfor.aim(text), np.random.default_rng(7), 0, 0
    for _ in range(draws):
        labels, scores, groups = draw_groups(rng, 150, 8)
        point = choose_points(labels, scores, aim, confidence=confidence, groups=groups if with_groups else None)
        decided += point.threshold is not None
        broken += point.threshold is not None and not kept(aim, point.threshold)
    return broken / draws, decided / draws


@pytest.mark.parametrize("text", ["recall@precision>=0.8", "precision@recall>=0.8", "tpr@fpr<=0.1"])
def test_the_promise_holds_for_groups(text):
    broken, decided = share_broken(text, 0.95, with_groups=True)
    assert broken <= stats.binom.isf(1e-4, 300, 0.05) / 300
    assert decided > 0.5
    # Rows that are counted as independent although they are not overstate the promise.
    assert share_broken(text, 0.95, with_groups=False)[0] > 0.12


@pytest.mark.parametrize("confidence", [None, 0.9])
@pytest.mark.parametrize("text", AIMS)
def test_groups_of_one_row_are_no_groups(text, confidence):
    labels, scores = draw(np.random.default_rng(2), 300)
    alone = choose_points(labels, scores, text, confidence=confidence)
    groups = np.random.default_rng(0).permutation(300)
    grouped = choose_points(labels, scores, text, confidence=confidence, groups=[f"g{code}" for code in groups])
    assert (grouped.threshold, grouped.claimable) == (alone.threshold, alone.claimable)
    assert (grouped.num_groups, alone.num_groups) == (300, None)


@pytest.mark.filterwarnings("ignore::aimfor.LowConfidenceWarning")
def test_groups_in_the_record():
    labels, scores, groups = draw_groups(np.random.default_rng(0), 100, 4)
    point = operating_point(labels, scores, "recall@precision>=0.8", confidence=0.9, groups=groups)
    assert (point.num_rows, point.num_groups, point.intervals) == (400, 100, None)
    assert sum(point.counts) == 400
    assert "400 rows in 100 groups" in str(point)
    assert "can be claimed for a row of a new group" in str(point)
    assert OperatingPoint.from_json(point.to_json()) == point
    plain = operating_point(labels, scores, "recall@precision>=0.8")
    grouped = operating_point(labels, scores, "recall@precision>=0.8", groups=groups)
    assert grouped.threshold == plain.threshold  # the best on these rows, whoever they belong to


BAD_GROUPS = [
    ([1, 2], ValueError, "groups must have one entry for each of the 3 rows, got shape (2,)"),
    ([[1], [2], [3]], ValueError, "groups must have one entry for each of the 3 rows, got shape (3, 1)"),
    ([1.0, math.nan, 2.0], ValueError, "groups must name a group for every row, got none for row 1"),
    (np.array(["a", None, "b"], dtype=object), ValueError, "groups must name a group for every row, got none for row"),
    (np.array(["a", 1, "b"], dtype=object), TypeError, "groups must be values of one kind that can be sorted"),
    ("abc", ValueError, "groups must have one entry for each of the 3 rows, got shape ()"),
]


@pytest.mark.parametrize(("groups", "error", "message"), BAD_GROUPS)
def test_bad_groups(groups, error, message):
    with pytest.raises(error, match=re.escape(message)):
        operating_point([0, 1, 1], [0.1, 0.2, 0.3], "recall@precision>=0.5", groups=groups)


# How many rows would do


@pytest.mark.parametrize(
    ("text", "size"), [("recall@precision>=0.9", 80), ("precision@recall>=0.9", 60), ("tpr@fpr<=0.02", 120)]
)
def test_the_rows_that_would_probably_do_mostly_do(text, size):
    rng, found, asked = np.random.default_rng(0), 0, 0
    for _ in range(60):
        point = choose_points(*draw(rng, size), text, confidence=0.95)
        if point.threshold is None and (match := re.search(r"about ([\d,]+) rows", point.reason)):
            asked += 1
            more = int(match[1].replace(",", ""))
            assert more > size
            found += choose_points(*draw(rng, more), text, confidence=0.95).threshold is not None
    assert asked >= 20
    assert found > 0.6 * asked


def test_no_number_of_rows_helps_where_the_best_is_too_low():
    rng = np.random.default_rng(0)
    labels = rng.random(500) < 0.1
    point = operating_point(labels, np.zeros(500), "recall@precision>=0.9", confidence=0.95)
    assert point.reason.endswith("with 95 % confidence (more rows like these would probably not do)")
