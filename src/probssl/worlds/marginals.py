"""Marginals p(z) of the anchors: uniform, or any conditional around one fixed point."""

from __future__ import annotations

import abc

import torch
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.worlds.conditionals import Conditional
from probssl.worlds.spaces import Space, Sphere


class Marginal(nn.Module, abc.ABC):
    """p(z) on a space."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.space = space

    @abc.abstractmethod
    def sample(self, count: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Independent points: [count, dim]."""

    @abc.abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z) in nats: [..., dim] → [...]."""


class Uniform(Marginal):
    """p(z) = 1 / |Z| on a sphere or a box."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        if space.log_volume == float("inf"):
            raise InputError("there is no uniform distribution on all of R^n: choose another marginal, or a box")

    def sample(self, count: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None) -> Tensor:
        return self.space.uniform(count, generator, dtype)

    def log_prob(self, z: Tensor) -> Tensor:
        return torch.where(self.space.contains(z), -self.space.log_volume, -torch.inf).to(z.dtype)


class Around(Marginal):
    """p(z) = p(z | centre) of a conditional: von Mises–Fisher, normal, Laplace or generalised normal marginals.

    The centre is the pole e₁ of a sphere, the middle of a box or the origin, unless one is given: [dim].
    """

    centre: Tensor

    def __init__(self, conditional: Conditional, centre: Tensor | None = None) -> None:
        super().__init__(conditional.space)
        self.conditional = conditional
        found = self.space.centre() if centre is None else torch.as_tensor(centre, dtype=torch.double)
        if found.shape != (self.space.dim,) or not bool(self.space.contains(found)):
            raise InputError(f"the centre of a marginal must be a point of {self.space}, not {found.tolist()}")
        self.register_buffer("centre", found)

    def sample(self, count: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None) -> Tensor:
        device = self.centre.device if generator is None else generator.device
        centre = self.centre.to(device, torch.get_default_dtype() if dtype is None else dtype)
        return self.conditional.sample(centre.expand(count, -1), generator)

    def log_prob(self, z: Tensor) -> Tensor:
        return self.conditional.log_prob(z, self.centre.to(z).expand_as(z))


def opposite(marginal: Around) -> Around:
    """The same marginal about the antipode of its centre, for testing where training never was  (AnInfoNCE Fig. 6)."""
    if not isinstance(marginal.space, Sphere):
        raise InputError("only a sphere has antipodes")
    return Around(marginal.conditional, -marginal.centre)
