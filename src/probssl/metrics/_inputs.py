"""What every metric does first: check its arrays, and the three small steps several metrics share."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError

Array = NDArray[np.float64]


def representations(z: ArrayLike, name: str = "representations", rows: int = 1) -> Array:
    """z as a finite float64 array [n, m] with at least `rows` rows, else an InputError that says why not."""
    try:
        array = np.asarray(z)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} must be a two-dimensional array of numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be real numbers, not {array.dtype}")
    if array.ndim != 2:
        raise InputError(f"{name} must have two dimensions (rows, features), not shape {array.shape}")
    if array.shape[1] == 0:
        raise InputError(f"{name} has no features: its shape is {array.shape}")
    if array.shape[0] < rows:
        raise InputError(f"{name} needs at least {rows} rows and has {array.shape[0]}")
    array = array.astype(np.float64)  # also a copy, so that nothing below can touch the caller's array
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(f"{name} is not finite at row {row}, feature {column}")
    return array


def label_codes(labels: ArrayLike, rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Labels as integer codes 0..k-1, [n], and how many rows each class has, [k]."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise InputError(f"labels must have one dimension, not shape {array.shape}")
    if len(array) != rows:
        raise InputError(f"there are {len(array)} labels for {rows} rows")
    missing = np.isnan(array) if array.dtype.kind == "f" else np.array([x is None or x != x for x in array])
    if missing.any():
        raise InputError(f"the label of row {int(np.argmax(missing))} is missing")
    try:
        _, codes, counts = np.unique(array, return_inverse=True, return_counts=True)
    except TypeError:
        raise InputError("labels mix types that cannot be compared; make them all text or all numbers") from None
    return codes.reshape(-1), counts


def whole(value: Any, name: str, at_least: int) -> int:
    """A whole number that is large enough, else an InputError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
        raise InputError(f"{name} must be a whole number of at least {at_least}, not {value!r}")
    return int(value)


def positive(value: Any, name: str) -> float:
    """A finite number above zero, else an InputError."""
    if not isinstance(value, int | float | np.number) or not np.isfinite(value) or value <= 0:
        raise InputError(f"{name} must be a number above zero, not {value!r}")
    return float(value)


def unit_rows(z: Array) -> Array:
    """Each row divided by its length; a row of zeros has no direction and stays zero."""
    largest = np.abs(z).max(axis=1, keepdims=True)
    z = z / np.where(largest > 0, largest, 1.0)  # first by the largest entry: squares neither over- nor underflow
    length = np.sqrt(np.einsum("ij,ij->i", z, z))[:, None]
    return z / np.where(length > 0, length, 1.0)


def centred(z: Array) -> Array:
    """z minus its column means; constant columns become exactly zero, not rounding noise."""
    constant = z.max(axis=0) == z.min(axis=0)
    out: Array = z - z.mean(axis=0)
    out[:, constant] = 0.0
    return out


def subsample(z: Array, max_rows: int | None, seed: int) -> Array:
    """At most max_rows rows, drawn without replacement by the seed and kept in order; None keeps all."""
    if max_rows is None or len(z) <= whole(max_rows, "max_rows", 2):
        return z
    keep = np.random.default_rng(seed).choice(len(z), max_rows, replace=False)
    return z[np.sort(keep)]


def kmeans_codes(z: Array, clusters: int, seed: int) -> NDArray[np.intp]:
    """k-means pseudo-labels, [n]: one k-means++ start, seeded; at most one cluster for each distinct row."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    clusters = min(whole(clusters, "clusters", 2), len(z))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters: fewer clusters
        codes = KMeans(clusters, n_init=1, random_state=seed).fit_predict(z)
    return np.unique(codes, return_inverse=True)[1].reshape(-1)
