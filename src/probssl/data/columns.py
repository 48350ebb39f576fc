"""The columns of a source before they are read, and which of them become features and targets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probssl.data.wording import did_you_mean, listed, plural, quoted
from probssl.errors import InputError

if TYPE_CHECKING:
    import pyarrow

Reader = Callable[[Sequence[int], Collection[int]], "list[pyarrow.ChunkedArray]"]
"""Reads the columns at these positions; those of the second ones as they are written, where they are written."""

PURPOSES = {
    "label": "to use as the label",
    "ids": "to name rows by",
    "groups": "to group rows by",
    "test": "to test on",
}
"""What columns beside the features are for."""

ADVICE = "leave out columns, or split the file"
"""Where there is too little memory."""


@dataclass(frozen=True)
class Columns:
    """A source whose columns are known and whose cells are not read yet.

    `named` is False when the names x0, x1, … are ours; `label` is what is taken as the label unless the
    caller names another, and is never a feature; `latents` are what a world made the rows from; `ids` name the rows of
    a frame; `numbers` gives the features of an array, of which nothing is to be found out; `comma` prefers decimal
    commas.
    """

    where: str
    names: tuple[str, ...]
    read: Reader
    named: bool = True
    label: str | None = None
    trusted: bool = False
    latents: np.ndarray | None = None
    ids: np.ndarray | None = None
    numbers: Callable[[list[int]], np.ndarray] | None = None
    comma: bool = False


@dataclass(frozen=True)
class Choice:
    """Positions of the features, whose names will be `names`, of labels, and of other columns by their purpose."""

    features: list[int]
    names: tuple[str, ...]
    labels: list[int]
    beside: dict[str, int]


ALL = 50
"""Columns that an error names one by one."""


def generated_names(count: int) -> tuple[str, ...]:
    """x0, x1, …: the names of columns that have none."""
    return tuple(f"x{index}" for index in range(count))


def choose(
    columns: Columns,
    labels: Sequence[str],
    beside: Mapping[str, str | None],
    drop: Sequence[str],
    features: Sequence[str] | None,
) -> Choice:
    """Decide what every column is for: `beside` has a name, or None, for each of `PURPOSES` but the label.

    Columns named by `features` are picked in that order.
    """
    names = columns.names
    absent = [name for name in drop if name not in names]
    if absent:
        raise InputError(_absent(columns, absent, "to leave out"))
    purposes: dict[str, str] = dict.fromkeys(labels, "label")
    for purpose, name in beside.items():
        if name is None:
            continue
        if name in purposes:
            raise _both(columns, name, purposes[name], purpose)
        purposes[name] = purpose
    for purpose in PURPOSES:
        absent = [name for name in purposes if purposes[name] == purpose and name not in names]
        if absent:
            raise InputError(_absent(columns, absent, PURPOSES[purpose]))
    for name in purposes:
        if name in drop:
            raise _both(columns, name, purposes[name], "left out")
    if not labels and columns.label is not None and columns.label not in (*drop, *purposes):
        labels = [columns.label]
        purposes[columns.label] = "label"
    _refuse_twice(columns, [names.index(name) for name in purposes])

    outside = {*drop, *purposes, columns.label}
    rest = [index for index, name in enumerate(names) if name not in outside]
    if features is None:
        _refuse_twice(columns, rest)
        chosen, shown = rest, tuple(names[index] for index in rest)
    else:
        dropped = [name for name in features if columns.named and name in drop]
        if dropped:
            raise InputError(f"{columns.where}: {_called(dropped)} left out, but the model needs {_them(dropped)}")
        chosen = pick(columns.where, names, features, named=columns.named, rest=rest)
        _refuse_twice(columns, chosen)
        shown = tuple(features)
    places = {purpose: names.index(name) for name, purpose in purposes.items() if purpose != "label"}
    return Choice(chosen, shown, [names.index(name) for name in labels], places)


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
        raise InputError(
            f"{where} has no column {listed(absent, ALL)}, which the model needs: "
            f"its columns are {listed(list(names), 8)}"
        )
    return [position[name] for name in wanted]


def _called(names: Sequence[str]) -> str:
    return f"column {quoted(names[0])} is" if len(names) == 1 else f"columns {listed(names, ALL)} are"


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _both(columns: Columns, name: str, first: str, second: str) -> InputError:
    return InputError(f"{columns.where}: column {quoted(name)} is both the {first} and {second}: choose one")


def _absent(columns: Columns, names: Sequence[str], purpose: str) -> str:
    return (
        f"{columns.where} has no column {listed(names, ALL)} {purpose}: its columns are {listed(columns.names, 8)}"
        f"{did_you_mean(names[0], columns.names)}"
    )


def _refuse_twice(columns: Columns, chosen: Sequence[int]) -> None:
    places: dict[str, list[int]] = {}
    for index, name in enumerate(columns.names):
        places.setdefault(name, []).append(index + 1)
    twice = list(dict.fromkeys(columns.names[index] for index in chosen if len(places[columns.names[index]]) > 1))
    if twice:
        said = ", ".join(f"{quoted(name)} ({' and '.join(map(str, places[name]))})" for name in twice[:ALL])
        raise InputError(f"{columns.where} has columns that share a name: {said}: give every column its own")
