"""The rows of engine.py as a file, a table, a picture and a section of the page."""

import csv
from typing import NamedTuple

from benchmarks.shared import page
from benchmarks.shared.cells import RESULTS, provenance

NAME = "engine"
ROWS, LABELS, ANCHORS = 128, 20_000, 10
DEFAULT_POINT = "recall@precision>=0.9"
# What the ratios must not exceed: by what is measured, engine and surrogate.
MUST = {
    ("time", "native", "hinge"): 0.6,
    ("time", "native", "log"): 0.9,
    ("time", "fused", "hinge"): 2.2,
    ("time", "fused", "log"): 3.5,
    (f"default, aucpr; num_anchors={ANCHORS}", "native", "smooth_hinge"): 1.0,
    (f"default, {DEFAULT_POINT}", "native", "smooth_hinge"): 1.0,
    ("sparse labels", "native", "hinge"): 0.5,
    ("sparse labels", "native", "log"): 0.85,
    ("small 128 x 10", "native", "hinge"): 3.0,
    ("small 128 x 10", "native", "log"): 3.0,
    ("small 4096 x 1", "native", "hinge"): 3.0,
    ("small 4096 x 1", "native", "log"): 3.0,
    ("whole step", "native", "hinge"): 1.03,
    ("whole step", "native", "log"): 1.03,
    ("memory", "native", "hinge"): 0.7,
    ("memory", "native", "log"): 0.7,
    ("memory", "fused", "hinge"): 1.1,
    ("memory", "fused", "log"): 1.1,
    ("memory, sparse labels", "native", "hinge"): 0.45,
    ("memory, sparse labels", "native", "log"): 0.45,
}


class Row(NamedTuple):
    """A ratio to log-loss."""

    what: str
    engine: str
    surrogate: str
    rows: int
    labels: int
    anchors: int
    threads: int
    ratio: float
    low: float
    high: float


def draw(rows: list[Row]) -> None:
    """Growth with anchors and labels, as a picture beside the table."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
    for axis, what, key in ((axes[0], "anchors", "anchors"), (axes[1], "labels", "labels")):
        for one in ("hinge", "log"):
            chosen = [row for row in rows if row.what == what and row.surrogate == one]
            axis.plot([getattr(row, key) for row in chosen], [row.ratio for row in chosen], marker="o", label=one)
        axis.axhline(1, color="grey", linewidth=1)
        axis.set(xlabel=f"number of {what}", ylim=(0, None))
        axis.legend()
    axes[0].set_ylabel("time / time of log-loss")
    axes[1].set_xscale("log")
    figure.savefig(RESULTS / "engine.png", dpi=110)


def keep(rows: list[Row]) -> None:
    """Write all rows, with the command and the versions that made them."""
    with (RESULTS / f"{NAME}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*Row._fields, *provenance()], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            numbers = {
                name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row._asdict().items()
            }
            writer.writerow(numbers | provenance())


def finished() -> list[Row]:
    """The committed rows."""
    return [
        Row(
            *(row[name] for name in Row._fields[:3]),
            *(int(row[name]) for name in Row._fields[3:7]),
            *(float(row[name]) for name in Row._fields[7:]),
        )
        for row in page.committed(NAME).rows
    ]


def table(rows: list[Row]) -> page.Table:
    lines = []
    for row in rows:
        must = MUST.get(row[:3])
        verdict = "" if must is None else f"{must:g} {'met' if row.ratio <= must else 'MISSED'}"
        shape = f"{row.rows} x {row.labels}, K = {row.anchors}"
        quartiles = f"{row.low:.2f} to {row.high:.2f}"
        lines.append([f"{row.what}, {row.engine}, {row.surrogate}", shape, f"{row.ratio:.2f}", quartiles, verdict])
    return page.Table("Ratios to log-loss", ["", "shape", "ratio", "quartiles", "asked"], lines)
