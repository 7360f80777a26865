"""Databases: the rows of a query, streamed once into an Arrow file and then read like one. It needs the extra `sql`.

A table is read several times, and a database may give other rows, or the same in another order, each time. The file
keeps what came first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from aimfor._base.errors import DataError
from aimfor._base.files import create
from aimfor.tables._reading import one_line
from aimfor.tables._storage import is_remote

SCHEMES = ("sqlite", "postgresql", "postgres")
MOST_BATCH = 64 * 2**10  # rows that a driver may hold at a time


def is_database(text: str | Path) -> bool:
    """Whether a text is the address of a database."""
    if isinstance(text, Path):
        return False
    text = str(text)
    return re.match(r"[a-z][a-z0-9+]*://", text) is not None and not is_remote(text)


def without_password(address: str) -> str:
    """The address of a database or of object storage as it may be shown and stored."""
    if "://" not in address:
        return address
    parts = urlsplit(address)
    if parts.password is None:
        return address
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@", 1)))


def store_query(query: str, address: str, path: Path) -> None:
    """Write the rows of a query to an Arrow file.

    Args:
        query: in the language of the database.
        address: such as "sqlite:///rows.db" or "postgresql://user@host/name".
        path: a new file.

    Raises:
        DataError: where the database cannot be reached or does not understand the query.
    """
    with _connected(address) as connection, connection.cursor() as cursor, create(path) as file:
        cursor.execute(query)
        reader = cursor.fetch_record_batch()
        schema = pa.schema([_storable(field) for field in reader.schema])
        with pa.ipc.new_file(file, schema) as writer:
            for batch in reader:
                columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _storable(field: pa.Field) -> pa.Field:
    """A driver's own type, such as PostgreSQL's numeric, as the type that stores it."""
    kind = field.type
    return pa.field(field.name, kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    shown = without_password(address)
    try:
        with _connect(address) as connection:
            yield connection
    except ModuleNotFoundError:
        raise DataError(f"{shown}: reading databases needs an extra: pip install 'aimfor[sql]'") from None
    except DataError:
        raise
    except Exception as error:
        # All errors of the drivers have a base class of their own, which is there only where they are installed.
        if not any(kind.__module__.startswith("adbc_driver_manager") for kind in type(error).__mro__):
            raise
        raise DataError(f"{shown}: {one_line(str(error))}") from None


def _connect(address: str) -> Any:
    scheme, _, rest = address.partition("://")
    if scheme not in SCHEMES:
        raise DataError(f"{without_password(address)}: databases are named sqlite:///file or postgresql://...")
    if scheme == "sqlite":
        from adbc_driver_sqlite import dbapi

        path = Path(rest[1:] if rest.startswith("/") else rest)
        if not path.is_file():  # or the driver would make a new, empty one
            raise DataError(f"{path}: no such file; sqlite:///x.db is x.db here, sqlite:////x.db is /x.db")
        return dbapi.connect(path.absolute().as_uri() + "?mode=ro")
    from adbc_driver_postgresql import dbapi

    return dbapi.connect(address)
