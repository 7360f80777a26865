"""Where rows come from: files, folders, or a query to a database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aimfor._base.errors import DataError
from aimfor.tables import Matrix, ReadOptions, Table, is_database, open_table, store_query

QUERY = "query.arrow"


def open_source(paths: Sequence[str | Path], options: ReadOptions, sql: str | None, folder: Path) -> Table | Matrix:
    """Open the rows of files, or those of a query.

    Args:
        paths: files and folders, or the address of one database.
        options: how files are read.
        sql: the query.
        folder: where the rows of a query are kept; they are not asked for again where they are there.

    Raises:
        DataError: where the rows cannot be read.
    """
    databases = [path for path in map(str, paths) if is_database(path)]
    if sql is None:
        if databases:
            raise DataError(f'{databases[0].split("://")[0]}:// is a database: give the query with --sql "select ..."')
        return open_table(paths, options)
    if len(paths) != 1 or not databases:
        raise DataError("--sql needs the address of one database, such as sqlite:///rows.db or postgresql://host/name")
    stored = folder / QUERY
    if not stored.exists():
        folder.mkdir(parents=True, exist_ok=True)
        store_query(sql, databases[0], stored)
    return open_table([stored], options)
