"""The page in a browser: the number at the chosen threshold first, warnings, counts, costs and segments."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

import aimfor
from aimfor import cli
from aimfor.report import measure_label
from aimfor.report._page import render
from browser import chromium, resize

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with a leak and segments, one of which has a hostile name."""
    random = np.random.default_rng(0)
    x = random.normal(size=(900, 2))
    frame = pd.DataFrame(x, columns=["a", "b"])
    frame["country"] = random.choice(["DE", "FR", NASTY], 900)
    frame["y"] = np.where(x.sum(1) + random.normal(size=900) > 1.2, "yes", "no")
    frame["z"] = np.where(frame["y"] == "yes", random.normal(5, 0.1, 900), random.normal(0, 0.1, 900))
    folder = tmp_path_factory.mktemp("decision")
    frame.to_csv(folder / "rows.csv", index=False)
    options = [
        "--label",
        "y",
        "--aim",
        "recall@precision>=0.8",
        "--model",
        "linear",
        "--steps",
        "20",
        "--by",
        "country",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["aimfor", "fit", str(folder / "rows.csv"), *options, "--out", str(folder / "run")])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert not ended.value.code
    return folder / "run"


@pytest.fixture(scope="module")
def browser(tmp_path_factory, folder):
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        resize(driver, 1200)
        driver.get((folder / "report.html").as_uri())
        yield driver


def texts(browser, selector):
    return [node.get_attribute("textContent") for node in browser.find_elements("css selector", selector)]


def test_segments_are_measured_with_intervals_and_add_up(folder):
    (label,) = json.loads((folder / "metrics.json").read_text())["labels"]
    assert [one["segment"] for one in label["segments"]].count(NASTY) == 1
    for count in ("tp", "fp", "fn", "tn"):
        assert sum(one[count] for one in label["segments"]) == label["operating"][count]
    assert all(one["intervals"]["recall"][0] <= one["recall"] for one in label["segments"])


def test_the_first_tile_is_the_objective_at_the_threshold_and_the_best_threshold_is_named(browser, folder):
    (label,) = json.loads((folder / "metrics.json").read_text())["labels"]
    assert texts(browser, "#label .tiles dt")[:3] == ["Recall", "Precision", "False-positive rate"]
    assert label["metric"]["at_threshold"]["value"] == label["operating"]["recall"]
    assert "95 % interval" in texts(browser, "#label .tiles dd")[0]
    (best,) = texts(browser, ".best")
    assert best.startswith("For comparison only, at the best threshold of these very rows: recall@precision>=0.8")


def test_warnings_stand_before_all_numbers(browser):
    (item,) = texts(browser, "#warnings li")
    assert item.startswith("Leak: column 'z'")
    order = "return document.getElementById('warnings').compareDocumentPosition(document.getElementById('label'))"
    assert browser.execute_script(order) & 4  # the numbers follow


def test_the_matrix_and_its_cost_follow_threshold_and_prices(browser, folder):
    from selenium.webdriver.common.keys import Keys

    (label,) = json.loads((folder / "metrics.json").read_text())["labels"]
    counts = label["operating"]
    shown = [int(text.replace(",", "")) for text in texts(browser, ".matrix td")]
    assert shown == [counts["tp"], counts["fn"], counts["fp"], counts["tn"]]
    for name, price in (("cost-fp", "2"), ("cost-fn", "30")):
        box = browser.find_element("id", name)
        box.clear()
        box.send_keys(price)
    cost = float(browser.find_element("id", "cost").get_attribute("value"))
    assert cost == pytest.approx(1000 * (2 * counts["fp"] + 30 * counts["fn"]) / label["rows"])
    browser.find_element("id", "threshold").send_keys(Keys.HOME)  # every row is an alarm
    assert texts(browser, ".matrix td")[1] == "0"


def test_candidates_open_at_the_winner_and_segments_stay_text(browser):
    regions = {node.get_attribute("aria-label"): node for node in browser.find_elements("css selector", ".scroll")}
    first = regions["Candidates"].find_elements("css selector", "tbody tr")[0]
    assert "chosen" in first.get_attribute("class")
    cells = [node.text for node in regions["Segments"].find_elements("css selector", "tbody td:first-child")]
    assert NASTY in cells


def test_sums_of_weights_are_called_so_and_a_class_by_its_name(folder, tmp_path):
    random = np.random.default_rng(0)
    labels, scores, weights = random.random(200) < 0.4, random.normal(size=200), random.choice([0.5, 3.0], 200)
    point = aimfor.operating_point(labels, scores, "f1", sample_weight=weights)
    rows = {"labels": labels, "scores": scores, "weights": weights, "validation": (labels, scores, weights)}
    measured = measure_label("high", **rows, point=point, aim=aimfor.aim("f1"), positive="high")
    facts = json.loads((folder / "metrics.json").read_text())
    page = render({**facts, "labels": [measured], "history": []})
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with chromium(tmp_path / "profile") as driver:
        resize(driver, 1200)
        driver.get((tmp_path / "page.html").as_uri())
        assert texts(driver, ".matrix th")[:5] == ["Weight", "Alarm", "No alarm", "high", "All others"]
        titles = texts(driver, "#label .tiles dt")
        assert {"False alarms per 1,000 of weight", "Missed cases per 1,000 of weight"} <= set(titles)
        assert any("weight" in text and "in alarms is real" in text for text in texts(driver, "#label .tiles dd"))
        assert "Cost per 1,000 of weight" in texts(driver, ".prices span")


@pytest.mark.parametrize(
    ("aim", "value"),
    [
        ("f1", 2 * 2 / (2 * 2 + 1 + 1)),
        ("f2", 5 * 2 / (5 * 2 + 4 * 1 + 1)),
        ("cost[fp=1,fn=20]", (1 + 20) / 6),
        ("recall@precision>=0.5", 2 / 3),
        ("aucpr", None),
    ],
)
def test_the_value_at_the_chosen_threshold(aim, value):
    labels, scores = [1, 1, 0, 1, 0, 0], [6, 5, 4, 2, 1, 0]
    point = aimfor.operating_point([1, 1, 1, 0, 0, 0], [6, 5, 3, 2, 1, 0], aim)
    measured = measure_label("y", labels=labels, scores=scores, point=point, aim=aimfor.aim(aim))
    assert (measured["operating"]["tp"], measured["operating"]["fp"]) == (2, 1)
    found = measured["metric"]["at_threshold"]
    assert (found and found["value"]) == (value and pytest.approx(value))
    assert measured["metric"]["area"] == (aim == "aucpr")
    if aim == "f1":
        low, high = found["interval"]
        assert low < found["value"] < high
        assert f"reaches f1 {value:.3f} (95 % interval {low:.3f} to {high:.3f})" in measured["sentence"]
