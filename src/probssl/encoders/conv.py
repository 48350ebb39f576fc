"""A small convolutional encoder of images."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from probssl.encoders.mlp import MLP, he_weights
from probssl.errors import InputError


class ConvEncoder(nn.Sequential):
    """Convolutions of stride 2, then one hidden layer: [n, channels, height, width] → [n, dim].

    `size` is the side of square images, or height and width. Each convolution has a 4 × 4 kernel and a ReLU, leaky with
    a `slope` above 0, and halves the image, rounding down; what is left is flattened for an `MLP`. The defaults, on
    images of 64 × 64, are the encoder of Higgins et al. 2017 ("beta-VAE") that the disentanglement papers and CL-ICA
    A.6 use; thinner ones and smaller images are for CPUs. Weights start with variance 2 / inputs and biases at 0 (He
    et al. 2015), so that ReLUs leave the size of a signal as it is: the code of a batch varies from the start.
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        dim: int,
        *,
        channels: int = 1,
        widths: Sequence[int] = (32, 32, 64, 64),
        hidden: int = 256,
        slope: float = 0.0,
    ) -> None:
        if min([dim, channels, hidden, *widths], default=0) < 1 or not widths:
            raise InputError("a convolutional encoder needs layers of at least one channel or unit each")
        sides = (size, size) if isinstance(size, int) else size
        left = math.prod(side // 2 ** len(widths) for side in sides)
        if left < 1:
            raise InputError(
                f"{len(widths)} convolutions that halve an image leave nothing of one of {sides[0]} × {sides[1]} pixels"
            )
        layers: list[nn.Module] = []
        for before, after in zip([channels, *widths], widths, strict=False):
            layers += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.LeakyReLU(slope) if slope else nn.ReLU()]
        super().__init__(*layers, nn.Flatten(), MLP([widths[-1] * left, hidden, dim], slope=slope))
        self.size, self.dim = size, int(dim)
        he_weights(self)
