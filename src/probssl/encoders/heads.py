"""Heads on representations: the papers' projections, and prototypes, which turn them into clusters."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders.mlp import MLP
from probssl.errors import InputError
from probssl.parts.part import Context, Part


class ProjectionHead(Part, nn.Sequential):
    """g, which the loss sees behind the representation: linear maps with ReLU between them, [n, features] → [n, dim].

    Hidden layers are of one width. The published ones, by name, are on the 2,048 dimensions of a ResNet-50; where data
    and network are small, give smaller sizes.

    Settings:
        layers: linear maps, the last of which gives the embedding.
        hidden: units of a hidden layer; as many as the representation has dimensions unless given.
        dim: dimensions of the embedding; as many as the representation has unless given.
        batch_norm: whether hidden layers are normalised before their ReLU.
        last_norm: whether the embedding is normalised too.
    """

    def __init__(
        self,
        layers: int = 2,
        hidden: int | None = None,
        dim: int | None = None,
        *,
        batch_norm: bool = False,
        last_norm: bool = False,
    ) -> None:
        super().__init__()
        if min(layers, 1 if hidden is None else hidden, 1 if dim is None else dim) < 1:
            raise InputError("a projection head needs at least one layer, of positive widths")
        self.layers, self.hidden, self.dim = layers, hidden, dim
        self.batch_norm, self.last_norm = batch_norm, last_norm

    def build(self, context: Context) -> None:
        (features,) = context.need("shape")
        self.dim = features if self.dim is None else self.dim
        widths = [features if self.hidden is None else self.hidden] * (self.layers - 1)
        self.append(MLP.of([features, *widths, self.dim], batch_norm=self.batch_norm))
        if self.last_norm:
            self.append(nn.BatchNorm1d(self.dim))


class Prototypes(nn.Module):
    """Uᵀz / τ, the logits of p(y | x) = softmax(Uᵀz/τ) over c clusters: [n, dim] → [n, c]   (GEDI Definition 5).

    The columns of U are the cluster centres, or prototypes; there is no bias. `weight` holds Uᵀ, [c, dim]. With
    `normalise`, z and the centres are put on the unit sphere first (SwAV), so that logits lie in [−1/τ, 1/τ]. Centres
    start as an orthonormal set if there are at most `dim` of them, else as a tight frame, UUᵀ = (c/dim) I: apart from
    each other, of length 1 in the mean square. `temperature` is τ.
    """

    def __init__(self, dim: int, clusters: int, *, temperature: float = 1.0, normalise: bool = False) -> None:
        super().__init__()
        if dim < 1:
            raise InputError(f"prototypes need a representation of at least one dimension, not {dim}")
        if clusters < 1:
            raise InputError(f"the number of clusters must be at least 1, not {clusters}")
        if not 0 < temperature < math.inf:
            raise InputError(f"the temperature must be positive and finite, not {temperature:g}")
        self.weight = nn.Parameter(torch.empty(clusters, dim))
        self.temperature, self.normalise = float(temperature), normalise
        nn.init.orthogonal_(self.weight, gain=math.sqrt(max(1.0, clusters / dim)))

    @property
    def clusters(self) -> int:
        """c, the number of clusters."""
        return self.weight.shape[-2]

    def forward(self, z: Tensor) -> Tensor:
        centres: Tensor = self.weight
        if self.normalise:
            tiny = torch.finfo(z.dtype).eps
            z, centres = F.normalize(z, dim=-1, eps=tiny), F.normalize(centres, dim=-1, eps=tiny)
        return z @ centres.mT / self.temperature

    def extra_repr(self) -> str:
        clusters, dim = self.weight.shape
        return f"{dim}, {clusters}, temperature={self.temperature:g}, normalise={self.normalise}"
