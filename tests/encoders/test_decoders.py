"""Decoders: the shapes of what they mirror, odd sizes included, and gradients everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from probssl.encoders import MLP, ConvDecoder, ConvEncoder, MirrorDecoder, MLPDecoder, ResidualDecoder, ResNet8, seeded
from probssl.errors import InputError


def mirrored(encoder: nn.Module, dim: int, shape: tuple[int, ...]) -> nn.Module:
    return MirrorDecoder().bind(encoder=encoder, dim=dim, shape=shape).network


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 33, 50), (1, 5, 4)])
def test_convolutions_turned_round(shape: tuple[int, int, int]) -> None:
    widths = [4, 6, 8] if min(shape[1:]) > 8 else [4]
    encoder = ConvEncoder(widths, 3, hidden=7).bind(shape=shape)
    decoder = mirrored(encoder, 3, shape)
    assert isinstance(decoder, ConvDecoder)
    sizes: list[tuple[int, ...]] = []
    x = torch.rand(2, *shape)
    for layer in encoder:
        if isinstance(layer, nn.Conv2d):
            sizes.append(tuple(x.shape[1:]))
        x = layer(x)
    back: list[tuple[int, ...]] = []
    z = torch.randn(2, 3)
    for layer in decoder:
        z = layer(z)
        if isinstance(layer, nn.ConvTranspose2d):
            back.append(tuple(z.shape[1:]))
    assert back == sizes[::-1]
    linear = [part for part in decoder.modules() if isinstance(part, nn.Linear)]
    assert linear[0].out_features == 7


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 9, 20), (1, 3, 3)])
def test_residual_decoders_make_any_size(shape: tuple[int, int, int]) -> None:
    decoder = mirrored(ResNet8(4, 5).bind(shape=shape), 5, shape)
    assert isinstance(decoder, ResidualDecoder)
    made = decoder(torch.randn(3, 5))
    assert made.shape == (3, *shape)
    made.square().sum().backward()
    assert all(parameter.grad is not None for parameter in decoder.parameters())


def test_perceptrons_turned_round() -> None:
    flattening = nn.Sequential(nn.Flatten(), MLP.of([784, 500, 500, 2000, 10]))
    for images in (flattening, MLP((500, 500, 2000), 10).bind(shape=(1, 28, 28))):
        decoder = mirrored(images, 10, (1, 28, 28))
        assert isinstance(decoder, MLPDecoder)
        assert [part.sizes for part in decoder.modules() if isinstance(part, MLP)] == [(10, 2000, 500, 500, 784)]
    linear = mirrored(nn.Linear(6, 2), 2, (6,))
    assert isinstance(linear, MLPDecoder)
    assert [part.sizes for part in linear.modules() if isinstance(part, MLP)] == [(2, 6)]


def test_a_mirror_image_is_as_good_as_the_network_that_it_is() -> None:
    encoder, known = ConvEncoder((4, 6), 3, hidden=7).bind(shape=(1, 9, 8)), {"dim": 3, "shape": (1, 9, 8)}
    mirror = seeded(0, lambda: MirrorDecoder().bind(encoder=encoder, **known))
    same = seeded(0, lambda: ConvDecoder((4, 6), hidden=7).bind(**known))
    z = torch.randn(2, 3)
    assert torch.equal(mirror(z), same(z))
    he = [
        layer for layer in MirrorDecoder(he=True).bind(encoder=encoder, **known).modules() if hasattr(layer, "weight")
    ]
    assert all(not layer.bias.any() for layer in he)


def test_refusals() -> None:
    with pytest.raises(InputError, match="leave nothing"):
        ConvDecoder([2, 2, 2]).bind(dim=2, shape=(1, 4, 4))
    with pytest.raises(InputError, match="at least one channel"):
        ConvDecoder([])
    with pytest.raises(InputError, match="at least one channel"):
        ConvDecoder([2, 0])
    with pytest.raises(InputError, match="at least one channel"):
        ResidualDecoder(0)
    with pytest.raises(InputError, match="without encoder"):
        MirrorDecoder().bind(dim=2, shape=(1, 8, 8))
