"""What every function of this room does first: check what it was given. Every refusal is one sentence."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError

Array = NDArray[np.float64]

_DIMENSIONS = {1: "one dimension", 2: "two dimensions"}


# --- Numbers ----------------------------------------------------------------------------------------------------------


def whole(value: Any, name: str, at_least: int) -> int:
    """A whole number that is large enough, else an InputError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
        raise InputError(f"{name} must be a whole number of at least {at_least}, not {value!r}")
    return int(value)


def number(value: Any, name: str) -> float:
    """A finite real number, else an InputError."""
    if not _is_finite(value):
        raise InputError(f"{name} must be a finite number, not {value!r}")
    return float(value)


def positive(value: Any, name: str) -> float:
    """A finite number above zero, else an InputError."""
    if not _is_finite(value) or value <= 0:
        raise InputError(f"{name} must be a finite number above zero, not {value!r}")
    return float(value)


def not_negative(value: Any, name: str) -> float:
    """A finite number of zero or more, else an InputError."""
    if not _is_finite(value) or value < 0:
        raise InputError(f"{name} must be a finite number of zero or more, not {value!r}")
    return float(value)


def inverse_temperature(temperature: Any) -> float:
    """1/τ of a temperature above zero that can be divided by, else an InputError."""
    if positive(temperature, "temperature") < 1e-300:
        raise InputError(f"temperature must be large enough to divide by, not {temperature!r}")
    return 1 / float(temperature)


def random_generator(generator: Any) -> np.random.Generator:
    """A numpy random generator, else an InputError."""
    if not isinstance(generator, np.random.Generator):
        raise InputError(f"generator must be a numpy.random.Generator, not {generator!r}")
    return generator


# --- Arrays: always a copy, so that results never share memory with what was given ------------------------------------


def finite_array(values: ArrayLike, name: str, dimensions: int | None = None) -> Array:
    """A finite, non-empty float64 array, of so many dimensions if given, else an InputError."""
    try:
        raw = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{name} must be an array of numbers: {str(error).rstrip('.')}") from None
    if raw.dtype.kind not in "fiub":
        raise InputError(f"{name} must be an array of numbers, not of {raw.dtype}")
    if raw.size == 0 or dimensions not in (None, raw.ndim):
        wanted = "" if dimensions is None else f"have {_DIMENSIONS[dimensions]} and "
        raise InputError(f"{name} must {wanted}not be empty: the shape is {raw.shape}")
    array = raw.astype(np.float64)
    if not np.isfinite(array).all():
        index = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)
        raise InputError(f"{name} must be finite: {array[index]}{_at(index)}")
    return array


def vector(values: ArrayLike, name: str, size: int) -> Array:
    """So many finite numbers, [size], else an InputError."""
    array = np.atleast_1d(finite_array(values, name))
    if array.shape != (size,):
        raise InputError(f"{name} must have the shape ({size},), not {array.shape}")
    return array


def diagonal(values: ArrayLike, name: str, size: int | None = None) -> Array:
    """The diagonal of Λ as finite positive numbers, [d] with d ≥ 2, else an InputError."""
    array = finite_array(values, name, 1) if size is None else vector(values, name, size)
    if len(array) < 2:
        raise InputError(f"{name} must have at least two dimensions: {array}")
    if np.any(array <= 0):
        raise InputError(f"{name} must be above zero: {array.min():.6g}{_at((np.argmin(array),))}")
    return array


def unit_length(values: ArrayLike, name: str, dimensions: int | None = None) -> Array:
    """Vectors of unit length along the last axis, [..., d] with d ≥ 2, else an InputError."""
    array = finite_array(values, name, dimensions)
    if array.ndim == 0 or array.shape[-1] < 2:
        raise InputError(f"{name} must be vectors of at least two dimensions: the shape is {array.shape}")
    length = np.linalg.norm(array, axis=-1)
    index = np.unravel_index(int(np.argmax(np.abs(length - 1))), length.shape)
    if abs(length[index] - 1) > 1e-5:
        raise InputError(f"{name} must have unit length: {length[index]:.6g}{_at(index)}")
    return np.asarray(array / length[..., None])


def probabilities(values: ArrayLike, name: str, dimensions: int) -> Array:
    """Probabilities of two or more clusters along the last axis, [c] or [n, c], else an InputError."""
    array = finite_array(values, name, dimensions)
    if array.shape[-1] < 2:
        raise InputError(f"{name} must have at least two clusters: the shape is {array.shape}")
    if (array < 0).any():
        index = np.unravel_index(int(np.argmin(array)), array.shape)
        raise InputError(f"{name} must not be negative: {array[index]:g}{_at(index)}")
    total = array.sum(axis=-1)
    index = np.unravel_index(int(np.argmax(np.abs(total - 1))), total.shape)
    if abs(total[index] - 1) > 1e-4:
        raise InputError(f"{name} must sum to 1 over clusters: {total[index]:g}{_at(index)}")
    return array


def critic_values(positives: ArrayLike, negatives: ArrayLike) -> tuple[Array, Array]:
    """A critic's values for positives [n] and their negatives [n, m], else an InputError."""
    right, wrong = finite_array(positives, "positives", 1), finite_array(negatives, "negatives", 2)
    if len(right) != len(wrong):
        raise InputError(f"negatives must have a row for each of the {len(right)} positives, not {len(wrong)}")
    return right, wrong


# --- Matrices: a number is a matrix of size 1 -------------------------------------------------------------------------


def square(matrix: ArrayLike, name: str, size: int | None = None) -> Array:
    """A finite square matrix, [size, size] if given, else an InputError."""
    array = finite_array(matrix, name)
    array = array.reshape(1, 1) if array.ndim == 0 else array
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise InputError(f"{name} must be a square matrix, not of shape {array.shape}")
    if size is not None and len(array) != size:
        raise InputError(f"{name} must have the shape ({size}, {size}), not {array.shape}")
    return array


def symmetric(matrix: ArrayLike, name: str, size: int | None = None) -> Array:
    """A symmetric matrix, made exactly so, else an InputError."""
    array = square(matrix, name, size)
    gap = np.abs(array - array.T)
    if gap.max() > 1e-8 * np.abs(array).max():
        i, j = sorted(int(k) for k in np.unravel_index(int(np.argmax(gap)), gap.shape))
        raise InputError(f"{name} must be symmetric: {array[i, j]:g}{_at((i, j))} and {array[j, i]:g}{_at((j, i))}")
    return (array + array.T) / 2


def positive_definite(matrix: ArrayLike, name: str, size: int | None = None) -> Array:
    """A symmetric matrix whose eigenvalues are above zero by more than rounding, else an InputError."""
    array = symmetric(matrix, name, size)
    values = np.linalg.eigvalsh(array)
    if not values[0] > max(1e-14, len(array) * np.finfo(float).eps) * abs(values[-1]):
        raise InputError(f"{name} must be positive definite: its smallest eigenvalue is {values[0]:.3g}")
    return array


def positive_semidefinite(matrix: ArrayLike, name: str, size: int | None = None) -> Array:
    """A symmetric matrix without negative eigenvalues but for rounding, else an InputError."""
    array = symmetric(matrix, name, size)
    values = np.linalg.eigvalsh(array)
    if values[0] < -1e-9 * max(values[-1], 0.0):
        raise InputError(f"{name} must not have negative eigenvalues: the smallest is {values[0]:.3g}")
    return array


# --- Small steps ------------------------------------------------------------------------------------------------------


def _at(index: tuple[Any, ...]) -> str:
    """' at 3, 0': where in an array something was found; nothing for a single number."""
    return f" at {', '.join(str(i) for i in index)}" if index else ""


def _is_finite(value: Any) -> bool:
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return real and bool(abs(value) <= sys.float_info.max)
