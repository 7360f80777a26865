"""Files that version 0.1.0.dev0 wrote still load and give the same numbers; its commands and options are still there.

`scripts/freeze.py` made the fixtures. They stay as they are: a new version may add keys and options, but it must not
remove or change those that are frozen here. Sentences for people may change; `PROSE` names them.

A new fit gives the same model, but another threshold: since then a threshold without a confidence must pass an exact
test. So what depends on the threshold of a new fit is compared with `refits`, which `scripts/freeze.py --refits` wrote.
"""

import importlib.metadata
import json
import math
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

import aimfor

FROZEN = Path(__file__).parent / "frozen"
RUNS, REFITS = FROZEN / "runs", FROZEN / "refits"
MODELS = ["linear", "mlp"]
OUTPUTS = json.loads((RUNS / "outputs.json").read_text())
REFITTED = json.loads((REFITS / "outputs.json").read_text())
CLOSE = 1e-6  # of the largest absolute value
# A fit repeats its rounding in every step: another engine or instruction set moves these results by up to 1.3e-6.
CLOSE_AFTER_TRAINING = 1e-5
# Keys whose texts are written for people.
PROSE = {"sentence", "said", "on", "reason"}
# A verdict that had too few rows to be one is now called so.
RENAMED = {("verdict", "met", "too few rows")}
# The options that the loss had by default. It may have others now, but with these it goes on alike.
FORMER_DEFAULTS = {"surrogate": "hinge", "constraint": "surrogate", "log_loss": 0.0}


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the installed command in this process; give back what it prints."""
    (entry,) = {
        found.value: found for found in importlib.metadata.entry_points(group="console_scripts", name="aimfor")
    }.values()
    main = entry.load()

    def run(*arguments: str) -> str:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
        return printed.out

    return run


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A copy of the frozen runs, which commands may write to, as the current folder."""
    folder = tmp_path / "runs"
    shutil.copytree(RUNS, folder)
    monkeypatch.chdir(folder)
    return folder


def assert_close(current, frozen, name="", within=CLOSE):
    frozen = np.asarray(frozen, dtype=np.float64)
    current = np.asarray(current, dtype=np.float64)
    scale = np.max(np.abs(frozen), initial=0, where=np.isfinite(frozen))
    np.testing.assert_allclose(current, frozen, rtol=0, atol=within * scale, err_msg=name)


def differences(frozen, current, within=CLOSE, where=""):
    """What of the frozen data is missing or different, one line each; new keys are no difference."""
    if isinstance(frozen, dict) and isinstance(current, dict):
        for key, value in frozen.items():
            place = f"{where}/{key}"
            if key not in current:
                yield f"{place} is missing"
            elif (key in PROSE and isinstance(value, str) and isinstance(current[key], str)) or (
                key == "verdict" and (key, value, current[key]) in RENAMED
            ):
                continue
            else:
                yield from differences(value, current[key], within, place)
    elif isinstance(frozen, list) and isinstance(current, list) and len(frozen) == len(current):
        for index, (old, new) in enumerate(zip(frozen, current, strict=True)):
            yield from differences(old, new, within, f"{where}/{index}")
    elif isinstance(frozen, float) and isinstance(current, (int, float)) and not isinstance(current, bool):
        if not math.isclose(frozen, current, rel_tol=within, abs_tol=within):
            yield f"{where} was {frozen!r}, is {current!r}"
    elif frozen != current or type(frozen) is not type(current):
        yield f"{where} was {frozen!r}, is {current!r}"


# State of the loss


@pytest.mark.parametrize("engine", [None, "fused"])
@pytest.mark.parametrize("path", sorted((FROZEN / "losses").iterdir()), ids=lambda path: path.stem)
def test_a_state_of_the_loss_loads_and_goes_on_alike(path, engine, monkeypatch):
    if engine is not None:
        monkeypatch.setenv("AIMFOR_ENGINE", engine)
    with safe_open(path, framework="pt") as file:
        arguments = json.loads(file.metadata()["loss"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict

    def part(prefix):
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    loss = aimfor.Loss(**{**FORMER_DEFAULTS, **arguments})
    if loss.aim.counts_by_rates:  # its anchors now count by the running rates; apart from that it goes on alike
        monkeypatch.setattr(type(loss.aim), "counts_by_rates", False)
    loss.load_state_dict(part("state_dict/"))
    batch, results = part("batch/"), part("result/")
    scores = batch.pop("scores").requires_grad_()
    loss.eval()
    assert_close(loss(scores, **batch).detach(), results["value_in_eval"], "value in eval")
    loss.train()
    value = loss(scores, **batch)
    value.backward()
    assert_close(value.detach(), results["value"], "value")
    assert_close(scores.grad, results["gradient"], "gradient")
    diagnostics = loss.diagnostics()._asdict()
    for name, frozen in part("diagnostics/").items():
        assert_close(diagnostics[name], frozen, name)


def test_the_frozen_losses_learned_something():
    """Otherwise the test above would compare little."""
    for path in (FROZEN / "losses").iterdir():
        with safe_open(path, framework="pt") as file:
            assert file.get_tensor("result/gradient").abs().max() > 0
            assert file.get_tensor("diagnostics/thresholds").abs().max() > 0
            assert not torch.equal(
                file.get_tensor("diagnostics/thresholds"), file.get_tensor("state_dict/state.thresholds")
            )


# Model folders


@pytest.mark.parametrize("name", MODELS)
def test_a_model_folder_loads_as_the_same_estimator(name):
    table, frozen = pd.read_csv(RUNS / "new.csv"), pd.read_csv(RUNS / f"{name}-estimator.csv")
    estimator = aimfor.load(RUNS / name)
    methods = dict.fromkeys(column.split()[0] for column in frozen.columns)
    assert {"decision_function", "predict"} <= set(methods)
    for method in methods:
        expected = frozen.filter(regex=f"^{method} ")
        current = np.asarray(getattr(estimator, method)(table)).reshape(expected.shape)
        if method == "predict":
            assert current.tolist() == expected.to_numpy().tolist()
        else:
            assert_close(current, expected, method)


@pytest.mark.parametrize("name", ["columns", "features"])
def test_a_folder_with_forests_loads_as_the_same_estimator(name):
    folder = FROZEN / "forests"
    table, frozen = pd.read_csv(folder / "new.csv"), pd.read_csv(folder / f"{name}-estimator.csv")
    estimator = aimfor.load(folder / name)
    table = table if name == "columns" else table[["amount", "age"]]
    assert estimator.predict(table).tolist() == frozen["predict 0"].tolist()
    assert_close(estimator.decision_function(table), frozen["decision_function 0"])
    facts = json.loads((folder / name / "model.json").read_text())["architecture"]
    assert ("columns" in facts.get("members", [facts])[0]) == (name == "columns")


@pytest.mark.parametrize("name", MODELS)
def test_score_gives_the_same_scores_and_decisions(name, command, runs):
    frozen = pd.read_csv(RUNS / f"{name}-scored.csv")
    (runs / f"{name}-scored.csv").unlink()
    asked = OUTPUTS[f"{name}-score"]
    assert not [*differences(asked["output"], json.loads(command(*asked["command"])))]
    current = pd.read_csv(runs / f"{name}-scored.csv")
    assert [*current.columns[: len(frozen.columns)]] == [*frozen.columns]
    for column in frozen.columns:
        if column.startswith("decision"):
            assert current[column].tolist() == frozen[column].tolist()
        else:
            assert_close(current[column], frozen[column], column)


@pytest.mark.parametrize("name", MODELS)
def test_evaluate_gives_the_same_keys_and_numbers(name, command, runs):
    asked = OUTPUTS[f"{name}-evaluate"]
    assert not [*differences(asked["output"], json.loads(command(*asked["command"])))]


def linear_by_default(command):
    """The command as it meant when a linear model was the default."""
    return command if "--model" in command else [*command, "--model", "linear"]


@pytest.mark.parametrize("name", MODELS)
def test_fit_gives_the_same_model_and_files(name, command, runs):
    shutil.rmtree(runs / name)
    printed = command(*linear_by_default(OUTPUTS[f"{name}-fit"]["command"]))
    assert not [*differences(REFITTED[f"{name}-fit"], json.loads(printed), CLOSE_AFTER_TRAINING)]
    assert {path.name for path in RUNS.joinpath(name).iterdir()} <= {path.name for path in (runs / name).iterdir()}
    paths = (REFITS / f"{name}-metrics.json", runs / name / "metrics.json")
    frozen, current = (json.loads(path.read_text()) for path in paths)
    for facts in (frozen, current):
        for volatile in ("versions", "when", "seconds"):
            assert isinstance(facts["made"].pop(volatile), str)
    assert not [*differences(frozen, current, CLOSE_AFTER_TRAINING)]
    frozen, current = (pd.read_csv(folder / name / "history.csv") for folder in (RUNS, runs))
    assert [*current.columns[: len(frozen.columns)]] == [*frozen.columns]
    for column in frozen.columns:
        if column in ("stage", "candidate"):
            assert current[column].tolist() == frozen[column].tolist()
        else:
            assert_close(current[column], frozen[column], column, CLOSE_AFTER_TRAINING)
    decisions = f"{name}-scored.csv"
    command("score", name, "new.csv", "--out", "again.csv")
    frozen, current = pd.read_csv(RUNS / decisions), pd.read_csv(runs / "again.csv")
    refitted = pd.read_csv(REFITS / decisions)
    assert current.filter(like="decision").equals(refitted.filter(like="decision"))
    assert_close(current.filter(like="score"), frozen.filter(like="score"), "scores", CLOSE_AFTER_TRAINING)


def test_compare_gives_the_same_keys_and_numbers(command, runs):
    printed = command(*linear_by_default(OUTPUTS["compare"]["command"]))
    assert not [*differences(REFITTED["compare"], json.loads(printed), CLOSE_AFTER_TRAINING)]


@pytest.mark.parametrize("name", MODELS)
def test_a_refit_differs_from_the_frozen_run_only_in_what_its_threshold_decides(name):
    frozen = json.loads((RUNS / name / "metrics.json").read_text())
    refitted = json.loads((REFITS / f"{name}-metrics.json").read_text())
    moved = {"operating", "promise", "constraint", "verdict", "sentence", "curve"}
    for old, new in zip(frozen["labels"], refitted["labels"], strict=True):
        kept = {key: value for key, value in old.items() if key not in moved}
        assert not [*differences(kept, new, CLOSE_AFTER_TRAINING)]
    for key in ("aim", "candidates", "confidence", "stopped"):
        assert not [*differences(frozen[key], refitted[key], CLOSE_AFTER_TRAINING)]


# The page


class Page(HTMLParser):
    """The elements of a page that have an id, and the data in it.

    Everything else may change: the texts for people, the style, the program, and the policy, which holds their hashes.
    """

    def __init__(self, path):
        super().__init__()
        self.elements, self._data, self._inside = {}, "", None
        self.feed(path.read_text(encoding="utf-8"))
        self.facts = json.loads(self._data)

    def handle_starttag(self, tag, attrs):
        self._inside = dict(attrs).get("id")
        if self._inside is not None:
            self.elements[self._inside] = (tag, dict(attrs))

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "facts":
            self._data += data


@pytest.mark.parametrize("name", MODELS)
def test_report_makes_the_same_page(name, command, runs):
    frozen = Page(runs / name / "report.html")
    (runs / name / "report.html").unlink()
    command("report", name)
    current = Page(runs / name / "report.html")
    assert len(frozen.elements) > 5
    assert {key: current.elements.get(key) for key in frozen.elements} == frozen.elements
    # The sentences are data of the folder here, so that they stay as well.
    assert {key: current.facts[key] for key in frozen.facts} == frozen.facts


# Names and defaults of commands and options


def entries(text):
    """The commands, arguments and options of a help text: whether each takes a value, and its default and range.

    An entry starts with two spaces; its description follows after two spaces or on lines that are further indented.
    """
    found, head = {}, None
    for section in re.split(r"\n(?=(?:Arguments|Options|Commands):\n)", text)[1:]:
        for line in section.splitlines()[1:]:
            if re.match(r"  \S", line):
                head, *description = re.split(r"\s{2,}", line.strip(), maxsplit=1)
                found[head] = description
            elif head is not None and line.strip():
                found[head].append(line.strip())
    result = {}
    for head, description in found.items():
        facts = re.search(r"\[([^\[\]]*(?:default: |required|x[<>]=)[^\[\]]*)\]$", " ".join(description))
        name, *value = head.split(maxsplit=1)
        result[name] = {"takes a value": bool(value), "facts": facts and facts[1]}
    return result


@pytest.mark.parametrize("path", sorted((FROZEN / "help").iterdir()), ids=lambda path: path.stem)
def test_every_option_is_still_there_with_its_default(path, command):
    asked = [] if path.stem == "aimfor" else [path.stem]
    frozen, current = entries(path.read_text()), entries(command(*asked, "--help"))
    assert "--help" in frozen
    if "--model" in frozen:  # the one default that changed, from "linear"
        assert current["--model"] == {"takes a value": True, "facts": "default: auto"}
        frozen["--model"] = current["--model"]
    assert not [*differences(frozen, current)]


def test_help_texts_are_read_with_names_values_and_defaults():
    found = entries((FROZEN / "help" / "fit.txt").read_text())
    assert len(found) == 32
    assert found["--validation-fraction"] == {"takes a value": True, "facts": "default: 0.2; 0<=x<=0.9"}
    assert found["--seed"] == {"takes a value": True, "facts": "default: 0; 0<=x<=4294967295"}
    assert found["--json"] == {"takes a value": False, "facts": None}
    assert found["--out"] == {"takes a value": True, "facts": "default: run"}
    score = entries((FROZEN / "help" / "score.txt").read_text())
    assert score["RUN"] == {"takes a value": True, "facts": "required"}
    assert "evaluate" in entries((FROZEN / "help" / "aimfor.txt").read_text())
