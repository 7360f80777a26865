"""Calls of the loss with drawn shapes, types, layouts and subclasses of tensors, which a test runs in a process.

Each call ends in a result equal to that of the reference engine, or in a Python exception. The last line counts both.
"""

import copy
import os
import random
import sys
import warnings

import torch
from torch.testing._internal.two_tensor import TwoTensor

import aimfor
from cases import AIMS, SURROGATES

FLOATS = [torch.float32] * 6 + [torch.float64, torch.bfloat16, torch.float16]
ODD_TYPES = [torch.int64, torch.complex64, torch.float8_e4m3fn, torch.bool, torch.uint8]
LABEL_TYPES = [torch.float32, torch.float64, torch.bool, torch.int64, torch.int32, torch.uint8, torch.int8] * 3
LABEL_TYPES += [torch.bfloat16, torch.float16, torch.uint16, torch.uint64, torch.complex64, torch.float8_e5m2]
TOLERANCE = 1e-4


class Plain(torch.Tensor):
    """A subclass that changes nothing."""


class Talkative(torch.Tensor):
    """A subclass whose functions are its own."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


# Each makes another tensor of a matrix with the same numbers, or one that cannot be read.
def transposed(tensor):
    return tensor.t().contiguous().t() if tensor.ndim == 2 else tensor


def every_second(tensor):
    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return wide[..., ::2]


def later(tensor):
    return torch.cat([tensor[:1], tensor])[1:]


def from_the_back(tensor):
    return tensor.flip(0).flip(0).unsqueeze(0).squeeze(0)


def one_row_for_all(tensor):
    return tensor[:1].expand_as(tensor)


def negated_view(tensor):
    values = tensor.float()
    return torch.complex(values, -values).conj().imag.to(tensor.dtype)


def conjugated(tensor):
    return torch.complex(tensor.float(), tensor.float()).conj()


def freed(tensor):
    """As FSDP leaves a parameter that it has given back."""
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def too_short(tensor):
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(tensor.untyped_storage().nbytes() // 2)
    return tensor


def fake(tensor):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(tensor.shape, dtype=tensor.dtype)


def functional(tensor):
    return torch._to_functional_tensor(tensor)


def nested(tensor):
    return torch.nested.nested_tensor(list(tensor), layout=torch.jagged)


def quantised(tensor):
    return torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8)


def inference(tensor):
    with torch.inference_mode():
        return tensor.clone()


def named(tensor):
    return tensor.clone().refine_names(*"BLXYZ"[: tensor.ndim])


ORDINARY = [transposed, every_second, later, from_the_back, one_row_for_all, negated_view]
ORDINARY += [lambda one: one.as_subclass(Plain), lambda one: one.as_subclass(Talkative), torch.nn.Buffer, inference]
STRANGE = [freed, too_short, fake, functional, nested, quantised, named, conjugated, fake]
STRANGE += [lambda one: TwoTensor(one, one.clone()), lambda one: one.to("meta"), lambda one: one.to_mkldnn()]
STRANGE += [lambda one: one.to_sparse(), lambda one: one.tolist(), lambda one: one.numpy(), lambda one: None]
STRANGE += [lambda one: one.unsqueeze(0), lambda one: one[:-1], lambda one: one.t(), lambda one: one[:0]]
STRANGE += [lambda one: one.to(torch.int32), lambda one: one + float("nan"), lambda one: one * 1e30]


def sparse(labels, draw: random.Random):
    kind = draw.choice(["csr", "coo", "csc", "bsr", "twice", "outside", "unsorted"])
    labels = labels.float()
    if kind in ("csc", "bsr"):
        return labels.to_sparse_csc() if kind == "csc" else labels.to_sparse_bsr((1, 1))
    if kind == "csr":
        return labels.to_sparse_csr()
    index, size = labels.nonzero().t(), tuple(labels.shape)
    if kind == "twice":
        index = torch.cat([index, index], 1)
    elif kind == "outside" and index.shape[1]:
        index[draw.randrange(2), draw.randrange(index.shape[1])] = draw.choice([-1, 10**6, 2**40])
    elif kind == "unsorted":
        index = index.flip(1)
    return torch.sparse_coo_tensor(index, torch.ones(index.shape[1]), size, check_invariants=False)


def drawn_scores(draw: random.Random, rows: int, labels: int, generator) -> torch.Tensor:
    scores = torch.randn(rows, labels, generator=generator)
    kind = draw.choice(["normal"] * 5 + ["equal", "lattice", "large", "small", "one sided"])
    if kind == "equal":
        scores = torch.full_like(scores, draw.choice([0.0, 1.0, -0.3]))
    elif kind == "lattice":
        scores = scores.round()
    return scores * {"large": 1e4, "small": 1e-4}.get(kind, 1.0) + (5.0 if kind == "one sided" else 0.0)


def drawn_call(draw: random.Random, generator):
    """A loss that has learned a little, and the arguments of one call."""
    multiclass = draw.random() < 0.15
    rows = draw.choice([1, 2, 3, 7, 33, 64, 129, 300])
    labels = draw.choice([2, 3, 5, 17] if multiclass else [1, 1, 1, 2, 3, 5, 17, 33, 70])
    loss = aimfor.Loss(
        draw.choice(AIMS),
        num_labels=labels,
        surrogate=draw.choice(SURROGATES),
        constraint=draw.choice(["surrogate", "exact"]),
        multiclass=multiclass,
        priors=draw.choice([None, None, 0.1]),
        warmup=2,
    )

    def drawn_labels(rows: int) -> torch.Tensor:
        if multiclass:
            return torch.randint(labels, (rows,), generator=generator)
        return torch.rand(rows, labels, generator=generator) < draw.choice([0.02, 0.3, 0.5, 1.0])

    for _ in range(draw.choice([0, 1, 3])):
        loss(torch.randn(40, labels, generator=generator), drawn_labels(40))
    scores, truth, extra = drawn_scores(draw, rows, labels, generator), drawn_labels(rows), {}
    flat = labels == 1 and draw.random() < 0.5
    scores, truth = (scores[:, 0], truth[:, 0]) if flat else (scores, truth)
    scores = scores.to(draw.choice(FLOATS if draw.random() < 0.95 else ODD_TYPES))
    if not multiclass:
        as_sparse = not flat and draw.random() < 0.2
        truth = sparse(truth, draw) if as_sparse else truth.to(draw.choice(LABEL_TYPES))
    shape = scores.shape[: draw.choice([1, 2])]
    if draw.random() < 0.25:
        extra["weights"] = torch.rand(shape, generator=generator) * draw.choice([1.0, 1e6])
    if draw.random() < 0.25:
        extra["mask"] = torch.rand(shape, generator=generator) < draw.choice([0.0, 0.7, 1.0])
    return loss, changed({"scores": scores, "labels": truth, **extra}, draw)


def changed(arguments: dict, draw: random.Random) -> dict:
    """Arguments of which some have another layout, or are of another class."""
    for name in arguments:
        chance = draw.random()
        if chance < 0.5 or arguments[name].layout != torch.strided:
            continue
        try:
            arguments[name] = draw.choice(ORDINARY if chance < 0.85 else STRANGE)(arguments[name])
        except Exception:  # such a tensor does not exist
            continue
    return arguments


def ended(engine: str, loss: aimfor.Loss, arguments: dict, way: str):
    """What a call ends in: the exception, or value, gradient, thresholds and the loss itself."""
    os.environ["AIMFOR_ENGINE"] = engine
    if not engine:
        del os.environ["AIMFOR_ENGINE"]
    loss, arguments = copy.deepcopy(loss), dict(arguments)
    scores, labels = arguments.pop("scores"), arguments.pop("labels")
    call = loss
    try:
        if way == "vmap":
            twice = scores.unsqueeze(0).expand(2, *scores.shape)  # a view: torch itself reads memory that is gone
            return torch.vmap(lambda one: loss(one, labels, **arguments))(twice), None, None, loss
        if way == "grad":
            return None, torch.func.grad(lambda one: loss(one, labels, **arguments))(scores), loss.thresholds, loss
        if way == "no_grad":
            with torch.no_grad():
                return loss(scores, labels, **arguments), None, loss.thresholds, loss
        if way == "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return loss(scores, labels, **arguments).detach(), None, loss.thresholds, loss
        if isinstance(scores, torch.Tensor) and scores.is_floating_point() and not scores.is_inference():
            scores = scores.detach().requires_grad_()
        value = call(scores, labels, **arguments)
        if value.requires_grad:
            value.backward()
            return value.detach(), scores.grad, loss.thresholds, loss
        return value, None, loss.thresholds, loss
    except Exception as error:
        return error


def rounding_of_shares(loss: aimfor.Loss) -> float:
    """How far the share of a label's rarer class may be off, where that of the other is rounded to single precision.

    Costs of the rarer class are divided by its share, so their gradient may be off as far.
    """
    weights = loss.state.class_weight.double()
    shares = (weights / weights.sum(0)).amin(0)
    return max([torch.finfo(torch.float32).eps / float(share) for share in shares if share > 0], default=0.0)


def check(number: int) -> bool:
    """One call; whether it gave numbers."""
    draw = random.Random(number)
    generator = torch.Generator().manual_seed(number)
    os.environ["AIMFOR_ENGINE"] = "plain"
    loss, arguments = drawn_call(draw, generator)
    way = draw.choice(["backward"] * 20 + ["no_grad", "autocast"] * 3 + ["grad", "vmap"])
    engine = draw.choice(["", "", "fused"])
    found = ended(engine, loss, arguments, way)
    if isinstance(found, Exception):
        assert str(found), f"call {number}: {type(found).__name__} without a sentence"
        return False
    expected = ended("plain", loss, arguments, way)
    assert not isinstance(expected, Exception), f"call {number}: the reference raised {expected!r}"
    *expected, after = expected
    rounding = rounding_of_shares(after)
    for name, one, other in zip(("value", "gradient", "thresholds"), found[:3], expected, strict=True):
        if one is None and other is None:
            continue
        coarse = max(torch.finfo(one.dtype).eps, rounding) if name == "gradient" else 0.0
        one, other = (part.double().nan_to_num(nan=2.0, posinf=3.0) for part in (one, other))  # those of an overflow
        largest = max(float(other.abs().max()), 1e-30 if name == "gradient" else 1.0)
        worst = float((one - other).abs().max()) / largest
        assert worst <= max(TOLERANCE, coarse), f"call {number} by {engine or 'default'}, {way}: {name} off by {worst}"
    return True


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    first, count = int(sys.argv[1]), int(sys.argv[2])
    numbers = 0
    for number in range(first, first + count):
        print(number, file=sys.stderr)  # the last one is what a crash was in
        numbers += check(number)
    print(f"{numbers} results equal to the reference, {count - numbers} exceptions")


if __name__ == "__main__":
    main()
