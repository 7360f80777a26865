"""`aimfor watch`: alarms and exit codes, late and partial labels, its state, its page, and what goes wrong."""

import json
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aimfor import cli

FIT = (
    "--label",
    "fraud",
    "--aim",
    "recall@precision>=0.7",
    "--model",
    "linear",
    "--steps",
    "60",
    "--confidence",
    "0.9",
)


class Ended:
    """How a command ended: exit code, what it printed, what it said on the error stream."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def label(self):
        (found,) = json.loads(self.out)["labels"]
        return found | {question["name"]: question["alarm"] for question in found["questions"]}


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments) -> Ended:
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return Ended(ended.value.code or 0, said.out, said.err)

    return run


def table(rows: int, seed: int, *, worth: float = 3.0, moved: float = 0.0) -> pd.DataFrame:
    """Rows with a time; `worth` is what the feature tells about the label, `moved` by how much it is shifted."""
    random = np.random.default_rng(seed)
    fraud = random.random(rows) < 0.2
    x = worth * fraud + random.normal(size=rows) + moved
    return pd.DataFrame({"x": x, "noise": random.normal(size=rows), "day": np.arange(rows), "fraud": fraud.astype(int)})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model folder, and new rows on which all is as it was."""
    folder = tmp_path_factory.mktemp("watch")
    table(3000, 0).to_csv(folder / "train.csv", index=False)
    table(2000, 1).to_csv(folder / "quiet.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["aimfor", "fit", str(folder / "train.csv"), *FIT, "--out", str(folder / "run")])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert not ended.value.code
    return folder


@pytest.fixture
def here(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return run


def written(frame: pd.DataFrame, name: str = "new.csv") -> str:
    frame.to_csv(name, index=False)
    return name


def test_quiet_rows_raise_no_alarm(command, here):
    ended = command("watch", here / "run", here / "quiet.csv", "--time", "day")
    assert ended.code == 0, ended.err
    assert "No alarm after 2,000 rows and 2,000 labels." in ended.out
    assert "precision >= 0.7: no alarm" in ended.out


def test_a_broken_promise_exits_with_3(command, here):
    # The scores stay as they were, but what is flagged is no longer fraud.
    frame = table(2000, 2)
    frame["fraud"] = np.where(np.random.default_rng(0).random(2000) < 0.5, frame["fraud"], 0)
    ended = command("watch", here / "run", written(frame), "--json")
    assert ended.code == 3
    assert (ended.label["precision"], ended.label["share of alerts"], ended.label["scores"]) == (True, False, False)
    assert ended.label["rates"]["precision"] < 0.6
    assert "precision >= 0.7 no longer holds" in ended.label["sentence"]


def test_rows_without_labels_watch_alerts_and_scores_and_exit_with_4(command, here):
    frame = table(2000, 3, moved=1.0).drop(columns="fraud")
    ended = command("watch", here / "run", written(frame), "--json")
    assert ended.code == 4
    assert (ended.label["precision"], ended.label["share of alerts"], ended.label["scores"]) == (False, True, True)
    assert ended.label["labels"] == 0
    assert "there is no label: only the share of alerts and the scores are watched" in ended.err


def test_partial_labels_count_where_they_are(command, here):
    frame = pd.read_csv(here / "quiet.csv")
    frame["fraud"] = frame["fraud"].where(frame.index % 4 == 0)
    ended = command("watch", here / "run", written(frame), "--json")
    assert ended.code == 0, ended.err
    assert (ended.label["rows"], ended.label["labels"]) == (2000, 500)
    assert "1,500 rows have no label" in ended.err


def test_labels_may_come_late_and_the_state_goes_on(command, here):
    frame = table(1500, 4)
    first, second = frame[:700], frame[700:]
    for part, count in ((first, 700), (second, 1500)):
        ended = command("watch", here / "run", written(part.drop(columns="fraud")), "--state", "kept.json", "--json")
        assert (ended.code, ended.label["rows"], ended.label["labels"]) == (0, count, 0)
    ended = command("watch", here / "run", written(first), "--state", "kept.json", "--late", "--json")
    assert (ended.code, ended.label["rows"], ended.label["labels"]) == (0, 1500, 700)
    # The evidence against the promise is that of one call with the same labels.
    whole = command("watch", here / "run", written(first), "--json")
    evidence = [next(one["evidence"] for one in found.label["questions"] if one["promise"]) for found in (ended, whole)]
    assert evidence[0] == pytest.approx(evidence[1])


def test_rows_are_not_counted_twice(command, here):
    asked = ("watch", here / "run", here / "quiet.csv", "--state", "kept.json")
    assert command(*asked).code == 0
    before = Path("kept.json").read_text()
    ended = command(*asked)
    assert (ended.code, "these rows were counted before" in ended.err) == (1, True)
    assert Path("kept.json").read_text() == before


def test_time_orders_the_rows(command, here):
    frame = table(2000, 5)
    shuffled = frame.sample(frac=1, random_state=0)
    pages = []
    for name, rows, options in (("a", frame, ()), ("b", shuffled, ("--time", "day")), ("c", shuffled, ())):
        command("watch", here / "run", written(rows), "--out", f"{name}.html", *options)
        pages.append(Path(f"{name}.html").read_text())
    assert pages[0] == pages[1] != pages[2]


def test_the_page_needs_nothing_else(command, here):
    tags = []

    class Page(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append((tag, dict(attrs)))

    command("watch", here / "run", here / "quiet.csv")
    Page().feed(Path("watch.html").read_text())
    names = [tag for tag, _ in tags]
    assert names.count("svg") == 3
    assert not {"script", "img", "link", "iframe"} & set(names)
    assert not [attrs for _, attrs in tags if "src" in attrs or "href" in attrs or "style" in attrs]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--late",), "--late goes on with an earlier watch: name its file with --state"),
        (("--out", "page.pdf"), "--out page.pdf: the name must end in .html"),
        (("--time", "dya"), "did you mean 'day'"),
        (("--level", "2"), "--level must be above 0 and below 1, got 2.0"),
        (("--state", "other.json"), "other.json does not hold a watch: name another file with --state"),
        (("--state", "broken.json"), "broken.json"),
    ],
)
def test_what_goes_wrong_is_said_in_one_sentence(command, here, options, message):
    Path("other.json").write_text('{"format": "something"}')
    Path("broken.json").write_text("{")
    ended = command("watch", here / "run", here / "quiet.csv", *options)
    assert (ended.code, ended.out) == (1, "")
    assert message in ended.err
    assert "Traceback" not in ended.err


def test_a_state_of_another_model_is_refused(command, here, tmp_path):
    command("fit", here / "train.csv", *FIT, "--seed", "5", "--out", "other")
    assert command("watch", "other", here / "quiet.csv", "--state", "kept.json").code == 0
    ended = command("watch", here / "run", here / "quiet.csv", "--state", "kept.json")
    assert (ended.code, "kept.json watches another model" in ended.err) == (1, True)
