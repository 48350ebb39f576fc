"""Files that are read back, checked against the types that they are read into.

A type hint is the schema: `conform` turns plain values of JSON into it, dataclasses included, and says in a few words
where they do not fit. `intact` makes one sentence of whatever goes wrong while a file is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

import numpy as np

from probssl.errors import DamagedFile, ProbsslError

Read = TypeVar("Read")

WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
    list: "a list",
    tuple: "a list",
    dict: "a table",
}

WHOLE = 2**63
"""What whole numbers must be below, as arrays have them."""


class Mismatch(ValueError):
    """A value is not what its type hint says."""


@contextlib.contextmanager
def intact(path: Path, way_out: str = "copy it back, or train again") -> Iterator[None]:
    """One sentence about the file for whatever goes wrong in the block; errors made on purpose stay as they are."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFile(f"{path} is missing: {way_out}") from error
    except Exception as error:
        if isinstance(error, ProbsslError | MemoryError) or (isinstance(error, OSError) and error.errno):
            raise
        said = " ".join(str(error).split())
        reason = said if isinstance(error, Mismatch) else f"{type(error).__name__}: {said}" if said else repr(error)
        raise DamagedFile(f"{path} is damaged ({reason[:160].rstrip('.')}): {way_out}") from error


def read_json(path: Path, kind: type[Read], way_out: str = "copy it back, or train again") -> Read:
    """A JSON file as a type; `DamagedFile` where it is not one."""
    with intact(path, way_out):
        return conform(from_json(path.read_text(encoding="utf-8")), kind)


def from_json(text: str) -> Any:
    """A value of strict JSON: NaN and Infinity are none."""
    return json.loads(text, parse_constant=_refused)


def _refused(name: str) -> None:
    raise Mismatch(f"{name} is no number of JSON")


def conform(value: Any, kind: Any, where: str = "") -> Any:
    """A plain value as a type hint has it, a dataclass made of its fields; `Mismatch` where it does not fit.

    Numbers must be finite and whole ones of 64 bits. What is a dataclass already is left as it is.
    """
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if kind is Any or (dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, kind)):
        return value
    if origin in (Union, types.UnionType):
        return _one_of(value, inner, where)
    if origin is Literal and isinstance(value, str) and value in inner:
        return value
    if kind in (None, types.NoneType) and value is None:
        return value
    if kind is float and _is_number(value, int | float) and math.isfinite(value):
        return value
    if kind is int and _is_number(value, int) and abs(value) < WHOLE:
        return value
    if kind in (bool, str) and isinstance(value, kind):
        return value
    if origin in (dict, Mapping) and isinstance(value, dict):
        of = inner[1] if inner else Any
        return {name: conform(entry, of, _below(where, name)) for name, entry in value.items()}
    if origin in (list, tuple, Sequence) and isinstance(value, list | tuple):
        return _listed(value, origin, inner, where)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _made(value, kind, where)
    raise Mismatch(f"{where or 'it'} must be {_called(kind)}, not {repr(value)[:40]}")


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _one_of(value: Any, kinds: Sequence[Any], where: str) -> Any:
    for kind in kinds:
        with contextlib.suppress(Mismatch):
            return conform(value, kind, where)
    holders = [kind for kind in kinds if isinstance(value, dict) and dataclasses.is_dataclass(kind)]
    if holders:
        return conform(value, holders[0], where)  # to say which of its fields is at fault
    raise Mismatch(f"{where or 'it'} must be {' or '.join(map(_called, kinds))}, not {repr(value)[:40]}")


def _listed(value: Sequence[Any], origin: Any, inner: tuple[Any, ...], where: str) -> Any:
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        if len(value) != len(inner):
            raise Mismatch(f"{where or 'it'} must have {len(inner)} entries, not {len(value)}")
        kinds: Sequence[Any] = inner
    else:
        kinds = [inner[0] if inner else Any] * len(value)
    made = [conform(entry, of, f"{where}[{n}]") for n, (entry, of) in enumerate(zip(value, kinds, strict=True))]
    return tuple(made) if origin is tuple else made


def _made(value: dict[str, Any], kind: Any, where: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    hints = typing.get_type_hints(kind)
    unknown = sorted(value.keys() - fields.keys())
    nothing = dataclasses.MISSING
    needed = {name for name, field in fields.items() if field.default is nothing and field.default_factory is nothing}
    missing = sorted(needed - value.keys())
    if unknown or missing:
        what = f"has no {missing[0]!r}" if missing else f"cannot have {unknown[0]!r}"
        raise Mismatch(f"{where or 'it'} {what}")
    return kind(**{name: conform(entry, hints[name], _below(where, name)) for name, entry in value.items()})


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _called(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    return WORDS.get(typing.get_origin(kind) or kind, "a table")


def read_arrays(path: Path, way_out: str, optional: Sequence[str] = (), **shapes: str) -> dict[str, np.ndarray]:
    """Arrays of an NPZ file by name, each checked for its kinds and its dimensions: `z="f2"`, `rows="iuU1"`."""
    with intact(path, way_out), np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in shapes if name in stored or name not in optional}
        for name, array in arrays.items():
            kinds, dimensions = shapes[name][:-1], int(shapes[name][-1])
            if array.dtype.kind not in kinds or array.ndim != dimensions:
                raise Mismatch(f"{name} cannot be an array {list(array.shape)} of {array.dtype}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise Mismatch(f"{name} has numbers that are not finite")
        return arrays
