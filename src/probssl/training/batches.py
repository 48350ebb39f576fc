"""What each step sees: shuffled passes over the data, or fresh draws from a world; resumable anywhere."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from probssl.pairings.views import Needs, Pairing, Source, Views
from probssl.training.files import fingerprint


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


class Stream(Protocol):
    """Batches for a training, one after another."""

    def next(self, needs: Needs) -> Views:
        """The next batch."""

    def some(self, count: int) -> Tensor:
        """Observations to look at while training, always the same: [count, ...] or fewer."""

    def pairs(self, count: int) -> tuple[Tensor, Tensor]:
        """The same with a relative of each: [count, ...] twice, or fewer."""

    def identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to belong to this run."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Where the stream is: tensors and plain values for a checkpoint."""

    def restore(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        """Go on from a state."""


class DataStream:
    """Rows of the data in shuffled passes, with relatives from a pairing."""

    def __init__(self, pairing: Pairing, data: Tensor, batch_size: int, seed: int, device: torch.device) -> None:
        self.pairing, self.data, self.seed = pairing.to(device), data.to(device), seed
        self.rows = BatchStream(len(data), batch_size, seed, device)
        self.generator = torch.Generator(device).manual_seed(seed + 1)

    def next(self, needs: Needs) -> Views:
        index = self.rows.next()
        views: Views = self.pairing(self.data[index], needs, self.generator)
        views.index = index
        return views

    def some(self, count: int) -> Tensor:
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(self.seed + 2))
        return self.data[order[:count].to(self.data.device)]

    def pairs(self, count: int) -> tuple[Tensor, Tensor]:
        x = self.some(count)
        return x, relatives(self.pairing, x, self.seed)

    def identity(self) -> dict[str, Any]:
        return {"rows": len(self.data), "data": fingerprint(self.data)}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        before_shuffle, position = self.rows.state()
        return {"random.batches": before_shuffle, "random.augmentations": self.generator.get_state()}, position

    def restore(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        self.rows.restore(tensors["random.batches"], position)
        self.generator.set_state(tensors["random.augmentations"])


class WorldStream:
    """Fresh observations from a source, every batch."""

    def __init__(self, source: Source, batch_size: int, seed: int, device: torch.device) -> None:
        self.source, self.batch_size, self.seed = source.to(device), batch_size, seed
        self.generator = torch.Generator(device).manual_seed(seed + 1)

    def next(self, needs: Needs) -> Views:
        return self.source.draw(self.batch_size, needs, self.generator)

    def some(self, count: int) -> Tensor:
        generator = torch.Generator(self.generator.device).manual_seed(self.seed + 2)
        return self.source.draw(count, Needs(augmented=0), generator).x

    def pairs(self, count: int) -> tuple[Tensor, Tensor]:
        views = self.source.draw(count, Needs(), torch.Generator(self.generator.device).manual_seed(self.seed + 2))
        return views.x, views.augmented[0]

    def identity(self) -> dict[str, Any]:
        return {}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {"random.augmentations": self.generator.get_state()}, {}

    def restore(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        self.generator.set_state(tensors["random.augmentations"])


def relatives(pairing: Pairing, x: Tensor, seed: int) -> Tensor:
    """One relative of each observation to look at while training, always the same: [n, ...]."""
    return pairing.sample(x, torch.Generator(x.device).manual_seed(seed + 3))
