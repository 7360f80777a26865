"""Which features of a row were one column of a table, so that trees can read the column itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aimfor._base import checks
from aimfor._base.checks import rule

if TYPE_CHECKING:
    from aimfor.model_kinds._kind import OnnxGraph


class TableColumn(NamedTuple):
    """A number or a category among the features of a row.

    Attributes:
        first: the feature with the number, or the first of those that code the category.
        categories: how many features code the category, of which one is 1 and the others are 0; 0 for a number.
        missing: the feature that is 1 where the number is missing; -1 where there is none.
    """

    first: int
    categories: int = 0
    missing: int = -1


@dataclass(frozen=True)
class TableColumns:
    """The columns that the features of a row came from.

    Linear models and networks need a category as several features of 0 and 1, and a number in place of a missing one.
    Trees split by sets of categories and send missing values either way, so they read the columns.

    Attributes:
        columns: in the order of their features.
        num_features: D.
    """

    columns: tuple[TableColumn, ...]
    num_features: int

    @classmethod
    def read(cls, entries: Any, num_features: int) -> TableColumns:
        """The columns that `to_list` gave; nothing in them is taken on trust.

        Raises:
            ValueError: in one sentence.
        """
        checks.whole_number("num_features", num_features, at_least=1)
        right = isinstance(entries, list) and 0 < len(entries) <= num_features
        rule(right, "columns", f"must be a list of at most {num_features}", repr(entries)[:50])
        for entry in entries:
            whole = isinstance(entry, list) and len(entry) == len(TableColumn._fields)
            rule(whole and all(type(one) is int for one in entry), "a column", "must be 3 numbers", repr(entry)[:50])
        found = cls(tuple(TableColumn(*entry) for entry in entries), num_features)
        for column in found.columns:
            inside = column.first >= 0 and 0 <= column.categories <= num_features - column.first
            inside = inside and column.first < num_features and -1 <= column.missing < num_features
            rule(inside, "a column", f"must lie within {num_features} features", list(column))
        return found

    def to_list(self) -> list[list[int]]:
        """Plain data for JSON."""
        return [list(column) for column in self.columns]

    @property
    def categorical(self) -> list[int]:
        """The numbers of the columns that are categories."""
        return [number for number, column in enumerate(self.columns) if column.categories]

    def of_features(self, values: np.ndarray) -> np.ndarray:
        """Numbers of the columns `[C]` at the first feature of each, `[D]`; 0 elsewhere."""
        found = np.zeros(self.num_features)
        np.add.at(found, [column.first for column in self.columns], values)
        return found

    def apply(self, features: Any) -> np.ndarray:
        """The columns `[n, C]` of some rows: numbers and codes of categories, NaN where one is missing or unknown.

        Args:
            features: `[n, D]`, an array or SciPy CSR.
        """
        features = features.toarray() if hasattr(features, "tocsr") else features
        found = features[:, [column.first for column in self.columns]]
        for number, (first, categories, missing) in enumerate(self.columns):
            if categories:
                block = features[:, first : first + categories]
                found[:, number] = np.where(block.max(axis=1) > 0, block.argmax(axis=1), np.nan)
            elif missing >= 0:
                found[features[:, missing] > 0, number] = np.nan
        return found

    def to_onnx(self, graph: OnnxGraph, features: str) -> str:
        """Add the nodes of `apply`.

        Args:
            graph: to add nodes to.
            features: name of the features, double `[n, D]`.

        Returns:
            Name of the columns, double `[n, C]`.
        """
        nan, zero = graph.constant(np.nan), graph.constant(0.0)
        blocks: list[str] = []
        order: list[int] = []

        def gather(chosen: Sequence[int]) -> str:
            return graph("Gather", features, graph.constant(list(chosen), np.int64), axis=1)

        numbers = [number for number, column in enumerate(self.columns) if not column.categories]
        if numbers:
            chosen = [self.columns[number] for number in numbers]
            values = gather([column.first for column in chosen])
            marks = gather([max(column.missing, 0) for column in chosen])
            marked = graph.constant([[float(column.missing >= 0) for column in chosen]])
            absent = graph("Greater", graph("Mul", marks, marked), zero)
            blocks.append(graph("Where", absent, nan, values))
            order += numbers
        for number in self.categorical:
            first, categories, _ = self.columns[number]
            one_hot = gather(range(first, first + categories))
            codes = np.stack([np.arange(categories), np.ones(categories)], axis=1)
            both = graph("MatMul", one_hot, graph.constant(codes))
            code, known = (graph("Gather", both, graph.constant([one], np.int64), axis=1) for one in (0, 1))
            blocks.append(graph("Where", graph("Greater", known, zero), code, nan))
            order.append(number)
        together = graph("Concat", *blocks, axis=1) if len(blocks) > 1 else blocks[0]
        return graph("Gather", together, graph.constant(np.argsort(order), np.int64), axis=1)
