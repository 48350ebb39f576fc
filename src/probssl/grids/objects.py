"""The version of an object: a hash of what it holds and of the code that it runs, equal in every process.

Parts that were handed in as objects have no name that a trial's key could hold. Their settings, arrays and attributes
count, and so do the functions, base classes and globals that the methods of their classes name, wherever those were
written: a script and a notebook too. Of our own code that is the closure of imports, of installed packages the files.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import logging
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probssl.errors import InputError
from probssl.grids.versions import code_version

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_UNTOLD = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__abstractmethods__", "_abc_impl"}
_UNTOLD |= {"__firstlineno__", "__static_attributes__", "__qualname__"}


def version_of(*parts: Any) -> str:
    """The version of objects together; `InputError` where one holds what has no stable description."""
    found = _Description(parts)
    return f"{code_version(sorted(found.library))} {found.digest}"


def own_modules(*parts: Any) -> list[types.ModuleType]:
    """Modules of code that is neither ours nor installed: other processes may not find them."""
    names = _Description(parts).own - {"__main__"}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


class _Description:
    """What objects are, as one long text that is hashed as it is written."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, tuple[int, Any]] = {}  # with the object itself, so that its number is not given again
        self.library: set[str] = set()
        """Modules of ours that are used."""
        self.own: set[str] = set()
        """Modules of neither ours nor installed packages."""
        for part in parts:
            self._tell(part, type(part).__name__)

    @property
    def digest(self) -> str:
        """The hash of the text."""
        return self._hash.hexdigest()[:16]

    def _write(self, *words: object) -> None:
        self._hash.update("\0".join(map(str, words)).encode() + b"\n")

    def _tell(self, value: Any, where: str) -> None:
        if isinstance(value, _PLAIN):
            self._write(type(value).__name__, repr(value))
        elif id(value) in self._seen:
            self._write("again", self._seen[id(value)][0])
        else:
            self._seen[id(value)] = len(self._seen), value
            if isinstance(value, type | types.FunctionType | types.ModuleType):
                self._tell_code(inspect.unwrap(value) if inspect.isfunction(value) else value, where)
            else:
                self._tell_all(self._parts_of(value, where), where)

    def _tell_all(self, parts: Iterable[tuple[str, Any]], where: str) -> None:
        for name, inner in parts:
            self._write("of", name)
            self._tell(inner, where if name == "type" else f"{where}.{name}")

    def _tell_code(self, value: type | types.FunctionType | types.ModuleType, where: str) -> None:
        """A class, a function or a module: by its place where that says what it is, else by what is in it."""
        module = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
        self._write("code", module, getattr(value, "__qualname__", ""))
        if module.partition(".")[0] == "probssl":
            self.library.add(module)
        elif _is_installed(module):
            self._write(_file_hash(module))
        else:
            self.own.add(module)
            self._tell_all(_inside(value), where)

    def _parts_of(self, value: Any, where: str) -> Iterator[tuple[str, Any]]:
        """What an object consists of, by name."""
        yield "type", type(value)
        if isinstance(value, Tensor):
            yield "tensor", f"{value.dtype} {tuple(value.shape)} {value.requires_grad}"
            value = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            yield "array", f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
        elif isinstance(value, enum.Enum | logging.Logger):
            yield "name", value.name
        elif isinstance(value, Mapping):
            yield from ((f"[{key!r}]", inner) for key, inner in value.items())
        elif isinstance(value, list | tuple | np.ndarray):
            yield from ((f"[{number}]", inner) for number, inner in enumerate(value))
        elif isinstance(value, set | frozenset):
            yield "set", ", ".join(sorted(map(repr, value)))
        elif isinstance(value, types.CodeType):
            yield from _of_code(value)
        elif isinstance(value, classmethod | staticmethod | types.MethodType):
            yield "function", value.__func__
            yield "self", getattr(value, "__self__", None)
        elif isinstance(value, property):
            yield from (("get", value.fget), ("set", value.fset))
        elif isinstance(value, functools.partial):
            yield from (("function", value.func), ("arguments", value.args), ("keywords", value.keywords))
        elif hasattr(value, "__dict__"):
            yield from vars(value).items()
        elif isinstance(value, torch.dtype | torch.device | torch.Size):
            yield "name", str(value)
        elif callable(value) and hasattr(value, "__name__"):  # written in C
            yield "name", f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value.__name__)}"
        else:
            raise InputError(
                f"{where} holds a {type(value).__name__}, of which no other process can tell whether it is the same: "
                "make it from settings, or leave it out"
            )


def _inside(value: type | types.FunctionType | types.ModuleType) -> Iterator[tuple[str, Any]]:
    """What code is made of, by name."""
    if isinstance(value, types.FunctionType):
        yield "code", value.__code__
        yield "defaults", (value.__defaults__, value.__kwdefaults__)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield name, getattr(cell, "cell_contents", None)
        known = value.__globals__
        yield from ((name, known[name]) for name in sorted(_names(value.__code__)) if name in known)
    elif isinstance(value, type):
        yield from ((base.__name__, base) for base in value.__mro__[1:-1])
        slots = types.MemberDescriptorType | types.GetSetDescriptorType
        own = vars(value).items()
        yield from ((name, inner) for name, inner in own if name not in _UNTOLD and not isinstance(inner, slots))
    else:
        kinds = types.FunctionType | types.ModuleType | type | str | int | float
        own = vars(value).items()
        yield from ((name, inner) for name, inner in own if isinstance(inner, kinds) and name[:2] != "__")


def _of_code(code: types.CodeType) -> Iterator[tuple[str, Any]]:
    yield "bytes", code.co_code
    yield "names", (*code.co_names, *code.co_varnames)
    yield "constants", code.co_consts


def _names(code: types.CodeType) -> set[str]:
    """Names that code looks up, and code within it."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*inner)


def _is_installed(module: str) -> bool:
    """Whether a module is of Python or of an installed package."""
    if module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] in sys.stdlib_module_names or module in sys.modules
    within = Path(file).resolve().parts
    return bool({"site-packages", "dist-packages"} & set(within)) or file.startswith(os.path.dirname(os.__file__))


@functools.cache
def _file_hash(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()
