"""A small convolutional encoder of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from torch import nn

from probssl.encoders.mlp import MLP, Encoder, he_weights
from probssl.errors import InputError
from probssl.parts.part import Context

LEAST_SIDE = 4
"""What the convolutions leave of the shorter side of an image unless told how many there are: at least this."""


class ConvEncoder(Encoder, nn.Sequential):
    """Convolutions of stride 2, then one hidden layer: [n, channels, height, width] → [n, dim].

    Each convolution has a 4 × 4 kernel and a ReLU, and halves the image, rounding down; what is left is flattened for
    an `MLP`. Widths of (32, 32, 64, 64) on images of 64 × 64 are the encoder of Higgins et al. 2017 ("beta-VAE") that
    the disentanglement papers and CL-ICA A.6 use; thinner ones and smaller images are for CPUs. Weights start with
    variance 2 / inputs and biases at 0 (He et al. 2015), so that ReLUs leave the size of a signal as it is: the code of
    a batch varies from the start.

    Settings:
        widths: channels of each convolution; of one number w, w, 2w, 4w, 4w, … until the image is 4 to 7 pixels wide.
        hidden: units of the layer between the convolutions and the representation.
        slope: of the ReLU below 0.
    """

    takes: ClassVar[int | None] = 3

    def __init__(
        self, widths: int | Sequence[int] = 16, dim: int | None = None, *, hidden: int = 256, slope: float = 0.0
    ) -> None:
        super().__init__()
        every = [widths] if isinstance(widths, int) else list(widths)
        if not every or min([*every, hidden, 1 if dim is None else dim]) < 1:
            raise InputError("a convolutional encoder needs layers of at least one channel or unit each")
        self.widths = widths if isinstance(widths, int) else tuple(every)
        self.dim, self.hidden, self.slope = dim, hidden, slope

    def build(self, context: Context) -> None:
        channels, height, width = context.need("shape")
        if isinstance(self.widths, int):
            halvings = max(1, (min(height, width) // LEAST_SIDE).bit_length() - 1)
            self.widths = tuple(self.widths * 2 ** min(layer, 2) for layer in range(halvings))
        left = math.prod(side // 2 ** len(self.widths) for side in (height, width))
        if left < 1:
            raise InputError(
                f"{len(self.widths)} convolutions that halve an image leave nothing of one of {height} × {width} pixels"
            )
        self.dim = context.need("dim") if self.dim is None else self.dim
        for before, after in zip([channels, *self.widths], self.widths, strict=False):
            self.append(nn.Conv2d(before, after, 4, stride=2, padding=1))
            self.append(nn.LeakyReLU(self.slope) if self.slope else nn.ReLU())
        self.append(nn.Flatten())
        self.append(MLP.of([self.widths[-1] * left, self.hidden, self.dim], slope=self.slope))
        he_weights(self)
