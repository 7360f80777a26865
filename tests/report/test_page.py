"""The page in a real browser: it opens offline, its numbers are exact, and texts from data stay texts."""

import json
import math
import re
import time

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import aimfor
from aimfor.report._measure import measure_label
from aimfor.report._page import render
from browser import chromium, color_scheme, resize

NASTY = "<script>alert(1)</script>"
NAMES = [NASTY, "cats & dogs", "</script><img src=x onerror=alert(2)>", "\u2028 ${aim} 'quoted\"", "birds"]
AIM = "recall@precision>=0.8"


@pytest.fixture(scope="module")
def tables():
    X, y = make_classification(1500, 8, n_informative=4, weights=[0.8], random_state=0)
    return [(X[part], y[part]) for part in (slice(0, 700), slice(700, 1000), slice(1000, 1500))]


@pytest.fixture(scope="module")
def facts(tables):
    (X, y), (X_validation, y_validation), (X_test, y_test) = tables
    model = aimfor.Classifier(AIM, surrogate="hinge", steps=200, random_state=0)
    model.fit(X, y, validation_data=(X_validation, y_validation))
    point = model.operating_point_
    # decision_function is the score minus the threshold; the curve is in scores.
    shift = point.threshold or 0.0
    labels = measure_label(
        NASTY,
        labels=y_test,
        scores=model.decision_function(X_test) + shift,
        baseline_scores=LogisticRegression().fit(X, y).decision_function(X_test),
        validation=(y_validation, model.decision_function(X_validation) + shift, None),
        point=point,
        aim=aimfor.aim(AIM),
    )
    looks = [
        {
            "stage": "aim",
            "candidate": name,
            "step": step,
            "value": 1 - 1 / step,
            "violation": None if name == "log-loss" else 1 / step - 0.1,
            "multiplier": 0.5,
            "threshold": math.nan,
            "surrogate": 0.4,
            "exact": 0.6,
        }
        for step in (1, 5, 9)
        for name in ("log-loss", NASTY)
    ]
    columns = [
        {
            "name": "age",
            "kind": "numeric",
            "reason": None,
            "missing": 2,
            "mean": 40.5,
            "scale": 9.1,
            "categories": None,
        },
        {
            "name": NASTY,
            "kind": "categorical",
            "reason": "text",
            "missing": 0,
            "mean": None,
            "scale": None,
            "categories": [[NAMES[2], 7], *([f"c{index}", 3] for index in range(9))],
        },
    ]
    return {
        "aim": AIM,
        "labels": [labels],
        "candidates": [
            {"name": "log-loss", "value": 0.7, "step": 9, "chosen": False},
            {"name": NASTY, "value": 0.8, "step": 9, "chosen": True},
            {"name": "other", "value": None, "step": None, "chosen": False},
        ],
        "history": looks,
        "data": {"said": "8 numeric", "rows": {"train": 700, "validation": 300, "test": 500}, "columns": columns},
        "made": {"command": f"aimfor fit {'very_long_name_' * 20}.csv --label {NASTY!r}", "seed": "0"},
        "confidence": None,
    }


@pytest.fixture(scope="module")
def explained(facts):
    """The facts with importance and kinds, for one label or several."""
    worth = {"gain": 0.4, "coefficients": [{"feature": f"{NASTY} = a", "weights": [1.5, -2.0]}]}
    importance = {
        "metric": AIM,
        "value": 0.61,
        "rows": 500,
        "of_rows": 900,
        "repeats": 5,
        "columns": [
            {"name": "age", "drop": 0.2, "spread": 0.01, **worth},
            {"name": NASTY, "drop": -0.05, "spread": None, **worth},
        ],
        "not_shuffled": 7,
        "dependence": [
            {"name": "age", "values": [20.0, 40.0, 60.0], "scores": [[-1.0, 1], [0.5, 2], [1, 3]], "missing": [2.0, 4]},
            {"name": NASTY, "values": NAMES[1:3], "scores": [[-1.0, 3], [1, 4]], "missing": None},
        ],
    }
    rates = {"precision": 0.8, "recall": 0.4, "fpr": None}
    kinds = [
        {"kind": "trees", "name": "forest 3", "log_loss": True, "metric": 0.5, **rates, "chosen": False},
        {"kind": "linear", "name": NASTY, "log_loss": False, "metric": 0.6, **rates, "chosen": True},
    ]
    return {**facts, "importance": importance, "kinds": kinds}


@pytest.fixture(scope="module")
def several(facts):
    rng = np.random.default_rng(0)
    found = []
    for index, name in enumerate(NAMES):
        labels = (rng.random((2, 300)) < 0.2 + 0.1 * index).astype(int)
        scores = (2 - 0.3 * index) * labels + rng.normal(size=labels.shape)
        if index == 4:
            scores[0] = -scores[0]  # no threshold keeps the precision on these rows
        rows = {
            "labels": labels[1],
            "scores": scores[1],
            "validation": (labels[0], scores[0], None),
        }
        point = aimfor.operating_point(labels[0], scores[0], AIM)
        found.append(measure_label(name, **rows, point=point, aim=aimfor.aim(AIM)))
    return {**facts, "labels": found}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def show(browser, tmp_path):
    """Opens the page of some facts; at the end it must have said nothing and loaded nothing."""

    def opened(facts):
        page = tmp_path / "report.html"
        page.write_text(render(facts), encoding="utf-8")
        browser.get_log("browser"), browser.get_log("performance")
        browser.get(page.as_uri())
        return browser

    resize(browser, 1200)
    color_scheme(browser, "light")
    yield opened
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    # The browser's own first tab may still be asking for things of its own.
    asked = {one["request"]["url"] for one in sent if one["documentURL"].startswith("file:")}
    assert {url.split(":")[0] for url in asked} <= {"file"}
    assert len(asked) <= 1


def by_id(browser, name):
    return browser.find_element("id", name)


def value(browser, name):
    return float(by_id(browser, name).get_attribute("value"))


def texts(browser, selector):
    return [node.get_attribute("textContent") for node in browser.find_elements("css selector", selector)]


def test_the_page_opens_offline_with_its_sentence_and_all_charts(show, facts):
    browser = show(facts)
    assert by_id(browser, "verdict").text == facts["labels"][0]["sentence"]
    assert browser.find_element("tag name", "h1").text == AIM
    headings = texts(browser, "h2, h3")
    for heading in (
        "Precision and recall",
        "ROC",
        "Calibration of the promise",
        "Scores",
        "Exact metric",
        "Multiplier",
    ):
        assert heading in headings
    assert "Threshold" not in headings  # all its looks are nan, so there is nothing to show
    assert len(texts(browser, ".chart svg")) == len(texts(browser, ".chart")) == 8
    drawn = "return [...document.querySelectorAll('.chart svg')].map((svg) => svg.outerHTML).join('')"
    assert "NaN" not in browser.execute_script(drawn)


def test_the_slider_by_keyboard_shows_exact_numbers_and_moves_the_markers(show, facts, tables):
    from selenium.webdriver.common.keys import Keys

    browser = show(facts)
    label = facts["labels"][0]
    y_test = tables[2][1]
    slider = by_id(browser, "threshold")
    assert value(browser, "now") == label["operating"]["threshold"]
    assert value(browser, "precision") == pytest.approx(label["operating"]["precision"])
    marks = set()
    for key in (Keys.HOME, Keys.ARROW_RIGHT, Keys.PAGE_UP, Keys.PAGE_UP, Keys.ARROW_LEFT, Keys.END):
        slider.send_keys(key)
        threshold = value(browser, "now")
        at = label["curve"]["thresholds"].index(threshold)
        tp, fp = label["curve"]["tp"][at], label["curve"]["fp"][at]
        assert value(browser, "precision") == pytest.approx(tp / (tp + fp))
        assert value(browser, "recall") == pytest.approx(tp / y_test.sum())
        assert value(browser, "false-alarms") == pytest.approx(1000 * fp / 500)
        assert value(browser, "missed") == pytest.approx(1000 * (y_test.sum() - tp) / 500)
        assert slider.get_attribute("aria-valuetext").startswith("score ≥ ")
        marks.add(
            tuple(node.get_attribute("cx") for node in browser.find_elements("css selector", ".chart circle.marker"))
        )
    assert len(marks) == 6
    browser.find_element("css selector", ".slide button").click()
    assert value(browser, "now") == label["operating"]["threshold"]


def test_the_numbers_of_the_slider_are_those_of_metrics(show, facts, tables):
    rng = np.random.default_rng(1)
    labels = (rng.random(300) < 0.3).astype(int)
    scores = np.round(labels + rng.normal(size=300), 1)  # with ties
    point = aimfor.operating_point(labels, scores, "f1")
    rows = {"labels": labels, "scores": scores, "validation": (labels, scores, None)}
    browser = show({**facts, "labels": [measure_label("x", **rows, point=point, aim=aimfor.aim("f1"))]})
    slider = by_id(browser, "threshold")
    assert int(slider.get_attribute("max")) + 1 == len(set(scores))
    move = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    for step in range(0, len(set(scores)), 7):
        browser.execute_script(move, slider, step)
        threshold = value(browser, "now")
        assert threshold == sorted(set(scores))[step]
        assert value(browser, "precision") == pytest.approx(aimfor.metrics.precision(labels, scores, threshold))
        assert value(browser, "recall") == pytest.approx(aimfor.metrics.recall(labels, scores, threshold))
        false_alarms = aimfor.metrics.fpr(labels, scores, threshold) * (labels == 0).sum()
        assert value(browser, "false-alarms") == pytest.approx(1000 * false_alarms / 300)


def test_names_from_data_stay_text(show, several):
    browser = show(several)
    time.sleep(0.2)  # an onerror would come late
    from selenium.common.exceptions import NoAlertPresentException

    with pytest.raises(NoAlertPresentException):
        browser.switch_to.alert  # noqa: B018
    assert texts(browser, "#labels tbody button") == NAMES
    assert NASTY in texts(browser, "#data td")
    assert len(browser.find_elements("tag name", "script")) == 2
    assert browser.find_elements("css selector", "img, iframe, link, object") == []


def test_labels_sort_and_choosing_one_shows_its_charts(show, several):
    from selenium.webdriver.common.keys import Keys

    browser = show(several)
    headers = {text: index for index, text in enumerate(texts(browser, "#labels th"))}
    measured = {label["name"]: label for label in several["labels"]}

    def order():
        return [measured[name] for name in texts(browser, "#labels tbody button")]

    def sort(title):
        browser.find_elements("css selector", "#labels th button")[headers[title]].send_keys(Keys.ENTER)

    sort("Positives")
    counts = [label["positives"] for label in order()]
    assert counts == sorted(counts, reverse=True)
    sort("Positives")
    assert [label["positives"] for label in order()] == sorted(counts)
    assert len(browser.find_elements("css selector", "#labels th[aria-sort=ascending]")) == 1
    for _ in range(2):  # a label without a threshold comes last both ways
        sort("Recall")
        assert [label["name"] for label in order()][-1] == "birds"
    assert len(texts(browser, "#labels svg.spark")) == 5

    button = browser.find_elements("css selector", "#labels tbody button")[1]
    name = button.text
    button.send_keys(Keys.ENTER)
    assert texts(browser, "#labels tr[aria-current] button") == [name]
    assert browser.switch_to.active_element.text == name
    assert by_id(browser, "label-title").text.startswith(name)
    assert measured[name]["sentence"] in texts(browser, "#label p")


@pytest.mark.parametrize("kind", ["facts", "several"])
def test_a_phone_scrolls_down_only(show, request, kind):
    browser = show(request.getfixturevalue(kind))
    for width in (360, 390, 700):
        resize(browser, width, 740, mobile=width < 500)
        wide = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1] == width
        charts = browser.execute_script("return [...document.querySelectorAll('.chart')].map((one) => one.clientWidth)")
        assert min(charts) > 200


def test_dark_follows_the_reader(show, facts):
    browser = show(facts)
    colour = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    looks = {}
    for scheme in ("light", "dark"):
        color_scheme(browser, scheme)
        looks[scheme] = [
            browser.execute_script(colour, *what)
            for what in (("body", "backgroundColor"), ("body", "color"), (".chart .line.ours", "stroke"))
        ]
    assert all(one != other for one, other in zip(looks["light"], looks["dark"], strict=True))
    assert looks["light"][2] == "rgb(10, 143, 79)"
    back, front = (int(re.findall(r"\d+", text)[0]) for text in looks["dark"][:2])
    assert back < 60 < 180 < front


def test_importance_and_kinds_are_shown_and_names_stay_text(show, explained):
    browser = show(explained)
    assert texts(browser, "#why .bars span")[:4] == ["age", "0.2 ± 0.01", NASTY, "-0.05"]
    assert "7 weaker columns were not shuffled." in texts(browser, "#why .hint")
    assert f"{NASTY} = a: 1.5 / -2" in texts(browser, "#why td")
    assert texts(browser, "#dependence .card h3") == ["age", NASTY]
    assert "Missing: 2." in texts(browser, "#dependence .hint")
    assert texts(browser, "#dependence .bars span") == [NAMES[1], "-1", NAMES[2], "1"]
    assert "NaN" not in browser.execute_script("return document.getElementById('why').outerHTML")
    assert texts(browser, "#training tr.chosen td")[:4] == ["linear", "aim or balanced log-loss", NASTY, "0.6"]
    assert browser.find_elements("css selector", "img, iframe, link, object") == []
    resize(browser, 360, 740, mobile=True)
    wide = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]


def test_the_mean_scores_follow_the_label_that_is_chosen(show, explained, several):
    browser = show({**several, "importance": explained["importance"]})
    browser.find_elements("css selector", "#labels tbody button")[1].click()
    assert "Missing: 4." in texts(browser, "#dependence .hint")
    browser.find_elements("css selector", "#labels tbody button")[2].click()
    assert texts(browser, "#dependence .card") == []  # only two labels were asked about


def test_facts_without_importance_show_no_such_section(show, facts):
    assert not by_id(show(facts), "why").is_displayed()


def test_a_label_without_threshold_or_positives_is_shown(show, facts, several):
    scores = np.arange(9.0)
    rows = {"labels": np.zeros(9), "scores": scores, "validation": (np.zeros(9), scores, None)}
    point = aimfor.operating_point(np.zeros(9), scores, "tpr@fpr<=0.01")
    nothing = measure_label("none", **rows, point=point, aim=aimfor.aim("tpr@fpr<=0.01"))
    for label in (nothing, several["labels"][4]):
        browser = show({**facts, "labels": [label], "history": [], "candidates": []})
        assert by_id(browser, "verdict").text.startswith("No threshold: ")
        assert "unsure" in by_id(browser, "verdict").get_attribute("class")
    assert len(texts(browser, ".chart svg")) == 4


def test_the_page_is_one_file_that_forbids_the_network(facts, several):
    page = render(several)
    assert len(page) < 1_000_000
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    outside = set(re.findall(r"https?://[^\s\"'`<\\]+", page)) - {
        "http://www.w3.org/1999/xhtml",
        "http://www.w3.org/2000/svg",
    }
    assert outside == set()
    data = page.split('<script type="application/json" id="facts">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(data)
    read = json.loads(data)
    assert [label["name"] for label in read["labels"]] == NAMES
    assert read["history"][0]["threshold"] is None
    assert NASTY not in page


@pytest.mark.parametrize(
    ("verdicts", "sentence", "mood"),
    [
        (["met", "met"], "Of 2 labels, 2 meet the aim.", "met"),
        (
            ["met", "missed", "no threshold"],
            "Of 3 labels, 1 meets the aim, 1 misses the aim and 1 has no threshold.",
            "missed",
        ),
        (["met", "within chance"], "Of 2 labels, 1 meets the aim and 1 misses the aim within chance.", "unsure"),
        (["no constraint"] * 2, "No constraint was asked for", "plain"),
    ],
)
def test_the_headline_of_several_labels(facts, verdicts, sentence, mood):
    labels = [{**facts["labels"][0], "verdict": verdict} for verdict in verdicts]
    page = render({**facts, "labels": labels})
    assert f'<p id="verdict" class="verdict {mood}">{sentence}' in page
    assert "95 % confidence" in render({**facts, "confidence": 0.95})
