"""Time and memory of the chunked head beside a linear layer with the loss: `python -m benchmarks.cost.linear_head`.

Memory is measured twice. A process of its own counts the growth of its peak beyond the weights, which has some 10 MB of
fixed costs. Torch's profiler counts the tensors that live at once beside weights and their gradients.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

import aimfor

RESULTS = Path(__file__).resolve().parents[1] / "results" / "linear_head.csv"
# The aim alone, with the bounds of the hinge.
OPTIONS = {"surrogate": "hinge", "constraint": "surrogate", "log_loss": 0.0}


def labels_of(rows: int, labels: int) -> torch.Tensor:
    return aimfor.sparse_labels([torch.randint(labels, (5,)).unique() for _ in range(rows)], labels)


def unchunked(features: int, labels: int):
    layer, loss = torch.nn.Linear(features, labels), aimfor.Loss("aucpr", num_labels=labels, **OPTIONS)
    return layer.parameters(), lambda rows, targets: loss(layer(rows), targets)


def chunked(features: int, labels: int):
    head = aimfor.LinearLoss("aucpr", features, labels, **OPTIONS)
    return head.parameters(), head


def step_times(rows: int, features: int, labels: int, turns: int) -> dict[str, float]:
    """Median seconds of forward, backward and an SGD step, turn by turn."""
    torch.manual_seed(0)
    kinds = {"linear and loss": unchunked(features, labels), "chunked": chunked(features, labels)}
    steps = {name: (torch.optim.SGD(parameters, lr=0.1), call) for name, (parameters, call) in kinds.items()}
    inputs, targets = torch.randn(rows, features, requires_grad=True), labels_of(rows, labels)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(turns + 2):
        for name, (optimiser, call) in steps.items():
            started = time.perf_counter()
            optimiser.zero_grad()
            call(inputs, targets).backward()
            optimiser.step()
            if turn > 1:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def peak(kind: str, rows: int, features: int, labels: int) -> float:
    """Bytes beyond weights and their gradients that two steps take at their peak, in a process of its own."""
    program = (
        "import json, sys; from benchmarks.cost.linear_head import grown; "
        "print(json.dumps(grown(*json.loads(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps([kind, rows, features, labels])],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def grown(kind: str, rows: int, features: int, labels: int) -> float:
    torch.manual_seed(0)
    if kind == "chunked, updated in place":
        head = aimfor.LinearLoss("aucpr", features, labels, updates=aimfor.ChunkSGD(0.1), **OPTIONS)
        parameters, call = [], head
    else:
        parameters, call = unchunked(features, labels) if kind == "linear and loss" else chunked(features, labels)
        parameters = list(parameters)
    inputs, targets = torch.randn(rows, features, requires_grad=True), labels_of(rows, labels)
    small = aimfor.Loss("aucpr", num_labels=3)  # what is loaded once is loaded before
    small(torch.randn(8, 3, requires_grad=True), torch.zeros(8, 3)).backward()
    before = highest_memory()
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = None
        call(inputs, targets).backward()
    gradients = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    return highest_memory() - before - gradients


def tensor_peak(kind: str, rows: int, features: int, labels: int) -> float:
    """Bytes of tensors that live at once in a step, beside weights and their gradients."""
    torch.manual_seed(0)
    parameters, call = unchunked(features, labels) if kind == "linear and loss" else chunked(features, labels)
    inputs, targets, parameters = (
        torch.randn(rows, features, requires_grad=True),
        labels_of(rows, labels),
        [*parameters],
    )
    call(inputs, targets).backward()
    for parameter in [inputs, *parameters]:
        parameter.grad = None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call(inputs, targets).backward()
    gradient = max(parameter.numel() * parameter.element_size() for parameter in parameters)
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if abs(event.nbytes()) != gradient:
            live += event.nbytes()
            highest = max(highest, live)
    return highest


def highest_memory() -> float:
    """The peak of this process in bytes. (That of `resource` begins at the peak of its parent.)"""
    status = Path("/proc/self/status").read_text()
    return 1024.0 * int(status.split("VmHWM:")[1].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    rows = []
    for name, seconds in step_times(128, 1024, 20_000, turns).items():
        rows.append(["step, seconds", 128, 1024, 20_000, name, f"{seconds:.4f}"])
    for kind, *shape in (
        ("linear and loss", 128, 1024, 20_000),
        ("chunked", 128, 1024, 20_000),
        ("chunked", 128, 256, 1_000_000),
        ("chunked, updated in place", 128, 256, 1_000_000),
    ):
        beyond = peak(kind, *shape) / 1e6
        rows.append(["memory beyond weights and gradients, MB", *shape, kind, f"{beyond:.0f}"])
    for kind in ("linear and loss", "chunked"):
        beyond = tensor_peak(kind, 128, 1024, 20_000) / 1e6
        rows.append(["tensors beyond weights and gradients, MB", 128, 1024, 20_000, kind, f"{beyond:.1f}"])
    for row in rows:
        print(*row, sep=", ")
    with open(RESULTS, "w", newline="") as file:
        csv.writer(file).writerows([["measure", "rows", "features", "labels", "head", "value"], *rows])


if __name__ == "__main__":
    main()
