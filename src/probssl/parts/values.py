"""Settings as people write them: names and plain values to parts, and back."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from probssl.errors import InputError
from probssl.parts.part import Part, Setting, explanations, unknown_setting
from probssl.parts.registry import KINDS, Entry, options_of, registry_of

NAME, OBJECT = "name", "object"
"""Keys under which a part among plain values has its name, or the class of one that has no name."""

NOTHING = "null"
"""How None is written where it is a choice of its own; "none" may also be the name of a part."""


def build(kind: str, entry: Entry, settings: Mapping[str, Any], *, own: bool = False, where: str = "") -> Any:
    """The part of a name with these settings, plain values among them turned into what the constructor takes.

    Names are looked up among ours alone with `own`, as for files. `where` is how the part is reached: "objective".
    """
    cls = entry.load()
    known = declared(cls)
    given = {**entry.preset, **settings}
    for name in settings:
        if name not in known and name not in entry.preset:
            raise InputError(unknown_setting(f"the {where or kind} {entry.name!r}", name, known))
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


def convert(value: Any, setting: Setting, *, own: bool, where: str) -> Any:
    """A plain value as its setting takes it; `InputError` where it cannot be one."""
    value, options = native(value), options_of(setting.annotation)
    registry = registry_of(options)
    if isinstance(value, str) and types.NoneType in options:
        named = _fits(value, options) or (registry is not None and value in registry)
        if value.lower() == NOTHING or (value.lower() == "none" and not named):
            return None
    if registry is not None and isinstance(value, str | Mapping):
        name, settings = (value, {}) if isinstance(value, str) else split(value, where)
        if isinstance(value, Mapping) or value in registry or not _fits(value, options):
            return build(registry.kind, registry.find(name, own=own), settings, own=own, where=where)
    inner = next((_inner(option) for option in options if is_sequence(option)), None)
    of_text = inner is str or registry_of(options_of(inner)) is not None
    single = isinstance(value, (int, float, str) if of_text else (int, float)) and not isinstance(value, bool)
    if inner is not None and single and not _fits(value, options):
        value = [value]  # as the command line writes a list of one
    if inner is not None and isinstance(value, list | tuple):
        return tuple(convert(entry, Setting("", inner, None, ""), own=own, where=where) for entry in value)
    if isinstance(value, Mapping) and (of := [option for option in options if typing.get_origin(option) is Mapping]):
        entries = Setting("", typing.get_args(of[0])[1], None, "")
        return {name: convert(entry, entries, own=own, where=f"{where}.{name}") for name, entry in value.items()}
    if isinstance(value, float) and value.is_integer() and int in options and float not in options:
        value = int(value)  # 1e4
    if str in options and isinstance(value, int | float) and not _fits(value, options):
        return str(value)  # "0", which the command line reads as a number
    if not _fits(value, options):
        raise InputError(f"{where} cannot be {value!r}{_expected(options)}")
    return float(value) if type(value) is int and float in options and int not in options else value


def split(value: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """A table of a name and settings, apart."""
    settings = dict(value)
    name = settings.pop(NAME, None)
    if OBJECT in settings:
        raise InputError(f"{where} is {settings[OBJECT]}, which has no name: give it as an object")
    if not isinstance(name, str):
        raise InputError(f"{where} needs a name: which {where.rpartition('.')[2]}?")
    return name, settings


def read(text: str) -> Any:
    """A value as the command line writes it: numbers, true, false, lists with commas, else text, "none" included."""
    text = text.strip()
    if text.lower() == NOTHING:
        return None
    for parse in (json.loads, int, float):  # as JSON writes numbers, and as Python does: .5, 1_000
        try:
            return parse(text.lower() if text.lower() in ("true", "false") else text)
        except ValueError:
            pass
    return [read(part) for part in text.strip("[]()").split(",")] if "," in text else text


def native(value: Any) -> Any:
    """Numbers and arrays of numpy as Python's numbers and lists; anything else as it is."""
    return value.tolist() if type(value).__module__ == "numpy" else value


def plain(value: Any) -> Any:
    """A setting as JSON and TOML can hold it: parts as tables with their name, and what has none as its class.

    A None among settings that were given is written, since it may not be what suits the data.
    """
    if isinstance(value, Mapping):
        return {str(key): NOTHING if entry is None else plain(entry) for key, entry in value.items()}
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
            return {NAME: name, **_given(value)}
    settings = _given(value) if isinstance(value, Part) else {}
    return {OBJECT: f"{cls.__module__}:{cls.__qualname__}", **{k: v for k, v in settings.items() if k != "energy"}}


def is_part(value: Any) -> bool:
    """Whether a setting is a part with settings of its own."""
    return isinstance(value, Part) or any(registry.name_of(type(value)) for registry in KINDS.values())


def _given(part: Any) -> dict[str, Any]:
    return {name: plain(value) for name, value in settings_of(part).items() if value is not None}


def settings_of(part: Any) -> dict[str, Any]:
    """What a part was made with: its settings, or the fields of a dataclass."""
    if hasattr(part, "settings"):
        return dict(part.settings())
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}


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


def _inner(option: Any) -> Any:
    """What a sequence holds."""
    return (*typing.get_args(option), Any)[0]


def _expected(options: Sequence[Any]) -> str:
    """What a setting could be, where that can be said."""
    words = [
        str(word) for option in options if typing.get_origin(option) is Literal for word in typing.get_args(option)
    ]
    if words:
        return f": choose {', '.join(words)}"
    kinds = [shown_type(option) for option in options if option is not types.NoneType and option is not Any]
    known = [kind for kind in dict.fromkeys(kinds) if kind[:1].islower()]
    return f": it is {' or '.join(map(_with_article, known))}" if known else ""


def _with_article(kind: str) -> str:
    if kind in ("true or false", "text"):
        return kind
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def shown_type(annotation: Any) -> str:
    """A type in words: "number", "original or augmented", "energy"."""
    options = [option for option in options_of(annotation) if option is not types.NoneType]
    if len(options) > 1:
        return " or ".join(dict.fromkeys(map(shown_type, options)))
    annotation = options[0]
    if typing.get_origin(annotation) is Literal:
        return " or ".join(map(str, typing.get_args(annotation)))
    registry = registry_of(options)
    if registry is not None:
        return registry.kind
    if is_sequence(annotation):
        inner = [shown_type(option) for option in typing.get_args(annotation) if option is not Ellipsis]
        return f"list of {' or '.join(f'{kind}s' for kind in dict.fromkeys(inner)) or 'values'}"
    if typing.get_origin(annotation) is Mapping:
        return f"table of {shown_type(typing.get_args(annotation)[1])}s"
    names = {int: "whole number", float: "number", bool: "true or false", str: "text"}
    called = getattr(annotation, "__name__", str(annotation))
    return names.get(annotation, "network" if called == "Module" else called)
