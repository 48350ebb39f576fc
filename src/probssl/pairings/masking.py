"""Augmentations of tables of numbers: features masked, with noise, as in Siamese-EBM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from probssl.errors import InputError
from probssl.pairings.views import FeaturewisePairing


class MaskAndNoise(FeaturewisePairing):
    """x̃ = α ∘ x + ε, with α ~ Bernoulli(ρ) and ε ~ N(0, σ²) in every feature (Siamese-EBM Eq. 37 and 168).

    log p(x̃ | x) = Σ_features log[(1 − ρ) N(x̃ | 0, σ²) + ρ N(x̃ | x, σ²)]   (Eq. 170)
    score = ((x̃ − x)/σ²) · sigmoid(−u),  u = log((1 − ρ)/ρ) + x(x − 2x̃)/(2σ²), feature by feature.

    The printed Eq. 172 carries a spurious factor ρ and a wrong exponent; the form above is the derivative of
    Eq. 170 and never overflows.

    Settings:
        preservation: ρ, the share of features that are kept, one number or one per feature; the others become 0.
        noise: σ, the standard deviation of the noise, one number or one per feature.
    """

    draws: ClassVar[int] = 2
    takes = 1
    per_feature: ClassVar[tuple[str, ...]] = ("preservation", "noise")
    preservation: Tensor
    noise: Tensor

    def __init__(
        self, preservation: float | Sequence[float] | Tensor = 0.8, noise: float | Sequence[float] | Tensor = 0.1
    ) -> None:
        super().__init__()
        keep = torch.as_tensor(preservation, dtype=torch.float64)
        scale = torch.as_tensor(noise, dtype=torch.float64)
        if keep.ndim > 1 or not bool(((keep >= 0) & (keep <= 1)).all()):
            raise InputError("the preservation rate must lie in [0, 1], one number or one per feature")
        if scale.ndim > 1 or not bool((scale > 0).all()) or not bool(scale.isfinite().all()):
            raise InputError("the noise scale must be positive and finite, one number or one per feature")
        self.register_buffer("preservation", keep)
        self.register_buffer("noise", scale)

    def fill(self, draws: Sequence[Tensor], generator: torch.Generator | None = None) -> None:
        noise, chance = draws
        noise.normal_(generator=generator)
        chance.uniform_(generator=generator)  # in less than half the time of bernoulli_

    def combine(self, x: Tensor, draws: Sequence[Tensor]) -> Tensor:
        noise, chance = draws
        keep = chance < self.preservation  # chance is in [0, 1): a rate of 1 keeps everything, one of 0 nothing
        return torch.addcmul(keep * x, noise, self.noise.to(x.dtype))

    def log_prob(self, x_aug: Tensor, x: Tensor) -> Tensor:
        keep, scale = self.preservation.to(x.dtype), self.noise.to(x.dtype)
        masked = torch.log1p(-keep) - 0.5 * (x_aug / scale).square()
        kept = torch.log(keep) - 0.5 * ((x_aug - x) / scale).square()
        each = torch.logaddexp(masked, kept) - scale.log() - 0.5 * math.log(2 * math.pi)
        return each.sum(-1)

    def pairwise_log_prob(self, x_aug: Tensor, x: Tensor, *, block: int = 2**22) -> Tensor:
        """All pairs, one x̃ at a time: log N(x̃ | 0, σ²)(1 − ρ) + softplus(log(ρ/(1 − ρ)) + x(2x̃ − x)/2σ²), summed.

        A single transcendental function a feature makes it five times as fast as `log_prob`.
        """
        keep, scale = self.preservation.to(x.dtype), self.noise.to(x.dtype)
        white, white_aug = x / scale, x_aug / scale
        cancels = 0.5 * white.square().max() * torch.finfo(x.dtype).eps > 1e-6  # the two parts are that much larger
        if bool(((keep <= 0) | (keep >= 1)).any()) or not bool(white.isfinite().all()) or bool(cancels):
            return super().pairwise_log_prob(x_aug, x, block=block)
        masked = torch.log1p(-keep) - 0.5 * white_aug.square() - scale.log() - 0.5 * math.log(2 * math.pi)
        log_odds = torch.log(keep) - torch.log1p(-keep) - 0.5 * white.square()  # [n, d], but for the product with x̃
        kept = [F.softplus(torch.addcmul(log_odds, white, row), threshold=40).sum(-1) for row in white_aug]
        return masked.sum(-1, keepdim=True) + torch.stack(kept)

    def score(self, x_aug: Tensor, x: Tensor) -> Tensor:
        keep, variance = self.preservation.to(x.dtype), self.noise.to(x.dtype).square()
        log_odds_masked = torch.log1p(-keep) - torch.log(keep) + x * (x - 2 * x_aug) / (2 * variance)
        return (x_aug - x) / variance * torch.sigmoid(-log_odds_masked)
