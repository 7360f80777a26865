"""Every engine gives the numbers of the plain one: value, gradient and the step of the state."""

import copy
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import aimfor
from aimfor.loss._batch import Batch
from aimfor.loss.engines import _choice as engines
from aimfor.loss.engines import _fused as fused
from aimfor.loss.engines import _fused_curves as pieces
from aimfor.loss.engines import _native_library as native
from cases import AIMS, NATIVE, SURROGATES

ROOT = Path(__file__).resolve().parents[3]
# Triton's interpreter must be asked for before Triton is imported: test_triton.py starts a process that does.
FAST = ["triton"] if os.environ.get("TRITON_INTERPRET") == "1" else ["fused", NATIVE]
X86 = platform.machine() in ("x86_64", "AMD64")
AVX_512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
FORMS = ["float", "double", "bool", "int8", "uint8", "int32", "int64", "bfloat16", "csr", "coo", "csr with zeros"]


@pytest.fixture(autouse=True)
def _two_kinds_of_warnings():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")
        yield


def in_form(labels: torch.Tensor, form: str) -> torch.Tensor:
    if form == "coo":
        return labels.float().to_sparse_coo()
    if form.startswith("csr"):
        sparse = labels.float().to_sparse_csr()
        if form == "csr":
            return sparse
        # Every second entry of a row is stored, be it 0 or 1.
        stored = labels | (torch.arange(labels.shape[1]) % 2 == 0)
        starts = torch.cat([torch.zeros(1, dtype=torch.long), stored.sum(1).cumsum(0)])
        values = labels[stored].float()
        assert set(values.tolist()) == {0.0, 1.0}
        return torch.sparse_csr_tensor(starts, stored.nonzero()[:, 1], values, labels.shape)
    return labels.to(getattr(torch, form))


def batch(rows: int, labels: int, seed: int = 0, share: float = 0.3):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, labels, generator=generator)
    return scores, torch.rand(rows, labels, generator=generator) < share


def prepared(aim: str, surrogate: str, labels: int, monkeypatch, rows: int = 40, **options) -> aimfor.Loss:
    """A loss that has learned from a few batches, by the plain engine; the ladder is behind it for some labels."""
    monkeypatch.setenv(engines.SETTING, "plain")
    loss = aimfor.Loss(aim, num_labels=labels, surrogate=surrogate, warmup=2, **options)
    for seed in range(3):
        loss(*batch(rows, labels, seed=100 + seed))
    loss.state.steps[: labels // 2] = 1
    return loss


def result(engine: str, loss: aimfor.Loss, scores: torch.Tensor, labels: torch.Tensor, monkeypatch, **extra):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = copy.deepcopy(loss)
    scores = scores.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    value = loss(scores, labels, **extra)
    value.backward()
    assert scores.grad is not None
    return value.detach().double(), scores.grad.double(), loss.state_dict()


def check(engine, loss, scores, labels, monkeypatch, *, form_labels=None, coarse=1.0, **extra):
    """Against plain in double precision: 1e-6 in the value, 1e-5 of the largest gradient."""
    value, gradient, state = result(
        engine, loss, scores, labels if form_labels is None else form_labels, monkeypatch, **extra
    )
    expected, expected_gradient, expected_state = result("plain", loss, scores.double(), labels, monkeypatch, **extra)
    assert abs(value - expected) <= coarse * 1e-6 * max(1, abs(expected))
    largest = float(expected_gradient.abs().max())
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=coarse * 1e-5 * largest)
    for name, tensor in expected_state.items():
        scale = float(tensor.double().abs().max()) if tensor.numel() else 0.0
        torch.testing.assert_close(
            state[name].double(),
            tensor.double(),
            rtol=1e-4,
            atol=coarse * 1e-5 * max(scale, 1e-30),
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("constraint", ["surrogate", "exact"])
def test_every_aim_and_surrogate(engine, aim, surrogate, constraint, monkeypatch):
    loss = prepared(aim, surrogate, 5, monkeypatch, constraint=constraint)
    check(engine, loss, *batch(40, 5), monkeypatch)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (129, 65), (4096, 1), (9001, 2), (3, 5000), (33, 130)])
def test_odd_shapes(engine, surrogate, shape, monkeypatch):
    loss = prepared("aucpr; num_anchors=5", surrogate, shape[1], monkeypatch)
    check(engine, loss, *batch(*shape), monkeypatch)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("labels", [3, 20])
@pytest.mark.parametrize("kind", ["scores x 1e4", "thresholds x 100", "all positive", "all negative"])
def test_extremes(engine, surrogate, labels, kind, monkeypatch):
    loss = prepared("aucpr; num_anchors=5", surrogate, labels, monkeypatch)
    scores, y = batch(70, labels)
    if kind == "thresholds x 100":
        loss.state.thresholds.mul_(100)
    check(
        engine,
        loss,
        scores * 1e4 if kind == "scores x 1e4" else scores,
        torch.full_like(y, kind == "all positive") if kind.startswith("all") else y,
        monkeypatch,
        coarse=3.0 if kind == "scores x 1e4" else 1.0,
    )


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("labels", [2, 40])
@pytest.mark.parametrize("which", ["rows", "entries", "mask of rows", "mask", "both"])
def test_weights_and_masks(engine, surrogate, labels, which, monkeypatch):
    loss = prepared("aucpr; num_anchors=5", surrogate, labels, monkeypatch)
    scores, y = batch(50, labels)
    generator = torch.Generator().manual_seed(9)
    weights = torch.rand(50, labels, generator=generator) * (torch.rand(50, labels, generator=generator) < 0.9)
    mask = torch.rand(50, labels, generator=generator) < 0.8
    extra = {
        "rows": {"weights": weights[:, 0]},
        "entries": {"weights": weights},
        "mask of rows": {"mask": mask[:, 0]},
        "mask": {"mask": mask},
        "both": {"weights": weights, "mask": mask},
    }[which]
    check(engine, loss, scores, y, monkeypatch, **extra)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("labels", [4, 70])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("masked", [False, True])
def test_forms_of_labels(engine, labels, form, masked, monkeypatch):
    loss = prepared("recall@precision>=0.8", "hinge", labels, monkeypatch)
    scores, y = batch(40, labels)
    extra = {"mask": torch.arange(40) % 3 > 0} if masked else {}
    check(engine, loss, scores, y, monkeypatch, form_labels=in_form(y, form), **extra)


@pytest.mark.parametrize("engine", ["plain", *FAST])
@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_looked_at_where_an_entry_is_absent(engine, form, monkeypatch):
    """Neither labels that are no labels, nor a position that stands twice."""
    monkeypatch.setenv(engines.SETTING, engine)
    scores, y = batch(40, 4)
    mask = torch.ones_like(y)
    mask[3, 1] = False
    values = []
    for broken in (False, True):
        labels = in_form(y, form)
        if broken and labels.layout == torch.strided:
            labels[3, 1] = 1 if form == "bool" else 7
        elif broken and form == "csr":
            extra = torch.arange(41) > 3
            first = int(labels.crow_indices()[3])
            columns = torch.cat([labels.col_indices()[:first], torch.tensor([1, 1]), labels.col_indices()[first:]])
            starts = labels.crow_indices() + 2 * extra
            labels = torch.sparse_csr_tensor(starts, columns, torch.ones(len(columns)), y.shape, check_invariants=False)
        values.append(float(aimfor.Loss("aucpr", num_labels=4)(scores, labels, mask=mask)))
    assert values[0] == values[1]


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("labels", [1, 20])
def test_tensors_whose_sign_torch_has_still_to_turn(engine, labels, monkeypatch):
    loss = prepared("aucpr; num_anchors=5", "log", labels, monkeypatch)
    scores, y = batch(50, labels)

    def turned(tensor: torch.Tensor) -> torch.Tensor:
        return torch.complex(tensor, -tensor).conj().imag

    weights = torch.linspace(0.5, 2.0, 50)
    monkeypatch.setenv(engines.SETTING, engine)
    with torch.no_grad():
        expected, value = (
            copy.deepcopy(loss)(one(scores), one(y.float()), weights=one(weights)) for one in (torch.clone, turned)
        )
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("labels", [3, 40])
def test_other_types_of_scores(engine, dtype, labels, monkeypatch):
    """Sums as exact as with float32: only the gradient is rounded to the type of the scores."""
    if engine in ("native", "triton") and dtype == torch.float64:
        pytest.skip(f"{engine} reads float64 nowhere")
    loss = prepared("aucpr; num_anchors=5", "log", labels, monkeypatch)
    scores, y = batch(40, labels)
    scores = scores.to(dtype)
    value, gradient, _ = result(engine, loss, scores, y, monkeypatch)
    expected, expected_gradient, _ = result("plain", loss, scores.double(), y, monkeypatch)
    assert value == pytest.approx(float(expected), rel=1e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("engine", FAST)
def test_views_of_other_tensors(engine, monkeypatch):
    loss = prepared("aucpr; num_anchors=5", "log", 12, monkeypatch)
    scores, y = batch(12, 80)
    mask = torch.rand(12, 80) < 0.8
    check(engine, loss, scores.t()[::2], y.t()[::2], monkeypatch, mask=mask.t()[::2])
    wide, wide_y = batch(40, 24)
    check(engine, loss, wide[:, ::2], wide_y[:, 1::2].float(), monkeypatch, weights=torch.rand(80)[::2])


@pytest.mark.parametrize("engine", FAST)
@settings(max_examples=60)
@given(
    rows=st.integers(1, 300),
    labels=st.integers(1, 150),
    anchors=st.integers(1, 12),
    surrogate=st.sampled_from(SURROGATES),
    seed=st.integers(0, 1000),
)
def test_any_shape(engine, rows, labels, anchors, surrogate, seed):
    with pytest.MonkeyPatch.context() as monkeypatch:
        loss = prepared(f"aucpr; num_anchors={anchors}", surrogate, labels, monkeypatch, rows=10)
        check(engine, loss, *batch(rows, labels, seed), monkeypatch)


@pytest.mark.parametrize("engine", ["plain", "fused"])
@pytest.mark.parametrize("surrogate", ["log", "smooth_hinge", "sigmoid"])
def test_gradcheck(engine, surrogate, monkeypatch):
    """Numbers of the value against the gradient, in double precision, with the state held."""
    loss = prepared("aucpr; num_anchors=3", surrogate, 2, monkeypatch).eval()
    loss.state.steps.fill_(100)
    monkeypatch.setenv(engines.SETTING, engine)
    scores, y = batch(6, 2)
    assert torch.autograd.gradcheck(lambda one: loss(one, y), scores.double().requires_grad_())


@pytest.mark.parametrize("engine", ["plain", *FAST])
def test_a_second_backward(engine, monkeypatch):
    loss = prepared("aucpr", "hinge", 3, monkeypatch)
    monkeypatch.setenv(engines.SETTING, engine)
    scores, y = batch(20, 3)
    scores.requires_grad_()
    value = 2 * loss(scores, y)
    value.backward(retain_graph=True)
    once = scores.grad.clone()
    value.backward()
    torch.testing.assert_close(scores.grad, 2 * once)


@pytest.mark.skipif(native.problem() is not None, reason=str(native.problem()))
@pytest.mark.parametrize("shape", [(300, 200), (20000, 1)])
def test_the_number_of_threads_changes_nothing(shape, monkeypatch):
    loss = prepared("aucpr", "log", shape[1], monkeypatch)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(result("native", loss, *batch(*shape), monkeypatch))
    finally:
        torch.set_num_threads(threads)
    for value, gradient, state in results[1:]:
        assert value == results[0][0]
        assert torch.equal(gradient, results[0][1])
        assert all(torch.equal(tensor, results[0][2][name]) for name, tensor in state.items())


@pytest.mark.parametrize("engine", ["plain", *FAST])
@pytest.mark.parametrize(
    ("starts", "columns", "values", "message"),
    [
        ([0, 1, 2], [0, 7], [1.0, 1.0], "labels must have columns in 0..2, got 7"),
        ([0, 1, 2], [0, -1], [1.0, 1.0], "labels must have columns in 0..2, got -1"),
        ([0, 2, 1], [0], [1.0], "labels must have row starts in order"),
        ([0, 2, 2], [1, 1], [1.0, 1.0], "labels must be 0 or 1 in every entry, got 2"),
        ([0, 1, 2], [0, 1], [1.0, 3.0], "labels must be 0 or 1 in every entry, got 3"),
        ([0, 1, 2], [0, 1], [1.0, torch.nan], "labels must be 0 or 1 in every entry, got nan"),
        ([0, 1, 2], [0, 1], [1, 3], "labels must be 0 or 1 in every entry, got 3"),
        ([1, 1, 2], [0, 1], [1.0, 1.0], "labels must have row starts in order"),
        ([0, 1, 1], [0, 1], [1.0, 1.0], "labels must have row starts in order"),
        ([0, 1, 2], [0, 1], [1.0], "labels must have one more row start than rows and a value for each column"),
        ([0, 1], [0], [1.0], "labels must have one more row start than rows and a value for each column"),
        ([0, 1, 2], [[0], [1]], [1.0, 1.0], "labels must have one more row start than rows and a value for each"),
    ],
)
def test_sparse_labels_made_of_anything(engine, starts, columns, values, message, monkeypatch):
    """torch checks none of this; a wrong position must not be read as memory."""
    labels = torch.sparse_csr_tensor(
        torch.tensor(starts), torch.tensor(columns), torch.tensor(values), (2, 3), check_invariants=False
    )
    monkeypatch.setenv(engines.SETTING, engine)
    loss = aimfor.Loss("aucpr", num_labels=3)
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(2, 3), labels)
    assert loss.state.steps.sum() == 0


def test_sparse_labels_from_lists():
    rows = [[2, 0], [], torch.tensor([1, 1]), {0, 1}, frozenset()]
    expected = [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert aimfor.sparse_labels(rows, 3).to_dense().tolist() == expected


class Watched(TorchDispatchMode):
    """Lists the operations that make a dense tensor of at least so many entries in memory of its own."""

    def __init__(self, entries: int):
        super().__init__()
        self.entries, self.found = entries, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {self._memory(one) for one in tree_leaves((args, kwargs)) if self._dense(one)}
        self.found += [
            str(func)
            for one in tree_leaves(result)
            if self._dense(one) and one.numel() >= self.entries and self._memory(one) not in given
        ]
        return result

    @staticmethod
    def _dense(value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.layout == torch.strided

    @staticmethod
    def _memory(tensor: torch.Tensor) -> int:
        return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize("engine", ["plain", *FAST])
def test_the_dense_target_is_never_built(engine, monkeypatch):
    """Nothing is as large as the scores but their gradient; the plain engine, which builds it, shows what is seen."""
    scores, y = batch(200, 5000, share=0.001)
    assert scores.numel() > 2 * fused.CPU_PIECE
    labels = in_form(y, "csr")
    monkeypatch.setenv(engines.SETTING, engine)
    loss = aimfor.Loss("aucpr", num_labels=5000)
    with Watched(scores.numel()) as watched:
        loss(scores, labels)
    if engine == "plain":
        assert len(watched.found) > 1
    else:
        assert len(watched.found) == 1, watched.found


def test_pieces_of_the_fused_pass_are_small(monkeypatch):
    """No tensor of the pass is larger than a piece but the gradient: none has all rows, labels and anchors."""
    monkeypatch.setenv(engines.SETTING, "fused")
    sizes = []
    original = pieces.SurrogateCurve.__init__

    def watched(self, piece, *arguments):
        original(self, piece, *arguments)
        sizes.append(piece.scores.numel())

    monkeypatch.setattr(pieces.SurrogateCurve, "__init__", watched)
    aimfor.Loss("aucpr", num_labels=3000, log_loss=0)(*batch(200, 3000))
    assert max(sizes) <= fused.CPU_PIECE
    assert sum(sizes) == 200 * 3000


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("weighted", [False, True])
def test_pieces_along_rows_and_labels_add_up(surrogate, weighted, monkeypatch):
    monkeypatch.setattr(fused, "CPU_PIECE", 1024)
    loss = prepared("aucpr", surrogate, 100, monkeypatch, constraint="exact")
    scores, y = batch(50, 100)
    listed = fused.listed(Batch(scores, y.float(), None, None))
    assert len({rows.start for rows, _ in fused._blocks(listed)}) > 2
    assert len({labels.start for _, labels in fused._blocks(listed)}) > 2
    assert int(y.sum()) > fused.POSITIVE_PIECES * 1024 // 10
    extra = {"weights": torch.rand(50, 100, generator=torch.Generator().manual_seed(1))} if weighted else {}
    check("fused", loss, scores, y, monkeypatch, **extra)


def test_engine_says_which_and_why(monkeypatch):
    monkeypatch.delenv(engines.SETTING, raising=False)
    assert aimfor.engine().name == ("fused" if native.problem() else "native")
    monkeypatch.setenv(engines.SETTING, "plain")
    assert str(aimfor.engine()) == "plain: the environment variable AIMFOR_ENGINE says so"
    monkeypatch.setenv(engines.SETTING, "turbo")
    with pytest.raises(ValueError, match="AIMFOR_ENGINE must be one of"):
        aimfor.engine()


def test_without_the_library_fused_takes_over(monkeypatch, tmp_path):
    monkeypatch.delenv(engines.SETTING, raising=False)
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "_native.so")
    monkeypatch.setattr(native, "WIDE_LIBRARY", tmp_path / "_native_v4.so")
    native._chosen.cache_clear()
    try:
        assert aimfor.engine().name == "fused"
        assert "it was not built" in aimfor.engine().reason
        loss = aimfor.Loss("aucpr", num_labels=2)
        loss(*batch(10, 2))
        monkeypatch.setenv(engines.SETTING, "native")
        with pytest.raises(RuntimeError, match="AIMFOR_ENGINE=native cannot be used: it was not built"):
            loss(*batch(10, 2))
        (tmp_path / "_native.so").write_bytes(b"no library")
        native._chosen.cache_clear()
        monkeypatch.delenv(engines.SETTING)
        assert aimfor.engine().name == "fused"
    finally:
        native._chosen.cache_clear()


@pytest.mark.skipif(native.problem() is not None, reason=str(native.problem()))
@pytest.mark.parametrize("kind", ["missing", "no library", "of other sources"])
def test_without_the_wide_library_the_narrower_takes_over(kind, monkeypatch, tmp_path):
    monkeypatch.delenv(engines.SETTING, raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    wide = tmp_path / "_native_v4.so"
    monkeypatch.setattr(native, "WIDE_LIBRARY", wide)
    if kind == "no library":
        wide.write_bytes(b"no library")
    elif kind == "of other sources":
        compiler = shutil.which("g++")
        if compiler is None:
            pytest.skip("no g++ here")
        texts = "sources", "vectors", "layout", "surrogates"
        source = "".join(f'const char* aimfor_{name}(void) {{ return ""; }}' for name in texts)
        source += "int aimfor_census, aimfor_observe, aimfor_step;"
        (tmp_path / "other.c").write_text(source)
        build = [compiler, "-x", "c", "-shared", "-fPIC", str(tmp_path / "other.c"), "-o", str(wide)]
        subprocess.run(build, check=True)
    native._chosen.cache_clear()
    try:
        name, reason = aimfor.engine()
        assert name == "native"
        assert "AVX-512," not in reason
        reasons = {"missing": "it was not built", "no library": str(wide), "of other sources": "other sources"}
        assert reasons[kind] in reason.split("; without AVX-512: ")[1]
        aimfor.Loss("aucpr", num_labels=2)(*batch(10, 2))
    finally:
        native._chosen.cache_clear()


@pytest.mark.parametrize("engine", ["plain", *FAST])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_slopes_too_small_to_square_do_not_throw_a_threshold(engine, surrogate, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = aimfor.Loss("recall@precision>=0.9", surrogate=surrogate, warmup=1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):  # so far apart that hardly a slope is left
        labels = (torch.rand(256, generator=generator) < 0.3).float()
        loss((2 * labels - 1) * 100 + torch.randn(256, generator=generator), labels)
    assert loss.thresholds.abs().max() < 200


@pytest.mark.parametrize("engine", ["plain", *FAST])
@pytest.mark.parametrize("of", ["entries", "rows"])
def test_weights_leave_no_rest_that_looks_like_another_class(engine, of, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1000, 37, generator=generator).requires_grad_()
    weights = torch.rand(*((1000, 37) if of == "entries" else (1000,)), generator=generator)
    for kind, row in ((1, 1), (0, 0)):  # all positive, all negative
        loss = aimfor.Loss("aucpr", num_labels=37)
        loss(scores, torch.full((1000, 37), float(kind)), weights=weights).backward()
        assert not loss.state.taking_part.any()
        assert (loss.state.class_weight[row] == 0).all()
    assert scores.grad is not None
    assert (scores.grad == 0).all()


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("negatives", [1, 5])
def test_rare_negatives_with_weights(engine, negatives, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(4096, 1, generator=generator), torch.ones(4096, 1, dtype=torch.bool)
    labels[:negatives] = False
    loss = aimfor.Loss("tpr@fpr<=0.05")
    check(engine, loss, scores, labels, monkeypatch, weights=torch.rand(4096, generator=generator))


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("negatives", [1, 127, 128, 256])
def test_hinge_of_few_and_of_many_negatives_keeps_its_digits(engine, negatives, monkeypatch):
    """At thresholds far apart: what few scores above one of them add up to is counted as well as what many do."""
    loss = prepared("aucpr; num_anchors=5", "hinge", 30, monkeypatch)
    loss.state.thresholds.add_(torch.linspace(-50, 50, 5).unsqueeze(1))
    loss.state.class_weight.fill_(1.0)
    scores, _ = batch(256, 30)
    scores[0] = 60.0
    labels = (torch.arange(256) >= negatives).unsqueeze(1).expand(-1, 30)
    rates, expected = (
        result(one, loss, scores.to(kind), labels, monkeypatch)[2]["state.rates"][1].double()
        for one, kind in ((engine, torch.float32), ("plain", torch.float64))
    )
    torch.testing.assert_close(rates, expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("labels", [1, 3])
def test_many_positives_of_nearly_one_score_keep_their_digits(engine, labels, monkeypatch):
    """Added up one after another in single precision, they would all be rounded the same way."""
    scores, positive = batch(150_000, labels, share=0.55)
    scores = torch.where(positive, -2 - 1e-3 * scores.sigmoid(), scores)
    check(engine, aimfor.Loss("aucpr; num_anchors=5", num_labels=labels), scores, positive, monkeypatch)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("rare", [0, 1])
@pytest.mark.parametrize("piece", [None, 64])
def test_a_class_that_weighs_next_to_nothing_takes_part(engine, rare, piece, monkeypatch):
    if piece is not None:
        monkeypatch.setattr(fused, "CPU_PIECE", piece)
    scores, labels = batch(40, 3, share=0.5)
    loss = aimfor.Loss("aucpr; num_anchors=3", num_labels=3)
    extra = {"weights": torch.where(labels == rare, 1e-6, 1e6)}
    value, gradient, state = result(engine, loss, scores, labels, monkeypatch, **extra)
    expected, expected_gradient, expected_state = result("plain", loss, scores, labels, monkeypatch, **extra)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)  # log-loss is added up in single precision
    torch.testing.assert_close(gradient, expected_gradient)
    torch.testing.assert_close(state["state.class_weight"], expected_state["state.class_weight"])
    assert state["state.steps"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("engine", ["plain", *FAST])
@pytest.mark.parametrize("multiclass", [False, True])
def test_the_default_device_does_not_matter(engine, multiclass, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    scores, labels = batch(40, 4)
    labels = labels.int().argmax(1) if multiclass else labels
    expected, loss = (aimfor.Loss("aucpr", num_labels=4, multiclass=multiclass) for _ in range(2))
    value = expected(scores, labels)
    with torch.device("meta"):
        assert torch.equal(loss(scores, labels), value)
    assert torch.equal(loss.thresholds, expected.thresholds)


@pytest.mark.skipif(native.problem() is not None, reason=str(native.problem()))
def test_the_vectors_are_those_of_torch(monkeypatch):
    monkeypatch.delenv(engines.SETTING, raising=False)
    told = aimfor.engine().reason
    assert "AVX2," in told if "without AVX-512: " in told else ("AVX-512," in told) == AVX_512


@pytest.mark.skipif(not AVX_512, reason="without AVX-512 all tests are of the narrower vectors")
@pytest.mark.skipif(native.problem() is not None, reason=str(native.problem()))
def test_narrower_vectors():
    """The tests of this file on the library that is used where torch is held to AVX2."""
    cases = "odd_shapes or extremes or weights_and_masks or forms_of_labels or other_types or views or vectors_are"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
    command += ["-k", f"(native or vectors_are) and ({cases})"]
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def setup_module_of_the_package():
    spec = importlib.util.spec_from_file_location("aimfor_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import setuptools

    original, setuptools.setup = setuptools.setup, lambda **_: None
    try:
        spec.loader.exec_module(module)
    finally:
        setuptools.setup = original
    return module


def test_a_build_without_and_with_a_broken_compiler(monkeypatch, tmp_path):
    """One line says what is missing, and there is no library."""
    pytest.importorskip("setuptools")
    module = setup_module_of_the_package()
    monkeypatch.chdir(ROOT)
    library = tmp_path / "_native.so"
    for name in module.LIBRARIES:
        monkeypatch.setattr(module.shutil, "which", lambda _: None)
        monkeypatch.delenv("CXX", raising=False)
        assert module.build_library(name, library) == "no C++ compiler was found"
        monkeypatch.setenv("CXX", f"{sys.executable} -c raise(SystemExit('broken'))")
        problem = module.build_library(name, library)
        assert "broken" in problem
        assert "\n" not in problem
        assert not library.exists()


# One that is broken, and one that knows nothing of AVX-512.
COMPILERS = {
    "broken": "#!/bin/sh\necho broken >&2\nexit 1\n",
    "old": '#!/bin/sh\ncase "$*" in *v4*) echo bad value for -march >&2; exit 1;; esac\nexec c++ "$@"\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["none", "broken", "old", "working"])
def test_a_wheel_without_a_compiler(compiler, tmp_path):
    """The wheel is built all the same, says what is missing, and works in torch or with narrower vectors."""
    command = {"none": "/nonexistent/c++", "working": "c++"}.get(compiler, str(tmp_path / "compiler"))
    if compiler in COMPILERS:
        (tmp_path / "compiler").write_text(COMPILERS[compiler])
        (tmp_path / "compiler").chmod(0o755)
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "source"], check=True)
    build = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "-w", tmp_path]
    environment = {"PATH": "/usr/bin:/bin", "CXX": command}
    built = subprocess.run([*build, tmp_path / "source"], check=True, env=environment, capture_output=True, text=True)
    told = [line.strip() for line in (built.stdout + built.stderr).splitlines() if "aimfor: built without" in line]
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        libraries = sorted(Path(name).name for name in archive.namelist() if name.endswith(".so"))
    code = "import aimfor; print(aimfor.__file__); print(aimfor.engine())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    file, engine = run.stdout.splitlines()
    assert file.startswith(str(tmp_path))
    if compiler == "working":
        assert engine.startswith("native: C++ built with the package")
        assert not told
        assert libraries == ["libaimfor.so", *(["libaimfor_v4.so"] if X86 else []), "libforest.so"]
    elif compiler == "old":
        assert engine.startswith("native: C++ built with the package")
        assert libraries == ["libaimfor.so", "libforest.so"]
        assert len(told) == X86
        assert ("; without AVX-512: it was not built" in engine) == AVX_512
    else:
        assert engine.startswith("fused: torch alone, because the native engine cannot be used: it was not built")
        assert not libraries
        assert len(told) == 2
        assert told[0].startswith("aimfor: built without the native engine, torch alone")
        assert told[1].startswith("aimfor: built without the walker of forests, numpy")


@pytest.mark.skipif(native.problem() is not None, reason=str(native.problem()))
def test_a_library_of_other_sources_is_not_used(monkeypatch, tmp_path):
    (tmp_path / "native.cpp").write_text("// newer")
    monkeypatch.setattr(native, "SOURCES", tmp_path)
    native._chosen.cache_clear()
    try:
        assert "other sources" in str(native.problem())
        assert aimfor.engine().name == "fused"
    finally:
        native._chosen.cache_clear()


@pytest.mark.parametrize("engine", [NATIVE])
def test_a_state_that_is_not_in_memory_is_refused(engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss, scores, labels = aimfor.Loss("aucpr", num_labels=2), torch.randn(8, 2), torch.tensor([[0, 1], [1, 0]] * 4)
    loss(scores, labels)
    saved = dict(loss.state_dict())
    saved["state.thresholds"] = torch._neg_view(-saved["state.thresholds"])
    loss.load_state_dict(saved, assign=True)
    with pytest.raises(TypeError, match=r"state\.thresholds must have its numbers in memory, got a negated view"):
        loss(scores, labels)
    loss.state.thresholds = loss.state.thresholds.resolve_neg()
    loss(scores, labels)
    loss.state.thresholds.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match=r"state\.thresholds must have its numbers in memory, got none there"):
        loss(scores, labels)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("constraint", ["surrogate", "exact"])
@pytest.mark.parametrize("shape", [(300, 1), (64, 20), (5, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_that_are_all_the_same(engine, surrogate, constraint, shape, weighted, monkeypatch):
    """Their mean is that score in every engine: a threshold beside it would have them all on its other side."""
    generator = torch.Generator().manual_seed(0)
    for same in (0.1, -7.7, 123.456):
        loss = aimfor.Loss(
            "recall@precision>=0.9", num_labels=shape[1], surrogate=surrogate, constraint=constraint, warmup=1
        )
        reference = copy.deepcopy(loss)
        for _ in range(3):
            scores, labels = torch.full(shape, same), torch.rand(shape, generator=generator) < 0.3
            labels[0], labels[1] = True, False
            extra = {"weights": torch.rand(shape[0], generator=generator) + 0.1} if weighted else {}
            found, expected = [], []
            for name, one, kind, gradients in (
                (engine, loss, torch.float32, found),
                ("plain", reference, torch.float64, expected),
            ):
                monkeypatch.setenv(engines.SETTING, name)
                leaf = scores.to(kind).clone().requires_grad_()
                one(leaf, labels, **extra).backward()
                assert leaf.grad is not None
                gradients.append(leaf.grad.double())
            assert bool((loss.thresholds == torch.tensor(same)).all())
            torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-5 * float(expected[0].abs().max()))
