"""Tables of thresholds and bounds in the docs are those of the committed cells; the promise holds in a simulation."""

import pytest
from scipy.stats import binom

pytest.importorskip("lightgbm")
from benchmarks.decisions import bands, one_half, own_promises, promises, simulated
from benchmarks.decisions.judging import PAGE, between
from benchmarks.shared.cells import RESULTS, Cells


@pytest.mark.parametrize("script", [promises, own_promises, simulated, bands, one_half], ids=lambda script: script.NAME)
def test_the_page_shows_the_committed_cells(script):
    cells = Cells(RESULTS / f"{script.NAME}.csv")
    assert cells.rows
    assert between(script.NAME, script.table(cells)) in getattr(script, "PAGE", PAGE).read_text()


@pytest.mark.parametrize("aim", simulated.AIMS)
def test_the_promise_is_kept_on_a_known_population(aim):
    draws = 150
    found = simulated.run("two normals", aim, 400, 0.3, draws)
    assert found["with_threshold"] > draws / 4
    # So many broken draws would be rarer than 1 in 1,000 if each were broken with the promised 5 %.
    assert binom.sf(found["broken"] - 1, draws, 1 - simulated.CONFIDENCE) > 1e-3
