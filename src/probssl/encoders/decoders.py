"""Decoders: latents back to observations, each the mirror image of an encoder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from probssl.encoders.mlp import MLP
from probssl.errors import InputError


class ConvDecoder(nn.Sequential):
    """`ConvEncoder` in a mirror: an `MLP`, then transposed convolutions of stride 2: [n, dim] → [n, channels, h, w].

    `size`, `channels`, `widths` and `hidden` are the encoder's own, so that its k-th layer from the end has the shape
    of the encoder's k-th layer: 4 × 4 kernels that double an image, one row or column more where the encoder rounded
    down. The last layer is linear: what it says is up to the likelihood.
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        dim: int,
        *,
        channels: int = 1,
        widths: Sequence[int] = (32, 32, 64, 64),
        hidden: int = 256,
    ) -> None:
        if min([dim, channels, hidden, *widths], default=0) < 1 or not widths:
            raise InputError("a convolutional decoder needs layers of at least one channel or unit each")
        sides = [(size, size) if isinstance(size, int) else size]
        for _ in widths:
            sides.append((sides[-1][0] // 2, sides[-1][1] // 2))
        if min(sides[-1]) < 1:
            raise InputError(
                f"{len(widths)} convolutions that halve an image leave nothing of one of "
                f"{sides[0][0]} × {sides[0][1]} pixels"
            )
        layers: list[nn.Module] = [
            MLP([dim, hidden, widths[-1] * math.prod(sides[-1])]),
            nn.ReLU(),
            nn.Unflatten(1, (widths[-1], *sides[-1])),
        ]
        for layer in reversed(range(len(widths))):
            after = widths[layer - 1] if layer else channels
            larger, smaller = sides[layer], sides[layer + 1]
            odd = (larger[0] - 2 * smaller[0], larger[1] - 2 * smaller[1])
            layers.append(nn.ConvTranspose2d(widths[layer], after, 4, stride=2, padding=1, output_padding=odd))
            layers += [nn.ReLU()] if layer else []
        super().__init__(*layers)
        self.size, self.dim = size, int(dim)


class ResidualDecoder(nn.Module):
    """Residual blocks that double an image, after a linear map to its smallest: [n, dim] → [n, channels, h, w].

    SimVAE's Table 4b: 8 · `width` channels at first, half as many after every doubling but the last, each block two
    3 × 3 convolutions with batch norm and ReLU around a shortcut of one pixel; then one convolution of 5 × 5 to the
    channels of the image. Sides are doubled as often as leaves at least 4 of the shorter one, by copying pixels.
    """

    def __init__(self, shape: Sequence[int], dim: int, *, width: int = 16) -> None:
        super().__init__()
        channels, height, breadth = shape
        if min(channels, height, breadth, dim, width) < 1:
            raise InputError("a residual decoder needs at least one channel, pixel and latent")
        doublings = max(1, (min(height, breadth) // 4).bit_length() - 1)
        sides = [(height, breadth)]
        for _ in range(doublings):
            sides.insert(0, (max(1, sides[0][0] // 2), max(1, sides[0][1] // 2)))
        widths = [max(width, 8 * width >> block) for block in range(doublings + 1)]
        self.sides, self.dim = sides, int(dim)
        self.smallest = nn.Sequential(
            nn.Linear(dim, widths[0] * math.prod(sides[0])), nn.Unflatten(1, (widths[0], *sides[0]))
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


def mirrored_decoder(encoder: nn.Module, dim: int, shape: Sequence[int]) -> nn.Module:
    """A decoder of latents [n, dim] to observations of that shape, the mirror image of an encoder that was handed in.

    An `MLP`, alone or after other layers (flattening, whitening), has its hidden layers turned round (SimVAE's
    Table 3); a `ConvEncoder` becomes a `ConvDecoder`; any other network of images a `ResidualDecoder`. Shapes of one
    number are rows of a table.
    """
    from probssl.encoders.conv import ConvEncoder

    if isinstance(encoder, ConvEncoder):
        convolutions = [layer for layer in encoder if isinstance(layer, nn.Conv2d)]
        last = encoder[-1]
        assert isinstance(last, MLP)
        return ConvDecoder(
            encoder.size,
            dim,
            channels=shape[0],
            widths=[layer.out_channels for layer in convolutions],
            hidden=last.sizes[1],
        )
    perceptrons = [part for part in encoder.modules() if isinstance(part, MLP)]
    if any(isinstance(part, nn.Conv2d) for part in encoder.modules()) and len(shape) == 3:
        return ResidualDecoder(shape, dim)
    hidden = [] if not perceptrons else list(perceptrons[0].sizes[1:-1])
    return MLP([dim, *reversed(hidden), math.prod(shape)])
