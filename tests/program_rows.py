"""Tables and files that the tests of the program share."""

import datetime
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from aimfor.tables._dataset import features_of, prepare
from aimfor.tables._matrix import Matrix
from aimfor.tables._table import Table, open_table


def rows_of(n=600, seed=0) -> pa.Table:
    """A table with a column of every kind."""
    random = np.random.default_rng(seed)
    amount = random.normal(100, 30, n).round(3)
    return pa.table(
        {
            "id": pa.array(np.arange(n) + 17),
            "key": [f"k{index}" for index in random.permutation(n)],
            "amount": pa.array(amount, mask=random.random(n) < 0.1),
            "count": pa.array(random.integers(0, 9, n)),
            "known": pa.array(random.random(n) < 0.3, mask=random.random(n) < 0.05),
            "town": pa.array(random.choice(["Bonn", "Rome", "Ürümqi", 'a "b", c'], n), mask=random.random(n) < 0.1),
            "same": ["x"] * n,
            "when": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=int(h)) for h in random.permutation(n)],
            "fraud": np.where(random.random(n) < 0.2 + 0.3 * (amount > 130), "yes", "no"),
        }
    )


def write(table: pa.Table, path: Path) -> Path:
    kind = path.suffixes[0]
    if kind == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=100)
    elif kind in (".arrow", ".feather"):
        pyarrow.feather.write_feather(table, str(path), chunksize=77)
    else:
        options = pyarrow.csv.WriteOptions(delimiter="\t" if kind == ".tsv" else ",")
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        pyarrow.csv.write_csv(table, plain, options)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    return path


def opened(*paths: Path | str) -> Table:
    table = open_table(paths)
    assert isinstance(table, Table)
    return table


def matrix(path: Path) -> Matrix:
    found = open_table([path])
    assert isinstance(found, Matrix)
    return found


def prepared(source, folder: Path, **options):
    return prepare(source, **({"labels": ["fraud"], "folder": folder} | options))


def whole(source, preparation=None, **options):
    return np.concatenate([np.asarray(block) for block in features_of(source, preparation, **options)])
