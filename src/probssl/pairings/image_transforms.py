"""Changes of images, pure functions of the images [n, c, h, w] in [0, 1] and of one set of numbers an image.

All are differentiable in the images and keep their type and device. Crops, shifts and blurs are separable linear maps:
every image is multiplied by one small matrix from the left and one from the right. That is exact where no value has to
be interpolated, has a cheap gradient, and for images of 32 pixels a side takes as long as sampling on a grid (of 64,
about twice as long). Colours are changed as torchvision changes them, so that published strengths mean the same here.
"""

from __future__ import annotations

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a grey value (ITU-R BT.601)."""

_SOBEL_FLOOR = 1e-6


# --- places -----------------------------------------------------------------------------------------------------------


def resized_crop(x: Tensor, boxes: Tensor) -> Tensor:
    """Each image's box, stretched over the whole image by bilinear interpolation: [n, c, h, w] → [n, c, h, w].

    `boxes` [n, 4] hold top, left, height and width in pixels, within the image and at least one pixel a side. Pixel i
    of the result is read at top + (i + ½) · height / h − ½, and no further out than the box's own outer pixels are.
    """
    top, left, height, width = boxes.to(x.dtype).unbind(1)
    rows, columns = _stretched(top, height, x.shape[2]), _stretched(left, width, x.shape[3])
    return _separable(x, _hats(rows, x.shape[2]), _hats(columns, x.shape[3]))


def shifted(x: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Each image moved by `down` [n] and `right` [n] pixels; zeros move in: a crop of the image padded with zeros."""
    height, width = (torch.arange(side, device=x.device, dtype=x.dtype) for side in x.shape[2:])
    rows, columns = height - down.to(x.dtype).unsqueeze(1), width - right.to(x.dtype).unsqueeze(1)
    return _separable(x, _hats(rows, x.shape[2]), _hats(columns, x.shape[3]))


def flipped_horizontally(x: Tensor) -> Tensor:
    """Left and right exchanged."""
    return x.flip(3)


def flipped_vertically(x: Tensor) -> Tensor:
    """Top and bottom exchanged."""
    return x.flip(2)


# --- colours: images of three channels --------------------------------------------------------------------------------


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    """x · factor, within [0, 1]; `factor` [n]."""
    return (x * _per_image(factor, x)).clamp_(0, 1)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """μ + factor · (x − μ), within [0, 1], where μ is the mean grey value of the image; `factor` [n]."""
    mean, factor = (x.mean((2, 3)) @ _luma(x)).view(-1, 1, 1, 1), _per_image(factor, x)
    return (x * factor).add_(mean * (1 - factor)).clamp_(0, 1)


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    """g + factor · (x − g), within [0, 1], where g is the grey value of the pixel; `factor` [n]."""
    return torch.lerp(_grey_values(x), x, _per_image(factor, x)).clamp_(0, 1)


def hue(x: Tensor, turns: Tensor) -> Tensor:
    """Colours turned by `turns` [n] of a full circle of hues, the value and saturation of HSV kept.

    With l the least and C the range of a pixel's channels, its hue in sextants is h = ±(1 + (g + b − r − l) / C), with
    the sign of g − b; a new hue h gives back l + C·s, s = (|h − 3| − 1, 2 − |h − 2|, 2 − |h − 4|), each within [0, 1].
    That is the usual definition without its six cases.
    """
    red, green, blue = x.unbind(1)
    least = x.amin(1)
    chroma = x.amax(1) - least
    from_red = (green + blue - red).sub_(least).div_(chroma.clamp_min(torch.finfo(x.dtype).tiny)).add_(1)
    hues = torch.copysign(from_red, green - blue) + 6 * turns.to(x.dtype).view(-1, 1, 1)
    hues = hues - (hues / 6).floor_().mul_(6)  # in [0, 6); several times as fast as the remainder
    centre, slope, height = x.new_tensor([[3, 2, 4], [1, -1, -1], [-1, 2, 2]]).view(3, 3, 1, 1)
    shares = (hues.unsqueeze(1) - centre).abs_().mul_(slope).add_(height).clamp_(0, 1)
    return torch.addcmul(least.unsqueeze(1), chroma.unsqueeze(1), shares)


def grey(x: Tensor) -> Tensor:
    """0.299 r + 0.587 g + 0.114 b in all three channels."""
    return _grey_values(x).repeat(1, 3, 1, 1)


# --- sharpness --------------------------------------------------------------------------------------------------------


def blurred(x: Tensor, width: Tensor, taps: int) -> Tensor:
    """Each image under a Gaussian of standard deviation `width` [n] pixels, cut to an odd number of `taps` a side.

    The image is mirrored at its borders, the outermost pixels not repeated; it needs more than taps / 2 pixels a side.
    """
    reach = torch.arange(-(taps // 2), taps // 2 + 1, device=x.device)
    weights = torch.exp(-0.5 * (reach / width.to(x.dtype).unsqueeze(1)).square())
    weights = weights / weights.sum(1, keepdim=True)  # [n, taps]
    matrices = []
    for side in x.shape[2:]:
        source = (torch.arange(side, device=x.device).unsqueeze(1) + reach).abs()
        source = side - 1 - (side - 1 - source).abs()  # [side, taps]: which pixel is read
        chosen = torch.nn.functional.one_hot(source, side).to(x.dtype).transpose(0, 1)  # [taps, side, side]
        matrices.append((weights @ chosen.flatten(1)).view(-1, side, side))
    return _separable(x, *matrices)


def sobel(x: Tensor) -> Tensor:
    """√(∂₁² + ∂₂² + 10⁻⁶) a channel: how steep the image is, by Sobel's differences; within [0, 0.71].

    Each difference is half of [−1, 0, 1] across, smoothed by a quarter of [1, 2, 1] along; outer pixels are repeated.
    """
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1), mode="replicate")
    across = padded[..., 2:] - padded[..., :-2]
    along = padded[..., 2:] + padded[..., :-2] + 2 * padded[..., 1:-1]
    right = across[..., 2:, :] + across[..., :-2, :] + 2 * across[..., 1:-1, :]
    down = along[..., 2:, :] - along[..., :-2, :]
    return ((right.square() + down.square()) / 64 + _SOBEL_FLOOR).sqrt()


# --- parts ------------------------------------------------------------------------------------------------------------


def _per_image(values: Tensor, x: Tensor) -> Tensor:
    return values.to(x.dtype).view(-1, 1, 1, 1)


def _luma(x: Tensor) -> Tensor:
    return x.new_tensor(LUMA)


def _grey_values(x: Tensor) -> Tensor:
    return (_luma(x) @ x.flatten(2)).view(len(x), 1, *x.shape[2:])


def _stretched(start: Tensor, length: Tensor, side: int) -> Tensor:
    """Where each of `side` pixels is read when a stretch [n] of the image is to fill it: [n, side]."""
    start, length = start.unsqueeze(1), length.unsqueeze(1)
    steps = torch.arange(side, device=start.device, dtype=start.dtype) + 0.5
    places = start + steps * (length / side) - 0.5
    return torch.minimum(torch.maximum(places, start), start + length - 1)


def _hats(places: Tensor, side: int) -> Tensor:
    """Weights of `side` pixels in what is read between them: max(0, 1 − |place − pixel|), [n, m] → [n, m, side]."""
    pixels = torch.arange(side, device=places.device, dtype=places.dtype)
    return (places.unsqueeze(2) - pixels).abs_().neg_().add_(1).clamp_min_(0)


def _separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows · x · columnsᵀ for every image and channel: [n, c, h, w], [n, h, h], [n, w, w] → [n, c, h, w]."""
    count, channels, height, width = x.shape
    across = torch.bmm(x.reshape(count, channels * height, width), columns.mT)
    return torch.matmul(rows.unsqueeze(1), across.view(count, channels, height, width))
