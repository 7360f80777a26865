"""A surrogate or an engine that is registered in one place works everywhere, or is refused in one clear sentence."""

import copy
import shutil
import subprocess
import sys

import pytest
import torch

import aimfor
from aimfor.loss import SURROGATES, Surrogate
from aimfor.loss.engines import CountingEngine
from aimfor.loss.engines import _choice as choice
from aimfor.loss.engines import _native_library as native_library
from aimfor.loss.engines._fused_curves import CURVES
from aimfor.loss.engines._reference import ReferenceEngine
from cases import NATIVE

WITHOUT_NATIVE = pytest.mark.skipif(native_library.problem() is not None, reason=str(native_library.problem()))


def exponential(margin):
    return (-margin).clamp(max=20).exp()


def exponential_slope(margin):
    return -exponential(margin)


EXPONENTIAL = Surrogate("exponential", exponential, exponential_slope, bounds=True, convex=True)
STEEPER_HINGE = Surrogate(
    "hinge",
    lambda margin: (1 - 2 * margin).clamp(min=0),
    lambda margin: -2.0 * (margin < 0.5).to(margin.dtype),
    bounds=True,
    convex=True,
)


@pytest.fixture(autouse=True)
def _no_engine_is_forced(monkeypatch):
    monkeypatch.delenv(choice.SETTING, raising=False)


def batch(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(60, 3, generator=generator), torch.rand(60, 3, generator=generator) < 0.3


def learned(loss: aimfor.Loss, dtype: torch.dtype):
    """Gradient of the fourth batch, and the state after it."""
    for seed in range(4):
        scores, labels = batch(seed)
        scores = scores.to(dtype).requires_grad_()
        loss(scores, labels).backward()
    assert scores.grad is not None
    return scores.grad.double(), loss.thresholds.double().clone()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("surrogate", [EXPONENTIAL, STEEPER_HINGE], ids=["new name", "name of another"])
def test_a_new_surrogate_is_counted_by_its_own_loss(surrogate, dtype, monkeypatch):
    """Registered in `SURROGATES` alone: engines without a curve for it leave it to the reference."""
    monkeypatch.setitem(SURROGATES, surrogate.name, surrogate)
    loss = aimfor.Loss("recall@precision>=0.8", num_labels=3, surrogate=surrogate.name)
    reference = copy.deepcopy(loss)
    assert choice.engine_for(batch()[0].to(dtype), loss.surrogate).name == "plain"
    gradient, thresholds = learned(loss, dtype)
    monkeypatch.setenv(choice.SETTING, "plain")
    expected, expected_thresholds = learned(reference, dtype)
    assert gradient.abs().max() > 0
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0)
    torch.testing.assert_close(thresholds, expected_thresholds, rtol=0, atol=0)


def test_a_new_surrogate_is_differentiated(monkeypatch):
    monkeypatch.setitem(SURROGATES, EXPONENTIAL.name, EXPONENTIAL)
    loss = aimfor.Loss("recall@precision>=0.8", num_labels=3, surrogate="exponential")
    learned(loss, torch.float64)
    scores, labels = batch(9)
    loss.eval()
    assert torch.autograd.gradcheck(lambda scores: loss(scores, labels), scores.double().requires_grad_())


@pytest.mark.parametrize("engine", ["fused", NATIVE])
def test_an_engine_that_is_asked_for_refuses_a_surrogate_that_it_does_not_know(engine, monkeypatch):
    monkeypatch.setitem(SURROGATES, EXPONENTIAL.name, EXPONENTIAL)
    monkeypatch.setenv(choice.SETTING, engine)
    loss = aimfor.Loss("aucpr", num_labels=3, surrogate="exponential")
    with pytest.raises(ValueError, match=f"AIMFOR_ENGINE={engine} does not know the surrogate 'exponential': unset"):
        loss(*batch())


def test_every_surrogate_is_known_to_every_engine():
    for engine in choice.ENGINES.values():
        assert engine.surrogates is None or set(SURROGATES.values()) <= set(engine.surrogates), engine.name


def test_a_copy_of_a_loss_keeps_its_engine():
    """Records are compared by what they hold: a copied or unpickled one is not another surrogate."""
    scores = torch.zeros(1, 1)
    loss = aimfor.Loss("aucpr")
    assert choice.engine_for(scores, copy.deepcopy(loss.surrogate)) is choice.engine_for(scores, loss.surrogate)
    assert copy.deepcopy(loss.surrogate) in CURVES


class CountingCalls(ReferenceEngine):
    """The reference with a name of its own, for the smooth hinge in float32 alone."""

    name = "fake"
    surrogates = (SURROGATES["smooth_hinge"],)
    calls = 0

    def description(self) -> str:
        return "made up by a test"

    def scores_problem(self, scores):
        return None if scores.dtype == torch.float32 else f"scores of float32, got {scores.dtype}"

    def begin(self, batch, state, rules):
        self.calls += 1
        return super().begin(batch, state, rules)


@pytest.fixture
def fake(monkeypatch) -> CountingCalls:
    engine = CountingCalls()
    monkeypatch.setattr(choice, "ENGINES", {engine.name: engine, **choice.ENGINES})
    return engine


def test_a_new_engine_counts_what_it_takes(fake, monkeypatch):
    assert str(aimfor.engine()) == "fake: made up by a test"
    loss = aimfor.Loss("aucpr", num_labels=3)
    reference = copy.deepcopy(loss)
    gradient, thresholds = learned(loss, torch.float32)
    assert fake.calls == 4
    monkeypatch.setenv(choice.SETTING, "plain")
    expected, expected_thresholds = learned(reference, torch.float32)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0)
    torch.testing.assert_close(thresholds, expected_thresholds, rtol=0, atol=0)
    learned(aimfor.Loss("aucpr", num_labels=3, surrogate="log"), torch.float32)
    assert fake.calls == 4


@pytest.mark.parametrize(("dtype", "surrogate"), [(torch.float64, "smooth_hinge"), (torch.float32, "log")])
def test_what_a_new_engine_does_not_take_falls_to_the_next(fake, dtype, surrogate):
    loss = aimfor.Loss("aucpr", num_labels=3, surrogate=surrogate)
    assert choice.engine_for(batch()[0].to(dtype), loss.surrogate).name != "fake"
    learned(loss, dtype)
    assert fake.calls == 0


def test_a_new_engine_may_be_asked_for_by_name(fake, monkeypatch):
    monkeypatch.setenv(choice.SETTING, "fake")
    assert aimfor.engine().name == "fake"
    aimfor.Loss("aucpr", num_labels=3)(*batch())
    with pytest.raises(ValueError, match=r"AIMFOR_ENGINE=fake takes scores of float32, got torch\.float64"):
        aimfor.Loss("aucpr", num_labels=3)(batch()[0].double(), batch()[1])


def test_a_new_engine_that_cannot_be_used_is_named_with_its_reason(fake, monkeypatch):
    monkeypatch.setattr(CountingCalls, "problem", lambda self: "it is made up")
    name, reason = aimfor.engine()
    assert name != "fake"
    assert "because the fake engine cannot be used: it is made up" in reason


def test_an_engine_without_a_count_cannot_be_made():
    class Unfinished(CountingEngine):
        name = "unfinished"

    with pytest.raises(TypeError, match="begin"):
        Unfinished()  # pyright: ignore[reportAbstractUsage]


@WITHOUT_NATIVE
def test_the_library_says_what_the_python_code_expects():
    library = native_library.library()
    assert library.aimfor_layout().decode().splitlines() == native_library.expected_layout()
    assert library.aimfor_surrogates().decode() == native_library.expected_surrogates()


# File, what is changed in it, and what is said of the library that was built from it.
CHANGES = [
    pytest.param(
        "state.h",
        ("float dual_rate, threshold_rate,", "float extra, dual_rate, threshold_rate,"),
        "its struct Rules has another layout",
        id="a field more",
    ),
    pytest.param(
        "batches.h",
        ("int64_t rows;\n    int64_t labels;", "int64_t labels;\n    int64_t rows;"),
        "its struct Batch has another layout",
        id="two fields swapped",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "state.h",
        ("float* thresholds;\n    float* multipliers;", "float* multipliers;\n    float* thresholds;"),
        "its struct State has another layout",
        id="a buffer at another place",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "surrogates.h",
        ("HINGE = 0, LOG = 1", "HINGE = 1, LOG = 0"),
        "it numbers the surrogates as log hinge",
        id="other numbers",
    ),
]


@WITHOUT_NATIVE
@pytest.mark.parametrize(("file", "change", "reported"), CHANGES)
def test_a_library_that_differs_is_not_used(file, change, reported, monkeypatch, tmp_path):
    """Built from changed sources, which are said to be the right ones, so that only the comparison can find it."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ here")
    sources = tmp_path / "csrc"
    shutil.copytree(native_library.SOURCES, sources)
    text = (sources / file).read_text()
    assert text.count(change[0]) == 1
    (sources / file).write_text(text.replace(*change))
    monkeypatch.setattr(native_library, "SOURCES", sources)
    library = tmp_path / "libaimfor.so"
    flags = ["-std=c++17", "-O0", "-fPIC", "-shared", "-w", f'-DAIMFOR_SOURCES="{native_library._sources()}"']
    subprocess.run([compiler, *flags, str(sources / "native.cpp"), "-o", str(library)], check=True)
    for path in ("LIBRARY", "WIDE_LIBRARY"):
        monkeypatch.setattr(native_library, path, library)
    native_library._chosen.cache_clear()
    try:
        name, reason = aimfor.engine()
        assert name == "fused"
        assert reported in reason
        assert reason.endswith("install the package again")
        aimfor.Loss("aucpr", num_labels=3)(*batch())
    finally:
        native_library._chosen.cache_clear()


def test_torchs_compiler_is_not_imported_before_it_is_used():
    code = """
import sys, torch, aimfor
scores = torch.randn(8, requires_grad=True)
aimfor.Loss("aucpr")(scores, torch.arange(8) % 2).backward()
assert "torch._dynamo" not in sys.modules, "imported"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
