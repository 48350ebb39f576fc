"""What is compared: objectives with every energy that suits them, at a few dimensions and augmentation strengths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probssl.energies import InnerProductEnergy
from probssl.errors import InputError
from probssl.parts.facts import Facts
from probssl.parts.recipe import Recipe
from probssl.parts.registry import KINDS
from probssl.parts.resolve import fixed_energy, resolve

COMPARED = (
    *("infonce", "snl", "nce", "fisher", "sliced-fisher", "jensen-shannon", "chi-squared", "renyi"),
    *("simclr", "spectral", "triplet", "simsiam"),
)
"""Objectives that are compared unless others are named: those on the likelihood of pairs and its divergences, and the
contrastive ones that are usually set beside them. All of the registry would leave each too little of a few minutes."""

ANY_TABLE = Facts("table", (2,), 2)
"""Which parts go together does not depend on how large a table is."""

STRENGTHS = {"weak": (0.8, 0.1), "medium": (0.5, 0.25), "strong": (0.25, 0.5)}
"""Preservation and noise of an augmentation: that of Siamese-EBM's first set-up, our default, and a stronger one."""

MOST_DIMENSIONS = 128
"""Largest dimension that is tried unless asked for: wide tables would spend the time on width alone."""

MAIN_ENERGIES = ("euclidean", "cosine")
"""Those that are tried first."""


@dataclass(frozen=True, order=True)
class Candidate:
    """One configuration: everything of a recipe that is compared."""

    objective: str
    energy: str
    dim: int
    strength: str
    level: int = 0
    """In how many respects it differs from what is tried first."""

    @property
    def name(self) -> str:
        """The configuration in words."""
        return f"{self.objective} · {self.energy} · {self.dim} dimensions · {self.strength} augmentation"

    def recipe(self, steps: int, seed: int) -> Recipe:
        """The recipe that trains it; what is not compared is at its default."""
        preservation, noise = STRENGTHS[self.strength]
        energy = self.energy if fixed_energy(self.objective) is None else None
        return Recipe(objective=self.objective, energy=energy, seed=seed).with_settings(
            {
                "encoder.dim": self.dim,
                "pairing.preservation": preservation,
                "pairing.noise": noise,
                "plan.steps": steps,
            }
        )


def pairs(objectives: Sequence[str] | None = None, energies: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """Objectives with the energies that suit them, all or of those asked for.

    Any objective of the registry takes part when it is named, unless it needs what a table does not have. One whose
    published form fixes the energy comes with that one, and is left out if another was asked for.
    """
    chosen = _known("objective", objectives or COMPARED)
    named = None if energies is None else _known("energy", energies)
    for objective in chosen:
        try:
            resolve(Recipe(objective=objective), ANY_TABLE)
        except InputError as error:
            raise InputError(f"--objectives {objective} cannot be compared on a table: {error}") from error
    found = [(objective, energy) for objective in chosen for energy in _energies(objective, named)]
    if not found:
        raise InputError(f"{' and '.join(chosen)} cannot be trained with the {' and '.join(named or ())} energy")
    return found


def _energies(objective: str, named: Sequence[str] | None) -> list[str]:
    """The energies that an objective is compared with, of those that were named if any were.

    Of the others, those which a matrix product gives for all pairs: a step takes 15 times as long with the p-norm.
    """
    fixed = fixed_energy(objective)
    if fixed is not None:
        return [fixed] if named is None or fixed in named else []
    if named is None:
        own = [name for name, entry in KINDS["energy"].items() if not entry.plugin]
        named = [name for name in own if issubclass(KINDS["energy"][name].load(), InnerProductEnergy)]
    return [energy for energy in named if _go_together(objective, energy)]


def _go_together(objective: str, energy: str) -> bool:
    try:
        made = resolve(Recipe(objective=objective, energy=energy), ANY_TABLE).objective
    except InputError:
        return False
    return made.energy.smooth or not made.scores


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
    grid = []
    for (objective, energy), dim, strength in itertools.product(pairs(objectives, energies), widths, STRENGTHS):
        main = energy in MAIN_ENERGIES or fixed_energy(objective) is not None
        level = (not main) + (dim != middle) + (strength != "medium")
        grid.append(Candidate(objective, energy, dim, strength, level))
    order = np.random.default_rng(seed).permutation(len(grid))
    return sorted((grid[number] for number in order), key=lambda candidate: candidate.level)


def _known(kind: str, names: Sequence[str]) -> list[str]:
    """The names without repetitions, each of which there must be."""
    listed = [names] if isinstance(names, str) else list(names)
    if other := [name for name in listed if not isinstance(name, str)]:
        plural, what = KINDS[kind].plural, " ".join(repr(other[0]).split())
        raise InputError(f"compare takes {plural} by their names, as probssl parts {kind} lists them, not {what}")
    return [KINDS[kind].find(name).name for name in dict.fromkeys(listed)]


def _widths(dims: Sequence[int]) -> tuple[int, ...]:
    if not dims or any(dim < 1 for dim in dims):
        raise InputError(f"dimensions must be whole numbers from 1, not {', '.join(map(str, dims)) or 'none'}")
    return tuple(sorted(set(dims)))
