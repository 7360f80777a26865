"""The tables of the public suite: differences with their spread, tests, and how often constraints hold.

A difference is taken within a split, which shares all rows between methods. Per set: its mean and standard error over
splits; it counts as won or lost when that mean is more than one standard error from 0. Overall: the mean over sets of
their means, with the standard error over sets, so that no set counts twice.

The test per set is the corrected resampled t-test (Nadeau and Bengio, 2003): training rows of random splits overlap,
and the plain variance of the mean, s^2 / k, is too small; it becomes (1 / k + n_test / n_train) s^2. It is one-sided,
for a loss of aimfor, and Holm's correction runs over the sets of one aim and model. With five splits it has four
degrees of freedom: among 24 sets a loss must be six of its corrected standard errors to be significant, so that silence
is weak evidence. The losses with p < 0.05 before correction, one in twenty by chance alone, are counted beside it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from benchmarks.shared import page
from benchmarks.shared.cells import Cells
from benchmarks.shared.page import print_table
from benchmarks.shared.spread import Spread, spread

# The last has the settings of the two before it and is chosen as the estimator chooses.
EITHER = "either"
OURS, OTHERS = "aimfor", ("log-loss", "balanced", EITHER)
TEST_TO_TRAIN = 0.3 / 0.7
LEVEL = 0.05
ROUNDING = 1e-9

Values = dict[tuple[str, str], float]
"""(set, split) -> number."""


class Paired(NamedTuple):
    """Differences of one set over its splits: their spread, and p-values of a loss, before and after Holm."""

    difference: Spread
    p: float
    p_holm: float

    @property
    def winner(self) -> str:
        """Who is ahead by more than a standard error: aimfor, the other, or neither."""
        # A difference in one split alone is its own standard error, to rounding.
        if math.isnan(self.difference.error) or abs(self.difference.mean) <= self.difference.error + ROUNDING:
            return "-"
        return OURS if self.difference.mean > 0 else "other"


def report(cells: Cells, aims: Sequence[str]) -> None:
    """All tables that the finished cells allow."""
    for model in ("linear", "mlp"):
        for kind, chosen in (("one label", _is_single), ("several labels, macro", _is_multiple)):
            rows = [row for row in cells.rows if row["model"] == model and chosen(row)]
            if rows:
                _tables(f"{model}, {kind}", rows, aims)


def draw(name: str, cells: Cells, aims: Sequence[str], single: bool = True) -> None:
    """Every set, ours minus log-loss, and the mean over sets; sets of one label, or of several."""
    panels = {}
    for aim in aims:
        panels[aim] = {}
        for model in ("linear", "mlp"):
            pairs = gains(cells, [aim], model, single=single)[aim]
            own = {one: pair.difference for one, pair in pairs.items()}
            panels[aim][model] = {**own, "mean over sets": spread(one.mean for one in own.values())}
    page.draw_differences(name, "aimfor.Classifier minus tuned log-loss of the same model, test rows", panels)


def gains(
    cells: Cells, aims: Sequence[str], model: str = "linear", other: str = OTHERS[0], single: bool = True
) -> dict[str, dict[str, Paired]]:
    """Per aim and set, ours against log-loss; sets of one label, or of several."""
    rows = [row for row in cells.rows if row["model"] == model and _is_single(row) == single]
    return {aim: paired(_values(rows, aim, OURS), _values(rows, aim, other)) for aim in aims}


def _tables(title: str, rows: list[dict[str, str]], aims: Sequence[str]) -> None:
    used = [aim for aim in aims if any(row["aim"] == aim for row in rows)]
    others = [other for other in OTHERS if any(row["method"] == other for row in rows)]
    for aim in used:
        _per_set(f"{title}: {aim}, exact metric on test rows, +- standard error over splits", rows, aim, others)
    if any(row["method"] == OURS for row in rows):
        for other in others:
            _overall(f"{title}: aimfor - {other}, mean over sets +- standard error over sets", rows, used, other)
    _decisions(f"{title}: at the threshold chosen on validation rows", rows, used)
    unfinished = [row for row in rows if row["converged"] != "True"]
    if unfinished:
        print(f"\nnot converged: {len(unfinished)} of {len(rows)} cells, for example {_where(unfinished[0])}")


def _per_set(title: str, rows: list[dict[str, str]], aim: str, others: Sequence[str]) -> None:
    methods = {method: _values(rows, aim, method) for method in (*others, OURS)}
    pairs = {other: paired(methods[OURS], methods[other]) for other in others}
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        columns = [_by_set(values).get(name, []) for values in methods.values()]
        line = [name, str(max(map(len, columns))), *(f"{np.mean(column):.4f}" if column else "" for column in columns)]
        for other in others:
            pair = pairs[other].get(name)
            line += [_shown(pair.difference), f"{pair.p_holm:.3f}" + _mark(pair, other)] if pair else ["", ""]
        lines.append(line)
    last = ["over sets", *[""] * (1 + len(methods))]
    for other in others:
        means = [pair.difference.mean for pair in pairs[other].values()]
        last += [_shown(spread(means)) if means else "", ""]
    header = ["set", "splits", *methods]
    for other in others:
        header += [f"aimfor - {other}", "p of a loss (Holm)"]
    print_table(title, header, [*lines, last])


def _overall(title: str, rows: list[dict[str, str]], aims: Sequence[str], other: str) -> None:
    lines = []
    for aim in aims:
        pairs = paired(_values(rows, aim, OURS), _values(rows, aim, other))
        if not pairs:
            continue
        total = spread(pair.difference.mean for pair in pairs.values())
        winners = [pair.winner for pair in pairs.values()]
        lost = [name for name, pair in pairs.items() if pair.p_holm < LEVEL]
        lines.append(
            [
                aim,
                str(len(pairs)),
                _shown(total),
                f"{total.mean / total.error:+.1f}" if total.error > 0 else "",
                f"{total.mean / within:+.1f}" if (within := error_of_these_sets(pairs)) > 0 else "",
                OURS if total.mean > 2 * total.error else other if total.mean < -total.error else "neither",
                "/".join(str(winners.count(winner)) for winner in (OURS, "-", "other")),
                min(pairs, key=lambda name: pairs[name].difference.mean),
                _shown(min((pair.difference for pair in pairs.values()), key=lambda value: value.mean)),
                str(sum(pair.p < LEVEL for pair in pairs.values())),
                ", ".join(lost) or "none",
            ]
        )
    header = [
        "aim",
        "sets",
        "difference",
        "in standard errors",
        "in those of the splits",
        "ahead (> 2; < -1)",
        "won/even/lost",
        "worst set",
    ]
    header += ["its difference", "losses with p < 0.05", "significant losses (Holm)"]
    print_table(title, header, lines)


def error_of_these_sets(pairs: dict[str, Paired]) -> float:
    """Standard error of the mean over just these sets, from their splits, which share rows and count the less for it.

    The error over sets asks what another collection of sets would give; the sets differ much more than the splits.
    """
    known = [pair.difference for pair in pairs.values() if not math.isnan(pair.difference.error)]
    variances = [one.error**2 + TEST_TO_TRAIN * one.deviation**2 for one in known]
    return math.sqrt(sum(variances)) / len(known) if known else math.nan


def _decisions(title: str, rows: list[dict[str, str]], aims: Sequence[str]) -> None:
    """Share of (set, split) whose constraint holds on the test rows, and the mean objective there."""
    lines = []
    methods = [method for method in (*OTHERS, OURS) if any(row["method"] == method for row in rows)]
    for aim in aims:
        # Only where every method has a finished cell, or the shares would be of different sets.
        kept = [{(row["set"], row["split"]): row for row in _cells(rows, aim, method)} for method in methods]
        common = set.intersection(*map(set, kept))
        line = [aim, str(len(common))]
        for by_place in kept:
            found = [by_place[place] for place in common]
            line.append(f"{np.mean([float(row['objective']) for row in found]):.4f}" if found else "")
            holds = [row["holds"] for row in found if row["holds"]]
            none = holds.count("no threshold")
            line.append(
                f"{holds.count('True') / len(holds):.0%}" + (f" ({none} none)" if none else "") if holds else ""
            )
        lines.append(line)
    header = ["aim", "set x split", *(text for one in methods for text in (f"{one}: objective", "constraint holds"))]
    print_table(f"{title} (none: no threshold met the constraint there, counted as not held)", header, lines)


def paired(ours: Values, others: Values) -> dict[str, Paired]:
    """Per set, over the splits that both have."""
    by_set = _by_set({place: ours[place] - others[place] for place in ours if place in others})
    p_values = {name: loss_p_value(differences) for name, differences in by_set.items()}
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return {name: Paired(spread(by_set[name]), p_values[name], adjusted[name]) for name in by_set}


def loss_p_value(differences: Sequence[float]) -> float:
    """One-sided p-value of the corrected resampled t-test for a mean below 0."""
    values = np.asarray(differences)
    if len(values) < 2:
        return math.nan
    error = math.sqrt((1 / len(values) + TEST_TO_TRAIN) * values.var(ddof=1))
    if error == 0:  # the same difference in every split
        return 0.0 if values[0] < 0 else 1.0
    return float(stats.t.cdf(values.mean() / error, len(values) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment; nan stays nan and does not count."""
    adjusted = [math.nan] * len(p_values)
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    running = 0.0
    for rank, (p, place) in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p))
        adjusted[place] = running
    return adjusted


def _cells(rows: list[dict[str, str]], aim: str, method: str) -> list[dict[str, str]]:
    return [row for row in rows if row["aim"] == aim and row["method"] == method]


def _values(rows: list[dict[str, str]], aim: str, method: str) -> Values:
    return {(row["set"], row["split"]): float(row["test"]) for row in _cells(rows, aim, method)}


def _by_set(values: Values) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for (name, _), value in values.items():
        found.setdefault(name, []).append(value)
    return found


def _mark(pair: Paired, other: str) -> str:
    if pair.p_holm < LEVEL:
        return f" SIGNIFICANT, {other} wins"
    return f" {other} ahead" if pair.winner == "other" else ""


def _shown(value: Spread) -> str:
    return f"{value.mean:+.4f} +- {value.error:.4f}"


def _where(row: dict[str, str]) -> str:
    return ", ".join(row[name] for name in ("set", "split", "model", "method", "aim", "chosen"))


def _is_single(row: dict[str, str]) -> bool:
    return row["labels"] == "1"


def _is_multiple(row: dict[str, str]) -> bool:
    return row["labels"] != "1"
