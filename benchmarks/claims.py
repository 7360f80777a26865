"""README.md and pages of docs/ say what the CSV files in results/ say: `python -m benchmarks.claims`.

Every table with numbers must be part of a table in docs/results/, which is made from these files. Sentences with
numbers are written here as templates, and the pages must contain them.
"""

import re
import sys
from collections.abc import Iterator
from statistics import fmean

from benchmarks.cost import sections as cost
from benchmarks.decisions import sections as decisions
from benchmarks.paper import figure_1
from benchmarks.paper import sections as paper
from benchmarks.paper.cifar10_linear import LONG
from benchmarks.rivals import report as rivals_report
from benchmarks.rivals import sections as rivals
from benchmarks.rivals.methods import OURS
from benchmarks.shared import page
from benchmarks.shared.cells import ROOT
from benchmarks.suite import sections as suite
from benchmarks.suite.report import EITHER
from benchmarks.suite.suite import AIMS
from benchmarks.trees import costs, default_sections
from benchmarks.trees import sections as trees

RESULTS = ROOT / "docs" / "results"
NUMBER = re.compile(r"[+-]?\d[\d.,]*(?: %)?(?:(?: to | ± )[\d.]+)?")

Table = list[list[str]]
"""Rows of cells, the header first."""


def readme_claims() -> list[str]:
    linear, network = (rivals_report.trees_lead(model) for model in ("linear", "mlp"))
    cells = page.committed(figure_1.NAME)
    theirs, ours = (
        fmean(page.values(cells.find(method=one), "precision_at_recall")) for one in (figure_1.BASELINE, figure_1.OURS)
    )
    best = fmean(page.values(cells.find(method=figure_1.BASELINE), "best_line"))
    over_log_loss, over_either = (suite.clear("linear", other) for other in ("log-loss", EITHER))
    return [
        rivals.over_log_loss("linear"),
        rivals.over_log_loss("mlp"),
        f"over log-loss the one at {_listed(over_log_loss)}, and over the better of plain and balanced log-loss the "
        f"one at {_listed(over_either)}.",
        f"is ahead of our loss by {linear[0]:.2f} to {linear[1]:.2f} with linear models and by {network[0]:.2f} to "
        f"{network[1]:.2f} with networks.",
        default_sections.readme_claim(),
        default_sections.readme_automl_claim(),
        f"precision at recall {figure_1.TARGET:g} rises from {theirs:.3f} to {ours:.3f}. The best line has {best:.3f}.",
    ]


def why_claims() -> list[str]:
    (rest, rest_noise), (exclusive, exclusive_noise) = paper.head_gain("aucpr", "bce"), paper.head_gain(*LONG[::-1])
    over_log_loss, over_either = (suite.clear("linear", other) for other in ("log-loss", EITHER))
    places = [str(rivals.ranks("mlp")[aim].place(OURS)) for aim in AIMS]
    above, cases = decisions.broken("aimfor")
    ours, theirs = cost.linear_fit()
    default, search = costs.default_fit()
    pairs = []
    for model in ("linear", "mlp"):
        better, equal, worse, _ = suite.counts(model)
        pairs.append(
            f"is better than log-loss in {better} of {better + equal + worse} pairs of table and aim, equal in {equal} "
            f"and worse in {worse}."
        )
    return [
        *pairs,
        f"The first gain in recall, {rest:.3f}, is clear: another draw of the test images moves it by "
        f"{rest_noise:.3f}. The second, {exclusive:.3f}, is not, as another draw moves it by {exclusive_noise:.3f}.",
        f"In the first row only {_listed(over_log_loss)} is clear, in the last row only {_listed(over_either)}.",
        f"For networks, `aimfor.Loss` takes the places {', '.join(places[:-1])} and {places[-1]}.",
        f"The {decisions.largest_share('aimfor'):.3f} is within simulation noise: {above or 'none'} of our {cases} "
        "cases exceeds 0.05 by two simulation errors.",
        f"On 20,000 rows of 20 features it takes {default} seconds of one core, where the LightGBM search of as many "
        f"forests takes {search}.",
        f'With `model="linear"` it takes {ours}, where a grid of seven logistic regressions takes {theirs}.',
    ]


def estimator_claims() -> list[str]:
    return [f"On {trees.num_tables()} public tables with five splits each, the average is"]


def _listed(aims: list[str]) -> str:
    return ", ".join(page.code(aims)) or "none"


def faults(name: str, text: str, claims: list[str]) -> Iterator[str]:
    """What a page says that the files do not say, one line each."""
    plain = " ".join(text.split())
    for claim in claims:
        if claim not in plain:
            yield f"{name} lacks: {claim}"
    made = [table for path in sorted(RESULTS.glob("*.md")) for table in tables(path.read_text(encoding="utf-8"))]
    for header, *rows in tables(text):
        known = [row for table in made if table[0] == header for row in table[1:]]
        if any(NUMBER.fullmatch(cell) for row in rows for cell in row):
            yield from (f"{name}, not in docs/results: {' | '.join(row)}" for row in rows if row not in known)


def tables(text: str) -> Iterator[Table]:
    """The tables of a Markdown page."""
    found: Table = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                found.append(cells)
        elif found:
            yield found
            found = []


def all_faults() -> list[str]:
    pages = {
        "README.md": readme_claims(),
        "docs/why.md": why_claims(),
        "docs/estimators.md": estimator_claims(),
        "docs/boosting.md": [],
    }
    return [
        fault
        for name, claims in pages.items()
        for fault in faults(name, (ROOT / name).read_text(encoding="utf-8"), claims)
    ]


if __name__ == "__main__":
    print("\n".join(all_faults()))
    sys.exit(bool(all_faults()))
