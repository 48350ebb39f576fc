"""A recipe as TOML, which people read and write."""

from __future__ import annotations

import dataclasses
import json
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probssl.errors import InputError

if TYPE_CHECKING:
    from probssl.recipe.recipe import Recipe


def to_toml(recipe: Recipe) -> str:
    """The recipe as TOML, each line with what it means."""
    helps = {f.name: f.metadata["help"] for f in dataclasses.fields(recipe)}
    lines = [f"# {helps[name]}\n{name} = {json.dumps(value)}\n" for name, value in recipe.as_dict().items()]
    return "\n".join(lines)


def read_toml(path: Path) -> dict[str, Any]:
    """The values in a TOML file; `InputError` where there is none to be read."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"there is no recipe at {path}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file ({error})") from error


def check_types(values: dict[str, Any], hints: dict[str, Any]) -> None:
    """Refuse a value that cannot stand for the field of its name."""
    for name, value in values.items():
        expected = hints.get(name)
        if expected is not None and not _fits(value, expected):
            raise InputError(f"{name} cannot be {value!r}")


def _fits(value: Any, expected: Any) -> bool:
    options = typing.get_args(expected) or (expected,)
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return int in options or float in options
    if isinstance(value, list):
        return any(typing.get_origin(option) is tuple for option in options) and all(type(v) is int for v in value)
    return type(value) in options
