"""From what a person chose to what is trained: every choice filled in, once, and then bound to the data."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from probssl.errors import InputError
from probssl.parts import defaults, values
from probssl.parts.facts import Facts
from probssl.parts.part import Context, Part, unknown_setting
from probssl.parts.recipe import SLOTS, Missing, Named, Recipe
from probssl.parts.registry import KINDS, Entry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from probssl.energies import Energy
    from probssl.objectives import Objective
    from probssl.pairings import Pairing
    from probssl.training.plan import TrainingPlan

TAKES = {1: "tables", 3: "images"}
"""Data by the number of dimensions of an observation."""

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
    head: nn.Module | None
    plan: TrainingPlan
    seed: int
    facts: Facts
    choices: Mapping[str, Named]
    """Parts that were chosen by name, with all settings that they were made with, by slot."""

    @property
    def energy(self) -> Energy:
        """What the objective compares embeddings by."""
        return self.objective.energy

    def title(self) -> str:
        """The loss and what it compares by, in words."""
        return f"{self.called('objective')} · {self.called('energy')}"

    def called(self, slot: str) -> str:
        """The name of a part, or that of its class."""
        chosen = self.choices.get(slot)
        return chosen.name if chosen else _name(slot, getattr(self, slot))

    @property
    def recipe(self) -> Recipe:
        """All choices, spelled out: parts that have a name by it, others as objects."""
        return Recipe(
            **{slot: self._choice(slot) for slot in SLOTS if slot != "energy" or self.energy_is_open},
            plan={
                name: value
                for name, value in vars(self.plan).items()
                if value is not None or name in defaults.plan(self.objective, self.facts)
            },
            seed=self.seed,
        )

    @property
    def energy_is_open(self) -> bool:
        """Whether the objective takes any energy."""
        return "energy" in type(self.objective).declared()

    def _choice(self, slot: str) -> Any:
        part = getattr(self, slot)
        if part is None:
            return None
        chosen = self.choices.get(slot)
        named = chosen or Named(KINDS[slot].name_of(type(part)) or "")
        if not named.name or not isinstance(part, Part):
            return named if named.name else part
        return dataclasses.replace(named, settings=_spelled_out(part, None if chosen is None else chosen.settings))

    def bind(self, sample: Tensor | None = None) -> Bound:
        """Parts with initial weights, which the seed decides; `sample` is of observations as the encoder sees them."""
        from probssl.encoders import seeded

        encoder = self.bind_encoder(sample)
        known = self._context(sample)
        if self.objective.scores:
            from probssl.objectives.fisher import refuse_meeting_rows

            refuse_meeting_rows(encoder)  # here too, before a run is written
        known = dataclasses.replace(known, dim=output_size(encoder, self.facts.shape), encoder=encoder)
        objective = seeded(self.seed + 1, lambda: self.objective.bind(known))
        return Bound(encoder, objective, None if self.pairing is None else self.pairing.bind(known))

    def bind_encoder(self, sample: Tensor | None = None) -> nn.Module:
        """The encoder of `bind`, with its head where it has one."""
        from probssl.encoders import WithHead, seeded

        known = self._context(sample)
        encoder = seeded(self.seed, lambda: bound(self.encoder, known))
        self.plan.check_layers(encoder)
        if self.head is None:
            return encoder
        head, outer = self.head, self._context(None, (output_size(encoder, self.facts.shape),))
        return WithHead(encoder, seeded(self.seed + HEAD_SEED, lambda: bound(head, outer)))

    def encoder_without_memory(self) -> nn.Module:
        """The encoder as it will be bound, on torch's meta device; an object that has its weights already as it is."""
        import torch

        if not isinstance(self.encoder, Part):
            return self.encoder
        try:
            with torch.device("meta"):
                return self.bind_encoder()
        except (RuntimeError, TypeError) as error:
            raise OverflowError("the encoder has more weights than torch can count") from error

    def _context(self, sample: Tensor | None, shape: tuple[int, ...] | None = None) -> Context:
        layout = self.facts.layout if shape is None and self.facts.columns else None
        shape = self.facts.shape if shape is None else shape
        return Context(shape=shape, rows=self.facts.rows, batch_size=self.plan.batch_size, sample=sample, layout=layout)


def _name(slot: str, part: Any) -> str:
    """The name of an object, or that of its class."""
    return KINDS[slot].name_of(type(part)) or type(part).__name__


def _spelled_out(part: Any, chosen: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings that make a part again, those of parts within too, whatever suits the data.

    Of a part that was chosen by name with settings, those that are None or kept silent about are left to what suits
    the data unless they were chosen; of an object all are as they are.
    """
    found: dict[str, Any] = {}
    for name, value in values.settings_of(part).items():
        before = None if chosen is None else chosen.get(name)
        if values.is_part(value):
            inner = before if isinstance(before, Mapping) else None
            found[name] = {**values.plain(value), **_spelled_out(value, inner)}
        elif value is not None or chosen is None or name in chosen:
            found[name] = value
    silent = {name: value for name, value in (chosen or {}).items() if name not in found}
    return {name: value for name, value in {**found, **silent}.items() if name not in ("energy", values.NAME)}


@functools.cache
def fixed_energy(objective: str) -> str | None:
    """The energy that an objective is defined with, by its name; None where any may be chosen."""
    entry = KINDS["objective"].find(objective)
    if "energy" in values.declared(entry.load()) and "energy" not in entry.preset:
        return None
    made = type(values.build("objective", entry, {}).energy)
    return KINDS["energy"].name_of(made) or made.__name__


def bound(module: nn.Module, context: Context) -> nn.Module:
    """A copy of an encoder: one of ours with weights for the context, any other with those it has."""
    from probssl.encoders.foreign import as_encoder

    if isinstance(module, Part):
        return module.bind(context)
    return as_encoder(copy.deepcopy(module), context)


def output_size(encoder: nn.Module, shape: tuple[int, ...]) -> int:
    """How many numbers an encoder makes of an observation."""
    import torch

    from probssl.encoders import WithHead, encode

    network = encoder.head if isinstance(encoder, WithHead) else encoder
    made = getattr(network, "dim", None)
    if isinstance(made, int):
        return made
    try:
        found = encode(encoder, torch.zeros(2, *shape))
        found = found if network is encoder else network(found)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(
            f"the network {type(network).__name__} does not take observations {list(shape)} ({reason})"
        ) from error
    if found.ndim != 2 or len(found) != 2:
        raise InputError(
            f"the network {type(network).__name__} makes {list(found.shape)} of two observations, not [2, dim]"
        )
    return int(found.shape[1])


def resolve(recipe: Recipe, facts: Facts, *, own: bool = False) -> Resolved:
    """Fill in what suits the data, and refuse what does not go together. With `own`, as of files, names are ours."""
    own = own or recipe.from_file
    from torch import nn

    for slot in SLOTS:
        if isinstance(chosen := getattr(recipe, slot), Missing):
            raise chosen.refuse()
    made = _Choices(own, facts)
    objective = _objective(recipe, facts, made)
    beside = _entry("objective", made["objective"], own).beside if "objective" in made else {}
    pairing = _pairing(recipe, objective, facts, made)
    if pairing is not None and pairing.masks:
        facts = facts.with_gaps()
    encoder = _part("encoder", recipe.encoder, defaults.encoder(objective, facts), made, _sizes(objective, facts))
    head = _part("head", recipe.head or beside.get("head"), None, made)
    for slot, network in (("encoder", encoder), ("head", head)):
        if not isinstance(network, nn.Module) and (slot == "encoder" or network is not None):
            raise InputError(f"{'an' if slot == 'encoder' else 'a'} {slot} is a name or a module, not {network!r}")
    _check(objective, pairing, encoder, head, facts)
    return Resolved(objective, pairing, encoder, head, _plan(recipe, objective, facts), recipe.seed, facts, made)


class _Choices(dict[str, Named]):
    """What was chosen by name so far; with `own`, names are looked up among ours alone."""

    def __init__(self, own: bool, facts: Facts) -> None:
        super().__init__()
        self.own, self.facts = own, facts


Suits = Callable[[Entry, Mapping[str, Any]], dict[str, Any]]
"""Settings that suit the data, of a part and in view of those that were given."""


def _entry(slot: str, named: Named, own: bool) -> Entry:
    return KINDS[slot].find(named.name, own=own and not named.trusted)


def _part(slot: str, chosen: Any, usual: Named | None, made: _Choices, suits: Suits = lambda entry, given: {}) -> Any:
    """An object as it is, or the part of a name with what suits it in place of settings that were not given."""
    chosen = Named(chosen) if isinstance(chosen, str) else chosen
    if chosen is None and usual is None:
        return None
    if chosen is not None and not isinstance(chosen, Named):
        _check_takes(slot, _name(slot, chosen), chosen, made.facts)
        return chosen
    named = usual if chosen is None else chosen
    if named is not None and not named.name:
        if usual is None:
            raise InputError(f"settings were given for the {slot}, but none is chosen: name the {slot} too")
        named = usual.with_settings(named.settings)
    assert named is not None
    entry = _entry(slot, named, made.own)
    fixed = usual.settings if usual is not None and usual.name == named.name else {}
    suited = {key: value for key, value in suits(entry, named.settings).items() if key not in entry.preset}
    made[slot] = dataclasses.replace(named, settings=_merged(suited, fixed, named.settings))
    part = values.build(slot, entry, made[slot].settings, own=made.own)
    _check_takes(slot, entry.name, part, made.facts)
    return part


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of which later ones win; those of a part within are merged: {"sampler": {"steps": 9}} keeps others."""
    found: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            before = found.get(name)
            value = {values.NAME: value} if isinstance(value, str) and isinstance(before, Mapping) else value
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                same = value.get(values.NAME, before.get(values.NAME)) == before.get(values.NAME)
                value = {**before, **value} if same else value
            found[name] = value
    return found


def _objective(recipe: Recipe, facts: Facts, choices: _Choices) -> Objective:
    from probssl.objectives import Objective

    chosen = recipe.objective
    if chosen is not None and not isinstance(chosen, Named):
        if not isinstance(chosen, Objective):
            raise InputError(f"an objective is a name or an Objective, not {chosen!r}")
        if recipe.energy is not None:
            raise InputError(f"{type(chosen).__name__} was given as an object with its own energy: leave energy out")
        return chosen
    named = Named("") if chosen is None else chosen
    named = named if named.name else Named(defaults.objective_name(facts, recipe.energy is not None), named.settings)
    entry = _entry("objective", named, choices.own)
    cls: type[Objective] = entry.load()
    given = dict(named.settings)
    if "energy" in cls.declared() and "energy" not in given:
        if "energy" not in entry.preset:
            given["energy"] = _energy(recipe, cls, facts, choices)
        elif recipe.energy is not None:
            given["energy"] = _fixed_energy(recipe, entry, choices)
    elif recipe.energy is not None:
        raise InputError(f"the objective {entry.name!r} has its own energy: leave energy out")

    def suits(entry: Entry, settings: Mapping[str, Any]) -> dict[str, Any]:
        return defaults.objective_settings(cls, facts, {**entry.preset, **settings})

    made: Objective = _part("objective", dataclasses.replace(named, settings=given), None, choices, suits)
    return made


def _energy(recipe: Recipe, cls: type[Objective], facts: Facts, choices: _Choices) -> Energy:
    from probssl.energies import Energy

    usual = defaults.energy(facts, cls.scores)

    def suits(entry: Entry, settings: Mapping[str, Any]) -> dict[str, Any]:
        return defaults.energy_settings(entry.load(), facts)

    made: Energy = _part("energy", recipe.energy, usual, choices, suits)
    if not isinstance(made, Energy):
        raise InputError(f"an energy is a name or an Energy, not {made!r}")
    return made


def _fixed_energy(recipe: Recipe, entry: Entry, choices: _Choices) -> Energy:
    """The energy that a published name fixes, with other settings; another one is refused."""
    fixed = entry.preset["energy"]
    chosen = recipe.energy
    if not isinstance(chosen, Named) or chosen.name not in ("", fixed[values.NAME]):
        raise InputError(
            f"the objective {entry.name!r} is defined with the {fixed[values.NAME]} energy: leave energy out"
        )
    name, settings = values.split({**fixed, **chosen.settings}, "energy")
    choices["energy"] = Named(name, settings)
    made: Energy = values.build("energy", _entry("energy", choices["energy"], choices.own), settings, own=choices.own)
    return made


def _pairing(recipe: Recipe, objective: Objective, facts: Facts, choices: _Choices) -> Pairing | None:
    from probssl.pairings import Pairing

    if facts.relation is not None:
        if recipe.pairing is not None:
            raise InputError(f"{facts.relation} already says which observations belong together: leave pairing out")
        return None
    made = _part("pairing", recipe.pairing, defaults.pairing(objective, facts), choices)
    if not isinstance(made, Pairing):
        raise InputError(f"a pairing is a name or a Pairing, not {made!r}")
    made.check_features(facts.shape[-1])
    return made


def _sizes(objective: Objective, facts: Facts) -> Suits:
    def suits(entry: Entry, settings: Mapping[str, Any]) -> dict[str, Any]:
        return defaults.encoder_settings(entry.name, values.declared(entry.load()), objective.energy, facts)

    return suits


def _plan(recipe: Recipe, objective: Objective, facts: Facts) -> TrainingPlan:
    from probssl.training.plan import TrainingPlan

    known = values.declared(TrainingPlan)
    given = {}
    for name, value in recipe.plan.items():
        if name not in known:
            raise InputError(unknown_setting("plan", name, known))
        given[name] = values.convert(value, known[name], own=True, where=f"plan.{name}")
    return TrainingPlan(**{**defaults.plan(objective, facts), **given})


def _check_takes(slot: str, name: str, part: Any, facts: Facts) -> None:
    """Refuse a part that is for other data."""
    takes = getattr(part, "takes", None)
    if takes is not None and takes != len(facts.shape):
        raise InputError(f"the {slot} {name} is for {TAKES[takes]}, but this data is {facts.words}: choose another")


def _check(objective: Objective, pairing: Pairing | None, encoder: nn.Module, head: Any, facts: Facts) -> None:
    """Refuse parts that do not go together, or not with the data."""
    what = type(objective).__name__
    if objective.compares_views and not objective.energy.symmetric:
        raise InputError(f"{what} embeds both sides of a pair in the same way: it cannot use an asymmetric energy")
    if objective.decodes and head is not None:
        raise InputError(f"{what} decodes the representation itself: leave the projection head out")
    if objective.needs.score and (pairing is None or not pairing.knows_score):
        where = facts.relation if pairing is None else f"the pairing {_name('pairing', pairing)}"
        raise InputError(
            f"{what} needs the score ∇ₓ log p(x̃ | x), which {where} does not know: choose a pairing that ends in "
            "noise, or another objective, for example infonce"
        )
    gives_negatives = facts.kind == "world" if pairing is None else pairing.gives_negatives
    if objective.needs.negatives and not gives_negatives:
        raise InputError(f"{what} needs a pairing that makes negatives: choose hard-negatives, or other candidates")
    if pairing is not None and pairing.gives_negatives and not objective.needs.negatives:
        raise InputError(
            f"{what} does not use the negatives that {_name('pairing', pairing)} makes: choose another pairing, or "
            "infonce with the candidates given or batch-and-given"
        )
    if objective.needs.latents and facts.kind != "world":
        raise InputError(f"{what} needs the true latents, which only a world knows")
    if objective.needs.index and pairing is None:
        raise InputError(
            f"{what} remembers the rows of its data, but {facts.relation} makes new ones at every step: choose another "
            "objective, for example swav"
        )
    if objective.decodes and facts.kind != "images" and getattr(objective, "likelihood").of_chances:  # noqa: B009
        raise InputError(
            "the bernoulli likelihood is for numbers from 0 to 1, such as pixels, which rows of a table are not: use "
            "gaussian"
        )
