"""A table: what a source becomes once it has been read and found whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from probssl.data.columns import generated_names, pick
from probssl.data.dataset import Dataset, Rows, no_such_test, test_mask
from probssl.data.directory import expanded
from probssl.data.files import arrow_of
from probssl.data.kinds import typed
from probssl.data.wording import did_you_mean, plural, quoted
from probssl.errors import InputError
from probssl.layout import Column, Layout


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

    def read_alike(self, source: str, **options: Any) -> Dataset:
        """A second file, in the columns of this table."""
        from probssl.data.loading import load_table
        from probssl.data.names import is_name

        if not is_name(source) and not expanded(source).exists():
            raise no_such_test(self.source, source, self.feature_names, did_you_mean(source, self.feature_names))
        kinds = {one.name: "category" if one.classes else "number" for one in self.targets}
        return load_table(source, label=list(kinds), kinds=kinds, layout=self.layout, **options)

    def _joined(self, other: Dataset) -> Table:
        if not isinstance(other, Table):
            return super()._joined(other)
        other = in_layout(other, self.layout)
        pairs = [_together(*both) for both in zip(self.columns, other.columns, strict=True)]
        mine, theirs = (
            replace(table, columns=tuple(pairs), features=_recoded(table, pairs)) for table in (self, other)
        )
        return super(Table, mine)._joined(theirs)


def in_layout(table: Table, layout: Layout) -> Table:
    """The table with the columns of a layout, in its order and kinds: those that a trained model expects.

    A table whose columns are called x0, x1, … because they have no names needs only the right number of them. Numbers
    are taken for names of levels where the layout has levels.
    """
    named = table.feature_names != generated_names(table.n_features)
    places = pick(table.source, table.feature_names, layout.names, named=named, rest=range(table.n_features))
    columns, values, wrong = [], table.features[:, places], []
    for place, (there, wanted) in enumerate(zip(places, layout.columns, strict=True)):
        column = table.columns[there]
        if wanted.coded and not column.coded:
            found = typed(wanted.name, arrow_of(values[:, place]), wanted.kind)
            if not place or values is table.features:
                values = values.copy()
            values[:, place] = found.values
            column = found.column
        elif column.coded and wanted.kind == "number" and column.kind == "yes/no":
            column = replace(column, kind="number", levels=())
        elif column.coded != wanted.coded or (wanted.kind == "date") != (column.kind == "date"):
            wrong.append(f"column {quoted(column.name)} is of kind {column.kind} and not {wanted.kind}")
            continue
        columns.append(replace(column, name=wanted.name, kind=wanted.kind))
    if wrong:
        raise InputError(f"{table.source}: {'; '.join(wrong)}: read it with the kinds that the model expects")
    return replace(table, features=values, columns=tuple(columns))


def _together(one: Column, other: Column) -> Column:
    """A column with the levels and gaps of both."""
    new = tuple(level for level in other.levels if level not in one.levels)
    return replace(one, levels=one.levels + new, gaps=one.gaps or other.gaps)


def _recoded(table: Table, columns: Sequence[Column]) -> np.ndarray:
    """Features with the codes of these columns, which have more levels."""
    values = table.features
    for place, (before, after) in enumerate(zip(table.columns, columns, strict=True)):
        if before.levels != after.levels[: len(before.levels)]:
            values = values.copy() if values is table.features else values
            rank = {level: code for code, level in enumerate(after.levels)}
            codes = np.array([*(rank[level] for level in before.levels), np.nan])
            values[:, place] = codes[np.nan_to_num(values[:, place], nan=-1).astype(np.int64)]
    return values


def check_trainable(table: Table) -> None:
    """Raise `InputError` when nothing can be learnt from the table: it needs two rows, and a feature that varies."""
    if table.n_features < 1:
        raise InputError(f"{table.source} has no feature left to train on: leave out fewer columns")
    if len(table) < 2:
        raise InputError(f"{table.source} has {plural(len(table), 'row')}, and training needs at least 2: add data")
    if (table.features == table.features[0]).all():
        raise InputError(f"all rows of {table.source} are the same: there is nothing to learn from them")
