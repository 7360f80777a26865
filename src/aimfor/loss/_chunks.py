"""Labels in chunks: what the loss of some labels takes of labels, weights, targets and saved states of all."""

import warnings
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aimfor.aims import Aim
from aimfor.loss._batch import every_entry, valid_weights


class _Columns(NamedTuple):
    """The ones of sparse labels, ordered by column."""

    rows: Tensor
    columns: Tensor
    values: Tensor


def label_parts(labels: Tensor, chunks: list[slice]) -> Iterator[Tensor]:
    """The labels of each chunk, sparse where they came sparse."""
    if labels.layout == torch.strided:
        yield from (labels[:, part] for part in chunks)
        return
    whole = labels.detach()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        whole = whole if whole.layout == torch.sparse_coo else whole.to_sparse_coo()
    # Before anything reads them: torch trusts the indices that it is given, and would read beyond the end.
    index, shape = whole._indices(), torch.tensor(labels.shape, device=labels.device).unsqueeze(1)
    if bool(((index < 0) | (index >= shape)).any()):
        raise ValueError(f"labels must have indices within their shape {tuple(labels.shape)}, got one outside of it")
    whole = whole.coalesce()
    order = whole.indices()[1].argsort(stable=True)
    ones = _Columns(whole.indices()[0][order], whole.indices()[1][order], whole.values()[order])
    edges = torch.tensor([part.start for part in chunks] + [labels.shape[1]], device=labels.device)
    bounds = torch.searchsorted(ones.columns, edges).tolist()
    for part, start, end in zip(chunks, bounds, bounds[1:], strict=False):
        index = torch.stack([ones.rows[start:end], ones.columns[start:end] - part.start])
        size = (labels.shape[0], part.stop - part.start)
        yield torch.sparse_coo_tensor(index, ones.values[start:end], size, check_invariants=True)


def entries_of(entries: Tensor | None, labels: slice) -> Tensor | None:
    """Weights or mask of some labels; what is given per row is the same for all."""
    return entries if entries is None or entries.ndim != 2 else entries[:, labels]


def check_entries(labels: Tensor, weights: Tensor | None, mask: Tensor | None) -> None:
    """Refuse labels or weights of which an entry that is not absent breaks its rule.

    Args:
        labels: `[B, L]`, dense or sparse.
        weights: `[B]` or `[B, L]`.
        mask: likewise.
    """
    weights, mask = (one.unsqueeze(1) if one is not None and one.ndim == 1 else one for one in (weights, mask))
    if weights is not None:
        valid_weights(weights, mask)
    if labels.layout != torch.strided:
        values = labels._values()
        if weights is None and mask is None:
            every_entry("labels", values, (values == 0) | (values == 1))
        return
    valid = (labels == 0) | (labels == 1)
    valid = valid if mask is None else valid | ~mask
    every_entry("labels", labels, valid if weights is None else valid | (weights == 0))


def option_of_all(name: str) -> Any:
    """A property of a head: an option that the losses of all chunks share."""

    def write(head: Any, value: Any) -> None:
        for loss in head.losses:
            setattr(loss, name, value)

    return property(lambda head: getattr(head.losses[0], name), write, doc=f"See `Loss.{name}`; it may be changed.")


def targets_of(aim: Aim, labels: slice) -> Aim:
    """The aim of some labels: targets per label are cut out."""
    entries = {field.name: getattr(aim, field.name) for field in fields(aim)}  # pyright: ignore[reportArgumentType]
    cut = {name: value[labels] for name, value in entries.items() if isinstance(value, tuple)}
    return replace(aim, **cut) if cut else aim  # pyright: ignore[reportArgumentType]


def options_of(options: dict[str, Any], labels: slice) -> dict[str, Any]:
    """The options of the loss of some labels: priors per label are cut out."""
    priors = options.get("priors")
    if isinstance(priors, (list, tuple)) or (isinstance(priors, Tensor) and priors.ndim):
        return {**options, "priors": priors[labels]}
    return options
