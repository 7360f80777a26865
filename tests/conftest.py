"""Settings of the whole suite."""

import torch
from hypothesis import settings

# Timing on a busy machine says nothing about a property.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")
torch.set_num_threads(1)
