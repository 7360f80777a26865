"""The recipes of docs/cluster.md score a table as the program does."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import aimfor
from program_rows import rows_of

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
RECIPES = dict(zip(("ray", "pyspark"), re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.S | re.M), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("package", RECIPES)
def test_a_recipe_gives_the_scores_of_the_model(package, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    table = rows_of(400)
    (tmp_path / "rows").mkdir()
    for part in range(2):
        pyarrow.parquet.write_table(table.slice(200 * part, 200), tmp_path / "rows" / f"{part}.parquet")
    job = ["fit", "rows", "--label", "fraud", "--positive", "yes", "--model", "linear", "--aim", "f1", "--steps", "20"]
    run(tmp_path, "-m", "aimfor", *job, "--out", "run")
    assert len(RECIPES[package].splitlines()) <= 24
    (tmp_path / "recipe.py").write_text(RECIPES[package])
    run(tmp_path, "recipe.py")
    scored = pyarrow.parquet.read_table(tmp_path / "scored").sort_by("id")
    expected = aimfor.load(tmp_path / "run").decision_function(table)
    assert scored["id"].to_pylist() == table["id"].to_pylist()
    np.testing.assert_array_equal(scored["score"].to_numpy(), expected)


def run(folder: Path, *arguments: str) -> None:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
