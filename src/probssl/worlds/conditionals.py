"""Conditionals p(z̃ | z) of the positive given the anchor: von Mises–Fisher and the generalised normal.

Every one is sampled exactly and all rows at once, from the generator that the caller hands in. `log_prob` is the log
density with respect to the space's own measure (area on the sphere), where there is a formula for it.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from probssl.errors import InputError
from probssl.theory.sphere import log_vmf_normaliser
from probssl.worlds.spaces import Box, RealSpace, Space, Sphere


class Conditional(nn.Module, abc.ABC):
    """p(z̃ | z) on a space. A subclass writes `sample`, and `log_prob` where there is a formula."""

    lives_on: ClassVar[type[Space]]

    def __init__(self, space: Space) -> None:
        super().__init__()
        if not isinstance(space, self.lives_on):
            raise InputError(
                f"{type(self).__name__} lives on a {self.lives_on.__name__}, not on a {type(space).__name__}"
            )
        self.space = space

    @abc.abstractmethod
    def sample(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One point z̃ ~ p(· | z) for every row: [n, dim] → [n, dim]."""

    def log_prob(self, z_next: Tensor, z: Tensor) -> Tensor:
        """log p(z̃ | z) in nats: [..., dim], [..., dim] → [...]."""
        raise InputError(f"the density of {type(self).__name__} has no closed form")

    def log_kernel(self, z_next: Tensor, z: Tensor) -> Tensor:
        """log p(z̃ | z) up to what depends on z alone, which is all that contrastive losses see of it."""
        return self.log_prob(z_next, z)


class VonMisesFisher(Conditional):
    """p(z̃ | z) ∝ exp(κ zᵀz̃ / r²) on a sphere of radius r  (CL-ICA Eq. 2 and 7). κ ≥ 0; κ = 0 is uniform.

    `concentration` is κ.
    """

    lives_on = Sphere
    space: Sphere

    def __init__(self, space: Sphere, concentration: float) -> None:
        super().__init__(space)
        if not 0 <= concentration < math.inf:
            raise InputError(f"the concentration must be a finite number of at least 0, not {concentration:g}")
        self.concentration = float(concentration)

    def sample(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The cosine t by Wood's rejection (1994; it keeps 65 % of the proposals or more), then a uniform direction.

        1 − t is what is drawn, in double precision, so that no concentration loses digits.
        """
        radius = self.space.radius
        gap = self._one_minus_cosine(len(z), z.device, generator).to(z.dtype).unsqueeze(1)
        towards = z / radius
        side = torch.randn(z.shape, generator=generator, dtype=z.dtype, device=z.device)
        for _ in range(2):  # twice, because once leaves a rounding error along the anchor
            side = side - (side * towards).sum(1, keepdim=True) * towards
        side = side * ((gap * (2 - gap)).sqrt() / side.norm(dim=1, keepdim=True))
        return ((1 - gap) * towards + side) * radius

    def _one_minus_cosine(self, count: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
        kappa, d = self.concentration, self.space.dim
        b = (d - 1) / (2 * kappa + math.hypot(2 * kappa, d - 1))
        below = 2 * b / (1 + b)  # where the envelope touches
        kept: list[Tensor] = []
        missing = count
        while missing > 0:  # all rows have the same law, so any accepted proposals will do
            u, v, w = torch.rand(3, int(1.6 * missing) + 16, generator=generator, device=device, dtype=torch.double)
            # A symmetric Beta((d − 1)/2) from two uniforms: Ulrich's formula (1984); d = 2 has the exponent ∞.
            shrink = u.pow(2 / (d - 2)) if d > 2 else 0 * u
            beta = 0.5 + 0.5 * (1 - shrink).sqrt() * torch.cos(2 * math.pi * v)
            proposed = 2 * b * beta / (1 - (1 - b) * beta)
            ratio = (below + (1 - below) * proposed) / (below * (2 - below))
            log_keep = kappa * (below - proposed) + (d - 1) * ratio.log()
            kept.append(proposed[torch.log1p(-w) <= log_keep][:missing])
            missing -= len(kept[-1])
        return torch.cat(kept)

    def log_prob(self, z_next: Tensor, z: Tensor) -> Tensor:
        dim, radius = self.space.dim, self.space.radius
        log_normaliser = log_vmf_normaliser(dim, self.concentration) - (dim - 1) * math.log(radius)
        return self.concentration * (z_next * z).sum(-1) / radius**2 + log_normaliser


class GeneralisedNormal(Conditional):
    """p(z̃ | z) = Π_k β / (2 λ_k Γ(1/β)) · exp(−(|z̃_k − z_k| / λ_k)^β) on R^n  (CL-ICA Eq. 50 and Table 1).

    `shape` is β > 0 (1: Laplace, 2: normal with standard deviation λ/√2), `scale` is λ > 0, one number or one a
    dimension. λ is a scale, as in the paper's Table 1; the λ of its Eq. 50 is a rate, λ_scale^{−β}.
    """

    lives_on: ClassVar[type[Space]] = RealSpace
    scale: Tensor

    def __init__(self, space: Space, shape: float, scale: float | Tensor) -> None:
        super().__init__(space)
        if not 0 < shape < math.inf:
            raise InputError(f"the shape must be positive and finite, not {shape:g}")
        self.shape = float(shape)
        self.register_buffer("scale", positive_per_dimension("scale", scale, space.dim))

    def sample(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return z + self.scale.to(z.dtype) * self._noise(z, generator)

    def _noise(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """Independent numbers with density ∝ exp(−|x|^β), of the shape of `like`."""
        if self.shape == 2:
            return torch.empty_like(like).normal_(generator=generator) * math.sqrt(0.5)
        sign = torch.empty_like(like).random_(0, 2, generator=generator) * 2 - 1
        if self.shape == 1:
            return sign * torch.empty_like(like).exponential_(generator=generator)
        # |x|^β is Gamma(1/β). torch.distributions.Gamma makes the same call, and takes no generator.
        power = torch._standard_gamma(torch.full_like(like, 1 / self.shape, dtype=torch.double), generator=generator)
        return sign * power.pow(1 / self.shape).to(like.dtype)

    def log_prob(self, z_next: Tensor, z: Tensor) -> Tensor:
        return self._log_densities(z_next, z).sum(-1)

    def _log_densities(self, z_next: Tensor, z: Tensor) -> Tensor:
        """Of every coordinate on the whole line."""
        scale = self.scale.to(z.dtype)
        constant = math.log(self.shape / 2) - math.lgamma(1 / self.shape)
        return constant - scale.log() - ((z_next - z).abs() / scale).pow(self.shape)


class TruncatedGeneralisedNormal(GeneralisedNormal):
    """The generalised normal around z, conditioned on the box: what falls outside is drawn again  (CL-ICA Table 1).

    Its normaliser depends on z, most near the faces, so the marginal of z̃ is not uniform where that of z is.
    """

    lives_on = Box
    space: Box

    def sample(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Coordinate by coordinate, by rejection: from the whole line where λ is small, from the box where it is not.

        Coordinates are independent, so that redrawing one that left is redrawing them all. At least a third is kept.
        """
        low, high = self.space.low, self.space.high
        centre = z.reshape(-1)
        scale = self.scale.to(z.dtype).expand_as(z).reshape(-1)
        wide = scale > (high - low)
        out = torch.empty_like(centre)
        waiting = torch.arange(len(centre), device=z.device)
        while len(waiting):
            at, spread = centre[waiting], scale[waiting]
            proposed = at + spread * self._noise(at, generator)
            keep = (proposed >= low) & (proposed <= high)
            if bool(wide.any()):
                anywhere = torch.rand(len(at), generator=generator, dtype=at.dtype, device=at.device)
                anywhere = anywhere * (high - low) + low
                chance = torch.rand(len(at), generator=generator, dtype=at.dtype, device=at.device)
                likely = chance < torch.exp(-((anywhere - at).abs() / spread).pow(self.shape))
                from_box = wide[waiting]
                proposed, keep = torch.where(from_box, anywhere, proposed), torch.where(from_box, likely, keep)
            out[waiting[keep]] = proposed[keep]
            waiting = waiting[~keep]
        return out.view_as(z)

    def log_prob(self, z_next: Tensor, z: Tensor) -> Tensor:
        scale = self.scale.to(z.dtype)
        inside = self._mass((self.space.high - z) / scale) + self._mass((z - self.space.low) / scale)
        log_prob = (self._log_densities(z_next, z) - (0.5 * inside).log()).sum(-1)
        return torch.where(self.space.contains(z_next), log_prob, -math.inf)

    def _mass(self, reach: Tensor) -> Tensor:
        """P(|x| < reach) where x has density ∝ exp(−|x|^β)."""
        return torch.special.gammainc(torch.full_like(reach, 1 / self.shape), reach.pow(self.shape))


class ProjectedGeneralisedNormal(GeneralisedNormal):
    """A generalised normal around z in R^n, projected back to the sphere  (CL-ICA Table 1).

    For β = 2 the density is that of a projected normal, an integral over the radius; for others there is no formula.
    """

    lives_on = Sphere
    space: Sphere

    def sample(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.space.project(super().sample(z, generator))

    def log_prob(self, z_next: Tensor, z: Tensor) -> Tensor:
        from probssl.worlds.sphere_integrals import log_projected_normal

        if self.shape != 2:
            raise InputError("a generalised normal projected to the sphere has a known density at shape 2 only")
        return log_projected_normal(z_next, z, 2 / self.scale.double().square(), self.space.radius).to(z.dtype)


def generalised_normal(space: Space, shape: float, scale: float | Tensor) -> GeneralisedNormal:
    """The generalised normal as the papers put it on a space: as it is, truncated to a box, projected to a sphere."""
    if isinstance(space, Sphere):
        return ProjectedGeneralisedNormal(space, shape, scale)
    if isinstance(space, Box):
        return TruncatedGeneralisedNormal(space, shape, scale)
    return GeneralisedNormal(space, shape, scale)


def normal(space: Space, std: float | Tensor) -> GeneralisedNormal:
    """The normal distribution of a standard deviation, as `generalised_normal` puts it on a space."""
    return generalised_normal(space, 2, std * math.sqrt(2))


def laplace(space: Space, scale: float | Tensor) -> GeneralisedNormal:
    """The Laplace distribution of a scale, as `generalised_normal` puts it on a space."""
    return generalised_normal(space, 1, scale)


def positive_per_dimension(name: str, value: float | Tensor, dim: int) -> Tensor:
    """One positive number a dimension: [dim], in double precision."""
    found = torch.as_tensor(value, dtype=torch.double)
    if found.shape not in ((), (dim,)):
        raise InputError(f"{dim} dimensions need one {name} or {dim}, not an array of shape {tuple(found.shape)}")
    if not bool(((found > 0) & found.isfinite()).all()):
        raise InputError(f"every {name} must be positive and finite")
    return found.expand(dim).clone()
