"""Bad input gets one sentence with name, rule and value, and changes nothing."""

import copy

import pytest
import torch

import aimfor
from aimfor.loss.engines import _choice as engines
from aimfor.loss.engines import _native_library as native

NATIVE = pytest.param("native", marks=pytest.mark.skipif(native.problem() is not None, reason=str(native.problem())))
NAN, INF = float("nan"), float("inf")
SCORES = torch.linspace(-1, 1, 6)
LABELS = torch.tensor([1.0, 0, 1, 0, 1, 0])
WIDE = torch.linspace(-1, 1, 12).view(6, 2)
WIDE_LABELS = torch.tensor([[1.0, 0]] * 6)


def with_entry(tensor: torch.Tensor, value: float) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(-1)[3] = value
    return changed


def imaginary(tensor: torch.Tensor) -> torch.Tensor:
    """Minus the tensor, of which torch has turned only a bit that says so."""
    turned = torch.complex(tensor, tensor).conj().imag
    assert turned.is_neg()
    return turned


CALLS = [
    (
        1,
        with_entry(SCORES, NAN),
        LABELS,
        {},
        ValueError,
        r"scores must be finite and at most 1e\+10 in size in every entry, got nan",
    ),
    (
        1,
        with_entry(SCORES, INF),
        LABELS,
        {},
        ValueError,
        r"scores must be finite and at most 1e\+10 in size in every entry, got inf",
    ),
    (
        1,
        with_entry(SCORES, -INF),
        LABELS,
        {},
        ValueError,
        r"scores must be finite and at most 1e\+10 in size in every entry, got -inf",
    ),
    (1, with_entry(SCORES, 1e30), LABELS, {}, ValueError, r"scores must be finite and at most 1e\+10 .*, got 1\.0"),
    (1, SCORES, with_entry(LABELS, 2.0), {}, ValueError, "labels must be 0 or 1 in every entry, got 2.0"),
    (1, SCORES, with_entry(LABELS, -1.0), {}, ValueError, "labels must be 0 or 1 in every entry, got -1.0"),
    (1, SCORES, with_entry(LABELS, 0.5), {}, ValueError, "labels must be 0 or 1 in every entry, got 0.5"),
    (1, SCORES, with_entry(LABELS, NAN), {}, ValueError, "labels must be 0 or 1 in every entry, got nan"),
    (1, SCORES, LABELS.unsqueeze(1), {}, ValueError, r"labels must have the shape of scores, \(6,\), got \(6, 1\)"),
    (1, SCORES.unsqueeze(1), LABELS, {}, ValueError, r"labels must have the shape of scores, \(6, 1\), got \(6,\)"),
    (1, SCORES, LABELS[:5], {}, ValueError, r"labels must have the shape of scores, \(6,\), got \(5,\)"),
    (1, SCORES[:0], LABELS[:0], {}, ValueError, r"scores must have at least one row, got \(0,\)"),
    (2, WIDE[:0], WIDE_LABELS[:0], {}, ValueError, r"scores must have at least one row, got \(0, 2\)"),
    (1, WIDE, WIDE_LABELS, {}, ValueError, r"scores must have shape \[B\] or \[B, 1\] for num_labels=1, got \(6, 2\)"),
    (3, WIDE, WIDE_LABELS, {}, ValueError, r"scores must have shape \[B, 3\] for num_labels=3, got \(6, 2\)"),
    (2, SCORES, LABELS, {}, ValueError, r"scores must have shape \[B, 2\] for num_labels=2, got \(6,\)"),
    (1, torch.tensor(1.0), torch.tensor(1.0), {}, ValueError, r"scores must have shape .*, got \(\)"),
    (1, LABELS.long(), LABELS, {}, TypeError, "scores must be floating point, got torch.int64"),
    (1, SCORES.numpy(), LABELS, {}, TypeError, "scores must be a torch.Tensor, got ndarray"),
    (1, SCORES, [1, 0, 1, 0, 1, 0], {}, TypeError, "labels must be a torch.Tensor, got list"),
    (1, SCORES, LABELS, {"weights": [1.0] * 6}, TypeError, "weights must be a torch.Tensor, got list"),
    (
        1,
        SCORES,
        LABELS,
        {"weights": with_entry(LABELS, -0.5)},
        ValueError,
        "weights must be 0 or between .*got -0.5",
    ),
    (1, SCORES, LABELS, {"weights": with_entry(LABELS, NAN)}, ValueError, "weights must be 0 or between .*got nan"),
    (1, SCORES, LABELS, {"weights": 1e-40 * torch.ones(6)}, ValueError, "weights must be 0 or between 1e-12 and 1e"),
    (1, SCORES, LABELS, {"weights": 1e60 * torch.ones(6).double()}, ValueError, r"weights must be 0 .*got 1e\+60"),
    (1, SCORES, LABELS, {"weights": with_entry(LABELS, INF).half()}, ValueError, "weights must be 0 or .*got inf"),
    (1, SCORES.half(), LABELS, {"weights": with_entry(LABELS, INF).half()}, ValueError, "weights must be .*got inf"),
    (1, SCORES, LABELS, {"weights": with_entry(LABELS, INF).bfloat16()}, ValueError, "weights must be 0 or .*got inf"),
    (1, SCORES, LABELS, {"weights": with_entry(LABELS, -1.0).half()}, ValueError, "weights must be 0 or .*got -1.0"),
    (1, with_entry(SCORES, INF).half(), LABELS, {}, ValueError, "scores must be finite .*got inf"),
    (1, with_entry(SCORES, -INF).half(), LABELS, {"weights": LABELS + 1}, ValueError, "scores must be .*got -inf"),
    (1, SCORES, with_entry(LABELS, 2.0).long(), {}, ValueError, "labels must be 0 or 1 in every entry, got 2$"),
    (1, SCORES, with_entry(LABELS.double(), 1 + 1e-12), {}, ValueError, "labels must be .*got 1.000000000001$"),
    (2, WIDE, with_entry(WIDE_LABELS.double(), 1e-60), {}, ValueError, "labels must be .*got 1e-60$"),
    (1, SCORES, -2 * imaginary(LABELS), {}, ValueError, "labels must be 0 or 1 in every entry, got 2.0"),
    (1, SCORES, LABELS, {"weights": imaginary(LABELS)}, ValueError, "weights must be 0 or between .*got -1.0"),
    (1, SCORES.to(torch.float8_e4m3fn), LABELS, {}, TypeError, "scores must be .* 16 bits .*got torch.float8_e4m3fn"),
    (1, SCORES, LABELS.to(torch.float8_e5m2), {}, TypeError, "labels must be .* 16 bits .*got torch.float8_e5m2"),
    (
        1,
        SCORES,
        LABELS,
        {"weights": LABELS.to(torch.float8_e5m2)},
        TypeError,
        "weights must be .* 16 bits .*got torch.float8_e5m2",
    ),
    (1, SCORES, LABELS * 1j, {}, TypeError, "labels must be real, got torch.complex64"),
    (1, SCORES, LABELS, {"weights": torch.ones(5)}, ValueError, r"weights must have shape \(6,\), got \(5,\)"),
    (1, SCORES, LABELS, {"weights": torch.ones(6, 1)}, ValueError, r"weights must have shape \(6,\), got \(6, 1\)"),
    (2, WIDE, WIDE_LABELS, {"weights": torch.ones(6, 1)}, ValueError, r"weights must have shape \(6,\) or \(6, 2\)"),
    (2, WIDE, WIDE_LABELS, {"mask": torch.ones(2, dtype=torch.bool)}, ValueError, r"mask must have shape .*got \(2,\)"),
    (1, SCORES, LABELS, {"mask": LABELS}, TypeError, "mask must be of dtype torch.bool, got torch.float32"),
]


@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
@pytest.mark.parametrize(("num_labels", "scores", "labels", "extra", "error", "message"), CALLS)
def test_bad_batches(engine, num_labels, scores, labels, extra, error, message, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = aimfor.Loss("aucpr", num_labels=num_labels)
    good = (SCORES, LABELS) if num_labels == 1 else (torch.randn(6, num_labels), torch.eye(num_labels).repeat(3, 1)[:6])
    loss(*good)
    before = copy.deepcopy(loss.state_dict())
    with pytest.raises(error, match=message) as caught:
        loss(scores, labels, **extra)
    assert "\n" not in str(caught.value)
    for name, tensor in loss.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.skipif(native.problem() is not None, reason=str(native.problem()))
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("thresholds", torch.Tensor.bfloat16, "float32, contiguous and on the CPU, got torch.bfloat16"),
        ("rates", torch.Tensor.half, "float32, contiguous and on the CPU, got torch.float16"),
        ("steps", torch.Tensor.int, "int64, contiguous and on the CPU, got torch.int32"),
        ("class_weight", lambda tensor: tensor.to("meta"), r"float32, contiguous and on the CPU, got .* on meta"),
        ("multipliers", lambda tensor: tensor.t().contiguous().t(), r"float32, contiguous .*, got strides \(1, "),
    ],
)
def test_a_state_that_the_library_cannot_use(name, change, message, monkeypatch):
    monkeypatch.setenv(engines.SETTING, "native")
    loss = aimfor.Loss("aucpr", num_labels=2)
    loss(WIDE, WIDE_LABELS)
    setattr(loss.state, name, change(getattr(loss.state, name)))
    with pytest.raises(TypeError, match=f"^state.{name} must be {message}"):
        loss(WIDE, WIDE_LABELS)


@pytest.mark.skipif(native.problem() is not None, reason=str(native.problem()))
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("thresholds", r"state.thresholds must have shape \[K, 2\], got \[10, 1\]"),
        ("score_mean", "state.score_mean must have 2 entries, got 1"),
    ],
)
def test_a_state_of_another_size(name, message, monkeypatch):
    monkeypatch.setenv(engines.SETTING, "native")
    loss = aimfor.Loss("aucpr; num_anchors=10", num_labels=2)
    setattr(loss.state, name, getattr(loss.state, name)[..., :1].contiguous())
    with pytest.raises(TypeError, match=message):
        loss(WIDE, WIDE_LABELS)


@pytest.mark.skipif(native.problem() is not None, reason=str(native.problem()))
@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
@pytest.mark.parametrize("scores", [torch.tensor([[0.0, INF]]), torch.tensor([[0.0, -INF]]), torch.tensor([[NAN, 0]])])
def test_bad_scores_of_classes(engine, scores, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    for kind in (torch.float16, torch.float32):
        with pytest.raises(ValueError, match="scores must be finite"):
            aimfor.Loss("aucpr", num_labels=2, multiclass=True)(scores.to(kind), torch.tensor([1]))


@pytest.mark.parametrize("engine", ["plain", "fused", NATIVE])
def test_log_odds_that_are_too_large_are_called_so(engine, monkeypatch):
    monkeypatch.setenv(engines.SETTING, engine)
    loss = aimfor.Loss("aucpr", num_labels=3, multiclass=True)
    with pytest.raises(
        ValueError, match=r"^log-odds of scores must be finite and at most 1e\+10 .*, got -20000000000.0"
    ):
        loss(torch.tensor([[1e10, -1e10, 0.0]]), torch.tensor([0]))
    assert loss.state.batches == 0


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([[0], [3]], ValueError, r"rows must hold whole numbers in 0\.\.2, got 3"),
        ([[0], [-1]], ValueError, r"rows must hold whole numbers in 0\.\.2, got -1"),
        ([[1.7], [2.99]], TypeError, r"rows must hold whole numbers in 0\.\.2, got 1\.7 of torch.float32"),
        ([[0], torch.tensor([1.0])], TypeError, r"rows must hold whole numbers in 0\.\.2, got 1 of torch.float32"),
        ([[True, False]], TypeError, r"rows must hold whole numbers in 0\.\.2, got True of torch.bool"),
        (["ab"], TypeError, r"rows must hold whole numbers in 0\.\.2, got 'ab'"),
        ([["a"]], TypeError, r"rows must hold whole numbers in 0\.\.2, got \['a'\]"),
        ([None], TypeError, r"rows must hold whole numbers in 0\.\.2, got None"),
        ([[2**70]], TypeError, r"rows must hold whole numbers in 0\.\.2, got \[1180591620717411303424\]"),
        ([0, 1], TypeError, r"rows must hold whole numbers in 0\.\.2, a list for each row, got shape \(\)"),
        ([[[0, 1]]], TypeError, r"rows must hold whole numbers in 0\.\.2, a list for each row, got shape \(1, 2\)"),
        ([], ValueError, "rows must have at least one row, got 0"),
        (None, TypeError, "rows must be a list of rows, got None"),
        ([{0, 3}], ValueError, r"rows must hold whole numbers in 0\.\.2, got 3"),
        ([{"a"}], TypeError, r"rows must hold whole numbers in 0\.\.2, got \{'a'\}"),
    ],
)
def test_bad_sparse_labels(rows, error, message):
    with pytest.raises(error, match=message) as caught:
        aimfor.sparse_labels(rows, 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (torch.tensor([0, 1, 2, 0, 1, 3]), ValueError, r"labels must be in 0\.\.2 in every entry, got 3"),
        (torch.tensor([0, 1, 2, 0, 1, -1]), ValueError, r"labels must be in 0\.\.2 in every entry, got -1"),
        (torch.zeros(6), TypeError, "labels must be whole numbers when multiclass, got torch.float32"),
        (
            torch.zeros(6).long().to_sparse(),
            TypeError,
            "labels must be a dense tensor of class indices when multiclass, got torch.sparse_coo",
        ),
        (
            torch.zeros(6, 3, dtype=torch.long),
            ValueError,
            r"labels must have shape \(6,\) when multiclass, got \(6, 3\)",
        ),
    ],
)
def test_bad_classes(labels, error, message):
    loss = aimfor.Loss("aucpr", num_labels=3, multiclass=True)
    loss(torch.randn(6, 3), torch.arange(6) % 3)
    before = copy.deepcopy(loss.state_dict())
    with pytest.raises(error, match=message) as caught:
        loss(torch.randn(6, 3), labels)
    assert "\n" not in str(caught.value)
    for name, tensor in loss.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"aim": "recall@precision>=1.7"}, ValueError, r"min_precision must be in \(0, 1\), got 1.7"),
        (
            {"aim": "aucpr[0.9<=precision<=0.2]"},
            ValueError,
            "min_precision must be below max_precision, got 0.9 and 0.2",
        ),
        ({"aim": "aucpr[0.9<=recall<=0.9]"}, ValueError, "min_recall must be below max_recall, got 0.9 and 0.9"),
        ({"aim": None}, TypeError, "aim must be a text or an aim record, got NoneType"),
        ({"surrogate": "hinged"}, ValueError, "surrogate must be one of 'hinge', 'log', .*, got 'hinged'"),
        ({"constraint": "soft"}, ValueError, "constraint must be one of 'surrogate', 'exact', got 'soft'"),
        ({"num_labels": 0}, ValueError, "num_labels must be at least 1, got 0"),
        ({"num_labels": 1.0}, TypeError, "num_labels must be a whole number, got 1.0"),
        ({"multiclass": True}, ValueError, "num_labels must be at least 2, got 1"),
        ({"dual_rate": 0}, ValueError, r"dual_rate must be in \(0, inf\), got 0"),
        ({"threshold_rate": -1.0}, ValueError, r"threshold_rate must be in \(0, inf\), got -1.0"),
        ({"threshold_rate": "fast"}, TypeError, "threshold_rate must be a number, got 'fast'"),
        ({"warmup": 0}, ValueError, "warmup must be at least 1, got 0"),
        ({"log_loss_batches": -1}, ValueError, "log_loss_batches must be at least 0, got -1"),
        ({"multiclass": "no"}, TypeError, "multiclass must be True or False, got 'no'"),
        ({"priors": 1e-50}, ValueError, "priors must be at least 1e-07 away from 0 and 1, got 1e-50"),
        ({"priors": 0.0}, ValueError, r"priors must be in \(0, 1\), got 0.0"),
        ({"priors": [0.1, 0.2]}, ValueError, "priors must have one entry for each of the 1 labels, got 2"),
    ],
)
def test_bad_options(arguments, error, message):
    with pytest.raises(error, match=message) as caught:
        aimfor.Loss(**({"aim": "aucpr"} | arguments))
    assert "\n" not in str(caught.value)
