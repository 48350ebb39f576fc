"""From what a person chose to what is trained: every choice filled in, once, and then bound to the data."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from probssl.errors import InputError
from probssl.parts import defaults, values
from probssl.parts.facts import Facts
from probssl.parts.part import Context, Part
from probssl.parts.recipe import SLOTS, Missing, Named, Recipe
from probssl.parts.registry import KINDS, Entry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from probssl.encoders import ProjectionHead
    from probssl.energies import Energy
    from probssl.objectives import Objective
    from probssl.pairings import Pairing
    from probssl.training.plan import TrainingPlan

HEAD_SEED = 2
"""What is added to the seed for the weights of a projection head; 1 for those of an objective."""


@dataclass(frozen=True)
class Bound:
    """Parts that are ready for data: copies, with initial weights."""

    encoder: nn.Module
    objective: Objective
    pairing: Pairing | None
    """None where the data itself says which observations belong together."""


@dataclass(frozen=True)
class Resolved:
    """A recipe with nothing left open, for data of which some facts are known."""

    objective: Objective
    pairing: Pairing | None
    encoder: nn.Module
    head: ProjectionHead | None
    plan: TrainingPlan
    seed: int
    facts: Facts
    names: Mapping[str, str]
    """What the parts that were chosen by name are called, by slot."""

    @property
    def energy(self) -> Energy:
        """What the objective compares embeddings by."""
        return self.objective.energy

    def title(self) -> str:
        """The loss and what it compares by, in words."""
        return f"{self.called('objective')} · {self.called('energy')}"

    def called(self, slot: str) -> str:
        """The name of a part, or that of its class."""
        part = getattr(self, slot)
        return self.names.get(slot) or KINDS[slot].name_of(type(part)) or type(part).__name__

    @property
    def recipe(self) -> Recipe:
        """All choices, spelled out: parts that have a name by it, others as objects."""
        return Recipe(
            **{slot: self._choice(slot) for slot in SLOTS if slot != "energy" or self._chooses_energy},
            plan={field.name: getattr(self.plan, field.name) for field in dataclasses.fields(self.plan)},
            seed=self.seed,
        )

    @property
    def _chooses_energy(self) -> bool:
        return "energy" in type(self.objective).declared()

    def _choice(self, slot: str) -> Any:
        part = getattr(self, slot)
        if part is None:
            return None
        name = self.names.get(slot) or KINDS[slot].name_of(type(part))
        if name is None:
            return part
        settings = {key: value for key, value in values.settings_of(part).items() if key != "energy"}
        return Named(name, {key: value for key, value in settings.items() if value is not None})

    def bind(self, sample: Tensor | None = None) -> Bound:
        """Parts with initial weights, which the seed decides; `sample` is of observations as the encoder sees them."""
        from probssl.encoders import WithHead, seeded

        known = Context(shape=self.facts.shape, rows=self.facts.rows, batch_size=self.plan.batch_size, sample=sample)
        encoder = seeded(self.seed, lambda: bound(self.encoder, known))
        dim = output_size(encoder, self.facts.shape)
        if self.head is not None:
            head, outer = self.head, dataclasses.replace(known, shape=(dim,), sample=None)
            encoder = WithHead(encoder, seeded(self.seed + HEAD_SEED, lambda: head.bind(outer)))
            dim = output_size(encoder, self.facts.shape)
        known = dataclasses.replace(known, dim=dim, encoder=encoder)
        objective = seeded(self.seed + 1, lambda: self.objective.bind(known))
        return Bound(encoder, objective, None if self.pairing is None else self.pairing.bind(known))


def bound(module: nn.Module, context: Context) -> nn.Module:
    """A copy of an encoder: one of ours with weights for the context, any other with those it has."""
    made = module.bind(context) if isinstance(module, Part) else copy.deepcopy(module)
    assert made is not module
    return made


def output_size(encoder: nn.Module, shape: tuple[int, ...]) -> int:
    """How many numbers an encoder makes of an observation."""
    import torch

    from probssl.encoders import WithHead, encode

    made = getattr(encoder, "dim", None)
    if isinstance(made, int):
        return made
    whole = encoder.head(encode(encoder, torch.zeros(2, *shape))) if isinstance(encoder, WithHead) else None
    try:
        found = encode(encoder, torch.zeros(2, *shape)) if whole is None else whole
    except (RuntimeError, ValueError, TypeError) as error:
        told = " ".join(str(error).split())[:160]
        raise InputError(
            f"the encoder {type(encoder).__name__} does not take observations {list(shape)} ({told})"
        ) from error
    if found.ndim != 2 or len(found) != 2:
        raise InputError(
            f"the encoder {type(encoder).__name__} makes {list(found.shape)} of two observations, not [2, dim]"
        )
    return int(found.shape[1])


def resolve(recipe: Recipe, facts: Facts, *, own: bool = False) -> Resolved:
    """Fill in what suits the data, and refuse what does not go together. With `own`, as of files, names are ours."""
    for slot in SLOTS:
        if isinstance(chosen := getattr(recipe, slot), Missing):
            raise chosen.refuse()
    names: dict[str, str] = {}
    objective = _objective(recipe, facts, own, names)
    beside = _entry("objective", names, own).beside if "objective" in names else {}
    pairing = _pairing(recipe, objective, facts, own, names)
    network = defaults.encoder(objective, facts)
    encoder = _part("encoder", recipe.encoder, network, own, names, _sizes(objective, facts))
    head = _part("head", recipe.head or beside.get("head"), None, own, names, lambda entry, given: {})
    _check(objective, pairing, head, facts)
    return Resolved(objective, pairing, encoder, head, _plan(recipe, objective, facts), recipe.seed, facts, names)


def _entry(slot: str, names: Mapping[str, str], own: bool) -> Entry:
    return KINDS[slot].find(names[slot], own=own)


def _part(slot: str, chosen: Any, usual: Named | None, own: bool, names: dict[str, str], suits: Any) -> Any:
    """An object as it is, or the part of a name with what suits it in place of settings that were not given."""
    chosen = Named(chosen) if isinstance(chosen, str) else chosen
    if chosen is None and usual is None:
        return None
    if chosen is not None and not isinstance(chosen, Named):
        return chosen
    named = usual if chosen is None else chosen
    if named is not None and not named.name:
        if usual is None:
            raise InputError(f"settings of the {slot} need one to be chosen: which {slot}?")
        named = usual.with_settings(named.settings)
    assert named is not None
    entry = KINDS[slot].find(named.name, own=own)
    names[slot] = entry.name
    fixed = usual.settings if usual is not None and usual.name == named.name else {}
    suited = {key: value for key, value in suits(entry, named.settings).items() if key not in entry.preset}
    return values.build(slot, entry, _merged(suited, fixed, named.settings), own=own)


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of which later ones win; those of a part within are merged: {"sampler": {"steps": 9}} keeps others."""
    found: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            before = found.get(name)
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                same = value.get(values.NAME, before.get(values.NAME)) == before.get(values.NAME)
                value = {**before, **value} if same else value
            found[name] = value
    return found


def _objective(recipe: Recipe, facts: Facts, own: bool, names: dict[str, str]) -> Objective:
    from probssl.objectives import Objective

    chosen = recipe.objective
    if chosen is not None and not isinstance(chosen, Named):
        if not isinstance(chosen, Objective):
            raise InputError(f"an objective is a name or an Objective, not {chosen!r}")
        if recipe.energy is not None:
            raise InputError(f"{type(chosen).__name__} was given as an object and has its energy: leave energy out")
        return chosen
    usual = Named(defaults.objective_name(facts, recipe.energy is not None))
    entry = KINDS["objective"].find(chosen.name if chosen is not None and chosen.name else usual.name, own=own)
    cls: type[Objective] = entry.load()
    given = dict(chosen.settings) if chosen is not None else {}
    if "energy" in cls.declared() and "energy" not in given:
        if "energy" not in entry.preset:
            given["energy"] = _energy(recipe, cls, facts, own, names)
        elif recipe.energy is not None:
            given["energy"] = _fixed_energy(recipe, entry, own, names)
    elif recipe.energy is not None:
        raise InputError(f"the objective {entry.name!r} has an energy of its own: leave energy out")

    def suits(entry: Entry, settings: Mapping[str, Any]) -> dict[str, Any]:
        return defaults.objective_settings(cls, facts, {**entry.preset, **settings})

    made: Objective = _part("objective", Named(entry.name, given), None, own, names, suits)
    return made


def _energy(recipe: Recipe, cls: type[Objective], facts: Facts, own: bool, names: dict[str, str]) -> Energy:
    from probssl.energies import Energy

    usual = defaults.energy(facts, cls.scores)

    def suits(entry: Entry, settings: Mapping[str, Any]) -> dict[str, Any]:
        return defaults.energy_settings(entry.load(), facts)

    made: Energy = _part("energy", recipe.energy, usual, own, names, suits)
    if not isinstance(made, Energy):
        raise InputError(f"an energy is a name or an Energy, not {made!r}")
    return made


def _fixed_energy(recipe: Recipe, entry: Entry, own: bool, names: dict[str, str]) -> Energy:
    """The energy that a published name fixes, with other settings; another one is refused."""
    fixed = entry.preset["energy"]
    chosen = recipe.energy
    if not isinstance(chosen, Named) or chosen.name not in ("", fixed[values.NAME]):
        raise InputError(
            f"the objective {entry.name!r} is defined with the {fixed[values.NAME]} energy: leave energy out"
        )
    name, settings = values.split({**fixed, **chosen.settings}, "energy")
    names["energy"] = name
    made: Energy = values.build("energy", KINDS["energy"].find(name, own=own), settings, own=own)
    return made


def _pairing(recipe: Recipe, objective: Objective, facts: Facts, own: bool, names: dict[str, str]) -> Pairing | None:
    from probssl.pairings import Pairing

    if facts.relation is not None:
        if recipe.pairing is not None:
            raise InputError(f"{facts.relation} says itself which observations belong together: leave pairing out")
        return None
    made = _part("pairing", recipe.pairing, defaults.pairing(objective, facts), own, names, lambda entry, given: {})
    if not isinstance(made, Pairing):
        raise InputError(f"a pairing is a name or a Pairing, not {made!r}")
    return made


def _sizes(objective: Objective, facts: Facts) -> Any:
    def suits(entry: Entry, settings: Mapping[str, Any]) -> dict[str, Any]:
        return defaults.encoder_settings(entry.name, values.declared(entry.load()), objective.energy, facts)

    return suits


def _plan(recipe: Recipe, objective: Objective, facts: Facts) -> TrainingPlan:
    from probssl.training.plan import TrainingPlan

    known = values.declared(TrainingPlan)
    given = {}
    for name, value in recipe.plan.items():
        if name not in known:
            raise InputError(values.unknown_setting("plan", "training", name, known))
        given[name] = values.convert(value, known[name], own=True, where=f"plan.{name}")
    return TrainingPlan(**{**defaults.plan(objective, facts), **given})


def _check(objective: Objective, pairing: Pairing | None, head: Any, facts: Facts) -> None:
    """Refuse parts that do not go together, or not with the data."""
    what = type(objective).__name__
    if objective.compares_views and not objective.energy.symmetric:
        raise InputError(f"{what} embeds both sides of a pair alike: it takes no asymmetric energy")
    if objective.decodes and head is not None:
        raise InputError(f"{what} decodes the representation itself: leave the projection head out")
    if objective.needs.score and (pairing is None or not pairing.knows_score):
        where = facts.relation if pairing is None else f"the pairing {type(pairing).__name__}"
        raise InputError(
            f"{what} needs the score ∇ₓ log p(x̃ | x), which {where} does not know: choose a pairing that ends in "
            "noise, or another objective, for example infonce"
        )
    if objective.needs.index and pairing is None:
        raise InputError(
            f"{what} remembers the rows of its data, and {facts.relation} makes new ones at every step: choose another "
            "objective, for example swav"
        )
    if objective.decodes and facts.kind != "images" and getattr(objective, "likelihood").of_chances:  # noqa: B009
        raise InputError(
            "the bernoulli likelihood is of numbers from 0 to 1, as pixels are, which rows of a table are not: use "
            "gaussian"
        )
