"""The sections of docs/results/ on the paper's figure and tables, from their CSV files alone."""

from statistics import fmean

from benchmarks.paper import (
    accuracy_trade,
    anchors,
    areas,
    cifar10_linear,
    convergence,
    figure_1,
    many_labels,
    robustness,
)
from benchmarks.paper import cifar10_report as table
from benchmarks.paper import side_by_side as paper
from benchmarks.shared import forms, page
from benchmarks.shared.spread import spread


def mean(rows: list[dict[str, str]], column: str) -> float:
    return fmean(page.values(rows, column))


def figure_1_section() -> str:
    cells = page.committed(figure_1.NAME)
    share = figure_1.share(cells)
    alone, bound = (100 * figure_1.share(cells, one).mean for one in (figure_1.ALONE, figure_1.BOUND))
    rows = [
        [name, *(f"{mean(cells.find(method=name), column):.3f}" for column in ("precision_at_recall", "accuracy"))]
        for name in figure_1.METHODS
    ]
    rows.append(["best line", f"{mean(cells.find(method='log-loss'), 'best_line'):.3f}", ""])
    return "\n\n".join(
        [
            "## Does it find the best line of Figure 1?",
            f"It reaches {100 * share.mean:.1f} % of the precision of the best line. Without log-loss beside the aim "
            f"it is {alone:.1f} %, and in the bounding form {bound:.1f} %. The numbers are means over {share.count} "
            "draws of held-out points.",
            "![Points of two classes, the line of log-loss and the line of precision at recall 0.95](../figure_1.png)",
            page.grid(["line", f"precision at recall {figure_1.TARGET:g}", "best accuracy"], rows),
            page.fold("Spread over draws", figure_1.table(cells).markdown()),
            page.source(figure_1.NAME),
        ]
    )


# The lines of the CIFAR-10 table that are shown, and their names.
CIFAR_LINES = {
    table.LOGITS: "softmax, ranked by logits",
    table.PROBABILITIES: "softmax, ranked by probabilities",
    table.PAIRWISE: "pairwise AUCROC",
    table.Line("aucpr", "one-vs-rest", "scores"): "`aucpr`, one class against the rest",
    table.Line("aucpr", "log-odds", "log-odds"): "`aucpr`, exclusive classes",
    table.Line("aucpr, log surrogate", "log-odds", "log-odds"): '`aucpr`, exclusive classes, `surrogate="log"`',
}
CIFAR_MODELS = {"network": "the paper's network", "features": "linear head", "end-to-end": "the network end to end"}


def cifar10_table_section() -> str:
    """The paper's gaps over softmax: by how softmax is ranked."""
    runs = table.longest(table.runs_of(page.committed(table.CSV.stem)))
    parts = []
    for run in runs:
        rows = [
            [shown, *(f"{fmean(table.tested(run, line, column)):.3f}" for column in table.COLUMNS)]
            for line, shown in CIFAR_LINES.items()
            if line in run.lines
        ]
        parts.append(page.grid([CIFAR_MODELS[run.model], *(table.SHOWN[one] for one in table.COLUMNS)], rows))
    return "\n\n".join(
        [
            "## Is the paper's CIFAR-10 table reproduced?",
            "Its large gaps over softmax appear, but they come from how softmax is ranked. Logits are not comparable "
            "between images, and probabilities are. The gain in points of training for each metric:",
            page.grid(["gain, in points", *(table.SHOWN[one] for one in table.METRICS)], _gap_rows(runs[0])),
            "The metrics themselves on test images. The network has a trunk trained with cross-entropy, which may "
            "favour softmax. The linear head is on frozen features.",
            *parts,
            page.picture(table.CSV.stem, "Gain over softmax by logits, per metric: the paper's, ours, softmax's own"),
            page.fold(
                "All objectives, curves and classes",
                *(table.values_table(run).markdown() for run in runs),
                page.picture(f"{table.CSV.stem}_curve", "Precision by recall over all pairs of image and class"),
                page.picture(f"{table.CSV.stem}_classes", "AUCPR of each class"),
            ),
            forms.TOLD,
            page.source(table.CSV.stem),
        ]
    )


def _gap_rows(run: table.Run) -> list[list[str]]:
    """Over softmax: the paper's gap, ours by either ranking, and that of softmax's own two rankings."""
    ours = {metric: table.Line(table.AIMED[metric], "log-odds", "log-odds") for metric in table.METRICS}
    named = {
        "ours, over softmax ranked by logits": lambda one: table.gain(run, ours[one], table.LOGITS, one).mean,
        "ours, over softmax ranked by probabilities": lambda one: (
            table.gain(run, ours[one], table.PROBABILITIES, one).mean
        ),
        "softmax by probabilities, over softmax by logits": lambda one: (
            table.gain(run, table.PROBABILITIES, table.LOGITS, one).mean
        ),
    }
    paper_row = ["the paper's, over softmax", *(f"{table.PAPER[one][1]:+.1f}" for one in table.METRICS)]
    return [
        paper_row,
        *([shown, *(page.gained(gap(one), 1) for one in table.METRICS)] for shown, gap in named.items()),
    ]


# Pairs with the same number of steps, as docs/why.md names them.
HEADS = {
    "bce": "one class against the rest, log-loss",
    "aucpr": "one class against the rest, `aucpr`",
    "cross-entropy": "exclusive classes, cross-entropy",
    "aucpr log-odds log": 'exclusive classes, `aucpr` with `surrogate="log"`',
}


def head_gain(ours: str, theirs: str) -> tuple[float, float]:
    """The gain in recall at precision 0.9, and how far another draw of the test images moves it."""
    cells = page.committed(cifar10_linear.NAME)
    found = [cifar10_linear.tested(name, cells) for name in (ours, theirs)]
    images = cells.find(stage="images", method=f"{ours} - {theirs}")[0]
    return page.differences(*found, "recall_at_p90").mean, float(images["recall_at_p90"])


def cifar10_linear_section() -> str:
    cells = page.committed(cifar10_linear.NAME)
    rows = []
    for name, shown in HEADS.items():
        found = cifar10_linear.tested(name, cells)
        rows.append([shown, *(f"{mean(found, column):.3f}" for column in ("recall_at_p90", "ap"))])
    (rest, rest_noise), (exclusive, exclusive_noise) = head_gain("aucpr", "bce"), head_gain(*cifar10_linear.LONG[::-1])
    others = [page.committed(cifar10_linear.name_of(one)) for one in cifar10_linear.OTHER_CENTROIDS]
    return "\n\n".join(
        [
            "## Does it help a linear head on image features?",
            f"One class against the rest gains {rest:.3f} of recall at precision 0.9. Another draw of the test images "
            f"moves that gain by {rest_noise:.3f}. Exclusive classes gain {exclusive:.3f}, which another draw moves by "
            f"{exclusive_noise:.3f}.",
            page.grid(["linear head on CIFAR-10 features", "recall at precision 0.9", "average precision"], rows),
            page.picture(cifar10_linear.NAME, "Differences of average precision and of recall at precision 0.9"),
            page.fold(
                "All methods, steps and other features",
                cifar10_linear.measured_table(cells).markdown(),
                cifar10_linear.differences_table(cells).markdown(),
                cifar10_linear.steps_table(cells).markdown(),
                *(cifar10_linear.differences_table(other).markdown() for other in others if other.rows),
            ),
            forms.TOLD,
            page.source(cifar10_linear.NAME),
        ]
    )


def many_labels_section() -> str:
    cells = page.committed(many_labels.NAME)
    sets = many_labels.sets_of(cells)
    rows = [
        [method, *(f"{mean(cells.find(set=name, method=method), 'ap'):.3f}" for name in sets)]
        for method in (many_labels.START, *many_labels.METHODS)
    ]
    found = [
        many_labels.over_better(cells, name, method, "ap") for name in sets for method in list(many_labels.METHODS)[1:]
    ]
    return "\n\n".join(
        [
            "## Does it help with hundreds of labels?",
            "The paper trains first with log-loss, then as many steps again with log-loss or with AUCPR. The table has "
            f"the mean average precision over labels, of linear models after {many_labels.STEPS} and "
            f"{many_labels.STEPS} further steps.",
            page.grid(["method", *sets], rows),
            "Against the better of the start and further log-loss:",
            page.tally(found, "pairs of table and AUCPR loss"),
            page.picture(many_labels.NAME, "Gain of further AUCPR steps over further log-loss, by frequency of label"),
            page.fold("Rare and frequent labels", many_labels.gain_table(cells).markdown()),
            "The rows with defaults have `aimfor.Loss` as it is. The others have its bounding form: "
            '`constraint="surrogate"` and `log_loss=0`.',
            page.source(many_labels.NAME),
        ]
    )


def areas_section() -> str:
    cells = page.committed(areas.NAME)
    sets = paper.sets_of(cells)

    def means(area: str, method: str) -> float:
        return fmean(mean(cells.find(set=name, area=area, method=method), "test") for name in sets)

    rows = [
        ["log-loss", *(f"{means(area, areas.BASELINE):.3f}" for area in areas.WHOLE)],
        ["the whole area", *(f"{means(area, whole):.3f}" for area, whole in areas.WHOLE.items())],
        ["the range", *(f"{means(area, area):.3f}" for area in areas.WHOLE)],
        ["the range minus log-loss", *(page.signed(areas.mean_gain(cells, area), 3) for area in areas.WHOLE)],
    ]
    return "\n\n".join(
        [
            "## Does training on a range of the curve pay?",
            f"The columns are the ranges that are measured. The numbers are means over {len(sets)} data sets, linear "
            "models. The last row has the standard error over data sets.",
            page.grid(["trained for", *page.code(areas.WHOLE)], rows),
            f"The range against log-loss: {_lower(page.tally(areas.over_log_loss(cells), 'pairs'))}",
            f"The range against the whole area: {_lower(page.tally(areas.over_whole(cells), 'pairs'))}",
            page.fold(
                "By data set",
                *(areas.area_table(cells, area).markdown() for area in areas.WHOLE),
                page.picture(areas.NAME, "What training on a range adds, measured on that range"),
            ),
            page.source(areas.NAME),
        ]
    )


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def accuracy_section() -> str:
    cells = page.committed(accuracy_trade.NAME)
    rows = []
    for name in accuracy_trade.methods_of(cells):
        found = accuracy_trade.tested(cells, name)
        columns = (*accuracy_trade.MEASURES, "ap_raw")
        rows.append([f"`{name}`", *(f"{100 * mean(found, column):.1f}" for column in columns)])
    return "\n\n".join(
        [
            "## Does AUCPR cost accuracy?",
            "On ImageNet the paper gains 1.1 points of AUCPR for 0.4 points of accuracy. Here is a small convolutional "
            f"network on Fashion-MNIST with {accuracy_trade.STEPS:,} steps.",
            page.grid(["trained with", "accuracy, %", "AUCPR, %", "AUCPR by raw scores, %"], rows),
            page.fold(
                "Spread over seeds",
                accuracy_trade.table(cells).markdown(),
                page.picture(accuracy_trade.NAME, "Accuracy against average precision, one point for each seed"),
            ),
            forms.TOLD,
            page.source(accuracy_trade.NAME),
        ]
    )


def anchors_section() -> str:
    cells = page.committed(anchors.NAME)
    sets = paper.sets_of(cells)
    rows = [
        [method, *(f"{mean(cells.find(set=name, method=method), 'ap'):.3f}" for name in sets)]
        for method in anchors.METHODS
    ]
    found = [
        page.differences(cells.find(set=name, method=method), cells.find(set=name, method=anchors.DEFAULT), "ap")
        for name in sets
        for method in ("K = 5", "K = 20")
    ]
    return "\n\n".join(
        [
            "## Does the number of anchors matter?",
            f"The largest difference between 10 anchors and 5 or 20 is {max(abs(one.mean) for one in found):.3f}. The "
            "numbers are average precision of linear models on held-out rows, for K anchors.",
            page.grid(["method", *sets], rows),
            page.fold(
                "Spread and time",
                anchors.precision_table(cells).markdown(),
                anchors.time_table(cells).markdown(),
                page.picture(anchors.NAME, "Average precision and time per step by number of anchors"),
            ),
            forms.TOLD,
            page.source(anchors.NAME),
        ]
    )


def convergence_section() -> str:
    cells = page.committed(convergence.NAME)
    sets, runs = paper.sets_of(cells), convergence.runs_of(cells)

    def final(name: str, method: str) -> float:
        return fmean(convergence.final(cells, name, method, seed) for seed in convergence.seeds_of(cells, name))

    rows = [[f"`{method}`", *(f"{final(name, method):.3f}" for name in sets)] for method in convergence.METHODS]
    told = []
    for method in list(convergence.METHODS)[1:]:
        found = convergence.arrivals_of(cells, method, 0.0)
        told.append(f"- `{method}` reaches the final value of log-loss and stays in {found.stay} of {len(runs)} runs.")
        told.append(f"- It is earlier than log-loss in {found.earlier} and later in {found.later}.")
    return "\n\n".join(
        [
            "## Does it converge as fast as log-loss?",
            "Each method has the rate and decay that validation rows chose. The numbers are the final average "
            "precision on held-out rows.",
            page.grid(["trained with", *sets], rows),
            "\n".join(told),
            page.picture(convergence.NAME, "Held-out average precision against steps and against seconds"),
            page.fold(
                "Steps and seconds",
                convergence.table(cells).markdown(),
                convergence.arrivals_table(cells).markdown(),
            ),
            forms.TOLD,
            page.source(convergence.NAME),
        ]
    )


def robustness_section() -> str:
    cells, unscaled = page.committed(robustness.NAME), page.committed(robustness.UNSCALED)
    rows = []
    for name, (found, unmoved) in robustness.moved(cells, unscaled).items():
        moved = page.differences(found, unmoved, "recall_at_p90")
        rows.append([name, f"{spread(page.values(found, 'recall_at_p90')).mean:.3f}", page.gained(moved.mean)])
    return "\n\n".join(
        [
            "## Do the loss's own settings matter?",
            "The table has recall at precision 0.9 of the linear head, one class against the rest, on CIFAR-10 "
            "features. One thing moves at a time: the rates of the loss, or the scale of the scores. A factor on the "
            "scores acts like one on the learning rate, so log-loss moves too.",
            page.grid(["what is moved", "recall", "moved by"], rows),
            page.fold(
                "Average precision and spread",
                robustness.table(cells, unscaled).markdown(),
                page.picture(robustness.NAME, "How far rates and scales move average precision and recall"),
            ),
            forms.TOLD,
            page.source(robustness.NAME),
        ]
    )
