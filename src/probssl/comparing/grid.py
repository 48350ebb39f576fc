"""What is compared: objectives with every energy and pairing that suits them, at a few dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probssl.energies import InnerProductEnergy
from probssl.errors import InputError
from probssl.grids.objects import version_of
from probssl.parts import defaults, values
from probssl.parts.facts import Facts
from probssl.parts.part import Part
from probssl.parts.recipe import SLOTS, Choice, Named, Recipe
from probssl.parts.registry import KINDS
from probssl.parts.resolve import Resolved, fixed_energy, output_size, resolve

COMPARED = (
    *("infonce", "snl", "nce", "fisher", "sliced-fisher", "jensen-shannon", "chi-squared", "renyi"),
    *("simclr", "spectral", "triplet", "simsiam"),
)
"""Objectives that are compared unless others are named, where they fit: those on the likelihood of pairs and its
divergences, and the contrastive ones that are often set beside them. All of the registry would leave each too little of
a few minutes."""

ALL = "all"
"""Stands for every objective of the registry that fits the data."""

STRENGTHS = {
    name: Named("mask-and-noise", {"preservation": preservation, "noise": noise})
    for name, preservation, noise in (("weak", 0.8, 0.1), ("medium", 0.5, 0.25), ("strong", 0.25, 0.5))
}
"""Augmentations of tables: that of Siamese-EBM's first set-up, our default, and a stronger one."""

MOST_DIMENSIONS = 128
"""Largest dimension that is tried unless asked for: wide tables would spend the time on width alone."""


@dataclass(frozen=True, order=True)
class Candidate:
    """One configuration, its parts as the leaderboard calls them."""

    objective: str
    energy: str
    pairing: str
    """Empty where a world itself pairs its observations."""
    dim: int
    level: int = 0
    """In how many respects it differs from what is tried first."""

    @property
    def name(self) -> str:
        """The configuration in words."""
        how = f"{self.pairing} augmentations" if self.pairing in STRENGTHS else f"the pairing {self.pairing}"
        paired = f" and {how}" if self.pairing else ""
        return f"{self.objective} with the {self.energy} energy, {self.dim} dimensions{paired}"


@dataclass(frozen=True)
class Parts:
    """What configurations are made of: names and objects, by what the leaderboard calls them."""

    facts: Facts
    encoder: Choice = None
    """Of all configurations; None for what suits the data."""
    objectives: dict[str, Choice] = field(default_factory=dict)
    energies: dict[str, Choice] = field(default_factory=dict)
    pairings: dict[str, Choice] = field(default_factory=dict)

    def recipe(self, candidate: Candidate, steps: int | None = None, seed: int = 0) -> Recipe:
        """The recipe that trains a configuration; what is not compared is at its default."""
        objective = self.objectives[candidate.objective]
        fixed = own_energy(objective) is not None
        recipe = Recipe(
            objective=objective,
            energy=None if fixed else self.energies[candidate.energy],
            pairing=self.pairings.get(candidate.pairing),
            encoder=self.encoder,
            seed=seed,
        )
        settings = {"encoder.dim": candidate.dim} if self.sized else {}
        return recipe.with_settings(settings if steps is None else {**settings, "plan.steps": steps})

    def resolve(self, candidate: Candidate, steps: int | None = None, seed: int = 0) -> Resolved:
        """The same with nothing left open."""
        return resolve(self.recipe(candidate, steps, seed), self.facts)

    @property
    def sized(self) -> bool:
        """Whether the encoder has as many dimensions as it is asked for."""
        return self.encoder is None or (isinstance(self.encoder, Named) and "dim" not in self.encoder.settings)

    def version(self, candidate: Candidate) -> str:
        """The version of the parts of a configuration: of what they hold and of their code."""
        found = self.resolve(candidate)
        return version_of(found.objective, found.pairing, found.encoder, found.head)

    def family(self, objective: str) -> str:
        """What an objective has in common with others."""
        choice = self.objectives[objective]
        cls: Any = KINDS["objective"].find(choice.name).load() if isinstance(choice, Named) else type(choice)
        return str(cls.family)

    def handed_in(self, candidate: Candidate) -> dict[str, Any]:
        """The parts of a configuration as `Run` takes those that are not ours."""
        recipe = self.recipe(candidate)
        chosen = {slot: getattr(recipe, slot) for slot in SLOTS}
        return {slot: part.name if isinstance(part, Named) else part for slot, part in chosen.items()}


def candidates(
    facts: Facts,
    *,
    objectives: Sequence[Any] | None = None,
    energies: Sequence[Any] | None = None,
    pairings: Sequence[Any] | None = None,
    encoder: Any = None,
    dims: Sequence[int] | None = None,
    seed: int = 0,
) -> tuple[Parts, list[Candidate]]:
    """The whole grid, what matters most first, so that a short budget cuts it in the least harmful way.

    First come all losses with the usual energies at the middle dimension and augmentation, then those that differ from
    them in one respect, and so on; by chance among equals. What is named and does not fit the data is refused, what is
    not named is then left out. A loss that is defined with an energy comes with that one, and is left out if another
    was asked for.
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"the seed must be a whole number from 0 and below 2^32, not {seed}")
    if pairings is not None and facts.relation is not None:
        raise InputError(f"{facts.relation} says itself which observations belong together: leave --pairings out")
    parts = Parts(facts, Recipe(encoder=encoder).encoder)
    usual_pairings = list(STRENGTHS) if facts.kind == "table" else None
    paired = usual_pairings if pairings is None else pairings
    parts.objectives.update(_objectives(parts, objectives))
    parts.energies.update(_listed("energy", _quick_energies(facts) if energies is None else energies))
    parts.pairings.update(_listed("pairing", () if paired is None else paired))
    widths = _dimensions(parts, dims)
    middle = widths[len(widths) // 2]
    grid = []
    for objective in parts.objectives:
        mine = _pairings_of(parts, objective, paired is not None)
        usual = "medium" if "medium" in mine else next(iter(mine), "")
        for energy, main in _energies_of(parts, objective, energies is not None):
            for pairing, dim in itertools.product(mine, widths):
                level = (not main) + (dim != middle) + (pairing != usual)
                grid.append(Candidate(objective, energy, pairing, dim, level))
    for slot, named, listed in (("energy", energies, parts.energies), ("pairing", pairings, parts.pairings)):
        unused = [label for label in listed if label not in {getattr(candidate, slot) for candidate in grid}]
        if named is not None and unused:
            chosen = f"the {unused[0]} energy" if slot == "energy" else f"the pairing {unused[0]}"
            raise InputError(f"{' and '.join(parts.objectives)} cannot be trained with {chosen}: leave it out")
    order = np.random.default_rng(seed).permutation(len(grid))
    return parts, sorted((grid[number] for number in order), key=lambda candidate: candidate.level)


def _objectives(parts: Parts, named: Sequence[Any] | None) -> dict[str, Choice]:
    """Those that were named, each of which must fit the data; or the usual ones that do."""
    usual = dict.fromkeys((defaults.objective_name(parts.facts, False), *COMPARED))
    every = named is not None and list(named) == [ALL]
    listed = _listed("objective", KINDS["objective"] if every else usual if named is None else named)
    wrong = {
        label: _refused(Recipe(objective=choice, encoder=parts.encoder), parts.facts)
        for label, choice in listed.items()
    }
    found = {label: choice for label, choice in listed.items() if wrong[label] is None}
    needed = listed if named is not None and not every else list(listed)[: not found]
    for label in needed:
        if wrong[label] is not None:
            raise InputError(f"--objectives {label} cannot be compared on {parts.facts.words}: {wrong[label]}")
    return found


def _refused(recipe: Recipe, facts: Facts) -> str | None:
    """Why parts do not go together on such data; None where they do."""
    try:
        made = resolve(recipe, facts).objective
    except InputError as error:
        return str(error)
    return None if made.energy.smooth or not made.scores else "its energy has no second derivative"


def _quick_energies(facts: Facts) -> list[str]:
    """The usual one, and those which a matrix product gives for all pairs: the p-norm takes 15 times as long."""
    own = [name for name, entry in KINDS["energy"].items() if not entry.plugin]
    usual = defaults.energy(facts, False).name
    return [name for name in own if name == usual or issubclass(KINDS["energy"][name].load(), InnerProductEnergy)]


def _energies_of(parts: Parts, objective: str, named: bool) -> list[tuple[str, bool]]:
    """The energies that an objective is compared with, and whether each is usual."""
    choice = parts.objectives[objective]
    fixed = own_energy(choice)
    if fixed is not None:
        return [(fixed, True)] if not named or fixed in parts.energies or not isinstance(choice, Named) else []
    needs_score = resolve(Recipe(objective=choice), parts.facts).objective.needs.score
    usual = {"cosine", defaults.energy(parts.facts, needs_score).name}
    return [
        (label, label in usual)
        for label, energy in parts.energies.items()
        if _refused(Recipe(objective=choice, energy=energy), parts.facts) is None
    ]


def own_energy(objective: Any) -> str | None:
    """What the energy is called that an objective comes with; None where any may be chosen."""
    if not isinstance(objective, Named):
        return _label("energy", objective.energy)
    given = objective.settings.get("energy")
    return fixed_energy(objective.name) if given is None else _label("energy", Recipe(energy=given).energy)


def _pairings_of(parts: Parts, objective: str, named: bool) -> list[str]:
    """Those of the named pairings that an objective can be trained with; else the one that suits it, if any."""
    choice, facts = parts.objectives[objective], parts.facts
    if named:
        tried = {label: Recipe(objective=choice, pairing=pairing) for label, pairing in parts.pairings.items()}
        return [label for label, recipe in tried.items() if _refused(recipe, facts) is None]
    found = resolve(Recipe(objective=choice), facts)
    if found.pairing is None:
        return [""]
    parts.pairings[found.called("pairing")] = Named(found.called("pairing"))
    return [found.called("pairing")]


def dimensions(facts: Facts) -> tuple[int, ...]:
    """Of a table a quarter, half and all of its columns, of at most 128, none below 2; else what suits the data."""
    if facts.kind != "table":
        return (output_size(resolve(Recipe(), facts).bind_encoder(), facts.shape),)
    top = min(facts.features, MOST_DIMENSIONS)
    return tuple(sorted({max(2, top // 4), max(2, top // 2), max(2, top)}))


def _dimensions(parts: Parts, dims: Sequence[int] | None) -> tuple[int, ...]:
    if not parts.sized:
        if dims is not None:
            raise InputError("the dimensions are those of the encoder that was given: leave --dims out")
        made = resolve(Recipe(encoder=parts.encoder), parts.facts).bind_encoder()
        return (output_size(made, parts.facts.shape),)
    if dims is None:
        return dimensions(parts.facts)
    if not dims or any(dim < 1 for dim in dims):
        raise InputError(f"dimensions must be whole numbers from 1, not {', '.join(map(str, dims)) or 'none'}")
    return tuple(sorted(set(dims)))


# What parts are called


def _listed(kind: str, given: Iterable[Any]) -> dict[str, Choice]:
    """Names, tables and objects without repetitions, by what the leaderboard calls them."""
    found: dict[str, Choice] = {}
    versions: dict[str, str] = {}
    for entry in [given] if isinstance(given, str) or not isinstance(given, Iterable) else given:
        named = kind == "pairing" and isinstance(entry, str) and entry in STRENGTHS
        choice = STRENGTHS[entry] if named else getattr(Recipe().with_choices(**{kind: entry}), kind)
        label = entry if named else _label(kind, choice)
        version = repr(choice) if isinstance(choice, Named) else version_of(choice)
        same = [other for other in found if other.partition(" #")[0] == label]
        if version not in (versions[other] for other in same):
            label = f"{label} #{len(same) + 1}" if same else label
            found[label], versions[label] = choice, version
    return found


def _label(kind: str, choice: Any) -> str:
    """The name of a part, or that of its class, with the settings that are not the usual ones."""
    if isinstance(choice, Named):
        name, given, usual = choice.name, dict(choice.settings), {}
    else:
        name = KINDS[kind].name_of(type(choice)) or type(choice).__name__
        given = choice.settings() if isinstance(choice, Part) else {}
        usual = {setting.name: setting.default for setting in values.declared(type(choice)).values()} if given else {}
    plain = {key: values.plain(value) for key, value in given.items()}
    shown = {key: value for key, value in plain.items() if not isinstance(value, dict)}  # parts within have their own
    differing = [f"{key}={value}" for key, value in shown.items() if value != values.plain(usual.get(key))]
    return f"{name}({', '.join(differing)})" if differing else name
