"""JSON Lines: one object a line; its entries are the columns, and lists of texts stay lists."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from aimfor._base.errors import DataError
from aimfor.tables._reading import SIZE, ReadOptions, blocks_of, one_line, open_bytes

MOST_LINE = 16 * 2**20  # characters of a line
MOST_COLUMNS = 100_000


def json_facts(path: Path, options: ReadOptions) -> tuple[pa.Schema, int]:
    """Names and types of the columns, and the number of rows."""
    status = path.stat()
    return _facts(path, options.encoding or "utf-8-sig", (status.st_size, status.st_mtime_ns))


def json_pieces(path: Path, options: ReadOptions, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these columns."""
    schema = json_facts(path, options)[0]
    wanted = pa.schema([schema.field(name) for name in names])
    rows = _rows(path, options.encoding or "utf-8-sig")
    while some := list(islice(rows, SIZE)):
        columns = [[_as(row.get(field.name), field.type) for row in some] for field in wanted]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, wanted, strict=True)], schema=wanted
        )


@lru_cache(maxsize=256)  # each file is read several times; its size and time tell when it changed
def _facts(path: Path, encoding: str, version: tuple[int, int]) -> tuple[pa.Schema, int]:
    for _ in blocks_of(path) if path.suffix.lower() == ".gz" else ():  # raises where it unpacks without end
        pass
    kinds: dict[str, set[str]] = {}
    count = 0
    for row in _rows(path, encoding):
        count += 1
        for name, value in row.items():
            if value is not None:
                kinds.setdefault(name, set()).add(_kind(value))
            else:
                kinds.setdefault(name, set())
        if len(kinds) > MOST_COLUMNS:
            raise DataError(f"{path}, line {count}: more than {MOST_COLUMNS:,} different names of columns")
    return pa.schema([(name, _type(found)) for name, found in kinds.items()]), count


def _rows(path: Path, encoding: str) -> Iterator[dict[str, Any]]:
    with open_bytes(path) as file:
        number = 0
        while line := file.readline(MOST_LINE + 1):
            number += 1
            if len(line) > MOST_LINE:
                raise DataError(f"{path}, line {number}: longer than {MOST_LINE:,} bytes")
            text = line.decode(encoding if number == 1 else encoding.removesuffix("-sig")).strip()
            if not text:
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}, line {number}: no JSON: {one_line(str(error), 80)}") from None
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: a JSON object is needed, got {type(row).__name__}")
            yield row


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "whole" if abs(value) < 2**63 else "long"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list) and all(isinstance(entry, str) for entry in value) else "nested"


def _type(kinds: set[str]) -> pa.DataType:
    if not kinds:
        return pa.null()
    if kinds <= {"whole"}:
        return pa.int64()
    if kinds <= {"whole", "number"}:
        return pa.float64()
    return {"boolean": pa.bool_(), "list": pa.list_(pa.string())}.get("".join(kinds), pa.string())


def _as(value: Any, kind: pa.DataType) -> Any:
    if value is None or not pa.types.is_string(kind) or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
