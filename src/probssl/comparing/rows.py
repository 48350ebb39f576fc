"""Which rows train and choose, and which are kept aside for the number that is reported."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from probssl.data import Table

TEST_SHARE = 0.25
"""Rows kept aside, where there is a label: no encoder, no choice and no probe sees them before the end."""

MOST_PROBED = 10_000
"""Most rows on either side of the final probe."""


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers: those that encoders train on and configurations are chosen by, and those kept for the test."""

    development: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, table: Table, seed: int) -> Split:
        """A quarter of the rows of every class for the test; with no label there is nothing to test, and none are."""
        if table.labels is None:
            return cls(np.arange(len(table)), np.empty(0, dtype=np.intp))
        held = held_out(table.labels, seed)
        return cls(np.flatnonzero(~held), np.flatnonzero(held))


def held_out(labels: np.ndarray, seed: int) -> np.ndarray:
    """A quarter of the rows, class by class, as a mask [n]; the first row drawn of every class is never held out.

    Rows are shuffled and sorted by class, and every fourth is taken: classes keep their shares to within one row,
    however small they are.
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    every = round(1 / TEST_SHARE)
    held = np.zeros(len(labels), dtype=bool)
    held[order[every - 1 :: every]] = True
    first = np.unique(labels[order], return_index=True)[1]
    held[order[first]] = False
    return held


def take(table: Table, rows: np.ndarray) -> Table:
    """The table with these rows only."""
    labels = None if table.labels is None else table.labels[rows]
    return dataclasses.replace(table, features=table.features[rows], labels=labels)


def some(rows: np.ndarray, most: int, seed: int) -> np.ndarray:
    """At most so many of the rows, drawn by the seed, in order."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
