"""The public names of the library with their signatures, a line each: `python -m tests.public > tests/public.txt`."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

import probssl


def named() -> Iterator[tuple[str, Any]]:
    """What stands in `__all__`, of the package and of the modules that it names."""
    for name in sorted(probssl.__all__):
        value = getattr(probssl, name)
        if isinstance(value, types.ModuleType):
            yield from ((f"{name}.{inner}", getattr(value, inner)) for inner in sorted(value.__all__))
        elif not name.startswith("__"):
            yield name, value


def values() -> Iterator[Any]:
    """The public objects themselves."""
    return (value for _, value in named())


def lines() -> Iterator[str]:
    """The public names with their signatures."""
    return (shown(name, value) for name, value in named())


def shown(name: str, value: Any) -> str:
    """A function or class with the names and kinds of its parameters; anything else by its name."""
    if not callable(value) or isinstance(value, types.GenericAlias):
        return name
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    words, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
        starred |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        words.append(f"{star}{parameter.name}" + ("=" if parameter.default is not parameter.empty else ""))
    return f"{name}({', '.join(words)})"


if __name__ == "__main__":
    print("\n".join(lines()))
