"""The recipe: what a person chooses about a training, part by part, in one frozen object that round-trips to TOML."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probssl.errors import InputError
from probssl.parts import values
from probssl.parts.part import Part
from probssl.parts.registry import KINDS, name_again

SLOTS = ("objective", "energy", "pairing", "encoder", "head")
"""Parts that a recipe chooses, each a kind of the registry."""

PLAN = "plan"


@dataclass(frozen=True)
class Named:
    """A part by its name, with the settings that are not to be the usual ones."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = field(default=False, compare=False)
    """Whether a person named it, and not a file alone: only then may it be from another package."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))

    def with_settings(self, changes: Mapping[str, Any]) -> Named:
        """The same with other settings: `{"candidates": "batch"}`, `{"sampler.steps": 20}`."""
        settings = copy.deepcopy(dict(self.settings))
        for path, value in changes.items():
            *outer, last = path.split(".")
            inner = settings
            for name in outer:
                inner[name] = {values.NAME: inner[name]} if isinstance(inner.get(name), str) else inner.get(name) or {}
                inner = inner[name]
                if not isinstance(inner, dict):
                    raise InputError(_as_object(f"the {name}", inner, last))
            inner[last] = value
        return dataclasses.replace(self, settings=settings)

    def as_dict(self) -> dict[str, Any]:
        """One table of plain values."""
        return {**({values.NAME: self.name} if self.name else {}), **values.plain(self.settings)}


Choice = Named | Any | None
"""A part by name, an object, or None for what suits the data."""


@dataclass(frozen=True)
class Recipe:
    """How to learn a representation. What is None, and every setting that is not given, is what suits the data."""

    objective: Choice = None
    """How the model is fitted: which loss."""
    energy: Choice = None
    """What "alike" means between embeddings."""
    pairing: Choice = None
    """Which observations belong together: how rows are augmented."""
    encoder: Choice = None
    """The network, observations to representations."""
    head: Choice = None
    """What the loss sees behind the representation; none unless asked for."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """The optimisation: fields of `training.TrainingPlan`."""
    seed: int = 0
    """Decides initial weights, batches and augmentations."""
    from_file: bool = field(default=False, compare=False, repr=False)
    """Whether a file says it, which then may name no parts but ours."""

    def __post_init__(self) -> None:
        for slot in SLOTS:
            object.__setattr__(self, slot, _chosen(slot, getattr(self, slot)))
        object.__setattr__(self, PLAN, dict(self.plan))
        object.__setattr__(self, "seed", values.native(self.seed))
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**62:
            raise InputError(f"the seed must be a whole number of at least 0, not {self.seed!r}")

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """The recipe with settings by their path, `{"objective.candidates": "two-view", "plan.warmup": 0}`."""
        changes: dict[str, dict[str, Any]] = {}
        for path, value in settings.items():
            slot, _, name = path.partition(".")
            if not name:
                raise InputError(f"settings are named by their part, as in objective.candidates, not {path!r}")
            if slot not in (*SLOTS, PLAN):
                close = difflib.get_close_matches(slot, (*SLOTS, PLAN), 1)
                hint = f"did you mean {close[0]}.{name}?" if close else f"begin with {', '.join((*SLOTS, PLAN))}"
                raise InputError(f"there is no setting {path!r}: {hint}")
            changes.setdefault(slot, {})[name] = value
        made: dict[str, Any] = {}
        for slot, own in changes.items():
            chosen = getattr(self, slot)
            if slot == PLAN:
                made[slot] = Named("", chosen).with_settings(own).settings
            elif chosen is None or isinstance(chosen, Named):
                made[slot] = (Named("") if chosen is None else chosen).with_settings(own)
            else:
                raise InputError(_as_object(f"the {slot}", chosen, next(iter(own))))
        return dataclasses.replace(self, **made)

    def with_choices(self, **choices: Any) -> Recipe:
        """The recipe with other parts, where they are not None; settings of a part with the same name are kept."""
        given = {name: value for name, value in choices.items() if value is not None}
        for slot in SLOTS:
            before, now = getattr(self, slot), _chosen(slot, given.get(slot))
            if isinstance(now, Named):
                same = isinstance(before, Named) and before.name in ("", now.name)
                kept = now.with_settings({**before.settings, **now.settings}) if same else now
                given[slot] = dataclasses.replace(kept, trusted=True)
        if "objective" in given and not isinstance(given["objective"], Named):
            given.setdefault("energy", None)  # an object has its own
        return dataclasses.replace(self, **given)

    def with_trusted(self, **parts: Any) -> Recipe:
        """The recipe of a file, with parts that are not ours handed in by who loads it: objects, or names."""
        given: dict[str, Any] = {}
        for slot, part in parts.items():
            if slot not in SLOTS:
                raise InputError(f"a recipe has no part {slot!r}: its parts are {', '.join(SLOTS)}")
            stored = getattr(self, slot)
            if isinstance(part, str) and isinstance(stored, Named) and stored.name == part:
                part = dataclasses.replace(stored, trusted=True)
            elif isinstance(part, str):
                same = isinstance(stored, Missing) and stored.target == part
                part = Named(part, stored.settings if same else {}, trusted=True)
            elif slot == "objective":
                given["energy"] = None  # an object has its own
            given[slot] = part
        return dataclasses.replace(self, **given)

    @property
    def title(self) -> str:
        """The loss and what it compares by, in words."""
        return " · ".join(_called(part) for part in (self.objective, self.energy) if part is not None)

    # TOML and JSON

    def as_dict(self) -> dict[str, Any]:
        """What was chosen, as plain values; of an object that has no name, its class."""
        parts = {slot: _plain(getattr(self, slot)) for slot in SLOTS if getattr(self, slot) is not None}
        return {"seed": self.seed, **parts, **({PLAN: values.plain(self.plan)} if self.plan else {})}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Recipe:
        """The inverse of `as_dict`; unknown tables are refused, unknown settings when parts are made of it."""
        for name, value in stored.items():
            if name not in (*SLOTS, PLAN, "seed"):
                flat = "" if isinstance(value, Mapping) else ": it may be the flat recipe of an older probssl"
                tables = ", ".join((*SLOTS, PLAN))
                raise InputError(f"a recipe has the tables {tables} and a seed, but no {name!r}{flat}")
            if name != "seed" and not isinstance(value, Mapping if name == PLAN else Mapping | str):
                raise InputError(f"{name} must be a table of the recipe, not {value!r}")
        return cls(**stored)

    def to_toml(self) -> str:
        """The recipe as TOML, a table for each part."""
        lines = [f"seed = {self.seed}"]
        for name, table in self.as_dict().items():
            if name != "seed":
                lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Recipe:
        """Read what `to_toml` wrote, or what a person wrote."""
        try:
            found = cls.from_dict(tomllib.loads(Path(path).read_text(encoding="utf-8")))
            return dataclasses.replace(found, from_file=True)
        except FileNotFoundError as error:
            raise InputError(f"there is no recipe at {path}") from error
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path} is not a TOML file ({error})") from error
        except InputError as error:
            raise type(error)(f"{path}: {error}") from error


def agreed(short: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their path, of options of their own, `{"plan.steps": 5}`, and of all others; refuse two values."""
    for path in short.keys() & settings.keys():
        if short[path] != settings[path]:
            name = path.partition(".")[2]
            raise InputError(f"{name} is {short[path]} and {path} is {settings[path]}: give one of them")
    return {**short, **settings}


def _chosen(slot: str, value: Any) -> Choice:
    """What was given for a slot: a name, a name with settings, a table, or an object."""
    if isinstance(value, str):
        return Named(KINDS[slot].find(value).name)
    if isinstance(value, Mapping):
        if values.OBJECT in value:
            return Missing(slot, str(value[values.OBJECT]), {k: v for k, v in value.items() if k != values.OBJECT})
        settings = dict(value)
        return _chosen(slot, Named(str(settings.pop(values.NAME, "")), settings))
    if isinstance(value, Named) and value.name:
        KINDS[slot].find(value.name)
    if isinstance(value, type):
        raise InputError(f"the {slot} {value.__name__} is a class: give an object, {value.__name__}(…)")
    return value


@dataclass(frozen=True)
class Missing:
    """A part that was an object when the recipe was written: only who has it can hand it in again."""

    slot: str
    target: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def refuse(self) -> InputError:
        """The error that says so."""
        return InputError(
            f"the {self.slot} was an object of the class {self.target}: {name_again(self.slot, self.target)}"
        )


def _as_object(what: str, part: Any, setting: str) -> str:
    """The sentence about a setting of a part that is made already."""
    if isinstance(part, Part):
        return f"{what} was given as an object: pass {setting} to the constructor of {type(part).__name__}"
    return f"{setting} is set by {what.replace('the', 'your')}, which was given as an object: leave it out"


def _called(choice: Any) -> str:
    """The name of a part, or that of its class."""
    if isinstance(choice, Named):
        return choice.name
    return choice.target.rpartition(":")[2] if isinstance(choice, Missing) else type(choice).__name__


def _plain(choice: Any) -> dict[str, Any]:
    if isinstance(choice, Named):
        return choice.as_dict()
    if isinstance(choice, Missing):
        return {values.OBJECT: choice.target, **values.plain(choice.settings)}
    return values.plain(choice)


def _toml(value: Any) -> str:
    """A plain value as TOML writes it in one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
