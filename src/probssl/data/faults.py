"""Cells that are not finite numbers: gathered while a source is read, then reported in one sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probssl.data.wording import option, plural, quoted
from probssl.errors import InputError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""Cells that say that there is no value, in lower case."""

_REMEDIES = {
    "text": "encode it as numbers",
    "missing": "fill them in or remove those rows",
    "infinite": "replace them or remove those rows",
    "label": "fill them in, remove those rows, or go without this label",
}


@dataclass
class _Fault:
    place: int
    value: str
    count: int


class Faults:
    """What is wrong with the cells of one source, by kind and column.

    `unit` is what a place counts: the line of a text file, or the row of an array (both from 1).
    `droppable` says whether leaving a column out is a remedy: it is not when a trained model needs it.
    """

    def __init__(self, where: str, unit: str, *, droppable: bool = True) -> None:
        self.where = where
        self.unit = unit
        self.droppable = droppable
        self._found: dict[str, dict[str, _Fault]] = {kind: {} for kind in (*_REMEDIES, "boolean")}

    def add(self, kind: str, column: str, place: int, value: str, count: int = 1) -> None:
        """Note `count` faulty cells of a column, the first of them at `place`."""
        fault = self._found[kind].get(column)
        if fault is None:
            self._found[kind][column] = _Fault(place, value, count)
        else:
            fault.count += count

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
        first = f"the first {quoted(fault.value)} on {self.unit} {fault.place}"
        if self.unit == "row":
            first = f"the first {quoted(fault.value)} in row {fault.place}"
        noun = {"text": "value that is not a number", "infinite": "infinite value"}.get(kind, "missing value")
        many = plural(fault.count, noun)
        if kind == "text" and fault.count > 1:
            many = f"{fault.count:,} values that are not numbers"
        others = ""
        if len(columns) > 1:
            total = sum(other.count for other in columns.values())
            others = f" ({total:,} in all, in {len(columns):,} columns)"
        if kind == "text" and re.fullmatch(r"[+-]?\d+,\d+", fault.value.strip()):
            remedy = "write decimals with a point"
        if kind != "label" and self.droppable:
            remedy += f", or leave the column out with {option('--drop', column)}"
            if kind == "text":
                remedy += f" (a class is named by {option('--label', column)})"
        role = "label column" if kind == "label" else "column"
        return f"{self.where}: {role} {quoted(column)} has {many}, {first}{others}: {remedy}"
