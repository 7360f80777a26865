"""Prepare: columns of a table become float32 features, by means, scales and categories of the training rows alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from aimfor._base.errors import DataError, ModelFileError
from aimfor.tables._columns import Column, Tally, TextTally, numbers, texts, understand
from aimfor.tables._table import BatchSource, MemoryTable

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

MOST_CATEGORIES = 64  # of a column, that get a feature of their own
MOST_SHOWN = 10  # of a column, in a summary
MOST_COLUMNS = 1_000_000  # of a stored preparation


@dataclass(frozen=True)
class Numbers:
    """A numeric or boolean column: (x - mean) / scale or x itself, and whether it is missing.

    Attributes:
        name: of the column.
        kind: "numeric" or "boolean".
        mean: of the training rows; stands where a value is missing.
        scale: standard deviation of the training rows; 1 for booleans, which are not centred either.
        missing: training rows lacked values, so there is a second feature, 1 where the value is missing.
    """

    name: str
    kind: str
    mean: float
    scale: float
    missing: bool

    def feature_names(self) -> list[str]:
        """One or two names."""
        return [self.name, f"{self.name} is missing"][: 1 + self.missing]

    def fill_(self, array: pa.Array, out: np.ndarray) -> None:
        """Write the features of the rows, `[1 or 2, b]`."""
        values = numbers(self.name, array)
        absent = np.isnan(values)
        numeric = self.kind == "numeric"
        with np.errstate(over="ignore", invalid="ignore"):  # looked at below
            out[0] = (values - self.mean) / self.scale if numeric else values
        if absent.any():
            out[0, absent] = 0 if numeric else self.mean
        finite = np.isfinite(out[0])
        if not finite.all():
            raise DataError(f"column {self.name!r} must hold finite numbers of usual size, got {values[~finite][0]}")
        if self.missing:
            out[1] = absent


@dataclass(frozen=True)
class Categories:
    """A categorical column: one feature for each frequent category, all 0 where it is another.

    Attributes:
        name: of the column.
        kind: "categorical".
        categories: the most frequent texts of the training rows, at most `MOST_CATEGORIES`.
        missing: training rows lacked values, so being missing is a category of its own.
    """

    name: str
    kind: str
    categories: tuple[str, ...]
    missing: bool

    def feature_names(self) -> list[str]:
        """One name for each category."""
        names = [f"{self.name} = {category}" for category in self.categories]
        return [*names, f"{self.name} is missing"] if self.missing else names

    def fill_(self, array: pa.Array, out: np.ndarray) -> None:
        """Write the features of the rows, `[number of features, b]`."""
        array = texts(self.name, array)
        out[:] = 0
        index = pc.index_in(array, value_set=pa.array(self.categories, pa.string()), skip_nulls=True)
        found = pc.fill_null(index, -1).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(found >= 0)
        out[found[rows], rows] = 1
        if self.missing:
            out[-1] = array.is_null().to_numpy(zero_copy_only=False)


class Preparation(TransformerMixin, BaseEstimator):
    """Turns columns of numbers, booleans and texts into float32 features, for rows of any order of columns.

    Numbers are centred and scaled; a missing one becomes the mean. Of the texts of a column the 64 most frequent have a
    feature each, which is 1 or 0; a text that is rarer or was never seen has 0 in all of them. Where training rows
    lacked values, one more feature tells which rows do. Columns beyond those that were learned are not looked at.

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
            column.name: TextTally() if column.kind == "categorical" else Tally()
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
        new._settle_(wanted, tallies, table.schema)
        return new

    def _settle_(self, wanted: Sequence[Column], tallies: Mapping[str, Tally | TextTally], schema: pa.Schema) -> None:
        self.columns_: list[Column] = []
        self.summary_: list[dict[str, Any]] = []
        parts: list[Numbers | Categories] = []
        for column in wanted:
            tally = tallies.get(column.name)
            if tally is not None:
                column = tally.judged(column, schema.field(column.name).type)
            part = _part(column, tally)
            parts += [part] if part else []
            self.columns_.append(column)
            self.summary_.append(_summary(column, tally, part))
        if not parts:
            raise DataError("the data must have a column to learn from, got none that differs between training rows")
        self._take_(parts)

    def _take_(self, parts: Sequence[Numbers | Categories]) -> None:
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
        return [part.name for part in self.parts_ if part.kind == "categorical"]

    @property
    def feature_names_out(self) -> list[str]:
        """Names of the features."""
        return [name for part in self.parts_ for name in part.feature_names()]

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
                raise DataError(f"column {part.name!r} is missing, the model needs it")
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
        return {"columns": [asdict(part) | _plain(part) for part in self.parts_]}

    @classmethod
    def from_dict(cls, given: Any) -> Preparation:
        """A preparation from what `to_dict` gave, of which nothing is taken on trust.

        Raises:
            ModelFileError: where an entry is not what it must be.
        """
        try:
            columns = _entries("preparation", given, ("columns",))["columns"]
            _rule(isinstance(columns, list) and 1 <= len(columns) <= MOST_COLUMNS, "columns", "must be a list", columns)
            parts = [_read_part(column) for column in columns]
            names = {part.name for part in parts}
            _rule(len(names) == len(parts), "columns", "must have names that differ", len(parts) - len(names))
        except DataError as error:
            raise ModelFileError(str(error)) from None
        new = cls()
        new._take_(parts)
        return new


def _part(column: Column, tally: Tally | TextTally | None) -> Numbers | Categories | None:
    if tally is None or column.kind == "dropped":
        return None
    missing = tally.num_missing > 0
    if isinstance(tally, TextTally):
        categories = tuple(text for text, _ in tally.most_common(MOST_CATEGORIES))
        return Categories(column.name, "categorical", categories, missing)
    scale = tally.scale(column.name) if column.kind == "numeric" else 1.0
    return Numbers(column.name, column.kind, tally.mean, scale, missing)


def _summary(column: Column, tally: Tally | TextTally | None, part: Numbers | Categories | None) -> dict[str, Any]:
    shown = isinstance(part, Numbers)
    return {
        "name": column.name,
        "kind": column.kind,
        "reason": column.reason,
        "missing": tally.num_missing / tally.num_rows if tally and tally.num_rows else None,
        "mean": part.mean if shown else None,
        "scale": part.scale if shown else None,
        "categories": [list(item) for item in tally.most_common(MOST_SHOWN)] if isinstance(tally, TextTally) else None,
    }


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


# Reading a stored preparation


def _plain(part: Numbers | Categories) -> dict[str, Any]:
    return {"categories": list(part.categories)} if isinstance(part, Categories) else {}


def _read_part(given: Any) -> Numbers | Categories:
    kind = given.get("kind") if isinstance(given, Mapping) else None
    if kind == "categorical":
        entries = _entries("a column", given, ("name", "kind", "categories", "missing"))
        categories = entries["categories"]
        right = isinstance(categories, list) and len(categories) <= MOST_CATEGORIES
        _rule(right, "categories", f"must be a list of at most {MOST_CATEGORIES}", categories)
        found = tuple(_text("a category", category) for category in categories)
        _rule(len(set(found)) == len(found), "categories", "must differ", categories)
        return Categories(_text("name", entries["name"]), kind, found, _flag(entries["missing"]))
    _rule(kind in ("numeric", "boolean"), "kind", "must be numeric, boolean or categorical", kind)
    entries = _entries("a column", given, ("name", "kind", "mean", "scale", "missing"))
    mean, scale = _number("mean", entries["mean"]), _number("scale", entries["scale"])
    _rule(scale > 0, "scale", "must be above 0", scale)
    _rule(kind == "numeric" or (scale == 1 and 0 <= mean <= 1), "a boolean column", "must have scale 1", given)
    return Numbers(_text("name", entries["name"]), str(kind), mean, scale, _flag(entries["missing"]))


def _rule(holds: bool, name: str, must: str, value: Any) -> None:
    if not holds:
        raise DataError(f"{name} {must}, got {repr(value)[:50]}")


def _entries(name: str, given: Any, keys: Sequence[str]) -> Mapping[str, Any]:
    right = isinstance(given, Mapping) and set(given) == set(keys)
    _rule(right, name, f"must be an object with {', '.join(keys)}", given)
    return given


def _number(name: str, value: Any) -> float:
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1.7e308
    _rule(right and math.isfinite(value), name, "must be a finite number", value)
    return float(value)


def _flag(value: Any) -> bool:
    _rule(isinstance(value, bool), "missing", "must be true or false", value)
    return value


def _text(name: str, value: Any) -> str:
    right = isinstance(value, str) and len(value) <= 2**20
    # JSON can hold halves of characters, which no file of rows has.
    _rule(right and not any("\ud800" <= char <= "\udfff" for char in value), name, "must be a text", value)
    return value
