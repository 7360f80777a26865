"""Count what the Triton engine reads and writes in one step, by its interpreter; test_triton.py runs it in a process.

Prints the bytes per score of the census, of the pass and of the whole step.
"""

import json
import sys
from collections import Counter

import torch
from triton.runtime.interpreter import InterpreterBuilder

import aimfor
from aimfor.loss.engines import _triton as engine

MOVED: Counter[str] = Counter()
kernel = "outside"


def counted(name: str, pointers, mask) -> None:
    size = pointers.get_element_ty().primitive_bitwidth // 8
    MOVED[f"{kernel} {name}"] += int(mask.data.sum() if mask is not None else pointers.data.size) * size


def watch() -> None:
    """Count every masked load and store of the kernels, and which kernel it is of."""
    load, store, launch = (
        InterpreterBuilder.create_masked_load,
        InterpreterBuilder.create_masked_store,
        engine.TritonPass._launch,
    )

    def watched_load(self, pointers, mask, *rest, **options):
        counted("loads", pointers, mask)
        return load(self, pointers, mask, *rest, **options)

    def watched_store(self, pointers, value, mask, *rest, **options):
        counted("stores", pointers, mask)
        return store(self, pointers, value, mask, *rest, **options)

    def watched_launch(self, name, *arguments, **options):
        global kernel
        kernel = name
        launch(self, name, *arguments, **options)

    InterpreterBuilder.create_masked_load = watched_load
    InterpreterBuilder.create_masked_store = watched_store
    engine.TritonPass._launch = watched_launch


def main() -> None:
    rows, labels, anchors, kind, form = *map(int, sys.argv[1:4]), *sys.argv[4:]
    loss = aimfor.Loss(f"aucpr; num_anchors={anchors}", num_labels=labels)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(rows, labels, generator=generator).to(getattr(torch, kind)).requires_grad_()
    truth = torch.rand(rows, labels, generator=generator) < 0.1
    loss.state.steps.fill_(4)  # of four batches in a row one counts errors too; this one does not
    loss.state.class_weight.fill_(1.0)
    watch()
    loss(scores, truth.to_sparse_csr() if form == "csr" else truth.to(getattr(torch, form))).backward()
    print(json.dumps({name: count / (rows * labels) for name, count in MOVED.items()}))


if __name__ == "__main__":
    main()
