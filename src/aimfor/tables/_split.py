"""Split rows into those that train, those that choose (validation) and those that judge (test)."""

from __future__ import annotations

import numpy as np

from aimfor._base.errors import DataError
from aimfor._base.ranks import ALONE, Ranks, RowShare
from aimfor._base.splitting import quotas

TRAIN, VALIDATION, TEST, DROPPED = range(4)
PARTS = ("train", "validation", "test")  # rows without a label are in none of them
MOST_HELD = 200_000
CHUNK = 1_000_000  # rows that are handled together


# long: every option is an argument of its own, with a line of documentation.
def split_rows(
    labels: np.ndarray,
    *,
    validation: float,
    test: float,
    seed: int,
    groups: np.ndarray | None = None,
    times: np.ndarray | None = None,
    most_validation: int = MOST_HELD,
    share: RowShare | None = None,
) -> np.ndarray:
    """Assign a part to each row.

    Without groups and times rows are drawn at random, each class by its share. With groups, all rows of a group have
    one part. With times, the latest rows are the test and those before them the validation. Equal times stay together.

    Args:
        labels: 0/1 or numbers of classes, `[n]`; or 0/1 `[n, L]`.
        validation: share of the rows; 0 for none.
        test: share of the rows; 0 for none.
        seed: random seed.
        groups: `[n]`, of any type that can be sorted.
        times: `[n]` numbers.
        most_validation: the most rows of validation and of test; further rows train.
        share: which of all rows these are, where several processes share them; None for all. Each row has the same part
            whatever the number of processes.

    Returns:
        uint8 `[n]`: 0 train, 1 validation, 2 test.

    Raises:
        DataError: if a part lacks positives or negatives.

    Example:
        >>> split_rows(np.array([0, 1] * 5), validation=0.2, test=0.2, seed=0, times=np.arange(10)).tolist()
        [0, 0, 0, 0, 0, 0, 1, 1, 2, 2]
    """
    share = share or RowShare.whole(len(labels))
    _check_shares(validation, test)
    if groups is not None and times is not None:
        raise DataError("--group and --time cannot be combined: give one of them")
    counts = {
        part: min(round(wanted * share.total), most_validation)
        for part, wanted in ((TEST, test), (VALIDATION, validation))
        if wanted > 0
    }
    if groups is not None:
        parts = _by_group(groups, counts, seed, most_validation, share.ranks)
    elif times is not None:
        parts = _by_time(times, counts, most_validation, share.ranks)
    else:
        parts = _by_row(labels, counts, seed, share)
    check_classes(labels, parts, [TRAIN, *counts], share.ranks)
    return parts


def _check_shares(validation: float, test: float) -> None:
    for name, share in (("validation", validation), ("test", test)):
        if not 0 <= share < 1:
            raise DataError(f"the share of {name} rows must be in [0, 1), got {share}")
    if validation + test >= 1:
        raise DataError(f"no rows are left to train: validation takes {validation} and test {test} of them")


def _by_row(labels: np.ndarray, counts: dict[int, int], seed: int, share: RowShare) -> np.ndarray:
    needed = len(counts) + 1
    if labels.ndim == 1:
        classes = labels
        most = max(share.ranks.gather(int(labels.max(initial=1))))
        sizes = share.ranks.sum(np.array([(labels == kind).sum() for kind in range(max(2, most + 1))]))
    else:  # several labels have no one class to keep the share of
        classes = np.zeros(len(labels), dtype=np.uint8)
        sizes = np.array([share.total])
    if labels.ndim == 1 and sizes.min() < needed:
        kind = int(sizes.argmin())
        what = ("negatives", "positives")[kind] if len(sizes) == 2 else f"rows of class number {kind + 1}"
        raise DataError(f"too few {what}: {needed} are needed, one for each part, and there are {sizes[kind]}")
    if sizes.sum() < needed:
        raise DataError(f"too few rows: {needed} are needed, one for each part, and there are {share.total}")
    taken, left = {}, sizes.copy()
    for number, (part, count) in enumerate(counts.items()):
        later = (len(counts) - number) * len(sizes)  # rows that later parts need, one of each class
        taken[part] = quotas(left, min(max(count, len(sizes)), int(left.sum()) - later))
        left = left - taken[part]
    parts, generator = np.zeros(len(labels), dtype=np.uint8), np.random.default_rng(seed)
    for kind, size in enumerate(sizes):
        amounts = [int(quota[kind]) for quota in taken.values()]
        chosen = generator.choice(int(size), sum(amounts), replace=False)
        order = np.argsort(chosen)
        _set_nth_of_kind(parts, classes == kind, chosen[order], np.repeat(list(taken), amounts)[order], share)
    return parts


def _set_nth_of_kind(
    parts: np.ndarray, of_kind: np.ndarray, numbers: np.ndarray, values: np.ndarray, share: RowShare
) -> None:
    """Set the parts of the n-th rows of a class, for rising n; some rows at a time, as all may be very many."""
    firsts, _ = share.starts(np.array([int(of_kind[run].sum()) for run in share.runs]))
    for run, before in zip(share.runs, firsts.tolist(), strict=True):
        for start in range(run.start, run.stop, CHUNK):
            own = np.flatnonzero(of_kind[start : min(start + CHUNK, run.stop)])
            here = slice(*np.searchsorted(numbers, (before, before + len(own))))
            parts[start + own[numbers[here] - before]] = values[here]
            before += len(own)


def _unique(values: np.ndarray, ranks: Ranks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different values of all ranks, which of them each row has, and how many rows have each."""
    own, index, sizes = np.unique(values, return_inverse=True, return_counts=True)
    if ranks.size == 1:
        return own, index, sizes
    every = ranks.gather((own, sizes))
    different = np.unique(np.concatenate([values for values, _ in every]))
    total = np.zeros(len(different), dtype=np.int64)
    for values, counted in every:
        total[np.searchsorted(different, values)] += counted
    return different, np.searchsorted(different, own)[index], total


def _by_group(groups: np.ndarray, counts: dict[int, int], seed: int, most: int, ranks: Ranks) -> np.ndarray:
    _, index, sizes = _unique(groups, ranks)
    part_of = np.zeros(len(sizes), dtype=np.uint8)
    left = np.random.default_rng(seed).permutation(len(sizes))
    for part, count in counts.items():
        held, rest = 0, []
        for group in left.tolist():
            if held + sizes[group] <= count:
                part_of[group] = part
                held += int(sizes[group])
            else:
                rest.append(group)
        left = np.array(rest, dtype=np.int64)
        # One more, where that brings the part nearer to its share.
        smallest = np.argmin(sizes[left]) if rest else None
        if smallest is not None and sizes[left[smallest]] < min(2 * (count - held), most - held + 1):
            part_of[left[smallest]] = part
            left = np.delete(left, smallest)
    return part_of[index]


def _by_time(times: np.ndarray, counts: dict[int, int], most: int, ranks: Ranks) -> np.ndarray:
    moments, index, sizes = _unique(times, ranks)
    part_of = np.zeros(len(moments), dtype=np.uint8)
    end = len(moments)
    for part, count in counts.items():
        held = np.append(np.cumsum(sizes[:end][::-1])[::-1], 0)  # rows of the part, were it to start at each moment
        start = int(np.argmin(np.where(held <= most, np.abs(held - count), np.inf)))
        part_of[start:end] = part
        end = start
    return part_of[index]


def check_classes(labels: np.ndarray, parts: np.ndarray, expected: list[int], ranks: Ranks = ALONE) -> None:
    """Each part needs both classes; of several labels, at least one of them must have both."""
    most = max(ranks.gather(int(labels.max(initial=0)))) if labels.ndim == 1 else 1
    for part in expected:
        rows = labels[parts == part]
        if most > 1:
            seen = set().union(*ranks.gather(np.unique(rows).tolist()))
            absent = set(range(most + 1)) - seen
            lacks = "" if not absent else f"rows of class number {min(absent) + 1}"
        else:
            rows = rows.reshape(len(rows), labels.shape[1] if labels.ndim == 2 else 1)
            positives, count = ranks.sum(rows.sum(axis=0, dtype=np.int64)), ranks.sum(len(rows))
            fine = ((positives > 0) & (positives < count)).any()
            lacks = "" if fine else "rows" if count == 0 else "positives" if positives.max() == 0 else "negatives"
        if lacks:
            advice = "give that part a larger share, or split in another way or with another seed"
            what = f"there are no {PARTS[part]} rows" if lacks == "rows" else f"the {PARTS[part]} rows have no {lacks}"
            raise DataError(f"{what}: {advice}")
