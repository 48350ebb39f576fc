"""Heads on representations: the papers' projections, and prototypes, which turn them into clusters."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders.mlp import MLP
from probssl.errors import InputError


@dataclass(frozen=True)
class HeadShape:
    """Layers of a projection head: the hidden ones are of one width, each followed by a ReLU."""

    layers: int
    """Linear maps, the last of which gives the embedding."""
    hidden: int | None
    """Units of a hidden layer; None for as many as the representation has dimensions."""
    dim: int | None
    """Dimensions of the embedding; None for as many as the representation has."""
    batch_norm: bool = False
    """Whether hidden layers are normalised before their ReLU."""
    last_norm: bool = False
    """Whether the embedding is normalised too."""


PROJECTION_HEADS: Mapping[str, HeadShape] = MappingProxyType(
    {
        "simclr": HeadShape(2, None, 128),
        "moco-v2": HeadShape(2, None, 128),
        "byol": HeadShape(2, 4096, 256, batch_norm=True),
        "simsiam": HeadShape(3, None, None, batch_norm=True, last_norm=True),
        "barlow": HeadShape(3, 8192, 8192, batch_norm=True),
        "vicreg": HeadShape(3, 8192, 8192, batch_norm=True),
        "swav": HeadShape(2, 2048, 128, batch_norm=True),
    }
)
"""Projection heads by the method that was published with them, on the 2,048 dimensions of a ResNet-50.

simclr: Chen et al. 2020; also the head of every Siamese-EBM model of images but SimSiam's (section 4.3: "of dimension
    128 with 2 layers").
moco-v2: Chen et al. 2020b. byol: Grill et al. 2020. simsiam: Chen & He 2021. barlow: Zbontar et al. 2021. vicreg:
    Bardes et al. 2022. swav: Caron et al. 2020.
GEDI (appendix M) has layers of 2F and F units on F features: "simclr" with `dim=F, hidden=2 * F`, and "swav" with the
    same where it normalises them, for Barlow Twins and SwAV.
"""


def projection_head(name: str, features: int, *, dim: int | None = None, hidden: int | None = None) -> nn.Module:
    """The head g of that name on a representation of so many features: [n, features] → [n, dim].

    `WithHead(encoder, projection_head("simclr", encoder.dim))` is what the objective sees; the representation is the
    encoder's own. `dim` and `hidden` replace the published sizes, which are made for large networks.
    """
    if name not in PROJECTION_HEADS:
        close = difflib.get_close_matches(name, PROJECTION_HEADS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"there are projection heads named {', '.join(PROJECTION_HEADS)}, not {name!r}{hint}")
    shape = PROJECTION_HEADS[name]
    width = hidden or shape.hidden or features
    out = dim or shape.dim or features
    head = MLP([features, *[width] * (shape.layers - 1), out], batch_norm=shape.batch_norm)
    return nn.Sequential(head, nn.BatchNorm1d(out)) if shape.last_norm else head


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
