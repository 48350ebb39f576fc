"""Gaussian noise, and finite mixtures of linear maps followed by Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from probssl.errors import InputError
from probssl.pairings.views import Pairing, standard_normal


class _LinearGaussian(Pairing):
    """Shared by the linear pairings: additive noise ε ~ N(μ, Σ) with a scalar, diagonal or full Σ."""

    per_feature: ClassVar[tuple[str, ...]] = ("noise_root", "noise_mean")
    noise_mean: Tensor
    noise_root: Tensor  # scalar or [d]: standard deviations; [d, d]: lower Cholesky factor

    def _register_noise(
        self,
        std: float | Sequence[float] | Tensor | None,
        mean: float | Sequence[float] | Tensor,
        covariance: Sequence[Sequence[float]] | Tensor | None,
    ) -> None:
        if (std is None) == (covariance is None):
            raise InputError("noise takes either a standard deviation or a covariance, exactly one of them")
        if covariance is not None:
            covariance = torch.as_tensor(covariance, dtype=_floating(covariance))
            if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
                raise InputError(f"a covariance is a square matrix, this one has shape {tuple(covariance.shape)}")
            root, failed = torch.linalg.cholesky_ex(covariance.double())
            if failed or not torch.allclose(covariance, covariance.mT):
                raise InputError("the covariance is not symmetric and positive definite")
            root = root.to(covariance.dtype)
        else:
            root = torch.as_tensor(std, dtype=_floating(std))
            if root.ndim > 1 or not bool((root > 0).all()) or not bool(root.isfinite().all()):
                raise InputError("noise standard deviations must be positive and finite, one number or one per feature")
        shift = torch.as_tensor(mean, dtype=_floating(mean))
        if not bool(shift.isfinite().all()):
            raise InputError("the mean of the noise must be finite")
        self.register_buffer("noise_root", root)
        self.register_buffer("noise_mean", shift)

    def _noise(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        white = standard_normal(like, generator)
        root = self.noise_root.to(like.dtype)
        coloured = white @ root.mT if root.ndim == 2 else white * root
        return coloured + self.noise_mean.to(like.dtype)

    def _whiten(self, residual: Tensor) -> Tensor:
        """L⁻¹r with Σ = LLᵀ, over the last dimension."""
        root = self.noise_root.to(residual.dtype)
        if root.ndim == 2:
            flat = residual.reshape(-1, residual.shape[-1])
            return torch.linalg.solve_triangular(root, flat.mT, upper=False).mT.reshape(residual.shape)
        return residual / root

    def _precision_times(self, residual: Tensor) -> Tensor:
        """Σ⁻¹r over the last dimension."""
        white = self._whiten(residual)
        root = self.noise_root.to(residual.dtype)
        if root.ndim == 2:
            flat = white.reshape(-1, white.shape[-1])
            return torch.linalg.solve_triangular(root.mT, flat.mT, upper=True).mT.reshape(residual.shape)
        return white / root

    def _noise_log_prob(self, residual: Tensor, event_dims: int) -> Tensor:
        """log N(r | 0, Σ), summed over the last `event_dims` dimensions."""
        dims = tuple(range(-event_dims, 0))
        size = math.prod(residual.shape[d] for d in dims)
        root = self.noise_root.to(residual.dtype)
        if root.ndim == 2:
            log_det = root.diagonal().log().sum() * (size / residual.shape[-1])
        else:
            log_det = root.log().expand(residual.shape[-1]).sum() * (size / residual.shape[-1])
        return -0.5 * self._whiten(residual).square().sum(dims) - log_det - 0.5 * size * math.log(2 * math.pi)


def _floating(value: object) -> torch.dtype:
    """Keep a tensor's own floating type; everything else is held in double precision until it meets data."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.dtype
    return torch.float64


class GaussianNoise(_LinearGaussian):
    """x̃ = x + ε with ε ~ N(μ, Σ) (Siamese-EBM Corollary 2.2, Theorems 2.4 and 2.5).

    log p(x̃ | x) = log N(x̃ − x | μ, Σ);  score: Σ⁻¹(x̃ − x − μ).

    Settings:
        std: standard deviations of the noise, one number or one per feature.
        mean: the shift μ.
        covariance: Σ [d, d], in place of standard deviations.
        event_dims: how many trailing dimensions make one observation: 1 for tables, 3 for images.
    """

    def __init__(
        self,
        std: float | Sequence[float] | Tensor | None = None,
        *,
        mean: float | Sequence[float] | Tensor = 0.0,
        covariance: Sequence[Sequence[float]] | Tensor | None = None,
        event_dims: int = 1,
    ) -> None:
        super().__init__()
        self.event_dims = event_dims
        self._register_noise(std, mean, covariance)

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return x + self._noise(x, generator)

    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        residual = x_aug - x - self.noise_mean.to(x.dtype)
        return self._noise_log_prob(residual, self.event_dims)

    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        return self._precision_times(x_aug - x - self.noise_mean.to(x.dtype))

    def pairwise_log_prob(self, x_aug: Tensor, x: Tensor, *, block: int = 2**22) -> Tensor:
        """All pairs by one matrix product of whitened observations."""
        shift = self.noise_mean.to(x.dtype)
        white_aug, white = self._whiten(x_aug - shift).flatten(1), self._whiten(x).flatten(1)
        centre = white.mean(0)  # a common shift changes no distance and keeps the squares from cancelling
        white_aug, white = white_aug - centre, white - centre
        squares = white_aug.square().sum(1, keepdim=True) + white.square().sum(1) - 2 * (white_aug @ white.mT)
        at_mode = self._noise_log_prob(torch.zeros_like(x[:1]), self.event_dims)
        return at_mode - 0.5 * squares.clamp_min(0)


class LinearMixture(_LinearGaussian):
    """x̃ = A_k x + ε, with k drawn from fixed weights w and ε ~ N(μ, Σ) (Siamese-EBM appendix D.2, Eq. 162-167).

    log p(x̃ | x) = log Σ_k w_k N(x̃ − A_k x | μ, Σ), by log-sum-exp;
    score: Σ_k r_k A_kᵀ Σ⁻¹(x̃ − A_k x − μ), with r the posterior over maps (a softmax), so that neither
    overflows however small the noise is.

    Settings:
        maps: A [K, d, d].
        std: standard deviations of the noise, one number or one per feature.
        weights: w, one number per map; equal unless given.
        mean: μ of the noise.
        covariance: Σ [d, d] of the noise, in place of standard deviations.
    """

    takes = 1
    per_feature: ClassVar[tuple[str, ...]] = ("maps", "noise_root", "noise_mean")
    maps: Tensor
    log_weights: Tensor

    def __init__(
        self,
        maps: Sequence[Sequence[Sequence[float]]] | Tensor,
        std: float | Sequence[float] | Tensor | None = None,
        *,
        weights: Sequence[float] | Tensor | None = None,
        mean: float | Sequence[float] | Tensor = 0.0,
        covariance: Sequence[Sequence[float]] | Tensor | None = None,
    ) -> None:
        super().__init__()
        maps = torch.as_tensor(maps, dtype=_floating(maps))
        if maps.ndim != 3 or maps.shape[1] != maps.shape[2]:
            raise InputError(f"linear maps come as one array [K, d, d], this one has shape {tuple(maps.shape)}")
        chosen = torch.as_tensor([1.0] * len(maps) if weights is None else weights, dtype=torch.float64)
        if chosen.shape != (len(maps),) or not bool(((chosen > 0) & chosen.isfinite()).all()):
            raise InputError(f"{len(maps)} linear maps need {len(maps)} positive, finite weights")
        self.register_buffer("maps", maps)
        self.register_buffer("log_weights", (chosen / chosen.sum()).log())
        self._register_noise(std, mean, covariance)

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        choice = torch.multinomial(
            self.log_weights.exp(), len(x), replacement=True, generator=generator
        )  # [n] which map each row gets
        moved = torch.einsum("nij,nj->ni", self.maps.to(x.dtype)[choice], x)
        return moved + self._noise(x, generator)

    def _residuals(self, x_aug: Tensor, x: Tensor) -> Tensor:
        """x̃ − A_k x − μ for every map: [..., K, d]."""
        moved = torch.einsum("kij,...j->...ki", self.maps.to(x.dtype), x)
        return x_aug.unsqueeze(-2) - moved - self.noise_mean.to(x.dtype)

    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        each = self._noise_log_prob(self._residuals(x_aug, x), 1) + self.log_weights.to(x.dtype)
        return torch.logsumexp(each, dim=-1)

    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        residuals = self._residuals(x_aug, x)  # [..., K, d]
        each = self._noise_log_prob(residuals, 1) + self.log_weights.to(x.dtype)
        posterior = torch.softmax(each, dim=-1)  # [..., K]
        pulled = torch.einsum("kij,...ki->...kj", self.maps.to(x.dtype), self._precision_times(residuals))
        return (posterior.unsqueeze(-1) * pulled).sum(-2)


class Rotations(LinearMixture):
    """x̃ = R(θ) x + ε in the plane, θ one of several equally likely angles, ε ~ N(0, σ² I) (Siamese-EBM Eq. 162).

    Settings:
        degrees: the angles θ.
        noise: σ.
    """

    def __init__(self, degrees: Sequence[float] = (-90.0, 0.0, 90.0), noise: float = 0.1) -> None:
        angles = torch.tensor([math.radians(degree) for degree in degrees], dtype=torch.float64)
        cos, sin = angles.cos(), angles.sin()
        super().__init__(torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2), noise)
