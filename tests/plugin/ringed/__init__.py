"""A package of somebody else, as it would be installed: parts that probssl finds by entry points, and networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from probssl.energies import Energy
from probssl.errors import InputError
from probssl.objectives.base import PairObjective
from probssl.pairings import SampledPairing, Views


class Hinge(PairObjective):
    """L = mean_i [δ(x_i, x̃_i) + max(0, m − δ(x_i, x̃_{i+1}))]: related rows near, the next row's relative far.

    Settings:
        margin: m, how far others have to be.
    """

    def __init__(self, energy: Energy | None = None, *, margin: float = 1.0) -> None:
        super().__init__(Taxicab() if energy is None else energy)
        if margin <= 0:
            raise InputError(f"the margin must be positive, not {margin:g}")
        self.margin = margin

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        apart = self.energy.paired(first, second.roll(1, 0))
        return {"near": self.energy.paired(first, second).mean(), "far": (self.margin - apart).clamp_min(0).mean()}


class Taxicab(Energy):
    """δ(a, b) = s Σ_k |a_k − b_k|.

    Settings:
        scale: s.
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return self.scale * (a - b).abs().sum(-1)

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return self.paired(a.unsqueeze(-2), b.unsqueeze(-3))


class Flipped(SampledPairing):
    """x̃ = ±x, feature by feature.

    Settings:
        chance: that a feature changes its sign.
    """

    def __init__(self, chance: float = 0.1) -> None:
        super().__init__()
        self.chance = chance

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.where(torch.rand(x.shape, generator=generator) < self.chance, -x, x)


class Net(nn.Module):
    """An encoder that knows nothing of probssl."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
