"""Changes of images, held against slow references pixel by pixel, and against kornia where that is installed."""

from __future__ import annotations

import colorsys
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from probssl.pairings import image_transforms as transforms
from tests.objectives.members import generator

COUNT, HEIGHT, WIDTH = 6, 7, 9


def images(channels: int = 3, *, count: int = COUNT, height: int = HEIGHT, width: int = WIDTH, seed: int = 0) -> Tensor:
    return torch.rand(count, channels, height, width, generator=generator(seed), dtype=torch.float64)


def numbers(low: float, high: float, *, count: int = COUNT, seed: int = 1) -> Tensor:
    return torch.rand(count, generator=generator(seed), dtype=torch.float64) * (high - low) + low


BOXES = torch.tensor([[2, 3, 4, 5], [0, 0, 7, 9], [0, 0, 1, 1], [6, 8, 1, 1], [1, 0, 6, 3], [0, 4, 2, 5]])
FACTORS, TURNS, BLURS = numbers(0, 2), numbers(-0.5, 0.5), numbers(0.1, 2)


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
def test_a_resized_crop_is_a_crop_then_a_resize(channels: int) -> None:
    x = images(channels)
    found = transforms.resized_crop(x, BOXES)
    for image, (top, left, height, width), one in zip(x, BOXES.tolist(), found, strict=True):
        box = image[None, :, top : top + height, left : left + width]
        slow = F.interpolate(box, (HEIGHT, WIDTH), mode="bilinear", align_corners=False)
        torch.testing.assert_close(one, slow[0], rtol=1e-12, atol=1e-12)


def test_the_crop_of_everything_changes_no_bit() -> None:
    x = images(count=4, height=28, width=32).float()
    assert torch.equal(transforms.resized_crop(x, torch.tensor([[0, 0, 28, 32]] * 4)), x)


def test_a_crop_is_differentiable_in_its_box() -> None:
    x, boxes = images(1, count=2), torch.tensor([[1.2, 0.7, 4.1, 5.35], [0.43, 1.9, 6.2, 3.8]], dtype=torch.float64)
    assert torch.autograd.gradcheck(transforms.resized_crop, (x, boxes.requires_grad_()))


@pytest.mark.parametrize(("down", "right"), [(0, 0), (2, -3), (-1, 4), (7, 0), (-9, 9)])
def test_shifts_move_zeros_in(down: int, right: int) -> None:
    x = images().float()
    slow = torch.zeros_like(x)
    for i in range(HEIGHT):
        for j in range(WIDTH):
            if 0 <= i - down < HEIGHT and 0 <= j - right < WIDTH:
                slow[:, :, i, j] = x[:, :, i - down, j - right]
    assert torch.equal(transforms.shifted(x, torch.full((COUNT,), down), torch.full((COUNT,), right)), slow)


def test_every_image_has_a_shift_of_its_own() -> None:
    x, down, right = images(), torch.tensor([0, 1, -1, 2, 0, 3]), torch.tensor([0, 0, 2, -1, 4, 1])
    for k in range(COUNT):
        alone = transforms.shifted(x[k : k + 1], down[k : k + 1], right[k : k + 1])
        assert torch.equal(transforms.shifted(x, down, right)[k], alone[0])


def test_flips() -> None:
    x = images()
    assert np.array_equal(transforms.flipped_horizontally(x).numpy(), x.numpy()[:, :, :, ::-1])
    assert np.array_equal(transforms.flipped_vertically(x).numpy(), x.numpy()[:, :, ::-1])


# --- colours ----------------------------------------------------------------------------------------------------------


def luma(pixel: np.ndarray) -> float:
    red, green, blue = pixel
    return 0.299 * red + 0.587 * green + 0.114 * blue


def by_pixel(x: Tensor, change: Callable[[np.ndarray, int], object]) -> Tensor:
    """Every pixel changed by a function of its colour and of the number of its image."""
    found = x.numpy().copy()
    for k in range(len(x)):
        for i in range(x.shape[2]):
            for j in range(x.shape[3]):
                found[k, :, i, j] = change(x[k, :, i, j].numpy(), k)
    return torch.from_numpy(found)


def turned(pixel: np.ndarray, turns: float) -> tuple[float, float, float]:
    h, s, v = colorsys.rgb_to_hsv(*pixel.tolist())
    return colorsys.hsv_to_rgb((h + turns) % 1, s, v)


def test_brightness() -> None:
    slow = by_pixel(images(), lambda pixel, k: np.clip(pixel * FACTORS[k].item(), 0, 1))
    torch.testing.assert_close(transforms.brightness(images(), FACTORS), slow, rtol=1e-12, atol=1e-12)


def test_contrast() -> None:
    x = images()
    means = [np.mean([luma(pixel) for pixel in image.flatten(1).T.numpy()]) for image in x]
    slow = by_pixel(x, lambda pixel, k: np.clip(means[k] + FACTORS[k].item() * (pixel - means[k]), 0, 1))
    torch.testing.assert_close(transforms.contrast(x, FACTORS), slow, rtol=1e-12, atol=1e-12)


def test_saturation() -> None:
    slow = by_pixel(images(), lambda p, k: np.clip(luma(p) + FACTORS[k].item() * (p - luma(p)), 0, 1))
    torch.testing.assert_close(transforms.saturation(images(), FACTORS), slow, rtol=1e-12, atol=1e-12)


def test_grey() -> None:
    slow = by_pixel(images(), lambda pixel, _: luma(pixel))
    torch.testing.assert_close(transforms.grey(images()), slow, rtol=1e-12, atol=1e-12)


def test_hue_is_that_of_hsv() -> None:
    slow = by_pixel(images(), lambda pixel, k: turned(pixel, TURNS[k].item()))
    torch.testing.assert_close(transforms.hue(images(), TURNS), slow, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("turns", [0.0, 1 / 6, -1 / 6, 0.25, 1 / 3, -0.4, 0.5, -0.5, 1.7])
def test_hue_of_colours_on_the_borders_of_the_cases(turns: float) -> None:
    """All colours of five steps a channel: greys, black, white, pure colours, and ties of two channels."""
    steps = torch.linspace(0, 1, 5, dtype=torch.float64)
    x = torch.cartesian_prod(steps, steps, steps).T.reshape(1, 3, 25, 5)
    slow = by_pixel(x, lambda pixel, _: turned(pixel, turns))
    torch.testing.assert_close(transforms.hue(x, torch.tensor([turns])), slow, rtol=0, atol=1e-6)


def test_hue_keeps_value_and_chroma_and_turns_back() -> None:
    x = images()
    there = transforms.hue(x, TURNS)
    torch.testing.assert_close(there.amax(1), x.amax(1))
    torch.testing.assert_close(there.amin(1), x.amin(1))
    torch.testing.assert_close(transforms.hue(there, -TURNS), x)


def test_hue_has_finite_gradients_in_grey_pixels() -> None:
    x = torch.full((1, 3, 2, 2), 0.3, requires_grad=True)
    (slope,) = torch.autograd.grad(transforms.hue(x, torch.tensor([0.2])).sum(), x)
    assert slope.isfinite().all()


# --- sharpness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taps", [1, 3, 5, 9])
def test_blur(taps: int) -> None:
    x = images(1)
    reach = np.arange(-(taps // 2), taps // 2 + 1)
    for image, width, one in zip(x, BLURS.tolist(), transforms.blurred(x, BLURS, taps), strict=True):
        kernel = np.exp(-0.5 * (reach / width) ** 2)
        kernel /= kernel.sum()
        slow = ndimage.correlate1d(image[0].numpy(), kernel, axis=0, mode="mirror")
        slow = ndimage.correlate1d(slow, kernel, axis=1, mode="mirror")
        np.testing.assert_allclose(one[0], slow, rtol=1e-12)


def test_sobel() -> None:
    x = images()
    slow = [
        [np.sqrt(sum((ndimage.sobel(plane, axis, mode="nearest") / 8) ** 2 for axis in (0, 1)) + 1e-6) for plane in one]
        for one in x.numpy()
    ]
    np.testing.assert_allclose(transforms.sobel(x), slow, rtol=1e-12)


# --- what holds for all -----------------------------------------------------------------------------------------------

ALL: dict[str, Callable[[Tensor], Tensor]] = {
    "resized_crop": lambda x: transforms.resized_crop(x, BOXES[: len(x)]),
    "shifted": lambda x: transforms.shifted(x, torch.arange(len(x)) - 1, 1 - torch.arange(len(x))),
    "flipped_horizontally": transforms.flipped_horizontally,
    "flipped_vertically": transforms.flipped_vertically,
    "brightness": lambda x: transforms.brightness(x, FACTORS[: len(x)]),
    "contrast": lambda x: transforms.contrast(x, FACTORS[: len(x)]),
    "saturation": lambda x: transforms.saturation(x, FACTORS[: len(x)]),
    "hue": lambda x: transforms.hue(x, TURNS[: len(x)]),
    "grey": transforms.grey,
    "blurred": lambda x: transforms.blurred(x, BLURS[: len(x)], 3),
    "sobel": transforms.sobel,
}
every = pytest.mark.parametrize("change", [pytest.param(change, id=name) for name, change in ALL.items()])


@every
def test_gradients_are_slopes(change: Callable[[Tensor], Tensor]) -> None:
    assert torch.autograd.gradcheck(change, images(count=1).requires_grad_())


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_type_and_range_are_kept(change: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    x = images().to(dtype)
    before = x.clone()
    found = change(x)
    assert torch.equal(x, before)
    assert (found.dtype, found.shape) == (dtype, x.shape)
    slack = 1e-6 if dtype != torch.bfloat16 else 0.01
    assert -slack <= found.min().item() <= found.max().item() <= 1 + slack
    wide = 1e-5 if dtype != torch.bfloat16 else 0.1
    torch.testing.assert_close(found.double(), change(x.double()), rtol=0, atol=wide)


@every
def test_no_images_become_no_images(change: Callable[[Tensor], Tensor]) -> None:
    assert change(images()[:0]).shape == (0, 3, HEIGHT, WIDTH)


# --- kornia -----------------------------------------------------------------------------------------------------------


def test_against_kornia() -> None:
    kornia = pytest.importorskip("kornia")
    assert "torchvision" not in sys.modules
    enhance, filters, x = kornia.enhance, kornia.filters, images()
    top, left, height, width = BOXES.double().unbind(1)
    right, bottom = left + width - 1, top + height - 1
    corners = torch.stack([left, top, right, top, right, bottom, left, bottom], 1).view(-1, 4, 2)
    pairs = {
        "resized_crop": kornia.geometry.transform.crop_by_indices(
            x, corners, (HEIGHT, WIDTH), interpolation="bilinear", align_corners=False
        ),
        "shifted": kornia.geometry.transform.translate(
            x, torch.stack([1 - torch.arange(COUNT), torch.arange(COUNT) - 1], 1).double(), padding_mode="zeros"
        ),
        "flipped_horizontally": kornia.geometry.transform.hflip(x),
        "flipped_vertically": kornia.geometry.transform.vflip(x),
        "brightness": enhance.adjust_brightness_accumulative(x, FACTORS),
        "contrast": enhance.adjust_contrast_with_mean_subtraction(x, FACTORS),
        "saturation": enhance.adjust_saturation_with_gray_subtraction(x, FACTORS),
        "hue": enhance.adjust_hue(x, TURNS * 2 * torch.pi),
        "grey": kornia.color.rgb_to_grayscale(x).expand_as(x),
        "blurred": filters.gaussian_blur2d(x, (3, 3), BLURS.unsqueeze(1).expand(-1, 2)),
        "sobel": filters.sobel(x),
    }
    for name, theirs in pairs.items():
        # its hue divides by the value plus 1e-8
        torch.testing.assert_close(ALL[name](x), theirs, rtol=1e-6, atol=1e-6, msg=lambda told, name=name: name + told)
    assert set(ALL) == set(pairs)
