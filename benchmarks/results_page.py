"""docs/results/: every table and picture, from the CSV files in results/ alone.

    python -m benchmarks.results_page            # writes the pages
    python -m benchmarks.results_page --check    # exit 1 where a page is not what the files say

The sections are in `sections.py` of each folder. A new page is one more entry of `PAGES`.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from benchmarks.cost import sections as cost
from benchmarks.decisions import sections as decisions
from benchmarks.long_tail import sections as long_tail
from benchmarks.paper import areas, figure_1
from benchmarks.paper import sections as paper
from benchmarks.rivals import report as rivals_report
from benchmarks.rivals import sections as rivals
from benchmarks.shared import page
from benchmarks.shared.cells import ROOT
from benchmarks.suite import sections as suite
from benchmarks.suite.suite import AIMS
from benchmarks.trees import default_sections as default
from benchmarks.trees import sections as trees

FOLDER = ROOT / "docs" / "results"
# One page for each question. The first section of a page gives its title.
PAGES = {
    "linear_models": (suite.linear_section, suite.extremes_section),
    "networks": (suite.network_section,),
    "several_labels": (suite.labels_section,),
    "many_labels": (paper.many_labels_section,),
    "rare_labels": (long_tail.section,),
    "promises": (suite.held_section, decisions.confidence_section),
    "rivals": (rivals.section, rivals.budget_section, rivals.cost_section),
    "default": (default.default_section, default.share_section, default.automl_section, default.cost_section),
    "trees": (rivals.trees_section, trees.averages_section, trees.categories_section, trees.small_forests_section),
    "one_recipe": (suite.recipe_section,),
    "figure_1": (paper.figure_1_section,),
    "image_features": (paper.cifar10_linear_section,),
    "cifar10": (paper.cifar10_table_section,),
    "ranges": (paper.areas_section,),
    "accuracy": (paper.accuracy_section,),
    "anchors": (paper.anchors_section,),
    "convergence": (paper.convergence_section,),
    "settings": (paper.robustness_section,),
    "cost": (cost.loss_section, cost.fit_section, cost.program_section),
}


def results_pages() -> dict[str, str]:
    """The text of every page by the name of its file."""
    pages = {f"{name}.md": question_page(sections) for name, sections in PAGES.items()}
    return {"index.md": index_page(pages), **pages}


def question_page(sections: Sequence[Callable[[], str]]) -> str:
    """The sections of one page, the heading of the first as its title."""
    return "\n\n".join(section() for section in sections).removeprefix("#") + "\n"


def index_page(pages: dict[str, str]) -> str:
    """One figure each, then every question with its page."""
    questions = [f"- [{text.split(chr(10), 1)[0].removeprefix('# ')}]({name})" for name, text in pages.items()]
    parts = [
        "# Results",
        opening(),
        "Each question has a page with its tables and pictures:",
        "\n".join(questions),
        "`python -m benchmarks.results_page` makes these pages from the files in `benchmarks/results/` alone. `make "
        "benchmarks` reproduces some numbers of every table and compares them. Most defaults were chosen on other "
        "splits of these tables, and some followed a look at reported rows. Read "
        "[benchmarks/README.md](../../benchmarks/README.md) before you trust a difference.",
        "\n".join(["```{toctree}", ":hidden:", "", *(name.removesuffix(".md") for name in pages), "```"]),
    ]
    return "\n\n".join(parts) + "\n"


def opening() -> str:
    """Where training for the aim pays, where it does not, what it costs: one figure each."""
    gain = figure_1.gain(page.committed(figure_1.NAME))
    linear = {aim: suite.mean_gain("linear", "log-loss", aim).mean for aim in AIMS}
    best = max(linear, key=lambda aim: linear[aim])
    network = max(suite.mean_gain("mlp", "log-loss", aim).mean for aim in AIMS)
    noise = "" if suite.clear("mlp", "log-loss") else ", which is noise"
    head, _ = paper.head_gain("aucpr", "bce")
    ranges = [one.sign for one in areas.over_log_loss(page.committed(areas.NAME))]
    broken = 100 * decisions.largest_share("aimfor")
    least, most = rivals_report.trees_lead("mlp")
    slowest = cost.ratio("time").split()[-1]
    bullets = (
        f"On the data of the paper's Figure 1, precision at recall 0.95 rises by {gain.mean:.3f}.",
        f"Linear models on 24 tables gain most at `{best}`: {page.gained(linear[best])} over tuned log-loss.",
        f"Networks on 22 tables gain at most {page.gained(network)} over log-loss in the mean{noise}.",
        f"A linear head on CIFAR-10 features gains {head:.3f} of recall at precision 0.9 by the bounding form.",
        f"LightGBM with log-loss is ahead of networks with `aimfor.Loss` by {least:.3f} to {most:.3f}.",
        f"Training on a range of a curve is clearly worse than log-loss in {ranges.count(-1)} of {len(ranges)} cases.",
        f"A threshold with confidence 0.95 breaks its constraint in at most {broken:.0f} % of the draws.",
        f"With 128 rows and 20,000 labels and AVX2, the loss takes at most {slowest} times as long as log-loss.",
    )
    return "\n".join(f"- {bullet}" for bullet in bullets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 where a page is not what the files say")
    pages, check = results_pages(), parser.parse_args().check
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    if check and found != pages:
        wrong = sorted(name for name in {*found, *pages} if found.get(name) != pages.get(name))
        sys.exit(f"docs/results is not what the files say in {', '.join(wrong)}: run python -m benchmarks.results_page")
    if not check:
        FOLDER.mkdir(exist_ok=True)
        for name in {*found} - {*pages}:
            (FOLDER / name).unlink()
        for name, text in pages.items():
            (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
