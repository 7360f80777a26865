"""Two gloo processes on halves of a batch do what one process does on the whole."""

import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import aimfor

LABELS, STEPS = 3, 6
PATIENCE = 40  # seconds; two processes start and finish within ten
OPTIONS = [
    ("aucpr; num_anchors=4", {}),
    ("recall@precision>=0.8", {"surrogate": "sigmoid", "warmup": 3, "constraint": "exact"}),
    ("f1", {}),
    ("aucpr; num_anchors=4", {"log_loss": 0.3, "log_loss_batches": 3}),
]


def batch(step: int, rows: int = 24):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(rows, 4, generator=generator)
    labels = (inputs[:, :LABELS] + torch.randn(rows, LABELS, generator=generator) > 0.7).float()
    return inputs, labels, torch.rand(rows, generator=generator)


def model() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(4, LABELS)


def make_loss(case: int) -> aimfor.Loss:
    aim, options = OPTIONS[case]
    return aimfor.Loss(aim, num_labels=LABELS, **options)


def whole(case: int):
    """One process: gradients of every step, and the final state."""
    loss, net = make_loss(case), model()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    gradients = []
    for step in range(STEPS):
        inputs, labels, weights = batch(step)
        optimiser.zero_grad()
        loss(net(inputs), labels, weights=weights).backward()
        gradients.append(net.weight.grad.clone())
        optimiser.step()
    return gradients, loss.state_dict()


def join_group(rank: int, folder: str) -> None:
    address = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=timedelta(seconds=PATIENCE))


def worker(rank: int, folder: str, case: int, split: int) -> None:
    torch.set_num_threads(1)
    loss = make_loss(case)  # before the process group exists
    join_group(rank, folder)
    net = torch.nn.parallel.DistributedDataParallel(model())
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    gradients = []
    for step in range(STEPS):
        inputs, labels, weights = (part[:split] if rank == 0 else part[split:] for part in batch(step))
        optimiser.zero_grad()
        loss(net(inputs), labels, weights=weights).backward()
        gradients.append(net.module.weight.grad.clone())
        optimiser.step()
    if rank == 0:
        # No collective outside training: the other rank is not there to answer.
        loss.eval()(net.module(inputs).detach(), labels)
        with torch.no_grad():
            loss.train()(net.module(inputs), labels)
    torch.save((gradients, loss.state_dict()), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def refusing(rank: int, folder: str) -> None:
    join_group(rank, folder)
    loss = make_loss(0)
    inputs, labels, _ = batch(0)
    scores = model()(inputs).detach()
    if rank == 0:
        scores[0, 0] = float("nan")
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    try:
        loss(scores, labels)
        told = "nothing"
    except ValueError as error:
        told = str(error)
    untouched = all(torch.equal(tensor, before[name]) for name, tensor in loss.state_dict().items())
    torch.save((told, untouched), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def attempt(function, folder: str, *arguments) -> bool:
    """Run the function in two processes; False where they have not come to an end."""
    context = mp.start_processes(function, args=(folder, *arguments), nprocs=2, start_method="spawn", join=False)
    end = time.monotonic() + PATIENCE
    while not context.join(timeout=1):
        if time.monotonic() > end:
            for process in context.processes:
                process.kill()
                process.join()
            return False
    return True


def in_two_processes(function, *arguments) -> list:
    """What the function leaves in `<rank>.pt`. One pair of processes in some hundreds was seen to hang, for a reason
    not found yet; a loss that waits for a rank in vain would do so every time."""
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            if attempt(function, folder, *arguments):
                return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(2)]
    return pytest.fail("the two processes wait for each other")


@pytest.mark.parametrize(("case", "split"), [(0, 12), (0, 5), (1, 12), (2, 7), (3, 5)])
def test_two_processes_equal_one(case, split):
    expected_gradients, expected_state = whole(case)
    for gradients, state in in_two_processes(worker, case, split):
        torch.testing.assert_close(gradients, expected_gradients, rtol=1e-6, atol=1e-6)
        # The multiplier of F_beta is a quotient by psi^2, which here is small and multiplies rounding.
        torch.testing.assert_close(state, expected_state, rtol=1e-5 if OPTIONS[case][0] == "f1" else 1e-6, atol=1e-6)


def test_input_refused_on_one_rank_is_refused_on_all():
    (first, first_untouched), (second, second_untouched) = in_two_processes(refusing)
    assert first.startswith("scores must be finite")
    assert second.endswith("another rank refused its own")
    assert first_untouched
    assert second_untouched
