"""Mixings x = g(z): how latents become observations. All are injective, and those with a formula can be inverted."""

from __future__ import annotations

import abc
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.errors import InputError


class Mixing(nn.Module, abc.ABC):
    """x = g(z): [n, dim] → [n, ...]. Its weights are fixed: nothing trains a world."""

    @abc.abstractmethod
    def forward(self, z: Tensor) -> Tensor: ...

    def inverse(self, x: Tensor) -> Tensor:
        """The latents that an observation came from."""
        raise InputError(f"{type(self).__name__} has no inverse in closed form")


class Identity(Mixing):
    """x = z: the latents are observed."""

    def forward(self, z: Tensor) -> Tensor:
        return z

    def inverse(self, x: Tensor) -> Tensor:
        return x


class InvertibleMLP(Mixing):
    """x = W_L σ(… σ(W₁ z)): square layers without biases, leaky ReLU between them  (CL-ICA §3, AnInfoNCE §4.1).

    A layer is the best conditioned of `draws` matrices with entries uniform in (−1, 1) and columns of unit length, so
    that the whole is invertible in practice too. The seed decides the weights. 25,000 draws of ten dimensions take a
    second; fewer are drawn of large dimensions, where the best of many is hardly better than the others. `slope` is
    that of the leaky ReLU below zero.
    """

    def __init__(self, dim: int, *, layers: int = 3, slope: float = 0.2, draws: int = 25_000, seed: int = 0) -> None:
        super().__init__()
        if dim < 1 or layers < 1 or draws < 1:
            raise InputError(f"a mixing needs positive dimensions, layers and draws, not {dim}, {layers} and {draws}")
        if not 0 < slope <= 1:
            raise InputError(f"the slope of an invertible leaky ReLU lies in (0, 1], not {slope:g}")
        self.slope = float(slope)
        generator = torch.Generator().manual_seed(seed)
        weights = [well_conditioned(dim, draws, generator) for _ in range(layers)]
        self.register_buffer("weights", torch.stack(weights).to(torch.get_default_dtype()))

    weights: Tensor  # [layers, dim, dim]

    def forward(self, z: Tensor) -> Tensor:
        x = z
        for number, weight in enumerate(self.weights):
            x = F.leaky_relu(x, self.slope) if number else x
            x = x @ weight.T
        return x

    def inverse(self, x: Tensor) -> Tensor:
        z = x
        for number, weight in enumerate(self.weights.flip(0)):
            z = F.leaky_relu(z, 1 / self.slope) if number else z
            z = torch.linalg.solve(weight, z.T).T
        return z


def well_conditioned(dim: int, draws: int, generator: torch.Generator, *, block: int = 2**21) -> Tensor:
    """The best conditioned of `draws` random matrices with columns of unit length: [dim, dim], in double precision."""
    best, least = None, math.inf
    draws = max(1, min(draws, 2**28 // dim**3))
    rows = max(1, block // dim**2)
    for start in range(0, draws, rows):
        found = torch.rand(min(rows, draws - start), dim, dim, generator=generator, dtype=torch.double) * 2 - 1
        found = found / found.norm(dim=1, keepdim=True)
        stretch = torch.linalg.svdvals(found)
        condition = stretch[:, 0] / stretch[:, -1]
        at = int(condition.argmin())
        if float(condition[at]) < least:
            best, least = found[at].clone(), float(condition[at])
    assert best is not None
    return best


class Decoder(Mixing):
    """x = decoder(scale · z) of a trained network, which is frozen here  (AnInfoNCE F: the decoder of a VAE on MNIST).

    A VAE's latents are normal and the sphere's are not: points of the unit sphere in n dimensions, times √n, have the
    length of a normal vector, so `scale` is √n there.
    """

    def __init__(self, decoder: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.decoder = decoder.requires_grad_(False).eval()
        self.scale = float(scale)

    def train(self, mode: bool = True) -> Decoder:
        """Stays in evaluation mode."""
        return super().train(False)

    def forward(self, z: Tensor) -> Tensor:
        with torch.no_grad():
            return self.decoder(z * self.scale)
