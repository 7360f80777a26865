"""The tensors of a batch become one record. An error says what is wrong with their form.

Their values are checked by the pass that reads them anyway, such as `entries` of the reference, by the rules here.
"""

import warnings
from collections.abc import Collection, Iterable, Sequence, Set
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from aimfor._base import checks
from aimfor.loss._log_odds import log_odds

# Weighted sums of scores and of their squares over a million rows must stay within float32.
LARGEST_SCORE, LARGEST_WEIGHT = 1e10, 1e12
# Types that torch stores but does not calculate with.
UNSIGNED = frozenset((torch.uint16, torch.uint32, torch.uint64))
_TYPES = [kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)]
FLOAT8 = frozenset(kind for kind in _TYPES if kind.is_floating_point and kind.itemsize == 1)
# Looked up once: they are asked about every tensor of every batch.
_of_torch: Any = torch
_is_functional = _of_torch._is_functional_tensor
_functorch_level = _of_torch._C._functorch.maybe_current_level
_is_wrapped = _of_torch._C._functorch.is_functorch_wrapped_tensor
# What every entry that is looked at must be.
LOG_ODDS = "log-odds of scores"
RULES = {
    **dict.fromkeys(("scores", LOG_ODDS), f"finite and at most {LARGEST_SCORE:g} in size"),
    "labels": "0 or 1",
    "weights": f"0 or between {1 / LARGEST_WEIGHT:g} and {LARGEST_WEIGHT:g}",
}


class Positives(NamedTuple):
    """Sparse labels: row i is positive in `columns[starts[i]:starts[i + 1]]`.

    As they come, `values` are stored at the columns and nothing has been checked; None once they are known to be 1 and
    the rest to be in order.
    """

    starts: Tensor
    columns: Tensor
    values: Tensor | None = None


class Batch(NamedTuple):
    """A batch of the right form.

    Attributes:
        scores: `[B, L]`, still part of the caller's graph; log-odds when multiclass.
        labels: `[B, L]`, or the positions of the ones.
        weights: `[B, 1]` or `[B, L]`; None for 1.
        mask: bool, `[B, 1]` or `[B, L]`, False where there is nothing to look at; None for all True.
    """

    scores: Tensor
    labels: Tensor | Positives
    weights: Tensor | None
    mask: Tensor | None


def training_batch(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    mask: Tensor | None,
    num_labels: int,
    multiclass: bool = False,
) -> Batch:
    """Bring one training batch into form. Entries with weight 0 or mask False are absent: nothing there is looked at.

    Args:
        scores: `[B]` when there is one label, or `[B, L]`.
        labels: 0/1 of the shape of scores, dense or sparse (CSR or COO); class indices `[B]` when multiclass.
        weights: `[B]` or like scores; None for 1.
        mask: bool, `[B]` or like scores; None for all True.
        num_labels: L.
        multiclass: whether labels are class indices.
    """
    _check_tensor("scores", scores, scores)
    _check_tensor("labels", labels, scores)
    if weights is not None:
        _check_tensor("weights", weights, scores)
    if mask is not None:
        _check_tensor("mask", mask, scores)
    scores, labels, weights, mask = _plain(scores), _plain(labels), _plain(weights), _plain(mask)
    _check_scores(scores, num_labels, multiclass)
    labels, weights = _signed(labels), None if weights is None else _signed(weights)
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must be of dtype torch.bool, got {mask.dtype}")
    if labels.is_complex():
        raise TypeError(f"labels must be real, got {labels.dtype}")
    matrix = scores.unsqueeze(1) if scores.ndim == 1 else scores
    weights, mask = _per_entry("weights", weights, scores), _per_entry("mask", mask, scores)
    if multiclass:
        return _classes(matrix, labels, None if weights is None else weights.detach(), mask)
    _check_shapes(scores, labels)
    if labels.layout == torch.strided:
        in_form = labels.detach() if labels.ndim == 2 else labels.detach().unsqueeze(1)
    else:
        in_form = _positions(labels.detach())
    return Batch(matrix, in_form, None if weights is None else weights.detach(), mask)


def sparse_labels(rows: Iterable[Collection[int] | Tensor], num_labels: int) -> Tensor:
    """Labels from lists of the labels that are 1, for a `collate_fn`: the dense 0/1 matrix is never built.

    Args:
        rows: for each row the indices of its labels, in any order: a list, a set or a tensor.
        num_labels: L.

    Returns:
        A sparse CSR tensor `[B, L]`.

    Example:
        >>> sparse_labels([[2, 0], [], [1]], num_labels=3).to_dense()
        tensor([[1., 0., 1.],
                [0., 0., 0.],
                [0., 1., 0.]])
    """
    checks.whole_number("num_labels", num_labels, at_least=1)
    if not isinstance(rows, Iterable):
        raise TypeError(f"rows must be a list of rows, got {rows!r}")
    tensors = [_whole_numbers(row, num_labels).unique() for row in rows]
    checks.rule(len(tensors) > 0, "rows", "must have at least one row", 0)
    columns = torch.cat(tensors)
    for column in (*columns[columns < 0][:1], *columns[columns >= num_labels][:1]):
        raise ValueError(f"rows must hold whole numbers in 0..{num_labels - 1}, got {column.item()}")
    starts = torch.tensor([0, *map(len, tensors)]).cumsum(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")  # said by torch, once per process
        size = (len(tensors), num_labels)
        return torch.sparse_csr_tensor(starts, columns, torch.ones(len(columns)), size, check_invariants=True)


def refuse(name: str, value: object) -> NoReturn:
    """Raise the ValueError of scores, labels or weights of which an entry breaks their rule."""
    got = f"{value}{_remedy(value)}" if name == "labels" else value
    raise ValueError(f"{name} must be {RULES[name]} in every entry, got {got}")


def _remedy(label: object) -> str:
    return ": pass mask=labels != -100" if label == -100 else ""


def every_entry(name: str, values: Tensor, valid: Tensor) -> None:
    """Refuse a tensor with an entry that is not valid, naming the first."""
    if not bool(valid.all()):
        refuse(name, values[~valid][0].item())


def valid_scores(scores: Tensor, name: str = "scores") -> None:
    """Refuse scores that are not finite or too large to sum."""
    low, high = (_comparable(end) for end in scores.aminmax())
    if not bool((low >= -LARGEST_SCORE) & (high <= LARGEST_SCORE)):  # false where one is nan
        every_entry(name, scores, _comparable(scores).abs() <= LARGEST_SCORE)


def valid_ones(labels: Tensor) -> None:
    """Refuse labels of which one, though not 0, is not 1."""
    if len(labels) and not bool(torch.stack(labels.aminmax()).eq(1).all()):  # so where one is nan
        every_entry("labels", labels, labels == 1)


def valid_weights(weights: Tensor, mask: Tensor | None) -> None:
    """Refuse weights that are negative, not finite, or too large or small to sum, where they are looked at."""
    values = _comparable(weights)
    valid = (values == 0) | ((values >= 1 / LARGEST_WEIGHT) & (values <= LARGEST_WEIGHT))
    valid = valid if mask is None else valid | ~mask
    every_entry("weights", weights.expand_as(valid), valid)


def valid_positions(labels: Positives, num_labels: int) -> Positives:
    """Refuse sparse labels with a position outside or a value that is not 0 or 1; leaves out zeros that are stored."""
    starts, columns, values = labels
    if values is None:
        return labels
    # torch does not check what a sparse tensor is made of, and a position outside would be read as memory.
    in_order = starts[0] == 0 and starts[-1] == len(columns) and bool((starts.diff() >= 0).all())
    checks.rule(bool(in_order), "labels", "must have row starts in order", starts.tolist()[:5])
    # By the smallest and the largest, which are found several times as fast as masks are looked through.
    if not _all_within(columns, 0, num_labels - 1):
        outside = (columns < 0) | (columns >= num_labels)
        raise ValueError(f"labels must have columns in 0..{num_labels - 1}, got {columns[outside][0].item()}")
    if _all_within(values, 1, 1):
        return Positives(starts, columns)
    ones = values == 1
    every_entry("labels", values, ones | (values == 0))
    kept = torch.cat([ones.new_zeros(1), ones]).cumsum(0)
    return Positives(kept[starts], columns[ones])


def _comparable(values: Tensor) -> Tensor:
    """In at least float32: torch compares in the type of the tensor, and in float16 the largest number is inf."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def known_priors(priors: float | Sequence[float] | Tensor | None, num_labels: int) -> list[float] | None:
    """Known priors of each label, strictly between 0 and 1."""
    if priors is None:
        return None
    row = checks.per_column("priors", priors, (1, num_labels), 0, 1, open_low=True, open_high=True)
    for prior in row:
        checks.away_from_ends("priors", prior)
    return list(row)


def _whole_numbers(row: Collection[int] | Tensor, num_labels: int) -> Tensor:
    """The labels of one row."""
    must = f"rows must hold whole numbers in 0..{num_labels - 1}"
    try:
        tensor = torch.as_tensor(list(row) if isinstance(row, Set) else row)
    except (TypeError, ValueError, RuntimeError):  # texts, lists in lists, numbers beyond 64 bits
        raise TypeError(f"{must}, got {row!r}") from None
    if tensor.ndim != 1:
        raise TypeError(f"{must}, a list for each row, got shape {tuple(tensor.shape)}")
    if len(tensor) and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
        first = tensor[0].item()
        raise TypeError(f"{must}, got {first if isinstance(first, bool) else format(first, 'g')} of {tensor.dtype}")
    return tensor.long()


def _check_tensor(name: str, value: Tensor, scores: Tensor) -> None:
    """Refuse what is no tensor, what the engines cannot read, and what is elsewhere. Plain tensors pass quickly."""
    if type(value) is not Tensor and not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    _check_memory(name, value)
    if value is not scores and value.device != scores.device:
        raise ValueError(
            f"{name} must be on the device of scores, {scores.device}, got {value.device}: move them with "
            f"{name}.to(scores.device)"
        )
    if value.is_quantized:
        raise TypeError(f"{name} must not be quantised, got {value.dtype}: pass {name}.dequantize()")
    if value.dtype in FLOAT8:  # torch stores it, and calculates nothing
        raise TypeError(f"{name} must be of a type of at least 16 bits where it is floating point, got {value.dtype}")


def _check_memory(name: str, value: Tensor) -> None:
    """Refuse a tensor that is only a face of others, or whose memory is gone: the engines read its memory."""
    if has_memory(value):
        if value.layout is torch.strided and _reaches_beyond(value):
            raise TypeError(f"{name} must have its numbers in memory, got a tensor whose memory was given back")
        return
    kind = type(value).__name__
    if kind == "Tensor":
        raise TypeError(f"{name} must be a plain tensor, got one inside of torch.func: call the loss outside of it")
    if kind == "DTensor":
        kind += f": pass {name}.to_local(), and say with process_group which ranks share the rows"
    raise TypeError(f"{name} must be a plain tensor with memory of its own, got {kind}")


def _plain(value: Any) -> Any:
    """Without its subclass: subclasses of tensors may not know each other, and nothing here is theirs to change."""
    return value if value is None or type(value) is Tensor else value.as_subclass(Tensor)


def has_memory(value: Tensor) -> bool:
    """Whether a tensor is a plain one, or a subclass that changes nothing about its memory."""
    kind: Any = type(value)
    plain: Any = Tensor
    if kind is not Tensor and kind.__torch_dispatch__ is not plain.__torch_dispatch__:
        return False
    if _is_functional(value):
        return False
    return _functorch_level() is None or not _is_wrapped(value)  # asked first: it takes a quarter of the other


def _reaches_beyond(value: Tensor) -> bool:
    """Whether a tensor has entries beyond its memory, as one that FSDP has given back."""
    held, before = value.untyped_storage().nbytes(), value.storage_offset()
    if not before and value.is_contiguous():
        return value.nbytes > held
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return bool(value.numel()) and (before + last + 1) * value.dtype.itemsize > held


def awaited(value: Any) -> Any:
    """A tensor whose collective may still be under way, as tensor-parallel layers give it, once it has arrived."""
    # By its name: the class is imported only where such tensors are made.
    return value.clone() if type(value).__name__ == "AsyncCollectiveTensor" else value


def _signed(values: Tensor) -> Tensor:
    """Whole numbers that torch stores but does not calculate with as those that it does."""
    return values.long() if values.dtype in UNSIGNED else values


def _check_scores(scores: Tensor, num_labels: int, multiclass: bool) -> None:
    if not scores.is_floating_point():
        raise TypeError(f"scores must be floating point, got {scores.dtype}")
    checks.dense("scores", scores)
    one_column = scores.ndim == 1 and num_labels == 1
    if not one_column and (scores.ndim != 2 or scores.shape[1] != num_labels):
        allowed = f"[B, {num_labels}]" if multiclass or num_labels > 1 else "[B] or [B, 1]"
        remedy, form = "", "labels.flatten()" if multiclass else "labels in the same form"
        if scores.ndim == 2 and scores.shape[1] == 2 and num_labels == 1:
            remedy = ": of a head with two logits pass logits[:, 1] - logits[:, 0]"
        elif scores.ndim > 2 and scores.shape[-1] == num_labels:
            remedy = f": pass scores.flatten(0, -2), and {form}"
        elif scores.ndim > 2:
            ways = "scores.flatten()" if num_labels == 1 else "scores.movedim(1, -1).flatten(0, -2)"
            remedy = f": pass {ways}, and {form}"
        shape = tuple(scores.shape)
        raise ValueError(f"scores must have shape {allowed} for num_labels={num_labels}, got {shape}{remedy}")
    if not scores.shape[0]:  # `len` takes three times as long
        checks.rule(False, "scores", "must have at least one row", tuple(scores.shape))


def _check_shapes(scores: Tensor, labels: Tensor) -> None:
    if labels.shape != scores.shape:
        remedy = ""
        if scores.ndim == 2 and scores.shape[1] == 1 and labels.shape == scores.shape[:1]:
            remedy = ": pass scores.squeeze(1)"
        elif scores.ndim == 1 and labels.shape == (*scores.shape, 1):
            remedy = ": pass labels.squeeze(1)"
        elif scores.ndim == 2 and labels.shape == scores.shape[:1]:
            remedy = ": for exclusive classes make the loss with multiclass=True"
        shape = tuple(scores.shape)
        raise ValueError(f"labels must have the shape of scores, {shape}, got {tuple(labels.shape)}{remedy}")


def _per_entry(name: str, value: Tensor | None, scores: Tensor) -> Tensor | None:
    """A per-row or per-entry tensor as a matrix that broadcasts against `[B, L]`."""
    if value is None:
        return None
    if value.layout != torch.strided or value.is_complex():
        raise TypeError(f"{name} must be a dense tensor of real numbers, got {value.layout} of {value.dtype}")
    if value.shape == scores.shape:
        return value if value.ndim == 2 else value.unsqueeze(1)
    if value.shape == scores.shape[:1]:
        return value.unsqueeze(1)
    allowed = dict.fromkeys([tuple(scores.shape[:1]), tuple(scores.shape)])
    raise ValueError(f"{name} must have shape {' or '.join(map(str, allowed))}, got {tuple(value.shape)}")


def _positions(labels: Tensor) -> Positives:
    """A sparse matrix as it is stored."""
    if labels.ndim != 2 or labels.layout not in (torch.sparse_csr, torch.sparse_coo):
        raise TypeError(f"labels must be dense, sparse CSR or sparse COO of shape [B, L], got {labels.layout}")
    if labels.layout == torch.sparse_coo:
        # Before anything reads them: torch trusts the indices, and would read and write beyond the end.
        index = labels._indices()
        if index.numel() and not all(
            _all_within(one, 0, size - 1) for one, size in zip(index, labels.shape, strict=True)
        ):
            raise ValueError(
                f"labels must have indices within their shape {tuple(labels.shape)}, got one outside of it"
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            labels = labels.coalesce().to_sparse_csr()
    starts, columns, values = labels.crow_indices().long(), labels.col_indices().long(), labels.values()
    # Nor does torch check this, and the C++ engine reads as far.
    lengths = (*starts.shape, *columns.shape, *values.shape)
    if lengths != (labels.shape[0] + 1, len(columns), len(columns)):
        raise ValueError(f"labels must have one more row start than rows and a value for each column, got {lengths}")
    return Positives(starts, columns, values)


def _all_within(values: Tensor, low: int, high: int) -> bool:
    if not len(values):
        return True
    smallest, largest = values.aminmax()
    return bool(smallest >= low) and bool(largest <= high)  # false where one is nan


def _classes(scores: Tensor, labels: Tensor, weights: Tensor | None, mask: Tensor | None) -> Batch:
    """Log-odds and one positive per row."""
    rows, classes = scores.shape
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be whole numbers when multiclass, got {labels.dtype}")
    if labels.layout != torch.strided:
        raise TypeError(f"labels must be a dense tensor of class indices when multiclass, got {labels.layout}")
    if labels.shape != scores.shape[:1]:
        raise ValueError(f"labels must have shape {tuple(scores.shape[:1])} when multiclass, got {tuple(labels.shape)}")
    absent = _absent_rows(weights, mask)
    if absent is not None:
        # A class without a label of its own still stands among the others of its row; a row without any is not there.
        labels = labels.masked_fill(absent, 0)
        scores = scores.masked_fill(absent.unsqueeze(1), 0.0)
    outside = (labels < 0) | (labels >= classes)
    if bool(outside.any()):
        got = labels[outside][0].item()
        raise ValueError(f"labels must be in 0..{classes - 1} in every entry, got {got}{_remedy(got)}")
    valid_scores(scores.detach())
    starts = torch.arange(rows + 1, device=labels.device)
    # Half precision has too few digits to tell the odds of sure predictions apart.
    odds = log_odds(scores.to(torch.promote_types(scores.dtype, torch.float32)))
    valid_scores(odds.detach(), LOG_ODDS)
    return Batch(odds, Positives(starts, labels.long()), weights, mask)


def _absent_rows(weights: Tensor | None, mask: Tensor | None) -> Tensor | None:
    if weights is None and mask is None:
        return None
    parts = ([] if mask is None else [~mask]) + ([] if weights is None else [weights == 0])
    return torch.stack(torch.broadcast_tensors(*parts)).any(0).all(1)
