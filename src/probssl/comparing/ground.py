"""The ground that all configurations are compared on: rows to train, to choose and to test by, and how to measure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from probssl.comparing.measuring import PROBE, RECOVERED, ROWS, Measurer, Score
from probssl.comparing.rows import MOST_PROBED, Split, some, take
from probssl.comparing.testing import HeldOut
from probssl.data import Standardiser, Table


@dataclass(frozen=True, eq=False)
class Ground:
    """A table split into development and test rows, standardised by the former."""

    table: Table
    split: Split
    development: Table
    x: Tensor  # [n, d], the development rows as encoders take them
    measurer: Measurer  # of the early rounds
    final_measurer: Measurer  # of the last round, probing on more rows where there are more
    seed: int

    @classmethod
    def of(cls, table: Table, seed: int) -> Ground:
        """Split, standardise and draw what is measured on; a label that no probe can be fitted to is refused."""
        split = Split.of(table, seed)
        development = take(table, split.development)
        x = _inputs(development, development)
        measurer = Measurer.on(x, development.labels, ROWS["screening"], seed)
        measurer.measure(nn.Identity())
        more = development.labels is not None and len(x) > len(measurer.x)
        final_measurer = Measurer.on(x, development.labels, ROWS["final"], seed) if more else measurer
        return cls(table, split, development, x, measurer, final_measurer, seed)

    @property
    def criterion(self) -> Score:
        """What configurations are chosen by."""
        return RECOVERED if self.table.labels is None else PROBE

    def held_out(self) -> HeldOut | None:
        """The rows of the last word, where there is a label."""
        if self.development.labels is None:
            return None
        fitted = some(np.arange(len(self.development)), MOST_PROBED, self.seed)
        test = take(self.table, some(self.split.test, MOST_PROBED, self.seed))
        assert test.labels is not None
        return HeldOut(self.x[fitted], self.development.labels[fitted], _inputs(test, self.development), test.labels)

    @property
    def protocol(self) -> str:
        """Which rows were used for what."""
        chosen = (
            f"{len(self.development):,} of {len(self.table):,} rows train encoders, without their labels, and choose "
            f"among them; {len(self.split.test):,} rows are kept for the test"
            if self.table.labels is not None
            else f"all {len(self.table):,} rows train encoders and choose among them"
        )
        more = self.final_measurer is not self.measurer
        finalists = f"; finalists are probed on {len(self.final_measurer.x):,} rows" if more else ""
        return f"{chosen}. Measured on {self.measurer.protocol}{finalists}"


def _inputs(table: Table, development: Table) -> Tensor:
    return torch.from_numpy(Standardiser.fit(development.features).transform(table.features).astype(np.float32))
