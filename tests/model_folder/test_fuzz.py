"""Fuzzed model folders: the very same model or one clear error, and nothing that is in a file is ever run."""

import contextlib
import copy
import hashlib
import json
import pickle
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification

import aimfor

pa = pytest.importorskip("pyarrow")

from aimfor._base.errors import ModelFileError  # noqa: E402
from aimfor.cli._checkpoint import Checkpoint  # noqa: E402
from aimfor.model_folder import _schema as model_facts  # noqa: E402
from aimfor.model_folder._folder import load_model, save_model  # noqa: E402
from aimfor.tables._preparation import Preparation  # noqa: E402

QUICK = {"steps": 20, "batch_size": 64, "random_state": 0, "surrogate": "hinge"}
NAMES = ("model.json", "model.safetensors")
# What Python reports when code is made, run or unpickled, or another program is started.
FORBIDDEN = ("pickle.find_class", "exec", "compile", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
SECONDS, BYTES = 5, 400 * 2**20

watching = []


def _refuse(event, _):
    if watching and event in FORBIDDEN:
        raise AssertionError(f"reading a model must run nothing, got {event}")


sys.addaudithook(_refuse)  # it stays for as long as the process, and does nothing outside of `read`


@pytest.fixture(scope="module")
def folders():
    """Files of models of several kinds, with a signature of each; all that is read later was imported here."""
    X, y = make_classification(400, 5, random_state=0)
    rows = pa.table({"a": X[:, 0], "b": np.where(X[:, 1] > 1, None, X[:, 1]), "c": np.array(["x", "y", "z"])[y]})
    preparation = Preparation()
    features = preparation.fit_transform(rows)
    several = np.stack([y, X[:, 0] > 0], axis=1).astype(int)
    state = {"multipliers": np.ones((2, 2)), "priors": np.ones(2)}
    fits = [
        (aimfor.Classifier("recall@precision>=0.6", model="linear", calibrate="isotonic", **QUICK).fit(X, y), {}),
        (aimfor.Classifier("f1", model="mlp", hidden_layer_sizes=(3,), **QUICK).fit(X, several.sum(1)), {}),
        (
            aimfor.Classifier("aucpr", model="linear", calibrate="logistic", **QUICK).fit(X, several),
            {"loss_state": _tensors(state)},
        ),
        (
            aimfor.Classifier("f1", model="linear", **QUICK).fit(features, y),
            {"preparation": preparation, "extra": {"data": [1]}},
        ),
    ]
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for classifier, options in fits:
            save_model(folder, classifier, **options)
            files = {name: (Path(folder) / name).read_bytes() for name in NAMES}
            made.append((files, signature(load_model(folder))))
    return made


def _tensors(arrays):
    return {name: torch.from_numpy(array).float() for name, array in arrays.items()}


def signature(loaded):
    """All that a loaded model says and does."""
    classifier = loaded.classifier
    rows = np.random.default_rng(0).normal(size=(7, classifier.n_features_in_))
    said = [json.dumps(loaded.facts, sort_keys=True), str(classifier.operating_point_), str(classifier.threshold_)]
    said += [classifier.raw_scores(rows).tobytes(), classifier.decision_function(rows).tobytes()]
    with contextlib.suppress(ValueError):  # no threshold
        said.append(classifier.predict(rows).tobytes())
    if classifier.calibrate:
        said.append(classifier.predict_proba(rows).tobytes())
    if loaded.preparation is not None:
        said.append(str(loaded.preparation.to_dict()))
    return [*said, *(tensor.numpy().tobytes() for tensor in loaded.loss_state.values())]


def read(files):
    """The model in these files, or None where they are refused in one sentence; anything else is a failure."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        started = time.perf_counter()
        watching.append(True)
        try:
            return load_model(folder)
        except ModelFileError as error:
            sentence = str(error)
        finally:
            watching.clear()
            assert time.perf_counter() - started < SECONDS
    assert "\n" not in sentence
    assert len(sentence) < 1000
    return None


def test_the_watch_is_kept():
    watching.append(True)
    try:
        with pytest.raises(AssertionError, match="must run nothing"):
            pickle.loads(pickle.dumps(Path))
    finally:
        watching.clear()


# Damage


def damaged(random, content):
    """Bytes changed in a few places: flipped, cut out, doubled, put in, cut off."""
    for _ in range(random.randint(1, 3)):
        place, length = random.randint(0, max(0, len(content) - 1)), random.choice([1, 1, 1, 4, 50])
        before, part, after = content[:place], content[place : place + length], content[place + length :]
        flipped = before + bytes(byte ^ random.randint(1, 255) for byte in part) + after
        content = random.choice(
            [
                *[flipped] * 4,
                before + after,
                before + part + part + after,
                before + random.randbytes(length) + part + after,
                before,
            ]
        )
    return content


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from([0, -1, 2**31, 2**63, 10**400, 1e308, 5e-324, "", "f1", "object", "__import__('os')", "../x"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def edited(data, random, tree):
    """A tree of JSON with nodes replaced, removed, doubled or put in; one may become a copy of another."""
    tree = copy.deepcopy(tree)
    for _ in range(random.randint(1, 2)):
        parent, key = _place(random, tree)
        kind = random.choice(["value", "value", "node", "remove", "add"])
        if kind == "value":
            parent[key] = data.draw(VALUES)
        elif kind == "node":
            other, its = _place(random, tree)
            parent[key] = copy.deepcopy(other[its])
        elif kind == "remove" and len(parent) > 1:
            del parent[key]
        elif isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        else:
            parent[data.draw(st.text(max_size=5))] = data.draw(VALUES)
    return tree


def _place(random, tree):
    while True:
        parent, key = tree, random.choice(sorted(tree) if isinstance(tree, dict) else range(len(tree)))
        tree = parent[key]
        if not isinstance(tree, (dict, list)) or not tree or random.random() < 0.2:
            return parent, key


def sealed(facts, tensors):
    """Files as of a stranger who knows the format: hash and checksum are right."""
    facts = {name: entry for name, entry in facts.items() if name != "checksum"}
    return {"model.json": model_facts.to_text(facts), "model.safetensors": tensors}


# Attacks


def chance_on_bytes(data, random, files, was):
    """A disk or a line that has changed bytes: the same model or an error."""
    names = random.choice([NAMES[:1], NAMES[1:], NAMES])
    loaded = read({**files, **{name: damaged(random, files[name]) for name in names}})
    assert loaded is None or signature(loaded) == was


def chance_on_facts(data, random, files, was):
    """Somebody's edit of model.json: the same model or an error."""
    tree = edited(data, random, json.loads(files["model.json"]))
    loaded = read({**files, "model.json": json.dumps(tree).encode()})
    assert loaded is None or signature(loaded) == was


def usable(loaded):
    """Whether a model that a stranger has made does what any model does."""
    if loaded is not None:
        with contextlib.suppress(ValueError), np.errstate(all="ignore"):  # scores may be too large to decide on
            signature(loaded)


def malice_on_facts(data, random, files, was):
    """Facts that a stranger has chosen: a model that works or an error."""
    usable(read(sealed(edited(data, random, json.loads(files["model.json"])), files["model.safetensors"])))


def malice_on_tensors(data, random, files, was):
    """Tensors that a stranger has chosen, under a hash that is right: a model that works or an error."""
    content = files["model.safetensors"]
    start = 8 + int.from_bytes(content[:8], "little")
    header, numbers = content[8:start], content[start:]
    kind = random.choice(["bytes", "header", "numbers"])
    if kind == "header":
        header = json.dumps(edited(data, random, json.loads(header))).encode()
    elif kind == "numbers":
        place = random.randrange(len(numbers))
        numbers = numbers[:place] + random.randbytes(len(numbers[place:])) if random.random() < 0.1 else numbers
        numbers = numbers[:place] + random.randbytes(1) + numbers[place + 1 :]
    content = len(header).to_bytes(8, "little") + header + numbers
    content = damaged(random, content) if kind == "bytes" else content
    facts = {**json.loads(files["model.json"]), "sha256": hashlib.sha256(content).hexdigest()}
    usable(read(sealed(facts, content)))


def foreign(data, random, files, was):
    """Something else in the place of a file."""
    other = data.draw(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
    assert read({**files, random.choice(NAMES): other}) is None
    assert read({"model.json": files["model.safetensors"], "model.safetensors": files["model.json"]}) is None


ATTACKS = (chance_on_bytes, chance_on_facts, malice_on_facts, malice_on_tensors, foreign)


@pytest.mark.parametrize("count", [60, pytest.param(2500, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_fuzzed_folders(folders, attack, count):
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(st.data(), st.randoms(use_true_random=True))
    def case(data, random):
        attack(data, random, *random.choice(folders))

    case()
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < BYTES


@pytest.mark.parametrize("count", [60, pytest.param(2500, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])])
def test_fuzzed_checkpoints(tmp_path, count):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.save({"step": 3, "looks": [{"value": 0.5}]}, _tensors({"a": np.arange(6.0).reshape(2, 3)}))
    right = checkpoint.path.read_bytes()

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=True))
    def case(random):
        checkpoint.path.write_bytes(damaged(random, right))
        try:
            found = checkpoint.load()
        except ModelFileError:
            return
        assert found is not None
        assert found[0] == {"step": 3, "looks": [{"value": 0.5}]}
        assert found[1]["a"].tolist() == [[0, 1, 2], [3, 4, 5]]

    case()
