"""What a table holds, column by column, and what is done with each: for a person to look at before training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from probssl.data.dataset import Target
from probssl.data.kinds import Typed, Use, shortest
from probssl.data.loading import Asked, Names, chosen, held_by, refuse_faults, understand
from probssl.errors import InputError

EXAMPLES = 3
"""Values shown of a column."""


@dataclass(frozen=True)
class Described:
    """One column of a source."""

    name: str
    kind: Use
    use: str
    """feature, label, ids, groups or left out."""
    gaps: int
    levels: int | None
    """How many there are; None of numbers and dates."""
    range: tuple[str, str] | None
    """Least and greatest, of numbers and dates."""
    examples: tuple[str, ...]
    """Values: the most frequent levels, or those of the first rows."""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def describe(
    source: Any,
    *,
    label: str | list[str] | None = None,
    drop: Names = (),
    kinds: dict[str, str] | None = None,
    missing: Names = (),
    encoding: str | None = None,
) -> tuple[int, list[Described]]:
    """The number of rows of a table, and what `load` with the same arguments makes of its columns."""
    from probssl.data.columns import Columns

    asked = Asked.of(label, drop, kinds, missing, encoding)
    columns = held_by(source, asked, 0, None).values
    if not isinstance(columns, Columns):
        raise InputError(f"{source} holds images, which have no columns: describe is for tables")
    choice, named = chosen(columns, asked)
    found = understand(columns, asked, choice, named)
    every = list(found.features)
    refuse_faults(columns.where, every, own=False)
    features = {one.name: _of_column(one) for one in every}
    targets = {one.name: _of_target(one) for one in found.targets}
    rows = len((every or found.targets)[0].values)
    shown = {**features, **targets}
    return rows, [shown[name] for name in columns.names if name in shown]


def _of_column(one: Typed) -> Described:
    use = "left out" if one.kind in ("id", "constant") else "feature"
    return _summary(one.name, one.kind, use, one.values, one.levels, one.notes)


def _of_target(one: Target) -> Described:
    return _summary(one.name, "category" if one.classes else "number", "label", one.values, one.classes)


def _summary(
    name: str, kind: Use, use: str, values: np.ndarray, levels: tuple[str, ...], notes: tuple[str, ...] = ()
) -> Described:
    known = values[~np.isnan(values)]
    gaps = len(values) - len(known)
    if levels:
        counts = np.bincount(known.astype(np.int64), minlength=len(levels))
        examples = tuple(levels[code] for code in np.argsort(-counts, kind="stable")[:EXAMPLES])
        return Described(name, kind, use, gaps, len(levels), None, examples, notes)
    if kind == "constant" or not len(known):
        return Described(name, kind, use, gaps, None, None, (), notes)
    show = _date if kind == "date" else shortest if not (known[:1000] % 1).any() else "{:.4g}".format
    first = tuple(dict.fromkeys(show(value) for value in known[:50].tolist()))[:EXAMPLES]
    ends = (show(float(known.min())), show(float(known.max())))
    return Described(name, kind, use, gaps, None, ends, first, notes)


def _date(seconds: float) -> str:
    text = str(np.datetime64(math.floor(seconds), "s"))
    return text.removesuffix("T00:00:00").replace("T", " ")
