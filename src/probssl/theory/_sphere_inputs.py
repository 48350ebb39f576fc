"""What every function of the sphere does first: check what it was given."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.theory._bessel import Array


def whole(value: Any, name: str, at_least: int) -> int:
    """A whole number that is large enough, else an InputError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
        raise InputError(f"{name} must be a whole number of at least {at_least}, not {value!r}.")
    return int(value)


def number(value: Any, name: str) -> float:
    """A finite real number, else an InputError."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating) or not isfinite(value):
        raise InputError(f"{name} must be a finite number, not {value!r}.")
    return float(value)


def positive(value: Any, name: str) -> float:
    """A finite number above zero, else an InputError."""
    if number(value, name) <= 0:
        raise InputError(f"{name} must be a number above zero, not {value!r}.")
    return float(value)


def not_negative(value: Any, name: str) -> float:
    """A finite number of zero or more, else an InputError."""
    if number(value, name) < 0:
        raise InputError(f"{name} must not be negative, and is {value!r}.")
    return float(value)


def finite_array(values: ArrayLike, name: str, dimensions: int) -> Array:
    """A finite, non-empty float64 array of so many dimensions, else an InputError."""
    try:
        array = np.array(values, dtype=np.float64)  # a copy: results never share memory with what was given
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}.") from None
    if array.ndim != dimensions or array.size == 0:
        wanted = "one dimension" if dimensions == 1 else "two dimensions (rows, features)"
        raise InputError(f"{name} must have {wanted} and not be empty: its shape is {array.shape}.")
    if not np.isfinite(array).all():
        at = np.argwhere(~np.isfinite(array))[0]
        raise InputError(f"{name} is not finite at {', '.join(map(str, at))}: {array[tuple(at)]}.")
    return array


def unit_rows(array: ArrayLike, name: str) -> Array:
    """Rows of unit length in two or more dimensions, else an InputError."""
    rows = finite_array(array, name, 2)
    if rows.shape[1] < 2:
        raise InputError(f"{name} must have at least two features, not shape {rows.shape}.")
    length = np.linalg.norm(rows, axis=1)
    if np.any(np.abs(length - 1) > 1e-6):
        row = int(np.argmax(np.abs(length - 1)))
        raise InputError(f"{name} must have unit length, and row {row} has length {length[row]:.6g}.")
    return rows / length[:, None]


def diagonal(values: ArrayLike, name: str, dim: int | None = None) -> Array:
    """The diagonal of Λ as finite positive numbers, [d], else an InputError."""
    array = finite_array(values, name, 1)
    if len(array) < 2:
        raise InputError(f"{name} must have at least two dimensions, and has {array}.")
    if dim is not None and len(array) != dim:
        raise InputError(f"{name} must have one number for each of the {dim} dimensions, not {len(array)}.")
    if np.any(array <= 0):
        raise InputError(f"{name} must be above zero, and entry {int(np.argmin(array))} is {array.min():.6g}.")
    return array


def random_generator(generator: Any) -> np.random.Generator:
    """A numpy random generator, else an InputError."""
    if not isinstance(generator, np.random.Generator):
        raise InputError(f"generator must be a numpy.random.Generator, not {generator!r}.")
    return generator
