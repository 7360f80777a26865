"""The steps of torch's Adam, without its class."""

import subprocess
import sys

import pytest
import torch

from aimfor.training._adam import Adam

# What fits in a process of its own, and says whether torch's compiler was imported for it.
FIT = """
import sys
import numpy as np
import aimfor
X = np.random.default_rng(0).normal(size=(200, 3))
aimfor.Classifier("f1", model="linear", steps=10).fit(X, X[:, 0] > 0.5)
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_steps_as_torch_does_also_where_some_have_no_gradient(dtype):
    generator = torch.Generator().manual_seed(0)
    ours = [torch.randn(3, 2, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]
    theirs = [one.detach().clone().requires_grad_() for one in ours]
    one, other = Adam(ours, 0.1), torch.optim.Adam(theirs, lr=0.1)
    for step in range(5):
        one.rate = other.param_groups[0]["lr"] = 0.1 / (step + 1)
        for optimiser, parameters in ((one, ours), (other, theirs)):
            optimiser.zero_grad()
            used = parameters[: 2 if step < 3 else 3]
            torch.stack([((own - 1) ** 2).sum() * (place + 1) for place, own in enumerate(used)]).sum().backward()
            optimiser.step()
    assert all(torch.equal(own, its) for own, its in zip(ours, theirs, strict=True))
    for number, entries in other.state_dict()["state"].items():
        assert entries.keys() == one.state[number].keys()
        assert all(torch.equal(entries[name], tensor) for name, tensor in one.state[number].items())


def test_a_fit_does_not_import_the_compiler():
    told = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, timeout=120)
    assert told.stdout.strip() == "False", told.stderr
