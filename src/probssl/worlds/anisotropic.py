"""The anisotropic conditional of AnInfoNCE on the unit sphere: the exact law, and two shortcuts that stand in for it.

p(z̃ | z) ∝ exp(−½ (z̃ − z)ᵀ Λ (z̃ − z)), Λ = diag(concentrations), everywhere with the ½ of the paper's released code:
Λ here is twice the Λ of its Eq. 2, and the published values (5, 25, …) are these.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from scipy.optimize import brentq
from torch import Tensor

from probssl.errors import InputError
from probssl.worlds.conditionals import Conditional, positive_per_dimension
from probssl.worlds.spaces import Space, Sphere
from probssl.worlds.sphere_integrals import RayIntegrals, log_projected_normal, log_ray_integral, log_sphere_integral

_PATIENCE = 10_000  # rounds of proposals; at 1 % acceptance a row fails all of them once in 10⁴³


class _OnUnitSphere(Conditional):
    """A conditional with one concentration a latent."""

    lives_on: ClassVar[type[Space]] = Sphere
    space: Sphere
    concentrations: Tensor

    def __init__(self, space: Sphere, concentrations: float | Tensor) -> None:
        super().__init__(space)
        if space.radius != 1:
            raise InputError(f"{type(self).__name__} lives on the unit sphere, not on one of radius {space.radius:g}")
        self.register_buffer("concentrations", positive_per_dimension("concentration", concentrations, space.dim))


class FisherBingham(_OnUnitSphere):
    """p(z̃ | z) = exp(−½ (z̃ − z)ᵀ Λ (z̃ − z)) / C(z) on the unit sphere, sampled exactly  (AnInfoNCE Eq. 2, with the ½).

    A Fisher–Bingham distribution; its normaliser C(z) is not constant unless Λ = κI, which is von Mises–Fisher.
    `concentrations` are the diagonal of Λ.
    """

    def __init__(self, space: Sphere, concentrations: float | Tensor) -> None:
        super().__init__(space, concentrations)
        scales = self.concentrations.numpy()
        # The s ≥ 0 for which N((Λ + sI)⁻¹Λz, (Λ + sI)⁻¹) has squared length 1 on average over anchors.
        least, dim = scales.min(), space.dim

        def excess(w: float) -> float:
            precision = scales - least + w
            return float((1 / precision + (scales / precision) ** 2 / dim).sum() - 1)

        self._shift = brentq(excess, 1e-12, 2 * dim + 2 * scales.max() + 2) - float(least)
        largest, farthest = float(scales.max()) + self._shift, float((scales**2 / (scales + self._shift)).max()) ** 0.5
        self._rays = RayIntegrals(dim, farthest)
        self._log_bound = _largest_ratio(largest, dim)

    def sample(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """By rejection from a projected Gaussian that has most of its mass near the sphere.

        On the sphere any s may be added to Λ. The proposal u is N((Λ + sI)⁻¹Λz, (Λ + sI)⁻¹) projected, with s such
        that its length is about 1. Its density is ∫ r^{d−1} e^{−½ a r² + b r} dr up to a constant, a = uᵀ(Λ + sI)u and
        b = uᵀΛz, and that of the target e^{−½ a + b}. For given a their ratio is largest where r has mean 1; this
        maximum grows with a (its slope is half the variance of r), so its value at the largest a, max Λ + s, bounds it.
        Every s ≥ −min Λ gives the same result; with this one 10 to 100 % of the proposals are kept.
        """
        out = torch.empty_like(z)
        waiting = torch.arange(len(z), device=z.device)
        while len(waiting):
            tries = -(
                -len(z) // len(waiting)
            )  # the fewer rows are left, the more proposals for each, and rounds are few
            u, log_keep = self._propose(z[waiting].double().repeat_interleave(tries, 0), generator)
            chance = torch.rand(len(u), generator=generator, dtype=u.dtype, device=u.device)
            keep = (torch.log1p(-chance) <= log_keep).view(-1, tries)
            found = keep.any(1)
            first = keep.to(torch.uint8).argmax(1)[found]  # of the proposals that are kept
            out[waiting[found]] = u.view(-1, tries, u.shape[1])[found, first].to(z.dtype)
            waiting = waiting[~found]
        return out

    def _propose(self, z: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Proposals [n, d], and the logarithm of the chance with which each is to be kept [n]."""
        towards, precision = z * self.concentrations, self.concentrations + self._shift
        y = towards / precision + _gaussian(z, precision, generator)
        u = self.space.project(y)
        a, b = (u.square() * precision).sum(1), (u * towards).sum(1)
        return u, b - 0.5 * a - self._rays(a, b) - self._log_bound

    def log_prob(self, z_next: Tensor, z: Tensor) -> Tensor:
        return (self.log_kernel(z_next.double(), z.double()) - self.log_normaliser(z)).to(z.dtype)

    def log_kernel(self, z_next: Tensor, z: Tensor) -> Tensor:
        return -0.5 * ((z_next - z).square() * self.concentrations.to(z.dtype)).sum(-1)

    def log_normaliser(self, z: Tensor) -> Tensor:
        """log C(z) = log ∫ exp(−½ (u − z)ᵀ Λ (u − z)) dS(u): [..., d] → [...], in double precision."""
        rows = z.double().reshape(-1, self.space.dim)
        integral = log_sphere_integral(self.concentrations, rows * self.concentrations)
        return (integral - 0.5 * (rows.square() * self.concentrations).sum(-1)).view(z.shape[:-1])


class ProjectedGaussian(_OnUnitSphere):
    """N(z, Λ⁻¹) in R^n, projected to the unit sphere: what AnInfoNCE's appendix H calls a normalised Gaussian.

    Not the density of its theory: fitted by AnInfoNCE it looks like concentrations 5 to 28 % larger than Λ.
    """

    def sample(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.space.project(z + _gaussian(z, self.concentrations, generator))

    def log_prob(self, z_next: Tensor, z: Tensor) -> Tensor:
        return log_projected_normal(z_next, z, self.concentrations).to(z.dtype)


class ShellGaussian(_OnUnitSphere):
    """N(z, Λ⁻¹) kept where its length lies within `thickness` of 1, then projected: AnInfoNCE's released sampler.

    As the shell gets thinner it tends to the exact density; at the released 0.1 it looks like concentrations 0.5 to
    2 % larger. The share that is kept falls with the dimension and with 1/√Λ.
    """

    def __init__(self, space: Sphere, concentrations: float | Tensor, thickness: float = 0.1) -> None:
        super().__init__(space, concentrations)
        if not 0 < thickness < 1:
            raise InputError(f"the thickness of the shell must lie between 0 and 1, not {thickness:g}")
        self.thickness = float(thickness)

    def sample(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        out = torch.empty_like(z)
        waiting = torch.arange(len(z), device=z.device)
        for _ in range(_PATIENCE):
            at = z[waiting]
            x = at + _gaussian(at, self.concentrations, generator)
            keep = (x.norm(dim=1) - 1).abs() < self.thickness
            out[waiting[keep]] = self.space.project(x[keep])
            waiting = waiting[~keep]
            if not len(waiting):
                return out
        raise InputError(
            f"a Gaussian of concentrations {self.concentrations.tolist()} falls into a shell of thickness "
            f"{self.thickness:g} too rarely: take the exact sampler"
        )

    def log_prob(self, z_next: Tensor, z: Tensor) -> Tensor:
        """The ray's share of the shell, over the shell's share of the Gaussian."""
        return (self.log_kernel(z_next.double(), z.double()) - self._log_shell(z.double())).to(z.dtype)

    def log_kernel(self, z_next: Tensor, z: Tensor) -> Tensor:
        u, centre, scales = z_next.double(), z.double(), self.concentrations
        shell = (1 - self.thickness, 1 + self.thickness)
        ray = log_ray_integral((u * scales * u).sum(-1), (u * scales * centre).sum(-1), self.space.dim, shell)
        return ray.to(z.dtype)

    def _log_shell(self, z: Tensor) -> Tensor:
        """log ∫ exp(½ zᵀΛz − ½ ‖x − z‖²_Λ) dx over the shell: Gauss–Legendre over spheres of all its radii."""
        from numpy.polynomial.legendre import leggauss

        nodes, weights = (torch.from_numpy(part) for part in leggauss(24))
        rows = z.reshape(-1, self.space.dim)
        parts = []
        for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
            r = 1 + self.thickness * node
            over_sphere = log_sphere_integral(self.concentrations * r**2, rows * self.concentrations * r)
            parts.append(over_sphere + (self.space.dim - 1) * math.log(r) + math.log(weight * self.thickness))
        return torch.logsumexp(torch.stack(parts), 0).view(z.shape[:-1])


def _gaussian(like: Tensor, precision: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.empty_like(like).normal_(generator=generator) * precision.rsqrt().to(like.dtype)


def _largest_ratio(a: float, dim: int) -> float:
    """max_b [−½a + b − log ∫ r^{d−1} e^{−½ a r² + b r} dr]: concave in b, and largest where r has mean 1."""

    def ray(b: float, dim: int) -> float:
        curvature, slope = torch.tensor([[a], [b]], dtype=torch.double)
        return float(log_ray_integral(curvature, slope, dim))

    b = brentq(lambda b: ray(b, dim + 1) - ray(b, dim), a - dim - 10 * math.sqrt(a + dim), a + 10 * math.sqrt(a + dim))
    return b - a / 2 - ray(b, dim) + 1e-9  # the table of `RayIntegrals` is good to less than that
