"""The residual network of eight layers that GEDI encodes images with."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders.mlp import Encoder
from probssl.errors import InputError
from probssl.parts.part import Context

SLOPE = 0.2
"""Of the leaky ReLU."""


class ResNet8(Encoder):
    """Four residual blocks of two 3 × 3 convolutions, without normalisation: [n, channels, h, w] → [n, width].

    h₁ = pool(conv σ(conv x)) + conv₁ pool(x);  h₂ = pool(conv σ(conv σ(h₁))) + pool(h₁);
    hₖ = conv σ(conv σ(hₖ₋₁)) + hₖ₋₁ for k = 3, 4;  ψ(x) = mean of h₄ over all places

    with σ the leaky ReLU of slope 0.2, pool the mean of 2 × 2 places and conv₁ of one pixel (GEDI, Table 8, after
    Duvenaud et al. 2021). It has 1,037,184 parameters for images of three channels at width 128 and 4,138,752 at 256,
    the "1 million" and "4.1 million" of GEDI's appendix M, which leaves no room for a convolution on the way round
    block 2. Images of any size from 4 × 4 do.

    A convolution and the mean after it are computed as one: pool(conv) is a convolution of 4 × 4 pixels and stride 2,
    with 4 products where there were 9, and the mean of a convolution over all places is a product with nine sums. The
    parameters are those of the table, the values are the same, and a step takes about 0.6 of the time. Weights are kept
    in the memory order `channels_last`, which saves another tenth to third.

    Weights start with variance 2 / (1.04 · inputs) after a leaky ReLU and 1 / inputs elsewhere (He et al. 2015), biases
    at 0, and the last convolution of every block at half that scale: no normalisation holds the sums down, and blocks
    that add as much as they are given would quadruple the root mean square. So it stays within a factor of about 1.5.

    Settings:
        width: channels of every convolution.
        dim: dimensions of a linear map that comes last; none, and so `width` of them, unless given.
    """

    takes: ClassVar[int | None] = 3

    def __init__(self, width: int = 128, dim: int | None = None) -> None:
        super().__init__()
        if min(width, 1 if dim is None else dim) < 1:
            raise InputError("a residual network needs at least one channel in between and one out")
        self.width, self.dim = width, dim

    def build(self, context: Context) -> None:
        self.channels = context.need("shape")[0]
        sizes = [(self.channels, self.width), *[(self.width, self.width)] * 7]
        self.convolutions = nn.ModuleList([nn.Conv2d(before, after, 3, padding=1) for before, after in sizes])
        self.shortcut = nn.Conv2d(self.channels, self.width, 1)
        self.head = nn.Identity() if self.dim is None else nn.Linear(self.width, self.dim)
        self.dim = self.width if self.dim is None else self.dim
        self._start()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.channels or min(x.shape[2:]) < 4:
            raise InputError(
                f"images for this network are [n, {self.channels}, height, width] of at least 4 × 4, "
                f"not {list(x.shape)}"
            )
        first, second, third, fourth, fifth, sixth, seventh, eighth = self.convolutions
        x = _pooled_convolution(_leaky(first(x)), second) + self.shortcut(F.avg_pool2d(x, 2))
        x = _pooled_convolution(_leaky(third(_leaky(x))), fourth) + F.avg_pool2d(x, 2)
        x = sixth(_leaky(fifth(_leaky(x)))) + x
        return self.head(_mean_convolution(_leaky(seventh(_leaky(x))), eighth) + x.mean((2, 3)))

    @torch.no_grad()
    def _start(self) -> None:
        for index, layer in enumerate([*self.convolutions, self.shortcut]):
            assert isinstance(layer, nn.Conv2d)
            assert layer.bias is not None
            linear = layer is self.shortcut or index == 0  # no leaky ReLU before it
            nn.init.kaiming_normal_(layer.weight, a=1.0 if linear else SLOPE)
            nn.init.zeros_(layer.bias)
            if layer is not self.shortcut and index % 2:
                layer.weight.mul_(0.5)


def _leaky(x: Tensor) -> Tensor:
    return F.leaky_relu(x, SLOPE)


def _pooled_convolution(x: Tensor, layer: nn.Module) -> Tensor:
    """`avg_pool2d(layer(x), 2)` of a 3 × 3 convolution: the mean of its kernel at four places, with stride 2."""
    assert isinstance(layer, nn.Conv2d)
    kernel = F.avg_pool2d(F.pad(layer.weight, (1, 1, 1, 1)), 2, stride=1)  # [out, in, 4, 4]
    return F.conv2d(x, kernel, layer.bias, stride=2, padding=1)


def _mean_convolution(x: Tensor, layer: nn.Module) -> Tensor:
    """`layer(x).mean((2, 3))` of a 3 × 3 convolution: each of its weights meets the sum of what it slides over."""
    assert isinstance(layer, nn.Conv2d)
    rows, columns = (_slid_over(x, side) for side in x.shape[2:])
    sums = rows @ (x @ columns.T)  # [n, in, 3, 3]
    return F.linear(sums.flatten(1) / (x.shape[2] * x.shape[3]), layer.weight.flatten(1), layer.bias)


def _slid_over(x: Tensor, side: int) -> Tensor:
    """Which of `side` pixels the first, middle and last weight of a kernel of three see: all but the last, all, …"""
    seen = x.new_ones(3, side)
    seen[0, -1] = seen[2, 0] = 0
    return seen
