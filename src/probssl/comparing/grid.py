"""What is compared: objectives with every energy that suits them, at a few dimensions and augmentation strengths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probssl.errors import InputError
from probssl.recipe import ENERGIES, ENERGY_OF, NEGATIVE_FREE, OBJECTIVES, Recipe

STRENGTHS = {"weak": (0.8, 0.1), "medium": (0.5, 0.25), "strong": (0.25, 0.5)}
"""Preservation and noise of an augmentation: that of Siamese-EBM's first set-up, our default, and a stronger one."""

MOST_DIMENSIONS = 128
"""Largest dimension that is tried unless asked for: wide tables would spend the time on width alone."""

SMOOTH_ONLY = ("fisher", "sliced-fisher")
"""Losses on ∇ₓδ, for which the p-norm energy at p = 1 has no second derivative to learn from."""

ON_REQUEST = ("pnorm",)
"""Energies compared only when asked for: no matrix product gives the p-norm, and a step takes 15 times as long."""

MAIN_ENERGIES = ("euclidean", "cosine")


@dataclass(frozen=True, order=True)
class Candidate:
    """One configuration: everything of a recipe that is compared."""

    objective: str
    energy: str
    dim: int
    strength: str

    @property
    def name(self) -> str:
        """The configuration in words."""
        return f"{self.objective} · {self.energy} · {self.dim} dimensions · {self.strength} augmentation"

    def recipe(self, steps: int, seed: int) -> Recipe:
        """The recipe that trains it; what is not compared is at its default."""
        preservation, noise = STRENGTHS[self.strength]
        return Recipe(
            objective=self.objective,
            energy=self.energy,
            dim=self.dim,
            preservation=preservation,
            noise=noise,
            steps=steps,
            seed=seed,
        )


def pairs(objectives: Sequence[str] | None = None, energies: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """Objectives with the energies that suit them, all or of those asked for.

    All are those of `OBJECTIVES`; the negative-free ones take part when asked for. A loss whose published form fixes
    the energy comes with that one, and is left out if another was asked for.
    """
    chosen = _known("objective", objectives, {**OBJECTIVES, **NEGATIVE_FREE}) if objectives else list(OBJECTIVES)
    allowed = _known("energy", energies, ENERGIES) if energies else [e for e in ENERGIES if e not in ON_REQUEST]
    found = [
        (objective, energy)
        for objective in chosen
        for energy in allowed
        if ENERGY_OF.get(objective, energy) == energy and not (objective in SMOOTH_ONLY and energy == "pnorm")
    ]
    if not found:
        raise InputError(f"{' and '.join(chosen)} cannot be trained with the {' and '.join(allowed)} energy")
    return found


def dimensions(features: int) -> tuple[int, ...]:
    """A quarter, half and all of the features, of at most 128, none below 2."""
    top = min(features, MOST_DIMENSIONS)
    return tuple(sorted({max(2, top // 4), max(2, top // 2), max(2, top)}))


def candidates(
    features: int,
    *,
    objectives: Sequence[str] | None = None,
    energies: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
    seed: int = 0,
) -> list[Candidate]:
    """The whole grid, what matters most first, so that a short budget cuts it in the least harmful way.

    First come all losses with the Euclidean and the cosine energy at the middle dimension and strength, then those
    that differ from them in one respect, and so on; by chance among equals.
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"the seed must be a whole number from 0 and below 2^32, not {seed}")
    widths = dimensions(features) if dims is None else _widths(dims)
    middle = widths[len(widths) // 2]
    grid = [
        Candidate(objective, energy, dim, strength)
        for (objective, energy), dim, strength in itertools.product(pairs(objectives, energies), widths, STRENGTHS)
    ]
    order = np.random.default_rng(seed).permutation(len(grid))

    def away(candidate: Candidate) -> int:
        main = candidate.energy in MAIN_ENERGIES or candidate.objective in ENERGY_OF
        return (not main) + (candidate.dim != middle) + (candidate.strength != "medium")

    return sorted((grid[number] for number in order), key=away)


def _known(what: str, asked: Sequence[str], known: dict[str, str]) -> list[str]:
    for name in asked:
        if name not in known:
            raise InputError(f"the {what} {name!r} is not known: choose from {', '.join(known)}")
    return list(dict.fromkeys(asked))


def _widths(dims: Sequence[int]) -> tuple[int, ...]:
    if not dims or any(dim < 1 for dim in dims):
        raise InputError(f"dimensions must be whole numbers from 1, not {', '.join(map(str, dims)) or 'none'}")
    return tuple(sorted(set(dims)))
