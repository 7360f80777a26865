"""The loss and the metric in Lightning: resumed bit for bit, accumulation, two processes, `self.log`."""

import os
import socket
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import aimfor
from two_processes import in_two_processes

pytest.importorskip("lightning", reason="the extra integration is not installed")
pytest.importorskip("torchmetrics", reason="the extra integration is not installed")

import lightning
import torchmetrics
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

AIM = "recall@precision>=0.7"
pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]
QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


def table(seed: int, rows: int = 64) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 4, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] + torch.randn(rows, generator=generator) > 0.7).long())


class Module(lightning.LightningModule):
    def __init__(self, dropout: float = 0.3):
        super().__init__()
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1))
        self.loss = aimfor.Loss(AIM)
        self.metric = aimfor.Metric(AIM)
        self.others = torchmetrics.MetricCollection({"f1": aimfor.Metric("f1"), "area": aimfor.Metric("aucpr")})
        self.gradients: list[torch.Tensor] = []

    def training_step(self, batch, index):
        inputs, labels = batch
        return self.loss(self.model(inputs).squeeze(1), labels)

    def validation_step(self, batch, index):
        inputs, labels = batch
        scores = self.model(inputs).squeeze(1)
        self.metric.update(scores, labels)
        self.others.update(scores, labels)
        self.log("aim", self.metric)
        self.log_dict(self.others)

    def on_before_optimizer_step(self, optimizer):
        self.gradients.append(self.model[0].weight.grad.clone())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Killed(Exception):
    """The end of a run that is cut short."""


class Killer(Callback):
    """Ends the run at a step that was not saved."""

    def on_train_batch_end(self, trainer, *rest):
        if trainer.global_step == 6:
            raise Killed


def train(folder: Path, *callbacks: Callback, checkpoint: Path | None = None, **options) -> Module:
    module = Module(options.pop("dropout", 0.3))
    saving = ModelCheckpoint(dirpath=folder, filename="{epoch}", save_top_k=-1)
    given = {"max_epochs": 3, "accumulate_grad_batches": 2, **QUIET, **options}
    batches = DataLoader(table(0), batch_size=8, shuffle=False)
    trainer = lightning.Trainer(callbacks=[saving, *callbacks], default_root_dir=folder, **given)
    trainer.fit(module, batches, DataLoader(table(1), batch_size=16), ckpt_path=checkpoint, weights_only=False)
    return module


class SeededDropout(Callback):
    """Lightning does not save the state of torch's generator, so the draws follow the number of the batch."""

    def on_train_batch_start(self, trainer, module, batch, index):
        torch.manual_seed(1000 * trainer.current_epoch + index)


def test_killed_and_resumed_equals_uninterrupted(tmp_path):
    whole = train(tmp_path / "whole", SeededDropout())
    with pytest.raises(Killed):
        train(tmp_path / "cut", SeededDropout(), Killer())
    resumed = train(tmp_path / "cut", SeededDropout(), checkpoint=tmp_path / "cut" / "epoch=0.ckpt")
    expected, found = whole.state_dict(), resumed.state_dict()
    assert "loss.state.multipliers" in expected
    assert expected["loss.state.steps"] == 24
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def plain_loop(batch: int, accumulation: int):
    module, found = Module(dropout=0.0), []
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    for index, (inputs, labels) in enumerate(DataLoader(table(0), batch_size=batch)):
        (module.loss(module.model(inputs).squeeze(1), labels) / accumulation).backward()
        if (index + 1) % accumulation == 0:
            found.append(module.model[0].weight.grad.clone())
            optimiser.step()
            optimiser.zero_grad()
    return found, module.loss.state_dict()


def test_accumulation_gives_the_gradients_of_a_plain_loop(tmp_path):
    module = train(tmp_path, dropout=0.0, accumulate_grad_batches=4, max_epochs=1)
    found = module.gradients, module.loss.state_dict()
    torch.testing.assert_close(found, plain_loop(8, 4), rtol=1e-6, atol=1e-7)


def test_logged_metric_is_that_of_all_rows(tmp_path):
    module = Module()
    trainer = lightning.Trainer(default_root_dir=tmp_path, **QUIET)
    for _ in range(2):  # the second run starts from an empty metric
        (logged,) = trainer.validate(module, DataLoader(table(1), batch_size=16), verbose=False)
    inputs, labels = table(1).tensors
    with torch.no_grad():
        scores = module.eval().model(inputs).squeeze(1)
    exact = aimfor.metrics.recall_at_precision(labels, scores, 0.7).value
    assert logged["aim"] == pytest.approx(exact, abs=1e-7)  # Lightning logs float32
    assert logged["f1"] == pytest.approx(aimfor.metrics.f_beta(labels, scores).value, abs=1e-7)
    assert logged["area"] == pytest.approx(aimfor.aim("aucpr").metric(labels, scores), abs=1e-7)


def test_collection_shares_the_rows():
    metrics = torchmetrics.MetricCollection([aimfor.Metric("f1")], prefix="val_")
    inputs, labels = table(1).tensors
    metrics.update(inputs[:, 0], labels)
    exact = aimfor.metrics.f_beta(labels, inputs[:, 0]).value
    assert metrics.compute()["val_Metric"].item() == exact
    two = torchmetrics.MetricCollection({"f1": aimfor.Metric("f1"), "area": aimfor.Metric("aucpr")})
    for part in (slice(0, 30), slice(30, None)):
        two.update(inputs[part, 0], labels[part])
    assert len(two.compute_groups) == 1
    assert two.compute()["f1"].item() == exact
    assert two.compute()["area"].item() == aimfor.aim("aucpr").metric(labels, inputs[:, 0])


def one_of_two(rank: int, folder: str, port: int) -> None:
    import warnings

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port), NODE_RANK="0", LOCAL_RANK=str(rank))
    os.environ.update(WORLD_SIZE="2", GROUP_RANK="0", RANK=str(rank), LOCAL_WORLD_SIZE="2", TORCHELASTIC_RUN_ID="1")
    options = {"strategy": "ddp", "devices": 2, "use_distributed_sampler": False, **QUIET}
    trainer = lightning.Trainer(
        max_epochs=1, accumulate_grad_batches=4, limit_val_batches=0, enable_checkpointing=False, **options
    )
    module, rows = Module(dropout=0.0), table(0)
    trainer.fit(module, DataLoader(rows, batch_sampler=halves(rank, len(rows))))
    judge = lightning.Trainer(enable_checkpointing=False, **options)
    (logged,) = judge.validate(module, DataLoader(table(1), batch_sampler=halves(rank, 64)), verbose=False)
    torch.save((module.gradients, module.loss.state_dict(), logged), Path(folder) / f"{rank}.pt")


def halves(rank: int, rows: int) -> list[list[int]]:
    """Rows of this rank: four of each eight."""
    return [list(range(start + 4 * rank, start + 4 * rank + 4)) for start in range(0, rows, 8)]


@pytest.mark.slow
def test_two_processes_and_accumulation_give_the_gradients_and_metrics_of_one():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    expected = plain_loop(8, 4)
    results = in_two_processes(one_of_two, port)
    for gradients, state, logged in results:
        torch.testing.assert_close((gradients, state), expected, rtol=1e-5, atol=1e-6)
        assert logged == results[0][2]
    module = Module(dropout=0.0)
    inputs, labels = table(1).tensors
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    for index, (rows, truth) in enumerate(DataLoader(table(0), batch_size=8)):
        (module.loss(module.model(rows).squeeze(1), truth) / 4).backward()
        if index % 4 == 3:
            optimiser.step()
            optimiser.zero_grad()
    exact = aimfor.metrics.recall_at_precision(labels, module.model(inputs).squeeze(1).detach(), 0.7).value
    assert results[0][2]["aim"] == pytest.approx(exact, abs=1e-6)
