"""docs/results.md: every table and picture, from the CSV files in results/ alone.

    python -m benchmarks.results_page            # writes the page
    python -m benchmarks.results_page --check    # exit 1 where the page is not what the files say

Each script gives its own part (`section`); a script without finished cells is left out, which the page says.
"""

import argparse
import importlib
import sys

from benchmarks.cost import engine, estimator_cost
from benchmarks.paper import areas, cifar10_linear, figure_1
from benchmarks.rivals import report as rivals_report
from benchmarks.shared import page
from benchmarks.shared.cells import RESULTS, ROOT
from benchmarks.shared.scripts import SCRIPTS
from benchmarks.shared.spread import spread
from benchmarks.suite import suite
from benchmarks.suite.report import EITHER, OTHERS, error_of_these_sets, gains

PAGE = ROOT / "docs" / "results.md"


def results_page() -> str:
    """The whole page."""
    made = [name for name in SCRIPTS if (RESULTS / f"{name}.csv").is_file()]
    missing = [name for name in SCRIPTS if name not in made]
    parts = [
        "# Results",
        opening(),
        "This page is made by `python -m benchmarks.results_page` from the files in `benchmarks/results/` alone; `make "
        "benchmarks` makes some cells of every table again and holds them to these files. What a reader should know "
        "before trusting a difference is in [benchmarks/README.md](../benchmarks/README.md).",
        *(importlib.import_module(SCRIPTS[name]).section() for name in made),
    ]
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.")
    return "\n\n".join(parts) + "\n"


def opening() -> str:
    """Where training for the aim pays, where it does not, what it costs: three sentences."""
    return " ".join((where_it_pays(), where_it_does_not(), what_it_costs()))


def where_it_pays() -> str:
    cells = page.committed("figure_1")
    columns = ("precision_at_recall", "best_line")
    shares = {
        method: spread(
            a / b for a, b in zip(*(page.values(cells.find(method=method), one) for one in columns), strict=True)
        ).mean
        for method in figure_1.METHODS
    }
    theirs, ours = shares.values()
    images = page.committed("cifar10_linear")
    found = {name: cifar10_linear.tested(name, images) for name in ("aucpr", "bce", "cross-entropy")}
    recall = page.differences(found["aucpr"], found["bce"], "recall_at_p90")
    bce, softmax = (spread(page.values(found[name], "recall_at_p90")).mean for name in ("bce", "cross-entropy"))
    clear = sum(
        one.lead(rivals_report.CLASSIFIER) > one.critical
        for one in rivals_report.standings("linear", rivals_report.CLASSIFIER)
    )
    return (
        "**Training for the aim pays where the model cannot represent the best ranking**: on the data of the paper's "
        f"Figure 1 it reaches {ours:.0%} of the precision that the best line has at recall 0.95, log-loss "
        f"{theirs:.0%}; with a linear head on CIFAR-10 features, one class against the rest, it adds "
        f"{recall.mean:.3f} to the {bce:.3f} of recall at precision 0.9 that BCE has after as many steps "
        f"({int(found['bce'][0]['steps']):,}; softmax, which uses that classes "
        f"exclude one another, has {softmax:.3f}); on the public suite the five aims gain linear models "
        f"{told(over_sets())} over tuned log-loss, {told(over_sets(other=EITHER))} over the better of plain and "
        f"balanced log-loss, most of it on a few sets; and among methods for linear models `aimfor.Classifier`, which "
        f"tries more candidates than they, is first for {first_places('linear')} (beyond the critical difference of "
        f"mean ranks for {clear or 'none'}; log-loss with a grid of its own in its place: "
        f"{first_places('linear', rivals_report.LOG_LOSS)})."
    )


def where_it_does_not() -> str:
    winners = [
        pair.winner for pairs in gains(page.committed("suite"), list(suite.AIMS)).values() for pair in pairs.values()
    ]
    even, lost = winners.count("-"), winners.count("other")
    images = page.committed("cifar10_linear")
    pair = ("aucpr log-odds log", "cross-entropy")
    found, moved = [cifar10_linear.tested(name, images) for name in pair], images.find(method=" - ".join(pair))[0]
    trees = {model: " to ".join(f"{one:.2f}" for one in rivals_report.trees_lead(model)) for model in ("linear", "mlp")}
    ranges = [one.sign for one in areas.over_log_loss(page.committed("areas"))]
    return (
        f"**It does not where log-loss already ranks well**: against converged and tuned log-loss {even} of "
        f"{len(winners)} pairs of set and aim are even within a standard error and {lost} are lost; networks gain "
        f"{told(over_sets('mlp'))}, and among the rivals there log-loss with a large grid is first for "
        f"{first_places('mlp', rivals_report.LOG_LOSS)}, in the same place the estimator for {first_places('mlp')}; "
        "exclusive classes of CIFAR-10 gain "
        f"{page.differences(*found, 'recall_at_p90').mean:+.3f} of recall at precision 0.9 over softmax by "
        f"probabilities, where other test images alone move {float(moved['recall_at_p90']):.3f}; the bare loss, one "
        "recipe without a choice on held-out rows, is first among the rivals for "
        f"{first_places('linear', rivals_report.OURS)} with linear models; training on a range of a curve beats "
        f"log-loss there in {ranges.count(1)} of {len(ranges)} pairs of set and range and loses in {ranges.count(-1)}; "
        f"and boosted trees of log-loss are ahead of our linear models by {trees['linear']}, of our networks by "
        f"{trees['mlp']}."
    )


def what_it_costs() -> str:
    rows = {row[:6]: row.ratio for row in engine.finished()}

    def ratios(what: str, batch: int = 128, labels: int = 20_000) -> str:
        found = {f"{rows[what, 'native', one, batch, labels, engine.ANCHORS]:.1f}" for one in ("hinge", "log")}
        return " to ".join(sorted(found))

    small = page.committed("rivals").find(stage="cost", method=rivals_report.OURS)[0]
    fits = page.committed("estimator_cost").find(kind=estimator_cost.DEFAULT)
    theirs, ours = ([row for row in fits if row["method"] == one][1] for one in estimator_cost.DEFAULT_METHODS)
    return (
        f"**It costs** {ratios('time')} times log-loss for a batch of 128 rows and 20,000 labels (AVX2; "
        f"{ratios('widest vectors')} with AVX-512) and {ratios('whole step')} times for the whole step of a linear "
        f"layer there; {ratios('small 128 x 10', labels=10)} times for 10 labels and {float(small['time_ratio']):.1f} "
        f"times for the whole step of a small linear model, where calling is most of it; and a default fit of the "
        f"estimator, with its dozen and more candidates, {float(ours['seconds']):.1f} seconds on {ours['rows']} rows, "
        f"where the grid of logistic regressions takes {float(theirs['seconds']):.2f}."
    )


def first_places(model: str, method: str = rivals_report.CLASSIFIER) -> str:
    """For how many aims a way to use aimfor is first by mean rank among the rivals."""
    found = rivals_report.standings(model, method)
    first = [one for one in found if one.place(method) == 1]
    shared = sum(one.lead(method) <= rivals_report.ROUNDING for one in first)
    return f"{len(first)} of {len(found)} aims{f' ({shared} shared)' if shared else ''}"


def told(means: dict[str, page.Spread]) -> str:
    """From the least to the most, and how many of the means are clear of 0."""
    least, most = (pick(one.mean for one in means.values()) for pick in (min, max))
    clear = sum(one.mean > 2 * one.error for one in means.values())
    return f"{least:+.3f} to {most:+.3f} ({clear} of {len(means)} above two standard errors, over sets and of these)"


def over_sets(model: str = "linear", other: str = OTHERS[0]) -> dict[str, page.Spread]:
    """Per aim the gain of the estimator on the suite, mean and the larger of its two standard errors, over sets and of
    just these sets."""
    found = gains(page.committed("suite"), list(suite.AIMS), model, other)
    means = {aim: spread(pair.difference.mean for pair in pairs.values()) for aim, pairs in found.items()}
    return {aim: one._replace(error=max(one.error, error_of_these_sets(found[aim]))) for aim, one in means.items()}


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
