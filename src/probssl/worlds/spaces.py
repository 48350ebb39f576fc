"""Where latents live: a sphere, a box, or all of R^n."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from probssl.errors import InputError


class Space(nn.Module, abc.ABC):
    """A set of latents in R^dim, with its volume (or area) and its uniform distribution where there is one.

    `least` is the smallest `dim` there can be.
    """

    dim: int

    def __init__(self, dim: int, least: int = 1) -> None:
        super().__init__()
        if dim < least or dim != int(dim):
            raise InputError(f"a {type(self).__name__} needs at least {least} dimensions, a whole number, not {dim}")
        self.dim = int(dim)

    @property
    @abc.abstractmethod
    def log_volume(self) -> float:
        """log of its volume, or of its area where it is a surface; ∞ where it is unbounded."""

    @abc.abstractmethod
    def uniform(self, count: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Uniform points: [count, dim]."""

    @abc.abstractmethod
    def contains(self, z: Tensor) -> Tensor:
        """Whether each point lies in it, but for rounding: [..., dim] → [...]."""

    @abc.abstractmethod
    def centre(self) -> Tensor:
        """A point to put distributions around: the pole e₁, the middle, the origin. [dim], in double precision."""

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Sphere(Space):
    """{z ∈ R^dim : ‖z‖ = radius}, the sphere S^{dim−1}."""

    def __init__(self, dim: int, radius: float = 1.0) -> None:
        super().__init__(dim, least=2)
        if not 0 < radius < math.inf:
            raise InputError(f"the radius must be positive and finite, not {radius:g}")
        self.radius = float(radius)

    @property
    def log_volume(self) -> float:
        half = self.dim / 2
        return math.log(2) + half * math.log(math.pi) - math.lgamma(half) + (self.dim - 1) * math.log(self.radius)

    def uniform(self, count: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None) -> Tensor:
        return self.project(_noise(torch.randn, count, self.dim, generator, dtype))

    def contains(self, z: Tensor) -> Tensor:
        return (z.norm(dim=-1) / self.radius - 1).abs() < 32 * torch.finfo(z.dtype).eps

    def project(self, x: Tensor) -> Tensor:
        """The point of the sphere in the direction of x."""
        return x * (self.radius / x.norm(dim=-1, keepdim=True))

    def centre(self) -> Tensor:
        pole = torch.zeros(self.dim, dtype=torch.double)
        pole[0] = self.radius
        return pole

    def extra_repr(self) -> str:
        return f"dim={self.dim}, radius={self.radius:g}"


class Box(Space):
    """[low, high]^dim."""

    def __init__(self, dim: int, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(dim)
        if not -math.inf < low < high < math.inf:
            raise InputError(f"a box needs finite bounds with low < high, not {low:g} and {high:g}")
        self.low, self.high = float(low), float(high)

    @property
    def log_volume(self) -> float:
        return self.dim * math.log(self.high - self.low)

    def uniform(self, count: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None) -> Tensor:
        return _noise(torch.rand, count, self.dim, generator, dtype) * (self.high - self.low) + self.low

    def contains(self, z: Tensor) -> Tensor:
        return ((z >= self.low) & (z <= self.high)).all(-1)

    def centre(self) -> Tensor:
        return torch.full((self.dim,), (self.low + self.high) / 2, dtype=torch.double)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, low={self.low:g}, high={self.high:g}"


class RealSpace(Space):
    """R^dim. It has no uniform distribution."""

    @property
    def log_volume(self) -> float:
        return math.inf

    def uniform(self, count: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None) -> Tensor:
        raise InputError("there is no uniform distribution on all of R^n: choose another marginal, or a box")

    def contains(self, z: Tensor) -> Tensor:
        return z.isfinite().all(-1)

    def centre(self) -> Tensor:
        return torch.zeros(self.dim, dtype=torch.double)


def _noise(
    draw: Callable[..., Tensor], count: int, dim: int, generator: torch.Generator | None, dtype: torch.dtype | None
) -> Tensor:
    """Random numbers where the generator is: [count, dim]."""
    if count < 1:
        raise InputError(f"there must be at least one point to draw, not {count}")
    device = None if generator is None else generator.device
    return draw(count, dim, generator=generator, dtype=dtype, device=device)
