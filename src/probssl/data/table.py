"""A table: what a source becomes once it has been read and found whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from probssl.data.columns import generated_names, pick
from probssl.data.dataset import Dataset, Rows, no_such_test, test_mask
from probssl.data.directory import expanded
from probssl.data.wording import did_you_mean, listed, options, plural, quoted
from probssl.errors import InputError
from probssl.layout import Column, Layout

IDENTIFIERS = 1e8, 2.0**64
"""Whole numbers between these, hardly two of them the same, are taken for identifiers."""


@dataclass(frozen=True, eq=False)
class Table(Rows):
    """Observations in rows, features in columns, and targets beside them where there are labels."""

    features: np.ndarray = field(repr=False)
    """float64 [n, d]: numbers, codes of levels, NaN for gaps."""
    columns: tuple[Column, ...]
    """What each column holds; a name stands for a column of numbers."""
    trusted: bool = field(default=False, kw_only=True)
    """A published data set, used as it was published: constant columns included."""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """What a reader should know of the columns, a sentence each."""

    @property
    def values_field(self) -> Literal["features"]:
        """The name of the field that holds the rows."""
        return "features"

    def __post_init__(self) -> None:
        columns = tuple(Column(column) if isinstance(column, str) else column for column in self.columns)
        object.__setattr__(self, "columns", columns)
        if self.features.ndim != 2 or self.features.shape[1] != len(columns):
            raise InputError(
                f"{self.source} has {plural(len(columns), 'column')} for features of shape {self.features.shape}"
            )
        super().__post_init__()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.layout.names

    @property
    def n_features(self) -> int:
        """Number of feature columns, d."""
        return self.features.shape[1]

    @cached_property
    def layout(self) -> Layout:
        """What one row is."""
        kind: Literal["world", "table"] = "world" if self.source.startswith("world:") else "table"
        return Layout(kind, (self.n_features,), self.columns)

    def with_test(self, test: float | str | os.PathLike[str] | Dataset | None, seed: int = 0) -> Table:
        if not isinstance(test, str) or test not in self.feature_names:
            return super().with_test(test, seed)
        place = self.feature_names.index(test)
        said, levels = self.features[:, place], self.columns[place].levels
        cells = [levels[int(code)] if levels and code >= 0 else f"{code:g}" for code in said]
        columns = (*self.columns[:place], *self.columns[place + 1 :])
        mask = test_mask(cells, test, self.source)
        return replace(self, features=np.delete(self.features, place, 1), columns=columns, test=mask)

    with_test.__doc__ = Rows.with_test.__doc__

    def _read_alike(self, source: str) -> Dataset:
        from probssl.data.loading import load_table
        from probssl.data.names import is_name

        if not is_name(source) and not expanded(source).exists():
            raise no_such_test(self.source, source, self.feature_names, did_you_mean(source, self.feature_names))
        return load_table(source, label=self.label_name, features=self.feature_names)

    def _matched(self, other: Dataset) -> Table:
        return super()._matched(select_features(other, self.feature_names) if isinstance(other, Table) else other)


def select_features(table: Table, names: Sequence[str]) -> Table:
    """The table with these feature columns in this order: the columns a trained model expects.

    A table whose columns are called x0, x1, … because they have no names needs only the right number of them.
    """
    named = table.feature_names != generated_names(table.n_features)
    chosen = pick(table.source, table.feature_names, names, named=named, rest=range(table.n_features))
    columns = tuple(replace(table.columns[place], name=name) for place, name in zip(chosen, names, strict=True))
    return replace(table, features=table.features[:, chosen], columns=columns)


def check_trainable(table: Table, *, keep_constant: bool = False) -> None:
    """Raise `InputError` when nothing can be learnt from the table.

    It needs two rows and a feature. A constant column tells observations apart in no way and is most often a
    mistake, so it is refused unless `keep_constant` is set or the table is a published data set.
    """
    if table.n_features < 1:
        raise InputError(f"{table.source} has no feature left to train on: leave out fewer columns")
    if len(table) < 2:
        raise InputError(f"{table.source} has {plural(len(table), 'row')}, and training needs at least 2: add data")
    if keep_constant or table.trusted:
        return
    constant = np.flatnonzero(table.features.min(axis=0) == table.features.max(axis=0))
    if constant.size:
        names = [table.feature_names[index] for index in constant]
        raise InputError(
            f"{table.source} has {plural(len(names), 'column')} with one and the same value in every row, "
            f"{listed(names)}: leave such columns out with {options('--drop', names)}, "
            "or keep them with --keep-constant"
        )


def identifier_notes(features: np.ndarray, names: Sequence[str]) -> tuple[str, ...]:
    """A sentence about each column whose values are large whole numbers, hardly two of them the same."""
    least, most = IDENTIFIERS
    found = []
    for place, name in enumerate(names):
        values = features[:, place]
        if len(values) < 2 or (values[:1000] % 1).any() or np.abs(values).min() < least:
            continue
        if values.max() < most and not (values % 1).any() and len(np.unique(values)) > 0.95 * len(values):
            found.append(
                f"column {quoted(name)} looks like an identifier (whole numbers up to {values.max():.3g}, hardly two "
                f"the same) and is used as a feature: leave it out with {options('--drop', [name])}"
            )
    return tuple(found)
