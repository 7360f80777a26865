"""Columns become float32 features, with means, scales and categories of the training rows only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from aimfor._base.errors import DataError, ModelFileError
from aimfor.model_kinds import TableColumns
from aimfor.tables._columns import Column, is_text, understand
from aimfor.tables._features import MOST_CATEGORIES, ColumnFeatures, Numbers, features_from
from aimfor.tables._missing import without_numbers
from aimfor.tables._reading import one_line
from aimfor.tables._stored_features import entries_of, read_features, rule
from aimfor.tables._table import BatchSource, MemoryTable
from aimfor.tables._tallies import AnyTally, DateTally, Tally, TextTally, merged
from aimfor.tables._text_types import Meaning

MOST_SHOWN = 10  # of a column, in a summary
MOST_COLUMNS = 1_000_000  # of a stored preparation


class Preparation(TransformerMixin, BaseEstimator):
    """Turns columns of numbers, booleans, dates and texts into float32 features, for rows of any order of columns.

    Numbers are centred and scaled; a missing one becomes the mean. Of the categories of a column the 64 most frequent
    have a feature each, which is 1 or 0; rarer ones share one more. Dates become year, month, weekday,
    hour and days since the first. Words and pairs of words of longer texts share features by their hash. Where training
    rows lacked values, one more feature marks the rows that do. Other columns are ignored.

    Args:
        numeric, categorical, drop: names of columns that are to be taken so, whatever their type.

    Attributes:
        columns_: what each column was taken as, the dropped ones with the reason.
        parts_: how each column that is kept becomes features.
        summary_: for each column name, kind, reason, share missing, mean, scale, frequent categories with their counts.

    Example:
        >>> rows = pa.table({"age": [20, 40, None], "town": ["Bonn", "Rome", "Bonn"]})
        >>> Preparation().fit_transform(rows)
        array([[-1.,  0.,  1.,  0.],
               [ 1.,  0.,  0.,  1.],
               [ 0.,  1.,  1.,  0.]], dtype=float32)
    """

    def __init__(self, *, numeric: Sequence[str] = (), categorical: Sequence[str] = (), drop: Sequence[str] = ()):
        self.numeric = numeric
        self.categorical = categorical
        self.drop = drop

    @classmethod
    def learn(
        cls,
        table: BatchSource,
        train: np.ndarray | None = None,
        *,
        others: Mapping[str, str | None] | None = None,
        numeric: Sequence[str] = (),
        categorical: Sequence[str] = (),
        drop: Sequence[str] = (),
    ) -> Preparation:
        """Learn means, scales and categories in one pass over the training rows.

        Args:
            table: the rows.
            train: bool `[n]`, which rows to learn from; None for all.
            others: columns that are no features, with the reason to say, or None to say nothing of them.
            numeric: as of the class.
            categorical: as of the class.
            drop: as of the class.

        Raises:
            DataError: where a column does not hold what it is taken as, or no column is left.
        """
        new = cls(numeric=numeric, categorical=categorical, drop=drop)
        wanted = understand(table.schema, others=others or {}, numeric=numeric, categorical=categorical, drop=drop)
        tallies = {
            column.name: _tally(column, table.meanings.get(column.name))
            for column in wanted
            if column.kind != "dropped"
        }
        categorical_names = [column.name for column in wanted if column.kind == "categorical"]
        start = 0
        for batch in table.batches(list(tallies), texts=categorical_names) if tallies else ():
            end = start + batch.num_rows
            if train is not None:
                batch = batch.filter(pa.array(train[start:end]))
            start = end
            for name, tally in tallies.items():
                tally.add_(name, batch.column(name))
        new._settle_(wanted, merged(tallies, table.ranks), table)
        return new

    def _settle_(self, wanted: Sequence[Column], tallies: Mapping[str, AnyTally], table: BatchSource) -> None:
        self.columns_: list[Column] = []
        self.summary_: list[dict[str, Any]] = []
        parts: list[ColumnFeatures] = []
        for column in wanted:
            tally = tallies.get(column.name)
            if tally is not None:
                column = tally.judged(column, table.schema.field(column.name).type)
            part = features_from(column, tally, table.meanings.get(column.name))
            parts += [part] if part else []
            self.columns_.append(column)
            self.summary_.append(_summary(column, tally, part))
        if not parts:
            raise DataError(_nothing_left(self.columns_))
        self._take_(parts)

    def _take_(self, parts: Sequence[ColumnFeatures]) -> None:
        self.parts_ = tuple(parts)
        self.feature_names_in_ = np.array(self.inputs, dtype=object)
        self.n_features_in_ = len(parts)

    @property
    def inputs(self) -> list[str]:
        """Names of the columns that are needed."""
        return [part.name for part in self.parts_]

    @property
    def texts(self) -> list[str]:
        """Those of them that are wanted as texts."""
        return [part.name for part in self.parts_ if part.from_texts]

    @property
    def feature_names_out(self) -> list[str]:
        """Names of the features."""
        return [name for part in self.parts_ for name in part.feature_names()]

    @property
    def spans(self) -> list[tuple[str, int, int]]:
        """For each column that is needed its name, its first feature and the feature after its last."""
        ends = np.cumsum([len(part.feature_names()) for part in self.parts_]).tolist()
        return [(part.name, start, end) for part, start, end in zip(self.parts_, [0, *ends[:-1]], ends, strict=True)]

    @property
    def table_columns(self) -> TableColumns:
        """The columns as trees read them, with categories and missing values."""
        spans = self.spans
        columns = [part.table_columns(start) for part, (_, start, _) in zip(self.parts_, spans, strict=True)]
        return TableColumns(tuple(column for own in columns for column in own), spans[-1][2])

    def batches(self, source: BatchSource, more: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Rows of the columns that are needed, as `apply` takes them; and `more` columns, as they are written."""
        for name in self.inputs:
            if name not in source.schema.names:
                raise DataError(f"column {name!r} is missing: the model needs it")
        columns = list(dict.fromkeys((*self.inputs, *more)))
        for batch in source.batches(columns, texts=[*self.texts, *more]):
            for part in self.parts_ if source.missing else ():
                place, array = columns.index(part.name), batch.column(part.name)
                if isinstance(part, Numbers) and is_text(array.type):
                    array = without_numbers(array.cast(pa.string()), source.missing, part.decimal or ".")
                    batch = batch.set_column(place, part.name, array)
            yield batch

    def apply(self, batch: pa.RecordBatch) -> np.ndarray:
        """The features of some rows, float32 `[b, D]`.

        Raises:
            DataError: where a column is missing or cannot be read as what it was in training.
        """
        names = set(batch.schema.names)
        widths = [len(part.feature_names()) for part in self.parts_]
        out = np.empty((sum(widths), batch.num_rows), dtype=np.float32)
        start = 0
        for part, width in zip(self.parts_, widths, strict=True):
            if part.name not in names:
                raise DataError(f"column {part.name!r} is missing: the model needs it")
            part.fill_(batch.column(part.name), out[start : start + width])
            start += width
        return np.ascontiguousarray(out.T)

    # scikit-learn's side

    def fit(self, X: Any, y: Any = None) -> Preparation:
        """Learn from all rows of a DataFrame, Arrow table or batch."""
        learned = self.learn(
            MemoryTable(_as_table(X)), numeric=self.numeric, categorical=self.categorical, drop=self.drop
        )
        self.columns_, self.summary_ = learned.columns_, learned.summary_
        self._take_(learned.parts_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The features of a DataFrame, Arrow table or batch."""
        check_is_fitted(self, "parts_")
        table = _as_table(X)
        table = table.select([name for name in self.inputs if name in table.schema.names])
        if not table.num_rows:
            return np.empty((0, len(self.feature_names_out)), dtype=np.float32)
        return np.concatenate([self.apply(batch) for batch in MemoryTable(table).batches()])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the features, as scikit-learn asks for them."""
        check_is_fitted(self, "parts_")
        return np.array(self.feature_names_out, dtype=object)

    # As data

    def to_dict(self) -> dict[str, Any]:
        """What was learned, as plain data for JSON."""
        return {"columns": [part.to_dict() for part in self.parts_]}

    @classmethod
    def from_dict(cls, given: Any) -> Preparation:
        """A preparation from what `to_dict` gave, of which nothing is taken on trust.

        Raises:
            ModelFileError: where an entry is not what it must be.
        """
        try:
            columns = entries_of("preparation", given, ("columns",))["columns"]
            rule(isinstance(columns, list) and 1 <= len(columns) <= MOST_COLUMNS, "columns", "must be a list", columns)
            parts = [read_features(column) for column in columns]
            names = {part.name for part in parts}
            rule(len(names) == len(parts), "columns", "must have names that differ", len(parts) - len(names))
        except DataError as error:
            raise ModelFileError(str(error)) from None
        new = cls()
        new._take_(parts)
        return new


def _tally(column: Column, meaning: Meaning | None) -> AnyTally:
    if column.kind == "categorical":
        return TextTally()
    if column.kind == "date":
        return DateTally(meaning.form if meaning else None)
    return Tally(decimal=(meaning and meaning.decimal) or ".")


def _nothing_left(columns: Sequence[Column]) -> str:
    """Why nothing is left to learn from, and what to do."""
    if not columns:
        return "no column is left to learn from: the data hold no others than those that options name; add some"
    named = [f"{one_line(column.name, 40)!r} ({column.reason})" for column in columns[:5]]
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    return (
        f"no column is left to learn from, as all were left out: {', '.join(named)}{more}; add columns that differ "
        "between rows and repeat among them, or keep one of these with --numeric or --categorical"
    )


def _summary(column: Column, tally: AnyTally | None, part: ColumnFeatures | None) -> dict[str, Any]:
    learned = isinstance(part, Numbers)
    # Values of a dropped column are nobody's business: it may hold names or addresses.
    counted = tally if isinstance(tally, TextTally) and part is not None and column.kind == "categorical" else None
    facts: dict[str, Any] = {
        "name": column.name,
        "kind": column.kind,
        "reason": column.reason,
        "missing": tally.num_missing / tally.num_rows if tally and tally.num_rows else None,
        "mean": part.mean if learned else None,
        "scale": part.scale if learned else None,
        "categories": [list(item) for item in counted.most_common(MOST_SHOWN)] if counted else None,
    }
    if part is not None and isinstance(tally, (Tally, DateTally)):
        facts |= {"low": tally.low, "high": tally.high}
    if counted:
        frequent = sum(count for _, count in counted.most_common(MOST_CATEGORIES))
        facts["rare"] = 1 - frequent / max(1, counted.num_rows - counted.num_missing)
    return facts


def _as_table(X: Any) -> pa.Table:
    if isinstance(X, pa.Table):
        return X
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    if not hasattr(X, "columns"):
        raise TypeError(f"X must be a pandas DataFrame, or an Arrow table or batch, got {type(X).__name__}")
    for name in X.columns:
        if not isinstance(name, str):
            raise DataError(f"X must have texts as names of its columns, got {name!r}")
    try:
        return pa.Table.from_pandas(X, preserve_index=False)
    except pa.ArrowException as error:
        raise DataError(f"X must have columns of one type each, got {' '.join(map(str, error.args))[:200]}") from None
