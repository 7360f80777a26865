"""The model folder: what is read is what was written, whatever stops the writing, and bad folders are told apart."""

import errno
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit
from sklearn.datasets import make_classification
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import aimfor
from aimfor._base import files
from aimfor._base.errors import ModelFileError
from aimfor._base.files import write_bytes, write_text
from aimfor.cli._checkpoint import Checkpoint
from aimfor.estimator._calibration import calibration
from aimfor.model_folder import _schema as model_facts
from aimfor.model_folder._folder import load, load_model, save_model

QUICK = {"steps": 30, "batch_size": 64, "random_state": 0, "surrogate": "hinge"}
X, y = make_classification(1200, 6, weights=[0.7], random_state=0)
several = np.stack([y, 1 - y, X[:, 0] > 0.5], axis=1).astype(int)
NAMES = np.array(["no", "yes", "zebra"])


def named():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(X, columns=[f"column <{index}>" for index in range(6)])


CASES = {
    "linear": ({"aim": "recall@precision>=0.6"}, lambda: X, y),
    "mlp": ({"model": "mlp", "hidden_layer_sizes": (5, 3), "aim": "f2"}, lambda: X, y == 1),
    "texts": ({"calibrate": "logistic"}, lambda: X, NAMES[y]),
    "objects": ({"calibrate": "isotonic"}, lambda: X, NAMES[y].astype(object)),
    "floats": ({"confidence": 0.8, "aim": "tpr@fpr<=0.2"}, lambda: X.astype(np.float32), y * 2.0),
    "sparse": ({"weight_decay": 0.001}, lambda: sparse.csr_matrix(np.where(abs(X) > 1, X, 0)), y),
    "classes": ({"calibrate": True}, lambda: X, NAMES[several.sum(1)]),
    "labels": ({"aim": "recall@precision>=(0.5, 0.6, 0.7)", "calibrate": "isotonic"}, lambda: X, several),
    "absent": ({"aim": "f1"}, lambda: X, several * [1, 0, 1]),
    "infeasible": ({"aim": "recall@precision>=0.99999", "confidence": 0.99}, lambda: X, y),
    "names": ({"aim": "aucroc[fpr<=0.1]"}, named, y),
    "lp": ({"solver": "search", "aim": "recall@precision>=0.6"}, lambda: X, y),
    "records": ({"aim": aimfor.FBeta(1.5), "random_state": np.random.RandomState(0)}, lambda: X, y),
}


@pytest.fixture(scope="module", params=CASES, ids=CASES)
def fitted(request):
    options, rows, target = CASES[request.param]
    return aimfor.Classifier(**{"model": "linear", **QUICK, **options}).fit(rows(), target), rows()


@pytest.fixture(scope="module")
def simple():
    return aimfor.Classifier("recall@precision>=0.6", model="linear", **QUICK).fit(X, y)


@pytest.fixture(scope="module")
def other():
    return aimfor.Classifier("f1", model="linear", **QUICK).fit(X[:, :4], 1 - y)


def same(one, other, rows):
    """Whether two classifiers are the same to the last bit, in all that they were made of and all that they do."""
    assert one.decision_function(rows).tobytes() == other.decision_function(rows).tobytes()
    assert one.raw_scores(rows).tobytes() == other.raw_scores(rows).tobytes()
    assert one.operating_point_ == other.operating_point_
    assert one.classes_.dtype.kind == other.classes_.dtype.kind
    assert one.classes_.tolist() == other.classes_.tolist()
    assert np.array_equal(one.threshold_, other.threshold_, equal_nan=one.threshold_ is not None)
    assert type(one.threshold_) is type(other.threshold_)
    assert one.history_ == other.history_
    if one.targets_.multiclass or one.threshold_ is not None:
        mine, its = one.predict(rows), other.predict(rows)
        assert mine.dtype.kind == its.dtype.kind
        assert np.array_equal(mine, its)
    if one.calibrate:
        assert one.predict_proba(rows).tobytes() == other.predict_proba(rows).tobytes()


def test_what_is_loaded_is_what_was_saved(fitted, tmp_path):
    classifier, rows = fitted
    save_model(tmp_path, classifier, extra={"fingerprint": "abc", "nested": [1, {"a": None}]})
    assert sorted(os.listdir(tmp_path)) == ["model.json", "model.safetensors"]
    back = load(tmp_path)
    same(classifier, back, rows)
    assert getattr(back, "feature_names_in_", None) is None or list(back.feature_names_in_) == list(rows.columns)
    wanted, got = classifier.get_params(), back.get_params()
    wanted["aim"] = str(aimfor.aim(wanted["aim"]))
    if not isinstance(wanted["random_state"], int):
        wanted["random_state"] = None
    assert got == wanted
    facts = load_model(tmp_path).facts
    assert facts["nested"] == [1, {"a": None}]
    assert facts["versions"]["torch"] == version("torch")
    # Saved again, it gives the same files, and what was loaded can be fitted again.
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    save_model(tmp_path, back, extra={"fingerprint": "abc", "nested": facts["nested"]})
    assert before == {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}


def test_the_state_of_the_loss(simple, tmp_path):
    state = {"multipliers": torch.rand(5, 1), "thresholds": torch.randn(5, 1), "priors": torch.rand(1)}
    save_model(tmp_path, simple, loss_state=state)
    back = load_model(tmp_path).loss_state
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) and back[name].dtype == torch.float32 for name in state)


def test_nothing_is_unpickled(simple, tmp_path, monkeypatch):
    save_model(tmp_path, simple)

    def refuse(*_, **__):
        raise AssertionError("unpickled")

    monkeypatch.setattr(pickle, "Unpickler", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    same(simple, load(tmp_path), X)


def test_what_cannot_be_saved(simple, tmp_path):
    own = aimfor.Classifier(model=torch.nn.Linear(6, 1), **QUICK).fit(X, y)
    with pytest.raises(
        ModelFileError,
        match=r'cannot be saved, because reading a file must run no code; use one of "auto", "trees", "linear", "mlp"',
    ):
        save_model(tmp_path / "a", own)
    broken = aimfor.Classifier("f1", model="linear", **QUICK).fit(X, y)
    broken.model_.heads.offsets[0].data.fill_(np.nan)
    with pytest.raises(ModelFileError, match="must be finite"):
        save_model(tmp_path / "a", broken)
    with pytest.raises(ModelFileError, match="this model cannot be saved"):
        save_model(tmp_path / "a", simple, extra={"a": object()})
    with pytest.raises(ModelFileError, match="extra must have names beside"):
        save_model(tmp_path / "a", simple, extra={"aim": "f1"})
    with pytest.raises(ModelFileError, match="loss"):
        save_model(tmp_path / "a", simple, loss_state={"secret": torch.zeros(1)})
    assert not os.listdir(tmp_path)


# Whatever stops the writing


def outcome(action):
    """The sentence that an action fails with, None where it does not."""
    try:
        action()
    except ModelFileError as error:
        return str(error).replace("\n", "more than one line")
    return None


class Killed(BaseException):
    pass


OPERATIONS = ("fsync", "replace", "unlink", "open", "mkdir")


def stop_at(monkeypatch, count, error, *, dead, half_written=False):
    """Let operation number `count` on files fail; where the process is dead, all that follow as well."""
    done = []

    def wrap(name, real):
        def wrapped(*arguments, **options):
            done.append(name)
            if len(done) == count or (dead and len(done) > count):
                if half_written and name == "fsync":
                    os.truncate(arguments[0], os.fstat(arguments[0]).st_size // 2)
                raise error
            return real(*arguments, **options)

        return wrapped

    for name in OPERATIONS:
        monkeypatch.setattr(os, name, wrap(name, getattr(os, name)))
    monkeypatch.setattr(files, "open", wrap("open", open), raising=False)
    return done


def test_a_name_is_given_to_what_is_on_the_disk(simple, tmp_path, monkeypatch):
    done = stop_at(monkeypatch, 1000, Killed(), dead=False)
    save_model(tmp_path, simple)
    assert [name for name in done if name in ("fsync", "replace")] == [
        *("fsync", "replace", "fsync"),  # the tensors under their hash, and that name
        *("fsync", "replace", "fsync"),  # model.json
        *("replace", "fsync"),  # the last name of the tensors
    ]


@pytest.mark.parametrize("start", ["empty", "old", "interrupted"])
@pytest.mark.parametrize("half_written", [False, True])
def test_killed_after_every_operation(simple, other, tmp_path, start, half_written):
    """Loadable at every moment, as the old model or the new one, and the next save leaves nothing behind."""
    seen = set()
    for count in range(1, 100):
        folder = tmp_path / str(count)
        if start != "empty":
            save_model(folder, simple)
        if start == "interrupted":  # the tensors of the old model still wait for their name
            digest = json.loads((folder / "model.json").read_text())["sha256"]
            (folder / "model.safetensors").rename(folder / f"model-{digest}.safetensors")
            (folder / "model.safetensors").write_bytes(b"of a still older model")
        with pytest.MonkeyPatch.context() as patch:
            done = stop_at(patch, count, Killed(), dead=True, half_written=half_written)
            try:
                save_model(folder, other)
            except Killed:
                stopped = True
            else:
                stopped = False
        if not stopped:
            break
        if start == "empty" and not (folder / "model.json").exists():
            seen.add("none")
        else:
            back = load(folder)
            is_new = back.n_features_in_ == 4
            same(*((other, back, X[:, :4]) if is_new else (simple, back, X)))
            seen.add("new" if is_new else "old")
        save_model(folder, simple)
        same(simple, load(folder), X)
        assert sorted(os.listdir(folder)) == ["model.json", "model.safetensors"]
    assert len(done) > 8
    assert seen == ({"none", "new"} if start == "empty" else {"old", "new"})
    assert sorted(os.listdir(folder)) == ["model.json", "model.safetensors"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_refuses(simple, other, tmp_path, code):
    """One clear sentence, the earlier model intact and nothing left behind, at whichever operation it comes."""
    told = 0
    for count in range(1, 100):
        folder = tmp_path / str(count)
        save_model(folder, simple)
        with pytest.MonkeyPatch.context() as patch:
            done = stop_at(patch, count, OSError(code, os.strerror(code)), dead=False)
            message = outcome(lambda folder=folder: save_model(folder, other))
        if message is not None:
            told += 1
            assert os.strerror(code) in message
        back = load(folder)
        same(*((other, back, X[:, :4]) if back.n_features_in_ == 4 else (simple, back, X)))
        left = set(os.listdir(folder)) - {"model.json", "model.safetensors"}
        # Once model.json is replaced, tensors that could not be renamed stay where it finds them.
        assert not left or (back.n_features_in_ == 4 and len(left) == 1)
        if len(done) < count:
            break
    assert told > 6


def test_a_real_full_disk(simple, other, tmp_path):
    """The system itself refuses to write on: a file may grow no further than a limit."""
    resource = pytest.importorskip("resource")
    save_model(tmp_path, simple)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
        with pytest.raises(ModelFileError, match="cannot be written"):
            save_model(tmp_path, other)
        with pytest.raises(ModelFileError, match="cannot be written"):
            write_bytes(tmp_path / "report.html", b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(os.listdir(tmp_path)) == ["model.json", "model.safetensors"]
    same(simple, load(tmp_path), X)


def test_a_read_only_folder(simple, other, tmp_path):
    save_model(tmp_path / "run", simple)
    os.chmod(tmp_path / "run", 0o500)
    try:
        if os.access(tmp_path / "run", os.W_OK):
            pytest.skip("this user may write anywhere")
        with pytest.raises(ModelFileError, match="Permission denied"):
            save_model(tmp_path / "run", other)
        same(simple, load(tmp_path / "run"), X)
    finally:
        os.chmod(tmp_path / "run", 0o700)


def test_a_file_in_the_place_of_the_folder(simple, tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ModelFileError, match="run"):
        save_model(tmp_path / "run", simple)
    assert (tmp_path / "run").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_kill_9_while_saving(simple, other, tmp_path):
    save_model(tmp_path / "a", simple)
    save_model(tmp_path / "b", other)
    save_model(tmp_path / "run", simple)
    program = (
        "import sys; from aimfor.model_folder import load, save_model\n"
        "one, other = load(sys.argv[1]), load(sys.argv[2]); print('ready', flush=True)\n"
        "while True: save_model(sys.argv[3], other); save_model(sys.argv[3], one)"
    )
    random = np.random.default_rng(0)
    for _ in range(20):
        arguments = [sys.executable, "-c", program, *(str(tmp_path / name) for name in ("a", "b", "run"))]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(random.uniform(0.01, 0.5))
            process.kill()
        back = load(tmp_path / "run")
        same(*((other, back, X[:, :4]) if back.n_features_in_ == 4 else (simple, back, X)))


@settings(max_examples=10)  # each waits for the disk
@given(st.binary(max_size=100), st.text(st.characters(codec="utf-8"), max_size=100))
def test_writers(data, text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        for _ in range(2):
            write_bytes(path, data)
            assert path.read_bytes() == data
        write_text(path, text)
        assert path.read_bytes() == text.encode()
        assert os.listdir(folder) == ["file"]


# Folders that are none


def resealed(folder, edit):
    """Change the facts as a stranger would who knows the format: with a checksum that is right."""
    facts = json.loads((folder / "model.json").read_text())
    del facts["checksum"]
    edit(facts)
    (folder / "model.json").write_bytes(model_facts.to_text(facts))


def put(*path, value):
    def edit(facts):
        for name in path[:-1]:
            facts = facts[name]
        facts[path[-1]] = value

    return edit


BAD_FACTS = [
    (put("format", value="pickle"), "format must be"),
    (put("format_version", value=2), "format_version must be 1"),
    (put("format_version", value=True), "format_version of a model must be a whole number"),
    (put("new", value=1), None),
    (lambda facts: facts.pop("aim"), "nothing for 'aim'"),
    (put("aim", value="recal@precision>=0.9"), "did you mean"),
    (put("aim", value="recall@precision>=(0.9, 0.8)"), "one target per label"),
    (put("aim", value="a" * 2_000_000), "at most 200 characters"),
    (put("aim", value="(" * 100_000), "at most 200 characters"),
    (put("aim", value=f"recall@precision>=({'0.9, ' * 100_000}0.9)"), "one target per label"),
    (put("aim", value=f"recall@precision>=({'9' * 100_000}, 0.9)"), "a target must be a number"),
    (put("operating_points", 0, "aim", value="9" * 100_000), "at most 200 characters"),
    (put("architecture", "model", value="exec"), "model must be one of"),
    (put("architecture", "num_features", value=10**12), "must have shape"),
    (put("architecture", "num_features", value=-1), "num_features must be at least 1"),
    (put("architecture", "num_features", value=7), "tensor network.weights.0 must have shape"),
    (put("architecture", "hidden_sizes", value=[3]), "hidden_sizes must be none"),
    (put("architecture", "num_labels", value=2), "tensor thresholds must have shape"),
    (put("architecture", "centred", value=False), "the tensors must be"),
    (put("classes", "values", value=[0, 1, 2]), "classes must be 2"),
    (put("classes", "values", value=[1, 1]), "classes must differ"),
    (put("classes", "values", value=[0, "1"]), "classes must be int64"),
    (put("classes", "dtype", value="O"), "dtype of classes must be one of"),
    (put("classes", "dtype", value="int8"), None),
    (put("classes", "values", value=[0, 2**70]), "does not describe|does not hold"),
    (put("feature_names", value=["a"]), "feature_names must be 6"),
    (put("feature_names", value=[1] * 6), "feature_names must be texts"),
    (put("options", "steps", value=-1), "steps must be at least 1"),
    (put("options", "steps", value=[1]), "steps must be one number"),
    (put("options", "steps", value=10**400), None),
    (put("options", "learning_rate", value=10**400), "too large"),
    (put("options", "confidence", value=2), "confidence must be"),
    (put("options", "random_state", value="x"), "random_state must be"),
    (put("options", "device", value="cuda"), "options must be of"),
    (put("options", "calibrate", value=True), "calibration must have 1 curves"),
    (put("operating_points", value=[]), "operating_points must be 1"),
    (put("operating_points", 0, "threshold", value=0.25), "thresholds of the operating points"),
    (put("operating_points", 0, "precision", value=7), "precision must be in"),
    (put("operating_points", 0, value=3), "must hold JSON objects"),
    (put("history", value=[3]), "history must hold"),
    (put("loss", "multipliers", value=[10**9, 1]), "the tensors must be"),
    (put("loss", "code", value=[1]), "loss must have no other entries"),
    (put("loss", "priors", value=[1, 1]), "shape of loss.priors"),
    (put("versions", "torch", value=3), "versions must be texts"),
    (put("sha256", value="../../etc/passwd"), "64 hexadecimal digits"),
    (put("preparation", value={"columns": "all"}), "does not hold a model"),
]


@pytest.mark.parametrize(("edit", "message"), BAD_FACTS, ids=range(len(BAD_FACTS)))
def test_bad_facts(simple, tmp_path, edit, message):
    save_model(tmp_path, simple)
    resealed(tmp_path, edit)
    if message is None:
        load(tmp_path)
        return
    with pytest.raises(ModelFileError, match=message) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


CURVE = {"kind": "isotonic", "x": [0.0, 1.0], "y": [0.0, 1.0]}


@pytest.mark.parametrize(
    "curve",
    [
        {**CURVE, "x": [0.0]},
        {**CURVE, "x": [1.0, 0.0]},
        {**CURVE, "y": [0.0, 2.0]},
        {**CURVE, "y": [1.0, 0.0]},
        {**CURVE, "x": [], "y": []},
        {**CURVE, "x": [0.0, "1"]},
        {**CURVE, "z": []},
        {**CURVE, "kind": "system"},
        {**CURVE, "kind": ["isotonic"]},
        {"kind": "constant", "value": -1},
        {"kind": "constant", "value": True},
        {"kind": "logistic", "slope": 1.0},
        {"kind": "logistic", "slope": 1.0, "offset": 10**400},
        3,
    ],
)
def test_bad_curves(tmp_path, simple, curve):
    save_model(tmp_path, simple)
    resealed(tmp_path, lambda facts: (facts["options"].update(calibrate=True), facts.update(calibration=[CURVE])))
    assert load(tmp_path).predict_proba(X).shape == (len(X), 2)
    resealed(tmp_path, lambda facts: facts.update(calibration=[curve]))
    with pytest.raises(ModelFileError):
        load(tmp_path)


BAD_TEXTS = [b"", b"{", b"[]", b"null", b"\xff\xfe", b"PK\x03\x04", b"[" * 100_000, b'{"a": NaN}', b"1" * 10_000]


@pytest.mark.parametrize("text", BAD_TEXTS, ids=range(len(BAD_TEXTS)))
def test_bad_texts(simple, tmp_path, text):
    save_model(tmp_path, simple)
    (tmp_path / "model.json").write_bytes(text)
    with pytest.raises(ModelFileError, match=r"model\.json"):
        load(tmp_path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000])
def test_numbers_that_are_none(simple, tmp_path, number):
    save_model(tmp_path, simple, extra={"number": 12345678})
    text = (tmp_path / "model.json").read_text()
    assert "12345678" in text
    (tmp_path / "model.json").write_text(text.replace("12345678", number))
    with pytest.raises(ModelFileError, match=r"model\.json"):
        load(tmp_path)


def test_a_changed_fact_is_noticed(simple, tmp_path):
    save_model(tmp_path, simple)
    text = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(text.replace('"steps": 30', '"steps": 31'))
    with pytest.raises(ModelFileError, match="checksum"):
        load(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(json.loads(text)))  # the same in other words
    same(simple, load(tmp_path), X)


def test_a_changed_number_is_noticed(simple, tmp_path):
    save_model(tmp_path, simple)
    path = tmp_path / "model.safetensors"
    right = path.read_bytes()
    for place in range(0, len(right), 7):
        path.write_bytes(right[:place] + bytes([right[place] ^ 1]) + right[place + 1 :])
        with pytest.raises(ModelFileError, match="is damaged or of another model"):
            load(tmp_path)


def test_tensors_with_the_right_hash(simple, tmp_path):
    """Numbers that a stranger has chosen, under a hash and checksum that are right."""
    save_model(tmp_path, simple)
    right = safetensors.torch.load((tmp_path / "model.safetensors").read_bytes())
    scale = right["scaling.scale"]
    for change, message in [
        ({"scaling.scale": scale * 0}, "must be above 0"),
        ({"scaling.scale": scale * torch.inf}, "must be finite"),
        ({"scaling.scale": scale.float()}, "must be float64"),
        ({"scaling.scale": scale[:2].clone()}, "must have shape"),
        ({"scaling.scale": scale[None].clone()}, "must have shape"),
        ({"another": scale.clone()}, "the tensors must be"),
        ({"thresholds": right["thresholds"] + 1}, "thresholds of the operating points"),
        ({"scaling.scale": scale.to(torch.complex64)}, "dtype of tensor"),
    ]:
        data = safetensors.torch.save({**right, **change})
        (tmp_path / "model.safetensors").write_bytes(data)
        resealed(tmp_path, put("sha256", value=hashlib.sha256(data).hexdigest()))
        with pytest.raises(ModelFileError, match=message):
            load(tmp_path)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_what_is_no_file(simple, other, tmp_path, name):
    folder, foreign = tmp_path / "run", tmp_path / "other"
    save_model(folder, simple)
    save_model(foreign, other)
    path = folder / name
    right = path.read_bytes()

    def refused(message):
        with pytest.raises(ModelFileError, match=message) as caught:
            load(folder)
        assert name in str(caught.value)

    path.write_bytes(right[: len(right) // 2])
    refused("does not describe a model|is damaged")
    path.write_bytes(right + b" \0")
    refused("does not describe a model|is damaged")
    path.write_bytes((foreign / name).read_bytes())
    with pytest.raises(ModelFileError):  # a pair of files that do not belong together
        load(folder)
    path.unlink()
    refused("no such file")
    path.symlink_to(foreign / name)
    refused("not a file")
    path.unlink()
    path.mkdir()
    refused("not a file")
    path.rmdir()
    os.mkfifo(path)
    refused("not a file")
    path.unlink()
    with path.open("wb") as file:  # takes no room on the disk
        file.truncate(9 * 2**30)
    refused("more than the")
    path.write_bytes(right)
    same(simple, load(folder), X)


def test_no_folder(tmp_path):
    with pytest.raises(ModelFileError, match="nowhere"):
        load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("{}")
    with pytest.raises(ModelFileError, match="file"):
        load(tmp_path / "file")


# Curves of calibration


@given(st.integers(0, 2**32 - 1), st.integers(5, 300), st.sampled_from([None, 0, 1]), st.booleans())
def test_curves_are_those_of_scikit_learn(seed, count, digits, weighted):
    random = np.random.default_rng(seed)
    scores = random.normal(size=count).astype(np.float32).astype(np.float64)
    scores = scores if digits is None else np.round(scores, digits)
    labels = (random.random(count) < expit(scores)).astype(int)
    labels[:2] = 0, 1
    weights = random.random(count) + 0.1 if weighted else None
    asked = np.concatenate([scores, random.normal(scale=3, size=100)])
    rising = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, labels, weights)
    np.testing.assert_array_equal(calibration("isotonic", scores, labels, weights)(asked), rising.predict(asked))
    scaled, asked_scaled = (((one - scores.mean()) / scores.std())[:, None] for one in (scores, asked))
    proportions = None if weights is None else weights / weights.mean()
    logistic = LogisticRegression().fit(scaled, labels, proportions).predict_proba(asked_scaled)[:, 1]
    np.testing.assert_allclose(calibration("logistic", scores, labels, weights)(asked), logistic, rtol=1e-12)
    assert (calibration(True, scores, np.ones(count), weights)(asked) == 1).all()


# Checkpoints


KINDS = (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)


def bits(tensor):
    return tensor.dtype, tuple(tensor.shape), tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.text(max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(KINDS), st.lists(st.integers(0, 3), max_size=3)),
        max_size=4,
    ),
    st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(max_size=5)),
)
def test_checkpoints_are_bit_for_bit(kinds, facts):
    tensors = {name: (torch.randn(shape) * 3).to(dtype) for name, (dtype, shape) in kinds.items()}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint(os.path.join(folder, "checkpoint"))
        assert checkpoint.load() is None
        checkpoint.save(facts, tensors)
        found = checkpoint.load()
        assert found is not None
        assert found[0] == facts
        assert found[1].keys() == tensors.keys()
        assert all(bits(found[1][name]) == bits(tensors[name]) for name in tensors)
        checkpoint.remove()
        assert checkpoint.load() is None
        checkpoint.remove()


def test_checkpoint_of_strange_tensors(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "whole": base,
        "view": base[1],
        "turned": base.T,
        "nan": torch.tensor([torch.nan, -0.0, torch.inf]),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.save({"optimiser": {"step": 3}}, tensors)
    found = checkpoint.load()
    assert found is not None
    assert all(bits(found[1][name]) == bits(tensors[name].detach()) for name in tensors)
    found[1]["whole"].add_(1)  # what is loaded can be trained on


def test_damaged_checkpoints(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.save({"step": 3}, {"weights": torch.randn(20), "count": torch.tensor(3)})
    right = checkpoint.path.read_bytes()
    for place in range(len(right)):
        for damaged in (right[:place], right[:place] + bytes([right[place] ^ 1]) + right[place + 1 :]):
            checkpoint.path.write_bytes(damaged)
            if outcome(checkpoint.load) is not None:
                continue
            # Padding of the header is all that may differ.
            found = checkpoint.load()
            assert found is not None
            assert found[0] == {"step": 3}
            assert json.loads(damaged[8 : 8 + damaged[0]]) == json.loads(right[8 : 8 + right[0]])
    checkpoint.path.write_bytes(safetensors.torch.save({"a": torch.zeros(1)}))
    with pytest.raises(ModelFileError, match="without 'facts'"):
        checkpoint.load()
    checkpoint.path.unlink()
    checkpoint.path.mkdir()
    with pytest.raises(ModelFileError, match="not a file"):
        checkpoint.load()


def test_a_checkpoint_stays_until_the_next_is_whole(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.save({"step": 1}, {"a": torch.ones(3)})
    for count in range(1, 5):
        with pytest.MonkeyPatch.context() as patch:
            stop_at(patch, count, Killed(), dead=True, half_written=True)
            with pytest.raises(Killed):
                checkpoint.save({"step": 2}, {"a": torch.zeros(3)})
        found = checkpoint.load()
        assert found is not None
        assert found[0]["step"] == 1 + int(found[1]["a"][0] == 0)
