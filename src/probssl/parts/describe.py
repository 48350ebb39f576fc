"""What a person can know of a part before using it: for `probssl parts`, for help and for the tables of the docs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from probssl.parts import values
from probssl.parts.recipe import PLAN, SLOTS
from probssl.parts.registry import KINDS, Entry, options_of, registry_of

ABOUT_PLAN = "the optimisation: steps, batch size, learning rate, schedule"

SUITED = (
    "Steps, batch size, learning rates and clip_norm that are not given are those that suit the data, where fit trains."
)

ITEM = re.compile(r"\s*(- |\d+\. )")
"""How an item of a list begins."""


@dataclass(frozen=True)
class Description:
    """A part by its name: what it is, its settings, and of an objective which collapses it admits."""

    kind: str
    name: str
    about: str
    formula: str
    settings: dict[str, dict[str, Any]]
    fixed: dict[str, Any]
    needs: tuple[str, ...] = ()
    admits: dict[str, str] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = {name: getattr(self, name) for name in ("kind", "name", "about", "formula", "settings", "fixed")}
        return {**fields, "needs": list(self.needs), **({} if self.admits is None else {"admits": self.admits})}


def describe(kind: str, name: str) -> Description:
    """All that its class says of a part."""
    entry = KINDS[kind].find(name)
    cls = entry.load()
    settings = _settings(cls, entry.preset)
    formula = _unwrapped((inspect.getdoc(cls) or "").partition("\nSettings:")[0].strip())
    admits = dict(cls.admits) if hasattr(cls, "admits") else None
    return Description(kind, name, entry.about, formula, settings, values.plain(entry.preset), _needs(cls), admits)


def describe_plan() -> Description:
    """The same of the plan of a training, of which there is one kind."""
    from probssl.training.plan import TrainingPlan

    about = f"{(inspect.getdoc(TrainingPlan) or '').partition(chr(10))[0]}\n\n{SUITED}"
    return Description(PLAN, "", ABOUT_PLAN, about, _settings(TrainingPlan, {}), {})


def paths(slot: str, name: str | None = None) -> list[str]:
    """Settings of a slot by path, "objective.sampler.steps": those of the part of a name, or of all its parts."""
    if slot == PLAN:
        return [f"{PLAN}.{setting}" for setting in describe_plan().settings]
    entries = [KINDS[slot].find(name)] if name else list(KINDS[slot].values())
    return list(dict.fromkeys(path for entry in entries for path in _paths(f"{slot}.", entry)))


def _paths(prefix: str, entry: Entry) -> Iterator[str]:
    for setting in values.declared(entry.load()).values():
        yield prefix + setting.name
        within = registry_of(options_of(setting.annotation))
        if within is not None and within.kind not in SLOTS:
            for part in within.values():
                yield from _paths(f"{prefix}{setting.name}.", part)


def _settings(cls: type, preset: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        setting.name: {
            "type": values.shown_type(setting.annotation),
            "default": values.plain(preset.get(setting.name, setting.default)),
            "about": setting.about,
        }
        for setting in values.declared(cls).values()
    }


def _unwrapped(text: str) -> str:
    """A docstring with a line for every paragraph, item of a list and formula, whatever the width it was written to."""
    lines: list[str] = []
    for line in text.splitlines():
        goes_on = lines and lines[-1] and line and not ITEM.match(line)
        deeper = len(line) - len(line.lstrip()) >= 4  # a formula
        if goes_on and not deeper:
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines)


def markdown(kind: str) -> str:
    """The names of a kind as a table for the docs: class, formula, and of objectives the collapses that they admit."""
    of_objectives = kind == "objective"
    rows = [["name", "class", "formula", *(["collapses not ruled out"] if of_objectives else [])]]
    rows.append(["---"] * len(rows[0]))
    first: dict[type, str] = {}
    for name, entry in KINDS[kind].items():
        if not entry.plugin:
            cls = entry.load()
            formula = " ".join((inspect.getdoc(cls) or "").split("\n", 1)[0].removesuffix(".").split())
            text = f"{entry.about}: a preset of `{first[cls]}`" if cls in first else formula
            first.setdefault(cls, name)
            collapses = [", ".join(cls.admits) or "–"] if of_objectives else []  # type: ignore[attr-defined]
            rows.append([f"`{name}`", f"`{cls.__name__}`", text, *collapses])
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)


def _needs(cls: type) -> tuple[str, ...]:
    """Capabilities that a class states, in words."""
    words = {
        "scores": "a pairing that knows its score",
        "compares_views": "a symmetric energy",
        "decodes": "a decoder",
        "samples": "samples of its density while training",
    }
    return tuple(text for name, text in words.items() if getattr(cls, name, False))
