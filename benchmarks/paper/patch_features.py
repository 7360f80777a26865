"""Frozen features of CIFAR-10: whitened patches against k-means centroids, pooled in quadrants (Coates & Ng).

    python -m benchmarks.paper.patch_features            # writes the cache, a few minutes on 2 cores

Everything learned (whitening, centroids, standardisation) is learned on training images only, without labels.
The features are cached outside the repository (`--cache`, default ~/.cache/aimfor) as float32 .npy files.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.shared import data

DEFAULT_CACHE = Path.home() / ".cache" / "aimfor"
PATCH = 6
POSITIONS = 32 - PATCH + 1


class Features(NamedTuple):
    """Standardised features [n, 4 * centroids] and class indices [n], float32 and int64."""

    train: Tensor
    train_classes: Tensor
    test: Tensor
    test_classes: Tensor


class Dictionary(NamedTuple):
    """Whitening (x - mean) @ matrix, and centroids [k, 108] of whitened patches."""

    mean: Tensor
    matrix: Tensor
    centroids: Tensor


def load_features(data_folder: Path, cache: Path = DEFAULT_CACHE, centroids: int = 256) -> Features | None:
    """The features, from the cache or computed once; None when CIFAR-10 is absent and nothing is cached."""
    names = ["train", "train_classes", "test", "test_classes"]
    paths = [cache / f"cifar10_patches{centroids}_{name}.npy" for name in names]
    if not all(path.is_file() for path in paths):
        images = data.load_cifar10(data_folder)
        if images is None:
            return None
        cache.mkdir(parents=True, exist_ok=True)
        for path, array in zip(paths, compute_features(images, centroids), strict=True):
            np.save(path, array)
    return Features(*(torch.from_numpy(np.load(path)) for path in paths))


def compute_features(images: data.Images, centroids: int) -> list[np.ndarray]:
    """Train features, train classes, test features, test classes; the features are standardised."""
    generator = torch.Generator().manual_seed(0)
    train, test = torch.from_numpy(images.train), torch.from_numpy(images.test)
    dictionary = learn_dictionary(sample_patches(train, 400_000, generator), centroids, generator)
    features, test_features = encode(train, dictionary), encode(test, dictionary)
    mean, deviation = features.mean(0), features.std(0)
    return [
        ((features - mean) / deviation).numpy(),
        images.train_classes.astype(np.int64),
        ((test_features - mean) / deviation).numpy(),
        images.test_classes.astype(np.int64),
    ]


def sample_patches(images: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Random patches [count, 108], contrast normalised."""
    rows = torch.randint(len(images), (count,), generator=generator)
    tops = torch.randint(POSITIONS, (count,), generator=generator)
    lefts = torch.randint(POSITIONS, (count,), generator=generator)
    window = torch.arange(PATCH)
    patches = images[
        rows[:, None, None, None],
        torch.arange(3)[:, None, None],
        (tops[:, None] + window)[:, None, :, None],
        (lefts[:, None] + window)[:, None, None, :],
    ]
    return contrast_normalise(patches.reshape(count, -1).float())


def contrast_normalise(patches: Tensor) -> Tensor:
    """Each patch to mean 0 and deviation 1; 10 (of 255^2) keeps flat patches from becoming noise."""
    variance, mean = torch.var_mean(patches, dim=-1, keepdim=True)
    return (patches - mean) / (variance + 10).sqrt()


def learn_dictionary(patches: Tensor, centroids: int, generator: torch.Generator, iterations: int = 50) -> Dictionary:
    """ZCA whitening, then k-means on the whitened patches."""
    mean = patches.mean(0)
    eigenvalues, eigenvectors = torch.linalg.eigh(torch.cov(patches.T))
    matrix = eigenvectors * (eigenvalues + 0.1).rsqrt() @ eigenvectors.T
    whitened = (patches - mean) @ matrix
    means = whitened[torch.randperm(len(whitened), generator=generator)[:centroids]].clone()
    for _ in range(iterations):
        nearest = torch.cat([_squared_distances(part, means).argmin(1) for part in whitened.split(20_000)])
        counts = torch.bincount(nearest, minlength=centroids)
        sums = torch.zeros_like(means).index_add_(0, nearest, whitened)
        # A centroid without patches moves to a random patch.
        spare = whitened[torch.randint(len(whitened), (centroids,), generator=generator)]
        means = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], spare)
    return Dictionary(mean, matrix, means)


def encode(images: Tensor, dictionary: Dictionary, chunk: int = 5) -> Tensor:
    """Triangle activation max(0, mean distance - distance), averaged over the four quadrants: [n, 4 * k]."""
    half = (POSITIONS + 1) // 2
    features = torch.empty(len(images), 4 * len(dictionary.centroids))
    for start in range(0, len(images), chunk):
        part = images[start : start + chunk].float()
        patches = contrast_normalise(F.unfold(part, PATCH).transpose(1, 2).reshape(-1, 3 * PATCH * PATCH))
        distances = _squared_distances((patches - dictionary.mean) @ dictionary.matrix, dictionary.centroids).sqrt_()
        activation = torch.relu_(distances.mean(1, keepdim=True) - distances)
        grid = activation.view(len(part), POSITIONS, POSITIONS, -1)
        quadrants = [grid[:, rows, columns].mean((1, 2)) for rows in _halves(half) for columns in _halves(half)]
        features[start : start + chunk] = torch.cat(quadrants, dim=1)
    return features


def _halves(half: int) -> tuple[slice, slice]:
    return slice(None, half), slice(half, None)


def _squared_distances(points: Tensor, centres: Tensor) -> Tensor:
    squares = torch.addmm(centres.square().sum(1), points, centres.T, alpha=-2)
    return squares.add_(points.square().sum(1, keepdim=True)).clamp_(min=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of the cached features")
    parser.add_argument("--centroids", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2, help="1 is faster where other programs use the cores too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    start = time.perf_counter()
    features = load_features(data.data_folder(arguments.data), arguments.cache, arguments.centroids)
    if features is not None:
        print(f"{tuple(features.train.shape)} features in {arguments.cache}, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
