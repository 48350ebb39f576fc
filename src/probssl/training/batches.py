"""What each step sees: shuffled passes over the data, or fresh draws from a world; resumable anywhere."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import torch
from torch import Tensor

from probssl.encoders import as_floats
from probssl.errors import InputError
from probssl.pairings.views import Needs, Pairing, Source, Views
from probssl.schema import Mismatch
from probssl.training.distributed import processes
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

    def restore(self, generator_state: Tensor, position: dict[str, int]) -> None:
        """Go on from a state."""
        self.generator.set_state(generator_state)
        self._order = self._shuffle()
        self._position = position["position"]
        if not 0 <= self._position <= self.rows:
            raise Mismatch(f"a position cannot be {self._position} of {self.rows} rows")


class Stream(Protocol):
    """Batches for a training, one after another."""

    dealt: bool
    """Whether each process gets rows of its own, or all get all."""

    def next(self, needs: Needs) -> Views:
        """The next batch, or this process's rows of it."""

    def some(self, count: int) -> Tensor:
        """Observations to look at while training, always the same: [count, ...] or fewer."""

    def pairs(self, count: int) -> tuple[Tensor, Tensor]:
        """The same with a relative of each: [count, ...] twice, or fewer."""

    def identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to belong to this run."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Where the stream is: tensors and plain values for a checkpoint."""

    def restore(self, tensors: dict[str, Tensor], position: dict[str, Any], step: int) -> None:
        """Go on from a state, which was that of this step."""


class DataStream:
    """Rows of the data in shuffled passes, with relatives from a pairing.

    Bytes stay bytes until a batch is made of them, so that a set of images takes a quarter of the memory. Several
    processes shuffle alike and take equal shares of each batch, whose relatives they draw by generators of their own.
    """

    dealt = True

    def __init__(self, pairing: Pairing, data: Tensor, batch_size: int, seed: int, device: torch.device) -> None:
        self.pairing, self.data, self.seed = pairing.to(device), data.to(device), seed
        self.rows = BatchStream(len(data), batch_size, seed, device)
        check_shares(self.rows.batch_size)
        self.generator = own_generator(device, seed, 0)

    def next(self, needs: Needs) -> Views:
        index = processes.own(self.rows.next())
        views: Views = self.pairing(as_floats(self.data[index]), needs, self.generator)
        views.index = index
        return views

    def some(self, count: int) -> Tensor:
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(self.seed + 2))
        return as_floats(self.data[order[:count].to(self.data.device)])

    def pairs(self, count: int) -> tuple[Tensor, Tensor]:
        x = self.some(count)
        return x, relatives(self.pairing, x, self.seed)

    def identity(self) -> dict[str, Any]:
        return {"rows": len(self.data), "data": fingerprint(self.data)}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        before_shuffle, position = self.rows.state()
        states = processes.each(self.generator.get_state())
        return {"random.batches": before_shuffle, **numbered("random.augmentations", states)}, position

    def restore(self, tensors: dict[str, Tensor], position: dict[str, Any], step: int) -> None:
        self.rows.restore(tensors["random.batches"], position)
        state = own_entry("random.augmentations", tensors)
        if state is not None:
            self.generator.set_state(state)
        else:  # there were fewer processes
            self.generator = own_generator(self.generator.device, self.seed, step)


class WorldStream:
    """Fresh observations from a source, every batch.

    Several processes draw the same: a source makes a batch as a whole (rows that come once, negatives for all of them).
    """

    dealt = False

    def __init__(self, source: Source, batch_size: int, seed: int, device: torch.device) -> None:
        check_shares(batch_size)
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

    def restore(self, tensors: dict[str, Tensor], position: dict[str, Any], step: int) -> None:
        self.generator.set_state(tensors["random.augmentations"])


def relatives(pairing: Pairing, x: Tensor, seed: int) -> Tensor:
    """One relative of each observation to look at while training, always the same: [n, ...]."""
    return pairing.sample(x, torch.Generator(x.device).manual_seed(seed + 3))


# Several processes


def check_shares(batch_size: int) -> None:
    """Refuse a batch that processes cannot share evenly."""
    if batch_size % processes.count():
        raise InputError(
            f"a batch of {batch_size} rows cannot be divided among {processes.count()} processes: choose a "
            "multiple of their number"
        )


def seed_of_process(seed: int, step: int, what: str) -> int:
    """The seed of this process's own random numbers from a step on, unlike those of any other."""
    text = f"{what} {seed} {processes.rank()} {step}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def own_generator(device: torch.device, seed: int, step: int) -> torch.Generator:
    """What this process draws augmentations with; the first process begins as one alone does."""
    number = seed_of_process(seed, step, "augmentations") if processes.rank() or step else seed + 1
    return torch.Generator(device).manual_seed(number)


def numbered(name: str, states: list[Tensor]) -> dict[str, Tensor]:
    """A tensor of each process for a checkpoint: `name`, `name.1`, `name.2`, …"""
    return {f"{name}.{rank}" if rank else name: state for rank, state in enumerate(states)}


def own_entry(name: str, tensors: dict[str, Tensor]) -> Tensor | None:
    """This process's tensor in a checkpoint, or None if it was not there then."""
    return tensors.get(f"{name}.{processes.rank()}" if processes.rank() else name)
