"""Observations as a model takes them, whatever they were: rows of a table, of a world, or images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probssl.data.dataset import Target


@dataclass(frozen=True, eq=False)
class Observations:
    """Inputs of a model's encoder, and what is known about each."""

    source: str
    x: Tensor
    """[n, ...]: standardised rows, or images, which stay bytes until a network takes them (`as_floats`)."""
    labels: np.ndarray | None = None
    """[n], codes into `classes`."""
    classes: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    """All that representations are judged by, the labels among them."""
    latents: np.ndarray | None = None
    """[n, k], the truth behind rows of a world."""
    ids: np.ndarray | None = None
    """[n], what each row is called."""
    rows: np.ndarray | None = None
    """[n], the number of each in the data that it is of."""

    def __len__(self) -> int:
        return len(self.x)

    def some(self, count: int, seed: int) -> Observations:
        """All of them, or `count` that the seed chooses."""
        if len(self) <= count:
            return self
        return self.take(np.random.default_rng(seed).permutation(len(self))[:count])

    def take(self, rows: np.ndarray) -> Observations:
        """Those of these numbers, in this order."""
        known = {"labels": self.labels, "latents": self.latents, "ids": self.ids, "rows": self.rows}
        chosen: dict[str, Any] = {name: of[rows] for name, of in known.items() if of is not None}
        targets = tuple(target.take(rows) for target in self.targets)
        return replace(self, x=self.x[torch.from_numpy(rows)], targets=targets, **chosen)
