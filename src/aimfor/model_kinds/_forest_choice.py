"""Which forests of a search are averaged, and their training on all rows once that is settled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aimfor.boosting import Forest, retrain
from aimfor.model_kinds._forest_search import in_memory, most_rows, restored, state_of
from aimfor.model_kinds._kind import Task
from aimfor.training import JudgedRows, Observer, resuming

STAGE = "forests on all rows"
# The share of the forests that is averaged at most.
AVERAGED = 1 / 2
# Of these, forests whose log-loss is clearly behind the lowest are left out: by so many standard errors of the mean
# difference, and by this share of what the best explains. Where few settings suit a table, half of a search is weak.
# With many rows every difference is beyond the errors, and an average of forests about as good is better than one.
ERRORS, OF_EXPLAINED = 2.0, 0.02


def chosen_forests(judged: JudgedRows, scores: Sequence[np.ndarray]) -> list[int]:
    """The numbers of the forests to average, in order: the best half by the aim, but none whose log-loss is behind.

    Args:
        judged: rows that choose, with one label.
        scores: of each forest `[n]`, log-odds of these rows.
    """
    count = max(1, round(AVERAGED * len(scores)))
    if judged.blind:  # the label lacks a class: the rows say nothing, and any forests are as good as others
        return list(range(len(scores) - count, len(scores)))
    merits = [judged.judge(own[:, None]).merit for own in scores]
    best = sorted(np.argsort(merits, kind="stable")[::-1][:count].tolist())
    behind = _behind(judged.labels[:, 0], judged.weights, np.stack(scores))
    # At worst all of the best by the aim are behind in log-loss. Then the aim knows something that log-loss does not.
    return [place for place in best if not behind[place]] or best


def _behind(labels: np.ndarray, weights: np.ndarray | None, scores: np.ndarray) -> np.ndarray:
    """`[forests]`, whose log-loss is clearly higher than the lowest."""
    known = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
    part = known / known.sum()
    losses = np.logaddexp(0, np.where(labels == 1, -scores, scores))
    more = losses - losses[np.argmin(losses @ part)]
    means = more @ part
    errors = np.sqrt((more - means[:, None]) ** 2 @ part**2)
    share = part @ labels
    constant = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    explained = constant - (losses @ part).min()
    return (means > ERRORS * errors) & (means > OF_EXPLAINED * explained)


def trained_on_all(
    task: Task, observer: Observer, found: Sequence[Sequence[Forest]], places: Sequence[Sequence[int]]
) -> list[list[Forest]]:
    """The chosen forests of each label, trained again on all rows where the task has them.

    Rows that chose forests and rounds have nothing else to do then. Each forest takes as many rounds as before.

    Args:
        task: the problem with its rows.
        observer: follows training; a forest that it lets no time for stays as it is.
        found: for each label all forests of the search.
        places: for each label the numbers of those that are averaged.
    """
    chosen = [{place: own[place] for place in best} for own, best in zip(found, places, strict=True)]
    rows = task.everything
    # Of several processes one would train on its own rows while the others wait.
    if rows is not None and task.data.ranks.size == 1 and not _beyond_memory(task):
        state = observer.saved(STAGE)
        done = [{} for _ in chosen]
        if state is not None:
            with resuming(STAGE):
                done = restored(task, state)
        _train_again(task, observer, chosen, done)
        chosen = [{place: new.get(place, own[place]) for place in own} for own, new in zip(chosen, done, strict=True)]
    return [list(own.values()) for own in chosen]


def _beyond_memory(task: Task) -> bool:
    """Whether more rows would be left out than were already."""
    assert task.everything is not None
    most = most_rows(task, task.everything, task.memory)
    return most is not None and len(task.everything.rows) > most


def _train_again(
    task: Task, observer: Observer, chosen: Sequence[dict[int, Forest]], done: Sequence[dict[int, Forest]]
) -> None:
    """Add the forests that are not done yet."""
    assert task.everything is not None
    observer.on_stage_begin(STAGE)
    # A single leaf learned nothing, as a label without one of the classes gives it.
    wanted = [{place: one for place, one in own.items() if len(one.value) > 1} for own in chosen]
    total = sum(map(len, wanted))
    rows = in_memory(task, task.everything, task.memory, "train on")
    columns = task.problem.columns
    categories = () if columns is None else columns.categorical
    step = 0
    for label, (own, new) in enumerate(zip(wanted, done, strict=True)):
        missing = {place: one for place, one in own.items() if place not in new}
        step += len(own) - len(missing)
        if not missing or observer.should_stop():
            continue
        seed, deadline = task.seed + label, task.deadline
        for place, forest in retrain(
            rows.of_label(label), missing, categories=categories, seed=seed, deadline=deadline
        ):
            new[place] = forest
            step += 1
            observer.on_batch_end(STAGE, step, total)
            observer.save(STAGE, state_of(done, {}))
            if observer.should_stop():
                break
