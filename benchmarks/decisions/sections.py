"""The sections of docs/results/ on thresholds, from their CSV files alone."""

from statistics import fmean

from benchmarks.decisions import operating_points
from benchmarks.shared import page

# As docs/why.md names them.
SHOWN = {
    "no confidence": "no confidence",
    "aimfor": "`aimfor.operating_point`",
    "MAPIE": "MAPIE",
    "MAPIE fixed sequence": "MAPIE, fixed sequence",
}


def broken(method: str) -> tuple[int, int]:
    """Cases whose share of broken constraints is above 0.05 by two simulation errors, and all cases."""
    made = page.committed(operating_points.NAME).find(method=method)
    limit = 1 - operating_points.CONFIDENCE + 1e-9
    above = [row for row in made if float(row["violates"]) - 2 * float(row["violates_error"]) > limit]
    return len(above), len(made)


def largest_share(method: str) -> float:
    return max(page.values(page.committed(operating_points.NAME).find(method=method), "violates"))


def confidence_section() -> str:
    cells = page.committed(operating_points.NAME)
    rows = []
    for method, shown in SHOWN.items():
        made = cells.find(method=method)
        means = [f"{largest_share(method):.3f}", f"{fmean(page.values(made, 'found')):.2f}"]
        rows.append([shown, *means, f"{fmean(page.values(made, 'given_up')):.3f}"])
    above, cases = broken("aimfor")
    return "\n\n".join(
        [
            "## Thresholds with a confidence",
            f"Does a threshold with confidence {operating_points.CONFIDENCE} keep its promise? The draws come from "
            "populations whose rates are known. At most 0.05 of the draws may break the constraint there.",
            page.grid(
                [
                    "threshold by",
                    "largest share of broken constraints",
                    "share of draws with a threshold",
                    "objective given up",
                ],
                rows,
            ),
            f"`aimfor.operating_point` is above 0.05 by two simulation errors in {above} of {cases} cases. A draw "
            "without a threshold gives up the whole objective.",
            page.picture(operating_points.NAME, "For each method and case: share of broken constraints, and the price"),
            page.fold(
                "By aim, share of positives and rows",
                "The three numbers of a cell are the share of broken constraints, the share of draws with a threshold, "
                "and the objective given up. The scores are two Gaussians. The CSV has tied scores and hard negatives.",
                operating_points.tables(cells)[0].markdown(),
            ),
            page.source(operating_points.NAME),
        ]
    )
