"""Decoders: the shapes of what they mirror, odd sizes included, and gradients everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from probssl.encoders import MLP, ConvDecoder, ConvEncoder, ResidualDecoder, ResNet8, mirrored_decoder
from probssl.errors import InputError


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 33, 50), (1, 5, 4)])
def test_convolutions_turned_round(shape: tuple[int, int, int]) -> None:
    widths = [4, 6, 8] if min(shape[1:]) > 8 else [4]
    encoder = ConvEncoder(shape[1:], 3, channels=shape[0], widths=widths, hidden=7)
    decoder = mirrored_decoder(encoder, 3, shape)
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
    decoder = mirrored_decoder(ResNet8(shape[0], 4, 5), 5, shape)
    assert isinstance(decoder, ResidualDecoder)
    made = decoder(torch.randn(3, 5))
    assert made.shape == (3, *shape)
    made.square().sum().backward()
    assert all(parameter.grad is not None for parameter in decoder.parameters())


def test_perceptrons_turned_round() -> None:
    images = nn.Sequential(nn.Flatten(), MLP([784, 500, 500, 2000, 10]))
    decoder = mirrored_decoder(images, 10, (1, 28, 28))
    assert isinstance(decoder, MLP)
    assert decoder.sizes == (10, 2000, 500, 500, 784)
    linear = mirrored_decoder(nn.Linear(6, 2), 2, (6,))
    assert isinstance(linear, MLP)
    assert linear.sizes == (2, 6)


def test_refusals() -> None:
    with pytest.raises(InputError, match="leave nothing"):
        ConvDecoder(4, 2, widths=[2, 2, 2])
    with pytest.raises(InputError, match="at least one channel"):
        ConvDecoder(8, 0)
    with pytest.raises(InputError, match="at least one channel"):
        ResidualDecoder((1, 8, 8), 0)
