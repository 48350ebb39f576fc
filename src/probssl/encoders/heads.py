"""Heads that turn representations into clusters."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.errors import InputError


class Prototypes(nn.Module):
    """Uᵀz / τ, the logits of p(y | x) = softmax(Uᵀz/τ) over c clusters: [n, dim] → [n, c]   (GEDI Definition 5).

    The columns of U are the cluster centres, or prototypes; there is no bias. `weight` holds Uᵀ, [c, dim]. With
    `normalise`, z and the centres are put on the unit sphere first (SwAV), so that logits lie in [−1/τ, 1/τ]. Centres
    start as an orthonormal set if there are at most `dim` of them, else as a tight frame, UUᵀ = (c/dim) I: apart from
    each other, of length 1 in the mean square.
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
