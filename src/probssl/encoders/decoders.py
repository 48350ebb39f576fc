"""Decoders: latents back to observations, each the mirror image of an encoder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders.conv import ConvEncoder
from probssl.encoders.mlp import MLP, he_weights
from probssl.errors import InputError
from probssl.parts.part import Context, Part


class Decoder(Part, nn.Module):
    """A network of latents [n, dim] to parameters of a likelihood, [n, *shape] or flat."""


class MLPDecoder(Decoder, nn.Sequential):
    """An `MLP` of latents to as many numbers as an observation has.

    Settings:
        hidden: widths of the hidden layers.
        he: whether weights start with variance 2/inputs and no bias.
        linear: whether a linear map of the latents is added to the output.
    """

    def __init__(self, hidden: Sequence[int] = (128,), *, he: bool = False, linear: bool = False) -> None:
        super().__init__()
        self.hidden, self.he, self.linear = tuple(hidden), he, linear

    def build(self, context: Context) -> None:
        sizes = [context.need("dim"), *self.hidden, math.prod(context.need("shape"))]
        self.append(MLP.of(sizes, he=self.he, linear=self.linear))


class ConvDecoder(Decoder, nn.Sequential):
    """`ConvEncoder` in a mirror: an `MLP`, then transposed convolutions of stride 2: [n, dim] → [n, channels, h, w].

    Its k-th layer from the end has the shape of the encoder's k-th layer: 4 × 4 kernels that double an image, one row
    or column more where the encoder rounded down. The last layer is linear: what it says is up to the likelihood.

    Settings:
        widths: channels of each convolution, in the encoder's order.
        hidden: units of the layer between the latents and the convolutions.
    """

    def __init__(self, widths: Sequence[int] = (32, 32, 64, 64), *, hidden: int = 256) -> None:
        super().__init__()
        if min([hidden, *widths], default=0) < 1 or not widths:
            raise InputError("a convolutional decoder needs layers of at least one channel or unit each")
        self.widths, self.hidden = tuple(widths), hidden

    def build(self, context: Context) -> None:
        channels, height, width = context.need("shape")
        sides = [(height, width)]
        for _ in self.widths:
            sides.append((sides[-1][0] // 2, sides[-1][1] // 2))
        if min(sides[-1]) < 1:
            raise InputError(
                f"{len(self.widths)} convolutions that halve an image leave nothing of one of {height} × {width} pixels"
            )
        self.append(MLP.of([context.need("dim"), self.hidden, self.widths[-1] * math.prod(sides[-1])]))
        self.append(nn.ReLU())
        self.append(nn.Unflatten(1, (self.widths[-1], *sides[-1])))
        for layer in reversed(range(len(self.widths))):
            after = self.widths[layer - 1] if layer else channels
            larger, smaller = sides[layer], sides[layer + 1]
            odd = (larger[0] - 2 * smaller[0], larger[1] - 2 * smaller[1])
            self.append(nn.ConvTranspose2d(self.widths[layer], after, 4, stride=2, padding=1, output_padding=odd))
            if layer:
                self.append(nn.ReLU())


class ResidualDecoder(Decoder):
    """Residual blocks that double an image, after a linear map to its smallest: [n, dim] → [n, channels, h, w].

    SimVAE's Table 4b: 8 · `width` channels at first, half as many after every doubling but the last, each block two
    3 × 3 convolutions with batch norm and ReLU around a shortcut of one pixel; then one convolution of 5 × 5 to the
    channels of the image. Sides are doubled as often as leaves at least 4 of the shorter one, by copying pixels.

    Settings:
        width: channels of the last block.
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        if width < 1:
            raise InputError(f"a residual decoder needs at least one channel, not {width}")
        self.width = width

    def build(self, context: Context) -> None:
        channels, height, breadth = context.need("shape")
        doublings = max(1, (min(height, breadth) // 4).bit_length() - 1)
        sides = [(height, breadth)]
        for _ in range(doublings):
            sides.insert(0, (max(1, sides[0][0] // 2), max(1, sides[0][1] // 2)))
        widths = [max(self.width, 8 * self.width >> block) for block in range(doublings + 1)]
        self.sides = sides
        self.smallest = nn.Sequential(
            nn.Linear(context.need("dim"), widths[0] * math.prod(sides[0])), nn.Unflatten(1, (widths[0], *sides[0]))
        )
        self.blocks = nn.ModuleList(_ResidualBlock(before, after) for before, after in itertools.pairwise(widths))
        self.last = nn.Conv2d(widths[-1], channels, 5, padding=2)

    def forward(self, z: Tensor) -> Tensor:
        x = self.smallest(z)
        for block, side in zip(self.blocks, self.sides[1:], strict=True):
            x = block(F.interpolate(x, size=side, mode="nearest"))
        return self.last(F.relu(x))


class _ResidualBlock(nn.Module):
    """x ↦ conv σ(bn conv σ(bn x)) + conv₁ x."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.change = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.ReLU(),
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1),
        )
        self.shortcut = nn.Conv2d(before, after, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.change(x) + self.shortcut(x)


class MirrorDecoder(Decoder):
    """The mirror image of the encoder.

    The hidden layers of an `MLP`, alone or after other layers (flattening, whitening), are turned round (SimVAE's
    Table 3); a `ConvEncoder` becomes a `ConvDecoder`; any other network of images a `ResidualDecoder`.

    Settings:
        he: whether weights start with variance 2/inputs and no bias.
    """

    def __init__(self, *, he: bool = False) -> None:
        super().__init__()
        self.he = he

    def build(self, context: Context) -> None:
        encoder = context.need("encoder")
        perceptrons = [part for part in encoder.modules() if isinstance(part, MLP)]
        made: Decoder
        if isinstance(encoder, ConvEncoder):
            assert not isinstance(encoder.widths, int)
            made = ConvDecoder(encoder.widths, hidden=encoder.hidden)
        elif any(isinstance(part, nn.Conv2d) for part in encoder.modules()) and len(context.need("shape")) == 3:
            made = ResidualDecoder()
        else:
            mirrored = perceptrons[0] if perceptrons else None
            made = MLPDecoder(mirrored.sizes[-2:0:-1], linear=bool(mirrored.linear)) if mirrored else MLPDecoder(())
        self.network = made.bind(context)
        if self.he:
            he_weights(self.network)

    def forward(self, z: Tensor) -> Tensor:
        return self.network(z)
