"""Label shards and a 2 x 2 mesh do what one process does; `Classifier` talks to no other process."""

import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import aimfor

LABELS, STEPS, ROWS = 5, 4, 24
SHARDS = (slice(0, 2), slice(2, 5))  # of unequal size


def batch(step: int):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(ROWS, 4, generator=generator)
    return inputs, (torch.rand(ROWS, LABELS, generator=generator) < 0.4).float()


def weights() -> torch.Tensor:
    return torch.randn(LABELS, 4, generator=torch.Generator().manual_seed(9))


def steps(loss: aimfor.Loss, labels: slice, rows: slice):
    """Value and gradients of each step for some labels and rows."""
    found = []
    for step in range(STEPS):
        inputs, targets = batch(step)
        leaf, head = inputs[rows].requires_grad_(), weights()[labels].clone().requires_grad_()
        value = loss(leaf @ head.T, targets[rows, labels])
        value.backward()
        found.append((value.detach(), leaf.grad, head.grad))
    return found


def in_group(rank: int, folder: str, world: int, sharded_rows: bool) -> None:
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    shard, part = rank % 2, rank // 2
    group, rows = False, slice(None)
    if sharded_rows:
        group = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "labels"))["data"]
        rows = slice(part * ROWS // 2, (part + 1) * ROWS // 2)
    labels = SHARDS[shard]
    loss = aimfor.Loss(
        "aucpr; num_anchors=4", num_labels=labels.stop - labels.start, process_group=group, total_labels=LABELS
    )
    torch.save((steps(loss, labels, rows), loss.thresholds), f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize(("world", "sharded_rows"), [(2, False), (4, True)], ids=["two shards", "2 x 2 mesh"])
def test_label_shards_equal_one_process(world, sharded_rows, tmp_path):
    mp.start_processes(in_group, (str(tmp_path), world, sharded_rows), nprocs=world, start_method="spawn")
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(world)]
    whole = aimfor.Loss("aucpr; num_anchors=4", num_labels=LABELS)
    expected = steps(whole, slice(None), slice(None))
    close = {"rtol": 1e-6, "atol": 1e-6}
    for rank, (_, thresholds) in enumerate(found):
        torch.testing.assert_close(thresholds, whole.thresholds[:, SHARDS[rank % 2]], **close)
    for step, (value, of_inputs, of_heads) in enumerate(expected):
        got = [results[step] for results, _ in found]
        torch.testing.assert_close(got[0][0] + got[1][0], value, **close)
        # Data-parallel training averages over the ranks that share a shard.
        heads = [torch.stack([part[2] for part in got[shard::2]]).mean(0) for shard in (0, 1)]
        torch.testing.assert_close(torch.cat(heads), of_heads, **close)
        rows = [(got[first][1] + got[first + 1][1]) / (world // 2) for first in range(0, world, 2)]
        torch.testing.assert_close(torch.cat(rows), of_inputs, **close)


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, LABELS))


def one_step(model: torch.nn.Module, loss: aimfor.Loss, labels: slice, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Value, and gradient of the first layer."""
    inputs, targets = batch(step)
    model.zero_grad()
    value = loss(model(inputs), targets[:, labels])
    value.backward()
    return value.detach(), model[0].weight.grad.clone()


def sharded_layer(rank: int, folder: str) -> None:
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "labels"))
    model = parallelize_module(network(), mesh["labels"], {"2": ColwiseParallel()})
    labels = (slice(0, 3), slice(3, 5))[rank]  # as torch deals out five
    count = labels.stop - labels.start
    loss = aimfor.Loss("aucpr; num_anchors=4", num_labels=count, process_group=mesh["data"], total_labels=LABELS)
    found = [one_step(model, loss, labels, step) for step in range(STEPS)]
    torch.save((found, model[2].weight.grad.to_local()), f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def test_a_layer_sharded_by_torch_gives_the_gradients_of_one_process(tmp_path):
    mp.start_processes(sharded_layer, (str(tmp_path),), nprocs=2, start_method="spawn")
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    model, loss = network(), aimfor.Loss("aucpr; num_anchors=4", num_labels=LABELS)
    for step in range(STEPS):
        value, gradient = one_step(model, loss, slice(None), step)
        values, gradients = zip(*(found[step] for found, _ in results), strict=True)
        torch.testing.assert_close(sum(values), value, rtol=1e-6, atol=1e-6)
        for found in gradients:  # torch adds them up over the shards
            torch.testing.assert_close(found, gradient, rtol=1e-6, atol=1e-6)
    heads = torch.cat([head for _, head in results])
    torch.testing.assert_close(heads, model[2].weight.grad, rtol=1e-6, atol=1e-6)


def fit_alone(rank: int, folder: str) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    if rank == 0:
        rng = np.random.default_rng(0)
        features = rng.normal(size=(200, 3))
        labels = (features[:, 0] + rng.normal(size=200) > 1).astype(int)
        aimfor.Classifier("f1", steps=50).fit(features, labels)
        Path(folder, "done").touch()
    dist.barrier()
    dist.destroy_process_group()


def test_a_fit_on_one_rank_waits_for_no_other(tmp_path):
    pytest.importorskip("sklearn")
    mp.start_processes(fit_alone, (str(tmp_path),), nprocs=2, start_method="spawn")
    assert (tmp_path / "done").exists()
