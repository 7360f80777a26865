"""The loss under accelerate and under Lightning's Fabric: resumed bit for bit, accumulation, two processes."""

import os
import socket
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import aimfor
from two_processes import in_two_processes

pytest.importorskip("accelerate", reason="the extra integration is not installed")
pytest.importorskip("lightning", reason="the extra integration is not installed")

from accelerate import Accelerator
from lightning.fabric import Fabric

AIM, STEPS = "recall@precision>=0.7", 8


def table(rows: int = 64) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, 4, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] + torch.randn(rows, generator=generator) > 0.7).long())


def network() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 1)


class Run:
    """A training script with accelerate, as docs/trainers/accelerate.md has it."""

    def __init__(self, accumulation: int = 1, batch: int = 8):
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
        model = network()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        batches = DataLoader(table(), batch_size=batch)
        self.model, self.optimiser, self.batches = self.accelerator.prepare(model, optimiser, batches)
        self.loss = aimfor.Loss(AIM).to(self.accelerator.device)
        self.accelerator.register_for_checkpointing(self.loss)
        self.gradients: list[torch.Tensor] = []

    def train(self, steps: range) -> None:
        batches = list(self.batches)
        for step in steps:
            inputs, labels = batches[step]
            with self.accelerator.accumulate(self.model):
                self.accelerator.backward(self.loss(self.model(inputs).squeeze(1), labels))
                if self.accelerator.sync_gradients:
                    self.gradients.append(self.accelerator.unwrap_model(self.model).weight.grad.clone())
                self.optimiser.step()
                self.optimiser.zero_grad()

    def everything(self) -> dict[str, torch.Tensor]:
        return {**self.loss.state_dict(), **self.accelerator.unwrap_model(self.model).state_dict()}


def plain_loop(batch: int, accumulation: int):
    model, loss, found = network(), aimfor.Loss(AIM), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for index, (inputs, labels) in enumerate(DataLoader(table(), batch_size=batch)):
        (loss(model(inputs).squeeze(1), labels) / accumulation).backward()
        if (index + 1) % accumulation == 0:
            found.append(model.weight.grad.clone())
            optimiser.step()
            optimiser.zero_grad()
    return found, {**loss.state_dict(), **model.state_dict()}


def test_killed_and_resumed_equals_uninterrupted(tmp_path):
    whole = Run()
    whole.train(range(STEPS))
    cut = Run()
    cut.train(range(5))
    cut.accelerator.save_state(str(tmp_path))
    cut.train(range(5, 7))  # lost
    resumed = Run()
    resumed.accelerator.load_state(str(tmp_path))
    resumed.train(range(5, STEPS))
    expected, found = whole.everything(), resumed.everything()
    assert expected["state.steps"] == STEPS
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_accumulation_gives_the_gradients_of_a_plain_loop():
    run = Run(accumulation=4)
    run.train(range(STEPS))
    torch.testing.assert_close((run.gradients, run.everything()), plain_loop(8, 4), rtol=1e-6, atol=1e-7)


def one_of_two(rank: int, folder: str, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost")
    os.environ.update(MASTER_PORT=str(port), ACCELERATE_USE_CPU="true")
    run = Run(accumulation=4, batch=4)
    run.train(range(STEPS))
    with pytest.raises(RuntimeError, match="doesn't have any parameter"):  # hence `register_for_checkpointing`
        run.accelerator.prepare(aimfor.Loss(AIM))
    metric = aimfor.Metric(AIM)
    for inputs, labels in run.batches:
        metric.update(inputs[:, 0], labels)
    torch.save((run.gradients, run.everything(), metric.compute().item()), Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_and_accumulation_give_the_gradients_of_one():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    expected = plain_loop(8, 4)
    inputs, labels = table().tensors
    for gradients, state, metric in in_two_processes(one_of_two, port):
        torch.testing.assert_close((gradients, state), expected, rtol=1e-5, atol=1e-6)
        assert metric == aimfor.metrics.recall_at_precision(labels, inputs[:, 0], 0.7).value


def fabric_run(fabric: Fabric, checkpoint: Path | None, steps: range, saved: Path | None = None):
    model = network()
    model, optimiser = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    loss = aimfor.Loss(AIM).to(fabric.device)
    state = {"model": model, "optimiser": optimiser, "loss": loss}
    if checkpoint is not None:
        fabric.load(checkpoint, state)
    batches = list(DataLoader(table(), batch_size=8))
    for step in steps:
        inputs, labels = batches[step]
        optimiser.zero_grad()
        fabric.backward(loss(model(inputs).squeeze(1), labels))
        optimiser.step()
    if saved is not None:
        fabric.save(saved, state)
    return {**loss.state_dict(), **model.state_dict()}


def test_fabric_resumes_bit_for_bit(tmp_path):
    fabric = Fabric(accelerator="cpu", devices=1)
    expected = fabric_run(fabric, None, range(STEPS))
    fabric_run(fabric, None, range(5), tmp_path / "saved.ckpt")
    found = fabric_run(fabric, tmp_path / "saved.ckpt", range(5, STEPS))
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
