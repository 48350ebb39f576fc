"""Worlds by name: `sphere10`, `box10`, `normal10`, `anisotropic10`. The number is the dimension."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Callable
from functools import lru_cache

import torch

from probssl.errors import InputError
from probssl.worlds.anisotropic import FisherBingham
from probssl.worlds.conditionals import Conditional, VonMisesFisher, laplace, normal
from probssl.worlds.marginals import Around, Marginal, Uniform
from probssl.worlds.mixings import InvertibleMLP
from probssl.worlds.spaces import Box, RealSpace, Sphere
from probssl.worlds.world import World

SMALLEST, LARGEST = 2, 64
"""Dimensions that a named world may have."""

BOX_SCALE = 0.1
"""λ of the Laplace transitions on the unit box."""

NORMAL_STD = 0.5
"""Standard deviation of the transitions on R^n, where that of the marginal is 1."""


def _sphere(dim: int) -> tuple[Marginal, Conditional]:
    """Uniform on S^{d−1}; positives von Mises–Fisher with κ = d, so that their mean cosine is about 0.6 for every d."""
    space = Sphere(dim)
    return Uniform(space), VonMisesFisher(space, float(dim))


def _box(dim: int) -> tuple[Marginal, Conditional]:
    """Uniform on [0, 1]^d; positives Laplace around the anchor, truncated to the box."""
    space = Box(dim)
    return Uniform(space), laplace(space, BOX_SCALE)


def _normal(dim: int) -> tuple[Marginal, Conditional]:
    """N(0, I) on R^d; positives N(z, s²I)."""
    space = RealSpace(dim)
    return Around(normal(space, 1.0)), normal(space, NORMAL_STD)


def _anisotropic(dim: int) -> tuple[Marginal, Conditional]:
    """Uniform on S^{d−1}; positives ∝ exp(−½ (z̃ − z)ᵀΛ(z̃ − z)), Λ = d/2 for the first half, 5d/2 for the rest.

    5 and 25 in ten dimensions, as in AnInfoNCE §4.1.
    """
    space = Sphere(dim)
    concentrations = torch.full((dim,), dim / 2)
    concentrations[dim // 2 :] *= 5
    return Uniform(space), FisherBingham(space, concentrations)


FAMILIES: dict[str, Callable[[int], tuple[Marginal, Conditional]]] = {
    "sphere": _sphere,
    "box": _box,
    "normal": _normal,
    "anisotropic": _anisotropic,
}
"""Marginal and conditional of a family in a dimension."""


def named_world(name: str, *, seed: int = 0) -> World:
    """The world of a name such as `sphere10`: latents of ten dimensions, seen through a mixing that the seed decides.

    The mixing is an `InvertibleMLP` of three layers, so that there are as many features as latents.
    """
    family, dim = parse_name(name)
    return World(*FAMILIES[family](dim), copy.deepcopy(_mixing(dim, seed)))


@lru_cache(maxsize=8)
def _mixing(dim: int, seed: int) -> InvertibleMLP:
    """Kept, because choosing well conditioned layers takes a second."""
    return InvertibleMLP(dim, seed=seed)


def parse_name(name: str, prefix: str = "") -> tuple[str, int]:
    """Family and dimension of a name; raises `InputError` with the nearest choice when there is no such world.

    The sentence writes names with the prefix, as they were written.
    """
    match = re.fullmatch(r"([A-Za-z_-]*)(\d*)", name)
    family, digits = match.groups() if match else (name, "")
    if family not in FAMILIES:
        close = difflib.get_close_matches(family.lower(), FAMILIES, 1, cutoff=0.5)
        known = ", ".join(f"{prefix}{each}10" for each in FAMILIES)
        hint = f"did you mean '{prefix}{close[0]}{digits or 10}'?" if close else f"there are {known}"
        raise InputError(f"there is no world {prefix + name!r}: {hint}")
    if not digits or not SMALLEST <= int(digits) <= LARGEST:
        raise InputError(
            f"the world {prefix + name!r} needs a dimension from {SMALLEST} to {LARGEST} at the end of its name, "
            f"as in '{prefix}{family}10'"
        )
    return family, int(digits)
