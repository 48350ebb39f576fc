"""Settings as people write them: names and plain values to parts, and back."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from probssl.errors import InputError
from probssl.parts.part import Part, Setting, explanations
from probssl.parts.registry import KINDS, Entry, Registry

NAME, OBJECT = "name", "object"
"""Keys under which a part among plain values has its name, or the class of one that has no name."""


def build(kind: str, entry: Entry, settings: Mapping[str, Any], *, own: bool = False, where: str = "") -> Any:
    """The part of a name with these settings, plain values among them turned into what the constructor takes.

    Names are looked up among ours alone with `own`, as for files. `where` is how the part is reached: "objective".
    """
    cls = entry.load()
    known = declared(cls)
    given = {**entry.preset, **settings}
    for name in settings:
        if name not in known and name not in entry.preset:
            raise InputError(unknown_setting(where or kind, entry.name, name, known))
    made = {
        name: convert(value, known[name], own=own, where=f"{where or kind}.{name}") if name in known else value
        for name, value in given.items()
    }
    try:
        return cls(**made)
    except TypeError as error:
        missing = re.search(r"missing a required argument: '(\w+)'", str(error))
        what = f"needs {where or kind}.{missing[1]} to be given" if missing else f"cannot be made ({error})"
        raise InputError(f"the {where or kind} {entry.name!r} {what}") from error


def declared(cls: type) -> dict[str, Setting]:
    """The settings of a class, in the order of its constructor."""
    if issubclass(cls, Part):
        return cls.declared()
    hints, explained = typing.get_type_hints(cls.__init__), explanations(cls)  # type: ignore[arg-type]
    return {
        name: Setting(name, hints.get(name, Any), parameter.default, explained.get(name, ""))
        for name, parameter in list(inspect.signature(cls).parameters.items())
    }


def unknown_setting(where: str, owner: str, name: str, known: Mapping[str, Setting]) -> str:
    """The sentence about a setting that a part does not have, with where it might belong."""
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"the {where} {owner!r} has no setting {name!r}: did you mean {close[0]!r}?"
    listed = f"its settings are {', '.join(known)}" if known else "it has none"
    return f"the {where} {owner!r} has no setting {name!r}: {listed}"


def convert(value: Any, setting: Setting, *, own: bool, where: str) -> Any:
    """A plain value as its setting takes it; `InputError` where it cannot be one."""
    options = _options(setting.annotation)
    registry = registry_of(options)
    if registry is not None and isinstance(value, str | Mapping):
        name, settings = (value, {}) if isinstance(value, str) else split(value, where)
        if isinstance(value, Mapping) or value in registry or not _fits(value, options):
            return build(registry.kind, registry.find(name, own=own), settings, own=own, where=where)
    if any(is_sequence(option) for option in options) and isinstance(value, int | float) and not _fits(value, options):
        value = [value]  # as the command line writes a list of one
    if isinstance(value, list) and any(is_sequence(option) for option in options):
        inner = next((typing.get_args(option)[0] for option in options if typing.get_args(option)), Any)
        return tuple(convert(entry, Setting("", inner, None, ""), own=own, where=where) for entry in value)
    if str in options and isinstance(value, int | float) and not _fits(value, options):
        return str(value)  # "0", which the command line reads as a number
    if not _fits(value, options):
        raise InputError(f"{where} cannot be {value!r}{_expected(options)}")
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and int not in options else value


def split(value: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """A table of a name and settings, apart."""
    settings = dict(value)
    name = settings.pop(NAME, None)
    if OBJECT in settings:
        raise InputError(f"{where} is {settings[OBJECT]}, which has no name here: hand it in as an object")
    if not isinstance(name, str):
        raise InputError(f"{where} needs a name: which {where.rpartition('.')[2]}?")
    return name, settings


def read(text: str) -> Any:
    """A value as the command line writes it: numbers, true, false, none, lists with commas, else text."""
    text = text.strip()
    if text.lower() in ("none", "null"):
        return None
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        pass
    return [read(part) for part in text.strip("[]()").split(",")] if "," in text else text


def plain(value: Any) -> Any:
    """A setting as JSON and TOML can hold it: parts as tables with their name, and what has none as its class."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    if isinstance(value, Sequence):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    cls = type(value)
    for registry in KINDS.values():
        name = registry.name_of(cls)
        if name is not None:
            return {NAME: name, **plain(settings_of(value))}
    settings = settings_of(value) if isinstance(value, Part) else {}
    return {
        OBJECT: f"{cls.__module__}:{cls.__qualname__}",
        **plain({k: v for k, v in settings.items() if k != "energy"}),
    }


def settings_of(part: Any) -> dict[str, Any]:
    """What a part was made with: its settings, or the fields of a dataclass."""
    if hasattr(part, "settings"):
        return dict(part.settings())
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}


def _options(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the annotation alone."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return tuple(option for inner in typing.get_args(annotation) for option in _options(inner))
    return (annotation,)


def registry_of(options: Sequence[Any]) -> Registry | None:
    """The registry whose parts a setting takes."""
    for option in options:
        if isinstance(option, type):
            for registry in KINDS.values():
                path = [f"{base.__module__}:{base.__qualname__}" for base in option.__mro__]
                if registry.base in path:
                    return registry
    return None


def is_sequence(option: Any) -> bool:
    origin = typing.get_origin(option)
    return isinstance(origin, type) and issubclass(origin, Sequence) and origin is not str


def _fits(value: Any, options: Sequence[Any]) -> bool:
    if Any in options or not options:
        return True
    if value is None:
        return types.NoneType in options
    return any(_is_one(value, option) for option in options)


def _is_one(value: Any, option: Any) -> bool:
    if typing.get_origin(option) is Literal:
        return value in typing.get_args(option)
    if isinstance(value, bool):
        return option is bool
    if isinstance(value, int) and option is float:
        return True
    if isinstance(option, type) and isinstance(value, option):
        return True
    return is_sequence(option) and isinstance(value, Sequence) and not isinstance(value, str)


def _expected(options: Sequence[Any]) -> str:
    """What a setting could be, where that can be listed."""
    words = [
        str(word) for option in options if typing.get_origin(option) is Literal for word in typing.get_args(option)
    ]
    if words:
        return f": choose {', '.join(words)}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    kinds = [names[option] for option in options if option in names]
    return f": it is {' or '.join(kinds)}" if kinds else ""
