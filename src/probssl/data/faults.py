"""Cells that are not finite numbers: gathered while a source is read, then reported in one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from probssl.data.wording import option, options, quoted
from probssl.errors import InputError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""Cells that say that there is no value, in lower case."""

_REMEDIES = {
    "type": "turn it into numbers",
    "text": "encode it as numbers",
    "missing": "fill them in or remove those rows",
    "infinite": "replace them or remove those rows",
    "label": "fill them in, remove those rows, or go without this label",
}
_NOUNS = {
    "type": ("value that is not a number", "values that are not numbers"),
    "text": ("value that is not a number", "values that are not numbers"),
    "missing": ("missing value", "missing values"),
    "infinite": ("infinite value", "infinite values"),
    "label": ("missing value", "missing values"),
}


@dataclass
class _Fault:
    place: int
    value: str
    count: int


class Faults:
    """What is wrong with the cells of one source, by kind and column.

    `unit` is what a place counts: the line of a text file, or the row of an array (both from 1). `label` is the column
    whose gaps are told apart from those of features. `droppable` says whether leaving a column out is a remedy: it is
    not when a trained model needs it.
    """

    def __init__(self, where: str, unit: str, *, label: str | None = None, droppable: bool = True) -> None:
        self.where = where
        self.unit = unit
        self.label = label
        self.droppable = droppable
        self._found: dict[str, dict[str, _Fault]] = {kind: {} for kind in (*_REMEDIES, "boolean")}

    def add(self, kind: str, column: str, place: int, value: str, count: int = 1) -> None:
        """Note `count` faulty cells of a column, the first of them at `place`."""
        fault = self._found[kind].get(column)
        if fault is None:
            self._found[kind][column] = _Fault(place, value, count)
        else:
            fault.count += count

    def note_missing(self, cells: Sequence[str], places: Sequence[int], name: str) -> None:
        """Note the cells that hold no value, if the column is the label."""
        if name != self.label or all(cell.strip().lower() not in MISSING for cell in set(cells)):
            return
        for cell, place in zip(cells, places, strict=True):
            if cell.strip().lower() in MISSING:
                self.add("label", name, place, cell)

    def settle_booleans(self, rows: int) -> None:
        """A column of true and false is 0 and 1; one that mixes them with numbers is text."""
        for column, fault in self._found["boolean"].items():
            missing = self._found["missing"].get(column)
            if fault.count + (missing.count if missing else 0) < rows:
                self.add("text", column, fault.place, fault.value, fault.count)

    def raise_any(self) -> None:
        """Raise an `InputError` about the worst kind of fault, if there is any."""
        for kind, remedy in _REMEDIES.items():
            if self._found[kind]:
                raise InputError(self._sentence(kind, remedy))

    def _sentence(self, kind: str, remedy: str) -> str:
        columns = self._found[kind]
        column, fault = min(columns.items(), key=lambda item: item[1].place)
        place = f"on line {fault.place}" if self.unit == "line" else f"in row {fault.place}"
        many = f"{fault.count:,} {_NOUNS[kind][fault.count > 1]}, the first {quoted(fault.value)} {place}"
        if kind == "text" and re.fullmatch(r"[+-]?\d+,\d+", fault.value.strip()):
            remedy = "write decimals with a point"
        if kind == "label":
            return f"{self.where}: label column {quoted(column)} has {many}: {remedy}"
        if len(columns) > 1:
            total = sum(other.count for other in columns.values())
            many += f" ({total:,} in all, in {len(columns):,} columns)"
        if self.droppable:
            unusable = list(
                dict.fromkeys(name for other in _REMEDIES if other != "label" for name in self._found[other])
            )
            out = "the column out" if len(unusable) == 1 else f"out all {len(unusable):,} unusable columns"
            remedy += f", or leave {out} with {options('--drop', unusable)}"
            if kind == "text":
                remedy += f" (a class is named by {option('--label', column)})"
        return f"{self.where}: column {quoted(column)} has {many}: {remedy}"
