"""The CIFAR-10 network of the paper: its layers, its crops, training that can be prolonged, and its last layers alone.

    python -m benchmarks.paper.cifar10_cnn                        # the trunk: half an hour, kept in results/
    python -m benchmarks.paper.cifar10_cnn --trunk-steps 200000   # as the paper; resumes from the cache

Two 5x5 convolutions of 64 with pooling and local response normalisation, dense 384 and 192, batches of 128 random 24x24
crops, mirrored at random, standardised image by image: TensorFlow's tutorial model, which the paper takes. The
tutorial also moves brightness and contrast, which the standardisation takes back, so that is left out.

What differs, so that fewer steps go further: momentum, and a rate that is constant and then falls to 0 over the last
part of the steps. The state at the constant rate is kept, so that more steps later do not start over.

The last layers are trained on features of the frozen trunk, computed once: a few random crops of every training image,
and the centre crops of the others. Several settings are trained side by side, as in `common.train_heads`.
"""

import argparse
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.paper.patch_features import DEFAULT_CACHE
from benchmarks.shared import data
from benchmarks.shared.cells import RESULTS
from benchmarks.shared.heads import AdamW, HeadsLoss, Setting

CLASSES = 10
SIDE = 24
MARGIN = 32 - SIDE
BATCH = 128
TRUNK_STEPS = 12_000
RATE = 0.03
MOMENTUM = 0.9
DENSE_DECAY = 0.004  # the tutorial's, on the two dense layers only
STEADY_SHARE = 0.7
VALIDATION_ROWS = 5_000
EVERY = 250
CROPS = 4


class Split(NamedTuple):
    """The official training images in two parts, and the test images: uint8 [n, 3, 32, 32] with class indices [n]."""

    train: Tensor
    train_classes: Tensor
    validation: Tensor
    validation_classes: Tensor
    test: Tensor
    test_classes: Tensor


class ResponseNorm(nn.Module):
    """Local response normalisation over 9 channels, x / (1 + alpha sum x^2)^0.75, with the tutorial's alpha.

    The sum over neighbouring channels is a product with a band matrix: torch's own takes as long as the convolutions.
    """

    band: Tensor

    def __init__(self, channels: int, radius: int = 4, alpha: float = 0.001 / 9):
        super().__init__()
        index = torch.arange(channels)
        band = ((index[:, None] - index).abs() <= radius).float()
        self.register_buffer("band", alpha * band, persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """Values [B, C, H, W], normalised."""
        channels_last = values.permute(0, 2, 3, 1)
        root = (1 + F.linear(channels_last.square(), self.band)).rsqrt()
        return (channels_last * root * root.sqrt()).permute(0, 3, 1, 2)


class Network(nn.Module):
    """The paper's network: `trunk` up to the dense layer of 384, `last` with the dense layer of 192 and the scores."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            ResponseNorm(64),
            nn.Conv2d(64, 64, 5, padding=2),
            nn.ReLU(),
            ResponseNorm(64),
            nn.MaxPool2d(3, 2, 1),
            nn.Flatten(),
            nn.Linear(64 * (SIDE // 4) ** 2, 384),
            nn.ReLU(),
        )
        self.last = nn.Sequential(nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, CLASSES))

    def forward(self, crops: Tensor) -> Tensor:
        """Crops [B, 3, 24, 24] -> scores [B, 10]."""
        return self.last(self.trunk(crops))


def split_images(images: data.Images) -> Split:
    """45,000 training images to learn from, 5,000 to choose by, the same ones for everything that is trained."""
    order = split_rows(len(images.train))
    train, classes = torch.from_numpy(images.train), torch.from_numpy(images.train_classes).long()
    held_out, kept = order[:VALIDATION_ROWS], order[VALIDATION_ROWS:]
    test, test_classes = torch.from_numpy(images.test), torch.from_numpy(images.test_classes).long()
    return Split(train[kept], classes[kept], train[held_out], classes[held_out], test, test_classes)


def split_rows(rows: int) -> Tensor:
    """The order of the training images whose first 5,000 are the validation images."""
    return torch.randperm(rows, generator=torch.Generator().manual_seed(0))


def random_crops(images: Tensor, generator: torch.Generator) -> Tensor:
    """A random crop of each image, mirrored every second time."""
    count, window = len(images), torch.arange(SIDE)
    tops = torch.randint(MARGIN + 1, (count, 1), generator=generator) + window
    lefts = torch.randint(MARGIN + 1, (count, 1), generator=generator)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    columns = lefts + torch.where(mirrored, window.flip(0), window)
    rows, channels = torch.arange(count)[:, None, None, None], torch.arange(3)[:, None, None]
    return standardise(images[rows, channels, tops[:, None, :, None], columns[:, None, None, :]])


def centre_crops(images: Tensor) -> Tensor:
    """The middle of each image."""
    inside = slice(MARGIN // 2, MARGIN // 2 + SIDE)
    return standardise(images[:, :, inside, inside])


def standardise(crops: Tensor) -> Tensor:
    """Each crop to mean 0 and deviation 1; the floor is the tutorial's, for images of one colour."""
    values = crops.float().flatten(1)
    deviation, mean = torch.std_mean(values, dim=1, keepdim=True)
    values = (values - mean) / deviation.clamp(min=values.shape[1] ** -0.5)
    return values.view(crops.shape).contiguous(memory_format=torch.channels_last)


def train_network(
    split: Split, loss: nn.Module, steps: int, cache: Path, name: str, rate: float = RATE, seed: int = 0
) -> Network:
    """Train the whole network with any loss of scores [B, 10] and classes [B]; goes on where it was stopped.

    Args:
        split: the images; only the training part is looked at.
        loss: a module, whose state is kept beside the network's.
        steps: in all. The state at the constant rate serves any larger number later.
        cache: folder of the states.
        name: of the states' files.
        rate: while it is constant.
        seed: of the first weights, the batches and the crops.
    """
    torch.manual_seed(seed)
    network = Network().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimiser = torch.optim.SGD(_groups(network), lr=rate, momentum=MOMENTUM, nesterov=True)
    generator = torch.Generator().manual_seed(seed)
    files = cache / f"{name}_steady.pt", cache / f"{name}_{steps}.pt"
    state = _found(files, steps)
    if state is not None:
        network.load_state_dict(state["network"])
        loss.load_state_dict(state["loss"])
        optimiser.load_state_dict(state["optimiser"])
        generator.set_state(state["generator"])
    first = 0 if state is None else state["step"]
    rows = _rows(len(split.train), generator)
    total, since = 0.0, time.perf_counter()
    for step in range(first, steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (steps - step) / ((1 - STEADY_SHARE) * steps))
        batch = next(rows)
        optimiser.zero_grad()
        value = loss(network(random_crops(split.train[batch], generator)), split.train_classes[batch])
        value.backward()
        optimiser.step()
        total += value.item()
        if (step + 1) % EVERY == 0 or step + 1 == steps:
            print(f"{name} step {step + 1}: {total / EVERY:.4f}, {time.perf_counter() - since:.0f} s", flush=True)
            total, since = 0.0, time.perf_counter()
            states = {"network": network, "loss": loss, "optimiser": optimiser}
            kept = {key: one.state_dict() for key, one in states.items()}
            _keep(kept | {"generator": generator.get_state(), "step": step + 1}, files, steps)
    return network.eval()


def _groups(network: Network) -> list[dict]:
    dense = [
        layer.weight for layer in network.modules() if isinstance(layer, nn.Linear) and layer is not network.last[2]
    ]
    others = [one for one in network.parameters() if not any(one is weight for weight in dense)]
    return [{"params": dense, "weight_decay": DENSE_DECAY}, {"params": others}]


def _found(files: tuple[Path, Path], steps: int) -> dict | None:
    """The state to go on from: of this very number of steps, else the one at the constant rate if it is not too far."""
    steady, own = (torch.load(file) if file.is_file() else None for file in files)
    if own is not None:
        return own
    return steady if steady is not None and steady["step"] <= STEADY_SHARE * steps else None


def _keep(state: dict, files: tuple[Path, Path], steps: int) -> None:
    steady, own = files
    steady.parent.mkdir(parents=True, exist_ok=True)
    file = steady if state["step"] <= STEADY_SHARE * steps else own
    if file is steady and file.is_file() and torch.load(file)["step"] >= state["step"]:
        return
    part = file.with_suffix(".part")
    torch.save(state, part)
    part.replace(file)  # a run that is stopped here leaves a whole file


def _rows(count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Random batches; drawn with replacement, so that a state needs no order of the images to go on."""
    while True:
        yield torch.randint(count, (BATCH,), generator=generator)


def trunk(split: Split, steps: int, cache: Path) -> Network:
    """The network trained with cross-entropy: the one that is kept beside the results, so that who makes a table again
    starts where it did, else a new one."""
    kept = kept_trunk(steps)
    if not kept.is_file():
        return train_network(split, nn.CrossEntropyLoss(), steps, cache, "cifar10_trunk")
    network = Network().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    network.load_state_dict(load_file(kept))
    return network.eval()


def kept_trunk(steps: int) -> Path:
    """Where the network of so many steps is kept."""
    return RESULTS / f"cifar10_trunk_{steps}.safetensors"


@torch.no_grad()
def scores_of(network: Network, images: Tensor) -> Tensor:
    """Scores [n, 10] of centre crops."""
    return torch.cat([network(centre_crops(part)) for part in images.split(500)])


class TrunkFeatures(NamedTuple):
    """Outputs of the frozen trunk [n, 384]; the training images come `CROPS` times, each time another crop."""

    train: Tensor
    train_classes: Tensor
    validation: Tensor
    validation_classes: Tensor
    test: Tensor
    test_classes: Tensor


def trunk_features(network: Network, split: Split, cache: Path) -> TrunkFeatures:
    """The features of a trunk, from the cache or computed once."""
    digest = hashlib.sha256()
    for parameter in network.trunk.parameters():
        digest.update(parameter.detach().contiguous().numpy())
    paths = [cache / f"cifar10_trunk_{digest.hexdigest()[:12]}_{name}.npy" for name in ("train", "validation", "test")]
    if not all(path.is_file() for path in paths):
        generator = torch.Generator().manual_seed(1)
        crops = torch.cat([_encode(network, split.train, generator) for _ in range(CROPS)])
        cache.mkdir(parents=True, exist_ok=True)
        for path, features in zip(
            paths, (crops, _encode(network, split.validation), _encode(network, split.test)), strict=True
        ):
            np.save(path, features.numpy())
    train, validation, test = (torch.from_numpy(np.load(path)) for path in paths)
    return TrunkFeatures(
        train, split.train_classes.repeat(CROPS), validation, split.validation_classes, test, split.test_classes
    )


@torch.no_grad()
def _encode(network: Network, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Features of centre crops, or of random ones when there is a generator."""
    return torch.cat(
        [
            network.trunk(centre_crops(part) if generator is None else random_crops(part, generator))
            for part in images.split(500)
        ]
    )


class LastLayers(NamedTuple):
    """G copies of the last two layers: [384, G, 192], [G, 192], [192, G, 10], [G, 10]."""

    hidden: Tensor
    hidden_bias: Tensor
    weight: Tensor
    bias: Tensor

    def scores(self, features: Tensor) -> Tensor:
        """Features [n, 384] -> scores [n, G, 10]."""
        flat = torch.addmm(self.hidden_bias.flatten(), features, self.hidden.flatten(1)).relu()
        hidden = flat.unflatten(1, self.hidden_bias.shape)
        return (hidden.transpose(0, 1) @ self.weight.transpose(0, 1)).transpose(0, 1) + self.bias


def last_layers(network: Network, copies: int) -> LastLayers:
    """Copies of the network's own last layers."""
    hidden, hidden_bias, weight, bias = network.last.parameters()
    parts = hidden.T, hidden_bias, weight.T, bias
    return LastLayers(
        *(part.detach().unsqueeze(-2).repeat_interleave(copies, -2).clone().requires_grad_() for part in parts)
    )


def train_last_layers(
    features: TrunkFeatures, network: Network, loss: HeadsLoss, settings: Sequence[Setting], *, steps: int, seed: int
) -> LastLayers:
    """Train copies of the last layers, one per setting, on the same batches from the weights of cross-entropy."""
    generator = torch.Generator().manual_seed(seed)
    layers = last_layers(network, len(settings))
    rates = torch.tensor([setting.rate for setting in settings])[:, None]
    shrinkage = rates * torch.tensor([setting.decay for setting in settings])[:, None]
    none = torch.zeros_like(rates)
    optimiser = AdamW(list(layers), [shrinkage, none, shrinkage, none], rates)
    for step, rows in zip(range(steps), _rows(len(features.train), generator), strict=False):
        loss(layers.scores(features.train[rows]), features.train_classes[rows]).backward()
        optimiser.step_(0.5 * (1 + math.cos(math.pi * step / steps)))
    return LastLayers(*(part.detach() for part in layers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of the cached network")
    parser.add_argument("--trunk-steps", type=int, default=TRUNK_STEPS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    images = data.load_cifar10(data.data_folder(arguments.data))
    if images is None:
        return
    split = split_images(images)
    network = trunk(split, arguments.trunk_steps, arguments.cache)
    right = (scores_of(network, split.validation).argmax(1) == split.validation_classes).float().mean()
    print(f"accuracy on validation images: {right:.4f}")
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    save_file(tensors, kept_trunk(arguments.trunk_steps))


if __name__ == "__main__":
    main()
