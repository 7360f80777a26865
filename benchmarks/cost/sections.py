"""The sections of docs/results/ on time and memory, from their CSV files alone."""

from benchmarks.cost import engine_report, estimator_cost, program_cost
from benchmarks.cost.engine_report import ANCHORS, LABELS, ROWS
from benchmarks.rivals.methods import OURS
from benchmarks.shared import page

SURROGATES = ("hinge", "log")


def ratio(what: str, labels: int = LABELS) -> str:
    """The ratio to log-loss of the native engine, from the hinge to the log surrogate."""
    rows = {row[:6]: row.ratio for row in engine_report.finished()}
    found = sorted({f"{rows[what, 'native', one, ROWS, labels, ANCHORS]:.1f}" for one in SURROGATES})
    return " to ".join(found)


def small_step() -> str:
    """The whole step of a small linear model over that of log-loss."""
    return f"{float(page.committed('rivals').find(stage='cost', method=OURS)[0]['time_ratio']):.1f}"


def loss_section() -> str:
    rows = engine_report.finished()
    main = [
        ["loss of 128 rows and 20,000 labels, AVX2", ratio("time")],
        ["the same with AVX-512", ratio("widest vectors")],
        ["whole training step of a linear layer with 20,000 labels", ratio("whole step")],
        ["loss of 128 rows and 10 labels", ratio("small 128 x 10", 10)],
        ["whole training step of a small linear model", small_step()],
    ]
    limited = [row for row in rows if row[:3] in engine_report.MUST]
    met = sum(row.ratio <= engine_report.MUST[row[:3]] for row in limited)
    return "\n\n".join(
        [
            "## What does the loss cost?",
            "The time of the loss and its gradient, as a multiple of the time of log-loss. A range runs from one "
            "surrogate to the other, hinge and log. Engine: native, one thread.",
            page.grid(["what", "times log-loss"], main),
            "Memory of the same 128 rows and 20,000 labels, as a multiple of that of log-loss:",
            page.grid(["engine", "dense labels", "sparse labels"], _memory(rows)),
            page.picture(engine_report.NAME, "Time of the loss over that of log-loss, by anchors and by labels"),
            page.fold(
                "All measurements",
                "Each is the median of three processes, with log-loss and our loss in turns. The quartiles are those "
                "of single turns. Torch and the native engine both use AVX2, unless the row says *widest vectors*.",
                f"{met} of {len(limited)} ratios with a limit meet it.",
                engine_report.table(rows).markdown(),
            ),
            page.source(engine_report.NAME, "rivals"),
        ]
    )


def _memory(rows: list[engine_report.Row]) -> list[list[str]]:
    found = {(row.what, row.engine): row.ratio for row in rows if row.surrogate == "hinge" and row.labels == LABELS}
    return [
        [f"`{engine}`", *(f"{found[what, engine]:.1f}" for what in ("memory", "memory, sparse labels"))]
        for engine in ("native", "fused")
    ]


def fit_section() -> str:
    cells = page.committed(estimator_cost.NAME)
    return "\n\n".join(
        [
            "## What a fit of linear models costs",
            '`aimfor.Classifier` with `model="linear"` trains all candidates of this kind. The grid of seven logistic '
            "regressions is its counterpart. [The default](default.md) trains trees and a network too.",
            estimator_cost.whole_table(cells).markdown(),
            page.fold(
                "One recipe instead of all candidates",
                "Dense rows are 1,000,000 x 50, sparse rows 200,000 x 50,000 with 20 non-zeros each. Memory is the "
                "peak of `fit`, as a share of X.",
                estimator_cost.table(cells).markdown(),
            ),
            page.source(estimator_cost.NAME),
        ]
    )


def linear_fit() -> tuple[str, str]:
    """Seconds of all linear candidates on 20,000 rows, and of the grid of logistic regressions."""
    fits = page.committed(estimator_cost.NAME).find(kind=estimator_cost.WHOLE)
    theirs, ours = ([row for row in fits if row["method"] == one][1] for one in estimator_cost.WHOLE_METHODS)
    return f"{float(ours['seconds']):.1f}", f"{float(theirs['seconds']):.2f}"


def program_section() -> str:
    return "\n\n".join(
        [
            "## The program on much data",
            "`aimfor fit` reads 10 GB of Parquet as a stream, and `aimfor score` writes one file on one core. The "
            "times include the start of Python. Reading alone is the comparison.",
            program_cost.table(page.committed(program_cost.NAME)).markdown(),
            page.source(program_cost.NAME),
        ]
    )
