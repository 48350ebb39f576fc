"""Which rows each step sees: shuffled passes over the data, drawn from a generator, resumable anywhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class BatchStream:
    """Batches of row numbers, without replacement within a pass; the incomplete last batch of a pass is dropped.

    Its state is the generator as it was before the current shuffle and the position within it, so a resumed
    stream deals the very same batches.
    """

    def __init__(self, rows: int, batch_size: int, seed: int, device: torch.device) -> None:
        self.rows = rows
        self.batch_size = min(batch_size, rows)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.device = device
        self._before_shuffle = self.generator.get_state()
        self._order = self._shuffle()
        self._position = 0

    def _shuffle(self) -> Tensor:
        self._before_shuffle = self.generator.get_state()
        return torch.randperm(self.rows, generator=self.generator, device=self.device)

    def next(self) -> Tensor:
        """Row numbers of the next batch: [batch_size]."""
        if self._position + self.batch_size > self.rows:
            self._order = self._shuffle()
            self._position = 0
        batch = self._order[self._position : self._position + self.batch_size]
        self._position += self.batch_size
        return batch

    def state(self) -> tuple[Tensor, dict[str, Any]]:
        """The generator's state before the current shuffle, and the position within it."""
        return self._before_shuffle, {"position": self._position}

    def restore(self, generator_state: Tensor, position: dict[str, Any]) -> None:
        """Go on from a state."""
        self.generator.set_state(generator_state)
        self._order = self._shuffle()
        self._position = int(position["position"])
