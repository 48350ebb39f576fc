"""ResNet-18, with the stem for small images that the papers' CIFAR experiments use."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders.mlp import Encoder
from probssl.errors import InputError
from probssl.parts.part import Context

Stem = Literal["cifar", "imagenet"]
Normalisation = Literal["batch", "group", "none"]

GROUP_CHANNELS = 16
"""Least channels of a group, of layers that have as many: enough that a group varies where one place is left of it."""


class ResNet18(Encoder):
    """The residual network of He et al. (2016) with eight blocks: [n, channels, h, w] → [n, 8 · width].

    A stem, four stages of two blocks with w, 2w, 4w and 8w channels, the last three of which halve the image, and the
    mean over all places. A block is σ(n conv σ(n conv x) + x), of 3 × 3 convolutions, σ = ReLU, n the normalisation;
    where it changes the shape, x goes through n conv₁ of one pixel. The stem is σ(n conv x), of 3 × 3 pixels and stride
    1 for images of about 32 × 32 ("cifar": Chen et al. 2020, appendix B.9, which Siamese-EBM follows), or of 7 × 7 and
    stride 2 with a maximum over 3 × 3 places after it ("imagenet"). There are 11,168,832 parameters at width 64 with 3
    channels and the first stem, 11,176,512 with the second.

    `normalisation` is one of:

    - "batch": as published. Images of a batch depend on each other while training; evaluation uses running averages.
    - "group": each image by itself, in groups of at least 16 channels (Wu & He 2018), fewer where a layer has no more.
      The number of parameters is the same.
    - "none": convolutions have biases instead, 4,800 of them at width 64, half as many as the scales and shifts.

    With the last two the embedding of an image does not depend on the others, which the Fisher loss needs.

    Convolutions start with variance 2 / outputs (He et al. 2015, as the authors have it), scales of the normalisation
    at 1. Without normalisation nothing holds sums down: variances are 2 / inputs, which ReLUs keep the scale with, and
    the last convolution of each of the eight blocks starts at 8^−½ of that, so that the root mean square stays within a
    factor of about two. Weights are kept in the memory order `channels_last`, in which convolutions are faster;
    images may come in any order, and no value depends on it.

    Settings:
        width: channels of the stem and of the first stage.
        dim: dimensions of a linear map that comes last; none, and so 8 · `width` of them, unless given.
        stem: "cifar" for small images, "imagenet" for those of about 224 × 224.
        normalisation: "batch", "group" or "none".
    """

    takes: ClassVar[int | None] = 3

    def __init__(
        self,
        width: int = 64,
        dim: int | None = None,
        *,
        stem: Stem = "cifar",
        normalisation: Normalisation = "batch",
    ) -> None:
        super().__init__()
        if min(width, 1 if dim is None else dim) < 1:
            raise InputError("a residual network needs at least one channel in between and one out")
        if stem not in get_args(Stem):
            raise InputError(f"the stem of a ResNet-18 is one of {', '.join(get_args(Stem))}, not {stem!r}")
        if normalisation not in get_args(Normalisation):
            raise InputError(
                f"the normalisation of a ResNet-18 is one of {', '.join(get_args(Normalisation))}, "
                f"not {normalisation!r}"
            )
        self.width, self.dim, self.stem, self.normalisation = width, dim, stem, normalisation

    def build(self, context: Context) -> None:
        self.channels, width, normalisation = context.need("shape")[0], self.width, self.normalisation
        kernel, stride = (3, 1) if self.stem == "cifar" else (7, 2)
        self.first = nn.Conv2d(self.channels, width, kernel, stride, kernel // 2, bias=normalisation == "none")
        self.norm = _normalised(normalisation, width)
        sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 8 * width, 2)]
        self.blocks = nn.ModuleList()
        for before, after, step in sizes:
            self.blocks += [_Block(before, after, step, normalisation), _Block(after, after, 1, normalisation)]
        self.head = nn.Identity() if self.dim is None else nn.Linear(8 * width, self.dim)
        self.dim = 8 * width if self.dim is None else self.dim
        self._start()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise InputError(f"images for this network are [n, {self.channels}, height, width], not {list(x.shape)}")
        x = F.relu(self.norm(self.first(x)), inplace=True)
        if self.stem == "imagenet":
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))

    @torch.no_grad()
    def _start(self) -> None:
        plain = self.normalisation == "none"
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_in" if plain else "fan_out", nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        for block in self.blocks if plain else ():
            assert isinstance(block, _Block)
            block.second.weight.mul_(len(self.blocks) ** -0.5)


def _normalised(kind: Normalisation, channels: int) -> nn.Module:
    """The layer after a convolution."""
    if kind == "none":
        return nn.Identity()
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    groups = range(max(1, channels // GROUP_CHANNELS), 0, -1)
    return nn.GroupNorm(next(count for count in groups if channels % count == 0), channels)


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int, normalisation: Normalisation) -> None:
        super().__init__()
        bias = normalisation == "none"
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=bias)
        self.first_norm = _normalised(normalisation, after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=bias)
        self.second_norm = _normalised(normalisation, after)
        self.stride, self.around = stride, nn.Sequential()
        if before != after:
            self.around = nn.Sequential(nn.Conv2d(before, after, 1, bias=bias), _normalised(normalisation, after))

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(x)), inplace=True)
        # of one pixel and a stride: oneDNN's own, channels last, writes past its memory where channels are not eights
        around = self.around(x if self.stride == 1 else x[:, :, :: self.stride, :: self.stride])
        return F.relu(self.second_norm(self.second(inner)) + around, inplace=True)
