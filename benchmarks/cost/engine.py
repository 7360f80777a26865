"""What the loss costs beside log-loss: time, memory and growth of every engine.

    make bench                           # writes results/engine.csv and results/engine.png, some minutes on 2 cores
    python -m benchmarks.cost.engine --quick  # reproduce the main rows and compare
    python -m benchmarks.cost.engine --report # table and picture from the finished rows

Reference is eager `binary_cross_entropy_with_logits`, forward and backward, on dense float targets. Ours is the public
`loss(scores, labels)` and backward: checks, state and all. What is compared takes turns in one process, in a new order
every turn, so that a slow minute of the machine is slow for all and nobody always comes after the same other. The
ratio is that of medians, the spread the quartiles of the ratios turn by turn. Every group of rows has processes of its
own, and the medians of three of them are shown (of one for the slow rows that are there for scale): where the memory of
one happens to lie, and what others leave of it, moves a ratio by a fifth.

Times are taken with an allocator (glibc's) that keeps what is freed, as far as it can: by default it gives the memory
of a step back or not, as chance will have it, and to get it again takes log-loss as long as its arithmetic. Memory is
the peak of the resident set over one step in a fresh process, with an allocator that gives memory back at once.

Torch is held to vectors of 256 bits (AVX2), and the C++ engine with it. Where the processor has wider ones, the rows
"widest vectors" are the same with both as they come.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

import aimfor
from benchmarks.cost.contenders import Contender, batch, broadcast, compare, log_loss, ours, steps_with
from benchmarks.cost.engine_report import ANCHORS, DEFAULT_POINT, LABELS, ROWS, Row, draw, finished, keep, table
from benchmarks.shared import page
from benchmarks.shared.reproduced import Reproduced

# Ratios of times vary so much between minutes of a shared machine.
TOLERANCE = 1.6
TURNS, PROCESSES = 10, 3
SURROGATES = ("hinge", "log", "smooth_hinge", "ramp", "sigmoid")
ENGINES = ["native", "fused"] if aimfor.engine().name == "native" else ["fused"]
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
KEEPS = {
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
}  # the first is the largest it takes
CAPABILITY = "ATEN_CPU_CAPABILITY"
SETTING = {**KEEPS, CAPABILITY: "avx2" if platform.machine() in ("x86_64", "AMD64") else "default"}


def times(engine: str, turns: int, rows: int, labels: int) -> list[Row]:
    """Every surrogate at the large shape; with the first engine also with weights and masks, and with weights beside
    log-loss with the same ones."""
    scores, y = batch(rows, labels)
    contenders = {("time", engine, one): ours(engine, one, scores, y) for one in SURROGATES}
    weights, mask = torch.rand(rows, labels) + 0.5, torch.rand(rows, labels) < 0.9
    weighted = {}
    for one in ("hinge", "log") if engine == ENGINES[0] else ():
        contenders["weights", engine, one] = ours(engine, one, scores, y, weights=weights)
        contenders["mask", engine, one] = ours(engine, one, scores, y, mask=mask)
        weighted["weights on both sides", engine, one] = contenders["weights", engine, one]
    found = compare(log_loss(scores, y), contenders, turns)
    if weighted:
        found |= compare(log_loss(scores, y, weights), weighted, turns)
    return rows_of(found, rows, labels)


def defaults(turns: int, rows: int, labels: int) -> list[Row]:
    """An area and an aim at a point with their default options, half log-loss among them."""
    scores, y = batch(rows, labels)
    losses = {text: aimfor.Loss(text, num_labels=labels) for text in (f"aucpr; num_anchors={ANCHORS}", DEFAULT_POINT)}
    contenders = {
        (f"default, {text}", engine, loss.surrogate.name, loss.aim.anchor_count): steps_with(loss, engine, scores, y)
        for engine in ENGINES
        for text, loss in losses.items()
    }
    found = compare(log_loss(scores, y), contenders, turns)
    return [Row(*name[:3], rows, labels, name[3], torch.get_num_threads(), *ratio) for name, ratio in found.items()]


def for_scale(turns: int, rows: int, labels: int) -> list[Row]:
    """The readable version, and what others do."""
    scores, y = batch(rows, labels)
    contenders = {
        ("time", "plain", "hinge"): ours("plain", "hinge", scores, y),
        ("time", "broadcast", "hinge"): broadcast(scores, y),
    }
    return rows_of(compare(log_loss(scores, y), contenders, turns), rows, labels)


def rows_of(found: dict[tuple, tuple[float, float, float]], rows: int, labels: int) -> list[Row]:
    return [Row(*name, rows, labels, ANCHORS, torch.get_num_threads(), *ratio) for name, ratio in found.items()]


def as_positions(y: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    """Labels as the loss takes their positions, and how log-loss makes dense targets of these."""
    (rows, labels), shape = y.nonzero().T, y.shape
    sparse = aimfor.sparse_labels([labels[rows == row] for row in range(shape[0])], shape[1])
    return sparse, lambda: torch.zeros(shape).index_put_((rows, labels), torch.ones(()))


def sparse_times(turns: int, rows: int, labels: int, what: str = "sparse labels") -> list[Row]:
    """Labels come as positions, of which log-loss must make dense targets first."""
    scores, y = batch(rows, labels)
    sparse, made_dense = as_positions(y)

    def build_and_log_loss() -> None:
        log_loss(scores, made_dense())()

    contenders = {
        (what, engine, one): ours(engine, one, scores, sparse) for engine in ENGINES for one in ("hinge", "log")
    }
    return rows_of(compare(build_and_log_loss, contenders, turns), rows, labels)


def widest(turns: int, rows: int, labels: int) -> list[Row]:
    """The main rows with torch and C++ as they come; none where that is 256 bits anyway."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return []
    scores, y = batch(rows, labels)
    kinds = [("widest vectors", engine, one) for engine in ENGINES for one in ("hinge", "log")]
    found = compare(log_loss(scores, y), {kind: ours(*kind[1:], scores, y) for kind in kinds}, turns)
    return rows_of(found, rows, labels) + sparse_times(turns, rows, labels, "sparse labels, widest vectors")


def small(turns: int) -> list[Row]:
    """Shapes where calling costs more than counting."""
    rows_found = []
    for rows, labels in ((128, 10), (4096, 1)):
        scores, y = batch(rows, labels, share=0.1)
        what = f"small {rows} x {labels}"
        contenders = {(what, one, s): ours(one, s, scores, y) for one in ENGINES for s in ("hinge", "log")}
        rows_found += rows_of(compare(log_loss(scores, y), contenders, turns), rows, labels)
    return rows_found


def whole_step(turns: int, rows: int, labels: int) -> list[Row]:
    """A linear layer, the loss, backward and SGD; labels dense, and as positions."""
    torch.manual_seed(0)
    inputs, (_, y) = torch.randn(rows, 1024), batch(rows, labels)
    sparse, made_dense = as_positions(y)
    # One layer for all: with one for each, where in memory its 80 MB happen to lie moves a ratio by a fifth.
    model = torch.nn.Linear(1024, labels)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step_with(loss, labels_of: Callable[[], Tensor]) -> Contender:
        def step() -> None:
            os.environ["AIMFOR_ENGINE"] = ENGINES[0]
            optimiser.zero_grad()
            loss(model(inputs), labels_of()).backward()
            optimiser.step()

        return step

    found = {}
    for what, own, theirs in (
        ("whole step", lambda: y, lambda: y),
        ("whole step, sparse labels", lambda: sparse, made_dense),
    ):
        contenders = {
            (what, ENGINES[0], one): step_with(aimfor.Loss("aucpr", num_labels=labels, surrogate=one, log_loss=0), own)
            for one in ("hinge", "log")
        }
        found |= compare(step_with(F.binary_cross_entropy_with_logits, theirs), contenders, turns)
    return rows_of(found, rows, labels)


def growth(turns: int, rows: int, labels: int, wide: tuple[int, ...]) -> list[Row]:
    """By the number of anchors, and by the number of labels."""
    scores, y = batch(rows, labels)
    found_rows = []
    several = (1, 5, 10, 20, 40)
    contenders = {
        ("anchors", ENGINES[0], one, number): ours(ENGINES[0], one, scores, y, number)
        for one in ("hinge", "log")
        for number in several
    }
    for (what, engine, one, number), ratio in compare(log_loss(scores, y), contenders, turns).items():
        found_rows.append(Row(what, engine, one, rows, labels, number, torch.get_num_threads(), *ratio))
    for width in wide:
        scores, y = batch(rows, width)
        contenders = {("labels", ENGINES[0], one): ours(ENGINES[0], one, scores, y) for one in ("hinge", "log")}
        for name, ratio in compare(log_loss(scores, y), contenders, turns).items():
            found_rows.append(Row(*name, rows, width, ANCHORS, torch.get_num_threads(), *ratio))
    return found_rows


def two_threads(turns: int, rows: int, labels: int) -> list[Row]:
    """Time with two threads over time with one: 0.5 would be twice as fast.

    Beside it what the machine has to give: the time with one thread while another process does the same, over the time
    alone. Half of that is as fast as two threads can be. Everyone has tensors of its own: in training a model comes
    between two losses and leaves nothing of the first in the cache.
    """

    def with_threads(count: int, step: Contender) -> Contender:
        def run() -> None:
            torch.set_num_threads(count)
            step()
            torch.set_num_threads(1)

        return run

    steps = {one: [ours(ENGINES[0], one, *batch(rows, labels)) for _ in range(2)] for one in ("hinge", "log")}
    ratios = {}
    for one, (step, other) in steps.items():
        threads = {("two threads / one", ENGINES[0], one): with_threads(2, other)}
        ratios |= compare(with_threads(1, step), threads, turns)
    command = [sys.executable, "-m", "benchmarks.cost.engine", "--without-end", str(rows), str(labels)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as neighbour:
        assert neighbour.stdout is not None
        neighbour.stdout.readline()  # it has started

        def prepare(name: tuple) -> None:
            neighbour.send_signal(signal.SIGCONT if name else signal.SIGSTOP)
            time.sleep(0.01)  # until it runs, or does not

        try:
            for one, (step, other) in steps.items():
                ratios |= compare(step, {("two processes / one", ENGINES[0], one): other}, turns, prepare)
        finally:
            neighbour.kill()
    return [Row(*name, rows, labels, ANCHORS, 2, *ratio) for name, ratio in ratios.items()]


def without_end(rows: int, labels: int) -> None:
    """Steps with one thread until somebody stops it; a line when it begins."""
    torch.set_num_threads(1)
    step = ours(ENGINES[0], "hinge", *batch(rows, labels))
    step()
    print("begun", flush=True)
    while True:
        step()


def peak(kind: str, surrogate: str, rows: int, labels: int) -> None:
    """Print the peak of one step above what was there before it, in bytes; run in a process of its own."""
    torch.set_num_threads(1)
    scores, y = batch(rows, labels)
    if kind.endswith("sparse"):
        sparse, made_dense = as_positions(y)
        del y

        def reference() -> None:
            log_loss(scores, made_dense())()

        step = reference if kind.startswith("log-loss") else ours(kind.split()[0], surrogate, scores, sparse)
    elif kind == "broadcast":
        step = broadcast(scores, y)
    else:
        step = log_loss(scores, y) if kind == "log-loss" else ours(kind, surrogate, scores, y)
    for _ in range(2):
        step()
    scores.grad = None
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = _resident("VmRSS")
    step()
    print(_resident("VmHWM") - before)


def _resident(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))


def memory(rows: int, labels: int) -> list[Row]:
    """Peaks as ratios to that of log-loss."""

    def measured(kind: str, surrogate: str = "hinge") -> int:
        command = [sys.executable, "-m", "benchmarks.cost.engine", "--peak", kind, surrogate, str(rows), str(labels)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **GIVES_BACK})
        return int(done.stdout)

    found = []
    dense, sparse = measured("log-loss"), measured("log-loss sparse")
    print(f"log-loss: {dense / (4 * rows * labels):.2f} matrices of the scores' size at its peak", flush=True)
    for engine in ENGINES:
        for one in ("hinge", "log"):
            for what, kind, reference in (
                ("memory", engine, dense),
                ("memory, sparse labels", f"{engine} sparse", sparse),
            ):
                ratio = measured(kind, one) / reference
                found.append(Row(what, engine, one, rows, labels, ANCHORS, 1, ratio, ratio, ratio))
    ratio = measured("broadcast") / dense
    found.append(Row("memory", "broadcast", "hinge", rows, labels, ANCHORS, 1, ratio, ratio, ratio))
    return found


def again() -> list[Reproduced]:
    """Memory and the main rows at the large shape, and the small shapes."""
    before = {row[:7]: row.ratio for row in finished()}
    rows = [
        *memory(ROWS, LABELS),
        *(row for name in (*ENGINES, "defaults", "sparse", "small") for row in apart(name, 3, processes=1)),
    ]
    kept = [row for row in rows if row[:7] in before and row.engine != "broadcast"]
    return [page.within_factor(", ".join(map(str, row[:7])), before[row[:7]], row.ratio, TOLERANCE) for row in kept]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="make some rows again, hold them to the committed ones")
    parser.add_argument("--report", action="store_true", help="only the table and the picture")
    parser.add_argument("--peak", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--without-end", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--group", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        kind, surrogate, *shape = arguments.peak
        return peak(kind, surrogate, *map(int, shape))
    if arguments.without_end:
        return without_end(*arguments.without_end)
    torch.set_num_threads(1)
    if arguments.group:
        name, turns = arguments.group
        return print(json.dumps(GROUPS[name](int(turns))))
    if arguments.quick:
        return page.hold(lambda _: again())
    if not arguments.report:
        keep(everything(TURNS))
    rows = finished()
    draw(rows)
    return table(rows).show()


GROUPS: dict[str, Callable[..., list[Row]]] = {
    # More turns where limits are set: a median of ten moves by a tenth from run to run.
    **{engine: lambda turns, engine=engine: times(engine, 3 * turns, ROWS, LABELS) for engine in ENGINES},
    "defaults": lambda turns: defaults(3 * turns, ROWS, LABELS),
    "for scale": lambda turns: for_scale(turns // 5, ROWS, LABELS),
    "sparse": lambda turns: sparse_times(3 * turns, ROWS, LABELS),
    "widest": lambda turns: widest(turns, ROWS, LABELS),
    "small": lambda turns: small(50 * turns),
    "whole step": lambda turns: whole_step(turns, ROWS, LABELS),
    "growth": lambda turns: growth(turns // 2, ROWS, LABELS, (1000, 5000, 20_000, 100_000, 200_000)),
    # More turns: both cores must be free, which on a shared machine they are not always.
    "two threads": lambda turns: two_threads(3 * turns, ROWS, LABELS),
}


def apart(group: str, turns: int, processes: int = PROCESSES) -> list[Row]:
    """The rows of a group, medians over processes of its own: allocator and vectors are chosen where one starts."""
    setting = KEEPS if group == "widest" else SETTING
    environment = {name: value for name, value in os.environ.items() if name != CAPABILITY} | setting
    command = [sys.executable, "-m", "benchmarks.cost.engine", "--group", group, str(turns)]
    found: list[list[Row]] = []
    for _ in range(processes):
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        found.append([Row(*numbers) for numbers in json.loads(done.stdout)])
    return [
        Row(*same[0][:7], *(statistics.median(numbers) for numbers in zip(*(row[7:] for row in same), strict=True)))
        for same in zip(*found, strict=True)
    ]


def everything(turns: int) -> list[Row]:
    """All rows."""
    print(
        f"{aimfor.engine()}; torch {torch.__version__}, one thread unless said, glibc's allocator, {SETTING}",
        flush=True,
    )
    rows = memory(ROWS, LABELS)
    for group in GROUPS:
        rows += apart(group, turns, 1 if group == "for scale" else PROCESSES)
        print(f"{len(rows)} rows", flush=True)
    return rows


if __name__ == "__main__":
    main()
