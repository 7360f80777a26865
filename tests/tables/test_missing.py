"""Cells that mean a missing value because `--na` says so."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from aimfor.cli._score import RowSource, score
from aimfor.tables._dataset import features_of
from aimfor.tables._preparation import Preparation
from aimfor.tables._reading import ReadOptions
from aimfor.tables._table import Table, open_table
from program_rows import write

MARKS = ReadOptions(missing=("-999",))


def opened(path, options=MARKS) -> Table:
    table = open_table([path], options)
    assert isinstance(table, Table)
    return table


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1.5", "-999", "-999.0", " -999.00 ", "-9.99e2"], [1.5, None, None, None, None]),
        (["1", "-999", "-999.0", "-998", "2"], [1.0, None, None, -998.0, 2.0]),
        (["$ 1.5", "-999", "-999.0", "?", "2"], [1.5, None, None, None, 2.0]),
        (["v1", "-999", "-999.0", "v2", "v3"], ["v1", None, "-999.0", "v2", "v3"]),
    ],
    ids=["numbers", "whole numbers", "numbers with signs", "texts"],
)
def test_a_number_marks_equal_numbers_in_columns_of_numbers(tmp_path, cells, expected):
    path = write(pa.table({"x": cells, "row": [f"r{index}" for index in range(5)]}), tmp_path / "rows.csv")
    assert pa.Table.from_batches(opened(path).batches(["x"]))["x"].to_pylist() == expected


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.decimal128(9, 2)], ids=str)
def test_columns_that_hold_numbers_already(tmp_path, kind):
    path = write(pa.table({"x": pa.array([Decimal(1), Decimal(-999)]).cast(kind)}), tmp_path / "rows.parquet")
    assert pa.Table.from_batches(opened(path).batches())["x"].null_count == 1


@pytest.mark.parametrize("sign", ["", "$ "])
def test_features_are_those_of_missing_values(tmp_path, sign):
    """Also where the cells of new rows are texts, as one of them is no number."""
    cells = [f"{sign}{index}.5" for index in range(50)]
    marked = pa.table({"x": ["-999.0", *cells[1:]]})
    known = opened(write(marked, tmp_path / "marked.csv"))
    preparation = Preparation.learn(known)
    (features,) = features_of(known, preparation)
    assert features[0].tolist() == [0, 1]
    assert np.isfinite(features).all()
    assert features[1:, 1].max() == 0
    strange = write(pa.table({"x": ["-999.0", "many", *cells[2:]]}), tmp_path / "strange.csv")
    (features,) = features_of(opened(strange), preparation)
    assert features[:2].tolist() == [[0, 1], [0, 1]]
    assert features[2:, 1].max() == 0


def test_ids_are_written_as_they_are(tmp_path, trained):
    rows = pa.table({"id": ["007", "7", "8"], "amount": ["1.5", "7.0", "2.5"]})
    out = tmp_path / "scored.csv"
    source = RowSource([write(rows, tmp_path / "rows.csv")], options=ReadOptions(missing=("7.00",)))
    score(trained, source, out, ids=["id"])
    assert [line.split(",")[0].strip('"') for line in out.read_text().splitlines()] == ["id", "007", "7", "8"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of one column of numbers."""
    from aimfor.cli._fit import fit
    from aimfor.cli._job import Job
    from aimfor.training import Observer

    folder = tmp_path_factory.mktemp("missing")
    random = np.random.default_rng(0)
    amount = random.normal(size=200)
    table = pa.table({"amount": amount, "fraud": (amount + random.normal(size=200) > 0.5).astype(int)})
    path = write(table, folder / "rows.csv")
    job = Job((str(path),), ("fraud",), "f1", options={"model": "linear", "steps": 10})
    fit(job, folder / "run", command="", resume=False, shown=Observer())
    return folder / "run"
