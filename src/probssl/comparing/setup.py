"""What all configurations of a comparison share: rows to train, to choose and to test by, and how to measure."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from probssl.comparing.measuring import PROBE, RECOVERED, ROWS, Measurer, Score
from probssl.comparing.testing import HeldOut
from probssl.data import Standardiser, Table
from probssl.model import facts_of
from probssl.parts.facts import Facts
from probssl.runs.evaluation import Flat

TEST_SHARE = 0.25
"""Rows kept aside, where there is a label: no encoder, no choice and no probe sees them before the end."""

MOST_PROBED = 10_000
"""Most rows on either side of the final probe."""


@dataclass(frozen=True, eq=False)
class Setup:
    """A table with its test rows set aside, standardised by the others: the development rows."""

    table: Table
    x: Tensor  # [n, d], the development rows as encoders take them
    measurer: Measurer  # of the early rounds
    final_measurer: Measurer  # of the last round, probing on more rows where there are more
    seed: int

    @classmethod
    def of(cls, table: Table, seed: int) -> Setup:
        """Divide, standardise and draw what is measured on; a label that no probe can be fitted to is refused."""
        if table.test is None and table.labels is not None:
            table = dataclasses.replace(table, test=held_out(table.labels, seed))
        x, labels = _inputs(table, table.rows("train")), _labels(table, table.rows("train"))
        measurer = Measurer.on(x, labels, ROWS["screening"], seed)
        measurer.measure(Flat())
        more = labels is not None and len(x) > len(measurer.x)
        final_measurer = Measurer.on(x, labels, ROWS["final"], seed) if more else measurer
        return cls(table, x, measurer, final_measurer, seed)

    @property
    def facts(self) -> Facts:
        """What choices and sizes depend on."""
        return facts_of(self.table)

    @property
    def fingerprint(self) -> str:
        """A hash of all that is trained and measured on."""
        arrays = (self.x.numpy(), self.measurer.x.numpy(), self.measurer.labels, self.final_measurer.labels)
        digest = hashlib.sha256(str(self.seed).encode())
        for array in arrays:
            digest.update(b"" if array is None else np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    @property
    def criterion(self) -> Score:
        """What configurations are chosen by."""
        return RECOVERED if self.table.labels is None else PROBE

    def held_out(self) -> HeldOut | None:
        """The rows of the last word, where there is a label."""
        labels = _labels(self.table, self.table.rows("train"))
        test = some(self.table.rows("test"), MOST_PROBED, self.seed)
        test_labels = _labels(self.table, test)
        if labels is None or test_labels is None or not len(test):
            return None
        fitted = some(np.arange(len(self.x)), MOST_PROBED, self.seed)
        return HeldOut(self.x[fitted], labels[fitted], _inputs(self.table, test), test_labels)

    @property
    def protocol(self) -> str:
        """Which rows were used for what."""
        tested = len(self.table.rows("test"))
        chosen = (
            f"{len(self.x):,} of {len(self.table):,} rows train encoders, without their labels, and choose "
            f"among them; {tested:,} rows are kept for the test"
            if tested
            else f"all {len(self.table):,} rows train encoders and choose among them"
        )
        more = self.final_measurer is not self.measurer
        finalists = f"; finalists are probed on {len(self.final_measurer.x):,} rows" if more else ""
        return f"{chosen}. Measured on {self.measurer.protocol}{finalists}"


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


def some(rows: np.ndarray, most: int, seed: int) -> np.ndarray:
    """At most so many of the rows, drawn by the seed, in order."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _inputs(table: Table, rows: np.ndarray) -> Tensor:
    """Rows as encoders take them, standardised by those for training."""
    scaling = Standardiser.fit(table.features[table.rows("train")])
    return torch.from_numpy(scaling.transform(table.features[rows]).astype(np.float32))


def _labels(table: Table, rows: np.ndarray) -> np.ndarray | None:
    return None if table.labels is None else table.labels[rows]
