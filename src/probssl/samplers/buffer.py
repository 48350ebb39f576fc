"""Where chains start, and a buffer that keeps them between the steps of a training."""

from __future__ import annotations

import abc

import torch
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.samplers.sgld import SGLD, LogDensity


class Start(nn.Module, abc.ABC):
    """The distribution that new chains are drawn from. Its parameters are buffers, so that checkpoints carry them."""

    @abc.abstractmethod
    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """[count, ...]."""


class UniformStart(Start):
    """Uniform between `low` and `high`, tensors of the shape of one observation."""

    low: Tensor
    high: Tensor

    def __init__(self, low: Tensor, high: Tensor) -> None:
        super().__init__()
        if low.shape != high.shape or not bool((low < high).all()):
            raise InputError("chains start between a low and a high end of one shape, low below high everywhere")
        self.register_buffer("low", low.clone())
        self.register_buffer("high", high.clone())

    @classmethod
    def around(cls, data: Tensor, margin: float = 0.1) -> UniformStart:
        """The box that holds all observations, each side wider by a share `margin` of its length at both ends."""
        low, high = data.amin(0), data.amax(0)
        width = (high - low).clamp_min(torch.finfo(data.dtype).eps)
        return cls(low - margin * width, high + margin * width)

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        share = self.low.new_empty(count, *self.low.shape).uniform_(generator=generator)
        return self.low + share * (self.high - self.low)


class NormalStart(Start):
    """N(`mean`, `scale`²), features apart, tensors of the shape of one observation."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        if mean.shape != scale.shape or not bool((scale >= 0).all()):
            raise InputError("chains start around a mean with a scale of the same shape, nowhere negative")
        self.register_buffer("mean", mean.clone())
        self.register_buffer("scale", scale.clone())

    @classmethod
    def around(cls, data: Tensor) -> NormalStart:
        """With the mean and the standard deviation of each feature."""
        return cls(data.mean(0), data.std(0, correction=0))

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        noise = self.mean.new_empty(count, *self.mean.shape).normal_(generator=generator)
        return self.mean + noise * self.scale


class ReplayBuffer(nn.Module):
    """Chains that go on where they were left: persistent contrastive divergence (Tieleman, 2008; GEDI §6).

    `capacity` chains; whoever takes one gets, with probability `reinitialise`, a new one in its place. At 1 every chain
    is new and runs short; at 0 all go on for ever. A chain lives 1 / `reinitialise` visits in the mean: the product of
    that and the steps of a visit must be enough for it to forget where it began. Chains and their ages (in steps) are
    buffers of the module, so a resumed training goes on with the very same ones.
    New ones begin at `start`; `generator` draws all that is random here.
    """

    chains: Tensor
    ages: Tensor

    def __init__(
        self,
        start: Start,
        capacity: int = 10_000,
        reinitialise: float = 0.05,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if capacity < 1:
            raise InputError(f"a replay buffer holds at least one chain, not {capacity}")
        if not 0 <= reinitialise <= 1:
            raise InputError(f"the chance to restart a chain lies between 0 and 1, not {reinitialise:g}")
        self.start, self.capacity, self.reinitialise = start, int(capacity), float(reinitialise)
        self.register_buffer("chains", start.draw(capacity, generator))
        self.register_buffer("ages", torch.zeros(capacity, dtype=torch.long))

    @torch.no_grad()
    def advance(
        self,
        log_density: LogDensity,
        sampler: SGLD,
        count: int,
        generator: torch.Generator | None = None,
        *,
        keep: bool = True,
    ) -> Tensor:
        """`count` chains, moved on by the sampler: [count, ...]. With `keep`, the buffer remembers where they are."""
        chosen, renewed, begun = self.take(count, generator)
        ended = sampler.walk(log_density, begun, generator)
        if keep:
            self.put(chosen, renewed, ended, sampler.steps)
        return ended

    def take(self, count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers of `count` chains [count], which of them restart [count], and where they are [count, ...]."""
        if count > self.capacity:
            raise InputError(f"a replay buffer of {self.capacity} chains cannot give {count} at a time")
        device = self.chains.device
        chosen = torch.randperm(self.capacity, generator=generator, device=device)[:count]
        renewed = torch.empty(count, device=device).uniform_(generator=generator) < self.reinitialise
        shape = (-1, *(1 for _ in self.chains.shape[1:]))
        return chosen, renewed, torch.where(renewed.view(shape), self.start.draw(count, generator), self.chains[chosen])

    def put(self, chosen: Tensor, renewed: Tensor, ended: Tensor, steps: int) -> None:
        """Remember where chains that were taken have come to, by so many steps."""
        self.chains[chosen] = ended
        self.ages[chosen] = torch.where(renewed, 0, self.ages[chosen]) + steps

    def extra_repr(self) -> str:
        return f"capacity={self.capacity}, reinitialise={self.reinitialise:g}"
