"""Factors of variation, discrete or continuous, and the information that codes carry about them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array

Flags = NDArray[np.bool_]

_ROUNDING = 1e-12  # what three entropies leave where there is no information


def which_discrete(factors: Array, discrete: Sequence[bool] | None) -> Flags:
    """Which columns of factors [n, f] are discrete: as given, else those with nothing but whole numbers. [f]."""
    if discrete is None:
        return np.asarray(np.all(factors == np.round(factors), axis=0))
    flags = np.asarray(discrete)
    if flags.dtype != bool or flags.shape != (factors.shape[1],):
        raise InputError(f"discrete must be True or False for each of the {factors.shape[1]} factors")
    return flags


def must_vary(factors: Array) -> None:
    """Refuse constant factors: no code can tell anything about them."""
    still = np.flatnonzero(np.ptp(factors, axis=0) == 0)
    if len(still):
        raise InputError(f"factor {still[0]} is constant, so nothing can be learnt about it: leave it out")


def binned(columns: Array, bins: int) -> NDArray[np.intp]:
    """Each entry's bin, of equal-width bins from its column's least to its largest value; 0 if constant."""
    low, width = columns.min(axis=0), np.ptp(columns, axis=0)
    position = (columns - low) / np.where(width > 0, width, 1.0)
    return np.minimum((position * bins).astype(np.intp), bins - 1)


def factor_levels(factors: Array, discrete: Flags, bins: int) -> NDArray[np.intp]:
    """Each discrete factor's values numbered from 0, each continuous factor's bins. [n, f]."""
    levels = binned(factors, bins)
    for j in np.flatnonzero(discrete):
        levels[:, j] = np.unique(factors[:, j], return_inverse=True)[1].reshape(-1)
    return levels


def mutual_information(codes: NDArray[np.intp], levels: NDArray[np.intp]) -> tuple[Array, Array]:
    """I(code_i; factor_j) [k, f] and the entropies H(factor_j) [f], in nats, of the empirical frequencies.

    Both arguments are small numbers from 0. I = H(code) + H(factor) − H(both): one count over all codes for each
    factor.
    """
    n, k = codes.shape
    height = int(codes.max()) + 1
    cells = codes + height * np.arange(k)  # every code in a range of its own
    code_entropy = _entropy(np.bincount(cells.reshape(-1), minlength=height * k).reshape(k, height), n)
    information, entropies = np.empty((k, levels.shape[1])), np.empty(levels.shape[1])
    for j, level in enumerate(levels.T):
        width = int(level.max()) + 1
        joint = np.bincount((cells * width + level[:, None]).reshape(-1), minlength=height * k * width)
        entropies[j] = _entropy(np.bincount(level)[None], n)[0]
        information[:, j] = code_entropy + entropies[j] - _entropy(joint.reshape(k, height * width), n)
    return np.where(information > _ROUNDING, information, 0.0), entropies


def _entropy(counts: NDArray[np.intp], n: int) -> Array:
    """Entropy of each row of counts that sum to n: log n − Σ c log c / n, with 0 log 0 = 0."""
    logs = np.log(np.maximum(counts, 1))
    return np.asarray(np.log(n) - np.sum(counts * logs, axis=1) / n)
