"""The Triton engine by Triton's interpreter: the numbers of the reference, and how many bytes a step moves.

The interpreter must be asked for before Triton is imported, hence processes of their own. The kernels are compiled for
CUDA too, which needs no GPU. How fast they are is not known.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import aimfor
from aimfor.loss.engines import _choice as choice

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "engines.md"
INSTALLED = importlib.util.find_spec("triton") is not None
TRITON = pytest.mark.skipif(not INSTALLED, reason="Triton is not installed")
# The quick part: every surrogate with weights and masks, forms and types of labels and scores, views, bad input.
QUICK = "weights_and_masks or (forms_of_labels and 4) or other_types or views or made_of_anything or extremes and 3"


def run(*command: str, interpreted: bool = True, timeout: int = 280) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)
    if interpreted:
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        env=environment,
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout


@TRITON
@pytest.mark.parametrize(
    ("chosen", "fewest"),
    [
        (f"triton and ({QUICK})", 90),
        pytest.param("triton", 400, marks=[pytest.mark.slow, pytest.mark.timeout(1900)]),
    ],
    ids=["quick", "all"],
)
def test_the_tests_of_engines(chosen, fewest):
    tests = str(HERE / "test_engines.py")
    found = run("-m", "pytest", tests, "-q", "-p", "no:cacheprovider", "-k", chosen, "--timeout=900", timeout=1800)
    assert int(found.splitlines()[-1].split(" passed")[0].split()[-1]) >= fewest


def bytes_per_score(rows: int, labels: int, kind: str, form: str) -> dict[str, float]:
    os.environ["AIMFOR_ENGINE"] = "triton"
    try:
        found = run(str(HERE / "triton_bytes.py"), str(rows), str(labels), "10", kind, form)
    finally:
        del os.environ["AIMFOR_ENGINE"]
    return json.loads(found)


@TRITON
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("float32", "float32"),
        pytest.param("float32", "csr", marks=pytest.mark.slow),
        pytest.param("bfloat16", "bfloat16", marks=pytest.mark.slow),
        pytest.param("bfloat16", "bool", marks=pytest.mark.slow),
    ],
)
def test_bytes_of_a_step_against_those_of_log_loss(kind, form):
    """Counted from the loads and stores that the kernels make, with ten anchors and 128 rows.

    Log-loss reads scores and targets forwards, both again backwards, and writes the gradient: five numbers a score, if
    its kernels hold nothing else in memory.
    """
    found = bytes_per_score(128, 64, kind, form)
    size = getattr(torch, kind).itemsize
    total = sum(found.values())
    assert total <= 1.2 * 5 * size
    shown = f"{kind}, {'sparse' if form == 'csr' else form} labels"
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {shown} |")]
    assert row.endswith(f" {total:.2f} | {total / (5 * size):.2f} |")
    # The pass itself: a score, a bit of a label and a gradient, and what each label has.
    tables, sums = 4 * (3 * 10 + 3) / 128, 4 * (4 * 10 + 2) / 128
    assert found["count_kernel loads"] == size + 1 / 8 + tables
    assert found["count_kernel stores"] == size + sums
    label = 0 if form == "csr" else getattr(torch, form).itemsize
    assert found["census_kernel loads"] == size + (label or 1 / 8)


COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from aimfor.loss.engines import _triton_kernels as kernels

def compiled(kernel, kind, **constants):
    constants = {"ROWS": 256, "BLOCK_ROWS": 16, "BLOCK_LABELS": 32, "WEIGHTED": True, "MASKED": True, **constants}
    floats, pointer = "*fp32", "*" + kind
    types = {"batch": (pointer, floats, "*u8"), "strides": ("i32",) * 6, "bits": "*i32", "labels": "*i64"}
    types |= {"label_strides": ("i32", "i32"), "found": floats, "largest_score": "fp32", "tables": (floats,) * 3}
    types |= {"per_label": (floats,) * 5, "gradient": pointer, "sums": floats, "extras": floats}
    types |= dict.fromkeys(("rows", "num_labels", "num_anchors"), "i32")
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types[name] for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    made = compile(ASTSource(kernel, signature, places), target=GPUTarget("cuda", 80, 32))
    print(kernel.__name__, kind, len(made.asm["cubin"]))

for kind in ("fp32", "bf16"):
    for sparse in (False, True):
        compiled(kernels.census_kernel, kind, SPARSE=sparse)
for surrogate in range(5):
    log = surrogate % 2 == 1
    rest = {"TIGHT": surrogate > 2, "MIXED": surrogate == 4, "ERRORS": log, "LOG_LOSS": log, "NEGATIVE_LOG_LOSS": log}
    # A number that is 1 is a constant to the compiler.
    single = {"num_anchors": 1, "BLOCK_ANCHORS": 1} if surrogate == 4 else {"BLOCK_ANCHORS": 16}
    compiled(kernels.count_kernel, "bf16" if log else "fp32", SURROGATE=surrogate, **rest, **single)
"""


@TRITON
@pytest.mark.slow
def test_the_kernels_compile_for_cuda(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    file = tmp_path / "compile.py"  # the compiler reads sources from files
    file.write_text(COMPILE)
    assert len(run(str(file), interpreted=False).splitlines()) == 9


def test_it_is_chosen_for_cuda_where_triton_is_there_and_never_for_the_cpu(monkeypatch):
    monkeypatch.delenv(choice.SETTING, raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    engine = choice.ENGINES["triton"]
    monkeypatch.setattr(type(engine), "problem", lambda self: None)
    hinge = aimfor.Loss("aucpr").surrogate

    class Cuda:
        is_cuda, is_cpu, dtype, device = True, False, torch.float32, torch.device("cuda")

    assert choice.engine_for(Cuda(), hinge) is engine  # pyright: ignore[reportArgumentType]
    assert choice.engine_for(torch.zeros(2), hinge) is not engine
    assert aimfor.engine().name != "triton"
    monkeypatch.setattr(type(engine), "problem", lambda self: "Triton is not installed")
    assert choice.engine_for(Cuda(), hinge).name == "fused"  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(Cuda, "dtype", torch.float64)
    monkeypatch.setattr(type(engine), "problem", lambda self: None)
    assert choice.engine_for(Cuda(), hinge).name == "fused"  # pyright: ignore[reportArgumentType]


@TRITON
def test_on_the_cpu_it_must_be_asked_for_with_its_interpreter(monkeypatch):
    monkeypatch.setenv(choice.SETTING, "triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(
        ValueError, match=r"AIMFOR_ENGINE=triton takes scores .* on the CPU with TRITON_INTERPRET=1, got"
    ):
        aimfor.Loss("aucpr")(torch.randn(4), torch.arange(4) % 2)
