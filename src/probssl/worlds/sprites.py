"""Sprites: the factors of dSprites (Matthey et al. 2017), and images of them drawn by formula, thousands a second.

The published facts are the factors, their grids, 64 × 64 binary images, white on black, and the order of the file. The
outlines are not published as numbers, so these are ours: see `Sprites`. `sprite_files` reads the published images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from probssl.errors import InputError

AREA = 0.0718
"""Share of the image that a sprite of scale 1 covers, whatever its shape.

From the mean pixel of dSprites, 0.0425 as public packages report it, over the mean of scale² on its grid, 0.5917.
"""
MARGIN = 0.25
"""The centre runs from here to 1 − here, so that no sprite, however large and turned, reaches the frame."""

_HALF_SIDE = math.sqrt(AREA) / 2
_SHORT_AXIS = math.sqrt(AREA / (2 * math.pi))  # the long one is twice as long
REACH = 2 * _SHORT_AXIS
"""How far from its centre a sprite of scale 1 can reach: the tip of the ellipse, beyond the corners of the others."""
_LOBE = math.sqrt(2) / 4
"""Radius of the heart's two half discs, which stand on the upper sides of a square whose diagonal is 1."""
_HEART_AREA = 0.5 + math.pi / 8
_HEART_CENTRE = (0.25 + math.pi / 8 * (0.75 + _LOBE * 4 / (3 * math.pi) / math.sqrt(2))) / _HEART_AREA
"""Height of the centre of mass above the tip: the square's is 1/2, a half disc's 4r/3π beyond its diameter."""
_HEART_UNIT = math.sqrt(AREA / _HEART_AREA)


def _square(u: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(u.abs_(), v.abs_()).sub_(_HALF_SIDE)


def _ellipse(u: Tensor, v: Tensor) -> Tensor:
    """(q − 1) / ‖∇q‖ with q = (u/a)² + (v/b)²: the distance to first order; −∞ at the centre."""
    a, b = 2 * _SHORT_AXIS, _SHORT_AXIS
    u, v = u.div_(a).square_(), v.div_(b).square_()
    slope = torch.add(u / a**2, v, alpha=1 / b**2).sqrt_().mul_(2)
    return u.add_(v).sub_(1).div_(slope)


def _heart(u: Tensor, v: Tensor) -> Tensor:
    """A square on its tip and two discs of diameter one side: the nearer of the two, by symmetry on one half."""
    u, v = u.abs_().div_(_HEART_UNIT), v.div_(_HEART_UNIT).add_(_HEART_CENTRE)
    disc = torch.hypot(u - 0.25, v - 0.75).sub_(_LOBE)
    square = (v.sub_(0.5).abs_().add_(u).sub_(0.5)).mul_(math.sqrt(0.5))
    return torch.minimum(square, disc).mul_(_HEART_UNIT)


_OUTLINES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (_square, _ellipse, _heart)
"""Signed distance from the outline (negative inside) of a sprite of scale 1, in sides of the image.

Right to first order next to the outline, which is all that rendering looks at. Each may overwrite its arguments."""

_BLOCK = 2**16
"""Pixels drawn at a time, so that a handful of temporary arrays stays in the cache."""


class Sprites:
    """Images of one white shape on black, from five factors: shape, scale, orientation, x, y.

    Factors [n, 5] are either *indices* into the grids (integers) or *values* (floating). The grids are those of
    dSprites: shape 1, 2, 3 (square, ellipse, heart), scale linspace(0.5, 1, 6), orientation linspace(0, 2π, 40),
    x and y linspace(0, 1, 32): 737,280 combinations. The first and the last orientation are the same angle, a published
    fact that is kept. Squares repeat every π/2 and ellipses every π, so orientation is not a function of the image.

    A pixel (column c, row r) has its centre at ((c + ½)/size, (r + ½)/size); the sprite's centre of mass is at
    (¼ + x/2, ¼ + y/2), y downwards; orientation turns it anticlockwise. At scale s every shape covers 0.0718 s² of the
    image: a square; an ellipse, twice as long as wide, lying down; a heart, upright, of a square and two half discs.

    With `smooth`, a pixel is clip(½ − distance from the outline in pixels, 0, 1), about the share of it that is
    covered, and images change continuously with the values. Otherwise a pixel is 1 where its centre is inside, as
    in dSprites, 0 elsewhere.
    """

    names: ClassVar[tuple[str, ...]] = ("shape", "scale", "orientation", "x", "y")
    sizes: ClassVar[tuple[int, ...]] = (3, 6, 40, 32, 32)
    ranges: ClassVar[tuple[tuple[float, float], ...]] = ((1, 3), (0.5, 1), (0, 2 * math.pi), (0, 1), (0, 1))
    shapes: ClassVar[tuple[str, ...]] = ("square", "ellipse", "heart")

    def __init__(self, size: int = 64, *, smooth: bool = True) -> None:
        if size < 1:
            raise InputError(f"an image has at least one pixel a side, not {size}")
        self.size = int(size)
        self.smooth = smooth

    def __len__(self) -> int:
        """How many combinations the grids have."""
        return math.prod(self.sizes)

    def draw(self, count: int, generator: torch.Generator | None = None, *, continuous: bool = False) -> Tensor:
        """Independent, uniform factors: indices, int64 [count, 5], or with `continuous` values, float64 [count, 5].

        Continuous values are uniform over their ranges, but for the shape, which stays one of three.
        """
        uniform = torch.rand(count, len(self.sizes), generator=generator, dtype=torch.float64)
        if not continuous:
            return (uniform * torch.tensor(self.sizes)).long()
        low, high = _bounds(uniform)
        values = low + (high - low) * uniform
        values[:, 0] = 1 + (uniform[:, 0] * len(self.shapes)).floor()
        return values

    def values(self, factors: Tensor) -> Tensor:
        """float64 [n, 5]: what the grids hold at these indices; values come back as they are, once checked."""
        if factors.ndim != 2 or factors.shape[1] != len(self.sizes):
            raise InputError(f"factors of sprites are [n, {len(self.sizes)}], not {list(factors.shape)}")
        if not factors.is_floating_point():
            steps = torch.tensor(self.sizes, device=factors.device) - 1
            self._refuse((factors < 0) | (factors > steps), factors, "index", [(0, size - 1) for size in self.sizes])
            low, high = _bounds(factors)
            return low + (high - low) * factors / steps
        values = factors.double()
        low, high = _bounds(values)
        # Single precision rounds 2π up; the comparison is negated because none holds for NaN.
        self._refuse(~((values >= low - 1e-6) & (values <= high + 1e-6)), values, "value", self.ranges)
        if bool((values[:, 0] != values[:, 0].round()).any()):
            raise InputError("the values of shape are 1, 2 and 3: square, ellipse and heart")
        return values

    def indices(self, values: Tensor) -> Tensor:
        """int64 [n, 5]: the places on the grids that are nearest to these values; indices come back, once checked."""
        checked = self.values(values)
        if not values.is_floating_point():
            return values.long()
        low, high = _bounds(checked)
        steps = torch.tensor(self.sizes, device=checked.device) - 1
        return ((checked - low) / (high - low) * steps).round().long().clamp_min(0).minimum(steps)

    def rows(self, factors: Tensor) -> Tensor:
        """int64 [n]: where the published file keeps these combinations; y runs fastest, then x, … , shape slowest."""
        return (self.indices(factors) * _strides(factors.device)).sum(1)

    def at_rows(self, rows: Tensor) -> Tensor:
        """int64 [n, 5]: the indices of the published file's rows, the inverse of `rows`."""
        if bool(((rows < 0) | (rows >= len(self))).any()):
            raise InputError(f"rows of the published sprites run from 0 to {len(self) - 1:,}")
        return rows.long().unsqueeze(1) // _strides(rows.device) % torch.tensor(self.sizes, device=rows.device)

    def render(self, factors: Tensor) -> Tensor:
        """float32 [n, 1, size, size] in [0, 1]: one image for each row of indices or values.

        Takes n · size² · 4 bytes and a few MB. Draws only the window that a sprite can reach, in blocks, shape by
        shape, without a loop over images.
        """
        values = self.values(factors)
        images = torch.zeros(len(values), 1, self.size, self.size, device=values.device)
        width = min(self.size, math.ceil(2 * REACH * self.size) + 2)
        windows = images.unfold(2, width, 1).unfold(3, width, 1)  # [n, 1, top, left, width, width]
        pixels = torch.arange(width, device=values.device, dtype=torch.float64) + 0.5
        for number, outline in enumerate(_OUTLINES, start=1):
            of_shape = (values[:, 0] == number).nonzero().squeeze(1)
            for rows in of_shape.split(max(1, _BLOCK // width**2)):
                _, scale, orientation, x, y = values[rows, :, None].unbind(1)  # [m, 1] each
                column, row = (self.size * (MARGIN + (1 - 2 * MARGIN) * place) for place in (x, y))
                left, top = ((centre - width / 2).round().clamp(0, self.size - width) for centre in (column, row))
                unit = scale * self.size  # pixels
                right, up = (left + pixels - column) / unit, (row - top - pixels) / unit  # [m, width]
                cos, sin = orientation.cos(), orientation.sin()
                u = (cos * right).float().unsqueeze(1) + (sin * up).float().unsqueeze(2)  # [m, width, width]
                v = (-sin * right).float().unsqueeze(1) + (cos * up).float().unsqueeze(2)
                distance = outline(u, v)
                if self.smooth:
                    drawn = distance.mul_(-unit.float().unsqueeze(2)).add_(0.5).clamp_(0, 1)
                else:
                    drawn = (distance < 0).float()
                windows[rows, 0, top.long().squeeze(1), left.long().squeeze(1)] = drawn
        return images

    def _refuse(self, wrong: Tensor, given: Tensor, what: str, ranges: Sequence[tuple[float, float]]) -> None:
        if not bool(wrong.any()):
            return
        row, column = wrong.nonzero()[0].tolist()
        low, high = ranges[column]
        raise InputError(
            f"row {row} has the {what} {given[row, column].item():g} for {self.names[column]}, "
            f"which runs from {low:g} to {high:g}"
        )


def tile(images: Tensor, columns: int, gap: int = 1) -> Tensor:
    """[n, 1, h, w] → one picture [H, W], row by row, with grey lines of `gap` pixels around the images."""
    count, _, height, width = images.shape
    rows = math.ceil(count / columns)
    sheet = torch.full((rows * columns, height + gap, width + gap), 0.5, dtype=images.dtype)
    sheet[:count, gap:, gap:] = images[:, 0]
    sheet = sheet.unflatten(0, (rows, columns)).transpose(1, 2).flatten(2).flatten(0, 1)
    return torch.nn.functional.pad(sheet, (0, gap, 0, gap), value=0.5)


def _bounds(like: Tensor) -> tuple[Tensor, Tensor]:
    low, high = torch.tensor(Sprites.ranges, dtype=torch.float64, device=like.device).unbind(1)
    return low, high


def _strides(device: torch.device) -> Tensor:
    """How far apart in the published file two neighbours along each factor are."""
    sizes = Sprites.sizes
    return torch.tensor([math.prod(sizes[place + 1 :]) for place in range(len(sizes))], device=device)
