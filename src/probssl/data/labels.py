"""Targets: a column, or values beside the rows, as classes or numbers; what is not known is NaN."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from probssl.data.dataset import Target
from probssl.data.kinds import MISSING, Use, typed
from probssl.data.wording import option, plural, quoted
from probssl.errors import InputError

if TYPE_CHECKING:
    import pyarrow

MOST_CLASSES = 50
"""Different numbers up to which they may be classes; text may have as many, or one for every two rows."""
SURELY_CLASSES = 10
"""Different numbers up to which they are classes in any case."""


def target(
    name: str,
    cells: pyarrow.ChunkedArray,
    where: str,
    *,
    asked: Use | None = None,
    codes: bool = False,
    missing: Collection[str] = MISSING,
    comma: bool = False,
) -> Target:
    """A target from a column.

    Numbers are classes where they are few: up to `SURELY_CLASSES` different ones, or up to `MOST_CLASSES` whole ones of
    which most repeat. `codes` says that whole numbers are classes however many there are, as in arrays of labels. A
    person may say "number", or "category" (or "yes/no").
    """
    if asked not in (None, "number", "category", "yes/no"):
        raise InputError(f"{where}: a label is of kind number or category, and {quoted(name)} cannot be {asked}")
    classes = asked in ("category", "yes/no")
    found = typed(name, cells, "number" if asked == "number" else None if asked is None else "category",
                  missing=missing, comma=comma)  # fmt: skip
    if found.fault:
        raise InputError(f"{where}: the label {quoted(name)} should be a number, and {found.fault}")
    known = int(np.isfinite(found.values).sum())
    if not known and found.kind != "constant":
        raise InputError(f"{where}: nothing is known of the label {quoted(name)}: every cell is a gap")
    if asked == "number" or (asked is None and found.kind in ("number", "date") and _continuous(found.values, codes)):
        return Target(name, found.values)
    if not classes:
        found = typed(name, cells, "category", missing=missing)
        known = int(np.isfinite(found.values).sum())
        if not known:
            raise InputError(f"{where}: nothing is known of the label {quoted(name)}: every cell is a gap")
    if len(found.levels) > max(MOST_CLASSES, known // 2) and not classes:
        raise InputError(
            f"{where}: label column {quoted(name)} has {len(found.levels):,} distinct values in "
            f"{plural(known, 'row')}, so it looks like an identifier rather than a class: name another column, or "
            f"insist with {option('--kind', f'{name}=category')}"
        )
    return Target(name, found.values, found.levels)


def _continuous(values: np.ndarray, codes: bool) -> bool:
    """Whether numbers are measurements rather than names of classes."""
    known = values[~np.isnan(values)]
    distinct, fractional = len(np.unique(known)), bool((known % 1).any())
    if codes and not fractional:
        return distinct > max(MOST_CLASSES, len(known) // 2)
    few = distinct <= SURELY_CLASSES or (distinct <= MOST_CLASSES and not fractional and distinct <= len(known) / 2)
    return not few
