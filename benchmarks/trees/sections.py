"""The sections of docs/results/ about boosted trees."""

from benchmarks.shared import page
from benchmarks.shared.spread import spread
from benchmarks.trees import averages, categories, small_forests
from benchmarks.trees.averages import AIMS

TITLES = {"by metric": "the best forest by the metric", "by log-loss": "the forest of lowest log-loss"}


def averages_section() -> str:
    cells = page.committed(averages.NAME)
    return "\n\n".join(
        [
            "## Does averaging forests pay?",
            f'One search trains 12 log-loss forests, and `model="trees"` averages the best half. The table has what '
            f"the average gains over single forests of the same search: means over {num_tables()} tables with five "
            f"splits each, and their standard errors over tables. {_clear()}",
            page.grid(["average of forests minus", *page.code(AIMS)], averages_rows()),
            _source(averages.NAME, "averages"),
            f"Cells: {len(cells.rows):,}.",
        ]
    )


def averages_rows() -> list[list[str]]:
    cells = page.committed(averages.NAME)
    return [
        [title, *(categories.signed(spread(averages.differences(cells, other, aim).values())) for aim in AIMS)]
        for other, title in TITLES.items()
    ]


def num_tables() -> int:
    return len(averages.differences(page.committed(averages.NAME), averages.OTHERS[0], AIMS[0]))


def _clear() -> str:
    cells = page.committed(averages.NAME)
    gains = [spread(averages.differences(cells, other, aim).values()) for other in averages.OTHERS for aim in AIMS]
    beyond = sum(abs(gain.mean) > 2 * gain.error for gain in gains)
    return f"{beyond or 'No'} difference{'s are' if beyond > 1 else ' is'} beyond two standard errors."


def categories_section() -> str:
    cells = page.committed(categories.NAME)
    splits = len({row["split"] for row in cells.rows})
    return "\n\n".join(
        [
            "## Should trees read categories themselves?",
            "`aimfor fit` lets trees read columns: categories one by one or as sets, drawn for each forest, and "
            "missing numbers as missing. The alternative is what linear models get: categories as features of 0 and "
            "1, missing numbers as the mean with a mark. The table has columns minus codes on rows that only judge, "
            f"means over {splits} splits with their standard errors. The tables of bankruptcies have missing numbers "
            f"and no categories. {_clear_columns()}",
            page.grid(["columns minus codes", *page.code(AIMS)], categories.rows_of(cells)),
            _source(categories.NAME, "categories"),
        ]
    )


def _clear_columns() -> str:
    cells = page.committed(categories.NAME)
    gains = {aim: spread([own.mean() for own in categories.differences(cells, aim).values()]) for aim in AIMS}
    better, worse = ([aim for aim, gain in gains.items() if sign * gain.mean > 2 * gain.error] for sign in (1, -1))
    named = [", ".join(page.code(aims)) or "no aim" for aims in (better, worse)]
    return f"By two standard errors over tables, columns are better at {named[0]} and worse at {named[1]}."


def small_forests_section() -> str:
    return "\n\n".join(
        [
            "## Does an aimed objective pay in small forests?",
            "Forests of at most 40 trees with 4 leaves, with the objective of `aimfor.boosting`. Every method had the "
            "same nine settings, chosen on rows that measure nothing. The table has the level of log-loss and "
            f"differences to it: means over {len(small_forests.SETS)} tables with five splits each, and their standard "
            "errors over tables.",
            page.grid(["method", *small_forests.AIMS], small_forests.rows_of(page.committed(small_forests.NAME))),
            _source(small_forests.NAME, "small_forests"),
        ]
    )


def _source(name: str, script: str) -> str:
    file = f"[{name}.csv](../../benchmarks/results/{name}.csv)"
    return f"Command: `python -m benchmarks.trees.{script}`. Numbers: {file}."
