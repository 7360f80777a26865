"""Queries to databases: SQLite in a file, PostgreSQL on a server that the tests start where it is installed."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aimfor import cli
from aimfor._base.errors import DataError
from aimfor.tables import ReadOptions, open_table, store_query, without_password

pytest.importorskip("adbc_driver_sqlite")
FIT = ("--label", "fraud", "--aim", "f1", "--steps", "20")


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["aimfor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def frame(rows: int = 600) -> pd.DataFrame:
    random = np.random.default_rng(0)
    x = random.normal(size=rows)
    town = random.choice(["Bonn", "Rome"], rows)
    return pd.DataFrame({"x": x, "town": town, "fraud": np.where(x + random.normal(size=rows) > 1.2, "yes", "no")})


def end_to_end(command, address: str, tmp_path: Path) -> None:
    """Fit, score and evaluate on a query give what the same rows in a file give."""
    query = ("--sql", "select x, town, fraud from payments order by nr")
    assert command("fit", address, *query, *FIT, "--out", tmp_path / "run")[0] == 0
    frame().to_parquet(tmp_path / "rows.parquet")
    assert command("fit", tmp_path / "rows.parquet", *FIT, "--out", tmp_path / "file")[0] == 0
    ours, theirs = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "file"))
    assert ours == theirs
    assert command("score", tmp_path / "run", address, *query, "--id", "town", "--out", tmp_path / "s.csv")[0] == 0
    assert pd.read_csv(tmp_path / "s.csv")["town"].tolist() == frame()["town"].tolist()
    code, out, _ = command("evaluate", tmp_path / "run", address, *query, "--by", "town", "--json")
    assert code == 0
    segments = json.loads(out)["labels"][0]["segments"]
    assert {one["segment"]: one["rows"] for one in segments} == frame()["town"].value_counts().to_dict()


def test_sqlite_from_end_to_end(command, tmp_path):
    with sqlite3.connect(tmp_path / "rows.db") as base:
        frame().to_sql("payments", base, index_label="nr")
    base.close()
    end_to_end(command, f"sqlite:///{tmp_path}/rows.db", tmp_path)


def test_what_is_wrong_is_said_without_the_password(tmp_path):
    with pytest.raises(DataError, match=r"absent.db: no such file"):
        store_query("select 1", f"sqlite:///{tmp_path}/absent.db", tmp_path / "q.arrow")
    assert not (tmp_path / "absent.db").exists()
    with pytest.raises(DataError, match=r"mysql://ann:\*\*\*@x/y: databases are named") as caught:
        store_query("select 1", "mysql://ann:secret@x/y", tmp_path / "q.arrow")
    assert "secret" not in str(caught.value)
    assert without_password("postgresql://ann:secret@host/db") == "postgresql://ann:***@host/db"


def test_a_query_cannot_write_to_sqlite(tmp_path):
    with sqlite3.connect(tmp_path / "rows.db") as base:
        base.execute("create table t (x integer)")
    base.close()
    before = (tmp_path / "rows.db").read_bytes()
    with pytest.raises(DataError, match="readonly"):
        store_query("insert into t values (1)", f"sqlite:///{tmp_path}/rows.db", tmp_path / "q.arrow")
    assert (tmp_path / "rows.db").read_bytes() == before


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a PostgreSQL server of our own."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("PostgreSQL is not installed")
    if os.getuid() == 0 and shutil.which("runuser") is None:
        pytest.skip("PostgreSQL does not run as root, and runuser is not there")
    binaries = found[-1].parent
    folder = tmp_path_factory.mktemp("postgresql")
    user = []
    if os.getuid() == 0:
        user = ["runuser", "-u", "postgres", "--"]
        for place in (folder, *folder.parents[:3]):
            place.chmod(0o755)
        shutil.chown(folder, "postgres")

    def run(program: str, *arguments: str) -> None:
        command = [*user, str(binaries / program), *arguments]
        done = subprocess.run(command, check=False, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode:
            pytest.skip(f"PostgreSQL cannot be started here: {done.stderr.decode()[-200:]}")

    data = str(folder / "data")
    run("initdb", "-D", data, "-A", "trust", "-U", "ann")
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}'"
    run("pg_ctl", "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start")
    yield f"postgresql:///postgres?host={folder}&user=ann"
    run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


@pytest.mark.slow
def test_postgresql_from_end_to_end(command, server, tmp_path):
    from adbc_driver_postgresql import dbapi

    rows = frame()
    rows.insert(0, "nr", range(len(rows)))
    with dbapi.connect(server) as connection, connection.cursor() as cursor:
        import pyarrow as pa

        cursor.adbc_ingest("payments", pa.Table.from_pandas(rows, preserve_index=False))
        connection.commit()
    end_to_end(command, server, tmp_path)
    code, _, err = command("fit", server, "--sql", "select * from nothing", *FIT, "--out", tmp_path / "no")
    assert (code, err.count("\n")) == (1, 1)
    assert "nothing" in err


# Not `ru_maxrss`: a process starts with that of the one that started it.
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the peak of memory is read from /proc")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_million_rows_of_a_query_take_less_than_700_megabytes(tmp_path):
    query = (
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000000) "
        "select (i * 7919 % 1000) / 1000.0 as x, (i * 104729 % 997) / 997.0 as z, "
        "case when i * 7919 % 1000 + i % 300 > 1100 then 'yes' else 'no' end as fraud from n"
    )
    sqlite3.connect(tmp_path / "empty.db").executescript("create table t (x); ").close()
    script = (
        "import sys; from aimfor import cli\n"
        "try: cli.main()\n"
        "finally:\n"
        "    peak, = (line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "    print(peak.split()[1], file=sys.stderr)"
    )
    # Forests would take some hundred megabytes beside what reading takes.
    options = ["fit", f"sqlite:///{tmp_path}/empty.db", "--sql", query, *FIT, "--memory", "64", "--model", "linear"]
    options += ["--out", "run"]
    done = subprocess.run(
        [sys.executable, "-c", script, *options], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    kilobytes = int(done.stderr.splitlines()[-1])
    assert kilobytes < 700_000, kilobytes


def test_options_of_reading_are_checked():
    with pytest.raises(DataError, match="--sep must be one character"):
        ReadOptions(separator="")
    with pytest.raises(DataError, match="no data"):
        open_table([])
