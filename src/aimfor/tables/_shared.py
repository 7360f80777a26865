"""Several processes share the files of a table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from aimfor._base.errors import DataError
from aimfor._base.ranks import Ranks, RowShare
from aimfor._base.stored_rows import RowWriter, StoredRows
from aimfor.tables._reading import reading
from aimfor.tables._runs import FileRun
from aimfor.tables._table import Table, pieces_of


def shared(table: Table, ranks: Ranks) -> Table:
    """The rows of a table that this process reads: groups of rows, or else files, are dealt out by turns.

    Raises:
        DataError: where there are fewer of them than processes.
    """
    if ranks.size == 1:
        return table
    kind, every = table.format, [FileRun(path, None, 0) for path in table.paths]
    if kind.groups is not None:
        every = []
        for path in table.paths:
            with reading(path, kind.name):
                every += [FileRun(path, group, rows) for group, rows in enumerate(kind.groups(path))]
    if len(every) < ranks.size:
        told = f"{len(every)} {kind.units[len(every) != 1]}"
        raise DataError(f"{ranks.size} processes cannot share {told}: start fewer, or {kind.more_units}")
    runs = every[ranks.number :: ranks.size]
    if kind.groups is None:
        names = table.schema.names[:1]
        rows = [sum(piece.num_rows for piece in pieces_of(run.path, kind, table.options, names)) for run in runs]
        runs = [run._replace(rows=count) for run, count in zip(runs, rows, strict=True)]
    return replace(table, runs=tuple(runs), num_rows=sum(run.rows for run in runs), ranks=ranks)


def collected(part: Any, share: RowShare, path: Path, memory: int) -> Any:
    """The rows of a `SplitPart` of all processes, on each of them.

    Args:
        part: the rows of this process.
        share: which of all rows of the part they are.
        path: the file that holds the features where they are many.
        memory: bytes of features that may be held in memory.
    """
    features: Any = share.collect(part.features[: len(share)])
    if features.nbytes > memory // 4:
        path.parent.mkdir(parents=True, exist_ok=True)
        with RowWriter(path, features.shape[1]) as writer:
            writer.append(features)
        features = StoredRows(path, features.shape[1])
    weights, groups = (None if one is None else share.collect(one) for one in (part.weights, part.groups))
    return part._replace(features=features, labels=share.collect(part.labels), weights=weights, groups=groups)


def begin_fingerprint(table: Table) -> Callable[[], str]:
    """What gives the fingerprint of the files on the first rank, and nothing on others.

    Where others would wait for it, it is worked out beside the reading. Nobody waits for that thread after an error.
    """
    if table.ranks.number > 0:
        return str
    if table.ranks.size == 1:
        return lambda: table.fingerprint
    found: Future[str] = Future()

    def work() -> None:
        try:
            found.set_result(table.fingerprint)
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found.result
