"""The saved state of a head whose labels were in chunks of another size."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

# Moments of a chunk of weights or offsets: kind, number of the chunk, what of it.
_MOMENTS = re.compile(r"(weight|offset)_(\d+)_(\w+)")


def regroup_(state_dict: dict[str, Any], prefix: str, chunks: list[slice], subject: Callable[[slice], str]) -> None:
    """Cut what was saved of each label to these chunks, in place; nothing is done where they are the same.

    Args:
        state_dict: with the entries of a head for the same aim and as many labels, and maybe others.
        prefix: of the entries of the head.
        chunks: labels of each chunk of the head that loads.
        subject: what the state of some of its labels says that it is about.
    """
    losses, updates = f"{prefix}losses.", f"{prefix}updates."
    saved = _saved_chunks(state_dict, losses)
    if not saved or saved == chunks:
        return
    names = [key.removeprefix(f"{losses}0.") for key in state_dict if key.startswith(f"{losses}0.")]
    for name in names:
        entries = _taken_(state_dict, [f"{losses}{number}.{name}" for number in range(len(saved))])
        if name == "_extra_state":
            cut = [torch.tensor(list(subject(chunk).encode()), dtype=torch.uint8) for chunk in chunks]
        elif name == "state._extra_state":
            cut = _numbers(entries, chunks)
        elif name == "state.slope_square":
            # A slope is that of a mean over the labels of its chunk, so its square shrinks by their number squared.
            sums = [entry * entry.shape[-1] ** 2 for entry in entries]
            cut = [piece / piece.shape[-1] ** 2 for piece in _pieces(sums, chunks, -1)]
        else:
            cut = _pieces(entries, chunks, -1)
        state_dict |= {f"{losses}{number}.{name}": entry for number, entry in enumerate(cut)}
    keys = [key.removeprefix(updates) for key in state_dict if key.startswith(updates)]
    for kind, what in {match.group(1, 3) for match in map(_MOMENTS.fullmatch, keys) if match}:
        moments = [f"{updates}{kind}_{number}_{what}" for number in range(len(saved))]
        if not all(key in state_dict for key in moments):
            continue  # torch says which are missing
        entries = _taken_(state_dict, moments)
        # A count of steps is the same for all chunks.
        cut = _pieces(entries, chunks, 0) if entries[0].ndim else [entries[0].clone() for _ in chunks]
        state_dict |= {f"{updates}{kind}_{number}_{what}": entry for number, entry in enumerate(cut)}


def other_subject(
    state_dict: Mapping[str, Any], prefix: str, num_labels: int, subject: Callable[[slice], str]
) -> str | None:
    """What a saved head is about, where that is something else than the head that loads.

    Args:
        state_dict: with the entries of a head, and maybe others.
        prefix: of the entries of the head.
        num_labels: of the head that loads.
        subject: what the state of some of its labels says that it is about.
    """
    losses = f"{prefix}losses."
    saved = _saved_chunks(state_dict, losses)
    entries = [state_dict.get(f"{losses}{number}._extra_state") for number in range(len(saved))]
    texts = ["" if entry is None else bytes(entry.tolist()).decode(errors="replace") for entry in entries]
    if not saved or (saved[-1].stop == num_labels and texts == [subject(chunk) for chunk in saved]):
        return None
    return f"{texts[0].rpartition(', ')[0]}, num_labels={saved[-1].stop}"


def _saved_chunks(state_dict: Mapping[str, Any], losses: str) -> list[slice]:
    """Labels of each chunk that was saved; none where a part of the entries is missing."""
    by_chunk: dict[int, set[str]] = defaultdict(set)
    for key in state_dict:
        number, _, name = key.removeprefix(losses).partition(".")
        if key.startswith(losses) and number.isdecimal():
            by_chunk[int(number)].add(name)
    chunks, start = [], 0
    for number in range(len(by_chunk)):
        if by_chunk[number] != by_chunk[0] or "state.thresholds" not in by_chunk[number]:
            return []
        size = state_dict[f"{losses}{number}.state.thresholds"].shape[-1]
        chunks.append(slice(start, start + size))
        start += size
    return chunks


def _taken_(state_dict: dict[str, Any], keys: list[str]) -> list[Tensor]:
    return [state_dict.pop(key) for key in keys]


def _pieces(entries: list[Tensor], chunks: list[slice], dim: int) -> list[Tensor]:
    whole = torch.cat(entries, dim)
    # Copies: a piece that is assigned to a buffer would keep the memory of all.
    return [piece.clone() for piece in whole.split([chunk.stop - chunk.start for chunk in chunks], dim)]


def _numbers(entries: list[Tensor], chunks: list[slice]) -> list[Tensor]:
    """Batches, whether the user was warned, and given priors; the first two are the same for all labels."""
    first, priors = entries[0][:2], torch.cat([entry[2:] for entry in entries])
    return [torch.cat([first, priors[chunk]]) for chunk in chunks]
