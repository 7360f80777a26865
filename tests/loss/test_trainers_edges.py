"""The loss at the edges of trainers: memory that others fill in, tensors that are no plain ones, second derivatives."""

import copy
import subprocess
import sys
import warnings

import pytest
import torch

import aimfor


def batch(labels: int = 3, rows: int = 40):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, labels, generator=generator), torch.rand(rows, labels, generator=generator) < 0.3


def assert_fresh(loss: aimfor.Loss, **options) -> None:
    fresh = aimfor.Loss(loss.aim, num_labels=loss.num_labels, **options)
    scores, labels = batch(loss.num_labels)
    torch.testing.assert_close(loss(scores, labels), fresh(scores, labels), rtol=0, atol=0)
    for name, tensor in fresh.state.named_buffers():
        torch.testing.assert_close(loss.state.get_buffer(name), tensor, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("priors", [None, 0.01])
def test_to_empty_after_meta_gives_a_fresh_loss_with_its_priors(priors):
    with torch.device("meta"):
        loss = aimfor.Loss("aucpr", num_labels=3, priors=priors)
    assert loss.thresholds.is_meta
    loss.to_empty(device="cpu")
    assert_fresh(loss, priors=priors)


@pytest.mark.parametrize("garbage", [float("nan"), -4.7e27, 1e38, 0.0, 1.0])
def test_memory_that_nobody_wrote_to_is_filled_in(garbage):
    """As Hugging Face's from_pretrained does: made on meta, then every missing buffer is empty memory."""
    with torch.device("meta"):
        loss = aimfor.Loss("recall@precision>=0.9", num_labels=3, priors=0.2)
    for name, buffer in loss.state._buffers.items():
        loss.state._buffers[name] = torch.full(buffer.shape, 7 if name == "steps" else garbage, dtype=buffer.dtype)
    copied = copy.deepcopy(loss)
    fresh = aimfor.Loss("recall@precision>=0.9", num_labels=3, priors=0.2)
    assert torch.equal(copied.multipliers, fresh.multipliers)  # also before the first call
    for name, tensor in copy.deepcopy(loss).state_dict().items():
        assert torch.equal(tensor, fresh.state_dict()[name]), name
    assert_fresh(loss, priors=0.2)


def test_what_was_loaded_into_a_loss_without_memory_stays():
    trained = aimfor.Loss("aucpr", num_labels=3)
    trained(*batch())
    with torch.device("meta"):
        one_by_one, damaged, by_state, assigned = (aimfor.Loss("aucpr", num_labels=3) for _ in range(4))
    for loss in (one_by_one, damaged):  # as from_pretrained does
        loss.set_extra_state(trained.get_extra_state())
        loss.state.set_extra_state(trained.state.get_extra_state())
        for name, buffer in trained.state._buffers.items():
            setattr(loss.state, name, buffer.clone())
    damaged.state.thresholds.fill_(torch.nan)
    by_state.to_empty(device="cpu")
    by_state.load_state_dict(trained.state_dict())
    assigned.load_state_dict(copy.deepcopy(trained.state_dict()), assign=True)
    expected = trained(*batch())
    for loss in (one_by_one, by_state, assigned):
        torch.testing.assert_close(loss(*batch()), expected, rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"state\.thresholds must be finite in a state_dict"):
        damaged(*batch())


def test_a_state_of_another_aim_that_is_loaded_one_by_one_starts_anew():
    trained = aimfor.Loss("recall@precision>=0.9", num_labels=3)
    trained(*batch())
    with torch.device("meta"):
        loss = aimfor.Loss("f1", num_labels=3)
    with pytest.warns(aimfor.OtherAimWarning, match="the saved state is of a loss for 'recall@precision>=0.9"):
        loss.set_extra_state(trained.get_extra_state())
    loss.state.set_extra_state(trained.state.get_extra_state())
    for name, buffer in trained.state._buffers.items():
        setattr(loss.state, name, buffer.clone())
    assert_fresh(loss)


def test_reset_parameters_forgets():
    loss = aimfor.Loss("aucpr", num_labels=3)
    loss(*batch())
    loss.reset_parameters()
    assert_fresh(loss)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("thresholds", float("inf"), "must be finite"),
        ("thresholds", 1e38, r"must be at most 1e\+37"),
        ("class_weight", -1.0, "must not be negative"),
        ("steps", -1, "must not be negative"),
    ],
)
def test_a_state_that_cannot_be_is_refused(name, value, message):
    state = aimfor.Loss("aucpr", num_labels=3).state_dict()
    state[f"state.{name}"] = torch.full_like(state[f"state.{name}"], value)
    with pytest.raises(ValueError, match=rf"state\.{name} {message} in a state_dict"):
        aimfor.Loss("aucpr", num_labels=3).load_state_dict(state)


def test_given_priors_are_saved_and_copied():
    given = aimfor.Loss("aucpr", num_labels=3, priors=(0.1, 0.2, 0.3))
    other = aimfor.Loss("aucpr", num_labels=3)
    other.load_state_dict(given.state_dict())
    for loss in (other, copy.deepcopy(given)):
        assert loss.priors.tolist() == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's own, from inside its compiler
@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_penalty_through_the_loss_raises(compiled):
    model, loss = torch.nn.Linear(4, 3), aimfor.Loss("aucpr", num_labels=3, surrogate="log")
    call = torch.compile(loss, backend="eager") if compiled else loss
    inputs = torch.randn(40, 4, requires_grad=True)
    value = call(model(inputs), batch()[1].float())
    (gradient,) = torch.autograd.grad(value, inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="the loss has no second derivatives"):
        (value + gradient.square().sum()).backward()


def test_a_gradient_penalty_through_the_linear_loss_raises():
    head = aimfor.LinearLoss("aucpr", 4, 3)
    inputs = torch.randn(40, 4, requires_grad=True)
    value = head(inputs, batch()[1].float())
    (gradient,) = torch.autograd.grad(value, inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="the loss has no second derivatives"):
        (value + gradient.square().sum()).backward()


@pytest.mark.parametrize("index", [[[0, 5], [0, 0]], [[0, 1], [0, 9]], [[0, -1], [0, 0]]])
def test_coo_labels_with_an_index_outside_are_refused(index):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = torch.sparse_coo_tensor(torch.tensor(index), torch.ones(2), (4, 3), check_invariants=False)
    with pytest.raises(ValueError, match="labels must have indices within their shape"):
        aimfor.Loss("aucpr", num_labels=3)(torch.randn(4, 3), labels)


CRASHES = {
    "fake scores": ("scores", "FakeTensor"),
    "fake labels": ("labels", "FakeTensor"),
    "distributed scores": ("scores", r"DTensor: pass scores.to_local()"),
    "distributed labels": ("labels", r"DTensor: pass labels.to_local()"),
}
GIVEN_BACK = "must have its numbers in memory, got a tensor whose memory was given back"
RUN = """
import sys, tempfile, torch, aimfor
which = sys.argv[1]
scores, labels = torch.randn(4, 3), torch.tensor([[0.0, 1.0, 0.0]] * 4)
if which.startswith("freed"):
    other = torch.ones(8, 3)[4:]
    other.untyped_storage().resize_(0 if which == "freed scores" else 48)
elif which == "outside labels":
    index = torch.tensor([[0, 2**40], [0, 0]])
    other = torch.sparse_coo_tensor(index, torch.ones(2), (4, 3), check_invariants=False)
elif which.startswith("fake"):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        other = torch.randn(4, 3)
else:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/meet", rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    other = distribute_tensor(scores, mesh, [Shard(1)])
    if which == "awaited":
        import torch.distributed._functional_collectives as collectives
        leaf = scores.clone().requires_grad_()
        loss, plain = (aimfor.Loss("aucpr", num_labels=3) for _ in range(2))
        arriving = collectives.all_reduce(scores, "sum", mesh)
        assert type(arriving).__name__ == "AsyncCollectiveTensor"
        assert torch.equal(loss(arriving, labels), plain(scores, labels))
        sys.exit(0)
scores, labels = (other, labels) if which.endswith("scores") else (scores, other)
try:
    aimfor.Loss("aucpr", num_labels=3)(scores, labels)
except (TypeError, ValueError) as error:
    print(error)
"""


@pytest.mark.parametrize("which", [*CRASHES, "awaited", "freed scores", "freed labels", "outside labels"])
def test_tensors_without_memory_of_their_own_do_not_end_the_process(which):
    done = subprocess.run([sys.executable, "-c", RUN, which], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    if which in CRASHES:
        name, kind = CRASHES[which]
        assert f"{name} must be a plain tensor with memory of its own, got {kind}" in done.stdout
    elif which == "outside labels":
        assert "labels must have indices within their shape (4, 3), got one outside of it" in done.stdout
    elif which != "awaited":
        assert f"{which.removeprefix('freed ')} {GIVEN_BACK}" in done.stdout


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_tensors_of_torch_func_and_quantised_ones_are_refused():
    loss, labels = aimfor.Loss("aucpr"), torch.ones(4)
    with pytest.raises(TypeError, match=r"got one inside of torch\.func: call the loss outside of it"):
        torch.func.grad(lambda scores: loss(scores, labels))(torch.randn(4))
    with pytest.raises(TypeError, match=r"labels must not be quantised, got .*: pass labels\.dequantize\(\)"):
        loss(torch.randn(4), torch.quantize_per_tensor(labels, 0.1, 0, torch.qint8))


@pytest.mark.parametrize(
    ("num_labels", "scores", "labels", "remedy"),
    [
        (1, (4, 1), (4,), r"pass scores\.squeeze\(1\)"),
        (1, (4,), (4, 1), r"pass labels\.squeeze\(1\)"),
        (1, (4, 2), (4,), r"pass logits\[:, 1\] - logits\[:, 0\]"),
        (3, (4, 5, 3), (4, 5, 3), r"pass scores\.flatten\(0, -2\)"),
        (1, (4, 8, 8), (4, 8, 8), r"pass scores\.flatten\(\)"),
        (3, (4, 3, 8, 8), (4, 3, 8, 8), r"pass scores\.movedim\(1, -1\)\.flatten\(0, -2\)"),
    ],
)
def test_messages_name_the_remedy(num_labels, scores, labels, remedy):
    with pytest.raises(ValueError, match=remedy):
        aimfor.Loss("aucpr", num_labels=num_labels)(torch.randn(scores), torch.zeros(labels))


def test_messages_of_classes_name_the_remedy():
    loss, classes = aimfor.Loss("f1", num_labels=3, multiclass=True), torch.tensor([0, 2, -100])
    with pytest.raises(
        ValueError, match=r"labels must be in 0\.\.2 in every entry, got -100: pass mask=labels != -100"
    ):
        loss(torch.randn(3, 3), classes)
    loss(torch.randn(3, 3), classes, mask=classes != -100)
    with pytest.raises(ValueError, match=r"pass scores\.movedim\(1, -1\)\.flatten\(0, -2\), and labels\.flatten\(\)"):
        loss(torch.randn(2, 3, 8, 8), torch.zeros(2, 8, 8, dtype=torch.long))
    with pytest.raises(ValueError, match="for exclusive classes make the loss with multiclass=True"):
        aimfor.Loss("f1", num_labels=3)(torch.randn(3, 3), torch.tensor([0, 2, 1]))


def test_labels_of_minus_100_and_another_device_name_their_remedy():
    loss = aimfor.Loss("aucpr")
    with pytest.raises(ValueError, match="got -100: pass mask=labels != -100"):
        loss(torch.randn(3), torch.tensor([0, 1, -100]))
    labels = torch.tensor([0, 1, -100])
    loss(torch.randn(3), labels, mask=labels != -100)
    with pytest.raises(ValueError, match=r"move the loss with loss\.to\('meta'\)"):
        loss(torch.randn(3, device="meta"), torch.ones(3, device="meta"))


def test_an_overflow_in_half_precision_is_left_to_the_gradient_scaler():
    model, loss = torch.nn.Linear(2, 1), aimfor.Loss("aucpr")
    optimiser, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=4.0)
    inputs, labels = torch.randn(8, 2), torch.arange(8) % 2
    loss(model(inputs).squeeze(1), labels)
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(loss.state_dict())
    scores = model(inputs * 1e30).squeeze(1).half()
    scaler.scale(loss(scores, labels)).backward()
    scaler.step(optimiser)
    scaler.update()
    assert scaler.get_scale() == 2.0
    for before, after in ((weights, model.state_dict()), (state, loss.state_dict())):
        for name, tensor in after.items():
            assert torch.equal(tensor, before[name]), name
    with pytest.raises(ValueError, match="scores must be finite"):
        loss(scores.float(), labels)


def test_what_is_no_group_is_refused():
    with pytest.raises(TypeError, match=r"process_group must be None, False, a process group or one dimension"):
        aimfor.Loss("aucpr", process_group="data")
    with pytest.raises(ValueError, match="total_labels must be"):
        aimfor.Loss("aucpr", num_labels=3, total_labels=2)
