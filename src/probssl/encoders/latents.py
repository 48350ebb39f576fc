"""Parts of encoders that are to recover latents: whitened inputs, centred outputs, outputs on the sphere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from probssl.encoders.expansion import expansion
from probssl.encoders.mlp import MLP, Encoder
from probssl.errors import InputError
from probssl.parts.part import Context


class Whitening(nn.Module):
    """x ↦ (x − mean) W with covariance I over the sample it was made of: [n, d] → [n, d]. It is not trained.

    Directions without variance (below 1e-10 of the largest) are left as they are. Made of the number of features alone,
    it is the identity, for weights that are to be loaded.
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, sample: Tensor | int) -> None:
        super().__init__()
        if isinstance(sample, int):
            self.register_buffer("mean", torch.zeros(sample))
            self.register_buffer("weight", torch.eye(sample))
            return
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
    learnt is learnt at once. `dim` is d; `momentum` is the weight of a batch in the mean of recent ones.
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


class LatentEncoder(Encoder, nn.Sequential):
    """An encoder that is to recover latents: whitening, a leaky MLP and, for latents on a sphere, centring.

    Settings:
        hidden: widths of the hidden layers; three of ten for each feature unless given.
        sphere: whether representations are centred and put on the unit sphere.
        slope: of the ReLU below 0.
    """

    takes: ClassVar[int | None] = 1

    def __init__(
        self,
        hidden: Sequence[int] | None = None,
        dim: int | None = None,
        *,
        sphere: bool = False,
        slope: float = 0.2,
    ) -> None:
        super().__init__()
        self.hidden = None if hidden is None else tuple(hidden)
        self.dim, self.sphere, self.slope = dim, sphere, slope

    def build(self, context: Context) -> None:
        (features,) = context.need("shape")
        sample = context.sample
        for first in expansion(context.layout):
            assert context.layout is not None
            features, sample = context.layout.width, None if sample is None else first(sample)
            self.append(first)
        self.dim = context.need("dim") if self.dim is None else self.dim
        hidden = (10 * features,) * 3 if self.hidden is None else self.hidden
        self.append(Whitening(features if sample is None else sample))
        self.append(MLP.of([features, *hidden, self.dim], slope=self.slope))
        if self.sphere:
            self.append(Centring(self.dim))
            self.append(OnSphere())
