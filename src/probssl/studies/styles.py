"""Images whose style is known exactly, because it was put there: digits turned, coloured and moved; sprites."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from probssl.data import load_images
from probssl.data.image_set import ImageSet
from probssl.metrics.retention import Factor
from probssl.studies.image_sets import halves
from probssl.worlds.sprites import Sprites

SIZE = 32
"""Pixels a side."""

DIGIT = 20 / 28
"""How large a digit is drawn, over its size in MNIST."""

TURN, MOVE = math.pi / 3, 5.0
"""Farthest turn to either side, and move in pixels in each direction."""

SATURATION = 0.8

TRAIN, TEST = 20_000, 4_000
"""Images of each set."""

FOLDS = {"square": 4, "ellipse": 2, "heart": 1}
"""Turns in a full circle after which a sprite looks the same: its orientation is known up to them."""

CONTENT = {"styled-mnist": "digit", "sprites": "shape"}
"""What augmentations leave as it is, by set; all else is style."""


Side = tuple[np.ndarray, np.ndarray, dict[str, Factor]]
"""Images of one half, what each shows, and the factors of its style."""


@dataclass(frozen=True, eq=False)
class Styled:
    """A set of images and the factors of both halves, by name."""

    images: ImageSet
    train: dict[str, Factor]
    test: dict[str, Factor]


@functools.cache
def styled(name: str) -> Styled:
    """`styled-mnist` or `sprites`, the same at every call: draws of seed 0."""
    generator = torch.Generator().manual_seed(0)
    classes, sides = _digits(generator) if name == "styled-mnist" else _sprites(generator)
    (train, labels, of_train), (test, truth, of_test) = sides
    return Styled(ImageSet.of_halves(name, train, labels, test, truth, classes), of_train, of_test)


def restyled(digits: Tensor, angle: Tensor, hue: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Grey digits [n, 1, 28, 28] turned by an angle, coloured and moved by pixels: [n, 3, 32, 32] in [0, 1].

    Angles are in radians, anticlockwise; hues in turns of the circle of colours, at full value; black stays black.
    """
    cosine, sine = angle.cos() / DIGIT, angle.sin() / DIGIT
    scale, half = SIZE / digits.shape[-1], SIZE / 2
    across, along = right / half, down / half
    first = torch.stack([cosine, -sine, -(cosine * across - sine * along)], 1)
    second = torch.stack([sine, cosine, -(sine * across + cosine * along)], 1)
    places = F.affine_grid(torch.stack([first, second], 1) * scale, [len(digits), 1, SIZE, SIZE], align_corners=False)
    drawn = F.grid_sample(digits, places.to(digits.dtype), align_corners=False)
    channels = torch.tensor([5.0, 3.0, 1.0]).view(1, 3)
    wheel = (channels + 6 * hue.view(-1, 1)) % 6
    colour = 1 - SATURATION * torch.minimum(wheel, 4 - wheel).clamp(0, 1)  # HSV of value 1
    return (drawn * colour.view(-1, 3, 1, 1)).clamp(0, 1)


def _digits(generator: torch.Generator) -> tuple[tuple[str, ...], list[Side]]:
    found, sides = load_images("mnist"), []
    for half, count in zip(halves(found), (TRAIN, TEST), strict=True):
        grey = torch.from_numpy(np.array(half.images[:count])).float() / 255
        uniform = torch.rand(4, len(grey), generator=generator)
        angle, right, down = (2 * uniform[0] - 1) * TURN, (2 * uniform[2] - 1) * MOVE, (2 * uniform[3] - 1) * MOVE
        drawn = restyled(grey, angle, uniform[1], right, down)
        factors = {
            "rotation": Factor(angle.double().numpy(), "continuous"),
            "hue": Factor(uniform[1].double().numpy(), "periodic", 1.0),
            "position, across": Factor(right.double().numpy(), "continuous"),
            "position, along": Factor(down.double().numpy(), "continuous"),
        }
        sides.append((drawn.mul(255).round().byte().numpy(), half.labels[:count], factors))
    return found.classes, sides


def _sprites(generator: torch.Generator) -> tuple[tuple[str, ...], list[Side]]:
    world, sides = Sprites(SIZE), []
    for count in (TRAIN, TEST):
        values = world.draw(count, generator, continuous=True)
        drawn = world.render(values).mul(255).round().byte().numpy()
        shape = (values[:, 0] - 1).long()
        folds = torch.tensor([FOLDS[name] for name in world.shapes])[shape]
        factors = {
            "scale": Factor(values[:, 1].numpy(), "continuous"),
            "orientation": Factor((values[:, 2] * folds).numpy(), "periodic"),
            "position, across": Factor(values[:, 3].numpy(), "continuous"),
            "position, along": Factor(values[:, 4].numpy(), "continuous"),
        }
        sides.append((drawn, shape.numpy(), factors))
    return world.shapes, sides
