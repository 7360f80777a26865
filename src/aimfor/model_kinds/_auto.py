"""The default: trees, a linear model and a network compete on the same held-out rows, alone and averaged."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from aimfor._base import checks
from aimfor._base.checks import rule
from aimfor._base.json import check_entries
from aimfor.model_kinds._average import Average, Member
from aimfor.model_kinds._forest_search import MOST_FORESTS
from aimfor.model_kinds._kind import Fit, Model, ModelKind, Task, check_tensors
from aimfor.model_kinds._networks import LINEAR, MLP
from aimfor.model_kinds._observers import KindObserver
from aimfor.model_kinds._trees import TREES, ForestRecipe, trees_available, warn_of_missing_trees
from aimfor.training import NOISE, Candidate, Contest, JudgedRows, Observer, paired_difference

# The kinds that compete, the strongest first, and the share of the time that is over when each must be done. All train
# by log-loss. Aims gain nothing in networks on tables (docs/results/networks.md). The linear model is trained for the
# aim too, in the rest of the time, unless its log-loss is already out of the race.
COMPETITORS: tuple[tuple[ModelKind, float], ...] = (
    (TREES, 0.6),
    (replace(LINEAR, aimed=False), 0.65),
    (replace(MLP, aimed=False), 0.9),
)
# The winners of these kinds are averaged. Forests count for more: they are the strongest and already many.
SHARES = {"trees": 3.0, "mlp": 1.0}
# The average is kept unless a single kind beats it by this many standard deviations of the mean difference. The best of
# several looks better than it is on the rows that choose it, and the average is rarely far behind. A kind that is as
# far behind is out of the race.
EVIDENCE = 2.0
# Of sparse rows with more features than this only the linear model learns in reasonable time.
MOST_SPARSE_FEATURES = 5000
# Each label needs forests of its own.
MOST_TREE_LABELS = MOST_FORESTS // 2
DESCRIPTION: dict[str, Any] = {
    "model": str,
    "num_features": int,
    "num_labels": int,
    "multiclass": bool,
    "members": list,
}


class AutoKind(ModelKind):
    """The best single kind, or an average across kinds where held-out rows support it."""

    name = "auto"
    takes_missing = True
    threshold_apart = True

    def fit(self, task: Task, observer: Observer) -> Fit:
        fits = _fits(task, observer)
        multiclass = task.problem.multiclass
        judged = JudgedRows.of(task.aim, task.validation, task.problem.num_outputs if multiclass else None)
        average = _average(fits, judged, multiclass)
        options = [*([] if average is None else [average[0]]), *(fit.contest.winner for fit in fits.values())]
        if not _ended(task, observer) and _races(fits, options, judged, task):
            fits[LINEAR.name] = LINEAR.fit(task, KindObserver(observer, f"{LINEAR.name} "))
            options = [fits[LINEAR.name].contest.winner if one.kind == LINEAR.name else one for one in options]
        candidates = [candidate for fit in fits.values() for candidate in fit.contest.candidates]
        candidates += [] if average is None else [average[0]]
        chosen = _choose(options, judged, NOISE if average is None else EVIDENCE, task)
        place = next(index for index, one in enumerate(candidates) if one is chosen)

        def model_of(candidate: Candidate) -> Model:
            if average is not None and candidate is average[0]:
                return average[1]
            return Average.alone(fits[candidate.kind].model_of(candidate), multiclass)

        return Fit(Contest(candidates, place), model_of)

    def tensor_bytes(self, description: Mapping[str, Any]) -> int:
        check_entries("architecture", description, DESCRIPTION)
        members = description["members"]
        rule(0 < len(members) <= len(COMPETITORS), "members", f"must be 1 to {len(COMPETITORS)}", len(members))
        total = 8 * len(members) * (1 + 2 * description["num_labels"])
        for member in members:
            total += _kind_of_member(member, description).tensor_bytes(member)
        return total

    def from_tensors(self, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Average:
        self.tensor_bytes(description)
        members = description["members"]
        shape = (len(members), description["num_labels"])
        shapes = {"average.shares": shape[:1], "average.centres": shape, "average.scales": shape}
        check_tensors({name: tensors[name] for name in tensors if name.startswith("average.")}, shapes)
        shares, centres, scales = (tensors[name].numpy() for name in shapes)
        right = bool((shares > 0).all() and (scales > 0).all())
        rule(right, "tensors average.shares and average.scales", "must be above 0", "a number that is not")
        found = []
        for place, member in enumerate(members):
            prefix = f"members.{place}."
            own = {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
            model = _kind_of_member(member, description).from_tensors(member, own)
            found.append(Member(model, float(shares[place]), centres[place], scales[place]))
        known = len(shapes) + sum(len(member.model.to_tensors()) for member in found)
        rule(len(tensors) == known, "the tensors", "must be those of the members", f"{len(tensors)} in all")
        return Average(found, description["multiclass"])


def _kind_of_member(member: Any, description: Mapping[str, Any]) -> ModelKind:
    rule(isinstance(member, dict), "members", "must hold JSON objects", repr(member)[:50])
    kinds = {kind.name: kind for kind, _ in COMPETITORS}
    checks.choice("a member's model", member.get("model"), tuple(kinds))
    for name in ("num_features", "num_labels", "multiclass"):
        same = member.get(name) == description[name]
        rule(same, f"{name} of a member", "must be that of the model", repr(member.get(name))[:50])
    return kinds[member["model"]]


def _fits(task: Task, observer: Observer) -> dict[str, Fit]:
    """The contest of each kind that can compete, by its name; at least one."""
    started = time.monotonic()
    fits: dict[str, Fit] = {}
    for kind, share in _competitors(task):
        if fits and _ended(task, observer):
            break
        deadline = None if task.deadline is None else started + share * (task.deadline - started)
        own = task._replace(deadline=deadline)
        fits[kind.name] = kind.fit(own, KindObserver(observer, f"{kind.name} "))
    return fits


def _ended(task: Task, observer: Observer) -> bool:
    late = task.deadline is not None and time.monotonic() > task.deadline
    return task.data.ranks.any(late or observer.should_stop())


def _competitors(task: Task) -> list[tuple[ModelKind, float]]:
    rows = task.data.rows
    if hasattr(rows.features, "indptr") and rows.num_features > MOST_SPARSE_FEATURES:
        return [(kind, share) for kind, share in COMPETITORS if kind.name == LINEAR.name]
    chosen = list(COMPETITORS)
    if not trees_available():
        warn_of_missing_trees()
    if not trees_available() or task.problem.num_outputs > MOST_TREE_LABELS:
        chosen = [(kind, share) for kind, share in chosen if kind is not TREES]
    return chosen


def _average(fits: Mapping[str, Fit], judged: JudgedRows, multiclass: bool) -> tuple[Candidate, Average] | None:
    """The average across kinds, as a candidate and as a model; None where one of them was not trained."""
    if not SHARES.keys() <= fits.keys():
        return None
    scores = [fits[name].contest.winner.scores for name in SHARES]
    models = [fits[name].model for name in SHARES]
    average = Average.of(models, [*SHARES.values()], scores, judged.weights, multiclass)
    combined = average.combine(scores)
    recipe: Any = ForestRecipe(f"average of {', '.join(SHARES)}", averaged=True)
    return Candidate(recipe, *judged.judge(combined), combined, {}, 0, {}, AutoKind.name), average


def _races(fits: Mapping[str, Fit], options: Sequence[Candidate], judged: JudgedRows, task: Task) -> bool:
    """Whether a linear model might still win if it were trained for the aim."""
    if LINEAR.name not in fits:
        return False
    own, best = fits[LINEAR.name].contest.winner, max(options, key=lambda one: one.merit)
    if own is best or judged.blind:
        return own is best
    mean, deviation = _difference(best, own, judged, task)
    return mean <= EVIDENCE * deviation


def _choose(options: Sequence[Candidate], judged: JudgedRows, evidence: float, task: Task) -> Candidate:
    """The first, unless another beats it by so many standard deviations of the mean difference on these rows."""
    first, best = options[0], max(options, key=lambda one: one.merit)
    if best is first or judged.blind:
        return first
    mean, deviation = _difference(best, first, judged, task)
    return best if mean > evidence * deviation else first


def _difference(one: Candidate, other: Candidate, judged: JudgedRows, task: Task) -> tuple[float, float]:
    """Mean and standard deviation of the merit of `one` minus that of `other`; ranks share the resamples."""
    return paired_difference(one, other, judged.aim, judged.labels, judged.weights, task.seed, task.data.ranks)


AUTO = AutoKind()
