"""A model that holds a loss goes through torch's ways of keeping it: files, distributed checkpoints, other aims."""

import copy
import io
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

import aimfor
from two_processes import in_two_processes, join_group

AIM = "aucpr; num_anchors=3"
pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is disabled:UserWarning", "ignore:TypedStorage is deprecated", "ignore::FutureWarning"
)


class Model(torch.nn.Module):
    """A layer and its loss."""

    def __init__(self, aim: str = AIM):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 3)
        self.loss = aimfor.Loss(aim, num_labels=3, priors=(0.2, 0.3, 0.4))

    def step(self, number: int, rows: slice = slice(None)) -> torch.Tensor:
        generator = torch.Generator().manual_seed(number)
        inputs = torch.randn(32, 4, generator=generator)
        labels = torch.rand(32, 3, generator=generator) < 0.3
        value = self.loss(self.layer(inputs[rows]), labels[rows])
        value.backward()
        return value.detach()


def trained(rows: slice = slice(None)) -> Model:
    model = Model()
    for number in range(3):
        model.step(number, rows)
    return model


def assert_same(found: torch.nn.Module, expected: torch.nn.Module) -> None:
    others = expected.state_dict()
    assert found.state_dict().keys() == others.keys()
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, others[name]), name


def through_state_dict(model: Model) -> Model:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = Model()
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


def through_whole_file(model: Model) -> Model:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def through_meta(model: Model) -> Model:
    with torch.device("meta"):
        other = Model()
    other.to_empty(device="cpu").load_state_dict(model.state_dict())
    return other


def through_assignment(model: Model) -> Model:
    with torch.device("meta"):
        other = Model()
    other.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    return other


@pytest.mark.parametrize(
    "way", [copy.deepcopy, through_state_dict, through_whole_file, through_meta, through_assignment]
)
def test_a_model_goes_on_bit_for_bit(way):
    model = trained()
    other = way(model)
    assert_same(other, model)
    assert other.loss.state.given == (0.2, 0.3, 0.4)
    assert torch.equal(model.step(9), other.step(9))
    assert_same(other, model)
    assert other.loss.thresholds.data_ptr() != model.loss.thresholds.data_ptr()


def test_a_model_without_memory_that_loads_only_its_layer_starts_anew():
    layers = {name: tensor for name, tensor in Model().state_dict().items() if name.startswith("layer")}
    with torch.device("meta"):
        other = Model()
    other.to_empty(device="cpu").load_state_dict(layers, strict=False)
    fresh = Model()
    assert torch.equal(other.step(0), fresh.step(0))
    assert_same(other, fresh)


def test_strict_refuses_another_aim_and_without_it_the_loss_starts_anew():
    saved = Model("recall@precision>=0.9")
    saved.step(0)
    other = Model("f1")
    message = r"state for 'f1, num_labels=3', the saved one is for 'recall@precision"
    with pytest.warns(aimfor.OtherAimWarning), pytest.raises(RuntimeError, match=message):
        other.load_state_dict(saved.state_dict())
    with pytest.warns(aimfor.OtherAimWarning, match="starts anew"):
        other.load_state_dict(saved.state_dict(), strict=False)
    fresh = Model("f1")
    assert_same(other.loss, fresh.loss)
    assert torch.equal(other.step(1), fresh.step(1))


def save_and_load(model: Model, folder: Path) -> list[Model]:
    """By state dicts as they are, and by torch's functions that gather them."""
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder / "plain")
    plain = Model()
    state = {"model": plain.state_dict()}
    dcp.load(state, checkpoint_id=folder / "plain")
    plain.load_state_dict(state["model"])

    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder / "gathered")
    gathered = Model()
    state = {"model": get_model_state_dict(gathered)}
    dcp.load(state, checkpoint_id=folder / "gathered")
    set_model_state_dict(gathered, state["model"])
    return [plain, gathered]


def test_distributed_checkpoint_of_one_process(tmp_path):
    model = trained()
    for other in save_and_load(model, tmp_path):
        assert_same(other, model)
        assert torch.equal(copy.deepcopy(model).step(9), other.step(9))


def one_of_two(rank: int, folder: str) -> None:
    join_group(rank, folder)
    warnings.simplefilter("ignore")
    rows = slice(16 * rank, 16 * rank + 16)
    model = trained(rows)
    others = save_and_load(model, Path(folder))
    for other in others:
        assert_same(other, model)
    values = [one.step(9, rows) for one in (model, *others)]
    torch.save((values, model.loss.state_dict()), Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def test_distributed_checkpoint_of_two_processes():
    alone = trained()
    expected = alone.step(9)
    results = in_two_processes(one_of_two)
    for values, state in results:
        assert values[0] == values[1] == values[2] == results[0][0][0]
        torch.testing.assert_close(values[0], expected, rtol=1e-5, atol=1e-6)
        for name, tensor in state.items():
            assert torch.equal(tensor, results[0][1][name]), name
