"""What a person can know of a part before using it: for `probssl parts`, for help and for the tables of the docs."""

from __future__ import annotations

import inspect
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal, Union

from probssl.parts import values
from probssl.parts.registry import KINDS


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
    registry = KINDS[kind]
    entry = registry.find(name)
    cls = entry.load()
    settings = {
        setting.name: {
            "type": shown_type(setting.annotation),
            "default": values.plain(entry.preset.get(setting.name, setting.default)),
            "about": setting.about,
        }
        for setting in values.declared(cls).values()
    }
    text = (inspect.getdoc(cls) or "").partition("\nSettings:")[0].strip()
    formula = "\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n")[:2])
    admits = dict(cls.admits) if hasattr(cls, "admits") else None
    return Description(kind, name, entry.about, formula, settings, values.plain(entry.preset), _needs(cls), admits)


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


def shown_type(annotation: Any) -> str:
    """A type in words: "number", "original or augmented", "energy"."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        inner = [shown_type(option) for option in typing.get_args(annotation) if option is not types.NoneType]
        return " or ".join(dict.fromkeys(inner))
    if typing.get_origin(annotation) is Literal:
        return " or ".join(map(str, typing.get_args(annotation)))
    registry = values.registry_of([annotation])
    if registry is not None:
        return registry.kind
    if values.is_sequence(annotation):
        inner = [shown_type(option) for option in typing.get_args(annotation) if option is not Ellipsis]
        return f"list of {' or '.join(f'{kind}s' for kind in dict.fromkeys(inner)) or 'values'}"
    names = {int: "whole number", float: "number", bool: "true or false", str: "text"}
    called = getattr(annotation, "__name__", str(annotation))
    return names.get(annotation, "network" if called == "Module" else called)
