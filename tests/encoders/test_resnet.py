"""The residual network of GEDI's Table 8: the same values layer by layer, its size, its start, its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from probssl.encoders import ResNet8, encode, seeded
from probssl.errors import InputError
from tests.objectives.members import generator


def images(count: int, channels: int, height: int, width: int) -> Tensor:
    return torch.rand(count, channels, height, width, generator=generator(), dtype=torch.float64)


def network(channels: int = 3, width: int = 4, dim: int | None = None) -> ResNet8:
    found = seeded(0, lambda: ResNet8(width, dim).bind(shape=(channels, 8, 8))).double()
    with torch.no_grad():
        for layer in [*found.convolutions, found.shortcut]:
            layer.bias.normal_(generator=generator(1))  # so that a bias at the wrong place shows
    return found


def blocks(found: ResNet8, x: Tensor) -> list[Tensor]:
    """Table 8, line by line: what each block gives."""
    weights = dict(found.named_parameters())

    def conv(x: Tensor, index: int) -> Tensor:
        name = f"convolutions.{index}"
        return F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], stride=(1, 1), padding=(1, 1))

    def leaky(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, 0.2 * x)

    around = F.conv2d(F.avg_pool2d(x, 2), weights["shortcut.weight"], weights["shortcut.bias"])
    first = F.avg_pool2d(conv(leaky(conv(x, 0)), 1), 2) + around
    second = F.avg_pool2d(conv(leaky(conv(leaky(first), 2)), 3), 2) + F.avg_pool2d(first, 2)
    third = conv(leaky(conv(leaky(second), 4)), 5) + second
    fourth = conv(leaky(conv(leaky(third), 6)), 7) + third
    return [first, second, third, fourth]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(28, 28), (32, 32), (8, 12), (7, 9), (4, 4), (5, 6)])
def test_values_are_those_of_the_table(channels: int, size: tuple[int, int]) -> None:
    found, x = network(channels), images(3, channels, *size)
    slow = blocks(found, x)[-1].mean((2, 3))
    assert slow.shape == (3, 4)
    torch.testing.assert_close(found(x), slow, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_the_table() -> None:
    found, x = network(), images(2, 3, 9, 8).requires_grad_()
    inputs = [x, *found.parameters()]
    fast = torch.autograd.grad(found(x).square().sum(), inputs)
    slow = torch.autograd.grad(blocks(found, x)[-1].mean((2, 3)).square().sum(), inputs)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_the_energy_of_an_image_can_be_trained() -> None:
    """The gradient in the image has a gradient in the weights, as Langevin sampling and score matching ask for."""
    found, x = network(), images(2, 3, 6, 6).requires_grad_()
    (slope,) = torch.autograd.grad(found(x).logsumexp(1).sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert all(layer.weight.grad.abs().sum() > 0 for layer in found.convolutions)
    assert torch.autograd.gradcheck(lambda x: found(x).logsumexp(1), x)


@pytest.mark.parametrize(
    ("channels", "width", "count"), [(3, 128, 1_037_184), (3, 256, 4_138_752), (1, 128, 1_034_624), (1, 32, 65_120)]
)
def test_number_of_parameters(channels: int, width: int, count: int) -> None:
    """Around 1M and 4.1M (GEDI, section 6.2 and appendix M)."""
    with torch.device("meta"):
        found = ResNet8(width).bind(shape=(channels, 32, 32))
    assert sum(value.numel() for value in found.parameters()) == count


def test_a_last_linear_map() -> None:
    found, x = network(dim=5), images(2, 3, 8, 8)
    assert found.dim == 5
    assert network().dim == 4
    features = blocks(found, x)[-1].mean((2, 3))
    torch.testing.assert_close(found(x), features @ found.head.weight.T + found.head.bias)


@pytest.mark.parametrize("kind", ["photograph", "digit"])
def test_the_start_keeps_the_scale(kind: str) -> None:
    """Smooth images of three channels around a half, and sparse ones of one channel."""
    if kind == "photograph":
        x = F.interpolate(images(32, 3, 6, 6), (32, 32), mode="bicubic").clamp(0, 1).float()
    else:
        x = (F.interpolate(images(32, 1, 9, 9) ** 4, (28, 28), mode="bilinear") * 1.5).clamp(0, 1).float()
    with torch.no_grad():
        scales = [value.square().mean().sqrt().item() for value in (x, *blocks_at_start(x))]
    assert max(scales) < 1.7 * scales[0]
    assert min(scales) > 0.6 * scales[0]


def blocks_at_start(x: Tensor) -> list[Tensor]:
    return blocks(seeded(0, lambda: ResNet8(64).bind(shape=x.shape[1:])), x)


def test_formats_and_batches_do_not_matter() -> None:
    found, x = network(), images(6, 3, 8, 8)
    torch.testing.assert_close(encode(found, x, batch_size=2), found(x).detach())
    last = network().to(memory_format=torch.channels_last)
    torch.testing.assert_close(last(x), found(x))
    torch.testing.assert_close(last(x.to(memory_format=torch.channels_last)), found(x))
    assert found(x[:0]).shape == (0, 4)


@pytest.mark.parametrize(
    ("shape", "part"), [((2, 1, 8, 8), "[2, 1, 8, 8]"), ((3, 8, 8), "[3, 8, 8]"), ((2, 3, 3, 8), "at least 4 × 4")]
)
def test_other_images_are_refused(shape: tuple[int, ...], part: str) -> None:
    with pytest.raises(InputError) as error:
        network()(torch.zeros(shape, dtype=torch.float64))
    assert part in str(error.value)


@pytest.mark.parametrize("sizes", [(0, None), (4, 0)])
def test_sizes_are_positive(sizes: tuple) -> None:
    with pytest.raises(InputError, match="at least one channel"):
        ResNet8(*sizes)
