"""Parts of encoders that are to recover latents: whitened inputs, centred outputs, outputs on the sphere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from probssl.encoders.mlp import MLP
from probssl.errors import InputError


class Whitening(nn.Module):
    """x ↦ (x − mean) W with covariance I over the sample it was made of: [n, d] → [n, d]. It is not trained.

    Directions without variance (below 1e-10 of the largest) are left as they are.
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, sample: Tensor) -> None:
        super().__init__()
        if sample.ndim != 2 or len(sample) < 2:
            raise InputError(
                f"whitening needs a sample of at least two rows, not an array of shape {tuple(sample.shape)}"
            )
        x = sample.double()
        values, vectors = torch.linalg.eigh(torch.cov(x.T).reshape(x.shape[1], x.shape[1]))
        scale = torch.where(values > 1e-10 * values[-1], values.clamp_min(1e-300).rsqrt(), 1.0)
        self.register_buffer("mean", x.mean(0).to(sample.dtype))
        self.register_buffer("weight", (vectors * scale @ vectors.T).to(sample.dtype))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) @ self.weight


class Centring(nn.Module):
    """z minus its mean over the batch; outside training, minus the mean of recent batches: [n, d] → [n, d].

    What is uniform on a sphere has mean zero, so that nothing is lost by asking for it, and a mean that need not be
    learnt is learnt at once.
    """

    mean: Tensor
    whole_batch: ClassVar[bool] = True
    """Rows meet here: where several processes have some each, this layer is given those of all."""

    def __init__(self, dim: int, momentum: float = 0.01) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))

    def forward(self, z: Tensor) -> Tensor:
        if not self.training:
            return z - self.mean
        now = z.mean(0)
        with torch.no_grad():
            self.mean.lerp_(now.detach(), self.momentum)
        return z - now


class OnSphere(nn.Module):
    """z / ‖z‖ · radius: [n, d] → [n, d]."""

    def __init__(self, radius: float = 1.0) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, z: Tensor) -> Tensor:
        return nn.functional.normalize(z, dim=-1) * self.radius


def latent_encoder(
    sample: Tensor, dim: int, hidden: Sequence[int], *, sphere: bool, slope: float = 0.2
) -> nn.Sequential:
    """An encoder of observations like `sample` [n, d]: whitening, leaky MLP and, for latents on a sphere, centring."""
    parts: list[nn.Module] = [Whitening(sample), MLP([sample.shape[1], *hidden, dim], slope=slope)]
    return nn.Sequential(*parts, *([Centring(dim), OnSphere()] if sphere else []))
