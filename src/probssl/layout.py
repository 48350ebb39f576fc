"""What one row is: its kind and shape and, of a table, its columns."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from probssl.errors import InputError

Kind = Literal["table", "images", "series", "world"]

ColumnKind = Literal["number", "category", "yes/no", "date", "text"]
"""What a column's values are. As an encoder takes a table, there are numbers and categories alone."""


@dataclass(frozen=True)
class Column:
    """A column of a table, held as float64: a number, seconds since 1970 of a date, else a place in `levels`.

    A gap is NaN, in a column of any kind.
    """

    name: str
    kind: ColumnKind = "number"
    levels: tuple[str, ...] = ()
    """Of a category, of yes/no, and of a text its distinct texts."""
    part_of: str = ""
    """Of columns that were made of one and go together (the trend and the cycles of a date), the name of that one."""
    gaps: bool = False
    """Whether gaps are to be told from values: rows for training have some here, or the pairing makes some."""

    def __post_init__(self) -> None:
        if self.coded != bool(self.levels):
            raise InputError(f"the column {self.name!r} of kind {self.kind} has {len(self.levels)} levels")

    @property
    def coded(self) -> bool:
        """Whether its values are codes of levels."""
        return self.kind not in ("number", "date")


@dataclass(frozen=True)
class Layout:
    """What one row is: its kind and shape and, of a table, its columns, whose places are those of the batch."""

    kind: Kind
    shape: tuple[int, ...]
    """(columns,) of a table, (channels, height, width) of an image, (channels, time) of a series."""
    columns: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        if self.columns and self.shape != (len(self.columns),):
            raise InputError(f"a layout with names for {len(self.columns)} columns cannot have the shape {self.shape}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the columns, in their order."""
        return tuple(column.name for column in self.columns)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Places of the columns that hold numbers."""
        return tuple(place for place, column in enumerate(self.columns) if not column.coded)

    @property
    def coded(self) -> tuple[int, ...]:
        """Places of the columns that hold codes of levels."""
        return tuple(place for place, column in enumerate(self.columns) if column.coded)

    @property
    def plain(self) -> bool:
        """Whether rows are finite numbers alone, which a network takes as they are."""
        return not any(column.coded or column.gaps for column in self.columns)

    @property
    def width(self) -> int:
        """How many numbers a row is with an indicator for every level and every gap."""
        return sum(len(column.levels) or 1 for column in self.columns) + len(self.gaps) or math.prod(self.shape)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Places of columns that go together, which follow each other; most columns are alone."""
        keyed = itertools.groupby(range(len(self.columns)), lambda place: self.columns[place].part_of or place)
        return tuple(tuple(places) for _, places in keyed)

    @property
    def gaps(self) -> tuple[tuple[int, ...], ...]:
        """The groups that may be missing, each as a whole."""
        return tuple(places for places in self.groups if any(self.columns[place].gaps for place in places))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"kind": self.kind, "shape": list(self.shape), "columns": plain_columns(self.columns)}


def plain_columns(columns: tuple[Column, ...]) -> list[dict[str, Any]]:
    """Columns as plain values for JSON, without what is as usual."""
    usual = Column("")
    return [
        {
            field.name: list(value) if isinstance(value, tuple) else value
            for field in dataclasses.fields(column)
            if (value := getattr(column, field.name)) != getattr(usual, field.name)
        }
        for column in columns
    ]
