"""How soon a watch finds that precision fell from 0.9 to 0.8, beside MAPIE's RiskMonitoring on the same streams.

`python -m benchmarks.decisions.watch` writes benchmarks/results/decisions_watch.csv: false alarms of quiet streams, and
the flagged rows between the change and the alarm. Both watch 1 - precision <= 0.1 with 5 % false alarms at most and
look after every 20 flagged rows. MAPIE gets twice the level, as it spends half of it on reference data that it does not
need here.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
from mapie.exchangeability_testing import RiskMonitoring

from aimfor.operating_points._evidence import SHIFTS, Evidence, failure_factors

RESULTS = Path(__file__).parents[1] / "results" / "decisions_watch.csv"
STREAMS, AFTER, STEP, LEVEL = 200, 1000, 20, 0.05
COLUMNS = ("method", "rows_before_change", "streams", "false_alarms", "found", "median_delay", "mean_delay")


def aimfor_alarm(failed: np.ndarray) -> int | None:
    """The number of rows after which there is an alarm."""
    evidence = Evidence.of_bets(len(SHIFTS))
    for end in range(STEP, len(failed) + 1, STEP):
        evidence.add(failure_factors(failed[end - STEP : end], 0.1))
        if evidence.highest >= math.log(1 / LEVEL):
            return end
    return None


def mapie_alarm(failed: np.ndarray) -> int | None:
    """The same of MAPIE, which keeps its bound after every row and would compute all of them again at every look."""
    monitor = RiskMonitoring("precision", test_level=2 * LEVEL, threshold=0.1, warn=False)
    monitor.update((~failed).astype(int), np.ones(len(failed), dtype=int))
    bounds = monitor.online_risk_lower_bound_sequence_history[STEP - 1 :: STEP]
    above = np.flatnonzero(bounds > 0.1)
    return STEP * (int(above[0]) + 1) if above.size else None


def measured(method: str, before: int) -> dict[str, object]:
    rng = np.random.default_rng(before)
    alarm = {"aimfor": aimfor_alarm, "MAPIE": mapie_alarm}[method]
    false, delays = 0, []
    for _ in range(STREAMS):
        quiet, broken = rng.random(before) < 0.1, rng.random(AFTER) < 0.2
        found = alarm(np.concatenate([quiet, broken]))
        if found is not None and found <= before:
            false += 1
        else:
            delays.append(math.inf if found is None else found - before)
    seen = [delay for delay in delays if math.isfinite(delay)]
    mean = round(float(np.mean(seen)), 1) if len(seen) == len(delays) else ""
    median = float(np.median(delays))
    row = (method, before, STREAMS, false, len(seen), median if math.isfinite(median) else "", mean)
    return dict(zip(COLUMNS, row, strict=True))


def main() -> None:
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for before in (0, 500, 2000):
            for method in ("aimfor", "MAPIE"):
                writer.writerow(measured(method, before))
                file.flush()


if __name__ == "__main__":
    main()
