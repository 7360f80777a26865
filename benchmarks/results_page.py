"""docs/results.md: every table and picture, from the CSV files in results/ alone.

    python -m benchmarks.results_page            # writes the page
    python -m benchmarks.results_page --check    # exit 1 where the page is not what the files say

The sections are in `sections.py` of each folder. A new section is one more entry of `SECTIONS`.
"""

import argparse
import sys

from benchmarks.cost import sections as cost
from benchmarks.decisions import sections as decisions
from benchmarks.paper import areas, figure_1
from benchmarks.paper import sections as paper
from benchmarks.rivals import report as rivals_report
from benchmarks.rivals import sections as rivals
from benchmarks.shared import page
from benchmarks.shared.cells import ROOT
from benchmarks.suite import sections as suite
from benchmarks.suite.suite import AIMS

PAGE = ROOT / "docs" / "results.md"
SECTIONS = (
    suite.linear_section,
    suite.network_section,
    suite.extremes_section,
    suite.labels_section,
    suite.held_section,
    decisions.confidence_section,
    rivals.section,
    rivals.budget_section,
    rivals.trees_section,
    rivals.cost_section,
    suite.recipe_section,
    paper.figure_1_section,
    paper.cifar10_linear_section,
    paper.cifar10_table_section,
    paper.many_labels_section,
    paper.areas_section,
    paper.accuracy_section,
    paper.anchors_section,
    paper.convergence_section,
    paper.robustness_section,
    cost.loss_section,
    cost.fit_section,
    cost.program_section,
)


def results_page() -> str:
    """The whole page."""
    parts = [
        "# Results",
        opening(),
        "`python -m benchmarks.results_page` makes this page from the files in `benchmarks/results/` alone. `make "
        "benchmarks` reproduces some numbers of every table and compares them. Our defaults were set while we looked "
        "at other splits of some of these tables. Read [benchmarks/README.md](../benchmarks/README.md) before you "
        "trust a difference.",
        *(section() for section in SECTIONS),
    ]
    return "\n\n".join(parts) + "\n"


def opening() -> str:
    """Where training for the aim pays, where it does not, what it costs: one figure each."""
    gain, _ = figure_1.gains(page.committed(figure_1.NAME))
    linear = {aim: suite.mean_gain("linear", "log-loss", aim).mean for aim in AIMS}
    best = max(linear, key=lambda aim: linear[aim])
    network = max(suite.mean_gain("mlp", "log-loss", aim).mean for aim in AIMS)
    noise = "" if suite.clear("mlp", "log-loss") else ", which is noise"
    head, _ = paper.head_gain("aucpr", "bce")
    ranges = [one.sign for one in areas.over_log_loss(page.committed(areas.NAME))]
    broken = 100 * decisions.largest_share("aimfor")
    slowest = cost.ratio("time").split()[-1]
    bullets = (
        f"On the data of the paper's Figure 1, precision at recall 0.95 rises by {gain.mean:.3f}.",
        f"Linear models on 24 tables gain most at `{best}`: {page.gained(linear[best])} over tuned log-loss.",
        f"Networks on 22 tables gain at most {page.gained(network)} over log-loss in the mean{noise}.",
        f"A linear head on CIFAR-10 features gains {head:.3f} of recall at precision 0.9.",
        f"LightGBM with log-loss is ahead of our networks by at least {rivals_report.trees_lead('mlp')[0]:.2f} at "
        "every aim.",
        f"Training on a range of a curve is clearly worse than log-loss in {ranges.count(-1)} of {len(ranges)} cases.",
        f"A threshold with confidence 0.95 breaks its constraint in at most {broken:.0f} % of the draws.",
        f"With 128 rows and 20,000 labels, the loss takes at most {slowest} times as long as log-loss.",
    )
    return "\n".join(f"- {bullet}" for bullet in bullets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 where the page is not what the files say")
    text = results_page()
    if not parser.parse_args().check:
        PAGE.write_text(text)
    elif not PAGE.is_file() or PAGE.read_text() != text:
        sys.exit("docs/results.md is not what benchmarks/results says: run python -m benchmarks.results_page")


if __name__ == "__main__":
    main()
