"""Objects that write tables to an open file, one for each format that can be written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyarrow import csv, ipc, parquet

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

# A spreadsheet takes a cell that starts so for a formula, which may call programs. Numbers are none.
FORMULA, NUMBER = r"^[=+\-@\t\r]", r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"


class DelimitedWriter:
    """Writes CSV or TSV; a text that a spreadsheet would take for a formula gets an apostrophe in front."""

    def __init__(self, file: Any, schema: pa.Schema, delimiter: str):
        self.names = [_no_formulas(pa.array([name]))[0].as_py() for name in schema.names]
        self.schema = pa.schema([one.with_name(name) for one, name in zip(schema, self.names, strict=True)])
        options = csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
        self.writer = csv.CSVWriter(file, self.schema, write_options=options)

    def write_table(self, table: pa.Table) -> None:
        """Append rows."""
        columns = [
            _no_formulas(column.combine_chunks()) if pa.types.is_string(column.type) else column
            for column in table.columns
        ]
        self.writer.write_table(pa.Table.from_arrays(columns, schema=self.schema))

    def close(self) -> None:
        """Write what waits."""
        self.writer.close()


def _no_formulas(cells: Any) -> Any:
    risky = pc.and_(pc.match_substring_regex(cells, FORMULA), pc.invert(pc.match_substring_regex(cells, NUMBER)))
    return pc.if_else(risky, pc.binary_join_element_wise("'", cells, ""), cells)


def csv_writer(file: Any, schema: pa.Schema) -> DelimitedWriter:
    """Writes CSV."""
    return DelimitedWriter(file, schema, ",")


def tsv_writer(file: Any, schema: pa.Schema) -> DelimitedWriter:
    """Writes TSV."""
    return DelimitedWriter(file, schema, "\t")


def parquet_writer(file: Any, schema: pa.Schema) -> Any:
    """Writes Parquet."""
    return parquet.ParquetWriter(file, schema)


def arrow_writer(file: Any, schema: pa.Schema) -> Any:
    """Writes the file format of Arrow, which Feather is as well."""
    return ipc.new_file(file, schema)
