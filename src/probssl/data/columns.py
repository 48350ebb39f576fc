"""The columns of a source before they are read, and which of them become features and label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probssl.data.faults import Faults
from probssl.data.wording import did_you_mean, listed, options, plural, quoted
from probssl.errors import InputError

Reader = Callable[[Sequence[int], Sequence[int], Faults], tuple[np.ndarray, list[list[str]]]]
"""Reads the features at the first positions, float64 [n, d], and the cells of the columns at the second ones, which say
something beside the features; notes what is faulty."""

PURPOSES = {
    "label": "to use as the label",
    "ids": "to name rows by",
    "groups": "to group rows by",
    "test": "to test on",
}
"""What columns beside the features are for."""


@dataclass(frozen=True)
class Columns:
    """A source whose columns are known and whose cells are not read yet.

    `named` is False when the names x0, x1, … are ours; `label` is what is taken as the label unless the
    caller names another, and is never a feature; `blank` holds the positions a header left without a name;
    `latents` are what a world made the rows from; `ids` name the rows of a frame.
    """

    where: str
    names: tuple[str, ...]
    read: Reader
    named: bool = True
    unit: str = "row"
    label: str | None = None
    trusted: bool = False
    blank: frozenset[int] = frozenset()
    latents: np.ndarray | None = None
    ids: np.ndarray | None = None


@dataclass(frozen=True)
class Choice:
    """Positions of the features and of the columns beside them, by purpose, and the names the features will bear."""

    features: list[int]
    names: tuple[str, ...]
    beside: dict[str, int]


def generated_names(count: int) -> tuple[str, ...]:
    """x0, x1, …: the names of columns that have none."""
    return tuple(f"x{index}" for index in range(count))


def choose(
    columns: Columns, beside: Mapping[str, str | None], drop: Sequence[str], features: Sequence[str] | None
) -> Choice:
    """Decide what every column is for: `beside` has a name, or None, for each of `PURPOSES`.

    Columns named by `features` are picked in that order.
    """
    names = columns.names
    for name in drop:
        if name not in names:
            raise InputError(_absent(columns, name, "to leave out"))
    purposes = {purpose: name for purpose, name in beside.items() if name is not None}
    for purpose, name in purposes.items():
        if name not in names:
            raise InputError(_absent(columns, name, PURPOSES[purpose]))
        twice = [other for other in purposes if purposes[other] == name and other != purpose]
        if twice or name in drop:
            first, second = (purpose, "left out") if name in drop else (purpose, twice[0])
            raise InputError(f"{columns.where}: column {quoted(name)} is both the {first} and {second}: choose one")
    if columns.label is not None and columns.label not in (*drop, *purposes.values()):
        purposes.setdefault("label", columns.label)
    _refuse_twice(columns, [names.index(name) for name in purposes.values()])

    outside = {*drop, *purposes.values(), columns.label}
    rest = [index for index, name in enumerate(names) if name not in outside]
    if features is None:
        _refuse_twice(columns, rest)
        _refuse_blank(columns, rest)
        chosen, shown = rest, tuple(names[index] for index in rest)
    else:
        dropped = [name for name in features if columns.named and name in drop]
        if dropped:
            raise InputError(f"{columns.where}: column {quoted(dropped[0])} is left out, but the model needs it")
        chosen = pick(columns.where, names, features, named=columns.named, rest=rest)
        _refuse_twice(columns, chosen)
        shown = tuple(features)
    return Choice(chosen, shown, {purpose: names.index(name) for purpose, name in purposes.items()})


def split_names(written: str | Sequence[str], known: Sequence[str]) -> list[str]:
    """Names of columns that may be written as one text, `a,b`; a column whose own name has a comma is found first."""
    entries = [written] if isinstance(written, str) else list(written)
    names: list[str] = []
    for entry in entries:
        names += [entry] if entry in known else [part.strip() for part in entry.split(",") if part.strip()]
    return names


def pick(where: str, names: Sequence[str], wanted: Sequence[str], *, named: bool, rest: Sequence[int]) -> list[int]:
    """Where the wanted columns are.

    Columns with names of their own are found by name. Columns without (`rest`) must be as many as are wanted;
    or, when the model left some of its x0, x1, … out, those it kept are taken.
    """
    position = {name: index for index, name in enumerate(names)}
    absent = [name for name in wanted if name not in position]
    if not named:
        if len(rest) == len(wanted):
            return list(rest)
        if absent or tuple(wanted) == generated_names(len(wanted)):
            raise InputError(f"{where} has {plural(len(rest), 'column')} where the model expects {len(wanted):,}")
    if absent:
        count = f" ({len(absent):,} of its {len(wanted):,} columns are not there)" if len(absent) > 1 else ""
        raise InputError(
            f"{where} has no column {quoted(absent[0])}, which the model needs{count}: "
            f"its columns are {listed(list(names), 8)}"
        )
    return [position[name] for name in wanted]


def _absent(columns: Columns, name: str, purpose: str) -> str:
    return (
        f"{columns.where} has no column {quoted(name)} {purpose}: its columns are {listed(columns.names, 8)}"
        f"{did_you_mean(name, columns.names)}"
    )


def _refuse_twice(columns: Columns, chosen: Sequence[int]) -> None:
    counts: dict[str, list[int]] = {}
    for index, name in enumerate(columns.names):
        counts.setdefault(name, []).append(index)
    twice = [index for index in chosen if len(counts[columns.names[index]]) > 1]
    if twice:
        name = columns.names[twice[0]]
        places = " and ".join(str(index + 1) for index in counts[name][:2])
        total = sum(len(found) > 1 for found in counts.values())
        header = " on line 1" if columns.unit == "line" else ""
        raise InputError(
            f"{columns.where}: the name {quoted(name)}{header} stands for {len(counts[name])} columns, "
            f"the first two being columns {places} ({plural(total, 'repeated name')} in all): "
            "give every column its own name"
        )


def _refuse_blank(columns: Columns, chosen: Sequence[int]) -> None:
    blank = [index for index in chosen if index in columns.blank]
    if blank:
        remedy = options("--drop", [columns.names[index] for index in blank])
        raise InputError(
            f"{columns.where}: column {blank[0] + 1} has no name on line 1, as happens when row numbers are saved "
            f"({plural(len(blank), 'such column')} in all): name it, or leave it out with {remedy}"
        )
